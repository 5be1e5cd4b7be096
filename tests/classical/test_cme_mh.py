"""CME-MH against posteriors that are known exactly."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import BOUND
from scipy.stats import beta

import greybayes as gb
from greybayes.classical import cme_mh as module
from greybayes.classical.cme_mh import cme_mh
from greybayes.classical.metropolis import Kernel, Points, move
from greybayes.classical.posterior import Posterior
from greybayes.errors import GreybayesError, ModelError, Status, ThetaError
from greybayes.likelihood.kalman import kalman_log_lik
from greybayes.zoo.linear_gaussian import LinearGaussian

TWO = LinearGaussian().fix(b=1.0, r=0.5)  # a and q are unknown
QUICK = {"burn_in": 300, "n_particles": 20, "min_ess": 400.0, "max_draws": 4000}


def quadrature(model, record, n=80):
    """Mean and covariance of (a, q), on a grid, by Kalman's formulas."""
    (a_low, q_low), (a_high, q_high) = model.prior.bounds
    a = a_low + (a_high - a_low) * (np.arange(n) + 0.5) / n
    q = q_low + (q_high - q_low) * (np.arange(n) + 0.5) / n
    grid = np.stack(np.meshgrid(a, q, indexing="ij"), -1).reshape(-1, 2)
    log_lik = kalman_log_lik(model, grid, record)
    weights = np.exp(log_lik - log_lik.max())
    mean = np.average(grid, axis=0, weights=weights)
    return mean, np.cov(grid.T, aweights=weights)


@pytest.fixture(scope="module")
def records():
    paths = gb.simulate(TWO, {"a": 0.7, "q": 0.3}, n_steps=30, count=2, key=5)
    return list(paths)


@pytest.fixture(scope="module")
def estimates(records):
    return cme_mh(TWO, records, key=1, settings=QUICK)


def check(estimate, mean, covariance):
    ess = np.array(list(estimate.diagnostics["ess"].values()))
    assert (np.abs(estimate.mean - mean) < BOUND * np.sqrt(np.diag(covariance) / ess)).all()
    error = np.sqrt(2 / ess.min())  # of a variance, relative; tails make it a little larger
    ratio = np.diag(estimate.covariance) / np.diag(covariance)
    assert (np.abs(ratio - 1) < BOUND * error).all()
    r = covariance[0, 1] / np.sqrt(np.prod(np.diag(covariance)))
    assert estimate.correlation[0, 1] == pytest.approx(r, abs=BOUND / np.sqrt(ess.min()))


def test_few_particles_still_give_the_exact_posterior(records, estimates):
    for record, estimate in zip(records, estimates, strict=True):
        assert estimate.status is Status.ok
        check(estimate, *quadrature(TWO, record))


def test_what_it_says_of_itself(estimates):
    first = estimates[0]
    assert first.method == "cme-mh"
    assert first.samples.shape[0] == 4
    assert first.settings["n_particles"] == first.diagnostics["n_particles"] == 20
    assert 0.05 < first.diagnostics["acceptance"] < 0.9
    assert max(first.diagnostics["r_hat"].values()) < 1.02
    assert min(first.diagnostics["ess"].values()) >= 400


def test_the_papers_walk_and_a_start(records, estimates):
    settings = {**QUICK, "jump": 0.0, "walk": "diagonal"}
    walked = cme_mh(TWO, records[0], key=2, settings=settings, start=estimates[0])
    check(walked, *quadrature(TWO, records[0]))


class Elsewhere:
    """A density on the unit square that is not that of the record: two independent betas."""

    def __init__(self):
        self.each = (beta(3.0, 2.0), beta(2.0, 3.0))

    def sample(self, n, rng):
        return np.column_stack([one.rvs(n, random_state=rng) for one in self.each])

    def log_prob(self, theta):
        return sum(one.logpdf(theta[..., i]) for i, one in enumerate(self.each))


@pytest.mark.accuracy
def test_a_density_to_jump_to_leaves_the_posterior_exact(records):
    """Whatever the density that an estimate brings, it decides how fast, not where."""
    start = gb.Estimate(("a", "q"), np.array([0.6, 0.4]), posterior=Elsewhere())
    settings = {**QUICK, "burn_in": 100, "jump": 0.8}
    for record, estimate in zip(
        records, cme_mh(TWO, records, key=4, settings=settings, start=start), strict=True
    ):
        check(estimate, *quadrature(TWO, record))


