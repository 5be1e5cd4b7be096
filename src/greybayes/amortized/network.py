"""Networks: from the channels of a record (y, mask, u) to a summary of it.

A network is a small class with a name in `NETWORKS`. A user's own is an Equinox module whose
`__call__` maps the channels of one record, `(steps, channel)`, to a vector; see `Network`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from greybayes.amortized.gated import Gated
from greybayes.amortized.layers import Channels, Dense, Network, dense_relu
from greybayes.amortized.recurrent import Cell, GruCell, LstmCell, Recurrent, RnnCell
from greybayes.errors import ModelError, nearest


class OneByOne(Network):
    """A user's own module for one record, batched."""

    n_summary: int = eqx.field(static=True)
    module: Callable[[Float[Array, "steps channel"]], Float[Array, " summary"]]

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        return jax.vmap(self.module)(channels)


class InContext(eqx.Module):
    """max(x W + m V + b, 0): a dense layer at every position that also reads the record's mean m.

    What a sample says of theta depends on the rest of the record, its noise above all; the mean
    feature tells, at hardly any cost (Zaheer et al. 2017, Deep Sets).
    """

    weight: Float[Array, "i o"]
    context: Float[Array, "c o"]
    bias: Float[Array, " o"]

    def __init__(self, n_in: int, n_context: int, n_out: int, key: Key[Array, ""]) -> None:
        key_weight, key_context = jr.split(key)
        self.weight = jr.normal(key_weight, (n_in, n_out)) * (2.0 / n_in) ** 0.5
        self.context = jr.normal(key_context, (n_context, n_out)) * (0.5 / n_context) ** 0.5
        self.bias = jnp.zeros(n_out)

    def __call__(
        self, x: Float[Array, "position batch i"], mean: Float[Array, "batch c"]
    ) -> Float[Array, "position batch o"]:
        return dense_relu(x, self.weight, mean @ self.context + self.bias)


