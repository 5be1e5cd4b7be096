"""Training in the default mode: fresh simulations in every batch, on all cores.

One compiled call makes `BLOCK` steps. Each device simulates its share of the paths, then takes
gradients over chunks small enough for its cache; gradients are averaged over the devices. Data
depend on the seed and the number of the step alone, so a run that was killed goes on from its last
checkpoint to the same weights, bit for bit.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from greybayes.amortized.channels import Scaling
from greybayes.amortized.heads import HEADS, Head, normalised_error
from greybayes.amortized.network import Network, OneByOne, make_network
from greybayes.amortized.soap import scale_by_soap
from greybayes.drawing import draw_joint
from greybayes.errors import EstimatorError
from greybayes.inputs import Design
from greybayes.model import Model
from greybayes.simulation import Paths, simulate

BLOCK = 10
PILOT = 4096
MOST_DIVERGED = 0.05


@dataclass(frozen=True)
class Settings:
    """Everything that decides the weights, saved with them."""

    steps: int = 20_000
    batch: int = 64
    learning_rate: float = 3e-3
    warm_up: float = 0.03
    """Share of the steps over which the learning rate rises; then it falls as a cosine to 1 %."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    network: str = "windows"
    sizes: dict[str, int] = field(default_factory=dict)
    head: str = "bounded"
    seed: int = 0
    chunk: int = 16
    """Paths differentiated at a time: activations then stay in the cache of a core."""
    devices: int = 1
    n_validation: int = 2000

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "chunk", "devices", "n_validation"):
            if getattr(self, name) < 1:
                raise EstimatorError(f"{name} is {getattr(self, name)}, expected 1 or more.")
        # Whole blocks, and whole chunks on each device.
        whole = math.ceil(self.steps / BLOCK) * BLOCK
        object.__setattr__(self, "steps", whole)
        chunk = min(self.chunk, math.ceil(self.batch / self.devices))
        object.__setattr__(self, "chunk", chunk)
        batch = math.ceil(self.batch / (chunk * self.devices)) * chunk * self.devices
        object.__setattr__(self, "batch", batch)

    @property
    def architecture(self) -> "Architecture":
        """Which network and head."""
        return Architecture(self.network, self.sizes, self.head)


class Weights(eqx.Module):
    """What is trained: a network and a head."""

    network: Network
    head: Head

    def theta(self, channels: Float[Array, "batch steps channel"]) -> Float[Array, "batch param"]:
        """The estimate for each record."""
        return self.head.theta(self.network.summarise(channels))


class State(NamedTuple):
    """What a step carries on: all of it is in a checkpoint."""

    weights: PyTree
    optimiser: PyTree
    step: Int[Array, ""]
    n_diverged: Int[Array, ""]


class Experiment(NamedTuple):
    """What the records look like: model, input and length."""

    model: Model
    design: Design
    n_steps: int

    @property
    def shared(self) -> Float[Array, "steps input"] | None:
        """The input where it is one signal for all records."""
        if self.design.is_random:
            return None
        return self.design.draw(jr.key(0), self.n_steps, self.model.dt)


OWN = "own"
"""The name of a network that is a user's own module."""


class Architecture(NamedTuple):
    """Which network and head, by name, and their sizes; `dense` is the width of the head."""

    network: str
    sizes: dict[str, int]
    head: str


def make_weights(
    experiment: Experiment,
    architecture: Architecture,
    seed: int = 0,
    module: Callable | None = None,
) -> Weights:
    """Network and head at their start. `module` is a user's own network for one record."""
    model = experiment.model
    key_network, key_head = jr.split(jr.fold_in(jr.key(seed), 0))
    n_outputs, n_inputs = len(model.outputs), len(model.inputs)
    sizes = {name: size for name, size in architecture.sizes.items() if name != "dense"}
    if module is None:
        network = make_network(architecture.network, n_outputs, n_inputs, key_network, sizes)
    else:
        shape = (experiment.n_steps, 2 * n_outputs + n_inputs)
        network = OneByOne(_summary_size(module, shape), module)
    width = {"width": architecture.sizes["dense"]} if "dense" in architecture.sizes else {}
    head = HEADS[architecture.head](network.n_summary, model.prior, key_head, **width)
    return Weights(network, head)


def _summary_size(module: Callable, shape: tuple[int, int]) -> int:
    out = eqx.filter_eval_shape(module, jax.ShapeDtypeStruct(shape, jnp.float32))
    if getattr(out, "ndim", None) != 1:
        raise EstimatorError(
            f"the network gives {out} for one record of shape {shape}, expected a vector."
        )
    return out.shape[0]


