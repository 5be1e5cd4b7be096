"""The loop around the compiled block: how many steps, validation, checkpoints, who watches."""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, PyTree

from greybayes._devices import one_blas_thread
from greybayes.amortized.channels import Scaling
from greybayes.amortized.estimator import Estimator, load
from greybayes.amortized.faults import statistics
from greybayes.amortized.heads import normalised_error
from greybayes.amortized.layers import Network
from greybayes.amortized.training import (
    BLOCK,
    Experiment,
    Settings,
    State,
    Weights,
    array_name,
    check_diverged,
    first_state,
    make_block,
    make_weights,
    pilot,
)
from greybayes.amortized.typical import Seen
from greybayes.amortized.visited import check_sweeps
from greybayes.errors import EstimatorError
from greybayes.simulation import Paths

EVERY_SECONDS = 20.0
"""How often a checkpoint is written."""
_TRIAL_SECONDS = 10.0


@dataclass(frozen=True)
class Progress:
    """What the loop tells whoever watches."""

    step: int
    steps: int
    paths_per_second: float
    training_risk: float
    validation_risk: float
    seconds_left: float


Watch = Callable[[Progress], None]


class Trained(NamedTuple):
    """What comes out of training."""

    weights: Weights
    scaling: Scaling
    settings: Any
    history: list[dict[str, Any]]
    share_diverged: float
    is_own: bool = False
    """Whether the network is a user's own module."""


def risk_on(weights: Weights, scaling: Scaling, paths: Paths) -> Float[np.ndarray, " count"]:
    """The normalised squared error of each path."""
    estimate = seen_of(weights, scaling, paths.y, paths.u).thetas
    return np.asarray(normalised_error(paths.model.prior, estimate, paths.theta))


def seen_of(
    weights: Weights,
    scaling: Scaling,
    y: Float[np.ndarray, "count steps output"],
    u: Float[np.ndarray, "count steps input"],
    chunk: int = 64,
) -> Seen:
    """The summary, the estimate and the statistics of each record."""
    found = [
        jax.device_get(_seen(weights, scaling, jnp.asarray(y[i : i + chunk]), u[i : i + chunk]))
        for i in range(0, len(y), chunk)
    ]
    return Seen(*(np.concatenate(part) for part in zip(*found, strict=True)))


@eqx.filter_jit
def _seen(weights: Weights, scaling: Scaling, y, u) -> Seen:
    channels = scaling.channels(jnp, y, u)
    summary = weights.network.summarise(channels)
    return Seen(summary, weights.head.theta(summary), statistics(jnp, channels, y.shape[-1]))


def settle_steps(
    block: Callable[[State, int], Any], state: State, minutes: float, started: float
) -> int:
    """How many steps fit in the time, from the measured speed. The trial steps are thrown away."""
    jax.block_until_ready(block(state, BLOCK))
    trials, start = 0, time.perf_counter()
    while trials < 3 or time.perf_counter() - start < min(0.02 * 60 * minutes, _TRIAL_SECONDS):
        jax.block_until_ready(block(state, BLOCK))
        trials += 1
    per_step = (time.perf_counter() - start) / trials / BLOCK
    left = 60 * minutes - (time.perf_counter() - started)
    return max(BLOCK, int(left / per_step / BLOCK) * BLOCK)


Save = Callable[[PyTree, Any, list[dict[str, Any]]], None]
"""Writes a checkpoint: what training carries on, its settings and its history."""


def on_cores(state: PyTree, n_devices: int) -> PyTree:
    """The state where a step leaves it: from elsewhere, the second step is compiled once more."""
    mesh = Mesh(np.array(jax.devices()[:n_devices]), ("cores",))
    return jax.device_put(state, NamedSharding(mesh, PartitionSpec()))


