"""The two steps of PSEM for many records at once."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes._devices import over_devices
from greybayes.classical.closed_form import expected_statistics, has_closed_form, maximised
from greybayes.classical.em import maximise_expected
from greybayes.drawing import delayed
from greybayes.likelihood.measured import Measured
from greybayes.likelihood.particle import Filter, filter_pass
from greybayes.likelihood.smoother import backward_pass
from greybayes.model import Model

Thetas = Float[np.ndarray, "lane param"]

# Weights that one device holds in one step back: they then stay in the cache of a core.
_TOGETHER = 262_144


class How(NamedTuple):
    """What an E-step is compiled for."""

    n_particles: int
    n_trajectories: int
    filter: Filter


class Expected(NamedTuple):
    """What an E-step gives, for each lane."""

    x: Float[Array, "lane trajectory steps state"]
    log_lik: Float[np.ndarray, " lane"]
    """Of the forward pass, -inf where all particles were lost."""


def expect(
    model: Model, how: How, thetas: Thetas, signals: Measured, keys: Key[Array, " lane"]
) -> Expected:
    """The E-step: trajectories of the states given each record and its theta."""
    x, increments = _trajectories(model, how, *_float32(thetas, *signals), keys)
    return Expected(x, np.asarray(increments, float).sum(1))


def maximise(
    model: Model,
    n_newton: int,
    thetas: Thetas,
    x: Float[Array, "lane trajectory steps state"],
    signals: Measured,
) -> Thetas:
    """The M-step: in closed form, or by some Newton steps from these thetas."""
    if has_closed_form(model):
        with jax.enable_x64(True):
            return np.asarray(_closed(model, thetas, x, *signals))
    thetas, y, u = _float32(thetas, *signals)
    return np.asarray(_climbed(model, n_newton, thetas, x, y, u), float)


def _float32(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(a, np.float32) for a in arrays)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _trajectories(
    model: Model, how: How, theta, y, u, keys
) -> tuple[Float[Array, "lane trajectory steps state"], Float[Array, "lane steps"]]:

    def one(lane):
        theta, y, u, key = lane
        p, late = model.p(theta), delayed(model, u)
        key_filter, key_back = jr.split(key)
        passed = filter_pass(model, p, y, late, key_filter, how.n_particles, how.filter, keep=True)
        assert passed.history is not None
        x = backward_pass(model, p, late, passed.history, key_back, how.n_trajectories)
        return x, passed.increments

    together = _TOGETHER // (how.n_particles * how.n_trajectories)
    return over_devices(one, together, (theta, y, u, keys))


@functools.partial(jax.jit, static_argnums=0)
def _closed(model: Model, theta, x, y, u) -> Float[Array, "lane param"]:
    """The M-step in closed form."""

    def one(theta, x, y, u):
        equal = jnp.full(len(x), 1 / len(x))
        sums = expected_statistics(model, theta, x, equal, y, delayed(model, u))
        return maximised(model, sums, theta)

    return jax.vmap(one)(theta, x, y, u)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _climbed(model: Model, n_newton: int, theta, x, y, u) -> Float[Array, "lane param"]:
    """The M-step by Newton's method."""

    def one(lane):
        theta, x, y, u = lane
        equal = jnp.full(len(x), 1 / len(x), x.dtype)
        return maximise_expected(model, theta, x, equal, y, delayed(model, u), n_newton)

    return over_devices(one, _TOGETHER // x.shape[1], (theta, x, y, u))
