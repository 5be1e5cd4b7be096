"""The paper's fixed training set Z(P, M): its split, its epochs, and when to stop."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from greybayes.simulation import Paths


class Split(NamedTuple):
    """Rows of a set for training and for validation."""

    training: np.ndarray
    validation: np.ndarray


def split_by_theta(paths: Paths, n_paths: int, share: float, seed: int) -> Split:
    """Split Z(P, M) by realisations of theta: no theta is on both sides.

    A split by rows would put paths of one theta on both sides, and validation would reward a
    network that knows the thetas by heart.
    """
    n_thetas = len(paths) // n_paths
    order = np.random.default_rng(seed).permutation(n_thetas)
    n_training = max(1, min(n_thetas - 1, round(share * n_thetas)))

    def rows(thetas: np.ndarray) -> np.ndarray:
        found = (np.sort(thetas)[:, None] * n_paths + np.arange(n_paths)).ravel()
        return found[~paths.diverged[found]]

    return Split(rows(order[:n_training]), rows(order[n_training:]))


def epoch(
    rows: Int[np.ndarray, " row"], batch: int, seed: int, number: int
) -> Int[np.ndarray, "step batch"]:
    """One pass through the rows in a new order; the last batch, if not whole, is left out."""
    order = np.random.default_rng((seed, number)).permutation(rows)
    return order[: len(order) // batch * batch].reshape(-1, batch)


@dataclass
class EarlyStopping:
    """Appendix B of the paper, as it was meant and as it ran.

    Stop after `patience` consecutive epochs whose validation loss differs by less than `tolerance`,
    relative to the one before, watched only after epoch `after`. As printed the algorithm never
    stops: its first comparison is with infinity, and the marker of the epoch is not moved in the
    else branch, so that its condition stays false for ever.

    >>> stopping = EarlyStopping(patience=2, after=0)
    >>> [stopping.update(n, loss) for n, loss in enumerate([1.0, 0.5, 0.499, 0.498], start=1)]
    [False, False, False, True]
    """

    patience: int = 3
    tolerance: float = 0.01
    after: int = 100
    _previous: float = float("inf")
    _count: int = 0

    def update(self, number: int, loss: Float[np.ndarray, ""] | float) -> bool:
        """Whether to stop after this epoch (numbers from 1)."""
        loss = float(loss)
        small = abs(loss - self._previous) < self.tolerance * abs(self._previous)
        watched = number > self.after and np.isfinite(self._previous)
        self._count = self._count + 1 if watched and small else 0
        self._previous = loss
        return self._count >= self.patience
