"""CPF-SAEM against the maximum of Kalman's likelihood, and what it says where it cannot go."""

import functools

import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize

import greybayes as gb
from greybayes.classical.cpf_saem import CpfSaem, cpf_saem, init, missing
from greybayes.classical.methods import get_method
from greybayes.errors import GreybayesError, ModelError, ThetaError
from greybayes.likelihood.measured import measured_batch
from greybayes.zoo.linear_gaussian import LinearGaussian

LINEAR = gb.get_model("linear-gaussian")
TRUTH = {"a": 0.9, "b": 1.0, "q": 0.3, "r": 0.3}


class ByGradients(LinearGaussian):
    """The same model, as an author writes it who gives no closed form."""

    def statistics(self, x, after, y, u, p, t):
        return None


GRADIENTS = ByGradients()


@functools.cache
def records():
    """One of 150 samples with gaps, and a shorter one."""
    long, short = (gb.simulate(LINEAR, TRUTH, n_steps=n, key=n)[0] for n in (150, 120))
    y = long.y.copy()
    y[[10, 11, 40]] = np.nan
    return gb.Record(y, long.u), short


@functools.cache
def highest():
    """The maximum of each exact log-likelihood in the support of the prior."""
    bounds = np.stack(LINEAR.prior.bounds, axis=1).astype(float)

    def loss(theta, record):
        return -gb.kalman_log_lik(LINEAR, np.asarray(theta)[None], record)[0]

    start = np.array(list(TRUTH.values()))
    return [-minimize(loss, start, record, bounds=bounds).fun for record in records()]


@functools.cache
def estimates(model):
    return cpf_saem(model, records(), key=1, settings={"iterations": 400, "n_first": 50})


@pytest.mark.parametrize("model", [LINEAR, GRADIENTS])
def test_it_reaches_the_maximum_of_kalmans_likelihood(model):
    for record, estimate, most in zip(records(), estimates(model), highest(), strict=True):
        reached = gb.kalman_log_lik(LINEAR, estimate.mean[None], record)[0]
        assert reached == pytest.approx(most, abs=0.2)
        # The bound says something: the middle of the prior is far below.
        assert gb.kalman_log_lik(LINEAR, LINEAR.prior.mean[None], record)[0] < most - 2
        assert estimate.status is gb.Status.ok
        assert estimate.diagnostics["closed_form"] is (model is LINEAR)


def test_an_estimate_carries_what_made_it():
    estimate = estimates(LINEAR)[0]
    assert (estimate.method, estimate.model) == ("cpf-saem", "LinearGaussian")
    assert estimate.diagnostics["iterations"] == estimate.settings["iterations"] == 400
    assert 0 < estimate.diagnostics["last_change"] < 0.1
    assert estimate.seconds > 0
    assert get_method("cpf_saem").run is cpf_saem
    assert get_method("cpf_saem").settings is CpfSaem
    assert cpf_saem(LINEAR, []) == []


def test_the_steps_are_those_of_the_paper():
    steps = [CpfSaem().step(k) for k in (1, 2, 3, 99, 100, 101, 500)]
    expected = [1.0, 1.0, 0.98, 0.98, 0.98, 0.98 * 2**-0.7, 0.98 * 401**-0.7]
    np.testing.assert_allclose(steps, expected)


def test_few_iterations_are_flagged_progress_is_told_and_keys_decide():
    told = []
    settings = {"iterations": 5, "n_first": 50}
    first, second = (
        cpf_saem(LINEAR, records(), key=k, settings=settings, watch=told.append) for k in (3, 3)
    )
    np.testing.assert_array_equal([e.mean for e in first], [e.mean for e in second])
    other = cpf_saem(LINEAR, records(), key=4, settings=CpfSaem(iterations=5, n_first=50))
    assert not np.array_equal(first[0].mean, other[0].mean)
    assert first[0].status is gb.Status.unconverged
    assert [p.iteration for p in told[:5]] == [1, 2, 3, 4, 5]
    assert told[4].iterations == 5
    assert "change" in told[4].note


def test_of_several_starts_it_takes_the_most_likely():
    signals = measured_batch(LINEAR, records())
    good, bad = [0.9, 1.0, 0.3, 0.3], [0.1, 0.1, 0.02, 0.02]
    thetas = np.array([[bad, good, bad], [good, bad, bad]])
    state = init(LINEAR, CpfSaem(n_first=50), thetas, signals, jr.key(5))
    np.testing.assert_allclose(state.theta, [good, good], rtol=1e-6)
    assert np.isfinite(state.path).all()


def test_it_starts_where_it_is_told():
    settings = {"iterations": 1, "n_first": 50}
    near = estimates(LINEAR)
    thetas = np.array([e.mean for e in near])
    from_estimates = cpf_saem(LINEAR, records(), settings=settings, start=near)
    from_arrays = cpf_saem(LINEAR, records(), settings=settings, start=thetas)
    for one, other in zip(from_estimates, from_arrays, strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)
    with pytest.raises(ThetaError, match="a = 2 is outside the support of its prior"):
        cpf_saem(LINEAR, records(), start=[2.0, 1.0, 0.1, 0.1])


@pytest.mark.parametrize(
    ("model", "clause"),
    [
        ("sir", "its transition has no density"),
        ("van-der-pol", "its transition has noise on some channels only"),
        ("coupled-drives", "its transition has no noise"),
    ],
)
def test_a_transition_without_a_density_is_refused_by_name(model, clause):
    assert clause in (missing(gb.get_model(model)) or "")
    with pytest.raises(ModelError, match=f"CPF-SAEM cannot serve {model}: {clause}"):
        cpf_saem(model, records()[0])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(GreybayesError, match=r"power is 2.0, expected one from 0.5 to 1"):
        cpf_saem(LINEAR, records()[0], settings={"power": 2.0})
    with pytest.raises(GreybayesError, match="n_particles is 1, expected 2 or more"):
        cpf_saem(LINEAR, records()[0], settings={"n_particles": 1})
    with pytest.raises(GreybayesError, match="has no setting particles; did you mean n_particles"):
        cpf_saem(LINEAR, records()[0], settings={"particles": 15})


@pytest.mark.accuracy
@pytest.mark.parametrize("key", [0, 1])
def test_the_papers_signals_of_m1(shared_data, key):
    signals = gb.read_records(shared_data / "growth1_evaluation_100.mat")
    found = cpf_saem("growth1", signals, key=key)
    errors = np.array([estimate.mean for estimate in found]) - [1.0, 0.1]
    assert np.mean(errors**2) <= 0.0096
    assert sum(estimate.status is gb.Status.ok for estimate in found) >= 95
