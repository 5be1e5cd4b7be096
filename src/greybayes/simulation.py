"""Simulation: records that a model can have made, one or a million, from one key.

Path i depends on the key and on i alone (see `_lanes`), so a batch is the same batch whether it
runs on one core or two, in one chunk or many.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.drawing import draw_block, split_keys
from greybayes.errors import InputError, Status, ThetaError
from greybayes.inputs import Design, Signal, parse
from greybayes.model import Model
from greybayes.prior import Fixed
from greybayes.record import Record
from greybayes.structure import Trouble, check_first_step
from greybayes.zoo import get_model

# Paths that one device steps together: enough to spread the cost of starting a step, and few enough
# that the state and one step's outputs still fit its cache.
CHUNK = 16384


@dataclass(frozen=True, eq=False)
class Paths:
    """Simulated paths. A sequence of `Record`: `paths[0]`, `len(paths)`, `list(paths)`."""

    model: Model
    theta: Float[np.ndarray, "count param"]
    x: Float[np.ndarray, "count steps state"] | None
    """The states; an offline set does without them."""
    y: Float[np.ndarray, "count steps output"]
    u: Float[np.ndarray, "count steps input"]
    diverged: Bool[np.ndarray, " count"]
    """Which paths left the range of numbers: a state or an output is not finite."""

    @property
    def n_diverged(self) -> int:
        """How many paths diverged."""
        return int(self.diverged.sum())

    @property
    def status(self) -> Status:
        """`Status.diverged` where any path did."""
        return Status.diverged if self.n_diverged else Status.ok

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, index: int) -> Record:
        index = range(len(self))[index]
        if self.diverged[index]:
            raise InputError(f"path {index} diverged: {Status.diverged.sentence}")
        model = self.model
        names = (*model.outputs, *model.inputs)
        return Record(
            y=self.y[index],
            u=self.u[index],
            dt=model.dt,
            outputs=model.outputs,
            inputs=model.inputs,
            units={name: unit for name, unit in model.units.items() if name in names},
            # The shortest digits of a float32: what was given as 0.7 is written as 0.7.
            theta={
                name: float(str(value))
                for name, value in zip(model.prior.names, self.theta[index], strict=True)
            },
            name=f"{type(model).__name__}-{index + 1}",
        )

    def __iter__(self) -> Iterator[Record]:
        return (self[index] for index in range(len(self)))


def simulate(
    model: Model | str,
    theta: Mapping[str, object] | np.ndarray | Array | None = None,
    *,
    inputs: Design | np.ndarray | Array | str | None = None,
    n_steps: int | None = None,
    count: int = 1,
    key: Seed = 0,
    watch: Callable[[int], None] | None = None,
) -> Paths:
    """Simulate `count` paths of a model.

    `theta` is one for all paths (names or a vector) or an array `(count, param)`; parameters that
    it does not name, or all where it is None, are drawn from the prior for each path. `inputs` is
    a design, an array `(steps, input)` for all paths, the words of a design
    (`"prbs:amplitude=2"`), or None: the model's own design. `watch` is told from time to time how
    many paths are done.

    >>> paths = simulate("growth2", count=3, key=1)
    >>> paths.y.shape, paths[0].n_steps
    ((3, 200, 1), 200)
    """
    model = get_model(model)
    if count < 1:
        raise InputError(f"count is {count}, expected 1 or more.")
    key = as_key(key)
    thetas = None if theta is None else _thetas(model, theta, count, key)
    design, n_steps = resolve_inputs(model, inputs, n_steps)
    return _run(model, thetas, design, n_steps, count, key, states=True, watch=watch)


def offline_set(
    model: Model | str,
    n_thetas: int,
    n_paths: int,
    *,
    inputs: Design | np.ndarray | Array | str | None = None,
    n_steps: int | None = None,
    key: Seed = 0,
) -> Paths:
    """The paper's Z(P, M): `n_thetas` (P) draws of the prior, `n_paths` (M) paths for each.

    The paths of one theta follow one another: `y.reshape(P, M, n_steps, -1)`.

    >>> offline_set("growth2", 5, 3).y.shape
    (15, 200, 1)
    """
    return _run(*_offline(model, n_thetas, n_paths, inputs, n_steps, key), states=False)


def offline_blocks(
    model: Model | str,
    n_thetas: int,
    n_paths: int,
    *,
    inputs: Design | np.ndarray | Array | str | None = None,
    n_steps: int | None = None,
    key: Seed = 0,
) -> Iterator[Paths]:
    """`offline_set` in parts, for a set that does not fit in memory."""
    return _blocks(*_offline(model, n_thetas, n_paths, inputs, n_steps, key), states=False)


def _offline(model: Model | str, n_thetas: int, n_paths: int, inputs, n_steps, key: Seed):
    model = get_model(model)
    if min(n_thetas, n_paths) < 1:
        raise InputError(f"Z(P, M) needs P and M of 1 or more, got P={n_thetas}, M={n_paths}.")
    design, n_steps = resolve_inputs(model, inputs, n_steps)
    key_theta, key_paths = jr.split(as_key(key))
    thetas = model.prior.sample(key_theta, jnp.arange(n_thetas, dtype=jnp.uint32))
    thetas = jnp.repeat(thetas, n_paths, axis=0)
    return model, thetas, design, n_steps, n_thetas * n_paths, key_paths


def resolve_inputs(
    model: Model, inputs: Design | np.ndarray | Array | str | None, n_steps: int | None
) -> tuple[Design, int]:
    """The design and the length of an experiment, checked against the model."""
    if n_steps is not None and n_steps < 1:
        raise InputError(f"a record of {n_steps} samples was asked for, expected 1 or more.")
    name = type(model).__name__
    if inputs is None and not model.inputs:
        inputs = np.zeros((n_steps or model.n_steps, 0))
    if inputs is None:
        inputs = model.design
    if inputs is None:
        raise InputError(
            f"{name} has inputs {', '.join(model.inputs)} and no design of its own; give one, such "
            "as prbs, multisine or cosine, or a signal."
        )
    design = parse(inputs) if isinstance(inputs, str) else inputs
    design = design if isinstance(design, Design) else Signal(design)
    if n_steps is None:
        n_steps = len(design.values) if isinstance(design, Signal) else model.n_steps
    shape = jax.eval_shape(lambda: design.draw(jr.key(0), n_steps, model.dt)).shape
    if shape[1] and not model.inputs:
        raise InputError(f"{name} has no inputs, and an input was given; leave it out.")
    if shape != (n_steps, len(model.inputs)):
        raise InputError(
            f"the input has shape {shape}, expected ({n_steps}, {len(model.inputs)}): "
            f"{n_steps} samples of {', '.join(model.inputs)}."
        )
    return design, n_steps


def _thetas(
    model: Model, theta: Mapping | np.ndarray | Array | list, count: int, key: Key[Array, ""]
) -> Float[Array, "count param"]:
    prior = model.prior
    if isinstance(theta, Mapping):
        for name in theta:
            known = model.parameters.get(name)
            if isinstance(known, Fixed):
                raise ThetaError(
                    f"{name} is fixed in this model, at {known.value}; leave it out, or give it "
                    f"another value with model.fix({name}=...)."
                )
        theta = prior.entries(theta)
        if len(theta) == prior.size:
            return jnp.tile(prior.vector(theta), (count, 1))
        # The same draws as where nothing is named: naming one parameter moves no other.
        drawn = prior.sample(split_keys(key)[0], jnp.arange(count, dtype=jnp.uint32))
        prior.vector(prior.to_dict(drawn[0]) | theta)
        for name, value in theta.items():
            drawn = drawn.at[:, prior.names.index(name)].set(jnp.float32(value))
        return drawn
    if np.ndim(theta) <= 1:
        return jnp.tile(prior.vector(theta), (count, 1))
    if len(theta) != count:
        raise ThetaError(f"{len(theta)} thetas came for {count} paths, expected one for each.")
    return prior.vectors(np.asarray(theta))


def _run(
    model: Model,
    thetas: Float[Array, "count param"] | None,
    design: Design,
    n_steps: int,
    count: int,
    key: Key[Array, ""],
    *,
    states: bool,
    watch: Callable[[int], None] | None = None,
) -> Paths:
    """All paths in memory at once."""
    parts: list[Paths] = []
    for part in _blocks(model, thetas, design, n_steps, count, key, states=states):
        parts.append(part)
        if watch is not None:
            watch(sum(map(len, parts)))
    if len(parts) == 1:
        return parts[0]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("theta", "y", "u", "diverged")
    }
    x = np.concatenate([part.x for part in parts if part.x is not None]) if states else None
    return Paths(model=model, x=x, **joined)


def _blocks(
    model: Model,
    thetas: Float[Array, "count param"] | None,
    design: Design,
    n_steps: int,
    count: int,
    key: Key[Array, ""],
    *,
    states: bool,
) -> Iterator[Paths]:
    """Paths block by block: a block keeps every device busy and is compiled only once."""
    model.structure  # noqa: B018  # A mistake in the model is found here, before compiling it.
    shared = None
    if not design.is_random:
        # One signal for all is an argument, not a constant: another one needs no new compilation.
        shared = design.draw(key, n_steps, model.dt)
    n_devices = jax.device_count()
    block = n_devices * min(CHUNK, -(-count // n_devices))
    for start in range(0, count, block):
        size = min(block, count - start)
        lanes = np.arange(start, start + block, dtype=np.uint32)
        some = None if thetas is None else thetas[np.minimum(lanes, count - 1)]
        drawn = draw_block(
            model, None if shared is not None else design, n_steps, states, lanes, some, shared, key
        )
        theta, trouble = np.asarray(drawn.theta)[:size], np.asarray(drawn.trouble)[:size]
        check_first_step(model, theta, trouble)
        u = drawn.u if shared is None else np.broadcast_to(shared, (size, *shared.shape))
        yield Paths(
            model=model,
            theta=theta,
            x=None if drawn.x is None else _batch_first(drawn.x, size),
            y=_batch_first(drawn.y, size),
            u=np.asarray(u)[:size],
            diverged=trouble != Trouble.none,
        )


def _batch_first(a: Float[Array, "steps channel batch"], size: int) -> np.ndarray:
    # A view: a copy in the other order would be a walk through all of memory.
    return np.moveaxis(np.asarray(a), -1, 0)[:size]
