"""Recurrent layers against plain NumPy, their derivatives, their number of weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import greybayes as gb
from greybayes.amortized.network import count_weights
from greybayes.amortized.recurrent import Gru, Lstm, Rnn, gru_scan, sigmoid
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


LAYERS = {"gru": (Gru, gru), "lstm": (Lstm, lstm), "rnn": (Rnn, rnn)}


@pytest.mark.parametrize("name", LAYERS)
def test_forward_is_the_plain_recursion(name):
    make, oracle = LAYERS[name]
    layer = make(N_IN, WIDTH, jr.key(1))
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, N_IN)).astype(np.float32) * 2
    np.testing.assert_allclose(layer(jnp.asarray(x)), oracle(layer, x), atol=2e-6)


def test_sigmoid_is_the_logistic_function_and_never_overflows():
    x = np.linspace(-200, 200, 41)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(sigmoid(jnp.asarray(x, jnp.float32)), logistic(x), atol=1e-7)


def plain_gru(inputs, recurrent, bias):
    def step(h, parts):
        r = jax.nn.sigmoid(parts[0] + h @ recurrent[0])
        z = jax.nn.sigmoid(parts[1] + h @ recurrent[1])
        n = jnp.tanh(parts[2] + r * (h @ recurrent[2] + bias))
        h = (1 - z) * n + z * h
        return h, h

    return jax.lax.scan(step, jnp.zeros_like(inputs[0][0]), inputs)[1]


def test_own_derivative_is_that_of_the_plain_scan():
    rng = np.random.default_rng(3)
    inputs = tuple(rng.normal(size=(3, STEPS, BATCH, WIDTH)))
    recurrent = tuple(rng.normal(size=(3, WIDTH, WIDTH)) / 2)
    arguments = (inputs, recurrent, rng.normal(size=WIDTH))
    # Every state of every step counts, each with a weight of its own.
    direction = np.random.default_rng(9).normal(size=(STEPS, BATCH, WIDTH))
    with jax.enable_x64(True):
        arguments = jax.tree.map(jnp.asarray, arguments)
        got, expected = (
            jax.jit(jax.value_and_grad(lambda a, f=f: (f(*a) * direction).sum()))(arguments)
            for f in (gru_scan, plain_gru)
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
