"""CME-MH on the paper's nonlinear models, against the grid filter. Slow: `make accuracy`."""

import numpy as np
import pytest
from helpers import BOUND
from helpers.grid import m1_posterior, m2_posterior

import greybayes as gb

ORACLES = {
    "growth1": m1_posterior,
    "growth2": lambda y: m2_posterior(y, np.random.default_rng(1)),
}


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("model", "likelihood", "count"),
    # With particles 20 records take more than half an hour on one core, and a hard one alone does:
    # draws are limited, and how many of them are effective is in the error that is allowed.
    [("growth1", "exact", 20), ("growth2", "exact", 20), ("growth2", "particle", 5)],
)
def test_it_agrees_with_the_grid_filter(shared_data, model, likelihood, count):
    records = gb.read_records(shared_data / f"{model}_evaluation_100.mat")[:count]
    settings, start = {"likelihood": likelihood}, None
    if likelihood == "particle":
        settings |= {"proposal": "guided", "burn_in": 100, "max_draws": 1000}
        start = gb.load(model).estimate(records)
    found = gb.cme_mh(model, records, key=1, settings=settings, start=start)
    oracle = ORACLES[model]
    exact = oracle(np.stack([record.y[:, 0] for record in records]))
    for i, estimate in enumerate(found):
        ess = np.array(list(estimate.diagnostics["ess"].values()))
        variance = np.diag(exact.covariance[i])
        error = np.sqrt(variance / ess + exact.error[i] ** 2)
        # Quadrature is off by up to a hundredth of a standard deviation.
        error = np.maximum(error, 0.01 * np.sqrt(variance))
        z = (estimate.mean - exact.mean[i]) / error
        assert (np.abs(z) < BOUND).all(), f"record {i + 1}: {z} standard errors"


@pytest.mark.accuracy
def test_the_published_variant_gives_the_published_estimates(shared_data):
    count = 12
    records = gb.read_records(shared_data / "growth1_evaluation_100.mat")[:count]
    table = np.genfromtxt(shared_data / "growth1_published_cme_mh.csv", delimiter=",", names=True)
    published = np.stack([table["theta7"], table["theta8"]], axis=1)[:count]
    # Its walk, its prior and its start; without the noise of its particles.
    settings = {"variances": "std", "walk": "diagonal", "jump": 0.0, "likelihood": "exact"}
    found = gb.cme_mh("growth1", records, key=1, settings=settings, start=np.array([1.0, 0.1]))
    std = np.array([estimate.std for estimate in found])
    off = (np.array([estimate.mean for estimate in found]) - published) / std
    # The published chains have 3,500 draws of a slow walk: a few hundred effective ones.
    assert np.abs(off).max() < 0.3
    assert np.abs(off.mean(0)).max() < 0.1
    # Under the stated prior they would be farther away.
    stated = gb.cme_mh("growth1", records, key=1, settings={"likelihood": "exact"})
    other = (np.array([estimate.mean for estimate in stated]) - published) / std
    assert (np.abs(other.mean(0)) > np.abs(off.mean(0))).all()
