"""Newton's M-step against the closed form of complete data, in plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import greybayes as gb
from greybayes.classical.em import expected_log_lik, lacking, maximise_expected

pytestmark = pytest.mark.usefixtures("compiled")

LINEAR = gb.get_model("linear-gaussian")
WEIGHTS = np.array([0.5, 0.3, 0.2])
SEEN = 50


@functools.cache
def complete():
    """Three trajectories, and a record with gaps that ends before they do."""
    path = gb.simulate(LINEAR, {"a": 0.7, "b": 1.0, "q": 0.2, "r": 0.1}, n_steps=60, key=1)
    x = path.x[0] + 0.1 * np.random.default_rng(0).standard_normal((3, 60, 1))
    y = path.y[0].copy()
    y[[3, 20, 21, *range(SEEN, 60)]] = np.nan
    return tuple(jnp.asarray(a, jnp.float32) for a in (x, WEIGHTS, y, path.u[0]))


def in_numpy():
    """The same as rows: the transitions that count, and the samples that were seen."""
    x, _, y, u = (np.asarray(a, float) for a in complete())
    x, y, u = x[..., 0], y[:, 0], u[:, 0]
    before, after = x[:, : SEEN - 1], x[:, 1:SEEN]
    return before, after, np.broadcast_to(u[: SEEN - 1], before.shape), y[:SEEN] - x[:, :SEEN]


def most_likely():
    """By weighted least squares."""
    before, after, u, v = in_numpy()
    root = np.sqrt(np.repeat(WEIGHTS, SEEN - 1))
    terms = np.stack([before.ravel(), u.ravel()], axis=1)
    gains = np.linalg.lstsq(terms * root[:, None], after.ravel() * root)[0]
    w = root * (after.ravel() - terms @ gains)
    return [*gains, w @ w / (SEEN - 1), WEIGHTS @ np.nanmean(v**2, axis=1)]


@jax.jit
def climb(theta, x, weights, y, u):
    """Two safe steps."""
    return maximise_expected(LINEAR, theta, x, weights, y, u, n_newton=2)


@jax.jit
def expected(theta):
    return expected_log_lik(LINEAR, theta, *complete())


def test_the_expected_log_likelihood_is_the_sum_of_its_terms():
    before, after, u, v = in_numpy()
    a, b, q, r = 0.5, 0.8, 0.3, 0.2
    moved = norm.logpdf(after, a * before + b * u, np.sqrt(q)).sum(1)
    made = np.nansum(norm.logpdf(v, 0.0, np.sqrt(r)), axis=1)
    assert float(expected(jnp.array([a, b, q, r]))) == pytest.approx(WEIGHTS @ (moved + made))


@pytest.mark.parametrize("start", [[0.5, 0.5, 0.5, 0.5], [0.97, 1.9, 0.011, 0.99]])
def test_it_climbs_to_the_closed_form_and_never_down(start):
    theta = jnp.array(start)
    heights = [float(expected(theta))]
    for _ in range(15):
        theta = climb(theta, *complete())
        heights.append(float(expected(theta)))
    assert np.all(np.diff(heights) > -1e-4 * np.abs(heights[1:]))
    np.testing.assert_allclose(theta, most_likely(), rtol=2e-3)


def test_it_stays_where_it_is_on_top():
    top = jnp.array(most_likely(), jnp.float32)
    np.testing.assert_allclose(climb(top, *complete()), top, rtol=1e-3)


def test_theta_stays_inside_the_support_where_the_best_is_outside():
    x, weights, y, u = complete()
    theta = jnp.array([0.5, 0.5, 0.5, 0.5])
    for _ in range(10):
        theta = climb(theta, x, weights, y + 10.0, u)
    assert bool(LINEAR.prior.in_support(theta))
    assert theta[3] > 0.99  # Its variance would be 100.


def test_trajectories_that_are_no_numbers_leave_theta_alone():
    x, weights, y, u = complete()
    theta = jnp.array([0.5, 0.5, 0.5, 0.5])
    lost = climb(theta, x.at[0, 7].set(jnp.nan), weights, y, u)
    np.testing.assert_array_equal(lost, theta)


class Wandering(gb.Model):
    """The first state is a normal one around a level to be found; costly work in `prepare`."""

    level = gb.Parameter(dist.Normal(0.0, 10.0))
    states, inputs, outputs = ("x",), (), ("y",)
    start: str = "drawn"

    def prepare(self, p):
        return {"level": jnp.sin(p.level) * 0.0 + p.level, "count": jnp.array(3)}

    def initial(self, u, p):
        return dist.Normal(p["level"], 1.0) if self.start == "drawn" else gb.Known(p["level"])

    def transition(self, x, u, p, t):
        return dist.Normal(x, 1.0)

    def observation(self, x, u, p, t):
        return dist.Normal(x, 1.0)


def test_the_first_state_counts_and_p_may_be_anything():
    x = jnp.array([[[3.0], [0.0]], [[5.0], [1.0]]])
    y, u = jnp.zeros((2, 1)), jnp.zeros((2, 0))
    theta = maximise_expected(Wandering(), jnp.array([4.5]), x, jnp.array([0.5, 0.5]), y, u)
    np.testing.assert_allclose(theta, [4.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "clause"),
    [
        ("linear-gaussian", None),
        ("stochastic-volatility", None),
        (Wandering(), None),
        (Wandering(start="known"), "its initial state depends on theta and has no noise"),
        ("sir", "its transition has no density"),
        ("coupled-drives", "its transition has no noise"),
    ],
)
def test_what_a_model_lacks_is_said(model, clause):
    said = lacking(gb.get_model(model))
    assert (said is None) if clause is None else said.startswith(clause)
