"""Calibration: hand-worked ranks, a band held to an exact sum, and posteriors known to be wrong."""

import dataclasses
import io
import json
from statistics import NormalDist

import numpy as np
import pytest
from helpers import BOUND
from helpers.tiny import untrained
from rich.console import Console
from scipy.stats import binom

import greybayes as gb
from greybayes.amortized.line import Line
from greybayes.amortized.mixture import Mixture
from greybayes.diagnose.calibration import JOINT, LEVELS, Calibration, calibration
from greybayes.diagnose.ranks import band, coverage, joint_coverage, joint_ranks, p_value, ranks
from greybayes.errors import EstimatorError, GreybayesError
from greybayes.inputs import parse
from greybayes.plots import plot_calibration, save_figure

N, L = 2000, 199
# A conjugate normal: theta ~ N(0, I), y_1 = theta_1 + theta_2 + N(0, 0.1), y_2 = theta_2 + N(0, 2).
DESIGN = np.array([[1.0, 1.0], [0.0, 1.0]])
NOISE = np.diag([0.1, 2.0])
PRECISION = np.eye(2) + DESIGN.T @ np.linalg.inv(NOISE) @ DESIGN
COVARIANCE = np.linalg.inv(PRECISION)


def conjugate(rng, n=N):
    """Draws of theta from the prior, and the mean of the posterior after a record of each."""
    theta = rng.normal(size=(n, 2))
    y = theta @ DESIGN.T + rng.normal(size=(n, 2)) * np.sqrt(np.diag(NOISE))
    return theta, y @ (COVARIANCE @ DESIGN.T @ np.linalg.inv(NOISE)).T


def drawn(rng, mean, covariance, n_samples=L):
    noise = rng.normal(size=(len(mean), n_samples, 2))
    return mean[:, None] + noise @ np.linalg.cholesky(covariance).T


def judged(seed=0, shift=(0.0, 0.0), power=1.0, covariance=COVARIANCE) -> Calibration:
    """A posterior moved by a share of its standard deviation, its density raised to a power."""
    rng = np.random.default_rng(seed)
    theta, mean = conjugate(rng)
    mean = mean + np.array(shift) * np.sqrt(np.diag(covariance))
    return Calibration.from_samples(theta, drawn(rng, mean, covariance / power), ("a", "b"))


# By hand.


def test_ranks_count_the_samples_below():
    theta = np.array([[0.5, 7.0], [-1.0, 0.0]])
    samples = np.array([[[0.4, 7.5], [0.6, 8.0], [0.1, 6.0]], [[0.0, -1.0], [1.0, -2.0], [2, -3]]])
    assert ranks(theta, samples).tolist() == [[2, 1], [0, 3]]


