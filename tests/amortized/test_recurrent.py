"""Recurrent layers against plain NumPy, their derivatives, their number of weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import greybayes as gb
from greybayes.amortized.network import count_weights
from greybayes.amortized.recurrent import GruCell, LstmCell, Recurrent, RnnCell, sigmoid
from greybayes.amortized.training import Architecture, Experiment, make_weights

STEPS, BATCH, N_IN, WIDTH = 7, 3, 2, 5


def logistic(x):
    return 1 / (1 + np.exp(-x))


def gates(layer):
    """(x, h) -> the input part and the state part of each gate, as PyTorch writes them."""
    w, u, b, c = (
        [np.asarray(a, np.float64) for a in part]
        for part in (layer.inputs, layer.recurrent, layer.input_biases, layer.biases)
    )

    def parts(x, h):
        inputs = [x @ w_i + b_i for w_i, b_i in zip(w, b, strict=True)]
        states = [h @ u_i + c_i for u_i, c_i in zip(u, c, strict=True)]
        return inputs, states

    return parts


def gru(layer, x):
    parts, h, out = gates(layer), np.zeros((x.shape[1], WIDTH)), []
    for x_k in x:
        (i_r, i_z, i_n), (h_r, h_z, h_n) = parts(x_k, h)
        r, z = logistic(i_r + h_r), logistic(i_z + h_z)
        h = (1 - z) * np.tanh(i_n + r * h_n) + z * h
        out.append(h)
    return np.stack(out)


def lstm(layer, x):
    parts, h, c, out = gates(layer), np.zeros((x.shape[1], WIDTH)), 0.0, []
    for x_k in x:
        i, f, g, o = (a + b for a, b in zip(*parts(x_k, h), strict=True))
        c = logistic(f) * c + logistic(i) * np.tanh(g)
        h = logistic(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


def rnn(layer, x):
    parts, h, out = gates(layer), np.zeros((x.shape[1], WIDTH)), []
    for x_k in x:
        (a,), (b,) = parts(x_k, h)
        h = np.tanh(a + b)
        out.append(h)
    return np.stack(out)


CELLS = {"gru": (GruCell, gru), "lstm": (LstmCell, lstm), "rnn": (RnnCell, rnn)}


@pytest.mark.parametrize("name", CELLS)
def test_forward_is_the_plain_recursion(name):
    cell, oracle = CELLS[name]
    layer = Recurrent(cell, N_IN, WIDTH, jr.key(1))
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, N_IN)).astype(np.float32) * 2
    got = jnp.swapaxes(layer(jnp.swapaxes(x, 1, 2)), 1, 2)
    np.testing.assert_allclose(got, oracle(layer, x), atol=2e-6)


def test_sigmoid_is_the_logistic_function_and_never_overflows():
    x = np.linspace(-200, 200, 41)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(sigmoid(jnp.asarray(x, jnp.float32)), logistic(x), atol=1e-7)


def plain(layer, x):
    """The states by the cell's own step, which JAX then differentiates itself."""
    gates = layer.gates

    def step(state, x_k):
        state, _ = layer.cell.step(state, gates.of_input(x_k), gates.of_state(state[0]))
        return state, state[0]

    start = (jnp.zeros((WIDTH, BATCH)),) * layer.cell.n_states
    return jax.lax.scan(step, start, x)[1]


@pytest.mark.parametrize("n_in", [1, N_IN])
@pytest.mark.parametrize("name", CELLS)
def test_own_derivative_is_that_of_the_plain_scan(name, n_in):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(STEPS, n_in, BATCH))
    # Every state of every step counts, each with a weight of its own.
    direction = rng.normal(size=(STEPS, WIDTH, BATCH))
    with jax.enable_x64(True):
        drawn = Recurrent(CELLS[name][0], n_in, WIDTH, jr.key(1))
        layer = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape) / 2), drawn)
        given = layer, jnp.asarray(x)
        got, expected = (
            jax.jit(jax.value_and_grad(lambda a, f=f: (f(*a) * direction).sum()))(given)
            for f in (lambda layer, x: layer(x), plain)
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), got, expected)


# The paper's sizes, counted by PyTorch's formulas (nn.GRU, nn.LSTM, nn.RNN, nn.Linear).
GATES = {"gru": 3, "lstm": 4, "rnn": 1}


def torch_weights(network, width, depth, dense, n_theta):
    per_layer = [
        GATES[network] * (width * (n_in + width) + 2 * width)
        for n_in in [1] + [width] * (depth - 1)
    ]
    return sum(per_layer) + (width * dense + dense) + (dense * n_theta + n_theta)


@pytest.mark.parametrize(
    ("model", "network", "width", "depth", "dense", "weights"),
    [
        # By hand for M2: 3*40*41 + 240, 3*40*80 + 240, 40*32 + 32, 32*4 + 4.
        ("growth2", "gru", 40, 2, 32, 5160 + 9840 + 1312 + 132),
        ("growth1", "gru", 30, 2, 32, None),
        ("growth1", "lstm", 60, 1, 40, None),
        ("growth1", "rnn", 30, 3, 32, None),
        ("coupled-drives", "gru", 40, 2, 32, None),
    ],
)
def test_as_many_weights_as_the_paper(model, network, width, depth, dense, weights):
    model = gb.get_model(model)
    architecture = Architecture(network, {"width": width, "depth": depth, "dense": dense}, "paper")
    experiment = Experiment(model, model.design, 20)
    # Shapes are enough: nothing is drawn.
    made = eqx.filter_eval_shape(lambda: make_weights(experiment, architecture))
    expected = torch_weights(network, width, depth, dense, model.prior.size)
    assert weights in (None, expected)
    assert sum(leaf.size for leaf in jax.tree.leaves(made) if hasattr(leaf, "size")) == expected


def test_the_count_of_weights_is_that_of_the_arrays(tiny):
    arrays = {k: v for k, v in tiny.arrays.items() if k.startswith(("network", "head"))}
    assert tiny.header["n_weights"] == sum(a.size for a in arrays.values())
    assert count_weights(tiny.weights) == tiny.header["n_weights"]
