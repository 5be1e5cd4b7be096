"""Damped Newton steps from many starts at once, inside a box: what least squares and MAP share.

A step solves (C + damping) s = -gradient, where C is the curvature of the objective, in coordinates
in which its diagonal is 1: Gauss and Newton's J'J gives the method of Levenberg and Marquardt, a
Hessian gives Newton's, with the absolute values of its eigenvalues where it is not positive. A
step that makes the objective worse is not taken, and the damping grows; coordinates at a bound
that want to leave the box stay there (the projected Newton method of Bertsekas 1982).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from greybayes.classical.box import Box
from greybayes.classical.methods import Progress, Watch
from greybayes.errors import Status
from greybayes.model import Model

Evaluate = Callable[[Model, Float[Array, " free"], Any], tuple[Array, Array, Array, Any]]
"""Objective, gradient and curvature of a model at a point, given the data of one record.

And whatever else is to be known where a lane ends."""

_CHUNK = 5
# Once this share of the lanes is left, they go on alone, where they are enough to be worth it.
_FEW = 8
_WORTH = 64
_FIRST_DAMPING = 1e-2
_LEAST_DAMPING = 1e-12
# As small as a step may be, as a share of the spread of the prior, before it is no step at all.
_STUCK = 1e-10
_LEAST_EIGENVALUE = 1e-12


class Limits(NamedTuple):
    """When to end."""

    iterations: int
    tolerance: float
    """Of the decrease that a Newton step promises, relative to the objective."""
    unit: float = 1.0
    """The objective counts as at least this large there."""
    longest: float = np.inf
    """No longer than this in one step, in units of the box's scale."""


class Descent(NamedTuple):
    """Where each lane is: lanes are records and starts, in this order."""

    z: Any
    value: Any
    """The objective; infinite where it is no number at the start."""
    gradient: Any
    curvature: Any
    damping: Any
    converged: Any
    ended: Any
    extra: Any
    """What else was evaluated there."""

    def best(self) -> np.ndarray:
        """For each record the start that came furthest."""
        return np.asarray(self.value).argmin(1)

    def status(self, record: int) -> Status:
        """How the best start of a record ended."""
        best = self.best()[record]
        if not np.isfinite(self.value[record, best]):
            return Status.diverged
        return Status.ok if self.converged[record, best] else Status.unconverged

    def counts(self, record: int) -> dict[str, int]:
        """How many starts there were, converged, and agree with the best."""
        values = np.asarray(self.value[record])
        near = values <= values.min() + 1e-6 * max(abs(values.min()), 1.0)
        return {
            "n_starts": len(values),
            "n_converged": int(self.converged[record].sum()),
            "n_agree": int((near & np.isfinite(values)).sum()),
        }


def descend(
    evaluate: Evaluate,
    model: Model,
    z: Float[np.ndarray, "record start free"],
    data: Any,
    box: Box,
    limits: Limits,
    watch: Watch | None,
    note: Callable[[np.ndarray], str],
    extra: Any = (),
) -> Descent:
    """The end of each lane. Call it with float64 switched on; `data` has records as first axis.

    `note` makes the words of the progress from the best objective of each record. `extra` is like
    what the evaluations of all lanes give beside the curvature.
    """
    go_on = functools.partial(_go_on, evaluate, model, limits._replace(iterations=0))
    state, done = _first(z, extra), 0
    while done < limits.iterations and not state.ended.all():
        chunk = min(_CHUNK, limits.iterations - done)
        few = state.ended.size // _FEW
        if few >= _WORTH and (~state.ended).sum() <= few:
            state = _with_few(go_on, few, state, data, box, chunk)
        else:
            state = jax.device_get(go_on(state, data, box, chunk))
        done += chunk
        if watch is not None:
            watch(Progress(done, limits.iterations, note(state.value.min(1))))
    return state


def _with_few(go_on, few: int, state: Descent, data: Any, box: Box, chunk: int) -> Descent:
    """Some iterations of the lanes that have not ended, without the others."""
    # Filled up with themselves to a fixed number: another one would be compiled anew.
    record, start = np.resize(np.argwhere(~state.ended), (few, 2)).T
    some = jax.tree.map(lambda a: a[record, start][:, None], state)
    moved = jax.device_get(go_on(some, jax.tree.map(lambda a: a[record], data), box, chunk))
    state = jax.tree.map(np.array, state)
    for all_of_it, part in zip(jax.tree.leaves(state), jax.tree.leaves(moved), strict=True):
        all_of_it[record, start] = part[:, 0]
    return state


