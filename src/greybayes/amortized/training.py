"""Training in the default mode: fresh simulations in every batch, on all cores.

Two compiled calls make `BLOCK` steps. Each device simulates its share of the paths, then takes
gradients over chunks small enough for its cache; gradients are averaged over the devices. Data
depend on the seed and the number of the step alone, so a run that was killed goes on from its last
checkpoint to the same weights, bit for bit.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from greybayes._devices import without_ynnpack
from greybayes.amortized.channels import Scaling
from greybayes.amortized.header import OWN
from greybayes.amortized.heads import HEADS, Head, Lines, normalised_error
from greybayes.amortized.network import (
    Network,
    OneByOne,
    Reads,
    all_sizes,
    check_sizes,
    make_network,
)
from greybayes.amortized.soap import scale_by_soap
from greybayes.amortized.visited import visited
from greybayes.drawing import Drawn, draw_joint
from greybayes.errors import EstimatorError, nearest
from greybayes.inputs import Design
from greybayes.model import Model
from greybayes.simulation import Paths, simulate

BLOCK = 10
PILOT = 4096
MOST_DIVERGED = 0.05
OPTIMISERS = {"soap": scale_by_soap, "adam": optax.scale_by_adam}


def whole_numbers(settings: object, names: Iterable[str]) -> None:
    """Refuse settings of these names that are no whole numbers from 1 on."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or value < 1:
            raise EstimatorError(f"{name} is {value}, expected a whole number, 1 or more.")


def check_seed(seed: object) -> None:
    """Refuse what is no seed."""
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise EstimatorError(f"seed is {seed}, expected a whole number from 0 to 2**32 - 1.")


def check_range(settings: object, name: str, low: float, high: float = math.inf) -> None:
    """Refuse a setting of this name that is no number between two, both left out."""
    value = getattr(settings, name)
    if not isinstance(value, int | float) or not low < value < high:
        below = "" if high == math.inf else f" and less than {high:g}"
        raise EstimatorError(f"{name} is {value}, expected a number more than {low:g}{below}.")


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
    optimiser: str = "soap"
    """Or adam, which costs less for each step of a very large module."""
    network: str = "windows"
    sizes: dict[str, int] = field(default_factory=dict)
    head: str = "posterior"
    """Or bounded: the mean alone."""
    seed: int = 0
    start: str = ""
    """An estimator whose weights, where they fit, are the first ones, and whose scales are kept."""
    sweeps: int = 0
    """Learn from the thetas that so many sweeps of a Markov chain visit, for each record, from the
    truth on (`visited`); 0 is the truth alone. For models that have a `sweep`."""
    chunk: int = 16
    """Paths differentiated at a time: activations then stay in the cache of a core."""
    devices: int = 1
    n_validation: int = 2000
    n_reference: int = 4096
    """Simulated records with which a record is compared, to say whether it is typical."""

    def __post_init__(self) -> None:
        whole_numbers(self, ("steps", "batch", "chunk", "devices", "n_validation", "n_reference"))
        check_seed(self.seed)
        if not isinstance(self.sweeps, int) or isinstance(self.sweeps, bool) or self.sweeps < 0:
            raise EstimatorError(f"sweeps is {self.sweeps}, expected a whole number, 0 or more.")
        check_range(self, "learning_rate", 0.0)
        check_range(self, "clip", 0.0)
        if not 0 <= self.warm_up < 1:
            raise EstimatorError(f"warm_up is {self.warm_up}, expected a share from 0 to below 1.")
        if self.optimiser not in OPTIMISERS:
            raise EstimatorError(
                f"there is no optimiser {self.optimiser}; {nearest(self.optimiser, OPTIMISERS)}"
            )
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


def array_name(path) -> str:
    """The name of a weight in a file: `network.steps[0].weight`."""
    return jax.tree_util.keystr(path).lstrip(".")


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


