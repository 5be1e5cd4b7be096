"""Is a record typical? False alarms as often as stated, and what is found."""

import jax.numpy as jnp
import numpy as np
import pytest

import greybayes as gb
from greybayes.amortized import typical
from greybayes.amortized.estimator import PRETRAINED, SUFFIX
from greybayes.amortized.spoilt import learn
from greybayes.amortized.typical import Seen

N, SUMMARY = 3000, 12


def drawn(n, seed, noise=1.0):
    """Summaries that depend on theta, with noise of one direction that depends on it too."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(0, 1, (n, 2))
    mix = np.random.default_rng(0).normal(size=(5, SUMMARY))
    basis = np.column_stack([theta, theta**2, np.prod(theta, 1)])
    off = noise * (0.1 + theta[:, :1]) * rng.normal(size=(n, SUMMARY))
    return Seen(basis @ mix + off, theta, rng.normal(size=(n, 2)))


@pytest.fixture(scope="module")
def arrays():
    return typical.calibrate(typical.fit(drawn(N, 1)), drawn(N, 2))


def p_values(arrays, seen):
    distances = typical.distance(np, arrays, seen)
    return typical.p_values(arrays["typical.reference"], distances)


def test_the_p_values_of_the_model_are_uniform(arrays):
    p = p_values(arrays, drawn(N, 3))
    for level in (0.01, 0.05, 0.5):
        error = 4 * np.sqrt(2 * level * (1 - level) / N)
        assert (p < level).mean() == pytest.approx(level, abs=error)


def test_false_alarms_do_not_depend_on_theta(arrays):
    seen = drawn(N, 4)
    p = p_values(arrays, seen)
    for part in (seen.thetas[:, 0] < 0.5, seen.thetas[:, 0] >= 0.5):
        assert (p[part] < 0.05).mean() == pytest.approx(0.05, abs=0.03)


def test_more_noise_is_found(arrays):
    assert (p_values(arrays, drawn(500, 5, noise=3.0)) < typical.LEVEL).mean() > 0.9


def test_a_summary_that_is_no_number_is_not_typical(arrays):
    seen = drawn(3, 6)
    seen.summaries[1] = np.nan
    p = p_values(arrays, seen)
    assert p[1] == 1 / (1 + N)
    assert (p[[0, 2]] > p[1]).all()


def test_a_summary_with_a_constant_entry_can_be_compared():
    fitted, fresh = drawn(N, 7), drawn(N, 8)
    for seen in (fitted, fresh):
        seen.summaries[:, 3] = 2.0
    found = typical.calibrate(typical.fit(fitted), fresh)
    assert np.isfinite(found["typical.reference"]).all()


def with_faults():
    """A comparison that has seen a fault: statistics that are too large together."""
    arrays = typical.fit(drawn(N, 1))
    bad = drawn(4 * N, 10)
    bad = bad._replace(statistics=bad.statistics + 2.0)
    arrays |= learn(drawn(4 * N, 9).features(), bad.features(), 0)
    arrays = typical.on_one_scale(arrays, drawn(N, 11))
    return typical.calibrate(arrays, drawn(N, 2))


def test_a_fault_that_was_learnt_is_found_and_false_alarms_stay(arrays):
    both = with_faults()
    assert (p_values(both, drawn(N, 3)) < typical.LEVEL).mean() == pytest.approx(0.01, abs=0.0103)
    spoilt = drawn(500, 12)
    spoilt = spoilt._replace(statistics=spoilt.statistics + 3.0)
    assert (p_values(both, spoilt) < typical.LEVEL).mean() > 0.9
    # Which the distance of the summary cannot see, and what that sees is still found.
    assert (p_values(arrays, spoilt) < typical.LEVEL).mean() < 0.05
    assert (p_values(both, drawn(500, 5, noise=3.0)) < typical.LEVEL).mean() > 0.85


def test_a_distance_is_one_number_whatever_computes_it():
    both, seen = with_faults(), drawn(20, 13)
    plain = typical.distance(np, both, seen)
    jax = typical.distance(jnp, both, typical.Seen(*map(jnp.asarray, seen)))
    np.testing.assert_allclose(jax, plain, atol=1e-4)


def test_many_parameters_have_no_products():
    assert typical._basis(np, np.zeros((1, 11))).shape == (1, 23)
    assert typical._basis(np, np.zeros((1, 3))).shape == (1, 10)


SHIPPED = sorted(file.stem for file in PRETRAINED.glob(f"*{SUFFIX}"))
# One of them in every run, all of them in `make accuracy`.
_SLOW = pytest.mark.accuracy


@pytest.mark.parametrize(
    "name",
    [name if name == "growth2" else pytest.param(name, marks=_SLOW) for name in SHIPPED],
)
def test_false_alarms_of_the_shipped_ones_are_one_in_a_hundred(name):
    n = 2000
    estimator = gb.load(name)
    y = gb.simulate(estimator.model, inputs=estimator.input, count=n, key=31).y
    p = typical.p_values(estimator.arrays["typical.reference"], estimator.outputs(y).distance)
    # The reference has as little as 2,000 draws of its own, which scatter as much.
    error = np.sqrt(0.01 * 0.99 * (1 / n + 1 / len(estimator.arrays["typical.reference"])))
    assert (p < typical.LEVEL).mean() == pytest.approx(0.01, abs=4 * error)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_no_simulation_comes_near_is_a_misfit_whatever_the_network_makes_of_it(name):
    estimator = gb.load(name)
    y = gb.simulate(estimator.model, inputs=estimator.input, count=20, key=32).y
    for off in (20.0, 50.0, 1000.0):
        distance = estimator.outputs(y + off * y.std((0, 1)), engine="numpy").distance
        p = typical.p_values(estimator.arrays["typical.reference"], distance)
        assert (p < typical.LEVEL).all(), off
