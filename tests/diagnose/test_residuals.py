"""Residuals against oracles: independent formulas, the Kalman filter, and the tests' own size."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal
from scipy.stats import binom, kstest, norm

import greybayes as gb
from greybayes.diagnose.checks import (
    arrives_late,
    autocorrelation,
    band,
    cross_correlation,
    follows_input,
    holm,
    offset,
    residual_checks,
    tails,
    variance,
    whiteness,
)
from greybayes.diagnose.residuals import residuals
from greybayes.errors import GreybayesError, ModelError, ThetaError
from greybayes.zoo.linear_gaussian import LinearGaussian

LINEAR = [0.7, 1.0, 0.3, 0.2]


class BentLinear(LinearGaussian):
    """The same system, written so that Kalman's formulas are not found."""

    def transition(self, x, u, p, t):
        # Not affine by its program, though it is by value.
        return dist.Normal(p.a * jnp.abs(x) * jnp.sign(x) + p.b * u, jnp.sqrt(p.q))


BENT = BentLinear()


class Level(gb.Model):
    """A constant with noise that is not normal: Student's, or counts."""

    level = gb.Parameter(dist.Uniform(0.0, 20.0))
    states, inputs, outputs = ("x",), (), ("y",)
    noise: str = "student"

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)

    def observation(self, x, u, p, t):
        if self.noise == "student":
            return dist.StudentT(5.0, p.level + x, 2.0)
        return dist.Poisson(p.level + x)


class TwoOutputs(gb.Model):
    """Two independent outputs of one walk; the transition is not affine."""

    size = gb.Parameter(dist.Uniform(0.1, 2.0))
    states, inputs, outputs = ("x",), (), ("y", "z")

    def initial(self, u, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, x, u, p, t):
        return dist.Normal(jnp.sin(x), p.size)

    def observation(self, x, u, p, t):
        return gb.Channels(y=dist.Normal(x[0], 0.5), z=dist.Laplace(2 * x[0], 0.5))


@pytest.fixture(scope="module")
def linear():
    return gb.simulate("linear-gaussian", np.array(LINEAR), key=3)[0]


def with_gaps(record: gb.Record) -> gb.Record:
    y = record.y.copy()
    y[[0, 7, 50, 51, 199]] = np.nan
    return gb.Record(y, record.u)


def test_without_process_noise_they_are_errors_over_their_standard_deviation():
    record = gb.simulate("fir", {"theta": [1.0, 0.5]}, key=1)[0]
    u = record.u[:, 0]
    error = record.y[:, 0] - u - 0.5 * np.concatenate([[0.0], u[:-1]])
    e = residuals("fir", [1.0, 0.5], with_gaps(record))
    seen = ~np.isnan(e[:, 0])
    assert np.flatnonzero(~seen).tolist() == [0, 7, 50, 51, 199]
    np.testing.assert_allclose(e[seen, 0], error[seen] / 0.3, rtol=1e-6)


def test_of_a_linear_gaussian_model_they_whiten_the_joint_distribution(linear):
    n, (a, b, q, r) = 40, LINEAR
    short = gb.Record(linear.y[:n], linear.u[:n])
    u, covariance, mean = short.u[:, 0], np.zeros((n, n)), np.zeros(n)
    for k in range(1, n):
        mean[k] = a * mean[k - 1] + b * u[k - 1]
        covariance[k, k] = a**2 * covariance[k - 1, k - 1] + q
    for k in range(n):
        for later in range(k + 1, n):
            covariance[k, later] = covariance[later, k] = a ** (later - k) * covariance[k, k]
    root = np.linalg.cholesky(covariance + r * np.eye(n))
    expected = np.linalg.solve(root, short.y[:, 0] - mean)
    np.testing.assert_allclose(residuals("linear-gaussian", LINEAR, short)[:, 0], expected, 1e-4)


def test_those_of_particles_are_those_of_the_kalman_filter(linear):
    record = with_gaps(linear)
    exact = residuals("linear-gaussian", LINEAR, record)[:, 0]
    drawn = residuals(BENT, LINEAR, record, key=1, n_particles=2048)[:, 0]
    np.testing.assert_array_equal(np.isnan(drawn), np.isnan(exact))
    error = (drawn - exact)[~np.isnan(exact)]
    # A rank among 2048 draws: sqrt(p (1 - p) / 2048) over the normal density, 0.03 in the middle.
    assert np.sqrt(np.mean(error**2)) < 0.1
    again = residuals(BENT, LINEAR, record, key=1, n_particles=2048)[:, 0]
    np.testing.assert_array_equal(drawn, again)


