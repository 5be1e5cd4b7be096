"""Heads: estimates that stay inside the support, the paper's squared variances, the losses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import BOUND, assert_mean

import greybayes as gb
from greybayes.amortized.heads import (
    SHARE_OF_POSTERIOR,
    BoundedMean,
    MeanAndPosterior,
    PaperMean,
    normalised_error,
)
from greybayes.amortized.mixture import Mixture
from greybayes.errors import ModelError
from greybayes.prior import Parameter, Prior

COVARIANCE = np.array([[1.0, 0.8], [0.8, 4.0]])
# Each prior with the ends of its support.
PRIORS = {
    "uniform": (dist.Uniform(0.1, 2.0), 0.1, 2.0),
    "uniform from 0": (dist.Uniform(0.0, 1.0), 0.0, 1.0),
    "uniform below 0": (dist.Uniform(-3.0, -1.0), -3.0, -1.0),
    "tiny": (dist.Uniform(0.0, 1e-3), 0.0, 1e-3),
    "huge": (dist.Uniform(0.0, 1e4), 0.0, 1e4),
    "far from 0": (dist.Uniform(1000.0, 1001.0), 1000.0, 1001.0),
    "log-normal": (dist.LogNormal(-3.5, 0.3), 0.0, np.inf),
    "half-normal": (dist.HalfNormal(0.3), 0.0, np.inf),
    "gamma": (dist.Gamma(2.5, 10.0), 0.0, np.inf),
    "beta": (dist.Beta(20.0, 1.5), 0.0, 1.0),
    "log-uniform": (dist.LogUniform(1e-3, 2e-2), 1e-3, 2e-2),
    "normal": (dist.Normal(5.0, 2.0), -np.inf, np.inf),
    "truncated": (dist.TruncatedNormal(0.0, 2.0, low=0.0), 0.0, np.inf),
    "multivariate": (
        dist.MultivariateNormal(jnp.ones(2), jnp.asarray(COVARIANCE)),
        -np.inf,
        np.inf,
    ),
}


def prior_of(*priors):
    return Prior({f"p{i}": Parameter(p) for i, p in enumerate(priors)})


@pytest.fixture(scope="module")
def head(compiled):
    """One head for all of them together."""
    return BoundedMean(6, prior_of(*(prior for prior, _, _ in PRIORS.values())), jr.key(0), dense=8)


def column(name):
    """Where a prior's first entry is in theta; the multivariate one comes last."""
    return list(PRIORS).index(name)


def unit(head):
    """A head whose output, before the bijection, is its summary."""
    n = len(head.line.location)
    bare = eqx.tree_at(lambda h: h.hidden, head, [])
    return eqx.tree_at(lambda h: (h.out.weight, h.out.bias), bare, (jnp.eye(n), jnp.zeros(n)))


@eqx.filter_jit
def theta_of(head, summary):
    return head.theta(summary)


@pytest.fixture(scope="module")
def at_extremes(head):
    """Theta where all outputs of the network are from -10,000 to 10,000 prior spreads."""
    size = np.geomspace(1e-3, 1e4, 40)
    summary = np.repeat(np.r_[-size, 0.0, size][:, None], len(head.line.location), axis=1)
    return np.asarray(theta_of(unit(head), jnp.asarray(summary, jnp.float32)), float)


@pytest.mark.parametrize("name", PRIORS)
def test_an_estimate_stays_strictly_inside_the_support(at_extremes, name):
    _, low, high = PRIORS[name]
    theta = at_extremes[:, column(name)]
    assert np.isfinite(theta).all()
    # Strictly, in the float32 numbers that the estimate is made of.
    assert (theta > np.float32(low)).all()
    assert (theta < np.float32(high)).all()
    assert len(np.unique(theta)) > 10


def test_the_gradient_is_finite_wherever_the_summary_is(head):
    n = len(head.line.location)
    summary = jnp.asarray([[-20.0] * n, [0.0] * n, [20.0] * n])
    target = jnp.asarray(np.tile(head.prior.mean, (3, 1)), jnp.float32)
    gradient = jax.jit(jax.grad(lambda s: unit(head).loss(s, target).sum()))(summary)
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient[1]) != 0).all()


def test_the_first_estimate_is_near_the_middle_of_the_prior(head):
    theta = np.asarray(theta_of(head, jr.normal(jr.key(1), (50, 6))))
    assert (np.abs(theta - head.prior.mean) < np.sqrt(head.prior.variance)).all()


def test_location_and_spread_are_those_of_the_logit(head):
    """Of a uniform: median 0 and standard deviation pi / sqrt(3), whatever its ends."""
    places = [column(name) for name in ("uniform", "uniform below 0", "tiny", "huge")]
    location, spread = (np.array(a)[places] for a in (head.line.location, head.line.spread))
    # The errors of a median and of a standard deviation of a logistic, from 10,000 draws.
    np.testing.assert_allclose(location, 0.0, atol=BOUND * 2.0 / np.sqrt(10_000))
    np.testing.assert_allclose(spread, np.pi / np.sqrt(3), atol=BOUND * 1.63 / np.sqrt(10_000))


