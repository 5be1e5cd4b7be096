"""A point-mass filter for models with one state, in plain NumPy: the oracle of the likelihoods.

The state is a density on quadrature nodes. From one sample to the next it becomes a mixture of
normals, one for each node, which is evaluated at the next nodes:

    p(x_{k+1} | y_1, ..., y_k) = sum_j W_j N(x_{k+1}; f(x_j, u_k, k), q(x_j)^2)

Nothing is interpolated. The trapezoidal rule has an error of about 2 exp(-2 pi^2 / h^2), with h
the spacing in units of the integrand's narrowest width: 5e-9 at h = 1. So it is enough to choose
nodes that are dense where f is steep or the output is precise, as `growth_grid` does.

Limits. The price grows with the square of the nodes that the samples leave possible: measurement
noise may be as small as one likes, but a process noise far smaller than what the output can tell
is dear, and beyond `LARGEST` it is refused. Where theta is so wrong that single samples have
log-densities below -50, density that was left out earlier may be missed, and such a log-likelihood
(hundreds below any that matters) is right to its first digits only.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

# Logs below the greatest at which a node is left out, of the density and of a bound on the next.
# Generous: where theta is far from the truth, the next sample may be likely only from far out.
NEGLIGIBLE, IMPOSSIBLE = 100.0, 150.0
LARGEST = 2e7


class TooManyNodes(ValueError):
    """More products of nodes in a step than memory and patience allow."""


class OneState(NamedTuple):
    """A model with one state as plain functions of arrays; k counts from 1.

    `initial` is mean and standard deviation of x_1; a standard deviation of 0 is a known x_1.
    """

    mean: Callable  # f(x, u, k, theta): the mean of x_{k+1}
    std: Callable  # q(x, theta): the standard deviation of x_{k+1}
    log_observation: Callable  # log g(y, x, u, k, theta)
    initial: tuple[float, float] = (0.0, 0.0)


class Grid(NamedTuple):
    """Nodes in ascending order and the length that each of them stands for."""

    x: np.ndarray
    width: np.ndarray


class Filtered(NamedTuple):
    """What the filter finds; without the axis of records where one record was given."""

    log_lik: np.ndarray  # (record,)
    increments: np.ndarray  # (record, step)
    mean: np.ndarray  # (record, step): of x_k given y_1, ..., y_k


def uniform_grid(low: float, high: float, spacing: float) -> Grid:
    """Equally spaced nodes.

    >>> uniform_grid(-1.0, 1.0, 0.5)
    Grid(x=array([-1. , -0.5,  0. ,  0.5,  1. ]), width=array([0.5, 0.5, 0.5, 0.5, 0.5]))
    """
    x = np.linspace(low, high, int(np.ceil((high - low) / spacing)) + 1)
    return Grid(x, np.full(len(x), x[1] - x[0]))


def graded_grid(low: float, high: float, density: Callable, n_table: int = 4000) -> Grid:
    """Nodes with `density(x)` of them to a unit of x.

    They are equally spaced under a smooth map, and its own slope gives the widths: so the rule
    keeps its accuracy however roughly the table follows the density.

    >>> grid = graded_grid(-9.0, 9.0, lambda x: 2 + x**2 / 9)
    >>> len(grid.x), round(float(grid.width @ np.exp(-(grid.x**2) / 2)) ** 2 / 2, 6)
    (92, 3.141593)
    """
    table = np.linspace(low, high, n_table)
    per_unit = density(table)
    count = np.cumsum(np.diff(table) * (per_unit[1:] + per_unit[:-1]) / 2)
    place = CubicSpline(np.concatenate([[0.0], count]), table)
    at = np.linspace(0.0, count[-1], int(np.ceil(count[-1])) + 1)
    return Grid(place(at), place(at, 1) * at[1])


def grid_filter(model: OneState, theta, y, u, grid: Grid) -> Filtered:
    """Filter records y (record, step) that share theta and u, or one of them (step,).

    A missing sample (NaN) is left out.
    """
    y = np.asarray(y, np.float64)
    records = np.atleast_2d(y)
    if len(records) == 1:
        found = _filter(model, theta, records, u, grid)
        return found if y.ndim == 2 else Filtered(*(part[0] for part in found))
    # Together the records may need too many nodes, or one of them nodes that are near another's
    # and too far from its own to be seen: then each alone.
    try:
        found = _filter(model, theta, records, u, grid)
        lost = np.flatnonzero(np.isnan(found.log_lik))
    except TooManyNodes:
        found = Filtered(np.zeros(len(y)), np.zeros(y.shape), np.zeros(y.shape))
        lost = np.arange(len(y))
    for i in lost:
        for part, alone in zip(found, _filter(model, theta, y[[i]], u, grid), strict=True):
            part[i] = alone[0]
    return found


def _filter(model: OneState, theta, y, u, grid: Grid) -> Filtered:
    increments, means = np.zeros(y.shape), np.zeros(y.shape)
    share = np.ones((1, len(y)))
    mean, std = np.array([model.initial[0]]), np.array([model.initial[1]])
    for k, (sample, u_k) in enumerate(zip(y.T, u, strict=True), start=1):
        if std.any():
            log_g = _log_g(model, theta, sample, grid.x, u_k, k)
            possible = _possible(mean, std, log_g, grid)
            x, width = grid.x[possible], grid.width[possible, None]
            joint = log_g[possible] + _log_mixture(x, mean, std, share) + np.log(width)
        else:
            x, joint = mean, _log_g(model, theta, sample, mean, u_k, k)
        peak = joint.max(0)
        share = np.exp(joint - np.where(np.isfinite(peak), peak, np.nan))
        total = share.sum(0)
        share /= total
        increments[:, k - 1] = np.where(np.isnan(sample), 0.0 * total, peak + np.log(total))
        means[:, k - 1] = x @ share
        kept = (share > np.exp(-NEGLIGIBLE)).any(1)
        x, share = x[kept], share[kept]
        mean = model.mean(x, u_k, k, theta)
        std = np.broadcast_to(model.std(x, theta), x.shape)
    return Filtered(increments.sum(1), increments, means)


def grid_log_lik(model: OneState, theta, y, u, grid: Grid) -> np.ndarray:
    """Log-likelihoods (record,) of records that share theta and u, or that of one record."""
    return grid_filter(model, theta, y, u, grid).log_lik


def _log_g(model: OneState, theta, sample, x, u_k, k) -> np.ndarray:
    """Log-density of the samples at step k, (node, record), and 0 where there is none."""
    seen = ~np.isnan(sample)
    log_g = model.log_observation(np.where(seen, sample, 0.0), x[:, None], u_k, k, theta)
    return np.where(seen, log_g, 0.0)


def _possible(mean, std, log_g, grid: Grid) -> np.ndarray:
    """Which nodes may carry density after the sample: those with a bound not far below the best."""
    points = np.concatenate([[-np.inf], np.sort(mean), [np.inf]])
    after = np.searchsorted(points, grid.x)
    nearest = np.minimum(points[after] - grid.x, grid.x - points[after - 1])
    bound = log_g - 0.5 * (nearest[:, None] / std.max()) ** 2
    return (bound > bound.max(0) - IMPOSSIBLE).any(1)


def _log_mixture(x, mean, std, share) -> np.ndarray:
    """Log-density at each x of the mixture of normals, for each record: (node, record)."""
    if len(x) * len(mean) > LARGEST:
        raise TooManyNodes(f"{len(mean)} nodes to {len(x)}: the process noise is too small")
    energy = x[:, None] - mean
    energy /= np.sqrt(2) * std
    np.square(energy, out=energy)
    # About the nearest component: no sample is too surprising to be counted.
    least = energy.min(1, keepdims=True)
    kernel = np.exp(least - energy)
    with np.errstate(divide="ignore"):  # a record may have nothing where only others have
        return np.log(kernel @ (share / std[:, None])) - least - 0.5 * np.log(2 * np.pi)
