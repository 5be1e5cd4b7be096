"""Likelihoods and posteriors of the paper's growth models by the point-mass filter: the oracle.

theta is (theta7, theta8) in M1 and (theta2, theta6, theta7, theta8) in M2, with uniform priors;
x_1 = 0 and u_k = cos(1.2 k). Records are (record, step), or one of them (step,); many at once are
much cheaper than one by one where they come from similar theta, because the nodes and the
transition's kernel are shared.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, logit, logsumexp
from scipy.stats import multivariate_t

from helpers import paper_input
from helpers.point_mass import Grid, OneState, graded_grid, grid_log_lik

M1_PRIOR = np.array([[0.1, 1.5], [0.0, 1.0]])
M2_PRIOR = np.array([[0.0, 1.0], [0.1, 2.0], [0.0, 1.0], [0.0, 1.0]])
# Off by 1e-6 to 1e-4 in the log-likelihood of 200 samples; 1.0 is off by less than 1e-6.
SPACING = 1.25
# Part of the prior in the proposal, and degrees of freedom of the rest.
PRIOR_PART, FREEDOM = 0.1, 5
# Variances below this hold as small a part of the prior, and cost most: importance sampling leaves
# them out.
SMALLEST = 1e-4


class Posterior(NamedTuple):
    """Moments of theta given each record; without the axis of records where one was given."""

    mean: np.ndarray  # (record, param)
    covariance: np.ndarray  # (record, param, param)
    error: np.ndarray  # (record, param): Monte Carlo standard error of the mean, 0 by quadrature
    ess: np.ndarray  # (record,): effective number of draws, or of nodes


def _feedback(x, theta):
    theta1, theta2, theta3, theta4, *_ = theta
    return theta1 * x + theta2 * x / (theta3 * x**2 + theta4)


def _log_observation(y, x, u, k, theta):
    *_, theta6, _, theta8 = theta
    return -0.5 * (y - theta6 * x**2) ** 2 / theta8 - 0.5 * np.log(2 * np.pi * theta8)


GROWTH = OneState(
    mean=lambda x, u, k, theta: _feedback(x, theta) + theta[4] * u,
    std=lambda x, theta: np.sqrt(theta[6]),
    log_observation=_log_observation,
)


def growth_grid(theta, y, spacing: float = SPACING) -> Grid:
    """Nodes for all eight thetas, `spacing` apart in units of the narrowest width at each place.

    A mean m(x) seen with standard deviation s is a factor of width s / |m'(x)|.
    """
    _, _, theta3, theta4, theta5, theta6, theta7, theta8 = theta
    q, r = np.sqrt([theta7, theta8])
    # Where m' is 0 a sample z deviations off has a width of sqrt(s / z |m''|).
    off = max(5.0, -np.nanmin(y, initial=0.0) / r)

    def density(x):
        # An envelope of the feedback's slope: the nodes may not thin out as abruptly as it does.
        slope = theta[0] + theta[1] / (theta3 * x**2 + theta4)
        seen = np.hypot((2 * theta6 * x / r) ** 2, off * 2 * theta6 / r)
        return np.sqrt((1 + slope**2) / theta7 + seen) / spacing

    # As far as ten deviations at each step, or the largest sample, can carry the state.
    x = np.linspace(0.0, 100.0, 10_001)
    carried = np.maximum.accumulate(_feedback(x, theta)) + theta5 + 10 * q
    largest = np.sqrt((np.nanmax(y, initial=0.0) + 10 * r) / theta6)
    far = max(x[np.argmax(carried < x)], largest) + 10 * q
    return graded_grid(-far, far, density)


def growth_log_lik(theta, y, spacing: float = SPACING) -> np.ndarray:
    """Log-likelihoods of records at all eight thetas."""
    return grid_log_lik(
        GROWTH, theta, y, paper_input(np.shape(y)[-1]), growth_grid(theta, y, spacing)
    )


def m1_log_lik(theta, y, spacing: float = SPACING) -> np.ndarray:
    """Log-likelihoods of M1: one axis for each of theta's but the last, then one for records.

    >>> float(m1_log_lik([1.0, 0.1], [0.3, np.nan]).round(4))  # x_1 = 0: the density of v_1
    -0.2176
    """
    return _for_each(theta, lambda t: growth_log_lik((0.5, 25, 1, 1, 8, 0.05, *t), y, spacing))


def m2_log_lik(theta, y, spacing: float = SPACING) -> np.ndarray:
    """Log-likelihoods of M2, likewise."""
    return _for_each(
        theta, lambda t: growth_log_lik((0, t[0], 0.04, 1, 1, t[1], t[2], t[3]), y, spacing)
    )


def _for_each(theta, log_lik) -> np.ndarray:
    theta = np.asarray(theta, np.float64)
    found = np.array([log_lik(one) for one in theta.reshape(-1, theta.shape[-1])])
    return found.reshape(theta.shape[:-1] + found.shape[1:])[()]


def m1_posterior(y, n_nodes: int = 24) -> Posterior:
    """theta7 and theta8 of M1 by Gauss-Legendre quadrature where a coarse pass finds the mass.

    The coordinates are standard deviations: near 0 the likelihood of a variance is narrow. With
    200 samples, 20 nodes to a coordinate are off by 0.01 posterior deviations. The nodes are shared
    by all records, so those must come from one theta; for others see `m1_posterior_near`.
    """
    low, high = np.sqrt(M1_PRIOR).T
    edges = [np.linspace(low[i], high[i], n) for i, n in enumerate((9, 13))]
    centres = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    log_lik = m1_log_lik(_pairs(*centres) ** 2, np.atleast_2d(y))
    found = (log_lik > log_lik.max((0, 1)) - 15).any(-1)
    rules = [_gauss(*_around(edges[i], found.any(1 - i)), n_nodes) for i in (0, 1)]
    deviation = _pairs(*(nodes for nodes, _ in rules)).reshape(-1, 2)
    log_weight = np.log(_pairs(*(weights for _, weights in rules)).prod(-1).ravel())
    # Uniform on variances: the density of a deviation is proportional to itself.
    log_weight += np.log(deviation).sum(1)
    log_lik = m1_log_lik(deviation**2, np.atleast_2d(y)).T
    posterior = _moments(deviation**2, log_lik + log_weight)
    return _like(y, posterior._replace(error=np.zeros_like(posterior.error)))


def m1_posterior_near(y, mean, std, n_nodes: int = 12) -> Posterior:
    """The same, each record (step,) with nodes of its own around where its posterior is said to be.

    Where it is not there, and reaches over the nodes, that is an error.
    """
    found = []
    for record, middle, reach in zip(y, mean, 6 * std, strict=True):
        ends = np.clip([middle - reach, middle + reach], *M1_PRIOR.T)
        rules = [_gauss(*np.sqrt(ends[:, i]), n_nodes) for i in (0, 1)]
        deviation = _pairs(*(nodes for nodes, _ in rules))
        log_weight = np.log(_pairs(*(weights for _, weights in rules)).prod(-1))
        log_density = np.log(deviation).sum(-1) + m1_log_lik(deviation**2, record)
        for i in (0, 1):
            # At an end that is the prior's own there is nothing beyond.
            free = log_density.max(1 - i)[[0, -1]][ends[:, i] != M1_PRIOR[i]]
            assert (free < log_density.max() - 4).all(), "the posterior is elsewhere"
        weighed = (log_density + log_weight).reshape(1, -1)
        found.append(_moments(deviation.reshape(-1, 2) ** 2, weighed))
    whole = Posterior(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return whole._replace(error=np.zeros_like(whole.error))


def _pairs(first, second) -> np.ndarray:
    """All pairs of two vectors, (first, second, 2)."""
    return np.stack(np.meshgrid(first, second, indexing="ij"), -1)


def _around(edges, found) -> tuple[float, float]:
    """The cells that were found, and one more on either side."""
    index = np.flatnonzero(found)
    return edges[max(index[0] - 1, 0)], edges[min(index[-1] + 2, len(edges) - 1)]


def _gauss(low, high, n_nodes) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    return low + (high - low) * (nodes + 1) / 2, weights * (high - low) / 2


def m2_posterior(y, rng, n_draws: int = 2000, n_fit: int = 500, n_rounds: int = 4) -> Posterior:
    """The four thetas of M2 by importance sampling in logit space.

    The proposal is a Student's t for each record, with one part in ten of the prior. It is fitted
    in rounds of `n_fit` draws (population Monte Carlo), the first of them from the prior; only the
    `n_draws` after them count.
    """
    records = np.atleast_2d(y)
    proposal: list[Component] = []
    for _ in range(n_rounds):
        z, _, log_weight = _weighted(proposal, records, n_fit, rng)
        proposal = [_fit(z, one) for one in log_weight]
    _, theta, log_weight = _weighted(proposal, records, n_draws, rng)
    return _like(y, _moments(theta, log_weight))


def m2_posterior_near(y, samples, rng, n_draws: int = 200) -> Posterior:
    """The same, each record (step,) with a proposal where samples (draw, param) say it is.

    Records of many thetas have little in common, and draws for all of them serve none.
    """
    found = []
    for record, drawn in zip(y, samples, strict=True):
        share = (drawn - M2_PRIOR[:, 0]) / np.ptp(M2_PRIOR, axis=1)
        z = logit(np.clip(share, 1e-6, 1 - 1e-6))
        proposal = [Component(z.mean(0), 1.2 * np.cov(z.T))]
        _, theta, log_weight = _weighted(proposal, record[None], n_draws, rng)
        found.append(_moments(theta, log_weight))
    return Posterior(*(np.concatenate(part) for part in zip(*found, strict=True)))


class Component(NamedTuple):
    """A Student's t over the logits of theta."""

    centre: np.ndarray
    scale: np.ndarray