class Windows(Network):
    """Our default: dense layers on short windows, then on pairs of pooled features, and pools.

    The likelihood of a state-space model is nearly a sum of local terms, so most of the work is
    done on windows of a few samples, at every step and in parallel. What has a longer memory is
    read from a pyramid: features are averaged over `pool` steps, a layer reads each with the one
    before, and so on up the `levels`. The summary joins the mean feature of every level and the
    last one of the highest.
    """

    first: Dense
    steps: list[InContext]
    pairs: list[InContext]
    window: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)
    early: int = eqx.field(static=True)
    n_summary: int = eqx.field(static=True)

    def __init__(
        self,
        n_channels: int,
        key: Key[Array, ""],
        *,
        width: int,
        depth: int,
        window: int,
        pool: int,
        levels: int,
        early: int,
    ) -> None:
        if pool % early:
            raise ModelError(f"pool is {pool}, expected a multiple of early, {early}.")
        key_first, key_bias, key_steps, key_pairs = jr.split(key, 4)
        self.first = Dense.spread(n_channels * window, width, key_first, key_bias, 1.0)
        self.steps = [InContext(width, width, width, k) for k in jr.split(key_steps, depth)[1:]]
        self.pairs = [InContext(2 * width, width, width, k) for k in jr.split(key_pairs, levels)]
        self.window, self.pool, self.early = window, pool, early
        self.n_summary = (levels + 2) * width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        batch, n_steps, _ = channels.shape
        missing = -n_steps % self.pool
        total = n_steps + missing
        # Time first: a position is then one contiguous slice, and pools are sums of slices.
        c = jnp.swapaxes(channels, 0, 1)
        c = jnp.pad(c, ((self.window - 1 + missing, 0), (0, 0), (0, 0)))
        windows = jnp.concatenate([c[i : i + total] for i in range(self.window)], axis=-1)
        f = self.first.relu(windows.reshape(total * batch, -1)).reshape(total, batch, -1)
        f = _pooled(f, self.early)
        for layer in self.steps:
            f = layer(f, f.mean(0))
        f = _pooled(f, self.pool // self.early)
        means = [f.mean(0)]
        for level, layer in enumerate(self.pairs):
            f = f if level == 0 else _pooled(f, self.pool)
            before = jnp.pad(f[:-1], ((1, 0), (0, 0), (0, 0)))
            f = layer(jnp.concatenate([f, before], axis=-1), f.mean(0))
            means.append(f.mean(0))
        return jnp.concatenate([*means, f[-1]], axis=-1)


def _pooled(f: Float[Array, "n batch width"], by: int) -> Float[Array, "m batch width"]:
    """Means of `by` neighbours; zeros fill up the front."""
    if by == 1:
        return f
    f = jnp.pad(f, ((-f.shape[0] % by, 0), (0, 0), (0, 0)))
    return f.reshape(-1, by, *f.shape[1:]).mean(1)


class Stack(Network):
    """The paper's networks: recurrent layers on one another, many to one, that read y alone."""

    layers: list[Recurrent]
    n_read: int = eqx.field(static=True)
    n_summary: int = eqx.field(static=True)

    def __init__(
        self,
        cell: type[Cell],
        n_read: int,
        key: Key[Array, ""],
        *,
        width: int,
        depth: int,
    ) -> None:
        sizes = [n_read] + [width] * (depth - 1)
        keys = jr.split(key, depth)
        self.layers = [Recurrent(cell, i, width, k) for i, k in zip(sizes, keys, strict=True)]
        self.n_read, self.n_summary = n_read, width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        h = jnp.transpose(channels[..., : self.n_read], (1, 2, 0))
        for layer in self.layers:
            h = layer(h)
        return h[-1].T


class Reads(NamedTuple):
    """What a network reads: (y, mask, u)."""

    n_outputs: int
    n_inputs: int
    one_input: bool = False
    """Whether the input is one signal for all records."""

    @property
    def n_channels(self) -> int:
        """Each output has its mask."""
        return 2 * self.n_outputs + self.n_inputs


class Kind(NamedTuple):
    """How a network is made, and its sizes where nothing else is said."""

    make: Callable[..., Network]
    sizes: dict[str, int]


def _stack(cell: type[Cell]) -> Kind:
    def make(reads: Reads, key: Key[Array, ""], **sizes: int) -> Network:
        return Stack(cell, reads.n_outputs, key, **sizes)

    return Kind(make, {"width": 40, "depth": 2})


def _gated(reads: Reads, key: Key[Array, ""], **sizes: int) -> Network:
    return Gated(reads.n_channels, key, n_inputs=reads.n_inputs, one_input=reads.one_input, **sizes)


def _windows(reads: Reads, key: Key[Array, ""], **sizes: int) -> Network:
    return Windows(reads.n_channels, key, **sizes)


_GATED = {"width": 48, "depth": 3, "window": 4, "pool": 4, "levels": 3, "context": 64}


NETWORKS: dict[str, Kind] = {
    "windows": Kind(
        _windows, {"width": 64, "depth": 3, "window": 4, "pool": 4, "levels": 3, "early": 1}
    ),
    "gated": Kind(_gated, _GATED),
    "cued": Kind(_gated, {**_GATED, "cues": 32, "reach": 16}),
    "gru": _stack(GruCell),
    "lstm": _stack(LstmCell),
    "rnn": _stack(RnnCell),
}


def all_sizes(name: str, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a network: those given, and its own for the rest.

    >>> all_sizes("gru", {"width": 8})
    {'width': 8, 'depth': 2}
    """
    if name not in NETWORKS:
        raise ModelError(f"there is no network {name}; {nearest(name, NETWORKS)}")
    own = NETWORKS[name].sizes
    for size in given:
        if size not in own:
            raise ModelError(f"the network {name} has no size {size}, only {', '.join(own)}.")
    check_sizes(given)
    return own | dict(given)


def check_sizes(given: Mapping[str, int]) -> None:
    """Refuse sizes that are no whole numbers from 1 on."""
    for size, value in given.items():
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{size} is {value}, expected a whole number, 1 or more.")


def make_network(name: str, reads: Reads, key: Key[Array, ""], sizes: Mapping[str, int]) -> Network:
    """A network by its name, for records with so many outputs and inputs.

    >>> make_network("windows", Reads(1, 1), jr.key(0), {"width": 16, "levels": 1}).n_summary
    48
    """
    sizes = all_sizes(name, sizes)
    return NETWORKS[name].make(reads, key, **sizes)


def count_weights(module: eqx.Module) -> int:
    """The number of trained numbers in a module."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_array)))
