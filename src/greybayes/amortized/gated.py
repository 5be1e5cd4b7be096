"""The gated network: dense layers on windows and pairs, each tuned to the record as a whole.

And to what the input was doing at each sample, where it has cues.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from greybayes.amortized.layers import Channels, Dense, Network, dense_relu, product, summed
from greybayes.amortized.pyramid import Pyramid, inputs_of
from greybayes.errors import ModelError


class Tuning(NamedTuple):
    """What a layer is tuned by: its inputs are multiplied with gains, its sums are shifted.

    Either is the same along the axes where it has one entry: positions, or records.
    """

    gain: Float[Array, "#position #batch i"]
    shift: Float[Array, "#position #batch o"]


@jax.custom_vjp
def gated_relu(
    x: Float[Array, "position batch i"],
    weight: Float[Array, "i o"],
    record: Tuning,
    cue: Tuning | None = None,
) -> Float[Array, "position batch o"]:
    """max((gain x) W + shift, 0), whose derivative keeps x and the output only.

    Gains of the record and of the cue are multiplied, their shifts are added.
    """
    gain, shift = _joined(record, cue)
    return jnp.maximum(product(x * gain, weight) + shift, 0.0)


def _joined(record: Tuning, cue: Tuning | None) -> Tuning:
    return record if cue is None else Tuning(record.gain * cue.gain, record.shift + cue.shift)


def _forward(x, weight, record, cue):
    out = gated_relu(x, weight, record, cue)
    return out, (x, weight, record, cue, out)


def _backward(kept, gradient):
    x, weight, record, cue, out = kept
    gradient = jnp.where(out > 0, gradient, 0.0)
    gain, _ = _joined(record, cue)
    by_weight = (x * gain).reshape(-1, x.shape[-1]).T @ gradient.reshape(-1, gradient.shape[-1])
    by_product = product(gradient, weight.T)
    by_gain = by_product * x

    def of(own: Tuning, other: Tuning | None) -> Tuning:
        by_own = by_gain if other is None else by_gain * other.gain
        return Tuning(summed(by_own, own.gain.shape), summed(gradient, own.shift.shape))

    by_cue = None if cue is None else of(cue, record)
    return by_product * gain, by_weight, of(record, cue), by_cue


gated_relu.defvjp(_forward, _backward)


class Cues(eqx.Module):
    """Features of the input around each sample: what it was doing, over the last samples.

    They come from a small network, and each layer has its gains and shifts from them. Where all
    records have one input they are the same for all of them, and cost next to nothing.
    """

    layers: list[Dense]
    reach: int = eqx.field(static=True)

    def __init__(self, n_inputs: int, n_cues: int, reach: int, key: Key[Array, ""]) -> None:
        key_first, key_bias, key_second = jr.split(key, 3)
        first = Dense.spread(n_inputs * reach, n_cues, key_first, key_bias, 1.0)
        self.layers = [first, Dense(n_cues, n_cues, key_second)]
        self.reach = reach

    def __call__(
        self, windows: Float[Array, "position records i"]
    ) -> Float[Array, "position records cue"]:
        for layer in self.layers:
            windows = layer.relu(windows)
        return windows


class ByCue(eqx.Module):
    """Gains and shifts of a layer from the cues: at the start there are none."""

    gain: Float[Array, "cue i"]
    shift: Float[Array, "cue o"]

    def __init__(self, n_cues: int, n_in: int, n_out: int) -> None:
        self.gain, self.shift = jnp.zeros((n_cues, n_in)), jnp.zeros((n_cues, n_out))

    def __call__(self, cues: Float[Array, "position records cue"]) -> Tuning:
        return Tuning(1.0 + cues @ self.gain, cues @ self.shift)


class Gate(eqx.Module):
    """max((gain x) W + shift, 0) at every position, gain and shift from a small network.

    What a sample says of theta depends on the rest of the record, its noise above all. The small
    network reads the mean features of all layers before and runs once for each record, so it costs
    next to nothing; it turns features up and down as they matter for such a record.
    """

    weight: Float[Array, "i o"]
    context: Dense
    gain: Float[Array, "h i"]
    shift: Dense
    cue: ByCue | None

    def __init__(
        self,
        n_in: int,
        n_context: int,
        n_out: int,
        n_hidden: int,
        key: Key[Array, ""],
        n_cues: int = 0,
    ) -> None:
        key_weight, key_context, key_bias, key_shift, key_gain = jr.split(key, 5)
        self.weight = jr.normal(key_weight, (n_in, n_out)) * (2.0 / n_in) ** 0.5
        self.context = Dense.spread(n_context, n_hidden, key_context, key_bias, 0.5)
        self.shift = Dense(n_hidden, n_out, key_shift, gain=0.5)
        # Nearly open at the start.
        self.gain = jr.normal(key_gain, (n_hidden, n_in)) * (0.02 / n_hidden) ** 0.5
        self.cue = ByCue(n_cues, n_in, n_out) if n_cues else None

    def __call__(
        self,
        x: Float[Array, "position batch i"],
        context: Float[Array, "batch c"],
        cues: Float[Array, "position records cue"] | None = None,
    ) -> Float[Array, "position batch o"]:
        hidden = self.context.relu(context)
        record = Tuning((1.0 + hidden @ self.gain)[None], self.shift(hidden)[None])
        tuned = None if self.cue is None or cues is None else self.cue(cues)
        return gated_relu(x, self.weight, record, tuned)


class Gated(Network):
    """As `Windows`, dense layers on short windows and on pairs of pooled features, but gated.

    `Pyramid` has the order, `Gate` has the difference: each layer is tuned to the record by what
    all layers before have found in all of it. Which of the two is better depends on the model.
    """

    first: Dense
    steps: list[Gate]
    near: Gate
    pairs: list[Gate]
    cues: Cues | None
    first_cue: Float[Array, "cue o"] | None
    window: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)
    n_inputs: int = eqx.field(static=True)
    one_input: bool = eqx.field(static=True)
    n_summary: int = eqx.field(static=True)

    def __init__(
        self,
        n_channels: int,
        key: Key[Array, ""],
        *,
        n_inputs: int = 0,
        one_input: bool = False,
        width: int,
        depth: int,
        window: int,
        pool: int,
        levels: int,
        context: int,
        cues: int = 0,
        reach: int = 0,
    ) -> None:
        """`one_input`: all records have the same, so that cues are computed once for all."""
        if cues and not n_inputs:
            raise ModelError("cues are read from an input, and this model has none; use gated.")
        key_first, key_bias, key_gates = jr.split(key, 3)
        self.first = Dense.spread(n_channels * window, width, key_first, key_bias, 1.0)
        self.first_cue = jnp.zeros((cues, width)) if cues else None
        n_steps = depth - 1
        gates = [
            Gate(width if i < n_steps else 2 * width, (i + 1) * width, width, context, k, cues)
            for i, k in enumerate(jr.split(key_gates, n_steps + 1 + levels))
        ]
        self.steps, self.near, self.pairs = gates[:n_steps], gates[n_steps], gates[n_steps + 1 :]
        self.cues = Cues(n_inputs, cues, reach, jr.fold_in(key, 3)) if cues else None
        self.window, self.pool, self.n_inputs, self.one_input = window, pool, n_inputs, one_input
        self.n_summary = (levels + 3) * width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        layers = (self._read_windows, self.steps, self.near, self.pairs)
        pyramid = Pyramid(*layers, self.window, self.pool)
        if self.cues is None:
            return pyramid.summarise(jnp, channels)
        u = inputs_of(channels, self.n_inputs, one=self.one_input)
        windows = pyramid.windows(jnp, u, self.cues.reach)
        return pyramid.summarise(jnp, channels, self.cues(windows))

    def _read_windows(
        self, x: Float[Array, "position batch i"], cues: Float[Array, "position records cue"] | None
    ) -> Float[Array, "position batch o"]:
        shift = self.first.bias
        if self.first_cue is not None and cues is not None:
            shift = shift + cues @ self.first_cue
        return dense_relu(x, self.first.weight, shift)
