"""Every method meets every built-in model: it serves it, or it says what is missing."""

import dataclasses
import json

import numpy as np
import pytest

import greybayes as gb
from greybayes.classical.methods import METHODS, get_method
from greybayes.errors import GreybayesError, Status
from greybayes.zoo import MODELS

N_STEPS = 12
# Small enough for a table of all pairs; what is right is tested method by method.
SETTINGS = {
    "cme-mh": {"burn_in": 50, "max_draws": 20, "n_particles": 16},
    "psem": {"iterations": 4, "n_particles": 16, "n_trajectories": 4, "n_starts": 1},
    "cpf-saem": {"iterations": 3, "n_particles": 4},
    "least-squares": {"n_starts": 2},
    "map": {"n_starts": 2},
}
WITH_DENSITIES = {
    "linear-gaussian",
    *("growth", "growth1", "growth1-text", "growth2"),
    *("cascaded-tanks", "stochastic-volatility"),
}
EXACT = {"fir", "linear-gaussian", "coupled-drives", "coupled-drives-theta"}
SERVED = {
    "cme-mh": set(MODELS),
    "psem": WITH_DENSITIES,
    "cpf-saem": WITH_DENSITIES,
    "least-squares": set(MODELS) - {"lotka-volterra", "sir"},
    "map": EXACT,
}
# Variants of models that are in the quick table already.
VARIANTS = {"growth", "growth1-text", "coupled-drives-theta"}
# Much to compile; their methods are in the quick table with other models.
SLOW = {
    (method, model)
    for method in ("psem", "cpf-saem")
    for model in ("growth1", "cascaded-tanks", "stochastic-volatility")
}


def marks(method, model):
    return [pytest.mark.accuracy] if model in VARIANTS or (method, model) in SLOW else []


PAIRS = [
    pytest.param(method, model, marks=marks(method, model))
    for method in METHODS
    for model in MODELS
]


def short_record(model):
    signal = "prbs" if model.inputs else None
    paths = gb.simulate(model, n_steps=N_STEPS, inputs=signal, count=2, key=3)
    return list(paths)


def test_the_table_is_whole():
    assert set(SERVED) == set(METHODS)
    for method in METHODS.values():
        fields = {field.name for field in dataclasses.fields(method.settings)}
        assert set(SETTINGS[method.name]) <= fields


@pytest.mark.parametrize(("method", "name"), PAIRS, ids=lambda value: value)
def test_a_method_serves_a_model_or_says_what_is_missing(method, name):
    model, chosen = gb.get_model(name), get_method(method)
    records = short_record(model)
    clause = chosen.missing(model)
    assert (clause is None) == (name in SERVED[method])
    if clause is not None:
        assert "its " in clause
        with pytest.raises(GreybayesError) as error:
            chosen.run(name, records)
        assert clause in str(error.value)
        return
    # One start: the search for a good one is compiled apart, and tested with each method.
    start = model.prior.mean
    estimates = chosen.run(name, records, key=1, settings=SETTINGS[method], start=start)
    assert len(estimates) == 2
    for estimate in estimates:
        assert estimate.names == model.prior.names
        assert estimate.method == method
        assert estimate.model == name
        assert estimate.seconds > 0
        assert isinstance(estimate.status, Status)
        assert set(SETTINGS[method]) <= set(estimate.settings)
        assert np.isfinite(estimate.mean).all()
        # Strictly inside: theta can be handed to any likelihood.
        model.prior.vector(estimate.mean)
        json.dumps(estimate.to_dict())


def test_an_unknown_method_is_a_sentence():
    with pytest.raises(GreybayesError, match="there is no method cme; did you mean cme-mh"):
        get_method("cme")
