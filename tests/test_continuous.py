"""From rates to steps, against scipy and against solutions known in closed form."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.linalg
import scipy.stats as st
from helpers import assert_mean, assert_moments, assert_uncorrelated

import greybayes as gb
from greybayes.errors import ModelError

N = 20_000
rng = np.random.default_rng(2)


def stable(n):
    a = rng.normal(size=(n, n))
    return a - (np.linalg.eigvals(a).real.max() + 0.5) * np.eye(n)


SYSTEMS = {
    "first order": ([[-1.3]], [[0.7]]),
    "integrators": ([[0, 1], [0, 0]], [[0], [1]]),
    "stable": (stable(3), rng.normal(size=(3, 1))),
    "stable, two inputs": (stable(4), rng.normal(size=(4, 2))),
    "unstable, three inputs": (stable(3) + 1.5 * np.eye(3), rng.normal(size=(3, 3))),
    "no input": (stable(2), np.zeros((2, 0))),
}


@pytest.mark.parametrize("dt", [0.02, 1.5])
@pytest.mark.parametrize(("a", "b"), SYSTEMS.values(), ids=SYSTEMS)
def test_zero_order_hold_is_the_exponential_and_its_integral(a, b, dt):
    a, b = np.asarray(a, float), np.asarray(b, float)
    held = gb.zero_order_hold(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32), dt)
    # scipy's quadrature of exp(a s) b over the step: not the block matrix that we take.
    driven, _ = scipy.integrate.quad_vec(lambda s: scipy.linalg.expm(a * s) @ b, 0, dt)
    exact = scipy.linalg.expm(a * dt)
    np.testing.assert_allclose(held.a, exact, atol=3e-6 * np.abs(exact).max())
    np.testing.assert_allclose(held.b, driven, atol=3e-6 * max(np.abs(driven).max(initial=0), 1))
    x, u = rng.normal(size=len(a)), rng.normal(size=b.shape[1])
    stepped = held.step(jnp.asarray(x, jnp.float32), jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(stepped, exact @ x + driven @ u, rtol=2e-5, atol=2e-5)


def test_zero_order_hold_keeps_float64_where_it_is_asked_for():
    a, b = stable(3), rng.normal(size=(3, 2))
    with jax.enable_x64(True):
        held = gb.zero_order_hold(jnp.asarray(a), jnp.asarray(b), 0.7)
        # The matrix depends on which tests ran before: a bound for any, far below float32.
        np.testing.assert_allclose(held.a, scipy.linalg.expm(0.7 * a), rtol=1e-11, atol=1e-11)


def rate(x):
    """Van der Pol's oscillator: nonlinear, smooth."""
    return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])


@pytest.mark.parametrize(("rule", "order"), [(gb.euler, 1), (gb.rk4, 4)])
def test_halving_the_step_divides_the_error_by_two_to_the_order(rule, order):
    start = np.array([1.2, -0.4])
    solution = scipy.integrate.solve_ivp(
        lambda t, x: [x[1], (1 - x[0] ** 2) * x[1] - x[0]],
        (0, 1), start, method="DOP853", rtol=1e-13, atol=1e-13,
    )  # fmt: skip
    counts = np.array([4, 8, 16, 32])  # On both sides of the limit up to which it is unrolled.
    if order == 1:
        counts *= 8
    with jax.enable_x64(True):
        ends = [np.asarray(rule(rate, jnp.asarray(start), 1.0, int(n))) for n in counts]
    errors = [np.linalg.norm(end - solution.y[:, -1]) for end in ends]
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(order, abs=0.1)
    assert errors[-1] < {1: 5e-3, 4: 1e-7}[order]


@pytest.mark.parametrize("rule", [gb.euler, gb.rk4])
@pytest.mark.parametrize("substeps", [3, 12])
def test_substeps_are_steps_of_a_part_of_dt(rule, substeps):
    x = jnp.array([1.2, -0.4])
    at_once = rule(rate, x, jnp.array(0.6), substeps)
    for _ in range(substeps):
        x = rule(rate, x, 0.6 / substeps)
    np.testing.assert_allclose(at_once, x, rtol=1e-5)


def test_one_step_of_euler_is_the_tangent():
    x = np.array([1.2, -0.4])
    expected = x + 0.3 * np.array([x[1], (1 - x[0] ** 2) * x[1] - x[0]])
    np.testing.assert_allclose(gb.euler(rate, jnp.asarray(x), 0.3), expected, rtol=1e-6)


@pytest.mark.parametrize("rule", [gb.euler, gb.rk4])
def test_steps_have_gradients(rule):
    # d/dx0 of exp(-dt) x0, to the accuracy of the rule.
    slope = jax.grad(lambda x: rule(lambda x: -x, x[None], 0.5, 20)[0])(jnp.array(2.0))
    assert float(slope) == pytest.approx(
        {gb.euler: 0.975**20, gb.rk4: np.exp(-0.5)}[rule], rel=1e-5
    )