def pilot(experiment: Experiment, seed: int) -> tuple[Paths, Scaling]:
    """A first batch: the scales of the channels, and whether the prior can be simulated at all."""
    paths = simulate(
        experiment.model,
        inputs=experiment.design,
        n_steps=experiment.n_steps,
        count=PILOT,
        key=jr.fold_in(jr.key(seed), 1),
    )
    check_diverged(paths.n_diverged, len(paths))
    ok = ~paths.diverged
    return paths, Scaling.measure(paths.y[ok], paths.u[ok])


def check_diverged(n_diverged: int, n_paths: int) -> None:
    """Raise where more paths diverge than a prior in its right place lets."""
    if n_diverged > MOST_DIVERGED * n_paths:
        raise EstimatorError(
            f"{n_diverged} of {n_paths} simulations diverged ({n_diverged / n_paths:.0%}, at most "
            f"{MOST_DIVERGED:.0%} may); the prior reaches where the model is unstable: narrow it, "
            "shorten dt, or take more substeps."
        )


def optimiser(settings: Settings) -> optax.GradientTransformation:
    """Clipping, SOAP, warm-up and cosine decay."""
    warm = max(1, round(settings.warm_up * settings.steps))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0,
        settings.learning_rate,
        warm,
        max(settings.steps, warm + 1),
        end_value=0.01 * settings.learning_rate,
    )
    return optax.chain(
        optax.clip_by_global_norm(settings.clip),
        scale_by_soap(),
        optax.scale_by_learning_rate(schedule),
    )


def first_state(weights: Weights, settings: Settings) -> State:
    """Where training starts."""
    arrays = eqx.filter(weights, eqx.is_inexact_array)
    zero = jnp.zeros((), jnp.int32)
    return State(arrays, optimiser(settings).init(arrays), zero, zero)