def test_scales_of_priors_do_not_matter(head):
    """The same draw on three scales: the same place in each support."""
    names = ("tiny", "uniform from 0", "huge")
    line = np.linspace(-4, 4, 9)[:, None]
    summary = jnp.asarray((line - head.line.location) / np.array(head.line.spread), jnp.float32)
    theta = np.asarray(theta_of(unit(head), summary))
    places = [theta[:, column(name)] / PRIORS[name][2] for name in names]
    assert places[0][0] < 0.05 < 0.95 < places[0][-1]
    np.testing.assert_allclose(places[1:], [places[0]] * 2, rtol=1e-3)


def test_the_loss_is_the_squared_error_over_the_prior_variance(head):
    summary = jr.normal(jr.key(2), (20, 6))
    theta = np.asarray(head.prior.sample(jr.key(5), jnp.arange(20, dtype=jnp.uint32)))
    error = (np.asarray(theta_of(head, summary), float) - theta) ** 2
    variance = np.array([0.0] * error.shape[1])
    for name, exact in {"uniform": 1.9**2 / 12, "tiny": 1e-6 / 12, "normal": 4.0}.items():
        variance[column(name)] = exact
    variance[-2:] = np.diag(COVARIANCE)
    known = variance > 0
    np.testing.assert_allclose(head.prior.variance[known], variance[known], rtol=1e-5)
    expected = (error / head.prior.variance).mean(1)
    np.testing.assert_allclose(head.loss(summary, jnp.asarray(theta)), expected, rtol=1e-4)


def test_the_prior_mean_has_risk_1():
    prior = prior_of(dist.Uniform(0.0, 1e4), dist.Normal(0.0, 1e-3))
    theta = np.asarray(prior.sample(jr.key(0), jnp.arange(20_000, dtype=jnp.uint32)))
    assert_mean(normalised_error(prior, np.tile(prior.mean, (20_000, 1)), theta), 1.0)


# The posterior.


def test_the_posterior_adds_its_log_density_to_the_loss():
    prior = gb.get_model("growth2").prior
    head = MeanAndPosterior(6, prior, jr.key(1), dense=8, components=3)
    summary = jr.normal(jr.key(2), (20, 6))
    theta = prior.sample(jr.key(5), jnp.arange(20, dtype=jnp.uint32))
    raw = np.asarray(head.mixture(summary))
    each = [Mixture(head.density_line, row, 3) for row in raw]
    # On the line, so without the Jacobian of the way to theta, which is the same for all weights.
    log_prob = [
        q.log_prob(np.asarray(t, float)) + q.line.from_line(np, q.line.to_line(np, t))[1]
        for q, t in zip(each, theta, strict=True)
    ]
    squared = normalised_error(prior, head.theta(summary), theta)
    expected = squared - SHARE_OF_POSTERIOR * np.array(log_prob) / 4
    np.testing.assert_allclose(head.loss(summary, theta), expected, rtol=1e-3)


def test_a_support_without_a_line_has_no_posterior():
    simplex = prior_of(dist.Dirichlet(jnp.ones(3)))
    with pytest.raises(ModelError, match="head=bounded"):
        MeanAndPosterior(6, simplex, jr.key(0))


# The paper's head.


@pytest.mark.parametrize("name", ["growth1", "growth2", "growth"])
def test_growth_models_mark_their_two_variances(name):
    prior = gb.get_model(name).prior
    marked = [n for n, yes in zip(prior.names, prior.is_variance, strict=True) if yes]
    assert marked == ["theta7", "theta8"]


def paper_oracle(head, summary):
    dense, out = (
        (np.asarray(d.weight, float), np.asarray(d.bias, float)) for d in (head.dense, head.out)
    )
    return np.maximum(summary @ dense[0] + dense[1], 0) @ out[0] + out[1]


def test_the_papers_head_squares_what_it_regresses_for_variances():
    prior = gb.get_model("growth2").prior
    head = PaperMean(6, prior, jr.key(3), dense=5)
    summary = np.random.default_rng(1).normal(size=(30, 6)).astype(np.float32) * 3
    out = paper_oracle(head, summary)
    expected = out.copy()
    expected[:, 2:] = out[:, 2:] ** 2
    np.testing.assert_allclose(head.theta(jnp.asarray(summary)), expected, atol=1e-5)
    assert (out[:, :2] < 0).any()  # Its output is linear: nothing holds it inside the prior.


def test_the_papers_loss_is_on_standard_deviations():
    prior = gb.get_model("growth2").prior
    head = PaperMean(6, prior, jr.key(3), dense=5)
    rng = np.random.default_rng(2)
    summary = rng.normal(size=(30, 6)).astype(np.float32)
    theta = rng.uniform(0.1, 0.9, (30, 4)).astype(np.float32)
    target = np.column_stack([theta[:, :2], np.sqrt(theta[:, 2:])])
    expected = ((paper_oracle(head, summary) - target) ** 2).mean(1)
    np.testing.assert_allclose(
        head.loss(jnp.asarray(summary), jnp.asarray(theta)), expected, rtol=1e-4
    )


def test_the_paper_starts_as_pytorch_does():
    """Uniform within 1 / sqrt(n_in): both ends are nearly reached and never passed."""
    head = PaperMean(400, gb.get_model("growth2").prior, jr.key(3), dense=300)
    for layer, n_in in ((head.dense, 400), (head.out, 300)):
        bound = n_in**-0.5
        assert 0.99 * bound < np.abs(layer.weight).max() <= bound
        assert np.abs(layer.bias).max() <= bound
        assert np.abs(np.mean(layer.weight)) < 5 * bound / np.sqrt(3 * layer.weight.size)
