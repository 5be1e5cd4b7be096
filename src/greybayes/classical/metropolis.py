"""Metropolis-Hastings for a batch of records, several chains each, on the real line.

The chains are moved here, in NumPy and float64; what costs time is the log-likelihood, which comes
from outside for the whole batch at once. It may be noisy: the one of the current point is kept and
never computed again, and the chains then still have the exact posterior as their limit (Andrieu
and Roberts 2009).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

# Draws of the noise of a log-likelihood make chains stick; a walk then does best when about every
# fifth move is accepted (Sherlock et al. 2015).
_ACCEPTANCE = 0.2
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


def move(
    rng: np.random.Generator, points: Points, kernel: Kernel, target: Target, jump: float
) -> tuple[Points, Bool[np.ndarray, "record chain"]]:
    """One step of every chain, and whether it was accepted.

    With probability `jump` the proposal does not depend on where the chain is: a Student-t of the
    target's centre and covariance. Otherwise it is a step of a random walk.
    """
    shape = points.z.shape
    noise = rng.standard_normal(shape)
    step = np.einsum("rij,rcj->rci", kernel.root, noise)
    walked = points.z + np.exp(kernel.log_scale)[:, None, None] * step
    heavy = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, shape[:2]))[..., None]
    far = rng.random(shape[:2]) < jump
    z = np.where(far[..., None], kernel.centre[:, None] + heavy * step, walked)
    there = target(z)
    log_ratio = there.log_prior + there.log_lik - points.log_prior - points.log_lik
    balance = _log_student(points.z, kernel) - _log_student(z, kernel)
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


def _log_student(z: np.ndarray, kernel: Kernel) -> Float[np.ndarray, "record chain"]:
    """The log-density of far proposals, up to a constant."""
    scaled = np.linalg.solve(kernel.root[:, None], (z - kernel.centre[:, None])[..., None])[..., 0]
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
    log_scale = kernel.log_scale + rate * (acceptance - _ACCEPTANCE)
    return Kernel(centre, root, np.clip(log_scale, np.log(0.05), np.log(3.0)))
