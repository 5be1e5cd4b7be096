"""Refine: the exact posterior from a network's, whatever the network is like."""

import numpy as np
import pytest
from helpers.tiny import records_of, with_arrays

import greybayes as gb
from greybayes.errors import EstimatorError, GreybayesError
from greybayes.likelihood import many
from greybayes.likelihood.grid import choose_nodes
from greybayes.likelihood.many import ManyLogLiks, kind_of
from greybayes.likelihood.measured import measured_batch


@pytest.fixture(scope="module")
def records(tiny):
    return records_of(tiny, 3)


def exact(tiny, record, n=60_000):
    """Mean and covariance by plain importance sampling from the prior with Kalman's likelihood."""
    model = tiny.model
    thetas = gb.simulate(model, n_steps=2, count=n, key=11).theta.astype(float)
    log_lik = gb.kalman_log_lik(model, thetas, record)
    weights = np.exp(log_lik - log_lik.max())
    weights /= weights.sum()
    mean = weights @ thetas
    off = thetas - mean
    error = np.sqrt((weights[:, None] ** 2 * off**2).sum(0))
    return mean, (weights[:, None] * off).T @ off, error, weights


def test_a_linear_gaussian_model_gives_kalmans_posterior(tiny, records):
    for record, estimate in zip(records, gb.refine(tiny, records), strict=True):
        mean, covariance, error, weights = exact(tiny, record)
        std = np.sqrt(np.diag(covariance))
        within = 4 * (error + std / np.sqrt(estimate.diagnostics["ess"]))
        assert (np.abs(estimate.mean - mean) < within).all()
        # Of both sides' draws; entries are in units of the standard deviations.
        scale = np.outer(std, std)
        n = 1 / (1 / estimate.diagnostics["ess"] + (weights**2).sum())
        np.testing.assert_allclose(
            estimate.covariance / scale, covariance / scale, atol=6 / np.sqrt(n)
        )
        assert estimate.diagnostics["ess"] >= 500
        assert estimate.diagnostics["likelihood"] == "kalman"
        assert estimate.status is gb.Status.ok


def test_the_evidence_is_the_mean_likelihood_under_the_prior(tiny, records):
    thetas = gb.simulate(tiny.model, n_steps=2, count=60_000, key=12).theta.astype(float)
    log_lik = gb.kalman_log_lik(tiny.model, thetas, records[0])
    expected = np.logaddexp.reduce(log_lik) - np.log(len(log_lik))
    assert gb.refine(tiny, records[0]).diagnostics["log_evidence"] == pytest.approx(
        expected, abs=0.15
    )


def shifted(tiny, records, by):
    """A head that is wrong by so many posterior standard deviations, in every parameter."""
    arrays = dict(tiny.arrays)
    bias = np.array(arrays["head.raw.bias"])
    components, size = 8, len(tiny.names)
    line = tiny.line
    spread = np.mean(
        [line.to_line(np, e.sample(500)).std(0) for e in tiny.estimate(records)], axis=0
    )
    bias[components : components * (1 + size)] += np.tile(by * spread, components)
    arrays["head.raw.bias"] = bias.astype(np.float32)
    return with_arrays(tiny, arrays)


def test_a_bad_head_costs_draws_and_not_exactness(tiny, records):
    good = gb.refine(tiny, records)
    for by in (1.0, 3.0):
        bad = gb.refine(shifted(tiny, records, by), records)
        for one, other in zip(good, bad, strict=True):
            std = one.std
            error = std * (one.diagnostics["ess"] ** -0.5 + other.diagnostics["ess"] ** -0.5)
            assert (np.abs(one.mean - other.mean) < 4.5 * error).all()
            assert other.diagnostics["ess"] >= 500
        few, many = (sum(e.diagnostics["n_draws"] for e in each) for each in (good, bad))
        # A single standard deviation costs less than what such a small network is off by itself.
        assert many > few or by == 1.0


@pytest.mark.accuracy
def test_nodes_follow_the_weights_where_the_head_was_elsewhere(tiny, records, monkeypatch):
    """The likelihood on nodes for a model of which Kalman knows the answer, and a bad head."""
    monkeypatch.setattr(many, "kind_of", lambda model: "grid")
    placed = []
    monkeypatch.setattr(
        many, "choose_nodes", lambda *given: placed.append(given) or choose_nodes(*given)
    )
    for record, estimate in zip(
        records, gb.refine(shifted(tiny, records, 3.0), records), strict=True
    ):
        mean, covariance, error, _ = exact(tiny, record)
        std = np.sqrt(np.diag(covariance))
        within = 4.5 * (error + std / np.sqrt(estimate.diagnostics["ess"]))
        assert (np.abs(estimate.mean - mean) < within).all()
        assert estimate.diagnostics["likelihood"] == "grid"
    assert len(placed) > len(records)


def test_the_worse_the_head_the_higher_the_rung():
    shipped = gb.load("linear-gaussian")
    records = list(gb.simulate("linear-gaussian", count=2, key=5))
    for by, rung in ((0.0, "importance"), (1.0, "adapted"), (6.0, "mcmc")):
        found = gb.refine(shifted(shipped, records, by), records)
        assert {each.diagnostics["rung"] for each in found} == {rung}, by


