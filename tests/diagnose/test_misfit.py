"""Checks of a fit: records of the model pass, spoilt ones are found, and the sentence says why."""

import functools
import itertools
import json

import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal
from rich.console import Console

import greybayes as gb
from greybayes.diagnose.misfit import Misfit, check_fit
from greybayes.diagnose.predictive import _statistics, drawn_thetas, predictive_checks
from greybayes.errors import GreybayesError, Status
from greybayes.zoo.coupled_drives import CoupledDrives

COUNT = 4


LINEAR = np.array([0.7, 1.0, 0.1, 0.1])


@functools.cache
def paths(name: str) -> gb.Paths:
    # Where the state is nearly a random walk, an offset cannot be told from it.
    theta = LINEAR if name == "linear-gaussian" else None
    return gb.simulate(name, theta, count=12, key=21)


def check(name: str, record: gb.Record, estimate: gb.Estimate) -> Misfit:
    return check_fit(name, record, estimate, n_particles=1024)


def truth(model: gb.Model | str, theta) -> gb.Estimate:
    """An estimate that is right, and knows nothing of its uncertainty."""
    return gb.Estimate(gb.get_model(model).prior.names, np.asarray(theta, float))


@pytest.mark.parametrize("name", ["linear-gaussian", "fir", "coupled-drives", "growth2"])
def test_records_of_the_model_pass(name):
    made = paths(name)
    found = [check(name, record, truth(name, made.theta[i])) for i, record in enumerate(made)]
    # Of 12, three and more would fail in one of 5000 such tests.
    assert sum(misfit.status is Status.misfit for misfit in found) <= 2
    assert all((misfit.p < 0.01) == (misfit.failed != ()) for misfit in found)
    # And not because nothing ever fails: single p-values are spread as they should be.
    p = np.array([c.p for m in found for c in m.checks if c.name in ("offset", "variance", "std")])
    assert 0.3 < p.mean() < 0.7
    assert p.min() < 0.2 < 0.8 < p.max()


def spoilt(name: str, change) -> list[gb.Record]:
    rng = np.random.default_rng(4)
    made = paths(name)
    return [gb.Record(change(made.y[i].astype(float), rng), made.u[i]) for i in range(COUNT)]


def stuck(y, rng):
    return np.concatenate([y[:100], np.tile(y[100], (20, 1)), y[120:]])


def coloured(y, rng):
    return y + scipy.signal.lfilter([0.5], [1, -0.8], rng.standard_normal(y.shape), axis=0)