def test_an_outlier_is_far_out_whoever_predicts_it(linear):
    y = linear.y.copy()
    y[100] += 10.0
    record = gb.Record(y, linear.u)
    exact = residuals("linear-gaussian", LINEAR, record)[100, 0]
    drawn = residuals(BENT, LINEAR, record, n_particles=2048)[100, 0]
    assert exact > 8
    # The tail is continued exponentially, which is heavier than a normal one.
    assert 5 < drawn < exact


@pytest.mark.accuracy
@pytest.mark.parametrize("noise", ["student", "poisson"])
def test_noise_that_is_not_normal_has_normal_scores(noise):
    model = Level(noise=noise, n_steps=1000)
    record = gb.simulate(model, np.array([8.0]), key=4)[0]
    e = residuals(model, [8.0], record)[:, 0]
    assert kstest(e, "norm").pvalue > 0.01
    if noise == "student":
        from scipy.stats import t

        exact = norm.ppf(t(5, 8.0, 2.0).cdf(record.y[:, 0]))
        middle = np.abs(exact) < 2
        assert np.abs(e - exact)[middle].max() < 0.25
    assert kstest(residuals(model, [10.0], record)[:, 0], "norm").pvalue < 1e-6


def test_outputs_are_scored_one_by_one_with_the_gaps_of_each():
    model = TwoOutputs(n_steps=400)
    record = gb.simulate(model, np.array([0.6]), key=5)[0]
    y = record.y.copy()
    y[10:20, 0] = np.nan
    e = residuals(model, [0.6], gb.Record(y, record.u))
    np.testing.assert_array_equal(np.isnan(e), np.isnan(y))
    for column in e.T:
        assert kstest(column[~np.isnan(column)], "norm").pvalue > 0.01


def test_what_cannot_be_scored_is_said():
    class Silent(Level):
        def observation(self, x, u, p, t):
            return gb.Known(p.level + x)

    record = gb.Record(np.ones(30))
    with pytest.raises(ModelError, match="a residual cannot serve Silent: its observation has no"):
        residuals(Silent(), [1.0], record)
    with pytest.raises(ThetaError, match="level = 30 is outside the support"):
        residuals(Level(), [30.0], record)

    class Certain(Level):
        def observation(self, x, u, p, t):
            return dist.Normal(p.level + x, 0.0 * p.level)

    with pytest.raises(GreybayesError, match=r"sample 1 of the record has no residual under Certa"):
        residuals(Certain(), [1.0], record)


# The tests of residuals, on white and on coloured noise that NumPy made.

