"""The conditional particle filter with ancestor sampling: trajectories given a record, as a chain.

Given a trajectory, a filter in which it survives draws the next one; ancestor sampling joins it to
other histories on the way, so that few particles mix well (Lindsten, Jordan and Schön 2014). For
any number of particles above one this leaves the distribution of the states given the record as it
is.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from greybayes.drawing import clock
from greybayes.likelihood.density import drawn_initial, drawn_next, moved, observed
from greybayes.likelihood.resampling import cumulated
from greybayes.model import Model

Path = Float[Array, "steps state"]

# Up to here it is faster to compare with all than to search.
_FEW = 64


class Conditioned(NamedTuple):
    """Whole trajectories with weights, and one that was drawn from them."""

    x: Float[Array, "particle steps state"]
    weights: Float[Array, " particle"]
    """They sum to 1."""
    drawn: Path
    """What the next pass is conditioned on."""
    log_lik: Float[Array, ""]
    """Of the record: the estimate of a bootstrap filter, biased where there was a reference."""
    lost: Bool[Array, ""]
    """Whether at some sample no particle could have made the record."""


def conditional_pass(
    model: Model,
    p,
    y: Float[Array, "steps output"],
    u: Float[Array, "steps input"],
    key: Key[Array, ""],
    n_particles: int,
    reference: Path | None,
) -> Conditioned:
    """One pass over a record (CPF-AS of Lindsten 2013); `u` is already delayed.

    The last particle is the reference. Without one it is a bootstrap filter, whose trajectories
    start the chain. Pure, for use inside compiled code and under `jax.vmap`.
    """
    key_initial, key_noise, key_points = jr.split(key, 3)
    times, is_last = clock(model, len(y)), jnp.arange(n_particles) == n_particles - 1
    # Where the cumulated weights are cut; the last of a row is for the reference. Drawn at once,
    # because a generator inside the scan is slow, and slow to compile.
    points = jr.uniform(key_points, (len(y), n_particles + 1), u.dtype)
    aims = jnp.zeros((len(y), len(model.states)), u.dtype) if reference is None else reference

    def placed(x, aim):
        return x if reference is None else jnp.where(is_last, aim[:, None], x)

    def step(x, given):
        key, points, aim, y, u, t = given
        log_w, lost = _weights(observed(model, x, y, u, p, t))
        ancestors = _chosen(log_w, points[:-1])
        if reference is not None:
            # A history counts by its weight, and by how well the reference goes on from it.
            joined, _ = _weights(log_w + moved(model, x, aim, u, p, t))
            ancestors = jnp.where(is_last, _chosen(joined, points[-1:]), ancestors)
        after = placed(drawn_next(model, key, x[:, ancestors], u, p, t), aim)
        return after, (x, ancestors, _mean(log_w), lost)

    x_1 = placed(drawn_initial(model, key_initial, n_particles, u[0], p), aims[0])
    keys = jr.split(key_noise, len(y) - 1)
    before = jax.tree.map(lambda a: a[:-1], (y, u, times))
    given = keys, points[1:], aims[1:], *before
    x_n, (x, ancestors, increments, lost) = jax.lax.scan(step, x_1, given)
    t_n = jax.tree.map(lambda a: a[-1], times)
    log_w, lost_last = _weights(observed(model, x_n, y[-1], u[-1], p, t_n))
    paths, lost = _traced(x, ancestors, x_n), lost.any() | lost_last
    drawn = paths[_chosen(log_w, points[0, :1])[0]]
    log_lik = jnp.where(lost, -jnp.inf, increments.sum() + _mean(log_w))
    return Conditioned(paths, jax.nn.softmax(log_w), drawn, log_lik, lost)


def _weights(
    log_w: Float[Array, " particle"],
) -> tuple[Float[Array, " particle"], Bool[Array, ""]]:
    """Log-weights without NaN, equal ones where all are lost, and whether they are."""
    log_w = jnp.where(jnp.isnan(log_w), -jnp.inf, log_w)
    lost = ~jnp.isfinite(log_w.max())
    return jnp.where(lost, 0.0, log_w), lost


def _mean(log_w: Float[Array, " particle"]) -> Float[Array, ""]:
    """The log of the mean weight."""
    return jax.nn.logsumexp(log_w) - math.log(len(log_w))


def _chosen(
    log_w: Float[Array, " particle"], points: Float[Array, " count"]
) -> Int[Array, " count"]:
    """Independent draws of particles by their weights: what the chain's invariance needs."""
    sums = cumulated(jax.nn.softmax(log_w))
    how = "compare_all" if len(log_w) <= _FEW else "scan"
    found = jnp.searchsorted(sums, points * sums[-1], side="right", method=how)
    return jnp.minimum(found, len(log_w) - 1)


def _traced(
    x: Float[Array, "transitions state particle"],
    ancestors: Int[Array, "transitions particle"],
    x_n: Float[Array, "state particle"],
) -> Float[Array, "particle steps state"]:
    """The history of each particle that is there at the end."""

    def back(index, given):
        x, ancestors = given
        index = ancestors[index]
        return index, x[:, index]

    _, earlier = jax.lax.scan(back, jnp.arange(x_n.shape[-1]), (x, ancestors), reverse=True)
    return jnp.moveaxis(jnp.concatenate([earlier, x_n[None]]), -1, 0)