def make_block(
    experiment: Experiment, settings: Settings, scaling: Scaling, weights: Weights
) -> Callable[[State], tuple[State, Float[Array, ""]]]:
    """A compiled function that makes `BLOCK` steps and tells their mean training risk."""
    static = eqx.filter(weights, eqx.is_inexact_array, inverse=True)
    update = optimiser(settings).update
    key_data = jr.fold_in(jr.key(settings.seed), 2)
    per_device = settings.batch // settings.devices
    chunks = per_device // settings.chunk
    prior = experiment.model.prior
    shared = experiment.shared

    def chunk_loss(arrays, theta, y, u, diverged):
        whole: Weights = eqx.combine(arrays, static)
        channels = scaling.channels(jnp, y, shared if u is None else u)
        summary = whole.network.summarise(channels)
        losses = jnp.where(diverged, 0.0, whole.head.loss(summary, theta))
        errors = normalised_error(prior, whole.head.theta(summary), theta)
        share = jnp.maximum((~diverged).sum(), 1)
        return losses.sum() / share, jnp.where(diverged, 0.0, errors).sum() / share

    def one_step(carried, batch):
        arrays, moments = carried

        def add(total, chunk):
            (_, risk), gradient = jax.value_and_grad(chunk_loss, has_aux=True)(arrays, *chunk)
            return jax.tree.map(jnp.add, total, gradient), risk

        total, risks = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, arrays), batch)
        gradient = jax.tree.map(lambda g: jax.lax.pmean(g / chunks, "cores"), total)
        change, moments = update(gradient, moments, arrays)
        return (optax.apply_updates(arrays, change), moments), jax.lax.pmean(risks.mean(), "cores")

    def on_device(state: State):
        core = jax.lax.axis_index("cores").astype(jnp.uint32)
        lanes = core * BLOCK * per_device + jnp.arange(BLOCK * per_device, dtype=jnp.uint32)
        key = jr.fold_in(key_data, state.step)
        drawn = draw_joint(
            experiment.model, experiment.design, experiment.n_steps, key, lanes, None, shared
        )
        diverged = drawn.trouble != 0
        y = jnp.moveaxis(drawn.y, -1, 0)
        # A diverged path takes no part, but its numbers must not poison the gradient.
        y = jnp.where(diverged[:, None, None], 0.0, y)
        batches = jax.tree.map(
            lambda a: a.reshape(BLOCK, chunks, settings.chunk, *a.shape[1:]),
            (drawn.theta, y, drawn.u, diverged),
        )
        (arrays, moments), risks = jax.lax.scan(one_step, (state.weights, state.optimiser), batches)
        lost = state.n_diverged + jax.lax.psum(diverged.sum(), "cores")
        return State(arrays, moments, state.step + BLOCK, lost), risks.mean()

    whole = PartitionSpec()
    mesh = Mesh(np.array(jax.devices()[: settings.devices]), ("cores",))
    return jax.jit(
        jax.shard_map(on_device, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    )


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
    settings: Settings
    history: list[dict[str, float]]
    share_diverged: float


def risk_on(
    weights: Weights, scaling: Scaling, paths: Paths, chunk: int = 64
) -> Float[np.ndarray, " count"]:
    """The normalised squared error of each path."""
    estimate = np.concatenate(
        [
            np.asarray(
                _thetas(
                    weights, scaling, jnp.asarray(paths.y[i : i + chunk]), paths.u[i : i + chunk]
                )
            )
            for i in range(0, len(paths), chunk)
        ]
    )
    return np.asarray(normalised_error(paths.model.prior, estimate, paths.theta))


@functools.partial(eqx.filter_jit)
def _thetas(weights: Weights, scaling: Scaling, y, u):
    return weights.theta(scaling.channels(jnp, y, u))


def settle_steps(
    block: Callable[[State], Any], state: State, minutes: float, started: float
) -> int:
    """How many steps fit in the time, from the measured speed. The trial steps are thrown away."""
    jax.block_until_ready(block(state))
    trials, start = 0, time.perf_counter()
    while trials < 3 or time.perf_counter() - start < 0.02 * 60 * minutes:
        jax.block_until_ready(block(state))
        trials += 1
    per_step = (time.perf_counter() - start) / trials / BLOCK
    left = 60 * minutes - (time.perf_counter() - started)
    return max(BLOCK, int(left / per_step / BLOCK) * BLOCK)


def run(
    experiment: Experiment,
    settings: Settings,
    *,
    minutes: float | None = None,
    module: Callable | None = None,
    checkpoint: "Callable[[State, Settings, Scaling, list], None] | None" = None,
    resumed: tuple[dict, list[np.ndarray]] | None = None,
    watch: Watch | None = None,
    every_seconds: float = 20.0,
) -> Trained:
    """Train to the end. `checkpoint` is called at the start, and every so many seconds."""
    started = time.perf_counter()
    validation, scaling = pilot(experiment, settings.seed)
    validation = _finite(validation, settings.n_validation)
    weights = make_weights(experiment, settings.architecture, settings.seed, module)
    state = first_state(weights, settings)
    history: list[dict[str, float]] = []
    if resumed is not None:
        noted, leaves = resumed
        history = noted["history"]
        if len(leaves) != len(jax.tree.leaves(state)):
            raise EstimatorError("the checkpoint is not that of a training of this network.")
        state = jax.tree.unflatten(jax.tree.structure(state), [jnp.asarray(a) for a in leaves])
    elif minutes is not None:
        block = make_block(experiment, settings, scaling, weights)
        steps = settle_steps(block, state, minutes, started)
        settings = dataclasses.replace(settings, steps=steps)
        state = first_state(weights, settings)
    block = make_block(experiment, settings, scaling, weights)

    def combined(state: State) -> Weights:
        return eqx.combine(state.weights, weights)

    def save() -> None:
        if checkpoint is not None:
            checkpoint(state, settings, scaling, history)

    save()
    saved, begun, first = time.perf_counter(), time.perf_counter(), int(state.step)
    # About fifty looks at the validation set, wherever the run was interrupted.
    look = max(1, settings.steps // BLOCK // 50) * BLOCK
    recent: list[float] = []
    validation_risk = history[-1]["validation_risk"] if history else math.nan
    try:
        while int(state.step) < settings.steps:
            state, risk = block(state)
            step = int(state.step)
            recent.append(float(risk))
            if not math.isfinite(recent[-1]):
                raise EstimatorError(
                    f"training lost its way at step {step}: the risk is not finite; lower "
                    "learning_rate, or narrow the prior."
                )
            if step % look == 0 or step == settings.steps:
                validation_risk = float(risk_on(combined(state), scaling, validation).mean())
                history.append(
                    {
                        "step": step,
                        "training_risk": float(np.mean(recent)),
                        "validation_risk": validation_risk,
                    }
                )
                recent = recent[-1:]
            if watch is not None:
                spent = time.perf_counter() - begun
                pace = spent / (step - first)
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
            if time.perf_counter() - saved > every_seconds:
                check_diverged(int(state.n_diverged), step * settings.batch)
                save()
                saved = time.perf_counter()
    except KeyboardInterrupt:
        save()
        raise
    share = int(state.n_diverged) / (settings.steps * settings.batch)
    check_diverged(int(state.n_diverged), settings.steps * settings.batch)
    return Trained(combined(state), scaling, settings, history, share)


def _finite(paths: Paths, count: int) -> Paths:
    chosen = np.flatnonzero(~paths.diverged)[:count]
    return dataclasses.replace(
        paths,
        **{name: getattr(paths, name)[chosen] for name in ("theta", "y", "u", "diverged")},
        x=None,
    )
