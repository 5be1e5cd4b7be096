"""A chain that starts at the truth stays in the posterior, and moves in it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import greybayes as gb
from greybayes.errors import ModelError
from greybayes.zoo.growth import Growth2
from greybayes.zoo.growth_sweep import interleaved

N_PATHS, N_SWEEPS = 4000, 40


def drawn(name, n_steps, **changes):
    """Paths of a model, the batch last, and where a chain from the truth has come to."""
    model = gb.get_model(name).fix(**changes)
    paths = gb.simulate(model, count=N_PATHS, n_steps=n_steps, key=3)
    theta, x, y = (jnp.moveaxis(jnp.asarray(a), 0, -1) for a in (paths.theta, paths.x, paths.y))
    u = jnp.asarray(paths.u[0])

    @jax.jit
    def after(key):
        def sweep(carried, key):
            return model.sweep(key, *carried, y, u), None

        return jax.lax.scan(sweep, (theta, x), jr.split(key, N_SWEEPS))[0]

    return model, y, u, (theta, x), after(jr.key(1))


def statistics(model, theta, x, y, u):
    """Numbers of each path whose expectation a wrong step would change."""
    p = jax.vmap(model.p, -1, -1)(theta)
    x, y = x[:, 0], y[:, 0]
    mean = p.theta1 * x + p.theta2 * x / (p.theta3 * x**2 + p.theta4) + p.theta5 * u
    off, missed = x[1:] - mean[:-1], y - p.theta6 * x**2
    low, high = (bound[:, None] for bound in model.prior.bounds)
    return np.concatenate(
        [
            theta,
            ((theta - low) / (high - low) - 0.5) ** 2,
            (off**2).mean(0, keepdims=True) / p.theta7,
            (missed**2).mean(0, keepdims=True) / p.theta8,
            jnp.log(jnp.abs(x[1:])).mean(0, keepdims=True),
            (x[1:] * u[1:]).mean(0, keepdims=True),
        ]
    )


@pytest.mark.parametrize(
    ("name", "n_steps", "changes"),
    [
        ("growth2", 30, {}),
        ("growth2", 31, {"theta7": 0.3}),
        ("growth1", 31, {}),
        ("growth", 30, {}),
    ],
)
def test_a_chain_from_the_truth_stays_in_the_posterior(name, n_steps, changes):
    model, y, u, before, after = drawn(name, n_steps, **changes)
    change = statistics(model, *after, y, u) - statistics(model, *before, y, u)
    z = change.mean(1) / change.std(1) * N_PATHS**0.5
    assert np.abs(z).max() < 4.5, z
    # It has moved: x_1 is known, all else is not.
    assert (np.asarray(after[1][0]) == np.asarray(before[1][0])).all()
    assert (np.asarray(after[1][1:]) != np.asarray(before[1][1:])).mean() > 0.9
    assert (np.asarray(after[0]) != np.asarray(before[0])).mean(1).min() > 0.9
    inside = jax.vmap(model.prior.in_support, -1)(after[0])
    assert bool(inside.all())


class Noisier(Growth2):
    """Equations of its own."""

    def observation(self, x, u, p, t):
        return dist.Normal(p.theta6 * x**2, 2 * jnp.sqrt(p.theta8))


class Begun(Growth2):
    """A start that depends on theta."""

    def initial(self, u, p):
        return dist.Normal(0.0, jnp.sqrt(p.theta7))


@pytest.mark.parametrize(("model", "method"), [(Noisier, "observation"), (Begun, "initial")])
def test_equations_that_it_does_not_know_are_refused(model, method):
    path = jnp.ones((5, 1, 2))
    with pytest.raises(ModelError, match=f"{model.__name__} has its own {method}"):
        model().sweep(jr.key(0), jnp.full((4, 2), 0.5), path, path, path[:, :, 0])


@pytest.mark.parametrize("n_steps", [4, 5])
def test_halves_are_put_together_again(n_steps):
    path = jnp.arange(2.0 * n_steps).reshape(n_steps, 2)
    np.testing.assert_array_equal(interleaved(path[::2], path[1::2]), path)
