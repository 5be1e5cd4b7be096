"""Least squares against linear algebra, SciPy's bounded solver, and the measured drives."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize
from helpers import assert_mean

import greybayes as gb
from greybayes.classical.least_squares import LeastSquares, least_squares, missing
from greybayes.errors import GreybayesError, ModelError, RecordError, Status, ThetaError
from greybayes.zoo.coupled_drives import CoupledDrives

rng = np.random.default_rng(5)


def regressors(u):
    return np.stack([u, np.concatenate([[0.0], u[:-1]])], axis=1)


def test_a_linear_model_is_linear_algebra_with_gaps_and_lengths_of_their_own():
    records = []
    for n_steps in (30, 50):
        u, y = rng.normal(size=(2, n_steps))
        y[[0, 11]] = np.nan
        records.append(gb.Record(y, u))
    for record, estimate in zip(records, least_squares("fir", records), strict=True):
        seen = record.mask[:, 0]
        X, y = regressors(record.u[:, 0])[seen], record.y[seen, 0]
        theta, (sse,), *_ = np.linalg.lstsq(X, y)
        np.testing.assert_allclose(estimate.mean, theta, rtol=1e-9)
        covariance = sse / (len(y) - 2) * np.linalg.inv(X.T @ X)
        np.testing.assert_allclose(estimate.covariance, covariance, rtol=1e-9)
        assert estimate.diagnostics["sse"] == pytest.approx(sse, rel=1e-9)
        assert estimate.diagnostics["residual_variance"] == pytest.approx(sse / (len(y) - 2))
        assert estimate.diagnostics["n_agree"] == 16
        assert (estimate.status, estimate.model) == (Status.ok, "fir")


N = 40
U = np.repeat(rng.choice([-1.0, 1.0], N // 4), 4)


class Lag(gb.Model):
    """A lag with a bent output; `other` has no part in it, and the noise is in its own units."""

    a = gb.Parameter(dist.Uniform(0.0, 0.95))
    b = gb.Parameter(dist.Uniform(0.0, 2.0))
    other = gb.Parameter(dist.Uniform(1.0, 3.0))
    r = gb.Parameter(dist.HalfNormal(1.0), doc="standard deviation")
    design = None

    def initial(self, u, p):
        return gb.Known(0.5 + 0.0 * p.other)

    def transition(self, x, u, p, t):
        return gb.Known(p.a * x + p.b * u)

    def observation(self, x, u, p, t):
        return dist.Normal(jnp.tanh(x), p.r)


LAG = Lag()
TRUTH = {"a": 0.6, "b": 0.8, "other": 2.0, "r": 0.1}


def lag_output(a, b, u):
    x = [0.5]
    for k in range(len(u) - 1):
        x.append(a * x[k] + b * u[k])
    return np.tanh(x)


@pytest.fixture(scope="module")
def lagging():
    """Many records of one plant, and what is found for each."""
    noise = np.random.default_rng(1).normal(0, TRUTH["r"], size=(200, N))
    records = [gb.Record(y, U) for y in lag_output(TRUTH["a"], TRUTH["b"], U) + noise]
    return records, least_squares(LAG, records, settings={"n_starts": 4})


def test_estimates_scatter_as_their_covariance_says(lagging):
    _, estimates = lagging
    means = np.array([estimate.mean for estimate in estimates])
    variances = np.array([np.diag(estimate.covariance) for estimate in estimates])
    for entry, name in ((0, "a"), (1, "b"), (3, "r")):
        z = (means[:, entry] - TRUTH[name]) / np.sqrt(variances[:, entry])
        assert_mean(z, 0.0)
        assert_mean(z**2, 1.0)


def test_what_is_not_in_the_output_keeps_its_prior(lagging):
    for estimate in lagging[1][:3]:
        assert estimate.diagnostics["insensitive"] == ["other"]
        assert estimate["other"] == pytest.approx(2.0)
        assert estimate.std[2] == pytest.approx(2 / np.sqrt(12))
        np.testing.assert_array_equal(np.delete(estimate.covariance[2], 2), 0.0)


def bounded(record, high):
    """SciPy's answer for (a, b), started in the middle."""
    y, u = record.y[:, 0], record.u[:, 0]
    return scipy.optimize.least_squares(
        lambda theta: y - lag_output(*theta, u),
        [0.5, 1.0],
        bounds=([0.0, 0.0], high),
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )


