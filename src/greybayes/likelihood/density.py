"""Log-densities of a model's distributions, where samples may be missing, and draws of particles.

Particles are the last axis of a cloud `(state, particle)`: channels are then contiguous.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Key

from greybayes._lanes import lane_keys
from greybayes.errors import ModelError
from greybayes.model import Model, Time
from greybayes.noise import Channels
from greybayes.structure import Kind, distribution

Cloud = Float[Array, "state particle"]


def log_density(
    d: dist.Distribution, value: Float[Array, " channel"], seen: Bool[Array, " channel"] | None
) -> Float[Array, ""]:
    """The log-density of a vector, of its seen channels only where some are missing.

    Channels that are neither independent nor jointly normal count only where all are seen.
    """
    if seen is None:
        return jnp.asarray(d.log_prob(value))
    value = jnp.where(seen, value, _inside(d))
    if isinstance(d, Channels):
        each = jnp.stack(d.log_prob_each(value))
        return jnp.where(seen, each, 0.0).sum()
    if isinstance(d, dist.MultivariateNormal):
        # A missing channel becomes one that says nothing: no correlation, unit variance, at 0.
        covariance = jnp.where(
            seen[:, None] & seen, jnp.asarray(d.covariance_matrix), jnp.eye(len(seen))
        )
        surprise = jnp.where(seen, value - d.mean, 0.0)
        root = jnp.linalg.cholesky(covariance)
        scaled = jax.scipy.linalg.solve_triangular(root, surprise, lower=True)
        constant = seen.sum() * jnp.log(2 * jnp.pi) / 2
        return -0.5 * scaled @ scaled - jnp.log(jnp.diag(root)).sum() - constant
    if isinstance(d, dist.Independent) and d.reinterpreted_batch_ndims == 1:
        each = jnp.broadcast_to(d.base_dist.log_prob(value), seen.shape)
        return jnp.where(seen, each, 0.0).sum()
    return jnp.where(seen.all(), d.log_prob(value), 0.0)


def _inside(d: dist.Distribution) -> Array:
    """A value that any density can be asked for, in place of a missing one."""
    try:
        return jnp.asarray(d.mean, float)
    except NotImplementedError:
        return jnp.ones(d.event_shape)


class NotGaussian(Exception):
    """A noise that is not normal."""


def moments(d: dist.Distribution) -> tuple[Array, Array]:
    """Mean and covariance of what a model's method returned; raises where it is not Gaussian."""
    if isinstance(d, dist.MultivariateNormal):
        return jnp.asarray(d.mean), jnp.asarray(d.covariance_matrix)
    base = d.base_dist if isinstance(d, dist.Independent) else d
    while isinstance(base, dist.ExpandedDistribution):
        base = base.base_dist
    parts = base.parts if isinstance(base, Channels) else (base,)
    if not all(isinstance(part, dist.Normal | dist.Delta) for part in parts):
        raise NotGaussian
    return jnp.asarray(d.mean), jnp.diag(jnp.asarray(d.variance))


def observed(
    model: Model, x: Cloud, y: Float[Array, " output"], u: Float[Array, " input"], p, t: Time
) -> Float[Array, " particle"]:
    """log p(y_k | x_k) for each particle; 0 where the whole sample is missing."""
    seen = ~jnp.isnan(y)

    def one(x):
        return log_density(distribution(model, "observation", x, u, p, t), y, seen)

    return jax.vmap(one, in_axes=-1)(x)


def moved(
    model: Model, x: Cloud, after: Float[Array, " state"], u: Float[Array, " input"], p, t: Time
) -> Float[Array, " particle"]:
    """log p(x_{k+1} = after | x_k) for each particle."""
    return jax.vmap(
        lambda x: log_density(distribution(model, "transition", x, u, p, t), after, None),
        in_axes=-1,
    )(x)


def drawn_initial(
    model: Model, key: Key[Array, ""], n_particles: int, u: Float[Array, " input"], p
) -> Cloud:
    """Particles of x_1."""
    keys = _particle_keys(model, key, n_particles)
    return jax.vmap(
        lambda key: jnp.asarray(distribution(model, "initial", u, p).sample(key), u.dtype),
        out_axes=-1,
    )(keys)


def drawn_next(
    model: Model, key: Key[Array, ""], x: Cloud, u: Float[Array, " input"], p, t: Time
) -> Cloud:
    """A draw of x_{k+1} for each particle."""

    def one(key, x):
        return jnp.asarray(distribution(model, "transition", x, u, p, t).sample(key), x.dtype)

    return jax.vmap(one, in_axes=(0, -1), out_axes=-1)(_particle_keys(model, key, x.shape[-1]), x)


def _particle_keys(model: Model, key: Key[Array, ""], n: int) -> Key[Array, " particle"]:
    particles = jnp.arange(n, dtype=jnp.uint32)
    if model.structure.lanes:
        return lane_keys(key, particles)
    return jax.vmap(functools.partial(jr.fold_in, key))(particles)


def check_density(model: Model, *methods: str, who: str) -> None:
    """Raise `ModelError` where one of these methods has no density."""
    clause = without_density(model, *methods)
    if clause:
        raise ModelError(f"{who} cannot serve {type(model).__name__}: {clause}.")


def without_density(model: Model, *methods: str) -> str | None:
    """Which of a model's methods has no density, as a clause; None where all have one."""
    for method in methods:
        kind = getattr(model.structure, method)
        if kind is not Kind.density:
            return f"its {method} has {kind.value}, and a density is needed there"
    return None
