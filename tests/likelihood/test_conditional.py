"""The conditional particle filter against the joint normal distribution of states and record."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import assert_mean

import greybayes as gb
from greybayes.likelihood.conditional import conditional_pass

N = 6
A, Q, R = 0.8, 0.3, 0.2
THETA = jnp.array([A, 1.0, Q, R])
CHAINS = 20_000


class Started(gb.get_model("linear-gaussian").__class__):
    """The linear system from an uncertain state."""

    def initial(self, u, p):
        return dist.Normal(1.0, 0.5)


# mean and variance of x_1
MODELS = {"known": (gb.get_model("linear-gaussian"), 0.0, 0.0), "drawn": (Started(), 1.0, 0.25)}
Y = np.array([0.4, 0.9, np.nan, 1.0, 1.1, 0.5])
U = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])


def smoothed(mean_1, variance_1):
    """Mean and covariance of the states given the record, by the definition of the model."""
    # x = offset + slope e, with e the first state and the noises.
    slope = np.array([[A ** (k - j) if j <= k else 0.0 for j in range(N)] for k in range(N)])
    prior = slope @ np.diag([variance_1] + [Q] * (N - 1)) @ slope.T
    mean = slope @ np.concatenate([[mean_1], U[:-1]])
    seen = ~np.isnan(Y)
    gain = np.linalg.solve(prior[seen][:, seen] + R * np.eye(seen.sum()), prior[seen]).T
    return mean + gain @ (Y - mean)[seen], prior - gain @ prior[seen]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _one_pass(model, n_particles, references, key, y):
    p, u = model.p(THETA), jnp.asarray(U[:, None], jnp.float32)

    def one(reference, key):
        return conditional_pass(model, p, y, u, key, n_particles, reference)

    return jax.vmap(one)(references, jr.split(key, len(references)))


def one_pass(model, reference, key, y=Y):
    """A pass of each chain with four particles, from one reference for all or one for each."""
    references = np.broadcast_to(reference, (CHAINS, N)).astype(np.float32)
    return _one_pass(model, 4, references[:, :, None], key, np.float32(y)[:, None])


@pytest.mark.parametrize("start", MODELS)
def test_a_pass_leaves_the_distribution_of_the_states_as_it_is(start):
    model, *first = MODELS[start]
    mean, covariance = smoothed(*first)
    rng = np.random.default_rng(1)
    before = rng.multivariate_normal(mean, covariance, CHAINS, method="eigh")
    passed = one_pass(model, before, jr.key(2))
    assert not passed.lost.any()
    np.testing.assert_allclose(passed.weights.sum(1), 1.0, atol=1e-5)
    noisy = slice(0 if first[1] else 1, None)
    products = covariance[noisy, noisy]

    def second(x):
        """Products of the deviations of every two states."""
        x = x[..., noisy] - mean[noisy]
        return x[..., :, None] * x[..., None, :]

    drawn = np.asarray(passed.drawn[:, :, 0], float)
    assert_mean(drawn[:, noisy], mean[noisy])
    assert_mean(second(drawn), products)
    # Averages over the whole weighted cloud are as right, and less noisy at the end.
    x, weights = np.asarray(passed.x[..., 0], float), np.asarray(passed.weights, float)
    clouds = np.einsum("cp,cpk->ck", weights, x)
    assert_mean(clouds[:, noisy], mean[noisy])
    assert_mean(np.einsum("cp,cpij->cij", weights, second(x)), products)
    assert clouds[:, -1].std() < 0.9 * drawn[:, -1].std()
    # It moves: a chain that stands still would be invariant too.
    assert (np.abs(drawn - before)[:, noisy] > 1e-3).mean() > 0.6


def test_the_reference_survives_and_what_is_drawn_is_one_of_the_trajectories():
    model = MODELS["known"][0]
    reference = [0.0] * (N - 1) + [7.0]
    passed = one_pass(model, reference, jr.key(3))
    np.testing.assert_array_equal(passed.x[:, -1, -1], 7.0)
    assert not (passed.x[:, :-1, -1] == 7.0).any()
    same = (passed.x == passed.drawn[:, None]).all((2, 3))
    assert same.any(1).all()
    again = one_pass(model, reference, jr.key(3))
    np.testing.assert_array_equal(passed.x, again.x)


def test_without_a_reference_it_is_a_bootstrap_filter():
    model, *first = MODELS["known"]
    mean, covariance = smoothed(*first)
    y, u = jnp.asarray(Y[:, None], jnp.float32), jnp.asarray(U[:, None], jnp.float32)

    @jax.jit
    def passed(key):
        # Many particles: the share of the bias in the error is below what the bound can see.
        one = functools.partial(conditional_pass, model, model.p(THETA), y, u)
        return jax.vmap(lambda key: one(key, 400, None)[2:4])(jr.split(key, 1000))

    drawn, log_lik = (np.asarray(a, float) for a in passed(jr.key(5)))
    x = drawn[:, 1:, 0]
    assert_mean(x, mean[1:])
    assert_mean((x - mean[1:]) ** 2, np.diag(covariance)[1:])
    exact = gb.kalman_log_lik(model, np.asarray(THETA)[None], gb.Record(Y[:, None], U[:, None]))
    assert_mean(np.exp(log_lik - exact[0]), 1.0)


def test_a_sample_that_no_particle_can_have_made_is_told():
    model = MODELS["known"][0]
    passed = one_pass(model, 0.0, jr.key(6), y=[1e20] * N)
    assert passed.lost.all()
    assert np.isfinite(passed.x).all()
