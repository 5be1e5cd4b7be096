"""Coordinates in which the support of a prior is a box.

Intervals, half-lines and the real line are boxes as they are: the coordinate is theta itself, and
a bound can be reached. Other supports, such as a simplex, get the unconstrained coordinates of
their bijection.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints

from greybayes._types import Theta
from greybayes.classical.starts import margins, prior_draws, spread
from greybayes.prior import Parameter, Prior


class Box(NamedTuple):
    """Where the coordinates may go, and how far apart the prior puts two of them."""

    low: Float[np.ndarray, " free"]
    high: Float[np.ndarray, " free"]
    scale: Float[np.ndarray, " free"]


def box_of(prior: Prior) -> Box:
    """The box of a prior, a little inside its bounds. Call it with float64 switched on.

    >>> import greybayes as gb
    >>> box_of(gb.get_model("growth2").prior).high.round(3)
    array([1., 2., 1., 1.])
    """
    low, high = margins(prior)
    ends, start = [], 0
    for _, bijection, shape, parameter in _pieces(prior):
        stop = start + math.prod(parameter.shape)
        bounds = low[start:stop], high[start:stop]
        infinite = np.full(math.prod(shape), np.inf)
        ends.append(bounds if bijection is None else (-infinite, infinite))
        start = stop
    low, high = (np.concatenate(each) for each in zip(*ends, strict=True))
    return Box(low, high, spread(coordinates(prior, prior_draws(prior))))


def coordinates(
    prior: Prior, thetas: Float[np.ndarray, "*lanes param"]
) -> Float[np.ndarray, "*lanes free"]:
    """The coordinates of many thetas. Call it with float64 switched on."""
    if _all_box(prior):
        return thetas
    flat = thetas.reshape(-1, thetas.shape[-1])
    return np.asarray(_from_thetas(prior, flat)).reshape(*thetas.shape[:-1], -1)


def thetas_and_slopes(
    prior: Prior, z: Float[np.ndarray, "lanes free"]
) -> tuple[Float[np.ndarray, "lanes param"], Float[np.ndarray, "lanes param free"]]:
    """Many thetas from their coordinates, and d theta / d z. Call it with float64 switched on."""
    if _all_box(prior):
        return z, np.broadcast_to(np.eye(z.shape[1]), (len(z), *z.shape[1:] * 2))
    return jax.device_get(_to_thetas(prior, z))


@functools.partial(jax.jit, static_argnums=0)
def _from_thetas(prior: Prior, thetas):
    return jax.vmap(lambda theta: from_theta(prior, theta))(thetas)


@functools.partial(jax.jit, static_argnums=0)
def _to_thetas(prior: Prior, z):
    def one(z):
        theta = to_theta(prior, z)
        return theta, theta

    slopes, thetas = jax.vmap(jax.jacfwd(one, has_aux=True))(z)
    return thetas, slopes


def to_theta(prior: Prior, z: Float[Array, " free"]) -> Theta:
    """Theta from the coordinates."""
    values, start = {}, 0
    for name, bijection, shape, _ in _pieces(prior):
        stop = start + math.prod(shape)
        piece = z[start:stop].reshape(shape)
        values[name] = piece if bijection is None else bijection(piece)
        start = stop
    return prior.pack(values)


def from_theta(prior: Prior, theta: Theta) -> Float[Array, " free"]:
    """The coordinates of theta: the inverse of `to_theta`."""
    values = prior.unpack(theta)
    pieces = [
        jnp.ravel(values[name] if bijection is None else bijection.inv(values[name]))
        for name, bijection, _, _ in _pieces(prior)
    ]
    return jnp.concatenate([*pieces, jnp.zeros(0)])


def _pieces(prior: Prior) -> Iterator[tuple[str, Any, tuple[int, ...], Parameter]]:
    """Name, bijection (None where the support is a box), shape of the coordinates, parameter."""
    for name, parameter in prior.parameters.items():
        support: Any = parameter.prior.support
        bijection = None if _is_box(support) else biject_to(support)
        shape = parameter.shape if bijection is None else bijection.inverse_shape(parameter.shape)
        yield name, bijection, shape, parameter


def _all_box(prior: Prior) -> bool:
    return all(bijection is None for _, bijection, _, _ in _pieces(prior))


def _is_box(support: Any) -> bool:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    bounded = hasattr(support, "lower_bound") or hasattr(support, "upper_bound")
    return bounded or support is constraints.real
