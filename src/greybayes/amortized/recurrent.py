"""Recurrent layers over a batch of sequences: `(steps, width, batch)`, time first and batch last.

A cell is elementwise arithmetic on the parts of its gates, with its own derivative written beside
it; `unrolled` does the rest for all of them. Each gate has arrays of its own going forward: XLA on
CPU does not vectorise what reads slices of a larger one. Going back, the gates are joined, so that
a step has four products.
"""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

Each = tuple[Array, ...]
"""One array for each gate, or for each part of a state: `(width, batch)`."""


def sigmoid(x: Array) -> Array:
    """The logistic function, through tanh: XLA vectorises tanh on CPU, not the exponential."""
    return 0.5 + 0.5 * jnp.tanh(0.5 * x)


class Cell(abc.ABC):
    """A step, and the derivative of a step.

    `i` are the parts of the gates that come from the input, `s` those that come from the state
    before. The first part of a state is what the layer gives on.
    """

    n_gates: ClassVar[int]
    n_states: ClassVar[int]

    @staticmethod
    @abc.abstractmethod
    def step(state: Each, i: Each, s: Each) -> tuple[Each, Each]:
        """The next state, and what the derivative keeps."""

    @staticmethod
    @abc.abstractmethod
    def back(d: Each, before: Each, kept: Each) -> tuple[Each, Each, Each]:
        """From the derivative by the next state those by the state before, by i and by s.

        What goes through the products that made i and s is not in the first.
        """


class GruCell(Cell):
    """Gated recurrent unit (Cho et al. 2014).

    r = sigmoid(i_r + s_r), z = sigmoid(i_z + s_z), n = tanh(i_n + r s_n), h' = n + z (h - n).
    """

    n_gates, n_states = 3, 1

    @staticmethod
    def step(state: Each, i: Each, s: Each) -> tuple[Each, Each]:
        (h,) = state
        r, z = sigmoid(i[0] + s[0]), sigmoid(i[1] + s[1])
        n = jnp.tanh(i[2] + r * s[2])
        return (n + z * (h - n),), (r, z, n, s[2])

    @staticmethod
    def back(d: Each, before: Each, kept: Each) -> tuple[Each, Each, Each]:
        (dh,), (h,), (r, z, n, c) = d, before, kept
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * c * r * (1 - r), dh * (h - n) * z * (1 - z)
        return (dh * z,), (dr, dz, dn), (dr, dz, dn * r)


class LstmCell(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997).

    c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'); a gate is i + s.
    """

    n_gates, n_states = 4, 2

    @staticmethod
    def step(state: Each, i: Each, s: Each) -> tuple[Each, Each]:
        enters, stays, new, seen = (a + b for a, b in zip(i, s, strict=True))
        enters, stays, new, seen = sigmoid(enters), sigmoid(stays), jnp.tanh(new), sigmoid(seen)
        c = stays * state[1] + enters * new
        shown = jnp.tanh(c)
        return (seen * shown, c), (enters, stays, new, seen, shown)

    @staticmethod
    def back(d: Each, before: Each, kept: Each) -> tuple[Each, Each, Each]:
        enters, stays, new, seen, shown = kept
        dc = d[1] + d[0] * seen * (1 - shown * shown)
        gates = (
            dc * new * enters * (1 - enters),
            dc * before[1] * stays * (1 - stays),
            dc * enters * (1 - new * new),
            d[0] * shown * seen * (1 - seen),
        )
        return (jnp.zeros_like(dc), dc * stays), gates, gates


class RnnCell(Cell):
    """The plain recurrence of the paper: h' = tanh(i + s)."""

    n_gates, n_states = 1, 1

    @staticmethod
    def step(state: Each, i: Each, s: Each) -> tuple[Each, Each]:
        h = jnp.tanh(i[0] + s[0])
        return (h,), (h,)

    @staticmethod
    def back(d: Each, before: Each, kept: Each) -> tuple[Each, Each, Each]:
        by_gate = (d[0] * (1 - kept[0] * kept[0]),)
        return (jnp.zeros_like(d[0]),), by_gate, by_gate


class Gates(NamedTuple):
    """The weights of a layer, gate by gate, as PyTorch has them: i = x W + b, s = h U + c."""

    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]

    def of_input(self, x: Float[Array, "i batch"]) -> Each:
        """The parts of the gates that come from the input."""
        return _sums(self.inputs, self.input_biases, x)

    def of_state(self, h: Float[Array, "width batch"]) -> Each:
        """The parts of the gates that come from the state before."""
        return _sums(self.recurrent, self.biases, h)