def test_scipy_finds_the_same_inside(lagging):
    records, estimates = lagging
    for record, estimate in list(zip(records, estimates, strict=True))[:3]:
        theirs = bounded(record, [0.95, 2.0])
        np.testing.assert_allclose(estimate.mean[:2], theirs.x, rtol=1e-6)
        sse = 2 * theirs.cost
        assert estimate.diagnostics["sse"] == pytest.approx(sse, rel=1e-10)
        covariance = sse / (N - 2) * np.linalg.inv(theirs.jac.T @ theirs.jac)
        np.testing.assert_allclose(estimate.covariance[:2, :2], covariance, rtol=1e-4)
        assert estimate["r"] == pytest.approx(np.sqrt(sse / (N - 2)))
        assert estimate.diagnostics["at_bound"] == []


def test_a_bound_is_reached_and_flagged(lagging):
    record = lagging[0][0]
    narrow = LAG.free(a=dist.Uniform(0.0, 0.5), r=dist.Uniform(0.0, 0.05))
    estimate = least_squares(narrow, record, settings={"n_starts": 4})
    theirs = bounded(record, [0.5, 2.0])
    # A little inside: in the unconstrained space, where others go on from here, bounds are far.
    np.testing.assert_allclose(estimate.mean[:2], theirs.x, rtol=1e-5)
    assert estimate.diagnostics["sse"] == pytest.approx(2 * theirs.cost, rel=1e-5)
    assert estimate.diagnostics["at_bound"] == ["a", "r"]
    assert estimate.status is Status.ok
    assert 0.0499 < estimate["r"] < 0.05
    assert narrow.prior.in_support(jnp.asarray(estimate.mean))
    assert estimate["a"] < 0.5


def test_a_record_alone_is_that_of_the_batch_and_the_key_gives_the_bits(lagging):
    records, estimates = lagging
    settings = LeastSquares(n_starts=4)
    alone = [least_squares(LAG, records[:1], settings=settings)[0] for _ in range(2)]
    np.testing.assert_array_equal(alone[0].mean, alone[1].mean)
    np.testing.assert_allclose(alone[0].mean, estimates[0].mean, rtol=1e-6)
    assert alone[0].settings == dataclasses.asdict(settings)
    assert alone[0].method == "least-squares"


def test_a_start_takes_the_place_of_the_draws(lagging):
    records, estimates = lagging
    told = []
    seen = [records[0]]
    for start in (estimates[0], [estimates[0]], estimates[0].mean, estimates[0].mean[None]):
        (estimate,) = least_squares(LAG, seen, start=start, watch=told.append)
        assert estimate.diagnostics["n_starts"] == 1
        np.testing.assert_allclose(estimate.mean, estimates[0].mean, rtol=1e-6)
    # From the end it is at once at the end.
    assert [progress.iteration for progress in told] == [5] * 4
    assert "% of the output's spread" in told[0].note


@pytest.mark.parametrize(
    ("start", "error", "sentence"),
    [
        (np.zeros((2, 4)), GreybayesError, r"start has shape \(2, 4\), expected \(4,\), or \(1, 4"),
        (np.ones(3), ThetaError, "expected .4,.: one value for each of a, b, other, r"),
        ([2.0, 1.0, 2.0, 0.1], ThetaError, r"a = 2 is outside the support of its prior Uniform"),
        ("here", GreybayesError, "start is 'here', expected an Estimate"),
        (gb.Estimate(("k",), np.zeros(1)), ThetaError, "start has k; expected an estimate of a, b"),
    ],
)
def test_a_start_that_does_not_fit_is_a_sentence(start, error, sentence):
    with pytest.raises(error, match=sentence):
        least_squares(LAG, gb.Record(np.zeros(N), U), start=start)


def test_an_end_that_was_not_reached_is_told(lagging):
    estimate = least_squares(LAG, lagging[0][:1], settings={"n_iterations": 2, "n_starts": 4})[0]
    assert estimate.status is Status.unconverged
    assert estimate.diagnostics["n_converged"] < 4


def test_records_that_say_too_little_are_refused():
    with pytest.raises(RecordError, match="has 0 samples that were measured"):
        least_squares(LAG, gb.Record(np.full(N, np.nan), U))
    y = np.full(N, np.nan)
    y[:2] = 0.5
    with pytest.raises(RecordError, match="record 1 has 2 samples that were seen"):
        least_squares(LAG, [gb.Record(y, U)], settings={"n_starts": 4})


def test_settings_are_checked():
    with pytest.raises(GreybayesError, match="n_starts = 0, expected more than 0"):
        least_squares("fir", [], settings={"n_starts": 0})
    with pytest.raises(GreybayesError, match="LeastSquares has no setting starts"):
        least_squares("fir", [], settings={"starts": 3})
    assert least_squares("fir", []) == []


