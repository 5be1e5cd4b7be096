"""Measured against simulated: the band holds what it promises; gains and information are right."""

import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal
from helpers import BOUND

import greybayes as gb
from greybayes.diagnose.gain import gain
from greybayes.diagnose.information import AT_THE_BOUND, LIKE_THE_PRIOR, OUTSIDE, information
from greybayes.diagnose.output import compare_output
from greybayes.estimate import Estimate
from greybayes.prior import Parameter, Prior

THETA = {"a": 0.7, "b": 1.0, "q": 0.1, "r": 0.1}
TRUTH = Estimate(tuple(THETA), np.array(list(THETA.values())))


def test_without_process_noise_the_output_is_that_of_the_filter():
    record = gb.simulate("fir", np.array([1.0, 0.5]), key=1)[0]
    found = compare_output("fir", record, Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5])))
    expected = scipy.signal.lfilter([1.0, 0.5], [1.0], record.u[:, 0])
    assert np.allclose(found.simulated[:, 0], expected, atol=1e-5)
    # The noise has the variance 0.09, and nothing else is uncertain.
    assert np.allclose((found.upper - found.lower).mean(), 2 * 1.96 * 0.3, rtol=0.03)


def test_the_band_of_a_right_estimate_holds_95_percent():
    paths = gb.simulate("linear-gaussian", THETA, count=20, n_steps=200, key=1)
    shares = [compare_output("linear-gaussian", record, TRUTH).inside[0] for record in paths]
    error = np.std(shares) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - 0.95) < BOUND * error + 0.005  # Quantiles of 500 draws.


def test_with_process_noise_the_output_is_the_mean_of_records():
    record = gb.simulate("linear-gaussian", THETA, n_steps=200, key=1)[0]
    found = compare_output("linear-gaussian", record, TRUTH, n_draws=4000)
    x, expected = 0.0, []
    for u in record.u[:, 0]:
        expected.append(x)
        x = 0.7 * x + u
    spread = (found.upper - found.lower)[:, 0] / (2 * 1.96)
    z = (found.simulated[:, 0] - expected) / (spread / np.sqrt(4000))
    assert np.abs(z).max() < BOUND + 1


def test_same_key_same_band_and_all_of_it_for_json():
    record = gb.simulate("linear-gaussian", THETA, n_steps=200, key=1)[0]
    first, second = (compare_output("linear-gaussian", record, TRUTH, key=2) for _ in range(2))
    assert np.array_equal(first.lower, second.lower)
    (told,) = first.to_dict()["outputs"]
    assert set(told) == {"output", "fit_percent", "rmse", "nrmse", "r_squared", "inside_band"}


def test_gains_are_measured_with_their_errors():
    """A slope of 1.3 under coloured errors is within its standard errors, as often as they say."""
    rng = np.random.default_rng(0)
    z = []
    for _ in range(300):
        s = scipy.signal.lfilter([1.0], [1.0, -0.8], rng.normal(size=400))
        e = scipy.signal.lfilter([1.0], [1.0, -0.8], rng.normal(size=400))
        found = gain(1.3 * s + e + 2.0, s, None)
        assert found is not None
        z.append((found.slope - 1.3) / found.error)
    assert abs(np.mean(z)) < BOUND / np.sqrt(300)
    assert 0.85 < np.std(z) < 1.25


def test_a_gain_needs_something_that_varies():
    assert gain(np.ones(100), np.ones(100), None) is None
    assert gain(np.full(100, np.nan), np.ones(100), None) is None
    assert gain(np.arange(5.0), np.arange(5.0), None) is None


PRIOR = Prior(
    {
        "a": Parameter(dist.Uniform(0.0, 1.0)),
        "b": Parameter(dist.HalfNormal(1.0)),
        "c": Parameter(dist.Normal(0.0, 1.0)),
    }
)


@pytest.mark.parametrize(
    ("mean", "std", "flags"),
    [
        ((0.5, 1.0, 0.0), (0.01, 0.01, 0.01), ((), (), ())),
        ((0.999, 0.001, 0.0), (0.001, 0.001, 0.01), ((AT_THE_BOUND,), (AT_THE_BOUND,), ())),
        ((0.5, 0.8, 0.0), (0.288, 0.6, 1.0), ((LIKE_THE_PRIOR,),) * 3),
        ((0.02, 0.02, 0.0), (0.002, 0.002, 0.01), ((), (), ())),
        ((1.0, 0.0, 0.0), None, ((AT_THE_BOUND,), (AT_THE_BOUND,), ())),
        ((1.01, -0.01, 0.0), None, ((OUTSIDE,), (OUTSIDE,), ())),
    ],
)
def test_flags_tell_of_bounds_and_of_what_was_not_learnt(mean, std, flags):
    covariance = None if std is None else np.diag(np.square(std))
    found = information(PRIOR, Estimate(PRIOR.names, np.array(mean), covariance))
    assert tuple(each.flags for each in found) == flags


def test_the_end_of_a_prior_is_not_outside():
    """Its ends are single numbers: 0.05 is less than what they have there."""
    prior = Prior({"a": Parameter(dist.Uniform(0.05, 0.7))})
    for end in (0.05, 0.7):
        (found,) = information(prior, Estimate(prior.names, np.array([end])))
        assert found.flags == (AT_THE_BOUND,)


def test_a_prior_without_a_variance_is_no_obstacle():
    prior = Prior({"a": Parameter(dist.Cauchy(0.0, 1.0)), "b": Parameter(dist.Uniform(0.0, 1.0))})
    found = information(prior, Estimate(prior.names, np.array([0.0, 0.5]), 0.01 * np.eye(2)))
    assert [each.flags for each in found] == [(), ()]
    assert found[0].share is None
