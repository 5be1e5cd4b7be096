"""How well a simulated output fits a measured one."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


def fit_percent(
    y: Float[np.ndarray, "steps output"], simulated: Float[np.ndarray, "steps output"]
) -> float:
    """100 (1 - |y - simulated| / |y - mean y|), over all outputs; missing samples are left out.

    >>> round(fit_percent(np.array([[0.0], [2.0]]), np.array([[0.0], [1.0]])), 2)
    29.29
    """
    seen = ~np.isnan(y)
    centred = np.where(seen, y - np.nanmean(y, axis=0), 0.0)
    error = np.where(seen, y - simulated, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # A constant y has no fit.
        return float(100 * (1 - np.linalg.norm(error) / np.linalg.norm(centred)))


class Scores(NamedTuple):
    """The fit of each output, in the words of the field."""

    fit_percent: Float[np.ndarray, " output"]
    """100 (1 - NRMSE)."""
    rmse: Float[np.ndarray, " output"]
    """The root of the mean squared error, in the unit of y."""
    nrmse: Float[np.ndarray, " output"]
    """RMSE over the standard deviation of y; NaN where y is constant."""
    r_squared: Float[np.ndarray, " output"]
    """1 - NRMSE²."""


def scores(
    y: Float[np.ndarray, "steps output"], simulated: Float[np.ndarray, "steps output"]
) -> Scores:
    """Fit %, RMSE, NRMSE and R² of each output; missing samples are left out.

    They are those of `nonlinear_benchmarks.error_metrics`.

    >>> found = scores(np.array([[0.0], [2.0]]), np.array([[0.0], [1.0]]))
    >>> [round(float(value[0]), 4) for value in found]
    [29.2893, 0.7071, 0.7071, 0.5]
    """
    # An output that was never seen has no fit, and needs no warning.
    seen = ~np.isnan(y)
    n = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, y, 0.0).sum(0) / n
    spread = np.sqrt((np.where(seen, y - mean, 0.0) ** 2).sum(0) / n)
    rmse = np.sqrt((np.where(seen, y - simulated, 0.0) ** 2).sum(0) / n)
    rmse = np.where(seen.any(0), rmse, np.nan)
    nrmse = np.divide(rmse, spread, out=np.full_like(rmse, np.nan), where=spread > 0)
    return Scores(100 * (1 - nrmse), rmse, nrmse, 1 - nrmse**2)
