"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024), as optax has it.

For a matrix of weights with gradient G, keep running averages L of G G^T and R of G^T G. Adam runs
on the gradient turned into their eigenvectors, where its diagonal second moment is nearly the
whole one. Vectors and larger tensors get plain Adam.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

# A side of a matrix longer than this is left as it is: its eigenvectors cost more than they gain.
_LONGEST = 512


class Side(NamedTuple):
    """The preconditioner of one side of a matrix: a running average and its eigenvectors."""

    average: Float[Array, "side side"]
    q: Float[Array, "side side"]


class Basis(NamedTuple):
    """The preconditioner of one matrix; None for a side that is left as it is."""

    left: Side | None
    right: Side | None


class SoapState(NamedTuple):
    """Step, first and second moment of every leaf, and the basis of every matrix."""

    count: Int[Array, ""]
    first: PyTree
    second: PyTree
    bases: list[Basis | None]


def scale_by_soap(
    b1: float = 0.95, b2: float = 0.95, eps: float = 1e-8, every: int = 10
) -> optax.GradientTransformation:
    """Turn gradients into steps of unit scale; `every` is how often the basis is refreshed.

    >>> import optax
    >>> optimiser = optax.chain(scale_by_soap(), optax.scale(-0.01))
    >>> state = optimiser.init({"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)})
    """

    def init(params) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return SoapState(
            jnp.zeros((), jnp.int32), zeros, zeros, [_basis(w) for w in jax.tree.leaves(params)]
        )

    def update(updates, state, params=None) -> Any:
        del params
        count = state.count + 1
        leaves, tree = jax.tree.flatten(updates)
        firsts, seconds = jax.tree.leaves(state.first), jax.tree.leaves(state.second)
        steps, new_firsts, new_seconds, new_bases = [], [], [], []
        # The very first gradient only sets the basis: it is in no moment, and makes no step.
        seen = jnp.where(count > 1, 1.0, 0.0)
        n = jnp.maximum(count - 1, 1)
        for g, first, second, basis in zip(leaves, firsts, seconds, state.bases, strict=True):
            first = b1 * first + (1 - b1) * seen * g
            second = b2 * second + (1 - b2) * seen * _turn(basis, g) ** 2
            unit = _turn(basis, first) / (1 - b1**n)
            unit = unit / (jnp.sqrt(second / (1 - b2**n)) + eps)
            steps.append(_turn_back(basis, unit))
            new_firsts.append(first)
            new_seconds.append(second)
            new_bases.append(None if basis is None else _follow(basis, g, b2))
        new_bases = jax.lax.cond(
            (count == 1) | (count % every == 0),
            lambda bases: [None if b is None else _refresh(b, count) for b in bases],
            lambda bases: bases,
            new_bases,
        )
        unflatten = tree.unflatten
        return unflatten(steps), SoapState(
            count, unflatten(new_firsts), unflatten(new_seconds), new_bases
        )

    return optax.GradientTransformation(init, update)


def _basis(weight: Array) -> Basis | None:
    if weight.ndim != 2:
        return None

    def side(length: int) -> Side | None:
        if not 1 < length <= _LONGEST:
            return None
        return Side(jnp.zeros((length, length)), jnp.eye(length))

    return Basis(side(weight.shape[0]), side(weight.shape[1]))


def _turn(basis: Basis | None, a: Array) -> Array:
    if basis is not None and basis.left is not None:
        a = basis.left.q.T @ a
    if basis is not None and basis.right is not None:
        a = a @ basis.right.q
    return a


def _turn_back(basis: Basis | None, a: Array) -> Array:
    if basis is not None and basis.left is not None:
        a = basis.left.q @ a
    if basis is not None and basis.right is not None:
        a = a @ basis.right.q.T
    return a


def _follow(basis: Basis, g: Array, b2: float) -> Basis:
    def follow(side: Side | None, square: Array) -> Side | None:
        if side is None:
            return None
        return side._replace(average=b2 * side.average + (1 - b2) * square)

    return Basis(follow(basis.left, g @ g.T), follow(basis.right, g.T @ g))


def _refresh(basis: Basis, count: Array) -> Basis:
    """The eigenvectors: exact at the first step, then one step of the power method (QR)."""

    def exact(side: Side) -> Side:
        return side._replace(q=jnp.linalg.eigh(side.average)[1][:, ::-1])

    def power(side: Side) -> Side:
        # A trace of the old basis keeps directions apart in which no gradient ever points.
        return side._replace(q=jnp.linalg.qr(side.average @ side.q + 1e-12 * side.q)[0])

    return Basis(
        *(None if side is None else jax.lax.cond(count == 1, exact, power, side) for side in basis)
    )