def test_chains_take_over_where_draws_do_not_serve(tiny, records):
    """No adaptation is allowed, and more effective draws are asked than there may be draws."""
    settings = {"max_adaptations": 0, "n_draws": 128, "max_draws": 128, "min_ess": 300.0}
    estimate = gb.refine(tiny, records[0], settings={**settings, "n_particles": 40})
    assert estimate.diagnostics["rung"] == "mcmc"
    assert not {"k_hat", "log_evidence"} & estimate.diagnostics.keys(), "they were of the draws"
    assert max(estimate.diagnostics["r_hat"].values()) < 1.1
    mean, covariance, _, _ = exact(tiny, records[0])
    np.testing.assert_allclose(estimate.mean, mean, atol=0.5 * np.sqrt(np.diag(covariance)).max())


def test_a_record_that_the_model_cannot_have_made_stays_a_misfit(tiny, records):
    far = gb.Record(records[0].y + 50.0, records[0].u)
    assert tiny.estimate(far).status is gb.Status.misfit
    few = {"max_adaptations": 0, "n_draws": 100, "max_draws": 100, "n_particles": 10}
    assert gb.refine(tiny, far, settings=few).status is gb.Status.misfit


def test_the_same_key_gives_the_same_bits(tiny, records):
    one, other = (gb.refine(tiny, records[:2], key=5) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.samples, b.samples)
        np.testing.assert_array_equal(a.weights, b.weights)


def test_progress_is_told(tiny, records):
    seen = []
    gb.refine(tiny, records, watch=seen.append)
    assert seen
    assert all(0 < each.iteration <= each.iterations for each in seen)


def test_no_record_gives_no_estimate(tiny):
    assert gb.refine(tiny, []) == []


def test_an_estimator_without_posterior_is_refused(tiny, records):
    architecture = tiny.header["architecture"]
    sizes = {name: size for name, size in architecture["sizes"].items() if name != "components"}
    architecture = {**architecture, "head": "bounded", "sizes": sizes}
    bare = gb.Estimator({**tiny.header, "architecture": architecture}, tiny.arrays)
    with pytest.raises(EstimatorError, match="train it with the head posterior"):
        gb.refine(bare, records)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_draws": 10},
        {"variance": 0.0},
        {"n_particles": 0},
        {"max_draws": 5},
        {"min_ess": np.nan},
        {"min_ess": np.inf},
        {"min_ess": -3.0},
    ],
)
def test_settings_out_of_range_are_refused(tiny, records, settings):
    with pytest.raises(GreybayesError, match=next(iter(settings))):
        gb.refine(tiny, records, settings=settings)


def test_a_model_without_a_density_is_refused(tiny, records):
    class Blind(type(tiny.model)):
        """Its observation can be drawn from only."""

        def observation(self, x, u, p, t):
            normal = super().observation(x, u, p, t)
            return gb.Sampler(lambda key: normal.sample(key))

    blind = gb.Estimator(tiny.header, tiny.arrays)
    blind.__dict__["model"] = Blind()
    with pytest.raises(gb.GreybayesError, match="refine cannot serve Blind"):
        gb.refine(blind, records)


# The likelihoods of many thetas.


@pytest.mark.parametrize("name", ["fir", "linear-gaussian"])
def test_exact_likelihoods_are_those_of_their_own_functions(name):
    model = gb.get_model(name)
    paths = list(gb.simulate(model, n_steps=12, count=2, key=1))
    thetas = gb.simulate(model, n_steps=2, count=6, key=2).theta.reshape(2, 3, -1).astype(float)
    import jax.random as jr

    liks = ManyLogLiks(model, measured_batch(model, paths))
    found = liks.at(thetas, np.arange(2), jr.key(0))
    exactly = {"closed form": gb.output_error_log_lik, "kalman": gb.kalman_log_lik}[kind_of(model)]
    for i, record in enumerate(paths):
        np.testing.assert_allclose(found[i], exactly(model, thetas[i], record), rtol=1e-6)


def test_particle_likelihoods_are_near_the_exact_ones():
    """Records with different numbers of particles, in one call, each to its own row."""
    import jax.random as jr

    model = gb.get_model("linear-gaussian")
    paths = list(gb.simulate(model, n_steps=12, count=3, key=3))
    thetas = np.repeat([list(record.theta.values()) for record in paths], 2, axis=0)
    thetas = thetas.reshape(3, 2, -1)
    liks = ManyLogLiks(model, measured_batch(model, paths), gb.Filter("guided"))
    liks.kind, liks.n_particles = "particle", np.array([2000, 1000, 2000])
    found = liks.at(thetas, np.arange(3), jr.key(1))
    for i, record in enumerate(paths):
        np.testing.assert_allclose(found[i], gb.kalman_log_lik(model, thetas[i], record), atol=0.3)
    # Of some rows only, in their order.
    some = liks.at(thetas[[2, 0]], np.array([2, 0]), jr.key(2))
    np.testing.assert_allclose(some, found[[2, 0]], atol=0.4)