class Bent(LinearGaussian):
    """The same system, written so that Kalman's formulas are not found."""

    def transition(self, x, u, p, t):
        return dist.Normal(p.a * jnp.abs(x) * jnp.sign(x) + p.b * u, jnp.sqrt(p.q))


@pytest.mark.parametrize(
    ("model", "kind"), [(TWO, "kalman"), (Bent().fix(b=1.0, r=0.5), "grid")], ids=["kalman", "grid"]
)
def test_an_exact_likelihood_gives_the_exact_posterior(records, model, kind):
    settings = {"burn_in": 200, "likelihood": "exact"}
    for record, estimate in zip(
        records, cme_mh(model, records, key=6, settings=settings), strict=True
    ):
        assert estimate.diagnostics["likelihood"] == kind
        assert ("n_nodes" in estimate.diagnostics) == (kind == "grid")
        assert estimate.status is Status.ok
        check(estimate, *quadrature(TWO, record))


def test_an_exact_likelihood_takes_no_particles(records):
    with pytest.raises(GreybayesError, match="an exact likelihood takes no n_particles"):
        cme_mh(TWO, records, settings={"likelihood": "exact", "n_particles": 10})


def test_a_start_of_another_model_is_refused():
    record = gb.simulate("growth2", n_steps=200, key=1)[0]
    other = gb.load("growth1").estimate(gb.simulate("growth1", key=1)[0])
    with pytest.raises(ThetaError, match="start has theta7, theta8; expected an estimate of"):
        cme_mh("growth2", record, start=other)


@pytest.mark.accuracy
def test_a_record_that_sticks_gets_more_particles_and_starts_anew(records, monkeypatch):
    """One that would have converged, but not as soon as it has to here."""
    monkeypatch.setattr(module, "_PATIENCE", 200)
    monkeypatch.setattr(module, "_LOOK", 100)
    monkeypatch.setattr(Posterior, "choose", lambda self, thetas: None)
    settings = {"burn_in": 300, "min_ess": 500.0, "max_draws": 1500}
    estimate = cme_mh(TWO, records[0], key=1, settings=settings)
    # 128 to begin with, and four times as many each time, twice at most.
    assert estimate.diagnostics["n_particles"] in (512, 2048)
    assert estimate.samples.shape[1] <= 1300
    check(estimate, *quadrature(TWO, records[0]))


@pytest.mark.accuracy
def test_the_published_variant_is_uniform_on_standard_deviations(records):
    settings = {**QUICK, "variances": "std"}
    found = cme_mh(TWO, records[0], key=3, settings=settings)
    (a_low, q_low), (a_high, q_high) = TWO.prior.bounds
    n = 80
    a = a_low + (a_high - a_low) * (np.arange(n) + 0.5) / n
    s = np.sqrt(q_low) + (np.sqrt(q_high) - np.sqrt(q_low)) * (np.arange(n) + 0.5) / n
    grid = np.stack(np.meshgrid(a, s, indexing="ij"), -1).reshape(-1, 2)
    log_lik = kalman_log_lik(TWO, np.stack([grid[:, 0], grid[:, 1] ** 2], 1), records[0])
    weights = np.exp(log_lik - log_lik.max())
    mean, spread = np.average(grid, axis=0, weights=weights), np.cov(grid.T, aweights=weights)
    ess = np.array(list(found.diagnostics["ess"].values()))
    error = BOUND * np.sqrt(np.diag(spread) / ess)
    assert abs(found["a"] - mean[0]) < error[0]
    assert abs(np.sqrt(found["q"]) - mean[1]) < error[1]


def test_without_process_noise_one_particle_is_exact():
    record = gb.simulate("fir", np.array([1.0, 0.5]), n_steps=30, key=1)[0]
    found = cme_mh("fir", record, settings={"burn_in": 200, "min_ess": 600.0})
    phi = np.column_stack([record.u[:, 0], np.concatenate([[0.0], record.u[:-1, 0]])])
    precision = 3 * np.eye(2) + phi.T @ phi / 0.09
    mean = np.linalg.solve(precision, 3 * np.ones(2) + phi.T @ record.y[:, 0] / 0.09)
    assert found.diagnostics["n_particles"] == 1
    check(found, mean, np.linalg.inv(precision))


