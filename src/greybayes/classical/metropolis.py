"""Metropolis-Hastings for a batch of records, several chains each, on the real line.

The chains are moved here, in NumPy and float64; what costs time is the log-likelihood, which comes
from outside for the whole batch at once. It may be noisy: the one of the current point is kept and
never computed again, and the chains then still have the exact posterior as their limit (Andrieu
and Roberts 2009).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

# Draws of the noise of a log-likelihood make chains stick; a walk then does best when about every
# fifth move is accepted (Sherlock et al. 2015).
ACCEPTANCE = 0.2
_FREEDOM = 6.0


class Points(NamedTuple):
    """Where the chains are: unconstrained, and both parts of their log-density there."""

    z: Float[np.ndarray, "record chain free"]
    log_prior: Float[np.ndarray, "record chain"]
    """Of z, so with the Jacobian of the way to theta."""
    log_lik: Float[np.ndarray, "record chain"]


class Kernel(NamedTuple):
    """How the chains of each record move."""

    centre: Float[np.ndarray, "record free"]
    root: Float[np.ndarray, "record free free"]
    """Of the covariance of the target, as far as it is known."""
    log_scale: Float[np.ndarray, " record"]
    """Of the steps of the walk, relative to that root."""


# The log-prior and log-likelihood of proposals.
Target = Callable[[Float[np.ndarray, "record chain free"]], Points]


def first_kernel(
    centre: Float[np.ndarray, "record free"], spread: Float[np.ndarray, "record free"]
) -> Kernel:
    """A kernel that knows the spread of each coordinate only."""
    free = centre.shape[1]
    root = spread[:, :, None] * np.eye(free)
    return Kernel(centre, root, np.full(len(centre), np.log(2.38 / np.sqrt(free))))


@runtime_checkable
class Guide(Protocol):
    """Densities on the real line, one for each record, that are near the target."""

    def draw(
        self, rng: np.random.Generator, n_chains: int
    ) -> Float[np.ndarray, "record chain free"]:
        """A draw for each chain."""
        ...

    def log_density(
        self, z: Float[np.ndarray, "record chain free"]
    ) -> Float[np.ndarray, "record chain"]:
        """Up to a constant for each record."""
        ...


def move(
    rng: np.random.Generator,
    points: Points,
    kernel: Kernel,
    target: Target,
    jump: float,
    guide: Guide | None = None,
) -> tuple[Points, Bool[np.ndarray, "record chain"]]:
    """One step of every chain, and whether it was accepted.

    With probability `jump` the proposal does not depend on where the chain is: a draw of the
    guide, or without one a Student-t of the target's centre and covariance. Otherwise it is a step
    of a random walk.
    """
    shape = points.z.shape
    guide = guide or _Student(kernel)
    step = np.einsum("rij,rcj->rci", kernel.root, rng.standard_normal(shape))
    walked = points.z + np.exp(kernel.log_scale)[:, None, None] * step
    far = rng.random(shape[:2]) < jump
    z = np.where(far[..., None], guide.draw(rng, shape[1]), walked)
    there = target(z)
    with np.errstate(invalid="ignore"):  # Collapsed here and there: see below.
        log_ratio = there.log_prior + there.log_lik - points.log_prior - points.log_lik
    if jump > 0:
        balance = guide.log_density(points.z) - guide.log_density(z)
        log_ratio = log_ratio + np.where(far, balance, 0.0)
    # A proposal whose likelihood collapsed is never accepted, one from a collapsed point always.
    log_ratio = np.where(np.isnan(log_ratio), -np.inf, log_ratio)
    accepted = np.log(rng.random(shape[:2])) < log_ratio
    return _where(accepted, there, points), accepted


def _where(chosen: np.ndarray, a: Points, b: Points) -> Points:
    return Points(
        np.where(chosen[..., None], a.z, b.z),
        np.where(chosen, a.log_prior, b.log_prior),
        np.where(chosen, a.log_lik, b.log_lik),
    )


class _Student:
    """A Student-t of the centre and covariance that a kernel has learned."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def draw(
        self, rng: np.random.Generator, n_chains: int
    ) -> Float[np.ndarray, "record chain free"]:
        centre, root, _ = self.kernel
        noise = rng.standard_normal((len(centre), n_chains, centre.shape[1]))
        heavy = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, noise.shape[:2]))
        return centre[:, None] + heavy[..., None] * np.einsum("rij,rcj->rci", root, noise)

    def log_density(
        self, z: Float[np.ndarray, "record chain free"]
    ) -> Float[np.ndarray, "record chain"]:
        off = (z - self.kernel.centre[:, None])[..., None]
        scaled = np.linalg.solve(self.kernel.root[:, None], off)[..., 0]
        return -0.5 * (_FREEDOM + z.shape[-1]) * np.log1p((scaled**2).sum(-1) / _FREEDOM)


def adapted(
    kernel: Kernel,
    history: Float[np.ndarray, "draw record chain free"],
    acceptance: Float[np.ndarray, " record"],
    rate: float,
    *,
    diagonal: bool = False,
) -> Kernel:
    """A kernel that has learned from draws, and from how many of its last steps were accepted."""
    free = history.shape[-1]
    pooled = np.moveaxis(history, 1, 0).reshape(history.shape[1], -1, free)
    centre = pooled.mean(1)
    off = pooled - centre[:, None]
    covariance = np.einsum("rni,rnj->rij", off, off) / pooled.shape[1]
    if diagonal:
        covariance = covariance * np.eye(free)
    # Few draws, or chains that did not move, must not make it singular.
    floor = np.maximum(1e-4 * np.einsum("rii->ri", covariance), 1e-6)
    root = np.linalg.cholesky(covariance + floor[:, :, None] * np.eye(free))
    log_scale = kernel.log_scale + rate * (acceptance - ACCEPTANCE)
    return Kernel(centre, root, np.clip(log_scale, np.log(0.05), np.log(3.0)))
