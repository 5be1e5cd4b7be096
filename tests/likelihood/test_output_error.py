"""The closed-form likelihood against NumPy's and SciPy's own simulation and densities."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal
from scipy.stats import multivariate_normal, norm

import greybayes as gb
from greybayes.errors import ModelError
from greybayes.likelihood.output_error import log_lik, output_error_log_lik

N = 40
rng = np.random.default_rng(3)
U = np.repeat(rng.choice([-1.0, 1.0], N // 4), 4)
Y = rng.normal(size=(N, 1))
Y[[0, 7, N - 1]] = np.nan
RECORD = gb.Record(Y, U)
SEEN = ~np.isnan(Y[:, 0])


def regressors(u=U):
    """The columns of a finite impulse response of order 2."""
    return np.stack([u, np.concatenate([[0.0], u[:-1]])], axis=1)


def test_a_finite_impulse_response_with_gaps_is_that_of_its_normal_density():
    thetas = rng.normal(size=(3, 2))
    expected = [norm.logpdf(Y[:, 0], regressors() @ theta, 0.3)[SEEN].sum() for theta in thetas]
    found = output_error_log_lik("fir", thetas, RECORD)
    # The variance 0.09 is a number of the model, in float64; nothing passes through float32.
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_it_can_be_differentiated_where_samples_are_missing():
    model, theta = gb.get_model("fir"), np.array([0.4, -0.7])
    with jax.enable_x64(True):
        given = tuple(jnp.asarray(a) for a in (theta, Y, U[:, None]))
        gradients = [
            jax.jit(mode(log_lik, argnums=1), static_argnums=0)(model, *given)
            for mode in (jax.jacfwd, jax.grad)
        ]
    errors = (Y[:, 0] - regressors() @ theta)[SEEN]
    for gradient in gradients:
        np.testing.assert_allclose(gradient, regressors()[SEEN].T @ errors / 0.09, rtol=1e-12)


@pytest.mark.parametrize("delay", [0, 2])
def test_coupled_drives_are_those_of_scipy(delay):
    from greybayes.zoo.coupled_drives import CoupledDrives

    K, alpha, omega0, xi, variance = theta = np.array([2.0, 5.5, 20.0, 0.12, 0.3])
    denominator = np.polymul([1, alpha], [1, 2 * xi * omega0, omega0**2])
    system = scipy.signal.lti([K * alpha * omega0**2], denominator)
    late = np.concatenate([np.zeros(delay), U[: N - delay]])
    x = scipy.signal.lsim(system, late, 0.02 * np.arange(N), interp=False)[1]
    expected = norm.logpdf(Y[:, 0], np.abs(x), np.sqrt(variance))[SEEN].sum()
    found = output_error_log_lik(CoupledDrives(input_delay=delay), theta[None], RECORD)
    # The matrix exponential of the model is exact to 1e-10.
    np.testing.assert_allclose(found, [expected], rtol=1e-8)


COVARIANCE = np.array([[0.5, 0.3], [0.3, 0.4]])


class Joint(gb.Model):
    """Two outputs whose noises are correlated, and a state that depends on time."""

    gain = gb.Parameter(dist.Uniform(0.0, 2.0))
    states, inputs, outputs = ("x",), ("u",), ("y", "z")

    def initial(self, u, p):
        return gb.Known(p.gain)

    def transition(self, x, u, p, t):
        return gb.Known(0.5 * x + p.gain * u + 0.1 * t.k)

    def observation(self, x, u, p, t):
        return dist.MultivariateNormal(jnp.concatenate([x, 2 * x]), jnp.asarray(COVARIANCE))


def test_of_correlated_outputs_only_the_missing_ones_are_left_out():
    y = rng.normal(size=(N, 2)) + 1
    y[3] = np.nan
    y[5, 0] = y[9, 1] = np.nan
    expected, x = 0.0, 0.8
    for k in range(N):
        seen = ~np.isnan(y[k])
        if seen.any():
            part = multivariate_normal(np.array([x, 2 * x])[seen], COVARIANCE[np.ix_(seen, seen)])
            expected += part.logpdf(y[k, seen])
        x = 0.5 * x + 0.8 * U[k] + 0.1 * (k + 1)
    found = output_error_log_lik(Joint(), np.array([[0.8]]), gb.Record(y, U))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


class Drawn(Joint):
    def observation(self, x, u, p, t):
        return gb.Sampler(lambda key: jnp.concatenate([x, x]) + jr.normal(key, (2,)))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("growth2", "Growth2 has no closed-form likelihood: its transition has noise"),
        ("cascaded-tanks", "its initial has noise"),
        (Drawn(), "its observation has no density"),
    ],
)
def test_other_models_are_refused(model, sentence):
    with pytest.raises(ModelError, match=sentence):
        output_error_log_lik(model, np.zeros((1, 1)), RECORD)
