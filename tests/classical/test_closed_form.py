"""`statistics` and `maximise` of the zoo against scipy, on a log-likelihood in plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import paper_input
from scipy.optimize import minimize

import greybayes as gb
from greybayes.classical.closed_form import expected_statistics, has_closed_form, maximised
from greybayes.errors import ModelError
from greybayes.zoo.growth import Growth2
from greybayes.zoo.linear_gaussian import LinearGaussian

N = 15
U = paper_input(N)
WEIGHTS = np.array([0.5, 0.2, 0.3])
# Sample 4 is missing, and so are the last two: the transitions to them say nothing.
SEEN = np.array([k not in (4, 13, 14) for k in range(N)])


def trajectories(spread):
    """Paths of the general growth model that no theta of ours has made, and a record."""
    rng = np.random.default_rng(3)
    x = np.zeros((3, N))
    for k in range(N - 1):
        x[:, k + 1] = 0.6 * x[:, k] + U[k] + spread * rng.normal(size=3)
    y = 0.7 * x[0] ** 2 + 0.4 * rng.normal(size=N)
    return x, np.where(SEEN, y, np.nan)


def complete_log_lik(mean_x, mean_y, x, y, q, r):
    """sum_i w_i log p(x^i, y), by the definition of the model."""
    moved = (x[:, 1:13] - mean_x(x[:, :12], U[:12])) ** 2 / q + np.log(2 * np.pi * q)
    seen = (y[SEEN] - mean_y(x[:, SEEN])) ** 2 / r + np.log(2 * np.pi * r)
    return -0.5 * WEIGHTS @ (moved.sum(1) + seen.sum(1))


def growth(p, x, y):
    return complete_log_lik(
        lambda x, u: (
            p["theta1"] * x + p["theta2"] * x / (p["theta3"] * x**2 + p["theta4"]) + p["theta5"] * u
        ),
        lambda x: p["theta6"] * x**2,
        x,
        y,
        p["theta7"],
        p["theta8"],
    )


def linear(p, x, y):
    return complete_log_lik(lambda x, u: p["a"] * x + p["b"] * u, lambda x: x, x, y, p["q"], p["r"])


def closed_form(model, x, y):
    with jax.enable_x64(True):
        theta = jnp.asarray(model.prior.mean)
        signals = jnp.asarray(y)[:, None], jnp.asarray(U)[:, None]
        given = jnp.asarray(x)[..., None], jnp.asarray(WEIGHTS), *signals
        sums = jax.jit(functools.partial(expected_statistics, model))(theta, *given)
        return np.asarray(jax.jit(functools.partial(maximised, model))(sums, theta))


GENERAL = gb.get_model("growth").fix(theta3=0.04, theta4=1.0)
CASES = {
    "growth1": (gb.get_model("growth1").fix(theta2=0.3, theta5=1.0, theta6=0.5), growth),
    "growth2": (gb.get_model("growth2"), growth),
    "growth2, theta2 fixed": (gb.get_model("growth2").fix(theta2=0.3), growth),
    "growth2, theta7 fixed": (gb.get_model("growth2").fix(theta7=0.3), growth),
    "growth2, theta2 bounded": (
        gb.get_model("growth2").free(theta2=dist.Uniform(0.0, 0.1), theta8=dist.Uniform(0.5, 1.0)),
        growth,
    ),
    "growth, six free": (GENERAL, growth),
    "growth, theta5 free": (gb.get_model("growth2").free(theta5=dist.Uniform(0.0, 0.9)), growth),
    "linear": (gb.get_model("linear-gaussian"), linear),
    "linear, a bounded": (gb.get_model("linear-gaussian").free(a=dist.Uniform(0.0, 0.2)), linear),
    "linear, b fixed": (gb.get_model("linear-gaussian").fix(b=0.2), linear),
}


@pytest.mark.parametrize("case", CASES)
def test_theta_maximises_the_expected_log_likelihood_of_the_complete_data(case):
    model, log_lik = CASES[case]
    x, y = trajectories(0.5)
    assert has_closed_form(model)
    fixed = {n: v.value for n, v in model.parameters.items() if isinstance(v, gb.Fixed)}
    low, high = (np.asarray(end, float) for end in model.prior.bounds)

    def loss(share):
        theta = low + share * (high - low)
        return -log_lik(fixed | dict(zip(model.prior.names, theta, strict=True)), x, y)

    inside = [(1e-4, 1 - 1e-4)] * model.prior.size
    best = min(
        (
            minimize(loss, np.full(model.prior.size, s), bounds=inside, tol=1e-14)
            for s in (0.2, 0.7)
        ),
        key=lambda result: result.fun,
    )
    ours = (closed_form(model, x, y) - low) / (high - low)
    assert ((ours > 0) & (ours < 1)).all()
    np.testing.assert_allclose(ours, best.x, atol=2e-3)
    # scipy keeps a wider margin from the bounds, and leaves the rest to chance.
    assert loss(ours) <= best.fun + 1e-6


def test_large_states_do_not_cancel_the_residuals():
    # y is near 1e4 and its noise near 0.1: in single precision nothing of that would be left.
    model = gb.get_model("growth1-text")
    rng = np.random.default_rng(5)
    x = np.float32(100 + rng.normal(size=(3, N)))
    x[1:] = x[0]
    noise = 0.3 * rng.normal(size=N)
    y = np.where(SEEN, np.float64(x[0]) ** 2 + noise, np.nan)
    theta8 = closed_form(model, x, y)[1]
    np.testing.assert_allclose(theta8, np.mean(noise[SEEN] ** 2), rtol=1e-4)


class Saturated(Growth2):
    """Another transition, so that the statistics it inherits are not its own."""

    def transition(self, x, u, p, t):
        return dist.Normal(p.theta2 * jnp.tanh(x) + u, jnp.sqrt(p.theta7))


class Plain(gb.Model):
    """No hooks at all."""

    a = gb.Parameter(dist.Uniform(0.0, 1.0))

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.a * x, 1.0)

    def observation(self, x, u, p, t):
        return dist.Normal(x, 1.0)


@pytest.mark.parametrize(
    "model",
    [
        "growth",
        gb.get_model("growth2").free(theta3=dist.Uniform(0.0, 1.0)),
        Saturated(),
        Plain(),
        "stochastic-volatility",
    ],
)
def test_where_it_does_not_hold_there_is_none(model):
    assert not has_closed_form(gb.get_model(model))


class Forgetful(LinearGaussian):
    def maximise(self, sums, p):
        return {"a": 0.5, "b": 0.5, "q": 0.1}


class Half(Plain):
    def statistics(self, x, after, y, u, p, t):
        return x * after


class Misspelt(Half):
    def maximise(self, sums, p):
        return {"a": p.gain}


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Forgetful(), r"Forgetful.maximise gives no value for r, which is free; return it, or"),
        (Half(), r"Half has statistics but no method maximise\(sums, p\); write one that returns"),
        (Misspelt(), r"Misspelt.maximise failed with AttributeError: .* no attribute 'gain'"),
    ],
)
def test_a_mistake_in_the_hooks_is_a_sentence(model, sentence):
    with pytest.raises(ModelError, match=sentence):
        has_closed_form(model)
