"""Drawing paths inside compiled code: pure functions of a key and the numbers of the paths.

`simulation` and training stand on these. The batch is the last axis of states and outputs
throughout: channels are then contiguous, and vectorise.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from greybayes._lanes import lane_keys
from greybayes._types import Lanes
from greybayes.errors import ModelError
from greybayes.inputs import Design
from greybayes.model import Model, Time
from greybayes.structure import Trouble, distribution


def split_keys(key: Key[Array, ""]) -> Key[Array, "3"]:
    """Keys for theta, for the input and for the noise."""
    return jr.split(key, 3)


class Drawn(NamedTuple):
    """Paths as they are computed: the batch is the last axis of states and outputs."""

    theta: Float[Array, "batch param"]
    x: Float[Array, "steps state batch"] | None
    y: Float[Array, "steps output batch"]
    u: Float[Array, "batch steps input"] | None
    """None where one input is shared by all."""
    trouble: Int[Array, " batch"]
    """A `Trouble` for each path."""


@functools.partial(jax.jit, static_argnames=("model", "design", "n_steps", "states"))
def draw_block(model, design, n_steps, states, lanes, thetas, shared, key) -> Drawn:
    """`draw_joint`, the lanes split over all devices."""

    def on_device(lanes, thetas, shared, key):
        drawn = draw_joint(model, design, n_steps, key, lanes, thetas, shared)
        return drawn if states else drawn._replace(x=None)

    split, last, whole = PartitionSpec("paths"), PartitionSpec(None, None, "paths"), PartitionSpec()
    return jax.shard_map(
        on_device,
        mesh=Mesh(jax.devices(), ("paths",)),
        in_specs=(split, split, whole, whole),
        out_specs=tuple.__new__(Drawn, (split, last if states else None, last, split, split)),
        check_vma=False,
    )(lanes, thetas, shared, key)


def draw_joint(
    model: Model,
    design: Design | None,
    n_steps: int,
    key: Key[Array, ""],
    lanes: Lanes,
    thetas: Float[Array, "batch param"] | None,
    shared: Float[Array, "steps input"] | None,
) -> Drawn:
    """Paths for these lanes: theta from the prior where it is None, u from the design likewise.

    Pure, for use inside compiled code: a training step draws its batch with it.
    """
    key_theta, key_input, key_noise = split_keys(key)
    if thetas is None:
        thetas = model.prior.sample(key_theta, lanes)
    u = shared
    if u is None:
        assert design is not None
        draw = functools.partial(design.draw, n_steps=n_steps, dt=model.dt)
        u = jax.vmap(draw)(lane_keys(key_input, lanes))
    return draw_paths(model, thetas, u, key_noise, lanes)


def draw_paths(
    model: Model,
    thetas: Float[Array, "batch param"],
    u: Float[Array, "steps input"] | Float[Array, "batch steps input"],
    key: Key[Array, ""],
    lanes: Lanes,
) -> Drawn:
    """States and outputs of one path for each theta and lane."""
    u_late = delayed(model, u)
    n_steps = u_late.shape[-2]
    own_input = u_late.ndim == 3
    u_steps = jnp.moveaxis(u_late, 0, -1) if own_input else u_late
    # The batch is the last axis throughout: channels are then contiguous, and vectorise.
    p = jax.vmap(model.p, in_axes=-1, out_axes=-1)(thetas.T)
    key_initial, key_steps = jr.split(key)
    step_keys = jr.split(key_steps, (n_steps, 2))

    def draw(method):
        def one(key, *arguments):
            return jnp.asarray(distribution(model, method, *arguments).sample(key), jnp.float32)

        return one

    axis_u = -1 if own_input else None
    initial = jax.vmap(draw("initial"), in_axes=(0, axis_u, -1), out_axes=-1)
    axes = (0, -1, axis_u, -1, None)
    observation = jax.vmap(draw("observation"), in_axes=axes, out_axes=-1)
    transition = jax.vmap(draw("transition"), in_axes=axes, out_axes=-1)

    def batch_keys(key):
        if model.structure.lanes:
            return lane_keys(key, lanes)
        return jax.vmap(functools.partial(jr.fold_in, key))(lanes)

    def step(carried, arguments):
        x, trouble = carried
        keys, u, t = arguments
        # Looked at when it is carried in: a second use of the next state, or of y, in this step
        # would make XLA draw its noise a second time.
        trouble = jnp.where(trouble == Trouble.none, _trouble(x, t.k), trouble)
        y = observation(batch_keys(keys[0]), x, u, p, t)
        return (transition(batch_keys(keys[1]), x, u, p, t), trouble), (x, y)

    x_1 = initial(batch_keys(key_initial), u_steps[0], p)
    start = x_1, jnp.full(lanes.shape, Trouble.none)
    (_, trouble), (x, y) = jax.lax.scan(step, start, (step_keys, u_steps, clock(model, n_steps)))
    y_at_once = jnp.isnan(y[0]).any(0) & (trouble != Trouble.initial)
    y_later = ~jnp.isfinite(y).all((0, 1)) & (trouble == Trouble.none)
    trouble = jnp.where(y_later, Trouble.later, trouble)
    trouble = jnp.where(y_at_once, Trouble.observation, trouble)
    return Drawn(thetas, x, y, u if own_input else None, trouble)


def _trouble(x: Float[Array, "state batch"], k: Int[Array, ""]) -> Int[Array, " batch"]:
    at_once = jnp.where(k == 1, Trouble.initial, Trouble.transition)
    gone = jnp.where(~jnp.isfinite(x).all(0), Trouble.later, Trouble.none)
    return jnp.where(jnp.isnan(x).any(0) & (k <= 2), at_once, gone)


def delayed(
    model: Model, u: Float[Array, "*batch steps input"]
) -> Float[Array, "*batch steps input"]:
    """The input as it reaches the model: `input_delay` samples late."""
    if not model.input_delay:
        return u
    n_steps = u.shape[-2]
    late = min(model.input_delay, n_steps)
    before = jnp.full((*u.shape[:-2], late, u.shape[-1]), model.input_before, u.dtype)
    return jnp.concatenate([before, u[..., : n_steps - late, :]], axis=-2)


def clock(model: Model, n_steps: int) -> Time:
    """The times of the samples: k from 1, t_1 = 0."""
    k = jnp.arange(1, n_steps + 1)
    return Time(k, (k - 1) * jnp.float32(model.dt), jnp.full(n_steps, model.dt, jnp.float32))


def noise_free_output(
    model: Model,
    theta: Float[np.ndarray, " param"] | Float[Array, " param"],
    u: Float[np.ndarray, "steps input"] | Float[Array, "steps input"],
) -> Float[np.ndarray, "steps output"]:
    """The output of a model without process noise, at the mean of its observation."""
    if not model.structure.output_error:
        raise ModelError(
            f"{type(model).__name__} has process noise: its output is not known from theta and u."
        )

    @jax.jit
    def run(theta, u):
        p = model.p(theta)
        late = delayed(model, u)

        def step(x, arguments):
            u, t = arguments
            y = distribution(model, "observation", x, u, p, t).mean
            return distribution(model, "transition", x, u, p, t).mean, y

        x_1 = distribution(model, "initial", late[0], p).mean
        return jax.lax.scan(step, x_1, (late, clock(model, len(u))))[1]

    return np.asarray(run(jnp.asarray(theta, jnp.float32), jnp.asarray(u, jnp.float32)), float)
