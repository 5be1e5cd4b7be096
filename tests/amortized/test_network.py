"""Networks: the registry, Windows against plain NumPy, and a user's own module."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers.tiny import N_STEPS, SETTINGS, records_of

import greybayes as gb
from greybayes.amortized.layers import Network, dense_relu
from greybayes.amortized.network import NETWORKS, Reads, Windows, all_sizes, make_network
from greybayes.amortized.store import write_file
from greybayes.errors import EstimatorError, ModelError

N_OUTPUTS, N_INPUTS = 2, 1
N_CHANNELS = 2 * N_OUTPUTS + N_INPUTS


@pytest.fixture(scope="module")
def networks(compiled):
    return {
        name: make_network(name, Reads(N_OUTPUTS, N_INPUTS), jr.key(0), {"width": 6, "depth": 2})
        for name in NETWORKS
    }


def channels(batch, n_steps, seed=0):
    shape = (batch, n_steps, N_CHANNELS)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@eqx.filter_jit
def summarise(network, c):
    return network.summarise(c)


# Every network.


@pytest.mark.parametrize("name", NETWORKS)
def test_a_summary_has_its_size_and_is_finite(networks, name):
    summary = summarise(networks[name], channels(3, 10))
    assert summary.shape == (3, networks[name].n_summary)
    assert np.isfinite(summary).all()
    assert np.ptp(np.asarray(summary), axis=0).max() > 1e-3


@pytest.mark.parametrize("name", NETWORKS)
def test_a_summary_does_not_depend_on_the_batch_it_is_in(networks, name):
    c = channels(7, 10)
    together = np.asarray(summarise(networks[name], c))
    alone = np.concatenate([summarise(networks[name], c[i : i + 1]) for i in (0, 3, 6)])
    np.testing.assert_allclose(alone, together[[0, 3, 6]], atol=1e-6)
    turned = summarise(networks[name], c[::-1])
    np.testing.assert_allclose(turned, together[::-1], atol=1e-6)


# Which channels a network reads: y, their mask, u.
READ = {"windows": (True, True, True), "gru": (True, False, False)}
READ |= dict.fromkeys(("gated", "cued"), READ["windows"]) | {
    "lstm": READ["gru"],
    "rnn": READ["gru"],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_reads_all_channels_and_the_papers_read_y_alone(networks, name):
    c = channels(1, 10)
    before = np.asarray(summarise(networks[name], c))
    for read, part in zip(READ[name], (slice(0, 2), slice(2, 4), slice(4, 5)), strict=True):
        changed = c.copy()
        changed[..., part] += 1.0
        differ = np.abs(summarise(networks[name], changed) - before).max() > 1e-4
        assert differ == read


def test_an_unknown_network_is_named_beside_the_nearest():
    with pytest.raises(ModelError, match="there is no network window; did you mean windows"):
        make_network("window", Reads(1, 1), jr.key(0), {})


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("windows", {"hidden": 8}),
        ("gru", {"window": 4}),
        ("windows", {"depth": 0}),
        ("windows", {"width": 0}),
        ("windows", {"pool": 0}),
        ("windows", {"window": 0}),
        ("windows", {"levels": 0}),
        ("windows", {"early": 3}),
        ("gated", {"early": 2}),
        ("gated", {"context": 0}),
        ("gated", {"cues": 4}),
        ("cued", {"cues": 0}),
        ("cued", {"reach": 0}),
        ("gru", {"depth": 0}),
        ("gru", {"width": -1}),
    ],
)
def test_sizes_that_a_network_cannot_have_are_a_sentence(name, sizes):
    with pytest.raises(ModelError, match=next(iter(sizes))):
        make_network(name, Reads(1, 1), jr.key(0), sizes)


def test_a_network_without_sizes_has_those_of_its_kind():
    assert all_sizes("windows", {}) == NETWORKS["windows"].sizes
    assert all_sizes("lstm", {"depth": 3}) == {"width": 40, "depth": 3}
    assert all_sizes("lstm", {}) == {"width": 40, "depth": 2}


# Windows, step by step.


def in_context(layer, x, mean):
    weight, context, bias = (
        np.asarray(a, float) for a in (layer.weight, layer.context, layer.bias)
    )
    return np.maximum(x @ weight + mean @ context + bias, 0)


def pooled(f, by):
    before = -len(f) % by
    f = np.concatenate([np.zeros((before, f.shape[1])), f])
    return np.array([f[i : i + by].mean(0) for i in range(0, len(f), by)])


def oracle(network, record):
    """One record: windows of the last samples, zeros before the first, then pairs of pools."""
    before = -len(record) % network.pool
    padded = [np.zeros(record.shape[1])] * before + list(record.astype(float))
    weight, bias = np.asarray(network.first.weight, float), np.asarray(network.first.bias, float)
    features = []
    for k in range(len(padded)):
        window = [
            padded[k - lag] if k >= lag else np.zeros(record.shape[1])
            for lag in reversed(range(network.window))
        ]
        features.append(np.maximum(np.concatenate(window) @ weight + bias, 0))
    f = pooled(np.array(features), network.early)
    for layer in network.steps:
        f = in_context(layer, f, f.mean(0))
    f = pooled(f, network.pool // network.early)
    means = [f.mean(0)]
    for level, layer in enumerate(network.pairs):
        if level:
            f = pooled(f, network.pool)
        earlier = np.concatenate([np.zeros_like(f[:1]), f[:-1]])
        f = in_context(layer, np.concatenate([f, earlier], axis=1), f.mean(0))
        means.append(f.mean(0))
    return np.concatenate([*means, f[-1]])


@pytest.mark.parametrize(
    ("n_steps", "window", "pool", "levels", "early"),
    [(12, 4, 4, 1, 1), (10, 4, 4, 2, 2), (1, 4, 4, 3, 4), (7, 3, 2, 2, 1), (9, 1, 1, 1, 1)],
)
def test_windows_is_its_formula_at_any_length(n_steps, window, pool, levels, early):
    network = Windows(
        N_CHANNELS,
        jr.key(1),
        width=6,
        depth=2,
        window=window,
        pool=pool,
        levels=levels,
        early=early,
    )
    c = channels(3, n_steps, seed=n_steps)
    expected = np.stack([oracle(network, record) for record in c])
    assert expected.shape[1] == network.n_summary
    np.testing.assert_allclose(summarise(network, c), expected, atol=2e-6)


@pytest.mark.parametrize(
    "shapes",
    [[(9, 4), (4, 3), (3,)], [(5, 2, 4), (4, 3), (2, 3)]],
    ids=["a bias", "a shift for each record"],
)
def test_own_derivative_is_that_of_the_formula(shapes):
    def plain(x, weight, shift):
        return jax.nn.relu(x @ weight + shift)

    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=shape) for shape in shapes]
    direction = rng.normal(size=(*shapes[0][:-1], 3))
    with jax.enable_x64(True):
        arguments = tuple(map(jnp.asarray, drawn))
        got, expected = (
            jax.jit(jax.value_and_grad(lambda a, f=f: (f(*a) * direction).sum()))(arguments)
            for f in (dense_relu, plain)
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), got, expected)


# A user's own module, for one record.


class Own(eqx.Module):
    """Channels of one record, `(steps, channel)`, to a vector."""

    layer: eqx.nn.Linear

    def __init__(self, key):
        self.layer = eqx.nn.Linear(3, 5, key=key)

    def __call__(self, channels):
        return jnp.tanh(jax.vmap(self.layer)(channels)).mean(0)


@pytest.fixture(scope="module")
def own(compiled):
    module = Own(jr.key(0))
    settings = {**SETTINGS, "sizes": {"dense": 8}}
    estimator = gb.train(
        "linear-gaussian", network=module, steps=20, n_steps=N_STEPS, settings=settings
    )
    return module, estimator


def test_a_users_module_is_trained(own):
    module, estimator = own
    trained = np.asarray(estimator.weights.network.module.layer.weight)
    assert np.abs(trained - module.layer.weight).max() > 1e-4
    record = records_of(estimator, 1)[0]
    estimate = estimator.estimate(record)
    model = estimator.model
    assert model.prior.in_support(jnp.asarray(estimate.mean, jnp.float32))
    # 3 * 5 + 5, the mean: 5 * 8 + 8, 8 * 8 + 8, 8 * 4 + 4, the posterior: 8 * 8 + 8, 8 * 120 + 120.
    assert estimator.header["n_weights"] == 20 + (48 + 72 + 36) + (72 + 1080)


def test_a_users_module_runs_in_jax_whatever_engine_is_asked_for(own):
    _, estimator = own
    record = records_of(estimator, 1)[0]
    expected = estimator.estimate(record).mean
    np.testing.assert_array_equal(estimator.estimate(record, engine="numpy").mean, expected)


def test_a_users_network_for_many_records_is_used_as_it_is():
    class Sum(Network):
        """The sum of each channel."""

        weight: jax.Array
        n_summary: int = eqx.field(static=True)

        def summarise(self, channels):
            return channels.sum(1) * self.weight

    network = Sum(jnp.ones(3), 3)
    estimator = gb.train(
        "linear-gaussian", network=network, steps=10, n_steps=N_STEPS, settings=SETTINGS
    )
    assert isinstance(estimator.weights.network, Sum)
    assert estimator.header["architecture"]["network"] == "own"


def test_an_own_module_has_no_checkpoint(own, tmp_path):
    with pytest.raises(EstimatorError, match="leave out the checkpoint"):
        gb.train("linear-gaussian", network=own[0], steps=10, checkpoint=tmp_path / "a.partial")


def test_the_file_of_a_users_module_is_refused_with_what_it_needs(own, tmp_path):
    """A file cannot make the module, and must not be taken for one of our networks."""
    _, estimator = own
    with pytest.raises(EstimatorError, match="a network of your own cannot be saved"):
        estimator.save(tmp_path / "a.estimator")
    assert not list(tmp_path.iterdir())
    write_file(tmp_path / "a.estimator", dict(estimator.header), dict(estimator.arrays))
    loaded = gb.load(tmp_path / "a.estimator")
    for engine in ("jax", "numpy"):
        with pytest.raises(EstimatorError, match=r"own (network|module)"):
            loaded.estimate(records_of(estimator, 1)[0], engine=engine)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda c: c, r"expected a vector"),
        (lambda c: c.mean(), r"expected a vector"),
        (lambda c: (c.mean(0), c.mean(0)), r"expected a vector"),
    ],
    ids=["a matrix", "a number", "two vectors"],
)
def test_a_module_of_another_shape_is_a_sentence(module, words):
    with pytest.raises(EstimatorError, match=words) as error:
        gb.train("linear-gaussian", network=module, steps=10, n_steps=N_STEPS, settings=SETTINGS)
    assert f"({N_STEPS}, 3)" in str(error.value)
