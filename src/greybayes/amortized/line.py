"""The line: each entry of theta as a real number of about unit spread, whatever its support.

A density on the line is one on the support of the prior, and a draw cannot leave it. Written once
for NumPy and for JAX: an estimate from a file needs no compiler.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

# The nearest that an entry may come to an end of its interval, as a share of its length.
_NEAREST = 1e-7


@dataclass(frozen=True)
class Line:
    """How each entry of theta is taken to the line and back.

    An interval goes through the probit, so that a uniform prior is a standard normal: a posterior
    that does not vanish at a bound then has the tail of a normal, which a mixture of normals can
    follow. What is bounded below goes through the logarithm.

    >>> line = Line(("interval", "above", "real"), ((0.0, 2.0), (1.0,), ()), (0.0,) * 3, (1.0,) * 3)
    >>> z = line.to_line(np, np.array([1.0, 2.0, 3.0]))
    >>> z.round(6).tolist(), line.from_line(np, z)[0].round(6).tolist()
    ([0.0, 0.0, 3.0], [1.0, 2.0, 3.0])
    """

    supports: tuple[str, ...]
    bounds: tuple[tuple[float, ...], ...]
    location: tuple[float, ...]
    spread: tuple[float, ...]

    @classmethod
    def of(cls, entries: Sequence[Mapping[str, Any]]) -> "Line | None":
        """From the entries of theta in a header; None where one has a support of another kind."""
        if not all("line" in entry for entry in entries):
            return None
        location, spread = (tuple(e["line"][i] for e in entries) for i in (0, 1))
        supports = tuple(entry["support"] for entry in entries)
        return cls(supports, tuple(tuple(e["bounds"]) for e in entries), location, spread)

    def standardised(self, theta: Float[np.ndarray, "draw param"]) -> "Line":
        """The same with location and spread of draws of the prior."""
        size = len(self.supports)
        raw = Line(self.supports, self.bounds, (0.0,) * size, (1.0,) * size)
        z = raw.to_line(np, theta)
        return Line(self.supports, self.bounds, tuple(z.mean(0).tolist()), tuple(z.std(0).tolist()))

    def to_line(self, xp: Any, theta: Any) -> Any:
        """z of theta, entry by entry along the last axis."""
        columns = []
        for i, (support, bounds) in enumerate(zip(self.supports, self.bounds, strict=True)):
            value = theta[..., i]
            if support == "interval":
                share = (value - bounds[0]) / (bounds[1] - bounds[0])
                value = _special(xp).ndtri(xp.clip(share, _NEAREST, 1 - _NEAREST))
            elif support == "above":
                value = xp.log(xp.maximum(value - bounds[0], 1e-30))
            columns.append((value - self.location[i]) / self.spread[i])
        return xp.stack(columns, axis=-1)

    def from_line(self, xp: Any, z: Any) -> tuple[Any, Any]:
        """Theta of z, and the log of the Jacobian's determinant."""
        columns, log_det = [], 0.0
        for i, (support, bounds) in enumerate(zip(self.supports, self.bounds, strict=True)):
            value = self.location[i] + self.spread[i] * z[..., i]
            log_det = log_det + xp.log(xp.asarray(self.spread[i]))
            if support == "interval":
                length = bounds[1] - bounds[0]
                log_det = log_det + np.log(length / np.sqrt(2 * np.pi)) - 0.5 * value**2
                share = xp.clip(_special(xp).ndtr(value), _NEAREST, 1 - _NEAREST)
                value = bounds[0] + length * share
            elif support == "above":
                log_det = log_det + value
                value = bounds[0] + xp.exp(value)
            columns.append(value)
        return xp.stack(columns, axis=-1), log_det

    def inside(self, theta: Float[np.ndarray, "*lanes param"]) -> Any:
        """Whether each theta is in the support."""
        low, high = self._ends
        return ((theta > low) & (theta < high)).all(-1)

    @functools.cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        low = np.array([bounds[0] if bounds else -np.inf for bounds in self.bounds])
        high = np.array([bounds[1] if len(bounds) > 1 else np.inf for bounds in self.bounds])
        return low, high


def _special(xp: Any) -> Any:
    if xp is np:
        import scipy.special

        return scipy.special
    import jax.scipy.special

    return jax.scipy.special
