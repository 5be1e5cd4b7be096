"""What networks are made of: the base class, and dense layers with a derivative of their own."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

Channels = Float[Array, "batch steps channel"]


class Network(eqx.Module):
    """Summarises records. `summarise` takes a batch; override it where that is faster."""

    n_summary: eqx.AbstractVar[int]

    @abc.abstractmethod
    def summarise(self, channels: Channels) -> Float[Array, "batch summary"]:
        """The summary of each record."""


@jax.custom_vjp
def dense_relu(x: Array, weight: Array, shift: Array) -> Array:
    """max(x W + shift, 0), whose derivative keeps the output only: less memory traffic.

    `shift` is added as NumPy broadcasts it: one for all rows, for each record or position.
    """
    return jnp.maximum(product(x, weight) + shift, 0.0)


def _dense_forward(x, weight, shift):
    out = dense_relu(x, weight, shift)
    return out, (x, weight, shift, out)


def _dense_backward(kept, gradient):
    x, weight, shift, out = kept
    gradient = jnp.where(out > 0, gradient, 0.0)
    by_weight = x.reshape(-1, x.shape[-1]).T @ gradient.reshape(-1, gradient.shape[-1])
    return product(gradient, weight.T), by_weight, summed(gradient, shift.shape)


def summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The derivative by what was broadcast from this shape: the sum over all its copies."""
    new = gradient.ndim - len(shape)
    copied = tuple(i for i, n in enumerate(gradient.shape) if i < new or shape[i - new] < n)
    return gradient.sum(copied).reshape(shape) if copied else gradient


dense_relu.defvjp(_dense_forward, _dense_backward)


def product(x: Array, weight: Array) -> Array:
    """x W as one large product, which is faster than one for each position."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[-1])


class Dense(eqx.Module):
    """x W + b with weights of variance gain / n_in."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, n_in: int, n_out: int, key: Key[Array, ""], gain: float = 2.0) -> None:
        self.weight = jr.normal(key, (n_in, n_out)) * (gain / n_in) ** 0.5
        self.bias = jnp.zeros(n_out)

    @classmethod
    def spread(
        cls, n_in: int, n_out: int, key: Key[Array, ""], key_bias: Key[Array, ""], reach: float
    ) -> "Dense":
        """With kinks over the range of the data, and not all at zero."""
        bias = jr.uniform(key_bias, (n_out,), minval=-reach, maxval=reach)
        return eqx.tree_at(lambda layer: layer.bias, cls(n_in, n_out, key), bias)

    def __call__(self, x: Float[Array, "*batch i"]) -> Float[Array, "*batch o"]:
        return x @ self.weight + self.bias

    def relu(self, x: Float[Array, "*rows i"]) -> Float[Array, "*rows o"]:
        """max(x W + b, 0)."""
        return dense_relu(x, self.weight, self.bias)