@pytest.mark.parametrize("substeps", [0, -1])
@pytest.mark.parametrize("rule", [gb.euler, gb.rk4, gb.euler_maruyama])
def test_there_is_at_least_one_substep(rule, substeps):
    # A model's dt is traced: dividing by zero does not raise, and the state would stand still.
    rates = (rate, rate) if rule is gb.euler_maruyama else (rate,)
    with pytest.raises(ModelError, match=f"substeps is {substeps}, expected 1 or more"):
        rule(*rates, jnp.ones(2), jnp.array(0.5), substeps)


# Euler-Maruyama.

X = np.array([1.5, -0.5])
SIGMA = np.array([0.4, 0.9])


def test_one_step_of_euler_maruyama_is_normal():
    d = gb.euler_maruyama(lambda x: -2 * x, lambda x: 0.3 * jnp.abs(x), jnp.asarray(X), 0.1)
    oracle = st.norm(0.8 * X, 0.3 * np.abs(X) * np.sqrt(0.1))
    np.testing.assert_allclose(d.mean, oracle.mean(), rtol=1e-6)
    np.testing.assert_allclose(d.variance, oracle.var(), rtol=1e-5)
    at = np.array([1.0, -0.3])
    np.testing.assert_allclose(d.log_prob(jnp.asarray(at)), oracle.logpdf(at), rtol=1e-4)


@pytest.mark.parametrize("substeps", [2, 20])
def test_substeps_of_euler_maruyama_follow_ornstein_and_uhlenbeck(substeps):
    k, dt = 1.7, 0.8
    d = gb.euler_maruyama(
        lambda x: -k * x, lambda x: jnp.asarray(SIGMA, jnp.float32), jnp.asarray(X), dt, substeps
    )
    assert isinstance(d, gb.Sampler)
    draws = np.asarray(d.sample(jr.key(0), (N,)), float)
    # The moments of the rule itself, exactly; those of the process differ by the step's bias.
    h = dt / substeps
    decay = (1 - k * h) ** substeps
    variance = SIGMA**2 * h * np.sum((1 - k * h) ** (2 * np.arange(substeps)))
    assert_moments(draws, decay * X, variance)
    assert_uncorrelated(draws)
    process = np.exp(-k * dt), SIGMA**2 * -np.expm1(-2 * k * dt) / (2 * k)
    bias = k * dt / substeps  # Of order h, relative.
    assert decay == pytest.approx(process[0], rel=k * dt * bias, abs=0)
    np.testing.assert_allclose(variance, process[1], rtol=bias)


def test_noise_that_multiplies_is_taken_at_each_substep():
    # Geometric Brownian motion: both moments of the rule are powers.
    mu, sigma, dt, n = 0.5, 0.6, 1.0, 5
    d = gb.euler_maruyama(lambda x: mu * x, lambda x: sigma * x, jnp.array([2.0]), dt, n)
    draws = np.asarray(d.sample(jr.key(1), (N,)), float)
    h = dt / n
    assert_mean(draws, 2.0 * (1 + mu * h) ** n)
    assert_mean(draws**2, 4.0 * ((1 + mu * h) ** 2 + sigma**2 * h) ** n)


def test_substeps_have_no_density():
    d = gb.euler_maruyama(lambda x: -x, jnp.ones_like, jnp.ones(1), 0.1, 2)
    with pytest.raises(ModelError, match="no density"):
        d.log_prob(jnp.ones(1))


class Wander(gb.Model):
    """An Ornstein-Uhlenbeck process beside a decay without noise of its own, from x = 2."""

    k = gb.Parameter(dist.Uniform(0.1, 2.0))
    inputs, states, outputs = (), ("wander", "decay"), ("y",)
    dt = 0.5
    substeps: int = 3

    def initial(self, u, p):
        return gb.Known(2.0)

    def transition(self, x, u, p, t):
        def diffusion(x):
            return jnp.array([0.5, 0.0])

        return gb.euler_maruyama(lambda x: -p.k * x, diffusion, x, t.dt, self.substeps)

    def observation(self, x, u, p, t):
        return dist.Normal(gb.rk4(lambda x: -p.k * x, x, t.dt)[0], 0.1)


@pytest.mark.parametrize("substeps", [1, 3])
def test_rates_work_inside_a_model(substeps):
    paths = gb.simulate(Wander(substeps=substeps), {"k": 1.2}, n_steps=6, count=2_000, key=3)
    h, k = 0.5 / substeps, np.arange(6)
    decay = (1 - 1.2 * h) ** (substeps * k)
    powers = (1 - 1.2 * h) ** (2 * np.arange(5 * substeps))
    variance = np.array([0.25 * h * powers[: substeps * i].sum() for i in k])
    x, y = paths.x.astype(float), paths.y[..., 0].astype(float)
    np.testing.assert_allclose(x[..., 1], np.tile(2 * decay, (2_000, 1)), rtol=1e-4)
    assert_moments(x[:, 1:, 0], 2 * decay[1:], variance[1:])
    shown = np.polyval([1 / 24, -1 / 6, 1 / 2, -1, 1], 0.6)  # exp(-0.6) to the fourth order
    assert_moments(y, 2 * decay * shown, variance * shown**2 + 0.01)
