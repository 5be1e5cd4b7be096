"""Bounds in standard errors, and oracles in plain NumPy with none of our code in the path."""

import numpy as np

# Five standard errors: a right answer misses it once in two million, and keys are fixed.
BOUND = 5.0


def assert_mean(draws: np.ndarray, expected) -> None:
    """The mean over axis 0 is `expected`, within its Monte Carlo error."""
    draws = np.asarray(draws, np.float64)
    error = draws.std(0) / np.sqrt(len(draws))
    z = np.abs(draws.mean(0) - expected) / error
    assert np.all(error > 0), "draws without spread have no Monte Carlo error"
    assert np.all(z < BOUND), f"mean {draws.mean(0)}, expected {expected}: {z} standard errors"


def assert_moments(draws: np.ndarray, mean, variance) -> None:
    """Mean and variance over axis 0 are as expected, within their Monte Carlo error."""
    assert_mean(draws, mean)
    assert_mean((np.asarray(draws, np.float64) - mean) ** 2, variance)


def assert_same_mean(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Two samples have one mean over axis 0, within the Monte Carlo error of both."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    difference = np.abs(ours.mean(0) - theirs.mean(0))
    assert np.all(difference <= BOUND * error), f"{difference / error} standard errors apart"


def assert_uncorrelated(columns: np.ndarray) -> None:
    """No two columns of `(draws, columns)` are correlated, within Monte Carlo error."""
    r = np.corrcoef(np.asarray(columns, np.float64), rowvar=False)
    worst = np.abs(r - np.eye(len(r))).max() * np.sqrt(len(columns))
    assert worst < BOUND, f"a correlation is {worst:.1f} standard errors from 0"


def growth2_path(theta, u, w=None, v=None):
    """M2 by its formula, in float64: x_1 = 0, y_k from x_k. Axis 0 is time; more axes batch."""
    theta2, theta6 = theta[0], theta[1]
    u = np.asarray(u, np.float64)
    w = np.zeros_like(u) if w is None else w
    v = np.zeros_like(u) if v is None else v
    x = [np.zeros(np.broadcast_shapes(np.shape(theta2), np.shape(w[0])))]
    for k in range(len(u) - 1):
        x.append(theta2 * x[k] / (0.04 * x[k] ** 2 + 1) + u[k] + w[k])
    y = [theta6 * x[k] ** 2 + v[k] for k in range(len(u))]
    return np.stack(x), np.stack(y)


def paper_input(n_steps: int) -> np.ndarray:
    """u_k = cos(1.2 k), k from 1."""
    return np.cos(1.2 * np.arange(1, n_steps + 1))
