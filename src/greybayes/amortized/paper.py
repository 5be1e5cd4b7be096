"""Training as the paper does it: a fixed set Z(P, M), epochs, Adam, early stopping.

Kept for its tables, and for simulators too slow to draw fresh records all the time.
"""

import functools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from greybayes.amortized.channels import Scaling
from greybayes.amortized.dataset import EarlyStopping, epoch, split_by_theta
from greybayes.amortized.loop import Checkpoints, Progress, Resumed, Save, Trained, Watch, on_cores
from greybayes.amortized.training import (
    BLOCK,
    Architecture,
    Experiment,
    Weights,
    check_diverged,
    check_range,
    check_seed,
    make_weights,
    whole_numbers,
)
from greybayes.errors import EstimatorError
from greybayes.simulation import Paths, offline_set


@dataclass(frozen=True)
class PaperSettings:
    """The paper's settings of M2, but for M: it has 500 paths for each theta, here are 50.

    `sizes` are those of the network and `dense`, its last layer. What the paper has for its other
    models is in `of_model`, but for the M = 1000 of the drives.
    """

    n_thetas: int = 500
    n_paths: int = 50
    training_share: float = 0.75
    batch: int = 128
    epochs: int = 3000
    learning_rate: float = 1e-3
    decay: float = 0.9
    decays: int = 3
    """How often the rate decays over all epochs: 3 in the paper's text, 6 in its code."""
    patience: int = 3
    tolerance: float = 0.01
    watch_after: int = 100
    network: str = "gru"
    sizes: dict[str, int] = field(default_factory=lambda: {"width": 40, "depth": 2, "dense": 32})
    head: str = "paper"
    seed: int = 0
    devices: int = 1
    n_reference: int = 4096

    def __post_init__(self) -> None:
        if self.n_thetas < 2:
            raise EstimatorError(f"P is {self.n_thetas}, expected 2 or more: one is to validate.")
        whole_numbers(
            self, ("n_thetas", "n_paths", "batch", "epochs", "decays", "devices", "n_reference")
        )
        check_seed(self.seed)
        check_range(self, "learning_rate", 0.0)
        check_range(self, "decay", 0.0)
        check_range(self, "training_share", 0.0, 1.0)

    @property
    def architecture(self) -> Architecture:
        """Which network and head."""
        return Architecture(self.network, self.sizes, self.head)


_OF_MODELS: dict[tuple[str, str], dict[str, Any]] = {
    ("growth1", "gru"): {"sizes": {"width": 30, "depth": 2, "dense": 32}},
    ("growth1", "lstm"): {"sizes": {"width": 60, "depth": 1, "dense": 40}},
    ("coupled-drives", "gru"): {"learning_rate": 5e-4},
}