class Mixture(gb.Model):
    """Shares that sum to one, and two outputs in units of their own."""

    share = gb.Parameter(dist.Dirichlet(jnp.ones(3)))
    states, inputs, outputs = ("one", "two"), ("u",), ("y", "z")

    def initial(self, u, p):
        return gb.Known(jnp.zeros(2))

    def transition(self, x, u, p, t):
        return gb.Known(jnp.stack([u[0], x[0]]))

    def observation(self, x, u, p, t):
        mean = p.share @ jnp.concatenate([u, x])
        return dist.Normal(jnp.stack([mean, 1000 * p.share[0] * u[0]]), jnp.array([0.1, 50.0]))


def test_shares_sum_to_one_and_outputs_count_by_their_spread():
    truth = np.array([0.5, 0.3, 0.2])
    lags = np.stack([np.concatenate([np.zeros(lag), U[: N - lag]]) for lag in range(3)], axis=1)
    mean = np.stack([lags @ truth, 1000 * truth[0] * U], axis=1)
    noise = np.random.default_rng(4).normal(0, [0.1, 50.0], size=(100, N, 2))
    records = [gb.Record(y, U) for y in mean + noise]
    estimates = least_squares(Mixture(), records, settings={"n_starts": 2})
    means = np.array([estimate.mean for estimate in estimates])
    np.testing.assert_allclose(means.sum(1), 1.0, rtol=1e-12)
    z = (means - truth) / np.array([estimate.std for estimate in estimates])
    assert_mean(z, 0.0)
    assert_mean(z**2, 1.0)
    variances = [estimate.diagnostics["residual_variance"] for estimate in estimates]
    assert_mean(np.array([v["y"] for v in variances]), 0.01)
    assert_mean(np.array([v["z"] for v in variances]), 2500.0)


def test_process_noise_is_left_out_and_its_variances_keep_their_prior():
    record = gb.Record(np.convolve(U, 0.7 ** np.arange(20))[:N] + rng.normal(size=N), U)
    estimate = least_squares("linear-gaussian", record)
    assert estimate.diagnostics["insensitive"] == ["q", "r"]
    np.testing.assert_allclose(estimate.mean[2:], 0.505, rtol=1e-6)
    a, b = estimate.mean[:2]
    x = [0.0]
    for k in range(N - 1):
        x.append(a * x[k] + b * record.u[k, 0])
    sse = np.sum((record.y[:, 0] - x) ** 2)
    assert estimate.diagnostics["sse"] == pytest.approx(sse, rel=1e-9)


class Explosive(Lag):
    def transition(self, x, u, p, t):
        return gb.Known(jnp.exp(10 * (x + 2)))


def test_a_model_that_leaves_the_numbers_everywhere_is_a_status():
    estimate = least_squares(Explosive(), gb.Record(np.zeros(N), U), settings={"n_starts": 2})
    assert estimate.status is Status.diverged
    assert estimate.covariance is None
    np.testing.assert_allclose(estimate.mean[:2], [0.475, 1.0], rtol=1e-6)


def test_a_sampler_has_no_mean():
    assert missing(LAG) is None
    with pytest.raises(ModelError, match="least-squares cannot serve Sir: its transition has no"):
        least_squares("sir", gb.Record(np.zeros(5)))


@pytest.mark.parametrize(
    ("delay", "alpha", "sse", "theta"),
    [
        (0, None, 24.06, (1.993, 5.800, 20.14, 0.1156)),
        (1, dist.Uniform(4.0, 10.0), 12.68, (1.828, 7.075, 21.07, 0.1075)),
    ],
)
def test_the_measured_drives_reach_their_floor(shared_data, delay, alpha, sse, theta):
    (record,) = gb.read_records(f"{shared_data}/DATAPRBS.MAT:y=z1,u=u1,dt=0.02")
    model = CoupledDrives(input_delay=delay)
    model = model if alpha is None else model.free(alpha=alpha)
    estimate = least_squares(model, record)
    assert estimate.diagnostics["sse"] == pytest.approx(sse, abs=0.005)
    np.testing.assert_allclose(estimate.mean[:4], theta, rtol=5e-4)
    # The published prior of the noise is contradicted by the data.
    assert estimate.diagnostics["residual_variance"] == pytest.approx(sse / 496, rel=1e-3)
    assert estimate.diagnostics["at_bound"] == ["noise_variance"]
    assert estimate["noise_variance"] == pytest.approx(0.01, rel=1e-5)
    assert estimate.status is Status.ok
