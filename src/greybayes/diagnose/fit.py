"""How well a simulated output fits a measured one."""

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
