"""Maximum a posteriori against closed forms, and against SciPy on Kalman's likelihood."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize

import greybayes as gb
from greybayes.classical.map_estimate import map_estimate, missing
from greybayes.errors import GreybayesError, ModelError, Status
from greybayes.likelihood.kalman import kalman_log_lik
from greybayes.zoo.coupled_drives import CoupledDrives

rng = np.random.default_rng(7)


def test_a_finite_impulse_response_has_its_normal_posterior():
    records = []
    for n_steps in (30, 50):
        u, y = rng.normal(size=(2, n_steps))
        y[[0, 11]] = np.nan
        records.append(gb.Record(y, u))
    for record, estimate in zip(records, map_estimate("fir", records), strict=True):
        u, seen = record.u[:, 0], record.mask[:, 0]
        X = np.stack([u, np.concatenate([[0.0], u[:-1]])], axis=1)[seen]
        precision = X.T @ X / 0.09 + 3 * np.eye(2)
        mean = np.linalg.solve(precision, X.T @ record.y[seen, 0] / 0.09 + 3 * np.ones(2))
        # The prior's variance, 1/3, is a float32 number.
        np.testing.assert_allclose(estimate.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(estimate.covariance, np.linalg.inv(precision), rtol=1e-6)
        assert estimate.diagnostics["n_agree"] == 8
        assert (estimate.method, estimate.model, estimate.status) == ("map", "fir", Status.ok)


class Scale(gb.Model):
    """Nothing but noise, whose variance is unknown."""

    v = gb.Parameter(dist.InverseGamma(3.0, 1.0), variance=True)
    states, inputs = ("x",), ()

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(0.0 * x)

    def observation(self, x, u, p, t):
        return dist.Normal(x, jnp.sqrt(p.v))


SCALE = Scale()
Y = rng.normal(size=25)
SUM = np.sum(Y**2)


def test_the_mode_is_that_of_the_density_of_theta_itself():
    told = []
    estimate = map_estimate(SCALE, gb.Record(Y), watch=told.append)
    # With the Jacobian of a logarithm it would have one less below.
    shape, rate = 3 + 25 / 2, 1 + SUM / 2
    mode = rate / (shape + 1)
    assert estimate["v"] == pytest.approx(mode, rel=1e-6)
    variance = 1 / (2 * rate / mode**3 - (shape + 1) / mode**2)
    assert estimate.covariance[0, 0] == pytest.approx(variance, rel=1e-4)
    assert estimate.model == "Scale"
    assert told[-1].iterations == 100
    expected = f"log-density {estimate.diagnostics['log_posterior']:.6g}"
    assert told[-1].note == expected
    started = map_estimate(SCALE, gb.Record(Y), start=estimate)
    assert started.diagnostics["n_starts"] == 1
    assert started["v"] == pytest.approx(mode, rel=1e-6)


@pytest.mark.parametrize("end", ["high", "low"])
def test_a_maximum_at_a_bound_is_found_and_flagged(end):
    free = SUM / 25
    box = (0.01, free / 2) if end == "high" else (2 * free, 10 * free)
    model = SCALE.free(v=dist.Uniform(*box))
    estimate = map_estimate(model, gb.Record(Y))
    assert estimate.diagnostics["at_bound"] == ["v"]
    assert estimate["v"] == pytest.approx(box[end == "high"], rel=1e-4)
    assert box[0] < estimate["v"] < box[1]
    assert estimate.covariance is None
    assert estimate.status is Status.ok


def test_a_maximum_near_a_bound_of_a_wide_prior_is_inside():
    model = SCALE.free(v=dist.Uniform(0.0, 1e5))
    estimate = map_estimate(model, gb.Record(Y))
    assert estimate.diagnostics["at_bound"] == []
    assert estimate["v"] == pytest.approx(SUM / 25, rel=1e-5)
    assert estimate.std[0] == pytest.approx(SUM / 25 * np.sqrt(2 / 25), rel=1e-4)


@pytest.fixture(scope="module")
def linear():
    records = []
    for _ in range(3):
        w, v = rng.normal(0, 0.55, size=(2, 100))
        u, x = np.repeat(rng.choice([-1.0, 1.0], 25), 4), [0.0]
        for k in range(99):
            x.append(0.7 * x[k] + 0.8 * u[k] + w[k])
        records.append(gb.Record(x + v, u))
    return records, map_estimate("linear-gaussian", records, settings={"n_starts": 4})


def test_scipy_finds_the_same_on_kalmans_likelihood(linear):
    model = gb.get_model("linear-gaussian")
    # The prior is uniform: its density only adds a constant.
    constant = -np.log(0.98 * 2 * 0.99 * 0.99)
    for record, estimate in zip(*linear, strict=True):

        def loss(thetas, record=record):
            return -kalman_log_lik(model, np.atleast_2d(thetas), record)

        theirs = scipy.optimize.minimize(
            lambda theta: loss(theta)[0],
            [0.5, 1.0, 0.5, 0.5],
            method="L-BFGS-B",
            bounds=list(zip(*model.prior.bounds, strict=True)),
            options={"ftol": 1e-15, "gtol": 1e-8},
        )
        assert estimate.status is Status.ok
        assert estimate.diagnostics["n_agree"] == 4
        assert estimate.diagnostics["log_posterior"] == pytest.approx(constant - theirs.fun)
        inside = not estimate.diagnostics["at_bound"]
        scale = estimate.std if inside else 0.1
        assert np.all(np.abs(estimate.mean - theirs.x) < 1e-3 * scale)
        if inside:
            hessian = differences(loss, estimate.mean)
            np.testing.assert_allclose(np.linalg.inv(estimate.covariance), hessian, rtol=1e-3)
    assert any(not estimate.diagnostics["at_bound"] for estimate in linear[1])


def differences(function, theta, h=1e-4):
    """The Hessian by central differences."""
    n, e = len(theta), h * np.eye(len(theta))
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    points = [theta + s * e[i] + t * e[j] for i in range(n) for j in range(n) for s, t in signs]
    values = function(np.array(points)).reshape(n, n, 4)
    return values @ np.array([1, -1, -1, 1]) / (4 * h**2)


def test_the_key_gives_the_bits(linear):
    records, estimates = linear
    again = map_estimate("linear-gaussian", records, settings={"n_starts": 4})
    for one, other in zip(again, estimates, strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)


def test_an_end_that_was_not_reached_is_told(linear):
    settings = {"n_iterations": 2, "n_starts": 4}
    estimate = map_estimate("linear-gaussian", linear[0], settings=settings)[0]
    assert estimate.status is Status.unconverged
    assert np.isfinite(estimate.mean).all()


@pytest.mark.accuracy
def test_the_measured_drives_have_the_variance_of_their_residuals(shared_data):
    (record,) = gb.read_records(f"{shared_data}/DATAPRBS.MAT:y=z1,u=u1,dt=0.02")
    model = CoupledDrives().free(noise_variance=dist.Uniform(0.0, 1.0))
    estimate = map_estimate(model, record)
    # The known least sum of squares, whose 500th part is the most likely variance.
    expected = (1.993, 5.800, 20.14, 0.1156, 24.064 / 500)
    np.testing.assert_allclose(estimate.mean, expected, rtol=5e-4)
    assert estimate.diagnostics["at_bound"] == []
    # Of a variance v from n samples it is v sqrt(2 / n).
    assert estimate.std[4] == pytest.approx(expected[4] * np.sqrt(2 / 500), rel=1e-3)


def test_models_without_an_exact_likelihood_are_refused():
    assert missing(gb.get_model("linear-gaussian")) is None
    with pytest.raises(ModelError, match="map cannot serve Growth2: its transition has noise, and"):
        map_estimate("growth2", gb.Record(np.zeros(5)))
    with pytest.raises(GreybayesError, match="MapEstimate got tolerance = -1"):
        map_estimate("fir", [], settings={"tolerance": -1.0})
    assert map_estimate("fir", []) == []
