"""The gated network: dense layers on windows and pairs, each tuned to the record as a whole."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from greybayes.amortized.layers import Channels, Dense, Network, product
from greybayes.amortized.pyramid import Pyramid


@jax.custom_vjp
def gated_relu(
    x: Float[Array, "position batch i"],
    gain: Float[Array, "batch i"],
    weight: Float[Array, "i o"],
    shift: Float[Array, "batch o"],
) -> Float[Array, "position batch o"]:
    """max((gain x) W + shift, 0), whose derivative keeps x and the output only."""
    return jnp.maximum(product(x * gain, weight) + shift, 0.0)


def _forward(x, gain, weight, shift):
    out = gated_relu(x, gain, weight, shift)
    return out, (x, gain, weight, out)


def _backward(kept, gradient):
    x, gain, weight, out = kept
    gradient = jnp.where(out > 0, gradient, 0.0)
    by_weight = (x * gain).reshape(-1, x.shape[-1]).T @ gradient.reshape(-1, gradient.shape[-1])
    by_product = product(gradient, weight.T)
    return by_product * gain, (by_product * x).sum(0), by_weight, gradient.sum(0)


gated_relu.defvjp(_forward, _backward)


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

    def __init__(
        self, n_in: int, n_context: int, n_out: int, n_hidden: int, key: Key[Array, ""]
    ) -> None:
        key_weight, key_context, key_bias, key_shift, key_gain = jr.split(key, 5)
        self.weight = jr.normal(key_weight, (n_in, n_out)) * (2.0 / n_in) ** 0.5
        self.context = Dense.spread(n_context, n_hidden, key_context, key_bias, 0.5)
        self.shift = Dense(n_hidden, n_out, key_shift, gain=0.5)
        # Nearly open at the start.
        self.gain = jr.normal(key_gain, (n_hidden, n_in)) * (0.02 / n_hidden) ** 0.5

    def __call__(
        self, x: Float[Array, "position batch i"], context: Float[Array, "batch c"]
    ) -> Float[Array, "position batch o"]:
        hidden = self.context.relu(context)
        return gated_relu(x, 1.0 + hidden @ self.gain, self.weight, self.shift(hidden))


class Gated(Network):
    """As `Windows`, dense layers on short windows and on pairs of pooled features, but gated.

    `Pyramid` has the order, `Gate` has the difference: each layer is tuned to the record by what
    all layers before have found in all of it. Which of the two is better depends on the model.
    """

    first: Dense
    steps: list[Gate]
    near: Gate
    pairs: list[Gate]
    window: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)
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
        context: int,
    ) -> None:
        key_first, key_bias, key_gates = jr.split(key, 3)
        self.first = Dense.spread(n_channels * window, width, key_first, key_bias, 1.0)
        n_steps = depth - 1
        gates = [
            Gate(width if i < n_steps else 2 * width, (i + 1) * width, width, context, k)
            for i, k in enumerate(jr.split(key_gates, n_steps + 1 + levels))
        ]
        self.steps, self.near, self.pairs = gates[:n_steps], gates[n_steps], gates[n_steps + 1 :]
        self.window, self.pool = window, pool
        self.n_summary = (levels + 3) * width

    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        layers = (self.first.relu, self.steps, self.near, self.pairs)
        return Pyramid(*layers, self.window, self.pool).summarise(jnp, channels)