class Resumed(NamedTuple):
    """What a checkpoint gives back."""

    leaves: list[np.ndarray]
    history: list[dict[str, Any]]

    def into(self, state: PyTree) -> PyTree:
        """The state that was saved, in the shape of a new one."""
        found = jax.tree.leaves(state)
        if [leaf.shape for leaf in found] != [leaf.shape for leaf in self.leaves]:
            raise EstimatorError("the checkpoint is not that of a training of this network.")
        placed = [jax.device_put(a, b.sharding) for a, b in zip(self.leaves, found, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(state), placed)


class Checkpoints:
    """Saves at the start, every so many seconds, and when the user stops the run."""

    def __init__(self, save: Save | None, settings: Any) -> None:
        self._save, self._settings = save, settings
        self._saved = -math.inf

    def offer(self, state: PyTree, history: list[dict[str, Any]], *, now: bool = False) -> bool:
        """Save where it is time to, and say whether it was."""
        due = now or time.perf_counter() - self._saved > EVERY_SECONDS
        if due and self._save is not None:
            self._save(state, self._settings, history)
        if due:
            self._saved = time.perf_counter()
        return due


@one_blas_thread()
def run(
    experiment: Experiment,
    settings: Settings,
    *,
    minutes: float | None = None,
    module: Callable | Network | None = None,
    save: Save | None = None,
    resumed: Resumed | None = None,
    watch: Watch | None = None,
) -> Trained:
    """Train to the end; with `minutes`, the number of steps is settled first."""
    started = time.perf_counter()
    validation, scaling = pilot(experiment, settings.seed)
    check_sweeps(experiment.model, settings.sweeps, validation)
    validation = finite(validation, settings.n_validation)
    weights = make_weights(experiment, settings.architecture, settings.seed, module)
    if settings.start:
        weights, scaling = take_over(weights, load(settings.start))
    state = on_cores(first_state(weights, settings), settings.devices)
    history: list[dict[str, Any]] = []
    block = make_block(experiment, settings, scaling, weights)
    if resumed is not None:
        state, history = resumed.into(state), resumed.history
    elif minutes is not None:
        steps = settle_steps(block, state, minutes, started)
        settings = dataclasses.replace(settings, steps=steps)
    checkpoints = Checkpoints(save, settings)
    checkpoints.offer(state, history)
    begun, first = time.perf_counter(), int(state.step)
    # About fifty looks at the validation set, wherever the run was interrupted.
    look = max(1, settings.steps // BLOCK // 50) * BLOCK
    recent: list[float] = []
    validation_risk = history[-1]["validation_risk"] if history else math.nan
    try:
        while (step := int(state.step)) < settings.steps:
            after, risk = block(state, settings.steps)
            step += BLOCK
            recent.append(float(risk))
            _check_finite(recent[-1], step)
            if step % look == 0 or step == settings.steps:
                trained = eqx.combine(after.weights, weights)
                validation_risk = float(risk_on(trained, scaling, validation).mean())
                _check_finite(validation_risk, step)
                history.append(
                    {
                        "step": step,
                        "training_risk": float(np.mean(recent)),
                        "validation_risk": validation_risk,
                    }
                )
                recent = recent[-1:]
            state = after  # With its look: whoever is interrupted before saves the block before.
            if watch is not None:
                pace = (time.perf_counter() - begun) / (step - first)
                watch(
                    Progress(
                        step,
                        settings.steps,
                        settings.batch / pace,
                        float(np.mean(recent)),
                        validation_risk,
                        pace * (settings.steps - step),
                    )
                )
            if checkpoints.offer(state, history):
                check_diverged(int(state.n_diverged), step * settings.batch)
    except KeyboardInterrupt:
        checkpoints.offer(state, history, now=True)
        raise
    n_paths = settings.steps * settings.batch
    check_diverged(int(state.n_diverged), n_paths)
    trained = eqx.combine(state.weights, weights)
    share = int(state.n_diverged) / n_paths
    return Trained(trained, scaling, settings, history, share, module is not None)


def _check_finite(risk: float, step: int) -> None:
    if not math.isfinite(risk):
        raise EstimatorError(
            f"training lost its way at step {step}: the risk is not finite; lower learning_rate, "
            "or narrow the prior."
        )


def take_over(weights: Weights, start: Estimator) -> tuple[Weights, Scaling]:
    """Weights that are those of an estimator where it has any of that name and shape."""
    trained, static = eqx.partition(weights, eqx.is_inexact_array)
    leaves, tree = jax.tree_util.tree_flatten_with_path(trained)
    taken = {}
    for path, leaf in leaves:
        given = start.arrays.get(array_name(path))
        if given is not None and given.shape == leaf.shape:
            taken[array_name(path)] = jnp.asarray(given)
    needed = {array_name(path) for path, _ in leaves if "network" in array_name(path)}
    given = {name for name in start.arrays if name.startswith("network")}
    # Cues change nothing at their start: a network may have got them since.
    new = {name for name in needed - given if "cue" in name}
    if needed - new - taken.keys() or given - needed:
        raise EstimatorError(
            "the estimator to start from has another network; give the same, "
            f"{start.header['architecture']['network']}, and the same sizes: "
            f"{start.header['architecture']['sizes']}."
        )
    replaced = [taken.get(array_name(path), leaf) for path, leaf in leaves]
    return eqx.combine(jax.tree.unflatten(tree, replaced), static), start.scaling


def finite(paths: Paths, count: int | None = None) -> Paths:
    """The first of those that did not diverge."""
    chosen = np.flatnonzero(~paths.diverged)[:count]
    names = ("theta", "y", "u", "diverged", *(("x",) if paths.x is not None else ()))
    return dataclasses.replace(paths, **{name: getattr(paths, name)[chosen] for name in names})