def of_model(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's own settings for a model and a network, with those that are given.

    >>> of_model("growth1", {"network": "lstm", "sizes": {"width": 50}})["sizes"]
    {'width': 50, 'depth': 1, 'dense': 40}
    """
    usual = _OF_MODELS.get((name, given.get("network", PaperSettings.network)), {})
    sizes = {**usual.get("sizes", {}), **given.get("sizes", {})}
    return {**usual, **given, **({"sizes": sizes} if sizes else {})}


def rate(settings: PaperSettings, batches: int) -> optax.Schedule:
    """A staircase: times 0.9 with every third (or sixth) of the epochs."""
    every = max(1, settings.epochs // settings.decays) * batches
    return optax.exponential_decay(settings.learning_rate, every, settings.decay, staircase=True)


class State(NamedTuple):
    """What an epoch carries on: all of it is in a checkpoint."""

    weights: PyTree
    moments: PyTree
    best: PyTree


def run(
    experiment: Experiment,
    settings: PaperSettings,
    *,
    save: Save | None = None,
    resumed: Resumed | None = None,
    watch: Watch | None = None,
) -> Trained:
    """Train until the validation loss stands still, and keep the best weights."""
    if experiment.shared is None and settings.network in ("windows", "gated", "cued"):
        raise EstimatorError(
            f"the network {settings.network} reads u, and the preset paper knows one input for all "
            "records: give a signal (--input FILE), or a network that reads y alone, such as gru."
        )
    paths = offline_set(
        experiment.model,
        settings.n_thetas,
        settings.n_paths,
        inputs=experiment.design,
        n_steps=experiment.n_steps,
        key=settings.seed,
    )
    check_diverged(paths.n_diverged, len(paths))
    rows = split_by_theta(paths, settings.n_paths, settings.training_share, settings.seed)
    if len(rows.training) < settings.batch:
        raise EstimatorError(
            f"{len(rows.training)} training paths do not fill a batch of {settings.batch}; "
            "raise n_thetas or n_paths."
        )
    # The paper's networks read y as it is; scales of 1 say so in the file.
    scaling = as_it_is(experiment)
    arrays, static = eqx.partition(
        make_weights(experiment, settings.architecture, settings.seed), eqx.is_inexact_array
    )
    batches = len(rows.training) // settings.batch
    optimiser = optax.adam(rate(settings, batches))
    steps = make_steps(scaling, static, optimiser, experiment, settings)
    validate = _make_loss(scaling, static, experiment)
    state = State(arrays, optimiser.init(arrays), arrays)
    state, history = on_cores(state, math.gcd(settings.batch, settings.devices)), []
    if resumed is not None:
        state, history = resumed.into(state), resumed.history
    done = state, history
    # What early stopping has seen is in the history: a run that goes on sees it again.
    stopping = EarlyStopping(settings.patience, settings.tolerance, settings.watch_after)
    stopped = [stopping.update(seen["epoch"], seen["validation_loss"]) for seen in history]
    best_loss = min((seen["validation_loss"] for seen in history), default=math.inf)
    checkpoints = Checkpoints(save, settings)
    first, begun = len(history), time.perf_counter()
    try:
        while len(history) < settings.epochs and not any(stopped):
            checkpoints.offer(state, history)
            number, losses = len(history) + 1, []
            arrays, moments = state.weights, jax.tree.map(jnp.copy, state.moments)
            order = epoch(rows.training, settings.batch, settings.seed, number)
            for block in np.split(order, range(BLOCK, len(order), BLOCK)):
                arrays, moments, loss = steps(arrays, moments, paths.y[block], paths.theta[block])
                losses.append(loss)
            validation_loss = _mean_loss(validate, arrays, paths, rows.validation)
            training_loss = float(np.concatenate(jax.device_get(losses)).mean())
            if not math.isfinite(training_loss + validation_loss):
                words = f"training lost its way in epoch {number}: the loss is not finite"
                raise EstimatorError(f"{words}; lower learning_rate, or narrow the prior.")
            improved = validation_loss < best_loss
            best_loss = min(best_loss, validation_loss)
            seen = {
                "epoch": number,
                "training_loss": training_loss,
                "validation_loss": validation_loss,
            }
            # Both at once: whoever is interrupted here must not save one without the other.
            done = State(arrays, moments, arrays if improved else state.best), [*history, seen]
            state, history = done
            stopped.append(stopping.update(number, validation_loss))
            if watch is not None:
                pace = (time.perf_counter() - begun) / (number - first)
                watch(
                    Progress(
                        number,
                        settings.epochs,
                        batches * settings.batch / pace,
                        training_loss,
                        validation_loss,
                        pace * (settings.epochs - number),
                    )
                )
    except KeyboardInterrupt:
        checkpoints.offer(*done, now=True)
        raise
    share = paths.n_diverged / len(paths)
    return Trained(eqx.combine(state.best, static), scaling, settings, history, share)


def as_it_is(experiment: Experiment) -> Scaling:
    n_y, n_u = len(experiment.model.outputs), len(experiment.model.inputs)
    return Scaling((0.0,) * n_y, (1.0,) * n_y, (False,) * n_y, (0.0,) * n_u, (1.0,) * n_u)


def _make_loss(scaling: Scaling, static: Any, experiment: Experiment):
    # A network that reads y alone does not ask which input it was.
    none = jnp.zeros((experiment.n_steps, len(experiment.model.inputs)))
    shared = none if experiment.shared is None else experiment.shared

    @jax.jit
    def loss(arrays, y, theta):
        whole: Weights = eqx.combine(arrays, static)
        summary = whole.network.summarise(scaling.channels(jnp, y, shared))
        return whole.head.loss(summary, theta).mean()

    return loss


def make_steps(
    scaling: Scaling, static: Any, optimiser, experiment: Experiment, settings: PaperSettings
):
    """A compiled step on each batch of a block, `(step, batch, ...)`, which all devices share.

    Steps that are compiled one by one ask the system for new memory in each, which costs nearly as
    much as the step.
    """
    loss = _make_loss(scaling, static, experiment)
    n_devices = math.gcd(settings.batch, settings.devices)
    split, whole = PartitionSpec(None, "cores"), PartitionSpec()

    def step(state, batch):
        arrays, moments = state
        found = jax.value_and_grad(loss)(arrays, *batch)
        value, gradient = jax.tree.map(lambda a: jax.lax.pmean(a, "cores"), found)
        change, moments = optimiser.update(gradient, moments, arrays)
        return (optax.apply_updates(arrays, change), moments), value

    # Only the moments are given away: the weights may be the best so far, and are kept.
    @functools.partial(jax.jit, donate_argnums=1)
    @functools.partial(
        jax.shard_map,
        mesh=Mesh(np.array(jax.devices()[:n_devices]), ("cores",)),
        in_specs=(whole, whole, split, split),
        out_specs=whole,
        check_vma=False,
    )
    def steps(arrays, moments, y, theta):
        (arrays, moments), losses = jax.lax.scan(step, (arrays, moments), (y, theta))
        return arrays, moments, losses

    return steps


def _mean_loss(validate, arrays, paths: Paths, rows: np.ndarray, chunk: int = 2048) -> float:
    total = sum(
        float(validate(arrays, paths.y[part], paths.theta[part])) * len(part)
        for part in np.split(rows, range(chunk, len(rows), chunk))
    )
    return total / len(rows)
