"""The posterior that a network gives: a mixture of normals on the line, one for each record.

Its log-density is exact and costs next to nothing, as does a draw; both are plain NumPy. The
network's part, the raw numbers, is in `heads`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from greybayes.amortized.line import Line

# How narrow a component may be against the spread of the prior, and how wide: exp of these.
_SHARPEST, _WIDEST = 7.0, -3.0


def n_raw(n_components: int, size: int) -> int:
    """The raw numbers of a mixture: a share, a centre and a triangle for each component.

    >>> n_raw(8, 4)
    120
    """
    return n_components * (1 + size + size * (size + 1) // 2)


def unpack(xp: Any, raw: Any, n_components: int, size: int) -> tuple[Any, Any, Any, Any]:
    """Log-shares, centres, log-diagonals and what is below them, of roots of the precisions."""
    ends = np.cumsum([n_components, n_components * size, n_components * size])
    shares, centres, diagonals, below = (
        raw[..., a:b] for a, b in zip([0, *ends], [*ends, None], strict=True)
    )
    lanes = raw.shape[:-1]
    top = shares.max(-1, keepdims=True)
    log_share = shares - top - xp.log(xp.exp(shares - top).sum(-1, keepdims=True))
    grid = (*lanes, n_components, size)
    log_diagonal = xp.clip(diagonals.reshape(grid), _WIDEST, _SHARPEST)
    return (
        log_share,
        centres.reshape(grid),
        log_diagonal,
        below.reshape(*lanes, n_components, size * (size - 1) // 2),
    )


def log_density(xp: Any, parts: tuple[Any, Any, Any, Any], z: Any) -> Any:
    """The log-density of z, `(*lanes, size)`, under mixtures whose lanes broadcast with it."""
    log_share, centre, log_diagonal, below = parts
    size = centre.shape[-1]
    off = z[..., None, :] - centre
    total = log_share + log_diagonal.sum(-1) - 0.5 * size * np.log(2 * np.pi)
    # Row by row of the triangle: few and small, so no product of matrices would pay.
    entry = 0
    for i in range(size):
        row = xp.exp(log_diagonal[..., i]) * off[..., i]
        for j in range(i):
            row = row + below[..., entry] * off[..., j]
            entry += 1
        total = total - 0.5 * row**2
    top = total.max(-1, keepdims=True)
    return top[..., 0] + xp.log(xp.exp(total - top).sum(-1))


@dataclass(frozen=True, eq=False)
class Mixture:
    """The posterior of one record."""

    line: Line
    raw: Float[np.ndarray, " raw"]
    n_components: int

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        size = len(self.line.supports)
        return unpack(np, np.asarray(self.raw, float), self.n_components, size)

    def widened(self, by: float) -> "Mixture":
        """The same with components so many times as wide."""
        size = len(self.line.supports)
        raw = np.array(self.raw, float)
        diagonal = slice(self.n_components * (1 + size), self.n_components * (1 + 2 * size))
        raw[diagonal] = np.clip(raw[diagonal], _WIDEST, _SHARPEST) - np.log(by)
        raw[diagonal.stop :] /= by
        return Mixture(self.line, raw, self.n_components)

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n param"]:
        """Draws; none is outside the support of the prior."""
        log_share, centre, log_diagonal, below = self._parts()
        size = centre.shape[-1]
        share = np.exp(log_share)
        chosen = rng.choice(self.n_components, n, p=share / share.sum())
        noise = rng.standard_normal((n, size))
        # Forward substitution: the root of the precision is lower triangular.
        off = np.empty((n, size))
        entry = 0
        for i in range(size):
            rest = noise[:, i]
            for j in range(i):
                rest = rest - below[chosen, entry] * off[:, j]
                entry += 1
            off[:, i] = rest * np.exp(-log_diagonal[chosen, i])
        return self.line.from_line(np, centre[chosen] + off)[0]

    def log_prob(self, theta: Float[np.ndarray, "*lanes param"]) -> Float[np.ndarray, "*lanes"]:
        """The log-density of theta; -inf outside the support of the prior."""
        z = self.line.to_line(np, np.asarray(theta, float))
        found = log_density(np, self._parts(), z) - self.line.from_line(np, z)[1]
        return np.where(self.line.inside(theta), found, -np.inf)
