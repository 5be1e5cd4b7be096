"""Fit %, RMSE, NRMSE and R² against the field's own package and against hand-worked numbers."""

import numpy as np
import pytest

from greybayes.diagnose.fit import fit_percent, scores


def signals(n_outputs=2):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(200, n_outputs)) * [1.0, 30.0][:n_outputs] + 5.0
    return y, y + rng.normal(size=y.shape)


def test_scores_are_those_of_nonlinear_benchmarks():
    theirs = pytest.importorskip("nonlinear_benchmarks.error_metrics")
    y, simulated = signals()
    ours = scores(y, simulated)
    assert np.allclose(ours.fit_percent, theirs.fit_index(y, simulated), rtol=1e-12)
    assert np.allclose(ours.rmse, theirs.RMSE(y, simulated), rtol=1e-12)
    assert np.allclose(ours.nrmse, theirs.NRMSE(y, simulated), rtol=1e-12)
    assert np.allclose(ours.r_squared, theirs.R_squared(y, simulated), rtol=1e-12)


def test_scores_worked_by_hand():
    """y = 1, 2, 3, 6 has mean 3 and variance (4 + 1 + 0 + 9) / 4; the errors are 1, 0, -1, 2."""
    found = scores(np.array([[1.0], [2.0], [3.0], [6.0]]), np.array([[0.0], [2.0], [4.0], [4.0]]))
    assert found.rmse == pytest.approx([np.sqrt(6 / 4)])
    assert found.nrmse == pytest.approx([np.sqrt(6 / 14)])
    assert found.r_squared == pytest.approx([1 - 6 / 14])
    assert found.fit_percent == pytest.approx([100 * (1 - np.sqrt(6 / 14))])


def test_of_one_output_fit_percent_is_that_of_the_scores():
    y, simulated = signals(1)
    assert fit_percent(y, simulated) == pytest.approx(scores(y, simulated).fit_percent[0])


def test_missing_samples_are_left_out():
    y, simulated = signals()
    holed = y.copy()
    holed[::3, 0] = np.nan
    seen = np.arange(len(y)) % 3 > 0
    assert scores(holed, simulated).rmse[0] == pytest.approx(
        scores(y[seen], simulated[seen]).rmse[0]
    )
    assert scores(holed, simulated).rmse[1] == scores(y, simulated).rmse[1]


def test_what_is_constant_or_never_seen_has_no_fit(recwarn):
    y = np.array([[2.0, np.nan], [2.0, np.nan]])
    found = scores(y, np.zeros((2, 2)))
    assert np.isnan(found.fit_percent).all()
    assert found.rmse[0] == 2.0
    assert np.isnan(found.rmse[1])
    assert not recwarn.list