SPOILT = {
    "offset": ("linear-gaussian", lambda y, rng: y + 2.0, "offset", "a sensor's offset"),
    "offset of the growth model": ("growth2", lambda y, rng: y + 3.0, "offset", "offset"),
    "noise": (
        "fir",
        lambda y, rng: y + 0.3 * rng.standard_normal(y.shape),
        "variance",
        "times the variance that the model gives them: widen the prior of the noise",
    ),
    "coloured noise": ("fir", coloured, "whiteness", "are not white (autocorrelation 0."),
    "dead sensor": ("coupled-drives", stuck, "run", "y stays at one value for 20 samples"),
    "dead sensor of the growth model": ("growth2", stuck, "run", "one value for 20 samples"),
    "spike": (
        "linear-gaussian",
        lambda y, rng: y + 12.0 * (np.arange(len(y)) == 100)[:, None],
        "tails",
        "standard deviations at sample 101: look for outliers",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_is_wrong_is_found_and_said(case):
    name, change, failed, words = SPOILT[case]
    for i, record in enumerate(spoilt(name, change)):
        misfit = check(name, record, truth(name, paths(name).theta[i]))
        assert misfit.status is Status.misfit
        assert failed in {c.name for c in misfit.failed}
        assert words in misfit.sentence


@functools.cache
def late_drives() -> gb.Paths:
    made = paths("coupled-drives")
    return gb.simulate(CoupledDrives(input_delay=1), made.theta[:COUNT], count=COUNT, key=3)


def test_a_delay_of_one_sample_is_found_after_theta_made_the_best_of_it():
    for record in late_drives():
        # As a fit does it, the other parameters take over a part of the delay.
        estimate = gb.least_squares("coupled-drives", record, settings={"n_starts": 2})
        misfit = check_fit("coupled-drives", record, estimate)
        assert "delay" in {check.name for check in misfit.failed}
        assert "samples later than the model says: change input_delay" in misfit.sentence


def test_the_model_that_has_the_delay_passes():
    made = late_drives()
    found = [check_fit(made.model, made[i], truth(made.model, made.theta[i])) for i in range(3)]
    assert [misfit.status for misfit in found] == [Status.ok] * 3


def test_the_measured_drives_are_late(shared_data):
    (record,) = gb.read_records(f"{shared_data}/DATAPRBS.MAT:y=z1,u=u1,dt=0.02")
    # The published least-squares estimate, for a model without a delay.
    published = truth("coupled-drives", [1.993, 5.800, 20.14, 0.1156, 0.0099])
    misfit = check_fit("coupled-drives", record, published)
    (delay,) = [check for check in misfit.checks if check.name == "delay"]
    assert 0.4 < delay.value < 1.2
    assert delay.p < 1e-6
    assert misfit.sentence.startswith(f"u seems to arrive {delay.value:.2g} samples later")
    # Its converter repeats a value up to four times: no dead sensor.
    assert "dead" not in misfit.sentence


class Drawn(gb.Model):
    """An observation without a density: there are no residuals."""

    level = gb.Parameter(dist.Uniform(0.0, 2.0))
    states, inputs, outputs = ("x",), (), ("y",)

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)

    def observation(self, x, u, p, t):
        return gb.Sampler(lambda key: p.level + x + jr.normal(key, (1,)))


def test_without_a_density_records_are_compared_all_the_same():
    model = Drawn()
    record = gb.simulate(model, np.array([1.0]), key=2)[0]
    misfit = check_fit(model, record, truth(model, [1.0]))
    assert misfit.residuals is None
    assert misfit.status is Status.ok
    moved = check_fit(model, gb.Record(record.y + 1.0), truth(model, [1.0]))
    assert {check.name for check in moved.failed} >= {"mean"}
    assert "y has a mean of" in moved.sentence
    assert "look for an offset" in moved.sentence


def test_gaps_are_left_out_and_not_taken_for_a_run():
    made = paths("linear-gaussian")
    y = made.y[0].astype(float).copy()
    y[50:90] = np.nan
    misfit = check_fit("linear-gaussian", gb.Record(y, made.u[0]), truth(*_first(made)))
    assert misfit.status is Status.ok
    assert np.isnan(misfit.residuals).sum() == 40


def _first(made: gb.Paths):
    return made.model, made.theta[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda y: 0.0 * y, "y stays at one value for 200 samples: look for a dead or saturated"),
        (lambda y: 0.0 * y + 3.0, "y stays at one value for 200 samples"),
        (lambda y: 50.0 * y, "look at its unit"),
        (lambda y: np.where(np.arange(len(y))[:, None] == 70, 1e3, y), "outlier"),
    ],
)
def test_the_sentence_names_the_likely_cause(change, sentence):
    record = paths("linear-gaussian")[0]
    spoilt = gb.Record(change(record.y), record.u)
    assert sentence in check("linear-gaussian", spoilt, truth("linear-gaussian", LINEAR)).sentence


def test_a_coarse_converter_is_no_dead_sensor():
    for i, record in enumerate(paths("linear-gaussian")):
        rounded = gb.Record(np.round(2 * record.y) / 2, record.u)
        misfit = check_fit("linear-gaussian", rounded, truth("linear-gaussian", LINEAR), key=i)
        (run,) = [c for c in misfit.checks if c.name == "run"]
        assert run.value >= 3
        assert run.p > 0.01


# Where theta comes from.


class Two:
    """A posterior with two values, one of them outside the prior."""

    def sample(self, n, rng):
        inside = rng.uniform(size=n) < 0.5
        return np.where(inside[:, None], [0.5, 1.0, 0.1, 0.1], [1.5, 1.0, 0.1, 0.1])

    def log_prob(self, theta):
        return np.zeros(theta.shape[:-1])


MEAN = np.array([0.5, 1.0, 0.1, 0.1])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"covariance": np.diag([1.0, 0.01, 1e-4, 1.0])},
        {"samples": np.stack([MEAN, MEAN + 0.1, MEAN + 9.0]), "weights": np.array([1.0, 3.0, 9.0])},
        {"posterior": Two()},
    ],
    ids=["mean", "covariance", "samples", "posterior"],
)
def test_theta_is_drawn_from_all_that_an_estimate_knows(more):
    model = gb.get_model("linear-gaussian")
    estimate = gb.Estimate(model.prior.names, MEAN, **more)
    thetas = drawn_thetas(model, estimate, 4000, jr.key(0))
    model.prior.vectors(thetas)  # Raises where one is outside.
    if "covariance" in more:
        # Of one that the prior does not cut, the spread is what was given.
        assert thetas[:, 1].std() == pytest.approx(0.1, rel=0.05)
    elif "samples" in more:
        assert np.mean(thetas[:, 0] == 0.6) == pytest.approx(0.75, abs=0.03)
    else:
        np.testing.assert_array_equal(thetas, np.tile(MEAN, (4000, 1)))


