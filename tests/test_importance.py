"""Importance sampling on targets whose moments are known."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from greybayes.amortized.line import Line
from greybayes.importance import Defended, Student, Weighed

LINE = Line(("real", "real"), ((), ()), (0.0, 0.0), (1.0, 1.0))
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
MEAN = np.array([1.0, -1.0])


def log_target(thetas):
    """A normal, times exp(3): its log evidence is 3."""
    return multivariate_normal(MEAN, COVARIANCE).logpdf(thetas) + 3.0


def student(shift=0.0, wide=1.0):
    return Student(LINE, MEAN + shift, wide * np.linalg.cholesky(COVARIANCE))


def weigh(proposal, n=4000, seed=1):
    weighed = Weighed.before(proposal, 2)
    thetas = proposal.sample(n, np.random.default_rng(seed))
    weighed.add(thetas, log_target(thetas))
    return weighed


def test_the_density_of_a_student_is_scipys():
    proposal = student()
    theta = np.random.default_rng(0).normal(size=(20, 2))
    expected = multivariate_t(MEAN, COVARIANCE, df=proposal.freedom).logpdf(theta)
    np.testing.assert_allclose(proposal.log_prob(theta), expected)


def test_its_draws_have_its_moments():
    draws = student().sample(100_000, np.random.default_rng(1))
    np.testing.assert_allclose(draws.mean(0), MEAN, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE * 5 / 3, rtol=0.1, atol=0.05)


def test_weights_give_the_moments_and_the_evidence():
    weighed = weigh(student(shift=0.5, wide=1.3))
    assert weighed.k_hat < 0.7
    assert weighed.ess > 1000
    np.testing.assert_allclose(weighed.mean, MEAN, atol=0.12)
    off = weighed.thetas - weighed.mean
    covariance = (weighed.weights[:, None] * off).T @ off
    np.testing.assert_allclose(covariance, COVARIANCE, atol=0.25)
    assert weighed.log_evidence == pytest.approx(3.0, abs=0.1)


def test_a_proposal_that_missed_says_so_and_learns():
    """Far too narrow and off: the weights cannot be trusted until it has learned."""
    narrow = Student(LINE, MEAN + 2.0, 0.25 * np.linalg.cholesky(COVARIANCE), freedom=200.0)
    weighed = weigh(narrow)
    assert weighed.k_hat > 0.7
    rng = np.random.default_rng(2)
    for _ in range(4):
        weighed.proposal = weighed.adapted(LINE)
        thetas = weighed.proposal.sample(2000, rng)
        weighed.add(thetas, log_target(thetas))
    assert weighed.k_hat < 0.7
    np.testing.assert_allclose(weighed.mean, MEAN, atol=0.15)
    assert weighed.log_evidence == pytest.approx(3.0, abs=0.1)


def test_draws_of_a_bad_proposal_do_no_harm():
    """With good and bad draws together, each weighs against the mixture of both."""
    weighed = weigh(student(), n=2000)
    alone = weighed.ess
    weighed.proposal = student(shift=3.0, wide=0.3)
    thetas = weighed.proposal.sample(2000, np.random.default_rng(3))
    weighed.add(thetas, log_target(thetas))
    assert weighed.ess > 0.9 * alone
    np.testing.assert_allclose(weighed.mean, MEAN, atol=0.12)


def test_the_defence_draws_its_share_and_bounds_the_weights():
    narrow, wide = student(wide=0.3), student(wide=2.0)
    proposal = Defended(narrow, wide, share=0.25)
    assert len(proposal.sample(400, np.random.default_rng(4))) == 400
    theta = np.random.default_rng(5).normal(size=(30, 2))
    expected = 0.75 * np.exp(narrow.log_prob(theta)) + 0.25 * np.exp(wide.log_prob(theta))
    np.testing.assert_allclose(np.exp(proposal.log_prob(theta)), expected)
    assert weigh(proposal).k_hat < weigh(narrow).k_hat


def test_draws_without_likelihood_weigh_nothing():
    weighed = Weighed.before(student(), 2)
    thetas = student().sample(1000, np.random.default_rng(6))
    lost = thetas[:, 0] > MEAN[0]
    weighed.add(thetas, np.where(lost, -np.inf, log_target(thetas)))
    assert weighed.weights[lost].sum() < 1e-12
    nothing = Weighed.before(student(), 2)
    nothing.add(thetas, np.full(1000, -np.inf))
    assert (nothing.ess, nothing.k_hat) == (0.0, np.inf)