def test_joint_ranks_count_the_samples_that_are_nearer_to_the_reference():
    theta, references = np.array([[3.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    samples = np.array([[[2.0, 2.0], [3.0, 1.0], [0.0, 2.9]], [[1.0, 2.0], [5.0, 5.0], [0, 0]]])
    # Distances in the first row: 2.83, 3.16, 2.9 against 3; in the second theta is the reference.
    assert joint_ranks(theta, samples, references, np.ones(2)).tolist() == [2, 0]
    # With the second parameter counted by halves: 2.24, 3.04, 1.45.
    assert joint_ranks(theta, samples, references, np.array([1.0, 2.0])).tolist() == [2, 0]
    # With the first by thirds: 2.11, 1.41, 2.9 against 1.
    assert joint_ranks(theta, samples, references, np.array([3.0, 1.0])).tolist() == [0, 0]


def test_coverage_counts_ranks_in_the_middle():
    given = np.array([0, 4, 5, 9, 12, 14, 15, 19])[:, None]  # Of 19 samples: cells of 5 %.
    assert coverage(given, 19, 0.5).tolist() == [4 / 8]  # From rank 5 to rank 14.
    assert coverage(given, 19, 0.9).tolist() == [6 / 8]  # From rank 1 to rank 18.


def test_a_cell_that_an_end_cuts_counts_in_part():
    # Four cells; the middle 80 % of the unit interval hold 0.6 of the outer ones.
    given = np.array([[0], [1], [2], [3]])
    assert coverage(given, 3, 0.8).tolist() == pytest.approx([(0.6 + 1 + 1 + 0.6) / 4])
    assert coverage(given[:1], 3, 0.8).tolist() == pytest.approx([0.6])


@pytest.mark.parametrize("n_samples", [19, 20, 255, 399])
@pytest.mark.parametrize("level", LEVELS)
def test_uniform_ranks_are_covered_as_the_level_says(n_samples, level):
    every = np.arange(n_samples + 1)
    assert coverage(every, n_samples, level) == pytest.approx(level, abs=1e-12)
    assert joint_coverage(every, n_samples, level) == pytest.approx(level, abs=1e-12)


def test_joint_coverage_counts_ranks_from_the_reference_outwards():
    given = np.array([0, 1, 2, 3, 3])
    assert joint_coverage(given, 3, 0.5) == pytest.approx(2 / 5)
    assert joint_coverage(given, 3, 0.875) == pytest.approx((3 + 0.5 + 0.5) / 5)


# The band.


def exact_share_inside(n_draws, n_samples, lower, upper) -> float:
    """P(the counts of uniform ranks stay between lower and upper): a sum over all paths."""
    cells, count = n_samples + 1, np.arange(n_draws + 1)
    share = (count == 0).astype(float)
    for j in range(1, n_samples + 1):
        # Each rank not yet counted is the next with this probability.
        next_one = binom.pmf(
            count[None, :] - count[:, None], n_draws - count[:, None], 1 / (cells - j + 1)
        )
        share = share @ next_one
        share[(count < lower[j - 1]) | (count > upper[j - 1])] = 0.0
    return share.sum()


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_uniform_ranks_stay_inside_the_band_as_often_as_it_says(level):
    """Against the exact probability. Counts are whole, so a band holds a little more, not less."""
    n_draws, n_samples = 150, 19
    found = band(n_draws, n_samples, level)
    ends = (np.round(end * n_draws).astype(int) for end in (found.lower, found.upper))
    exact = exact_share_inside(n_draws, n_samples, *ends)
    error = np.sqrt(level * (1 - level) / 10_000)
    assert level - BOUND * error < exact < level + (1 - level) / 3 + BOUND * error


def test_a_p_value_says_whether_ranks_leave_the_band():
    rng = np.random.default_rng(3)
    n_draws, n_samples = 300, 49
    differed = set()
    for power in np.linspace(1.0, 1.4, 60):  # From uniform to clearly not so.
        given = np.floor(rng.random(n_draws) ** power * (n_samples + 1)).astype(int)
        ecdf = np.array([(given < k).mean() for k in range(1, n_samples + 1)])
        for level in (0.8, 0.95, 0.99):
            found = band(n_draws, n_samples, level)
            inside = bool(((ecdf >= found.lower - 1e-9) & (ecdf <= found.upper + 1e-9)).all())
            assert inside == (p_value(given, n_samples) > 1 - level)
            differed.add(inside)
    assert differed == {True, False}


def test_right_posteriors_are_called_wrong_as_often_as_the_band_says():
    """Five distributions of ranks share the 5 %: four parameters and their joint."""
    rng = np.random.default_rng(1)
    n_sets = 2000
    alarms, single = [], []
    for _ in range(n_sets):
        given = rng.integers(0, L + 1, (200, 5))
        found = Calibration(("a", "b", "c", "d"), given[:, :4], given[:, 4], L)
        alarms.append(not found.calibrated)
        single.append(found.p_values[0] <= 0.05)
    error = np.sqrt(0.05 * 0.95 / n_sets)
    assert abs(np.mean(alarms) - 0.05) < BOUND * error
    assert abs(np.mean(single) - 0.05) < BOUND * error


# Posteriors that are right, and some that are not.


def test_a_right_posterior_is_called_right():
    found = judged()
    assert found.calibrated
    assert found.verdicts == ("inside", "inside")
    z = (found.coverage - np.array(LEVELS)[:, None]) / found.standard_errors[:, None]
    assert np.abs(z).max() < BOUND
    assert np.abs((found.joint_coverage - LEVELS) / found.standard_errors).max() < BOUND
    assert found.sentence == "calibrated, as far as 2000 draws can tell."


def test_standard_errors_are_the_spread_of_coverages():
    rng = np.random.default_rng(5)
    given = rng.integers(0, L + 1, (500, 400))  # 400 sets of 500.
    for level, error in zip(
        LEVELS, Calibration(("a",), given, given[:, 0], L).standard_errors, strict=True
    ):
        spread = coverage(given, L, level).std()
        assert spread == pytest.approx(error, rel=BOUND / np.sqrt(2 * 400))


@pytest.mark.parametrize("power", [1.5, 2.0])
def test_a_posterior_sharpened_by_half_is_called_too_narrow(power):
    """Its log-density times 1.5; and times 2, which halves the variance."""
    found = judged(power=power)
    assert not found.calibrated
    assert found.verdicts == ("too narrow", "too narrow")
    assert not found.joint_inside
    # By hand: the interval of a normal that is narrower by the root of the power.
    normal = NormalDist()
    expected = 2 * normal.cdf(normal.inv_cdf(0.95) / np.sqrt(power)) - 1
    error = np.sqrt(expected * (1 - expected) / N)
    assert np.abs(found.coverage[LEVELS.index(0.9)] - expected).max() < BOUND * error
    assert "not calibrated: a (too narrow), b (too narrow), all together." in found.sentence


def test_a_flattened_posterior_is_called_too_wide():
    found = judged(power=0.6)
    assert found.verdicts == ("too wide", "too wide")
    assert found.largest_gap > 0.05


@pytest.mark.parametrize(("shift", "verdict"), [(0.3, "too high"), (-0.3, "too low")])
def test_a_biased_posterior_is_called_so_for_the_parameter_that_is(shift, verdict):
    found = judged(shift=(0.0, shift))
    assert found.inside == (True, False)
    assert found.verdicts[1].split(", ")[0] == verdict
    assert not found.calibrated


def test_right_marginals_with_a_wrong_joint_are_found_by_tarp_alone():
    found = judged(covariance=np.diag(np.diag(COVARIANCE)))
    assert found.inside == (True, True)
    assert not found.joint_inside
    assert not found.calibrated
    assert found.sentence.startswith(f"not calibrated: {JOINT}.")


def test_ranks_in_the_shape_of_neither_a_shift_nor_a_width_are_called_another_shape():
    half = np.array([*range(25), *range(50, 75)])  # Every second quarter of the ranks is empty.
    found = Calibration(("a",), np.tile(half, 20)[:, None], np.arange(1000) % 100, 99)
    assert not found.inside[0]
    # The mean is 12.5 cells too low, so a shift it is; with both halves alike it is none.
    assert found.verdicts == ("too high",)
    gaps = np.array([*range(12, 38), *range(62, 88)])
    found = Calibration(("a",), np.tile(gaps, 20)[:, None], np.arange(1040) % 100, 99)
    assert found.verdicts == ("another shape",)


def test_references_do_not_follow_the_order_of_the_draws():
    """Sorted thetas: the neighbour of each would be a reference that knows its theta."""
    rng = np.random.default_rng(2)
    theta, mean = conjugate(rng)
    order = np.argsort(theta[:, 0])
    found = Calibration.from_samples(theta[order], drawn(rng, mean[order], COVARIANCE))
    assert found.joint_inside
    assert found.names == ("theta[0]", "theta[1]")


def test_units_do_not_matter():
    rng = np.random.default_rng(4)
    theta, mean = conjugate(rng, 500)
    samples, units = drawn(rng, mean, COVARIANCE), np.array([1000.0, 0.01])
    ours = Calibration.from_samples(theta, samples)
    scaled = Calibration.from_samples(theta * units, samples * units)
    assert np.array_equal(ours.ranks, scaled.ranks)
    assert np.abs(ours.joint_ranks - scaled.joint_ranks).max() <= 1  # Rounding may turn a tie.


@pytest.mark.parametrize(
    ("theta", "samples", "words"),
    [
        (np.zeros((3, 2)), np.zeros((3, 9, 1)), "(draw, sample, param)"),
        (np.zeros((3, 2)), np.zeros((2, 9, 2)), "(3, 2) and the samples (2, 9, 2)"),
        (np.zeros((1, 2)), np.zeros((1, 9, 2)), "two draws or more"),
        (np.zeros((3, 2)), np.full((3, 9, 2), np.nan), "not all finite"),
    ],
)
def test_samples_that_cannot_be_judged_are_refused(theta, samples, words):
    with pytest.raises(GreybayesError) as refusal:
        Calibration.from_samples(theta, samples)
    assert words in str(refusal.value)


# What is told.


def test_the_object_for_json_has_all_of_it():
    found = dataclasses.replace(judged(power=1.5), model="conjugate", n_diverged=3)
    facts = json.loads(json.dumps(found.to_dict()))
    assert (facts["model"], facts["draws"], facts["samples"], facts["diverged"]) == (
        "conjugate",
        N,
        L,
        3,
    )
    assert facts["calibrated"] is False
    assert [row["name"] for row in facts["parameters"]] == ["a", "b"]
    assert [row["verdict"] for row in facts["parameters"]] == ["too narrow"] * 2
    assert facts["parameters"][1]["coverage"]["90"] == found.coverage[2, 1]
    assert facts["joint"]["coverage"]["50"] == found.joint_coverage[0]
    assert facts["joint"]["verdict"] == "outside"
    assert facts["standard_errors"]["95"] == pytest.approx(np.sqrt(0.95 * 0.05 / N))


def test_the_table_shows_coverage_in_per_cent():
    found = judged(power=1.5)
    screen = Console(width=120, record=True, file=io.StringIO())
    screen.print(found.table())
    text = screen.export_text()
    assert f"{100 * found.coverage[2, 0]:.1f}" in text
    for words in ("a", "b", JOINT, "too narrow", "outside", "< 0.001", "± 0.5", "95 %"):
        assert words in text


def test_the_figure_has_a_panel_for_each_and_colours_what_is_outside(tmp_path):
    found = judged(shift=(0.0, 0.5))
    figure = plot_calibration(found)
    *panels, below = figure.axes
    titles = ["a: inside", f"b: {found.verdicts[1]}", f"{JOINT}: outside"]
    assert [panel.get_title() for panel in panels] == titles
    lines = [panel.get_lines()[0] for panel in panels]
    assert lines[0].get_color() != lines[1].get_color() == lines[2].get_color()
    at, lower, upper = found.band
    for line, given in zip(lines, [*found.ranks.T, found.joint_ranks], strict=True):
        ecdf = np.array([(given < k).mean() for k in range(1, L + 1)])
        np.testing.assert_allclose(line.get_ydata(), ecdf - at)
    assert (lines[0].get_ydata() >= lower - at - 1e-9).all()
    assert (lines[0].get_ydata() <= upper - at + 1e-9).all()
    gap = below.get_lines()[1].get_ydata()[90]
    assert gap == pytest.approx(100 * (found.coverage[2, 1] - 0.9))
    save_figure(tmp_path / "a.svg", figure)
    assert (tmp_path / "a.svg").read_text().count("<svg") == 1


def test_the_figure_of_many_parameters_has_rows_and_no_legend():
    rng = np.random.default_rng(0)
    names = tuple(f"b[{i}]" for i in range(8))
    figure = plot_calibration(
        Calibration(names, rng.integers(0, 20, (200, 8)), rng.integers(0, 20, 200), 19)
    )
    assert len(figure.axes) == 10
    assert figure.axes[-1].get_legend() is None


# Estimators.


def test_a_trained_estimator_is_judged_from_end_to_end(tiny):
    told = []
    found = calibration(tiny, 2500, 3, watch=told.append)
    assert told == [1250, 2500]
    assert found.names == tiny.names
    assert (found.n_draws, found.n_diverged, found.model) == (2500, 0, "linear-gaussian")
    assert found.ranks.min() >= 0
    assert found.ranks.max() <= found.n_samples == 399
    # After 200 steps it is no good posterior, but one that has begun to learn what is covered.
    assert found.largest_gap < 0.2
    assert np.abs(found.joint_coverage - LEVELS).max() < 0.2


def test_same_key_same_result(tiny):
    ours, again, other = (calibration(tiny, 200, key, n_samples=99) for key in (5, 5, 6))
    assert np.array_equal(ours.ranks, again.ranks)
    assert np.array_equal(ours.joint_ranks, again.joint_ranks)
    assert not np.array_equal(ours.ranks, other.ranks)


def test_the_ranks_are_those_of_fresh_draws_in_their_posteriors(tiny, monkeypatch):
    """Every posterior replaced by one that is known: the truth above, or below, all samples."""

    class Far:
        def sample(self, n, rng):
            return np.broadcast_to(np.array([-9.0, 9.0, -9.0, 9.0]), (n, 4))

    monkeypatch.setattr(gb.Estimator, "posteriors", lambda self, y, u=None: [Far()] * len(y))
    found = calibration(tiny, 200)
    assert (found.ranks == [399, 0, 399, 0]).all()
    assert found.coverage.max() == 0.0
    assert found.verdicts[0].split(", ")[0] in ("too low", "too narrow")


def test_mixtures_are_right_for_their_own_draws_and_too_narrow_when_sharpened():
    """Theta drawn from the mixture itself; then samples of its density to the power of 1.5."""
    rng = np.random.default_rng(0)
    line = Line(("interval", "real"), ((0.0, 2.0), ()), (0.0, 0.0), (1.0, 1.0))
    posteriors = []
    for centre in rng.normal(size=(800, 2)):
        # Two components side by side, a quarter as wide as the prior, and correlated.
        parts = np.zeros(2), centre, centre + 0.2, np.full(4, np.log(4.0)), rng.normal(size=2)
        posteriors.append(Mixture(line, np.concatenate(parts), 2))
    theta = np.concatenate([posterior.sample(1, rng) for posterior in posteriors])
    samples = np.stack([posterior.sample(99, rng) for posterior in posteriors])
    assert Calibration.from_samples(theta, samples).calibrated
    sharp = []
    for posterior in posteriors:
        many = posterior.sample(1000, rng)
        weight = np.exp(0.5 * posterior.log_prob(many))
        sharp.append(many[rng.choice(len(many), 99, p=weight / weight.sum())])
    found = Calibration.from_samples(theta, np.stack(sharp))
    assert not found.calibrated
    assert all("too narrow" in verdict for verdict in found.verdicts), found.verdicts


def test_records_that_diverge_are_left_out_and_counted(tiny, monkeypatch):
    original = gb.simulate

    def spoiled(*given, count, **rest):
        paths = original(*given, count=count, **rest)
        diverged = np.arange(count) % 10 == 0
        y = np.where(diverged[:, None, None], np.nan, paths.y)
        return dataclasses.replace(paths, y=y, diverged=diverged)

    monkeypatch.setattr("greybayes.diagnose.calibration.simulate", spoiled)
    found = calibration(tiny, 200, n_samples=39)
    assert (found.n_draws, found.n_diverged) == (180, 20)

    def hopeless(*given, count, **rest):
        return dataclasses.replace(
            original(*given, count=count, **rest), diverged=np.ones(count, bool)
        )

    monkeypatch.setattr("greybayes.diagnose.calibration.simulate", hopeless)
    with pytest.raises(EstimatorError, match="nearly every path diverged"):
        calibration(tiny, 200, n_samples=39)


def test_an_estimator_for_random_inputs_sees_the_input_of_each_record(compiled):
    fixed = untrained("linear-gaussian", n_reference=64)
    arrays = {name: array for name, array in fixed.arrays.items() if name != "input"}
    free = gb.Estimator({**fixed.header, "input": parse("prbs").to_dict()}, arrays)
    assert free.input is None
    assert calibration(free, 100, n_samples=39).n_draws == 100


def test_an_estimator_of_the_mean_alone_is_refused(compiled):
    estimator = untrained("linear-gaussian", head="bounded", n_reference=64)
    with pytest.raises(EstimatorError, match="has no posterior to check; train one that has"):
        calibration(estimator)


@pytest.mark.parametrize(("n_draws", "n_samples"), [(99, 39), (100, 38)])
def test_too_few_draws_are_refused(tiny, n_draws, n_samples):
    with pytest.raises(EstimatorError, match="fewer show nothing"):
        calibration(tiny, n_draws, n_samples=n_samples)