def test_uncertainty_widens_what_is_expected():
    made = paths("linear-gaussian")
    model, theta = _first(made)
    wide = gb.Estimate(model.prior.names, theta.astype(float), np.diag([0.01, 0.01, 0.01, 0.01]))
    known, unknown = (check_fit(model, made[0], e) for e in (truth(model, theta), wide))
    for a, b in zip(known.checks, unknown.checks, strict=True):
        if a.name in ("std", "largest"):
            assert np.ptp(b.expected) > 1.1 * np.ptp(a.expected)


# Statistics, one by one, in plain Python.


def test_statistics_are_what_their_names_say():
    made = paths("linear-gaussian")
    y, u = made.y[1].astype(float).copy(), made.u[1].astype(float)
    y[[3, 60, 61]] = np.nan
    y[100:107] = y[99]
    filled = np.where(np.isnan(y), 123.0, y)[None]  # What is in a gap must not matter.
    found = {name[0]: float(v[0]) for name, v in _statistics(made.model, filled, y, u).items()}
    column, seen = y[:, 0], ~np.isnan(y[:, 0])
    centred = np.where(seen, column - column[seen].mean(), 0.0)
    total = (centred**2).sum()
    assert found["mean"] == pytest.approx(np.nanmean(column))
    assert found["std"] == pytest.approx(np.nanstd(column))
    assert found["largest"] == np.nanmax(np.abs(column))
    assert found["run"] == max(len(list(g)) for _, g in itertools.groupby(column[seen])) == 8
    for lag in (1, 5):
        pairs = [centred[k] * centred[k + lag] for k in range(len(column) - lag)]
        assert found[f"lag {lag}"] == pytest.approx(sum(pairs) / total)
    late = [np.concatenate([np.full(h, u[0, 0]), u[: len(u) - h, 0]]) for h in range(21)]
    expected = [
        abs(centred @ (v - v.mean())) / np.sqrt(total * ((v - v.mean()) ** 2).sum()) for v in late
    ]
    assert found["follows"] == pytest.approx(max(expected))


def test_a_predictive_p_value_is_a_rank():
    made = paths("fir")
    y, u = made.y[0].astype(float), made.u[0].astype(float)
    thetas = np.tile(made.theta[0].astype(float), (199, 1))
    checks = predictive_checks(made.model, thetas, y, u, jr.key(1))
    fresh = gb.simulate(made.model, thetas, inputs=u, count=199, key=jr.fold_in(jr.key(1), 0))
    drawn = _statistics(made.model, fresh.y, y, u)["std", "y", ""]
    (std,) = [check for check in checks if check.name == "std"]
    rank = min((drawn <= std.value).sum(), (drawn >= std.value).sum())
    assert std.p == pytest.approx(min(1.0, 2 * (1 + rank) / 200))
    assert std.expected == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


# The border.


def test_a_result_can_be_printed_and_repeated():
    model, made = "linear-gaussian", paths("linear-gaussian")
    record = gb.Record(made.y[0] + 2.0, made.u[0])
    first, again = (check_fit(model, record, truth(*_first(made)), key=5) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    told = json.loads(json.dumps(first.to_dict()))
    assert told["status"] == "misfit"
    assert told["p"] == min(row["adjusted_p"] for row in told["checks"]) < 0.01
    console = Console(width=120, record=True, file=None, quiet=True)
    console.print(first.table())
    assert len(first.table().rows) == len(first.checks)
    assert first.failed[0].name == "offset"


def test_a_level_that_is_asked_for_is_kept():
    made = paths("linear-gaussian")
    misfit = check_fit("linear-gaussian", made[0], truth(*_first(made)), level=0.999999)
    assert misfit.level == 0.999999
    assert len(misfit.failed) == sum(misfit.adjusted < 0.999999)


class Explodes(gb.Model):
    rate = gb.Parameter(dist.Uniform(0.0, 1e6))
    states, inputs, outputs = ("x",), (), ("y",)

    def initial(self, u, p):
        return gb.Known(1.0)

    def transition(self, x, u, p, t):
        return gb.Known(p.rate * x)

    def observation(self, x, u, p, t):
        return gb.Sampler(lambda key: x + jr.normal(key, (1,)))


def test_what_cannot_be_checked_is_said():
    record = gb.Record(np.zeros(200))
    estimate = truth("fir", [1.0, 0.5])
    with pytest.raises(GreybayesError, match=r"is one of theta\[0\], theta\[1\]; Line"):
        check_fit("linear-gaussian", record, estimate)
    with pytest.raises(GreybayesError, match="the level is 5, expected one in"):
        check_fit("fir", gb.Record(np.zeros(20), np.ones(20)), estimate, level=5.0)
    with pytest.raises(GreybayesError, match="n_draws is 3, expected 20 or more"):
        check_fit("fir", gb.Record(np.zeros(20), np.ones(20)), estimate, n_draws=3)
    with pytest.raises(GreybayesError, match="drawn from the estimate only 0 are finite"):
        check_fit(Explodes(), record, truth(Explodes(), [1e6]))
