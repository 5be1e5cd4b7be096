"""Mixtures on the line: densities that integrate to one, draws that follow them, none outside."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from greybayes.amortized.line import Line
from greybayes.amortized.mixture import Mixture, log_density, n_raw, unpack

SIZE, COMPONENTS = 2, 3
LINE = Line(("interval", "above"), ((0.0, 2.0), (1.0,)), (0.1, -0.5), (1.2, 0.8))


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    raw = np.random.default_rng(3).normal(size=n_raw(COMPONENTS, SIZE))
    # No wider than the prior: on a uniform one a density would otherwise pile up at its ends.
    diagonal = slice(COMPONENTS * (1 + SIZE), COMPONENTS * (1 + 2 * SIZE))
    raw[diagonal] = np.abs(raw[diagonal])
    return Mixture(LINE, raw, COMPONENTS)


def dense(parts):
    """Shares, centres and covariances, by linear algebra."""
    log_share, centre, log_diagonal, below = parts
    roots = np.stack([np.diag(np.exp(d)) for d in log_diagonal])
    roots[:, 1, 0] = below[:, 0]
    return np.exp(log_share), centre, np.linalg.inv(np.swapaxes(roots, 1, 2) @ roots)


def test_the_density_on_the_line_is_scipys(mixture):
    z = np.random.default_rng(4).normal(size=(50, SIZE))
    parts = mixture._parts()
    shares, centres, covariances = dense(parts)
    expected = sum(
        share * multivariate_normal(c, s).pdf(z)
        for share, c, s in zip(shares, centres, covariances, strict=True)
    )
    np.testing.assert_allclose(np.exp(log_density(np, parts, z)), expected, rtol=1e-9)
    assert shares.sum() == pytest.approx(1)


def test_jax_gives_the_same(mixture):
    z = np.random.default_rng(5).normal(size=(20, SIZE)).astype(np.float32)
    parts = unpack(jnp, jnp.asarray(mixture.raw, jnp.float32), COMPONENTS, SIZE)
    np.testing.assert_allclose(
        log_density(jnp, parts, jnp.asarray(z)), log_density(np, mixture._parts(), z), atol=1e-4
    )


def test_the_density_of_theta_integrates_to_one(mixture):
    first = np.linspace(0, 2, 801)[1:-1]
    second = 1 + np.exp(np.linspace(-16, 8, 1200))
    grid = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1)
    density = np.exp(mixture.log_prob(grid))
    total = np.trapezoid(np.trapezoid(density, second, axis=1), first)
    assert total == pytest.approx(1, abs=5e-3)


def test_draws_follow_the_density(mixture):
    n = 40_000
    draws = mixture.sample(n, np.random.default_rng(6))
    assert LINE.inside(draws).all()
    shares, centres, covariances = dense(mixture._parts())
    z = LINE.to_line(np, draws)
    mean = shares @ centres
    spread = covariances + np.einsum("ki,kj->kij", centres - mean, centres - mean)
    covariance = np.einsum("k,kij->ij", shares, spread)
    np.testing.assert_allclose(z.mean(0), mean, atol=5 * np.sqrt(covariance.max() / n))
    np.testing.assert_allclose(np.cov(z.T), covariance, rtol=0.1, atol=0.05)


def test_outside_the_support_there_is_none(mixture):
    outside = np.array([[2.5, 2.0], [-0.1, 2.0], [1.0, 0.5]])
    assert (mixture.log_prob(outside) == -np.inf).all()


def test_a_wider_one_is_wider_by_as_much(mixture):
    _, centres, covariances = dense(mixture._parts())
    _, same, wider = dense(mixture.widened(2.0)._parts())
    np.testing.assert_allclose(same, centres)
    np.testing.assert_allclose(wider, 4 * covariances)
