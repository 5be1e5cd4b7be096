"""Coupled drives: exact discretisation against scipy, both parametrisations, the measured data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal

import greybayes as gb
from greybayes.zoo.coupled_drives import (
    CoupledDrives,
    CoupledDrivesTheta,
    Physical,
    Polynomial,
    to_physical,
    to_polynomial,
)

N_STEPS = 500
rng = np.random.default_rng(1)
U = np.repeat(np.where(rng.uniform(size=100) < 0.5, -1.0, 1.0), 5)
CENTER = (2.058, 5.347, 19.62, 0.1205)
# Four at a time, always: one shape is one compilation. The last spring is overdamped.
PHYSICAL = np.array([CENTER, (1.993, 5.8, 20.14, 0.1156), (2.4, 4.3, 23.5, 0.097), (2, 5, 20, 1.4)])


@functools.cache
def wide(parametrisation: type, input_delay: int = 0) -> gb.Model:
    """Without noise, and free of the published box."""
    model = parametrisation(input_delay=input_delay).fix(noise_variance=0.0)
    return model.free(**{name: dist.Normal(0.0, 1e4) for name in model.prior.names})


def outputs(model, thetas, u=U):
    return gb.simulate(model, np.asarray(thetas), inputs=u[:, None], count=4).y[..., 0]


def oracle(K, alpha, omega0, xi, u=U):
    """x at the samples, from the transfer function, in float64."""
    denominator = np.polymul([1, alpha], [1, 2 * xi * omega0, omega0**2])
    system = scipy.signal.lti([K * alpha * omega0**2], denominator)
    return scipy.signal.lsim(system, u, 0.02 * np.arange(len(u)), interp=False)[1]


def oracle_polynomial(theta):
    cubics = [np.polymul([1, a], [1, 2 * x * w, w**2]) for _, a, w, x in theta]
    gains = [[k * a * w**2] for k, a, w, _ in theta]
    return np.hstack([gains, -np.array(cubics)[:, 1:]])


def test_the_step_is_exact_for_a_held_input():
    expected = np.array([oracle(*theta) for theta in PHYSICAL])
    assert expected.min() < -1 < 1 < expected.max(), "the sign must matter"
    # Measured: 2e-6 after 500 steps in float32, of outputs of size 3.
    np.testing.assert_allclose(outputs(wide(CoupledDrives), PHYSICAL), np.abs(expected), atol=2e-5)


def test_theta_is_the_polynomial_of_the_same_system():
    expected = np.abs([oracle(*theta) for theta in PHYSICAL])
    theta = oracle_polynomial(PHYSICAL)
    np.testing.assert_allclose(outputs(wide(CoupledDrivesTheta), theta), expected, atol=4e-5)


def test_both_parametrisations_give_one_output():
    mapped = jax.vmap(to_polynomial)(Physical(*jnp.asarray(PHYSICAL.T, jnp.float32)))
    by_theta = outputs(wide(CoupledDrivesTheta), np.stack(mapped, 1))
    back = jax.vmap(to_physical)(mapped)
    ours = outputs(wide(CoupledDrives), PHYSICAL)
    np.testing.assert_allclose(by_theta, ours, atol=4e-5)
    np.testing.assert_allclose(outputs(wide(CoupledDrives), np.stack(back, 1)), ours, atol=4e-5)


def test_the_mapping_is_that_of_the_denominator():
    mapped = np.stack(to_polynomial(Physical(*PHYSICAL.T)), 1)
    np.testing.assert_allclose(mapped, oracle_polynomial(PHYSICAL), rtol=1e-12)


def test_the_mapping_has_an_inverse():
    lows, highs = 0.8 * np.array(CENTER), 1.2 * np.array(CENTER)
    physical = rng.uniform(lows, highs, (200, 4))
    theta = Polynomial(*jnp.asarray(oracle_polynomial(physical).T, jnp.float32))
    back = np.stack(jax.jit(jax.vmap(to_physical))(theta), 1)
    np.testing.assert_allclose(back, physical, rtol=1e-4)


@pytest.mark.parametrize("roots", [(3.0, 10.0, 40.0), (8.0, 8.5, 60.0), (5.0, 20.0, 20.0)])
def test_of_three_real_roots_the_slowest_is_that_of_the_drives(roots):
    cubic = np.poly(-np.array(roots))
    theta = Polynomial(*jnp.array([2 * cubic[3], *-cubic[1:]], jnp.float32))
    K, alpha, omega0, xi = map(float, to_physical(theta))
    expected = (2.0, roots[0], np.sqrt(roots[1] * roots[2]))
    # Near a double root float32 knows half its digits.
    assert (K, alpha, omega0) == pytest.approx(expected, rel=2e-3)
    assert 2 * xi * omega0 == pytest.approx(roots[1] + roots[2], rel=2e-3)


@pytest.mark.parametrize(
    ("parametrisation", "center"),
    [(CoupledDrives, CENTER), (CoupledDrivesTheta, oracle_polynomial([CENTER])[0])],
)
def test_the_prior_is_twenty_percent_around_the_published_center(parametrisation, center):
    priors = [parameter.prior for parameter in parametrisation().prior.parameters.values()]
    boxes = np.array([(float(prior.low), float(prior.high)) for prior in priors])
    around = np.sort(np.outer(center, (0.8, 1.2)), axis=1)
    np.testing.assert_allclose(boxes, [*around, (0, 0.01)], rtol=1e-6)


def test_a_delayed_input_shifts_the_output_by_a_sample():
    now, late = (outputs(wide(CoupledDrives, delay), PHYSICAL) for delay in (0, 1))
    np.testing.assert_array_equal(late[:, 0], 0.0)
    np.testing.assert_allclose(late[:, 1:], now[:, :-1], atol=1e-6)


@pytest.mark.parametrize(
    ("theta", "delay", "published"),
    [((1.993, 5.800, 20.14, 0.1156), 0, 24.06), ((1.828, 7.075, 21.07, 0.1075), 1, 12.68)],
)
def test_the_measured_record_has_the_known_squared_error(shared_data, theta, delay, published):
    (record,) = gb.read_records(f"{shared_data}/DATAPRBS.MAT:y=z1,u=u1,dt=0.02")
    y = outputs(wide(CoupledDrives, delay), [theta] * 4, record.u[:, 0])[0]
    assert np.sum((y - record.y[:, 0]) ** 2) == pytest.approx(published, abs=0.02)
    # And by scipy alone: the figure is one of the data, not of our code.
    u = np.concatenate([np.zeros(delay), record.u[: N_STEPS - delay, 0]])
    alone = np.sum((np.abs(oracle(*theta, u)) - record.y[:, 0]) ** 2)
    assert alone == pytest.approx(published, abs=0.02)
