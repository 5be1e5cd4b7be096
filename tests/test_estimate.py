"""Estimate: everything that follows from a mean, a covariance, samples and weights."""

import dataclasses
import io
import json

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.stats as st
from helpers import BOUND
from rich.console import Console

import greybayes as gb
from greybayes.errors import GreybayesError

rng = np.random.default_rng(4)
NAMES = ("a", "b")
MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[0.25, 0.3], [0.3, 1.0]])
SAMPLES = rng.multivariate_normal(MEAN, COVARIANCE, size=300)
COUNTS = rng.integers(0, 6, size=300)
EXPANDED = np.repeat(SAMPLES, COUNTS, axis=0)


def normal(**rest) -> gb.Estimate:
    return gb.Estimate(NAMES, MEAN, COVARIANCE, **rest)


def weighted(scale=1.0) -> gb.Estimate:
    return gb.Estimate.from_samples(NAMES, SAMPLES, scale * COUNTS.astype(float))


def test_a_mean_alone_knows_no_uncertainty():
    estimate = gb.Estimate(NAMES, MEAN)
    assert estimate["b"] == -2.0
    assert estimate.std is None
    assert estimate.correlation is None
    assert estimate.interval() is None
    assert estimate.to_dict() == {
        "parameters": [{"name": "a", "mean": 1.0}, {"name": "b", "mean": -2.0}],
        "status": "ok",
    }


def test_a_covariance_gives_spread_correlation_and_normal_intervals():
    estimate = normal()
    np.testing.assert_allclose(estimate.std, [0.5, 1.0])
    np.testing.assert_allclose(estimate.correlation, [[1.0, 0.6], [0.6, 1.0]])
    for level in (0.5, 0.95):
        expected = np.transpose(st.norm(MEAN, [0.5, 1.0]).interval(level))
        np.testing.assert_allclose(estimate.interval(level), expected)
    np.testing.assert_array_equal(estimate.interval(), estimate.interval(0.95))


def test_samples_give_mean_covariance_and_quantiles():
    estimate = gb.Estimate.from_samples(NAMES, SAMPLES, method="demo", model="growth2")
    np.testing.assert_allclose(estimate.mean, SAMPLES.mean(0))
    np.testing.assert_allclose(estimate.covariance, np.cov(SAMPLES.T, bias=True))
    expected = np.quantile(SAMPLES, [0.1, 0.9], axis=0).T
    np.testing.assert_allclose(estimate.interval(0.8), expected)
    assert (estimate.method, estimate.model) == ("demo", "growth2")


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_whole_weights_count_as_copies(scale):
    estimate = weighted(scale)
    np.testing.assert_allclose(estimate.mean, EXPANDED.mean(0))
    np.testing.assert_allclose(estimate.covariance, np.cov(EXPANDED.T, bias=True))
    for level in (0.5, 0.95):
        ends = [(1 - level) / 2, (1 + level) / 2]
        for i, interval in enumerate(estimate.interval(level)):
            # Rules of quantiles differ by no more than a neighbour.
            values = np.unique(EXPANDED[:, i])
            exact = np.quantile(EXPANDED[:, i], ends, method="inverted_cdf")
            at = np.searchsorted(values, exact)
            assert np.all((values[at - 1] <= interval) & (interval <= values[at + 1]))


def test_equal_weights_are_no_weights():
    even = gb.Estimate.from_samples(NAMES, SAMPLES, np.full(300, 0.2)).interval()
    plain = gb.Estimate.from_samples(NAMES, SAMPLES).interval()
    spacing = np.max(np.diff(np.sort(SAMPLES, axis=0)[:12], axis=0))
    np.testing.assert_allclose(even, plain, atol=spacing)


def test_a_sample_without_weight_has_no_say_in_the_interval():
    values, weights = np.array([[-1000.0], [1.0], [2.0], [500.0]]), np.array([0.0, 1.0, 1.0, 0.0])
    some = gb.Estimate.from_samples(("a",), values, weights)
    kept = gb.Estimate.from_samples(("a",), values[1:3], weights[1:3])
    np.testing.assert_allclose(some.interval(), kept.interval())


def test_the_interval_of_one_heavy_sample_is_that_sample():
    # Nearly collapsed weights: 99.8 % of the mass is at 0, so both ends of 95 % are.
    values, weights = np.array([[-1.0], [0.0], [1.0]]), np.array([1.0, 998.0, 1.0])
    expanded = np.repeat(values[:, 0], weights.astype(int))
    expected = [np.quantile(expanded, [0.025, 0.975])]
    estimate = gb.Estimate.from_samples(("a",), values, weights)
    np.testing.assert_allclose(estimate.interval(), expected, atol=1e-12)


