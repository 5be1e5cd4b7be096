"""Recurrent layers over a batch of sequences, time first: `(steps, batch, width)`.

All input products are taken before the loop, so that a step has only what really depends on the
step before. The gated unit also brings its own derivative: only the product that carries the
gradient back through time is sequential, and the gradients of the weights are one large product
after the loop.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

Gates = tuple[Array, Array, Array]


def sigmoid(x: Array) -> Array:
    """The logistic function, through tanh: XLA vectorises tanh on CPU, not the exponential."""
    return 0.5 + 0.5 * jnp.tanh(0.5 * x)


@jax.custom_vjp
def gru_scan(inputs: Gates, recurrent: Gates, bias: Array) -> Float[Array, "steps batch width"]:
    """The states of a gated recurrent unit from zero, given the input parts of its three gates.

    r = sigmoid(i_r + h W_r), z = sigmoid(i_z + h W_z), n = tanh(i_n + r (h W_n + bias)),
    h' = n + z (h - n).
    """

    def step(h, parts):
        h = _cell(h, parts, recurrent, bias)[0]
        return h, h

    return jax.lax.scan(step, jnp.zeros_like(inputs[0][0]), inputs)[1]


def _cell(h: Array, parts: Gates, recurrent: Gates, bias: Array):
    r = sigmoid(parts[0] + h @ recurrent[0])
    z = sigmoid(parts[1] + h @ recurrent[1])
    c = h @ recurrent[2] + bias
    n = jnp.tanh(parts[2] + r * c)
    return n + z * (h - n), r, z, c, n


def _gru_forward(inputs: Gates, recurrent: Gates, bias: Array):
    def step(h, parts):
        kept = _cell(h, parts, recurrent, bias)
        return kept[0], kept

    _, (h, r, z, c, n) = jax.lax.scan(step, jnp.zeros_like(inputs[0][0]), inputs)
    return h, (h, r, z, c, n, recurrent)


def _gru_backward(kept, dh: Array):
    h, r, z, c, n, recurrent = kept
    before = _before(h)
    # Local derivatives of h' by the arguments of n, z and r, for all steps at once.
    by_n = (1 - z) * (1 - n * n)
    by_z = (before - n) * z * (1 - z)
    by_r = c * r * (1 - r)
    turned = [w.T for w in recurrent]

    def step(carried, parts):
        dh, by_n, by_z, by_r, r, z = parts
        d = carried + dh
        dn, dz = d * by_n, d * by_z
        dr, dc = dn * by_r, dn * r
        carried = d * z + dr @ turned[0] + dz @ turned[1] + dc @ turned[2]
        return carried, (dr, dz, dn, dc)

    parts = (dh, by_n, by_z, by_r, r, z)
    _, (dr, dz, dn, dc) = jax.lax.scan(step, jnp.zeros_like(h[0]), parts, reverse=True)

    by_weight = _product(before, dr), _product(before, dz), _product(before, dc)
    return (dr, dz, dn), by_weight, dc.sum((0, 1))


gru_scan.defvjp(_gru_forward, _gru_backward)


def _before(h: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])


def _product(a: Array, b: Array) -> Array:
    """The gradient of a weight, over all steps and the batch at once."""
    return a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])


class Gru(eqx.Module):
    """A gated recurrent unit (Cho et al. 2014) with PyTorch's weights: 3 H (I + H) + 6 H."""

    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]

    def __init__(self, n_in: int, width: int, key: Key[Array, ""]) -> None:
        self.inputs, self.recurrent, self.input_biases, self.biases = _gates(3, n_in, width, key)

    def __call__(self, x: Float[Array, "steps batch i"]) -> Float[Array, "steps batch width"]:
        b_r, b_z, b_n = self.biases
        r, z, n = (x @ w + b for w, b in zip(self.inputs, self.input_biases, strict=True))
        return gru_scan((r + b_r, z + b_z, n), tuple(self.recurrent), b_n)


class Lstm(eqx.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997): 4 H (I + H) + 8 H weights."""

    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]

    def __init__(self, n_in: int, width: int, key: Key[Array, ""]) -> None:
        self.inputs, self.recurrent, self.input_biases, self.biases = _gates(4, n_in, width, key)

    def __call__(self, x: Float[Array, "steps batch i"]) -> Float[Array, "steps batch width"]:
        joined = jnp.concatenate(self.inputs, axis=1)
        bias = jnp.concatenate(self.input_biases) + jnp.concatenate(self.biases)
        recurrent = jnp.concatenate(self.recurrent, axis=1)

        def step(carried, parts):
            h, c = carried
            i, f, g, o = jnp.split(parts + h @ recurrent, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
            h = sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[1], self.recurrent[0].shape[0]))
        return jax.lax.scan(step, (start, start), x @ joined + bias)[1]


class Rnn(eqx.Module):
    """The plain recurrence of the paper: h' = tanh(x W + h U + b), H (I + H) + 2 H weights."""

    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]

    def __init__(self, n_in: int, width: int, key: Key[Array, ""]) -> None:
        self.inputs, self.recurrent, self.input_biases, self.biases = _gates(1, n_in, width, key)

    def __call__(self, x: Float[Array, "steps batch i"]) -> Float[Array, "steps batch width"]:
        def step(h, part):
            h = jnp.tanh(part + h @ self.recurrent[0])
            return h, h

        start = jnp.zeros((x.shape[1], self.recurrent[0].shape[0]))
        parts = x @ self.inputs[0] + self.input_biases[0] + self.biases[0]
        return jax.lax.scan(step, start, parts)[1]


class _Drawn(NamedTuple):
    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]


def _gates(count: int, n_in: int, width: int, key: Key[Array, ""]) -> _Drawn:
    """PyTorch's start, uniform within 1 / sqrt(width), for each gate."""
    bound = width**-0.5

    def draw(key, *shape):
        return [jr.uniform(k, shape, minval=-bound, maxval=bound) for k in jr.split(key, count)]

    key_in, key_recurrent, key_input_bias, key_bias = jr.split(key, 4)
    return _Drawn(
        draw(key_in, n_in, width),
        draw(key_recurrent, width, width),
        draw(key_input_bias, width),
        draw(key_bias, width),
    )