class Architecture(NamedTuple):
    """Which network and head, by name, and the sizes of both."""

    network: str
    sizes: dict[str, int]
    head: str

    @property
    def complete(self) -> "Architecture":
        """With every size, also those that nobody gave: a file must not depend on our defaults."""
        network, head = self.split_sizes()
        if self.network != OWN:
            network = all_sizes(self.network, network)
        return self._replace(sizes=network | HEADS[self.head].usual | head)

    def split_sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The sizes that were given: those of the network, and those of the head."""
        if self.head not in HEADS:
            raise EstimatorError(f"there is no head {self.head}; {nearest(self.head, HEADS)}")
        usual = HEADS[self.head].usual
        check_sizes(self.sizes)
        network = {name: size for name, size in self.sizes.items() if name not in usual}
        return network, {name: size for name, size in self.sizes.items() if name in usual}


def make_weights(
    experiment: Experiment,
    architecture: Architecture,
    seed: int = 0,
    module: Callable | Network | None = None,
    lines: Lines | None = None,
) -> Weights:
    """Network and head at their start. `module` is a user's own network, for one record or many.

    `lines` is where the prior lies on the lines of the head, measured where it is not given.
    """
    model = experiment.model
    key_network, key_head = jr.split(jr.fold_in(jr.key(seed), 0))
    reads = Reads(len(model.outputs), len(model.inputs), not experiment.design.is_random)
    sizes, head_sizes = architecture.split_sizes()
    if isinstance(module, Network):
        network = module
    elif module is None:
        network = make_network(architecture.network, reads, key_network, sizes)
    else:
        shape = (experiment.n_steps, reads.n_channels)
        network = OneByOne(_summary_size(module, shape), module)
    make = HEADS[architecture.head]
    head = make(network.n_summary, model.prior, key_head, **head_sizes, lines=lines)
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
    """Clipping, and steps of unit scale; the learning rate is `rate`."""
    return optax.chain(optax.clip_by_global_norm(settings.clip), OPTIMISERS[settings.optimiser]())


def rate(
    settings: Settings, step: Int[Array, "*n"], steps: Int[Array, ""] | int
) -> Float[Array, "*n"]:
    """The learning rate: warm-up, then half a cosine down to 1 %.

    `steps` is not a constant of the compiled program, which so need not be compiled again when the
    number of steps is settled from its speed.
    """
    warm = jnp.maximum(1.0, settings.warm_up * steps)
    along = jnp.clip((step - warm) / jnp.maximum(1.0, steps - warm), 0.0, 1.0)
    falling = 0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * along))
    return settings.learning_rate * jnp.where(step < warm, step / warm, falling)


def first_state(weights: Weights, settings: Settings) -> State:
    """Where training starts."""
    arrays = eqx.filter(weights, eqx.is_inexact_array)
    zero = jnp.zeros((), jnp.int32)
    return State(arrays, optimiser(settings).init(arrays), zero, zero)


class Block(NamedTuple):
    """Makes `BLOCK` of so many steps, and tells their mean training risk.

    Two programs: the sums over time of a chain are fast with what gradients do better without.
    """

    draw: Callable[[Int[Array, ""]], PyTree]
    learn: Callable[[State, int, PyTree], tuple[State, Float[Array, ""]]]

    def __call__(self, state: State, steps: int) -> tuple[State, Float[Array, ""]]:
        return self.learn(state, steps, self.draw(state.step))


def make_block(
    experiment: Experiment, settings: Settings, scaling: Scaling, weights: Weights
) -> Block:
    """The block of steps for a model, its input and these settings."""
    static = eqx.filter(weights, eqx.is_inexact_array, inverse=True)
    update = optimiser(settings).update
    key_data = jr.fold_in(jr.key(settings.seed), 2)
    per_device = settings.batch // settings.devices
    chunks = per_device // settings.chunk
    prior = experiment.model.prior
    shared = experiment.shared

    def chunk_loss(arrays, theta, thetas, y, u, diverged):
        whole: Weights = eqx.combine(arrays, static)
        channels = scaling.channels(jnp, y, shared if u is None else u)
        summary = whole.network.summarise(channels)
        losses = jax.vmap(whole.head.loss, (None, 1))(summary, thetas).mean(0)
        losses = jnp.where(diverged, 0.0, losses)
        errors = normalised_error(prior, whole.head.theta(summary), theta)
        share = jnp.maximum((~diverged).sum(), 1)
        return losses.sum() / share, jnp.where(diverged, 0.0, errors).sum() / share

    def one_step(carried, given):
        arrays, moments = carried
        learning_rate, batch = given

        def add(total, chunk):
            (_, risk), gradient = jax.value_and_grad(chunk_loss, has_aux=True)(arrays, *chunk)
            return jax.tree.map(jnp.add, total, gradient), risk

        total, risks = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, arrays), batch)
        gradient = jax.tree.map(lambda g: jax.lax.pmean(g / chunks, "cores"), total)
        change, moments = update(gradient, moments, arrays)
        change = jax.tree.map(lambda c: -learning_rate * c, change)
        return (optax.apply_updates(arrays, change), moments), jax.lax.pmean(risks.mean(), "cores")

    def learnt_from(key, drawn: Drawn):
        if not settings.sweeps:
            return drawn.theta[:, None]
        u = shared if drawn.u is None else drawn.u
        assert u is not None
        assert drawn.x is not None
        ok = drawn.trouble == 0
        # What a diverged path gives is left out, but it must stay finite.
        x, y = jnp.where(ok, drawn.x, 0.0), jnp.where(ok, drawn.y, 0.0)
        return visited(experiment.model, key, settings.sweeps, drawn.theta, x, y, u)

    def draw_on_device(step):
        core = jax.lax.axis_index("cores").astype(jnp.uint32)
        lanes = core * BLOCK * per_device + jnp.arange(BLOCK * per_device, dtype=jnp.uint32)
        key = jr.fold_in(key_data, step)
        drawn = draw_joint(
            experiment.model, experiment.design, experiment.n_steps, key, lanes, None, shared
        )
        diverged = drawn.trouble != 0
        y = jnp.moveaxis(drawn.y, -1, 0)
        # A diverged path takes no part, but its numbers must not poison the gradient.
        y = jnp.where(diverged[:, None, None], 0.0, y)
        # Drawing splits the key into its first few.
        thetas = learnt_from(jr.fold_in(jr.fold_in(key, 9), core), drawn)
        return jax.tree.map(
            lambda a: a.reshape(1, BLOCK, chunks, settings.chunk, *a.shape[1:]),
            (drawn.theta, thetas, y, drawn.u, diverged),
        )

    def learn_on_device(state: State, steps, batches):
        batches = jax.tree.map(lambda a: a[0], batches)
        rates = rate(settings, state.step + jnp.arange(BLOCK), steps)
        (arrays, moments), risks = jax.lax.scan(
            one_step, (state.weights, state.optimiser), (rates, batches)
        )
        *_, diverged = batches
        lost = state.n_diverged + jax.lax.psum(diverged.sum(), "cores")
        return State(arrays, moments, state.step + BLOCK, lost), risks.mean()

    whole, split = PartitionSpec(), PartitionSpec("cores")
    mesh = Mesh(np.array(jax.devices()[: settings.devices]), ("cores",))
    shard = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
    draw = jax.jit(shard(draw_on_device, in_specs=whole, out_specs=split))
    learn = jax.jit(
        shard(learn_on_device, in_specs=(whole, whole, split), out_specs=whole),
        compiler_options=without_ynnpack(),
    )
    return Block(draw, learn)