def test_chains_keep_their_axis():
    chains = SAMPLES.reshape(3, 100, 2)
    estimate = gb.Estimate.from_samples(NAMES, chains)
    assert estimate.samples.shape == (3, 100, 2)
    np.testing.assert_allclose(estimate.mean, SAMPLES.mean(0))
    flat = gb.Estimate.from_samples(NAMES, SAMPLES)
    np.testing.assert_allclose(estimate.interval(), flat.interval())
    weights = COUNTS.reshape(3, 100).astype(float)
    both = gb.Estimate.from_samples(NAMES, chains, weights)
    np.testing.assert_allclose(both.interval(), weighted().interval())


def test_a_given_covariance_stands_beside_samples():
    # A method may know its covariance better than its samples do.
    estimate = normal(samples=SAMPLES)
    np.testing.assert_array_equal(estimate.std, [0.5, 1.0])
    np.testing.assert_allclose(estimate.interval(), np.quantile(SAMPLES, [0.025, 0.975], axis=0).T)


def test_one_certain_parameter_leaves_the_other_correlations_whole():
    covariance = np.diag([0.0, 1.0])
    correlation = gb.Estimate(NAMES, MEAN, covariance).correlation
    np.testing.assert_allclose(np.diag(correlation)[1], 1.0)


# Plain objects, tables, ArviZ.


def test_the_plain_object_goes_through_json_and_back():
    diagnostics = {
        "rhat": np.array([1.0, 1.01]),
        "draws": np.int64(300),
        "converged": np.bool_(True),
        "nested": {"steps": (np.float32(0.5), 2)},
    }
    estimate = normal(
        method="cme-mh", model="growth2", seconds=1.5, diagnostics=diagnostics,
        settings={"n_particles": 200}, status=gb.Status.diverged,
    )  # fmt: skip
    plain = json.loads(json.dumps(estimate.to_dict(), allow_nan=False))
    (first, second) = plain.pop("parameters")
    assert first == {
        "name": "a",
        "mean": 1.0,
        "std": 0.5,
        "interval95": pytest.approx(st.norm(1.0, 0.5).interval(0.95)),
    }
    assert second["name"] == "b"
    assert plain == {
        "status": "diverged",
        "message": gb.Status.diverged.sentence,
        "seconds": 1.5,
        "method": "cme-mh",
        "model": "growth2",
        "diagnostics": {
            "rhat": [1.0, 1.01],
            "draws": 300,
            "converged": True,
            "nested": {"steps": [0.5, 2]},
        },
        "settings": {"n_particles": 200},
    }


def test_arrays_of_jax_go_into_the_plain_object_too():
    estimate = normal(diagnostics={"rhat": jnp.array([1.0, 1.5]), "best": jnp.array(2.0)})
    assert json.loads(json.dumps(estimate.to_dict()))["diagnostics"] == {
        "rhat": [1.0, 1.5],
        "best": 2.0,
    }


def rendered(table) -> list[list[str]]:
    """Title, header and rows of a table, cell by cell."""
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    cells = [line.replace("┃", "│").strip("│").split("│") for line in lines]
    return [
        [cell.strip() for cell in row]
        for row in cells
        if not set("".join(row)) <= set("┏━┳┓┡╇┩└─┴┘")
    ]


def test_the_table_shows_the_truth_beside():
    title, header, *rows = rendered(
        normal(method="cme-mh", model="growth2").table(truth={"a": 1.25})
    )
    assert title == ["growth2 · cme-mh"]
    assert header == ["parameter", "estimate", "std", "95 % interval", "truth"]
    assert rows == [
        ["a", "1", "0.5", "0.02002 to 1.98", "1.25"],
        ["b", "-2", "1", "-3.96 to -0.04004", ""],
    ]


@pytest.mark.parametrize("name", ["theta[0]", "gain"])
def test_the_table_of_a_mean_has_two_columns(name):
    assert rendered(gb.Estimate((name,), MEAN[:1]).table()) == [
        ["parameter", "estimate"],
        [name, "1"],
    ]


def test_arviz_gets_chains_and_draws():
    chains = SAMPLES.reshape(3, 100, 2)
    posterior = gb.Estimate.from_samples(NAMES, chains).to_arviz().posterior
    assert set(posterior.data_vars) == set(NAMES)
    assert posterior["b"].dims == ("chain", "draw")
    np.testing.assert_array_equal(posterior["b"], chains[..., 1])
    flat = gb.Estimate.from_samples(NAMES, SAMPLES).to_arviz().posterior
    assert flat["a"].shape == (1, 300)