TRIES = 1000
N = 200
PRBS = np.repeat(np.sign(np.random.default_rng(8).standard_normal(N // 4)), 4)
COSINE = np.cos(1.2 * np.arange(N))


def rejected(test, noise, level=0.01) -> float:
    return float(np.mean([test(e)[1] < level for e in noise]))


def white(n=N, tries=TRIES, seed=0):
    return np.random.default_rng(seed).standard_normal((tries, n))


def gaps(noise):
    """A fifth of the samples missing, some in a row."""
    missing = np.random.default_rng(9).uniform(size=noise.shape[1]) < 0.15
    missing[40:50] = True
    return np.where(missing, np.nan, noise)


def near_level(share: float, level: float = 0.01, tries: int = TRIES) -> bool:
    """Whether a share of rejections can be that of a test of this level."""
    low, high = binom.ppf([1e-4, 1 - 1e-4], tries, level) / tries
    return low <= share <= high


@pytest.mark.parametrize(
    "test",
    [
        offset,
        variance,
        whiteness,
        lambda e: follows_input(e, PRBS),
        lambda e: follows_input(e, COSINE),
    ],
    ids=["offset", "variance", "whiteness", "prbs", "cosine"],
)
@pytest.mark.parametrize("spoil", [lambda e: e, gaps], ids=["whole", "gaps"])
def test_white_residuals_fail_as_often_as_the_level_says(test, spoil):
    assert near_level(rejected(test, spoil(white())))


def test_the_tails_of_normal_residuals_fail_hardly_more_often_than_the_level_says():
    # Anscombe and Glynn's approximation: 1.2 % was measured on 100,000 tries of 200 samples.
    assert near_level(rejected(tails, white()), 0.012)


def test_all_tests_together_have_the_level():
    verdicts = []
    for e in white(seed=2):
        checks = residual_checks(e[:, None], PRBS[:, None], ("y",), ("u",))
        verdicts.append(holm(np.array([check.p for check in checks])).min() < 0.01)
    assert [check.name for check in checks] == ["offset", "variance", "whiteness", "tails", "input"]
    assert near_level(float(np.mean(verdicts)))


def test_whiteness_is_right_also_where_few_must_fail():
    # Of plain autocorrelations, seven times as many would be beyond the 0.1 % point.
    assert near_level(rejected(whiteness, white(n=100, tries=2000), 0.001), 0.001, 2000)


def coloured(noise):
    """Autocorrelation 0.5, variance 1."""
    return scipy.signal.lfilter([np.sqrt(0.75)], [1, -0.5], noise, axis=1)


SPOILT = {
    "offset": (offset, lambda e: e + 0.4, 0.4, None),
    "variance": (variance, lambda e: 1.3 * e, 1.69, None),
    "quiet": (variance, lambda e: 0.77 * e, 0.6, None),
    "whiteness": (whiteness, coloured, 0.5, 1),
    "tails": (tails, lambda e: np.where(np.arange(N) == 150, 6.5, e), 6.5, 151),
    "prbs": (lambda e: follows_input(e, PRBS), lambda e: e + 0.6 * np.roll(PRBS, 3), 0.5, 3),
    "cosine": (lambda e: follows_input(e, COSINE), lambda e: e + 0.6 * COSINE, 0.4, None),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_wrong_is_found_and_measured(name):
    test, spoil, value, at = SPOILT[name]
    noise = spoil(white(tries=200, seed=1))
    assert rejected(test, noise, 0.002) > 0.9
    found = [test(e) for e in noise]
    assert np.median(np.abs([f[0] for f in found])) == pytest.approx(value, rel=0.15)
    if at is not None:
        assert np.mean([f[2] == at for f in found]) > 0.8


def test_a_delay_is_measured_and_what_theta_does_is_not_taken_for_one():
    rng = np.random.default_rng(3)
    slopes = rng.standard_normal((2, N, 1))
    shift = rng.standard_normal((N, 1)) + slopes[0] + 1.0
    noise = white()[:, :, None]
    # Whatever theta is off by, and whatever the offset is: the test does not see it.
    moved = noise + 0.5 * slopes[0] - 2.0 * slopes[1] + 3.0
    assert near_level(rejected(lambda e: arrives_late(e, shift, slopes), moved))
    late = [arrives_late(e - 0.7 * shift, shift, slopes) for e in moved[:200]]
    assert np.mean([found[1] < 0.002 for found in late]) > 0.95
    assert np.mean([found[0] for found in late]) == pytest.approx(0.7, abs=0.03)
    assert arrives_late(noise[0], slopes[0] - slopes[1], slopes) is None


def test_tests_leave_out_what_is_too_short_or_does_not_vary():
    e = white(tries=1)[0]
    assert follows_input(e, np.ones(N)) is None
    assert {c.name for c in residual_checks(e[:8, None], e[:8, None], ("y",), ("u",))} == {
        "offset",
        "variance",
    }
    assert whiteness(np.zeros(N)) is None


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(0).uniform(size=12) ** 3
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1])


def coloured(rng, n=400):
    return scipy.signal.lfilter([1.0], [1.0, -0.5], rng.standard_normal(n))


def test_white_residuals_leave_the_band_of_correlations_as_often_as_it_says():
    """At each lag in 1 % of cases, whatever the colour of the input."""
    rng = np.random.default_rng(0)
    n, n_lags = 400, 20
    outside = np.zeros(2)
    for _ in range(400):
        e = rng.standard_normal(n)
        own = np.abs(autocorrelation(e, n_lags)[1:]) > band(e)
        cross = np.abs(cross_correlation(e, coloured(rng), n_lags)) > band(e)
        outside += own.mean(), cross.mean()
    # Neighbouring lags depend on one another, so the error is that of 400 records, not of lags.
    assert np.all(np.abs(outside / 400 - 0.01) < 0.004)


def test_coloured_residuals_and_those_that_follow_the_input_leave_it():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        u = rng.standard_normal(400)
        e = 0.3 * np.roll(u, 3) + rng.standard_normal(400)
        lag = int(np.abs(cross_correlation(e, u, 20)).argmax()) - 20
        found.append((autocorrelation(coloured(rng), 20)[1] > band(e), lag == 3))
    assert np.mean(found, axis=0).min() > 0.95


def test_correlations_are_those_of_numpy():
    rng = np.random.default_rng(1)
    e, u = rng.standard_normal((2, 50))
    centred, other = e - e.mean(), u - u.mean()
    full = np.correlate(centred, other, "full") / np.sqrt(centred @ centred * (other @ other))
    assert np.allclose(cross_correlation(e, u, 10), full[39:60])
    own = np.correlate(centred, centred, "full") / (centred @ centred)
    assert np.allclose(autocorrelation(e, 10), own[49:60])
