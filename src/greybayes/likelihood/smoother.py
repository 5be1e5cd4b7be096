"""Backward simulation: whole trajectories of the states, given a whole record.

From the clouds of a forward pass, trajectories are drawn from the last sample to the first (FFBSi;
Godsill, Doucet and West 2004; Lindsten and Schön 2013): a particle of x_k is taken with probability
proportional to its weight times p(x_{k+1} | x_k). `backward_pass` is pure, for use inside compiled
code; `smooth` is its border: a record in, trajectories out.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError, Status
from greybayes.likelihood.density import Cloud, check_density, log_density, moved
from greybayes.likelihood.measured import measured
from greybayes.likelihood.monte_carlo import checked_or_chosen, status_of
from greybayes.likelihood.particle import Filter, History, filter_pass
from greybayes.likelihood.proposals import has_gaussian_transition
from greybayes.likelihood.resampling import cumulated
from greybayes.model import Model, Time
from greybayes.record import Record
from greybayes.structure import distribution
from greybayes.zoo import get_model

States = Float[Array, "trajectory state"]
Choice = Int[Array, " trajectory"]

# From this many particles on rejection is the faster one (100 trajectories of growth2).
_MANY = 1000
# Of the trajectories, the share that is left to the exact step in one go.
_LEFT = 8


class Smoothed(NamedTuple):
    """Trajectories of the states of one record."""

    x: Float[np.ndarray, "trajectory steps state"]
    n_particles: int
    status: Status
    """`collapsed` where the particles lost the record, see `particle_filter`."""


def smooth(
    model: Model | str,
    theta: Float[np.ndarray, " param"] | list[float],
    record: Record,
    *,
    key: Seed = 0,
    n_particles: int | None = None,
    n_trajectories: int = 100,
    settings: Filter = Filter(),  # noqa: B008  # Frozen.
    rejection: bool | None = None,
    max_tries: int = 16,
) -> Smoothed:
    """Trajectories of the states, drawn from their distribution given the whole record.

    `n_particles` is chosen (`choose_particles`) where it is None. With `rejection` a particle is
    first proposed by its weight alone, at most `max_tries` times, before it is drawn exactly; that
    needs a Gaussian transition. None chooses what is faster.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", np.array([0.7, 1.0, 0.5, 0.1]), key=1)[0]
    >>> smooth("growth2", [0.7, 1.0, 0.5, 0.1], record, n_trajectories=10).x.shape
    (10, 200, 1)
    """
    model = get_model(model)
    check_density(model, "transition", "observation", who="a particle smoother")
    if min(n_trajectories, max_tries) < 1:
        raise GreybayesError(
            f"n_trajectories is {n_trajectories} and max_tries {max_tries}, expected 1 or more of "
            "each."
        )
    key_choice, key_passes = jr.split(as_key(key))
    vector = model.prior.vector(theta)
    n = checked_or_chosen(model, n_particles, vector, record, key_choice, settings)
    y, u = (jnp.asarray(a, jnp.float32) for a in measured(model, record))
    how = n, n_trajectories, settings, _chosen(model, n, rejection), max_tries
    x, passed = jax.device_get(_smoothed(model, how, vector, y, u, key_passes))
    return Smoothed(x.astype(float), n, status_of(passed, n))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _smoothed(model: Model, how, theta, y, u, key):
    n_particles, n_trajectories, settings, rejection, max_tries = how
    p, late = model.p(theta), delayed(model, u)
    key_filter, key_back = jr.split(key)
    passed = filter_pass(model, p, y, late, key_filter, n_particles, settings, keep=True)
    assert passed.history is not None
    x = backward_pass(
        model, p, late, passed.history, key_back, n_trajectories, rejection, max_tries
    )
    return x, passed._replace(history=None)


def backward_pass(
    model: Model,
    p,
    u: Float[Array, "steps input"],
    history: History,
    key: Key[Array, ""],
    n_trajectories: int,
    rejection: bool | None = None,
    max_tries: int = 16,
) -> Float[Array, "trajectory steps state"]:
    """Trajectories from the clouds of a pass over one record; `u` is already delayed."""
    rejection = _chosen(model, history.x.shape[-1], rejection)
    key_last, key_steps = jr.split(key)
    keys = jr.split(key_steps, len(u) - 1)

    def step(after: States, given):
        key, x, log_w, u, t = given
        back = _Back(model, x, log_w, u, p, t)
        index = back.rejected(key, after, max_tries) if rejection else back.exact(key, after)
        now = x[:, index].T
        return now, now

    index = _drawn(key_last, history.log_w[-1], n_trajectories)
    last = history.x[-1][:, index].T
    before = jax.tree.map(lambda a: a[:-1], (*history, u, clock(model, len(u))))
    _, earlier = jax.lax.scan(step, last, (keys, *before), reverse=True)
    return jnp.moveaxis(jnp.concatenate([earlier, last[None]]), 1, 0)


def _chosen(model: Model, n_particles: int, rejection: bool | None) -> bool:
    """Whether to reject: where it can be done, and is the faster one unless it was asked for."""
    return has_gaussian_transition(model) and (
        n_particles >= _MANY if rejection is None else rejection
    )


class _Back:
    """One step back: from the states x_{k+1} of all trajectories to particles of x_k."""

    def __init__(self, model: Model, x: Cloud, log_w: Float[Array, " particle"], u, p, t: Time):
        self.log_w, self.x = log_w, x
        self.moved = lambda after: moved(model, x, after, u, p, t)
        self.transition = lambda x: distribution(model, "transition", x, u, p, t)

    def exact(self, key: Key[Array, ""], after: States) -> Choice:
        """By the weights of all particles, computed for every trajectory."""
        log_w = self.log_w + jax.vmap(self.moved)(after)
        return pick(jr.uniform(key, after.shape[:1], log_w.dtype), log_w)

    def rejected(self, key: Key[Array, ""], after: States, max_tries: int) -> Choice:
        """By their weights before x_{k+1} is known, kept with probability p(x_{k+1} | x_k) / bound.

        (Douc, Garivier, Moulines and Olsson 2011.) Few trajectories may take long; when as many
        are left as one exact step takes in one go, or after `max_tries`, they are drawn exactly.
        """
        n = len(after)
        slots = max(1, n // _LEFT)
        # A Gaussian density is highest at its mean.
        highest = jax.vmap(lambda x: _at_mean(self.transition(x)), in_axes=-1)(self.x)
        bound = jnp.max(jnp.where(jnp.isnan(highest), -jnp.inf, highest))

        def propose(state):
            tries, found, index, key = state
            key, key_index, key_keep = jr.split(key, 3)
            proposed = _drawn(key_index, self.log_w, n)
            log_f = jax.vmap(lambda x, after: log_density(self.transition(x), after, None))(
                self.x[:, proposed].T, after
            )
            kept = jnp.log(jr.uniform(key_keep, (n,), log_f.dtype)) < log_f - bound
            return tries + 1, found | kept, jnp.where(found, index, proposed), key

        def goes_on(state):
            tries, found, _, _ = state
            return (tries < max_tries) & ((~found).sum() > slots)

        def finish(state):
            found, index, key = state
            key, key_now = jr.split(key)
            left = jnp.nonzero(~found, size=slots, fill_value=n)[0]
            drawn = self.exact(key_now, after[jnp.minimum(left, n - 1)])
            found = found.at[left].set(True, mode="drop")
            return found, index.at[left].set(drawn, mode="drop"), key

        start = 0, jnp.zeros(n, bool), jnp.zeros(n, jnp.int32), key
        _, *state = jax.lax.while_loop(goes_on, propose, start)
        return jax.lax.while_loop(lambda state: ~state[0].all(), finish, tuple(state))[1]


def _at_mean(d) -> Float[Array, ""]:
    return log_density(d, jnp.asarray(d.mean), None)


def _drawn(
    key: Key[Array, ""], log_w: Float[Array, " particle"], count: int
) -> Int[Array, " count"]:
    """Independent draws of particles by one set of weights."""
    sums = cumulated(jnp.exp(log_w))
    points = jr.uniform(key, (count,), log_w.dtype) * sums[-1]
    found = jnp.searchsorted(sums, points, side="right", method="scan")
    return jnp.minimum(found, len(log_w) - 1)


# Particles that are summed before one among them is looked for.
_BLOCK = 16
_BELOW_ONE = 1 - 1e-6


def pick(points: Float[Array, " trajectory"], log_w: Float[Array, "trajectory particle"]) -> Choice:
    """A particle for each row, by the weights of that row: a block of them, then one in it.

    >>> pick(jnp.array([0.1, 0.9]), jnp.log(jnp.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))).tolist()
    [0, 1]
    """
    n = log_w.shape[-1]
    log_w = jnp.where(jnp.isnan(log_w), -jnp.inf, log_w)
    top = jnp.maximum(log_w.max(-1, keepdims=True), jnp.finfo(log_w.dtype).min)
    weights = jnp.pad(jnp.exp(log_w - top), ((0, 0), (0, -n % _BLOCK)))
    blocks = weights.reshape(len(points), -1, _BLOCK)
    totals = blocks.sum(-1)
    sums = jax.vmap(cumulated)(totals)
    points = points * sums[:, -1] * _BELOW_ONE
    block = jnp.minimum((sums <= points[:, None]).sum(-1), totals.shape[-1] - 1)
    inside = jnp.cumsum(jnp.take_along_axis(blocks, block[:, None, None], 1)[:, 0], -1)
    rest = points - jnp.take_along_axis(sums - totals, block[:, None], 1)[:, 0]
    # Two ways of summing differ in the last bit; a particle without weight must not gain by it.
    rest = jnp.minimum(rest, inside[:, -1] * _BELOW_ONE)
    return jnp.minimum(block * _BLOCK + (inside <= rest[:, None]).sum(-1), n - 1)
