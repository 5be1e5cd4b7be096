"""Kalman's formulas against the joint normal distribution of a whole record, and statsmodels."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm
from scipy.stats import multivariate_normal

import greybayes as gb
from greybayes.errors import ModelError, RecordError
from greybayes.likelihood.kalman import (
    is_linear_gaussian,
    kalman_filter,
    kalman_log_lik,
    kalman_smoother,
)

N = 12
A = np.array([[0.9, 0.2], [-0.1, 0.7]])
B = np.array([0.5, 1.0])
C = np.array([[1.0, 0.0], [0.3, 1.0]])
D = np.array([0.0, 0.4])
Q = np.array([[0.2, 0.05], [0.05, 0.1]])
R = np.array([[0.3, 0.1], [0.1, 0.2]])
P_1 = np.diag([1.0, 0.5])


class TwoStates(gb.Model):
    """Everything that Kalman's formulas allow: coupled noises, an offset that depends on time."""

    gain = gb.Parameter(dist.Uniform(0.0, 2.0))
    states, inputs, outputs = ("a", "b"), ("u",), ("y", "z")

    def initial(self, u, p):
        return dist.MultivariateNormal(jnp.array([1.0, -1.0]), jnp.asarray(P_1))

    def transition(self, x, u, p, t):
        mean = jnp.asarray(A) @ x + p.gain * jnp.asarray(B) * u[0] + 0.01 * t.k
        return dist.MultivariateNormal(mean, jnp.asarray(Q))

    def observation(self, x, u, p, t):
        return dist.MultivariateNormal(jnp.asarray(C) @ x + jnp.asarray(D) * u[0], jnp.asarray(R))


def joint(gain, u):
    """Mean and covariance of (x_1 ... x_N, y_1 ... y_N), by the definition of the model."""
    # All randomness is one vector: x_1, then w_1 ... w_{N-1}, then v_1 ... v_N.
    size = 2 + 2 * (N - 1) + 2 * N
    covariance = np.zeros((size, size))
    covariance[:2, :2] = P_1
    for k in range(N - 1):
        covariance[2 + 2 * k : 4 + 2 * k, 2 + 2 * k : 4 + 2 * k] = Q
    for k in range(N):
        start = 2 * N + 2 * k
        covariance[start : start + 2, start : start + 2] = R
    mean, slope = np.array([1.0, -1.0]), np.eye(2, size)
    xs, ys = [], []
    for k in range(N):
        noise = np.zeros((2, size))
        noise[:, 2 * N + 2 * k : 2 * N + 2 * k + 2] = np.eye(2)
        xs.append((mean, slope))
        ys.append((C @ mean + D * u[k], C @ slope + noise))
        mean, slope = A @ mean + gain * B * u[k] + 0.01 * (k + 1), A @ slope
        if k < N - 1:
            slope[:, 2 + 2 * k : 4 + 2 * k] += np.eye(2)
    means = np.concatenate([m for m, _ in xs + ys])
    slopes = np.concatenate([s for _, s in xs + ys])
    return means, slopes @ covariance @ slopes.T


@pytest.fixture(scope="module", params=["whole", "gaps"])
def case(request):
    record = gb.simulate(TwoStates(), {"gain": 0.8}, inputs="prbs", n_steps=N, key=2)[0]
    y = record.y.copy()
    if request.param == "gaps":
        y[3] = np.nan
        y[5, 0] = np.nan
        y[0, 1] = np.nan
    return gb.Record(y, record.u)


def condition(case, gain, upto):
    """x given the samples up to one, from the joint distribution."""
    mean, covariance = joint(gain, case.u[:, 0])
    y = case.y.ravel()
    seen = 2 * N + np.flatnonzero(~np.isnan(y) & (np.arange(2 * N) < 2 * upto))
    weight = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, : 2 * N]).T
    x = mean[: 2 * N] + weight @ (y[seen - 2 * N] - mean[seen])
    return x, covariance[: 2 * N, : 2 * N] - weight @ covariance[seen, : 2 * N]