def test_same_key_same_bits_and_one_record_is_the_first_of_a_list(records):
    settings = {**QUICK, "burn_in": 50, "max_draws": 20}
    once, again = (cme_mh(TWO, records[0], key=4, settings=settings) for _ in range(2))
    np.testing.assert_array_equal(once.samples, again.samples)
    assert once.status is Status.unconverged
    other = cme_mh(TWO, records[0], key=5, settings=settings)
    assert (once.samples != other.samples).any()
    assert cme_mh(TWO, []) == []


def test_progress_is_told(records):
    seen = []
    settings = {**QUICK, "burn_in": 50, "max_draws": 20}
    cme_mh(TWO, records, settings=settings, watch=seen.append)
    assert [p.iteration for p in seen] == sorted(p.iteration for p in seen)
    assert seen[-1].iterations == 70
    assert "acceptance" in seen[-1].note


def test_a_step_leaves_the_target_as_it_is():
    """Many records with one normal target, all chains drawn from it: after some steps they are."""
    rng = np.random.default_rng(1)
    root = np.array([[1.0, 0.0], [0.8, 0.6]])
    z = rng.standard_normal((2000, 4, 2)) @ root.T + [1.0, -1.0]

    def target(z):
        scaled = np.linalg.solve(root, (z - [1.0, -1.0])[..., None])[..., 0]
        # As noisy as a particle likelihood may be: its exponential has mean 1.
        noise = rng.normal(-0.5, 1.0, z.shape[:2])
        return Points(z, -0.5 * (scaled**2).sum(-1), noise)

    points = target(z)
    # Draws of the posterior carry the noise that a chain would have kept.
    points = points._replace(log_lik=rng.normal(0.5, 1.0, z.shape[:2]))
    count = len(z)
    kernel = Kernel(
        np.full((count, 2), 0.5), np.tile(1.3 * np.eye(2), (count, 1, 1)), np.zeros(count)
    )
    rate = []
    for _ in range(30):
        points, accepted = move(rng, points, kernel, target, 0.5)
        rate.append(accepted.mean())
    assert 0.1 < np.mean(rate) < 0.9
    flat = points.z.reshape(-1, 2)
    error = BOUND / np.sqrt(len(flat))
    np.testing.assert_allclose(flat.mean(0), [1.0, -1.0], atol=error)
    np.testing.assert_allclose(np.cov(flat.T), root @ root.T, atol=2 * error)


@pytest.mark.parametrize(
    "bad",
    [
        *({"n_chains": 1}, {"jump": 1.0}, {"walk": "random"}, {"burn_in": 3}),
        *({"n_particles": 0}, {"variances": "log"}, {"particles": 5}, {"threshold": 2.0}),
        {"likelihood": "kalman"},
    ],
)
def test_bad_settings_are_a_sentence(records, bad):
    with pytest.raises(GreybayesError, match=r"expected|has no setting"):
        cme_mh(TWO, records, settings=bad)


def test_a_model_without_observation_density_is_refused():
    class Counted(LinearGaussian):
        def observation(self, x, u, p, t):
            return gb.Known(x)

    record = gb.Record(np.zeros(5), np.zeros(5))
    with pytest.raises(ModelError, match="its observation has no noise, and a density is needed"):
        cme_mh(Counted(), record)


def test_particles_that_lose_the_record_are_a_status():
    record = gb.simulate("growth2", np.array([0.5, 1.0, 0.3, 0.3]), n_steps=30, key=2)[0]
    y = np.array(record.y)
    y[10] = 1e4
    few = {"burn_in": 50, "max_draws": 20, "n_particles": 20}
    found = gb.cme_mh("growth2", gb.Record(y, record.u), settings=few)
    assert found.status is gb.Status.collapsed
    assert "n_particles" in found.to_dict()["message"]


@pytest.mark.parametrize("y", [[1.0], [np.nan, np.nan, np.nan]])
def test_a_record_that_says_nothing_is_refused(y):
    with pytest.raises(gb.GreybayesError, match="expected two or more to learn from"):
        gb.cme_mh("growth2", gb.Record(y, np.ones(len(y))))