def _weighted(proposal, records, n, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws of the logits (draw, param), of theta, and log-weights (record, draw)."""
    z = _draw(proposal, n, rng)
    theta = M2_PRIOR[:, 0] + expit(z) * np.ptp(M2_PRIOR, axis=1)
    log_lik = np.full((len(records), n), -np.inf)
    usable = (theta[:, 2:] > SMALLEST).all(1)
    log_lik[:, usable] = m2_log_lik(theta[usable], records).T
    return z, theta, log_lik + _log_prior(z) - _log_proposal(proposal, z)


def _draw(proposal, n, rng) -> np.ndarray:
    z = rng.logistic(size=(n, len(M2_PRIOR)))
    if not proposal:
        return z
    which = rng.integers(len(proposal), size=n)
    which[rng.random(n) < PRIOR_PART] = -1
    for i, one in enumerate(proposal):
        mine = which == i
        normal = rng.multivariate_normal(np.zeros(z.shape[1]), one.scale, mine.sum())
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, (mine.sum(), 1)))
        z[mine] = one.centre + stretch * normal
    return z


def _log_prior(z) -> np.ndarray:
    return (log_expit(z) + log_expit(-z)).sum(-1)


def _log_proposal(proposal, z) -> np.ndarray:
    if not proposal:
        return _log_prior(z)
    parts = [multivariate_t(one.centre, one.scale, FREEDOM).logpdf(z) for one in proposal]
    mixture = logsumexp(parts, axis=0) - np.log(len(parts))
    return np.logaddexp(np.log(PRIOR_PART) + _log_prior(z), np.log(1 - PRIOR_PART) + mixture)


def _fit(z, log_weight) -> Component:
    """Moments of the logits, with the weights flattened until enough draws count."""
    power = 1.0
    while _ess(power * log_weight) < 10 * z.shape[1]:
        power *= 0.9
    weight = np.exp(power * log_weight - logsumexp(power * log_weight))
    return Component(weight @ z, np.cov(z.T, aweights=weight))


def _ess(log_weight) -> np.ndarray:
    return np.exp(2 * logsumexp(log_weight, axis=-1) - logsumexp(2 * log_weight, axis=-1))


def _moments(theta, log_weight) -> Posterior:
    """From draws or nodes (draw, param) and their log-weights (record, draw)."""
    weight = np.exp(log_weight - logsumexp(log_weight, axis=1, keepdims=True))
    mean = weight @ theta
    away = theta - mean[:, None]
    covariance = np.einsum("rd,rdi,rdj->rij", weight, away, away)
    error = np.sqrt(np.einsum("rd,rdi->ri", weight**2, away**2))
    return Posterior(mean, covariance, error, _ess(log_weight))


def _like(y, posterior: Posterior) -> Posterior:
    return posterior if np.ndim(y) == 2 else Posterior(*(part[0] for part in posterior))