def _sums(weights: list[Array], biases: list[Array], x: Array) -> Each:
    # One input alone is spread by hand: a product would be a call for nothing.
    products = (w.T * x if len(w) == 1 else w.T @ x for w in weights)
    return tuple(p + b[:, None] for p, b in zip(products, biases, strict=True))


def unrolled(
    cell: type[Cell], x: Float[Array, "steps i batch"], gates: Gates
) -> Float[Array, "steps width batch"]:
    """The states of a cell over all steps, from zero."""

    @jax.custom_vjp
    def run(x: Array, gates: Gates) -> Array:
        return forward(x, gates)[0]

    def forward(x: Array, gates: Gates):
        def step(state, x):
            after, kept = cell.step(state, gates.of_input(x), gates.of_state(state[0]))
            return after, (after, kept)

        start = (jnp.zeros((len(gates.recurrent[0]), x.shape[2]), x.dtype),) * cell.n_states
        _, (states, kept) = jax.lax.scan(step, start, x)
        return states[0], (x, gates, states, kept)

    def backward(told, dh: Array):
        x, gates, states, kept = told
        from_input = jnp.concatenate(gates.inputs, axis=1)
        from_state = jnp.concatenate(gates.recurrent, axis=1)
        # Sums over the batch, for the biases: as products they are the fastest.
        ones = jnp.ones(x.shape[2], x.dtype)

        def step(carried, now):
            d, by_inputs, by_recurrent, by_i, by_s = carried
            dh, x, before, kept = now
            d, di, ds = cell.back((d[0] + dh, *d[1:]), before, kept)
            di, ds = jnp.concatenate(di), jnp.concatenate(ds)
            carried = (
                (d[0] + from_state @ ds, *d[1:]),
                by_inputs + x @ di.T,
                by_recurrent + before[0] @ ds.T,
                by_i + di @ ones,
                by_s + ds @ ones,
            )
            return carried, from_input @ di

        none = jnp.zeros(cell.n_gates * states[0].shape[1], x.dtype)
        zeros = (
            tuple(jnp.zeros_like(state[0]) for state in states),
            jnp.zeros_like(from_input),
            jnp.zeros_like(from_state),
            none,
            none,
        )
        before = tuple(jnp.concatenate([jnp.zeros_like(s[:1]), s[:-1]]) for s in states)
        (_, *sums), dx = jax.lax.scan(step, zeros, (dh, x, before, kept), reverse=True)
        by_inputs, by_recurrent, by_i, by_s = sums
        return dx, Gates(
            jnp.split(by_inputs, cell.n_gates, axis=1),
            jnp.split(by_recurrent, cell.n_gates, axis=1),
            jnp.split(by_i, cell.n_gates),
            jnp.split(by_s, cell.n_gates),
        )

    run.defvjp(forward, backward)
    return run(x, gates)


class Recurrent(eqx.Module):
    """A layer of cells with PyTorch's weights: for each gate H (I + H) + 2 H."""

    cell: type[Cell] = eqx.field(static=True)
    inputs: list[Array]
    recurrent: list[Array]
    input_biases: list[Array]
    biases: list[Array]

    def __init__(self, cell: type[Cell], n_in: int, width: int, key: Key[Array, ""]) -> None:
        self.cell = cell
        self.inputs, self.recurrent, self.input_biases, self.biases = _drawn(
            cell.n_gates, n_in, width, key
        )

    @property
    def gates(self) -> Gates:
        """Its weights."""
        return Gates(self.inputs, self.recurrent, self.input_biases, self.biases)

    def __call__(self, x: Float[Array, "steps i batch"]) -> Float[Array, "steps width batch"]:
        return unrolled(self.cell, x, self.gates)


def _drawn(count: int, n_in: int, width: int, key: Key[Array, ""]) -> Gates:
    """PyTorch's start, uniform within 1 / sqrt(width), for each gate."""
    bound = width**-0.5

    def draw(key, *shape):
        return [jr.uniform(k, shape, minval=-bound, maxval=bound) for k in jr.split(key, count)]

    key_in, key_recurrent, key_input_bias, key_bias = jr.split(key, 4)
    return Gates(
        draw(key_in, n_in, width),
        draw(key_recurrent, width, width),
        draw(key_input_bias, width),
        draw(key_bias, width),
    )
