"""The gated network: its formula in plain NumPy, its derivative, and the pass without JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers.tiny import records_of, untrained

from greybayes.amortized import forward
from greybayes.amortized.gated import Gate, Gated, gated_relu

N_CHANNELS = 3


def as_floats(module):
    return jax.tree.map(lambda a: np.asarray(a, float), eqx.filter(module, eqx.is_array))


def gate(layer, x, context):
    """One record: features of every position, and what the record looks like so far."""
    layer = as_floats(layer)
    hidden = np.maximum(context @ layer.context.weight + layer.context.bias, 0)
    gain, shift = 1 + hidden @ layer.gain, hidden @ layer.shift.weight + layer.shift.bias
    return np.array([np.maximum((gain * row) @ layer.weight + shift, 0) for row in x])


def pooled(f, by):
    f = np.concatenate([np.zeros((-len(f) % by, f.shape[1])), f])
    return np.array([f[i : i + by].mean(0) for i in range(0, len(f), by)])


def beside_the_one_before(f):
    return np.concatenate([f, np.concatenate([np.zeros_like(f[:1]), f[:-1]])], axis=1)


def oracle(network, record):
    """The summary of one record, position by position."""
    zeros = np.zeros((network.window - 1 + -len(record) % network.pool, N_CHANNELS))
    padded = np.concatenate([zeros, record.astype(float)])
    first = as_floats(network.first)
    f = np.array(
        [
            np.maximum(padded[k : k + network.window].ravel() @ first.weight + first.bias, 0)
            for k in range(len(padded) - network.window + 1)
        ]
    )
    means = [f.mean(0)]
    for layer in network.steps:
        f = gate(layer, f, np.concatenate(means))
        means.append(f.mean(0))
    f = pooled(f, network.pool)
    for level, layer in enumerate([network.near, *network.pairs]):
        f = pooled(f, network.pool) if level > 1 else f
        f = gate(layer, beside_the_one_before(f), np.concatenate(means))
        means.append(f.mean(0))
    return np.concatenate([*means[len(network.steps) :], f[-1]])


@pytest.mark.parametrize(
    ("n_steps", "sizes"),
    [
        (12, {"window": 4, "pool": 4, "levels": 1, "depth": 2}),
        (10, {"window": 4, "pool": 4, "levels": 2, "depth": 3}),
        (1, {"window": 4, "pool": 4, "levels": 3, "depth": 2}),
        (7, {"window": 3, "pool": 2, "levels": 2, "depth": 1}),
        (9, {"window": 1, "pool": 1, "levels": 1, "depth": 2}),
    ],
    ids=str,
)
def test_it_is_its_formula_at_any_length(n_steps, sizes):
    network = Gated(N_CHANNELS, jr.key(1), width=6, context=5, **sizes)
    # Gates that are wide open say little of the formula.
    network = jax.tree.map(lambda a: 2 * a, network)
    c = np.random.default_rng(n_steps).normal(size=(3, n_steps, N_CHANNELS)).astype(np.float32)
    expected = np.stack([oracle(network, record) for record in c])
    assert expected.shape[1] == network.n_summary
    found = jax.jit(lambda c: network.summarise(c))(c)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("times", [1e2, 1e6, 1e12])
def test_a_record_that_is_nothing_like_the_models_gives_numbers(times):
    """Gates multiply: without an end to it four layers make infinity of a large record."""
    network = Gated(N_CHANNELS, jr.key(1), width=6, context=5, window=4, pool=4, levels=3, depth=3)
    network = jax.tree.map(lambda a: 5 * a, network)
    c = times * np.random.default_rng(0).normal(size=(20, 40, N_CHANNELS)).astype(np.float32)
    assert np.isfinite(network.summarise(jnp.asarray(c))).all()
    assert np.abs(network.summarise(jnp.asarray(c))).max() > 1e3


def test_own_derivative_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=shape) for shape in ((5, 2, 4), (2, 4), (4, 3), (2, 3))]
    direction = rng.normal(size=(5, 2, 3))

    def plain(x, gain, weight, shift):
        return jax.nn.relu((x * gain) @ weight + shift)

    with jax.enable_x64(True):
        arguments = tuple(map(jnp.asarray, drawn))
        got, expected = (
            jax.jit(jax.value_and_grad(lambda a, f=f: (f(*a) * direction).sum()))(arguments)
            for f in (gated_relu, plain)
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), got, expected)


def test_a_gate_turns_features_down_for_one_record_and_not_for_another():
    layer = Gate(4, 2, 3, 2, jr.key(0))
    closing = jnp.stack([jnp.full(4, -1.0), jnp.zeros(4)])  # 1 - 1 for what wakes the first unit.
    awake = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    layer = eqx.tree_at(
        lambda g: (g.gain, g.context.weight, g.context.bias, g.shift.weight, g.shift.bias),
        layer,
        (closing, awake, jnp.zeros(2), jnp.zeros((2, 3)), jnp.zeros(3)),
    )
    x = jnp.ones((5, 2, 4))
    closed, opened = jnp.moveaxis(layer(x, jnp.array([[1.0, 0.0], [0.0, 1.0]])), 1, 0)
    assert not closed.any()
    assert opened.any()


@pytest.fixture(scope="module")
def estimator(compiled):
    return untrained("linear-gaussian", network="gated")


def test_numpy_equals_jax(estimator):
    assert forward.can_run(estimator.header)
    records = records_of(estimator, 20)
    found, plain = (
        np.array([each.mean for each in estimator.estimate(records, engine=engine)])
        for engine in ("jax", "numpy")
    )
    spread = np.sqrt(estimator.model.prior.variance)
    np.testing.assert_allclose(plain / spread, found / spread, atol=1e-5)
    assert np.ptp(found / spread, axis=0).min() > 1e-3


@pytest.mark.parametrize("n_steps", [1, 3, 4, 23])
def test_numpy_equals_jax_at_any_length(estimator, n_steps):
    y = np.random.default_rng(0).normal(size=(3, n_steps, 1)).astype(np.float32)
    u = np.tile(estimator.input[:n_steps], (3, 1, 1))
    plain, found = (estimator.means(y, u, engine=engine) for engine in ("numpy", "jax"))
    np.testing.assert_allclose(plain, found, atol=1e-5)


def test_a_file_gives_it_back(estimator, tmp_path):
    again = type(estimator).load(estimator.save(tmp_path / "a.estimator"))
    records = records_of(estimator, 2)
    for one, other in zip(estimator.estimate(records), again.estimate(records), strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)
