"""Networks: from the channels of a record (y, mask, u) to a summary of it.

A network is a small class with a name in `NETWORKS`. A user's own is an Equinox module whose
`__call__` maps the channels of one record, `(steps, channel)`, to a vector; see `Network`.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from greybayes.amortized.recurrent import Gru, Lstm, Rnn, mgu_scan
from greybayes.errors import ModelError, nearest

Channels = Float[Array, "batch steps channel"]


class Network(eqx.Module):
    """Summarises records. `summarise` takes a batch; override it where that is faster."""

    n_summary: eqx.AbstractVar[int]

    @abc.abstractmethod
    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        """The summary of each record."""


class OneByOne(Network):
    """A user's own module for one record, batched."""

    n_summary: int = eqx.field(static=True)
    module: Callable[[Float[Array, "steps channel"]], Float[Array, " summary"]]

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        return jax.vmap(self.module)(channels)


@jax.custom_vjp
def dense_relu(x: Array, weight: Array, bias: Array) -> Array:
    """max(x W + b, 0), whose derivative keeps the output only: less memory traffic."""
    return jnp.maximum(x @ weight + bias, 0.0)


def _dense_forward(x, weight, bias):
    out = dense_relu(x, weight, bias)
    return out, (x, weight, out)


def _dense_backward(kept, gradient):
    x, weight, out = kept
    gradient = jnp.where(out > 0, gradient, 0.0)
    return gradient @ weight.T, x.T @ gradient, gradient.sum(0)


dense_relu.defvjp(_dense_forward, _dense_backward)


class Dense(eqx.Module):
    """x W + b with weights of variance gain / n_in."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, n_in: int, n_out: int, key: Key[Array, ""], gain: float = 2.0) -> None:
        self.weight = jr.normal(key, (n_in, n_out)) * (gain / n_in) ** 0.5
        self.bias = jnp.zeros(n_out)

    def __call__(self, x: Float[Array, "*batch i"]) -> Float[Array, "*batch o"]:
        return x @ self.weight + self.bias

    def relu(self, x: Float[Array, "rows i"]) -> Float[Array, "rows o"]:
        """max(x W + b, 0)."""
        return dense_relu(x, self.weight, self.bias)


class Windows(Network):
    """Our default: dense layers on short windows, pooled, and a gated recurrence over the pools.

    The likelihood of a state-space model is nearly a sum of local terms, so most of the work is
    done on windows of a few samples, at every step and in parallel; the recurrence over pooled
    steps adds what has a longer memory. The summary joins the mean feature, the last state and the
    mean state.
    """

    steps: list[Dense]
    gates: list[Dense]
    recurrent: list[Float[Array, "width width"]]
    window: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)
    n_summary: int = eqx.field(static=True)

    def __init__(
        self,
        n_channels: int,
        key: Key[Array, ""],
        *,
        width: int = 64,
        depth: int = 3,
        window: int = 4,
        pool: int = 4,
    ) -> None:
        key_steps, key_bias, key_gates, key_recurrent = jr.split(key, 4)
        sizes = [n_channels * window] + [width] * depth
        self.steps = [
            Dense(i, o, k)
            for i, o, k in zip(sizes, sizes[1:], jr.split(key_steps, depth), strict=False)
        ]
        # Kinks of the first layer spread over the range of the data, not all at zero.
        spread = jr.uniform(key_bias, (width,), minval=-1.0, maxval=1.0)
        self.steps[0] = eqx.tree_at(lambda layer: layer.bias, self.steps[0], spread)
        self.gates = [Dense(width, width, k, gain=1.0) for k in jr.split(key_gates, 2)]
        # A matrix for each gate: the optimiser's basis is then that of one gate.
        self.recurrent = [
            jnp.linalg.qr(jr.normal(k, (width, width)))[0] for k in jr.split(key_recurrent, 2)
        ]
        self.window, self.pool, self.n_summary = window, pool, 3 * width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        batch, n_steps, _ = channels.shape
        missing = -n_steps % self.pool
        # Time first: a step of the recurrence is then one contiguous slice.
        c = jnp.swapaxes(channels, 0, 1)
        c = jnp.pad(c, ((self.window - 1 + missing, 0), (0, 0), (0, 0)))
        total = n_steps + missing
        f = jnp.concatenate([c[i : i + total] for i in range(self.window)], axis=-1)
        f = f.reshape(total * batch, -1)
        for layer in self.steps:
            f = layer.relu(f)
        f = f.reshape(total // self.pool, self.pool, batch, -1).mean(1)
        z, n = (gate(f) for gate in self.gates)
        h = mgu_scan((z, n), (self.recurrent[0], self.recurrent[1]))
        return jnp.concatenate([f.mean(0), h[-1], h.mean(0)], axis=-1)


class Stack(Network):
    """The paper's networks: recurrent layers on one another, many to one, that read y alone."""

    layers: list[Gru | Lstm | Rnn]
    n_read: int = eqx.field(static=True)
    n_summary: int = eqx.field(static=True)

    def __init__(
        self,
        layer: type[Gru] | type[Lstm] | type[Rnn],
        n_read: int,
        key: Key[Array, ""],
        *,
        width: int = 40,
        depth: int = 2,
    ) -> None:
        sizes = [n_read] + [width] * (depth - 1)
        self.layers = [layer(i, width, k) for i, k in zip(sizes, jr.split(key, depth), strict=True)]
        self.n_read, self.n_summary = n_read, width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        h = jnp.swapaxes(channels[..., : self.n_read], 0, 1)
        for layer in self.layers:
            h = layer(h)
        return h[-1]


def _stack(layer) -> Callable[..., Network]:
    def make(n_channels: int, n_outputs: int, key: Key[Array, ""], **sizes: int) -> Network:
        del n_channels
        return Stack(layer, n_outputs, key, **sizes)

    return make


def _windows(n_channels: int, n_outputs: int, key: Key[Array, ""], **sizes: int) -> Network:
    del n_outputs
    return Windows(n_channels, key, **sizes)


NETWORKS: dict[str, Callable[..., Network]] = {
    "windows": _windows,
    "gru": _stack(Gru),
    "lstm": _stack(Lstm),
    "rnn": _stack(Rnn),
}


def make_network(
    name: str, n_outputs: int, n_inputs: int, key: Key[Array, ""], sizes: dict[str, int]
) -> Network:
    """A network by its name, for records with so many outputs and inputs.

    >>> make_network("windows", 1, 1, jr.key(0), {"width": 16}).n_summary
    48
    """
    if name not in NETWORKS:
        raise ModelError(f"there is no network {name}; {nearest(name, NETWORKS)}")
    for size, value in sizes.items():
        if value < 1:
            raise ModelError(f"{size} is {value}, expected 1 or more.")
    try:
        return NETWORKS[name](2 * n_outputs + n_inputs, n_outputs, key, **sizes)
    except TypeError as error:
        raise ModelError(f"the network {name} takes other sizes: {error}.") from None


def count_weights(module: eqx.Module) -> int:
    """The number of trained numbers in a module."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_array)))