def test_arviz_gets_weighted_samples_as_copies():
    estimate = weighted()
    posterior = estimate.to_arviz().posterior
    drawn = np.stack([posterior[name].values[0] for name in NAMES], axis=1)
    assert drawn.shape == (300, 2)
    counts = np.array([(drawn == sample).all(1).sum() for sample in SAMPLES])
    assert counts.sum() == 300
    # Systematic: each sample as often as its share says, rounded up or down.
    assert np.all(np.abs(counts - 300 * COUNTS / COUNTS.sum()) < 1)
    assert np.all(counts[COUNTS == 0] == 0)
    # Whether up or down is at most a fair coin for each sample.
    error = estimate.std * np.sqrt(0.25 / 300)
    assert np.all(np.abs(drawn.mean(0) - estimate.mean) < BOUND * error)
    again = estimate.to_arviz().posterior
    np.testing.assert_array_equal(again["a"], posterior["a"])


# Frozen, and refused.


def test_an_estimate_is_frozen():
    mean = MEAN.copy()
    estimate = gb.Estimate(NAMES, mean, COVARIANCE)
    mean[0] = 99.0
    assert estimate["a"] == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        estimate.mean = mean
    for value in (estimate.mean, estimate.covariance):
        with pytest.raises(ValueError, match="read-only"):
            value[0] = 99.0


def test_samples_and_weights_are_frozen_too():
    samples, weights = SAMPLES.copy(), COUNTS.astype(float)
    estimate = gb.Estimate.from_samples(NAMES, samples, weights)
    before = estimate.interval()
    samples[:], weights[:] = 99.0, 1.0
    np.testing.assert_array_equal(estimate.interval(), before)
    for value in (estimate.samples, estimate.weights):
        with pytest.raises(ValueError, match="read-only"):
            value[0] = 99.0


def test_a_changed_estimate_is_a_new_one():
    old = normal(method="demo")
    new = old.replace(seconds=2.0, status=gb.Status.diverged)
    assert (new.seconds, new.status, new.method) == (2.0, gb.Status.diverged, "demo")
    assert (old.seconds, old.status) == (None, gb.Status.ok)
    np.testing.assert_array_equal(new.mean, old.mean)


ONES = np.ones(300)


@pytest.fixture
def as_users_run_it():
    """Without the checks of shapes that the tests add, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gb.Estimate(NAMES, np.ones(3)), ["the mean", "(3,)", "expected (2,)"]),
        (lambda: gb.Estimate(NAMES, MEAN, np.ones((2, 3))), ["covariance", "(2, 3)", "(2, 2)"]),
        (lambda: normal(samples=np.ones((5, 3))), ["samples", "(5, 3)", "(..., 2)"]),
        (lambda: gb.Estimate.from_samples(NAMES, np.ones((4, 3))), ["(4, 3)", "(..., 2)"]),
        (lambda: gb.Estimate.from_samples(NAMES, np.ones((5, 3))), ["(5, 3)", "(..., 2)"]),
        (lambda: normal(weights=ONES), ["as many weights as samples"]),
        (lambda: normal(samples=SAMPLES, weights=np.ones(7)), ["as many weights as samples"]),
        (lambda: normal(samples=SAMPLES, weights=0 * ONES), ["not all zero"]),
        (lambda: normal(samples=SAMPLES, weights=-ONES), ["non-negative"]),
        (lambda: normal(samples=SAMPLES, weights=np.nan * ONES), ["non-negative"]),
        (lambda: gb.Estimate.from_samples(NAMES, SAMPLES, np.ones(7)), ["as many weights"]),
        (lambda: gb.Estimate.from_samples(NAMES, SAMPLES, 0 * ONES), ["not all zero"]),
        (lambda: gb.Estimate.from_samples(NAMES, SAMPLES, -ONES), ["non-negative"]),
        (lambda: normal().interval(0.0), ["level of an interval is 0.0", "(0, 1)"]),
        (lambda: normal().interval(95.0), ["level of an interval is 95.0", "(0, 1)"]),
        (lambda: gb.Estimate(("theta2",), MEAN[:1])["theta"], ["no parameter theta ", "theta2?"]),
        (lambda: normal()["zeta"], ["no parameter zeta", "known: a, b"]),
        (lambda: normal(method="least-squares").to_arviz(), ["least-squares gives no samples"]),
        (lambda: normal().to_arviz(), ["this method gives no samples"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, words):
    with pytest.raises(GreybayesError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_a_notebook_shows_the_table_and_no_markup_of_names():
    estimate = gb.Estimate(
        ("<b>a</b>",), np.array([1.0]), np.array([[0.01]]), status=gb.Status.misfit
    )
    text = estimate._repr_html_()
    assert '<th scope="row">&lt;b&gt;a&lt;/b&gt;</th>' in text
    assert "<td>0.804 to 1.196</td>" in text
    assert "misfit: " in text
    assert "<p>" not in estimate.replace(status=gb.Status.ok)._repr_html_()


def test_names_are_no_markup():
    """A name such as `y [/m]` is told as it is, and ends no program."""
    estimate = gb.Estimate(("a [/b]",), np.ones(1), model="plant [red]")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(estimate.table())
    assert "a [/b]" in (text := console.export_text())
    assert "plant [red]" in text
