"""Resampling: every particle lives on in proportion to its weight, on average."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import assert_mean

from greybayes.likelihood.resampling import SCHEMES, cumulated, resample

WEIGHTS = np.array([0.3, 0.0, 0.05, 0.25, 0.1, 0.2999, 0.0001], np.float32)


def counts(scheme, n_runs=20_000, weights=WEIGHTS):
    keys = jr.split(jr.key(1), n_runs)
    ancestors = jax.vmap(lambda key: resample(key, jnp.asarray(weights), scheme))(keys)
    return (np.asarray(ancestors)[:, :, None] == np.arange(len(weights))).sum(1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_unbiased(scheme):
    found = counts(scheme)
    assert (found.sum(1) == len(WEIGHTS)).all()
    assert (found[:, 1] == 0).all(), "a particle without weight lives on"
    some = WEIGHTS > 0.01
    assert_mean(found[:, some], len(WEIGHTS) * WEIGHTS[some])


def test_schemes_differ_in_their_noise_as_they_should():
    spread = [counts(scheme).var(0).sum() for scheme in SCHEMES]
    assert spread == sorted(spread)
    share = len(WEIGHTS) * WEIGHTS
    assert spread[2] == pytest.approx((share * (1 - WEIGHTS)).sum(), rel=0.05)  # multinomial
    systematic = counts("systematic")
    assert (np.abs(systematic - share) < 1 + 1e-5).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ancestors_come_in_order_and_one_may_take_all(scheme):
    weights = jnp.zeros(100).at[42].set(1.0)
    assert (resample(jr.key(0), weights, scheme) == 42).all()
    weights = jr.uniform(jr.key(2), (1000,))
    ancestors = np.asarray(resample(jr.key(0), weights, scheme))
    assert (np.diff(ancestors) >= 0).all()


@pytest.mark.parametrize("n", [1, 5, 32, 33, 1000])
def test_running_sums(n):
    a = jr.uniform(jr.key(n), (n,))
    np.testing.assert_allclose(cumulated(a), np.cumsum(np.asarray(a, float)), rtol=1e-5)