def _first(z: Float[np.ndarray, "record start free"], extra: Any) -> Descent:
    """Before anything is known: the first step goes nowhere, and evaluates the start."""
    lanes, free = z.shape[:2], z.shape[-1]
    # All of it NumPy: a weak type here would be another one after the first call, and the loop
    # would be compiled twice.
    return Descent(
        z,
        np.full(lanes, np.inf),
        np.zeros(z.shape),
        np.broadcast_to(np.eye(free), (*lanes, free, free)),
        np.full(lanes, _FIRST_DAMPING),
        np.zeros(lanes, bool),
        np.zeros(lanes, bool),
        extra,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _go_on(evaluate, model, limits, state, data, box, n_iterations) -> Descent:
    """Some iterations more, fewer where all lanes have ended."""

    def one(state, data):
        moved = _step(lambda z: evaluate(model, z, data), limits, box, state)
        return jax.tree.map(lambda new, old: jnp.where(state.ended, old, new), moved, state)

    every = jax.vmap(jax.vmap(one, in_axes=(0, None)))

    def goes_on(carried):
        return (carried[0] < n_iterations) & ~carried[1].ended.all()

    def body(carried):
        return carried[0] + 1, every(carried[1], data)

    return jax.lax.while_loop(goes_on, body, (0, state))[1]


def _step(evaluate, limits: Limits, box: Box, state: Descent) -> Descent:
    """One step of one lane."""
    step, decrement = _direction(state, outward(box, state.z, state.gradient))
    length = jnp.max(jnp.abs(step) / box.scale)
    step = step * jnp.minimum(1.0, limits.longest / jnp.maximum(length, 1e-300))
    there = jnp.clip(state.z + step, box.low, box.high)
    step = there - state.z
    value, gradient, curvature, extra = evaluate(there)
    good = jnp.isfinite(value) & jnp.isfinite(gradient).all() & jnp.isfinite(curvature).all()
    value = jnp.where(good, value, jnp.inf)

    better = value < state.value
    promised = -(state.gradient @ step + step @ state.curvature @ step / 2)
    # As promised, at least by half: trust the curvature more.
    trusted = jnp.where(state.value - value > 0.5 * promised, 0.1, 1.0)
    damping = state.damping * jnp.where(better, trusted, 10.0)

    known = jnp.isfinite(state.value)
    size = jnp.maximum(jnp.abs(state.value), limits.unit)
    settled = known & (decrement <= limits.tolerance * size)
    stuck = ~better & (jnp.max(jnp.abs(step) / box.scale) < _STUCK)
    moved = Descent(
        there,
        value,
        gradient,
        curvature,
        jnp.maximum(damping, _LEAST_DAMPING),
        settled | (stuck & known),
        settled | stuck,
        extra,
    )
    stayed = state._replace(damping=moved.damping, converged=moved.converged, ended=moved.ended)
    return jax.tree.map(lambda new, old: jnp.where(better, new, old), moved, stayed)


def outward(box: Box, z: Any, gradient: Any) -> Any:
    """Which coordinates are at a bound and would be better beyond it."""
    return ((z <= box.low) & (gradient > 0)) | ((z >= box.high) & (gradient < 0))


def _direction(
    state: Descent, held: Bool[Array, " free"]
) -> tuple[Float[Array, " free"], Float[Array, ""]]:
    """The damped step, and the decrease that the undamped one promises."""
    unit = jnp.sqrt(jnp.abs(jnp.diag(state.curvature)))
    unit = jnp.where(unit > 0, unit, 1.0)
    free = ~held
    scaled = jnp.where(
        free[:, None] & free, state.curvature / (unit[:, None] * unit), jnp.eye(len(unit))
    )
    eigenvalues, vectors = jnp.linalg.eigh(scaled)
    eigenvalues = jnp.maximum(jnp.abs(eigenvalues), _LEAST_EIGENVALUE)
    slope = vectors.T @ jnp.where(free, state.gradient / unit, 0.0)
    step = -(vectors @ (slope / (eigenvalues + state.damping))) / unit
    return step, slope @ (slope / eigenvalues) / 2
