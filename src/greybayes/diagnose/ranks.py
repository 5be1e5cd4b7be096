"""Ranks of theta among samples of its posterior, and how far they may be from uniform.

Draw theta from the prior, simulate a record, and draw samples of the posterior of that record. If
the posterior is right, theta is one more such sample, and its rank among them is uniform:
simulation-based calibration (Talts et al. 2018). Coverage is read from the same ranks. All is
computed from arrays, `theta (draw, param)` and `samples (draw, sample, param)`.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Sets of uniform ranks from which a band is made: a level of 1 % is then off by a tenth of itself.
_N_SETS = 10_000


def ranks(
    theta: Float[np.ndarray, "draw param"], samples: Float[np.ndarray, "draw sample param"]
) -> Int[np.ndarray, "draw param"]:
    """How many samples are below theta: 0 to their number, each as often if the posterior is right.

    >>> ranks(np.array([[0.5]]), np.array([[[0.1], [0.9], [0.4]]]))
    array([[2]])
    """
    return (samples < theta[:, None]).sum(1)


def joint_ranks(
    theta: Float[np.ndarray, "draw param"],
    samples: Float[np.ndarray, "draw sample param"],
    references: Float[np.ndarray, "draw param"],
    spread: Float[np.ndarray, " param"],
) -> Int[np.ndarray, " draw"]:
    """How many samples are nearer than theta to a reference point, which the record knows not of.

    This is TARP (Lemos et al. 2023). Distances are Euclidean, each parameter over its `spread`.

    >>> samples = np.array([[[1.0, 0.0], [3.0, 0.0], [0.0, 30.0]]])
    >>> joint_ranks(np.array([[2.0, 0.0]]), samples, np.zeros((1, 2)), np.array([1.0, 20.0]))
    array([2])
    """
    own = np.square((theta - references) / spread).sum(-1)
    others = np.square((samples - references[:, None]) / spread).sum(-1)
    return (others < own[:, None]).sum(1)


def coverage(
    ranks: Int[np.ndarray, "draw *param"], n_samples: int, level: float
) -> Float[np.ndarray, "*param"]:
    """How often theta is in the central interval of this level.

    >>> coverage(np.array([0, 1, 2, 3]), n_samples=3, level=0.5)
    array(0.5)
    """
    return _share(ranks, n_samples, (1 - level) / 2, (1 + level) / 2)


def joint_coverage(
    joint_ranks: Int[np.ndarray, " draw"], n_samples: int, level: float
) -> Float[np.ndarray, ""]:
    """How often theta is in the ball about the reference that holds this share of the samples.

    >>> joint_coverage(np.array([0, 1, 1, 3]), n_samples=3, level=0.5)
    array(0.75)
    """
    return _share(joint_ranks, n_samples, 0.0, level)


def _share(ranks: np.ndarray, n_samples: int, low: float, high: float) -> np.ndarray:
    # A rank is a cell of the unit interval. One that an end cuts counts in part, so that a right
    # posterior is covered as often as the level says whatever the number of samples.
    cells = n_samples + 1
    part = np.minimum(ranks + 1, high * cells) - np.maximum(ranks, low * cells)
    return np.asarray(np.clip(part, 0.0, 1.0).mean(0))


class Band(NamedTuple):
    """Where the distribution function of the ranks of a right posterior stays as a whole."""

    at: Float[np.ndarray, " sample"]
    """Ranks over their number: 1 / (n_samples + 1) and so on."""
    lower: Float[np.ndarray, " sample"]
    upper: Float[np.ndarray, " sample"]


def band(n_draws: int, n_samples: int, level: float = 0.95) -> Band:
    """The simultaneous band of Säilynoja, Bürkner and Vehtari (2022), by simulation.

    At each rank the band ends at two quantiles of a binomial distribution, at the same pair of
    probabilities everywhere. These are such that of uniform ranks `level` stay inside throughout.

    >>> found = band(1000, 9)
    >>> found.at[4], bool(found.lower[4] > 0.44), bool(found.upper[4] < 0.56)
    (np.float64(0.5), True, True)
    """
    sets = _uniform_sets(n_draws, n_samples)
    index = max(1, math.floor((1 - level) * (len(sets) + 1))) - 1
    first, tails = _tails(n_draws, n_samples)
    inside = tails >= sets[index]
    lower = first + inside.argmax(1)
    upper = first + inside.shape[1] - 1 - inside[:, ::-1].argmax(1)
    at = np.arange(1, n_samples + 1) / (n_samples + 1)
    return Band(at, lower / n_draws, np.minimum(upper, n_draws) / n_draws)


def p_value(ranks: Int[np.ndarray, " draw"], n_samples: int) -> float:
    """The share of sets of uniform ranks that leave the middle as far as these do somewhere.

    Ranks are outside the band of a level where it is 1 - level or less.

    >>> p_value(np.arange(1000) % 10, n_samples=9), p_value(np.zeros(1000, int), n_samples=9) < 0.01
    (1.0, True)
    """
    counts = np.cumsum(np.bincount(ranks, minlength=n_samples + 1))[None, :-1]
    sets = _uniform_sets(len(ranks), n_samples)
    farther = np.searchsorted(sets, _least_tail(counts, len(ranks), n_samples), side="right")
    return float((1 + farther.item()) / (1 + len(sets)))


@functools.lru_cache(maxsize=8)
def _uniform_sets(n_draws: int, n_samples: int) -> Float[np.ndarray, " set"]:
    """The least tail of each of many sets of uniform ranks, in ascending order."""
    rng = np.random.default_rng(0)  # Fixed: the same ranks always get the same verdict.
    found, size = [], 500
    for _ in range(_N_SETS // size):
        drawn = rng.multinomial(n_draws, np.full(n_samples + 1, 1 / (n_samples + 1)), size)
        found.append(_least_tail(drawn[:, :-1].cumsum(1), n_draws, n_samples))
    return np.sort(np.concatenate(found))


def _least_tail(
    counts: Int[np.ndarray, "set sample"], n_draws: int, n_samples: int
) -> Float[np.ndarray, " set"]:
    """Of counts of ranks below 1, 2, ...: the smaller tail at the least probable of them."""
    first, tails = _tails(n_draws, n_samples)
    place = np.clip(counts - first, 0, tails.shape[1] - 1)
    return tails[np.arange(n_samples), place].min(1)


@functools.lru_cache(maxsize=8)
def _tails(
    n_draws: int, n_samples: int
) -> tuple[Int[np.ndarray, " sample"], Float[np.ndarray, "sample place"]]:
    """For each rank the smaller tail of its binomial at `first`, `first + 1`, ..."""
    from scipy.special import bdtr, bdtrc

    at = np.arange(1, n_samples + 1)[:, None] / (n_samples + 1)
    half = math.ceil(4 * math.sqrt(n_draws)) + 1  # Eight standard deviations, where they are most.
    first = np.maximum(np.floor(n_draws * at).astype(int) - half, 0)
    count = np.minimum(first + np.arange(2 * half + 1), n_draws).astype(float)
    return first[:, 0], np.minimum(bdtr(count, n_draws, at), bdtrc(count - 1, n_draws, at))
