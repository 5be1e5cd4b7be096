"""Refined estimates of the paper's models against the grid filter. Slow: `make accuracy`."""

import numpy as np
import pytest
from helpers.grid import m1_posterior_near, m2_posterior_near
from helpers.tiny import with_arrays

import greybayes as gb

COUNT = 50
# Both have likelihoods of their own, and only ask where to look.
ORACLES = {
    "growth1": lambda y, estimates: m1_posterior_near(
        y, np.array([e.mean for e in estimates]), np.array([e.std for e in estimates])
    ),
    "growth2": lambda y, estimates: m2_posterior_near(
        y, [e.sample(1000) for e in estimates], np.random.default_rng(1), n_draws=400
    ),
}
# Effective draws that leave a squared distance of two thousandths of the posterior's variance to
# chance: a fraction of what is allowed.
SETTINGS = {"min_ess": 500.0, "max_draws": 65_536}


def shifted(estimator, records):
    """The same with a head that is off by one posterior standard deviation, in every parameter."""
    size = len(estimator.names)
    components = estimator.header["architecture"]["sizes"]["components"]
    line = estimator.line
    estimates = estimator.estimate(records)
    spread = np.mean([line.to_line(np, e.sample(500)).std(0) for e in estimates], axis=0)
    arrays = dict(estimator.arrays)
    bias = np.array(arrays["head.raw.bias"])
    bias[components : components * (1 + size)] += np.tile(spread, (components, 1)).ravel()
    arrays["head.raw.bias"] = bias.astype(np.float32)
    return with_arrays(estimator, arrays)


@pytest.mark.accuracy
@pytest.mark.parametrize("name", list(ORACLES))
def test_refined_means_are_those_of_the_grid_filter(name):
    estimator = gb.load(name)
    records = list(gb.simulate(name, count=COUNT, key=77))
    found = {
        head: gb.refine(used, records, key=1, settings=SETTINGS)
        for head, used in (("good", estimator), ("bad", shifted(estimator, records)))
    }
    y = np.stack([record.y[:, 0] for record in records])
    means = {head: np.array([e.mean for e in estimates]) for head, estimates in found.items()}
    exact = ORACLES[name](y, found["good"])
    variance = estimator.model.prior.variance
    # What the oracle itself leaves to chance is taken off.
    noise = (exact.error**2 / variance).mean()
    distances = {
        head: float(((mean - exact.mean) ** 2 / variance).mean() - noise)
        for head, mean in means.items()
    }
    print(name, distances, noise, exact.ess.min())
    # An oracle that knows: few draws of it, or much noise, would let anything pass.
    assert noise == 0 or exact.ess.min() > 20  # Quadrature has no draws.
    assert noise < 0.002
    assert max(distances.values()) < 0.002


@pytest.mark.accuracy
@pytest.mark.parametrize("name", list(ORACLES))
def test_intervals_of_the_shipped_ones_hold_what_they_promise(name):
    assert gb.calibration(gb.load(name), 10_000, 1).largest_gap < 0.015