def test_log_likelihood_filter_and_smoother_are_those_of_the_joint_distribution(case):
    filtered = kalman_filter(TwoStates(), [0.8], case)
    mean, covariance = joint(0.8, case.u[:, 0])
    seen = 2 * N + np.flatnonzero(~np.isnan(case.y.ravel()))
    exact = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(
        case.y.ravel()[seen - 2 * N]
    )
    # The model's constants pass through float32 in its parameters, and through nothing else.
    assert filtered.log_lik == pytest.approx(exact, abs=1e-5)
    assert filtered.increments.sum() == pytest.approx(filtered.log_lik, abs=1e-12)
    for k in (0, 4, N - 1):
        here = slice(2 * k, 2 * k + 2)
        x, P = condition(case, 0.8, k + 1)
        np.testing.assert_allclose(filtered.state.mean[k], x[here], atol=1e-6)
        np.testing.assert_allclose(filtered.state.covariance[k], P[here, here], atol=1e-6)
        x, P = condition(case, 0.8, k)
        np.testing.assert_allclose(filtered.predicted.mean[k], x[here], atol=1e-6)
        np.testing.assert_allclose(filtered.predicted.covariance[k], P[here, here], atol=1e-6)
    smoothed = kalman_smoother(TwoStates(), [0.8], case)
    x, P = condition(case, 0.8, N)
    np.testing.assert_allclose(smoothed.mean.ravel(), x, atol=1e-6)
    for k in range(N):
        here = slice(2 * k, 2 * k + 2)
        np.testing.assert_allclose(smoothed.covariance[k], P[here, here], atol=1e-6)


def test_many_thetas_at_once_are_each_alone(case):
    thetas = np.array([[0.1], [0.8], [1.5]])
    together = kalman_log_lik(TwoStates(), thetas, case)
    alone = [kalman_filter(TwoStates(), theta, case).log_lik for theta in thetas]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert np.ptp(together) > 1


def test_innovations_are_nan_where_a_sample_is_missing(case):
    filtered = kalman_filter(TwoStates(), [0.8], case)
    np.testing.assert_array_equal(np.isnan(filtered.innovation.mean), np.isnan(case.y))


class LocalLevel(gb.Model):
    """A random walk in noise, as statsmodels starts it: nearly without knowledge."""

    noise = gb.Parameter(dist.Uniform(0.0, 1e5), variance=True)
    walk = gb.Parameter(dist.Uniform(0.0, 1e5), variance=True)
    states, inputs, outputs = ("level",), (), ("y",)

    def initial(self, u, p):
        return dist.Normal(0.0, 1000.0)

    def transition(self, x, u, p, t):
        return dist.Normal(x, jnp.sqrt(p.walk))

    def observation(self, x, u, p, t):
        return dist.Normal(x, jnp.sqrt(p.noise))


def test_the_nile_is_that_of_statsmodels():
    volume = sm.datasets.nile.load_pandas().data["volume"].to_numpy()
    theirs = sm.tsa.UnobservedComponents(volume, "local level")
    filtered = kalman_filter(LocalLevel(), [15099.0, 1469.1], gb.Record(volume[:, None]))
    # Its convention leaves out the first sample, whose only part is to find the level.
    ours = filtered.increments[1:].sum()
    assert ours == pytest.approx(-632.5377, abs=1e-4)
    assert ours == pytest.approx(theirs.loglike([15099.0, 1469.1]), abs=1e-6)
    their_filter = theirs.smooth([15099.0, 1469.1])
    np.testing.assert_allclose(filtered.state.mean[:, 0], their_filter.filtered_state[0], rtol=1e-7)
    smoothed = kalman_smoother(LocalLevel(), [15099.0, 1469.1], gb.Record(volume[:, None]))
    np.testing.assert_allclose(smoothed.mean[:, 0], their_filter.smoothed_state[0], rtol=1e-7)


class Bent(TwoStates):
    def transition(self, x, u, p, t):
        return dist.MultivariateNormal(jnp.sin(x), jnp.asarray(Q))


class Louder(TwoStates):
    def observation(self, x, u, p, t):
        return dist.Normal(x, jnp.exp(x))


class Heavy(TwoStates):
    def observation(self, x, u, p, t):
        return dist.StudentT(4.0, x, 1.0)


@pytest.mark.parametrize("model", [Bent(), Louder(), Heavy(), "growth1", "stochastic-volatility"])
def test_what_is_not_linear_gaussian_is_refused(model):
    assert not is_linear_gaussian(model)
    with pytest.raises(ModelError, match="is not linear-Gaussian: Kalman's formulas need"):
        kalman_filter(model, [0.5], gb.Record(np.zeros((3, 1))))


@pytest.mark.parametrize("model", [TwoStates(), LocalLevel(), "linear-gaussian", "fir"])
def test_what_is_linear_gaussian_is_found(model):
    assert is_linear_gaussian(model)


def test_a_record_of_another_shape_is_a_sentence():
    with pytest.raises(RecordError, match=r"has 1 outputs and 1 inputs; TwoStates has 2 and 1"):
        kalman_filter(TwoStates(), [0.5], gb.Record(np.zeros((3, 1)), np.zeros(3)))


def test_channels_of_the_models_names_in_another_order_are_a_sentence():
    record = gb.Record(np.zeros((3, 2)), np.zeros(3), outputs=("z", "y"))
    with pytest.raises(RecordError, match="z, y and the model y, z: put them"):
        kalman_filter(TwoStates(), [0.5], record)
