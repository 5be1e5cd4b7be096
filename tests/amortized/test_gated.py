"""The gated network: its formula in plain NumPy, its derivative, and the pass without JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers.tiny import SIZES, records_of, untrained, with_arrays

from greybayes.amortized import forward
from greybayes.amortized.gated import Gate, Gated, Tuning, gated_relu
from greybayes.amortized.network import Reads, make_network
from greybayes.errors import ModelError

N_CHANNELS = 3


def as_floats(module):
    return jax.tree.map(lambda a: np.asarray(a, float), eqx.filter(module, eqx.is_array))


def gate(layer, x, context, cues=None):
    """One record: features of every position, and what the record looks like so far."""
    layer = as_floats(layer)
    hidden = np.maximum(context @ layer.context.weight + layer.context.bias, 0)
    gain, shift = 1 + hidden @ layer.gain, hidden @ layer.shift.weight + layer.shift.bias
    found = []
    for k, row in enumerate(x):
        own = (1, 0)
        if cues is not None:
            own = (1 + cues[k] @ layer.cue.gain, cues[k] @ layer.cue.shift)
        found.append(np.maximum((gain * own[0] * row) @ layer.weight + shift + own[1], 0))
    return np.array(found)


def cues_of(network, record):
    """What the input of one record, its last channel, was doing at each position."""
    front = -len(record) % network.pool
    u = np.concatenate([np.zeros(network.cues.reach - 1 + front), record[:, -1]])
    found = np.array([u[k : k + network.cues.reach] for k in range(front + len(record))])
    for layer in as_floats(network.cues).layers:
        found = np.maximum(found @ layer.weight + layer.bias, 0)
    return found


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
    positions = range(len(padded) - network.window + 1)
    windows = np.array([padded[k : k + network.window].ravel() for k in positions])
    cues = None if network.cues is None else cues_of(network, record)
    own = 0 if cues is None else cues @ np.asarray(network.first_cue, float)
    f = np.maximum(windows @ first.weight + first.bias + own, 0)
    means = [f.mean(0)]
    for layer in network.steps:
        f = gate(layer, f, np.concatenate(means), cues)
        means.append(f.mean(0))
    for level, layer in enumerate([network.near, *network.pairs]):
        if level != 1:
            f = pooled(f, network.pool)
            cues = cues if cues is None else pooled(cues, network.pool)
        f = gate(layer, beside_the_one_before(f), np.concatenate(means), cues)
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
    assert_formula(network, n_steps)


def assert_formula(network, n_steps):
    c = np.random.default_rng(n_steps).normal(size=(3, n_steps, N_CHANNELS)).astype(np.float32)
    expected = np.stack([oracle(network, record) for record in c])
    assert expected.shape[1] == network.n_summary
    found = jax.jit(lambda c: network.summarise(c))(c)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def cued(one_input=False, **sizes):
    """With cues that are more than nothing, as they are at the start."""
    sizes = {"window": 3, "pool": 4, "levels": 2, "depth": 2, "width": 6, "context": 5, **sizes}
    network = Gated(
        N_CHANNELS, jr.key(1), n_inputs=1, one_input=one_input, cues=4, reach=5, **sizes
    )
    leaves, tree = jax.tree.flatten(network)
    rng = np.random.default_rng(3)
    drawn = [a if a.any() else jnp.asarray(rng.normal(size=a.shape), jnp.float32) for a in leaves]
    return jax.tree.unflatten(tree, drawn)


@pytest.mark.parametrize(("n_steps", "levels"), [(12, 1), (10, 2), (3, 2), (1, 3)])
def test_with_cues_it_is_its_formula_at_any_length(n_steps, levels):
    assert_formula(cued(levels=levels), n_steps)


def test_cues_of_one_input_are_those_of_each_record():
    c = np.random.default_rng(0).normal(size=(3, 9, N_CHANNELS)).astype(np.float32)
    c[..., -1] = c[0, :, -1]
    each, once = (cued(one_input=one).summarise(jnp.asarray(c)) for one in (False, True))
    np.testing.assert_allclose(once, each, atol=1e-5 * np.abs(each).max())
    # One input it is: that of the others is not looked at for cues, but in the windows it is.
    other = jnp.asarray(c).at[1:, :, -1].add(1.0)
    assert np.abs(cued(one_input=True).summarise(other)[0] - once[0]).max() < 1e-5
    assert np.abs(cued().summarise(other)[1] - each[1]).max() > 1e-2


def test_cues_need_an_input():
    with pytest.raises(ModelError, match="cues are read from an input, and this model has none"):
        make_network("cued", Reads(1, 0), jr.key(0), {})


@pytest.mark.parametrize("times", [1e2, 1e6, 1e12])
def test_a_record_that_is_nothing_like_the_models_gives_numbers(times):
    """Gates multiply: without an end to it four layers make infinity of a large record."""
    network = Gated(N_CHANNELS, jr.key(1), width=6, context=5, window=4, pool=4, levels=3, depth=3)
    network = jax.tree.map(lambda a: 5 * a, network)
    c = times * np.random.default_rng(0).normal(size=(20, 40, N_CHANNELS)).astype(np.float32)
    assert np.isfinite(network.summarise(jnp.asarray(c))).all()
    assert np.abs(network.summarise(jnp.asarray(c))).max() > 1e3


@pytest.mark.parametrize(
    "cues",
    [[(1, 2)], [(1, 2), (5, 1)], [(1, 2), (5, 2)]],
    ids=["no cues", "of one input", "of an input each"],
)
def test_own_derivative_is_that_of_the_formula(cues):
    rng = np.random.default_rng(0)
    x, weight, direction = (rng.normal(size=shape) for shape in ((5, 2, 4), (4, 3), (5, 2, 3)))
    tuned = [Tuning(*(rng.normal(size=(*axes, n)) for n in (4, 3))) for axes in cues]
    drawn = (x, weight, *tuned)

    def plain(x, weight, record, *cues):
        for gain, _ in (record, *cues):
            x = x * gain
        return jax.nn.relu(x @ weight + sum(shift for _, shift in (record, *cues)))

    with jax.enable_x64(True):
        arguments = jax.tree.map(jnp.asarray, drawn)
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


@pytest.fixture(scope="module", params=["gated", "cued"])
def estimator(compiled, request):
    sizes = {"cues": 5, "reach": 6} if request.param == "cued" else {}
    found = untrained("linear-gaussian", network=request.param, sizes={**SIZES, **sizes})
    rng = np.random.default_rng(1)
    # At the start there is nothing from the cues.
    drawn = {
        name: rng.normal(size=array.shape).astype(np.float32) / 3
        for name, array in found.arrays.items()
        if not np.any(array) and "cue" in name
    }
    return with_arrays(found, {**found.arrays, **drawn})


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
