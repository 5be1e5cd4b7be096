"""Where methods start: thetas from the prior or from an estimate, a little inside their bounds."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.errors import GreybayesError, ThetaError
from greybayes.estimate import Estimate
from greybayes.model import Model
from greybayes.prior import Prior

# As near to a bound as theta may come, as a share of the width of its support.
_MARGIN = 1e-6
_DRAWS = 256


def starts(
    model: Model, key: Seed, n_starts: int, n_records: int, start: Any = None
) -> Float[np.ndarray, "record start param"]:
    """Thetas to start from: draws of the prior, the same for each record, or the one given.

    `start` is an estimate or one for each record, or an array `(param,)` or `(record, param)`.

    >>> import greybayes as gb
    >>> starts(gb.get_model("growth2"), 0, n_starts=3, n_records=2).shape
    (2, 3, 4)
    """
    if start is not None:
        return inside(model.prior, _given(model.prior, start, n_records))[:, None]
    thetas = inside(model.prior, _draws(model.prior, as_key(key), n_starts))
    return np.broadcast_to(thetas, (n_records, *thetas.shape))


def check_names(prior: Prior, estimates: Sequence[Estimate]) -> None:
    """Refuse to start from estimates of other parameters."""
    for estimate in estimates:
        if estimate.names != prior.names:
            raise ThetaError(
                f"start has {', '.join(estimate.names)}; expected an estimate of "
                f"{', '.join(prior.names)}."
            )


def _given(prior: Prior, start: Any, n_records: int) -> Float[np.ndarray, "record param"]:
    if isinstance(start, Estimate):
        start = [start] * n_records
    if isinstance(start, Sequence) and start and isinstance(start[0], Estimate):
        check_names(prior, start)
        start = [estimate.mean for estimate in start]
    try:
        thetas = np.asarray(start, float)
    except (TypeError, ValueError):
        raise GreybayesError(
            f"start is {start!r}, expected an Estimate, one for each record, or an array."
        ) from None
    if thetas.ndim == 1:
        thetas = np.broadcast_to(thetas, (n_records, len(thetas)))
    if thetas.ndim != 2 or len(thetas) != n_records:
        raise GreybayesError(
            f"start has shape {thetas.shape}, expected ({prior.size},), or ({n_records}, "
            f"{prior.size}): one for each record."
        )
    prior.vectors(thetas)
    return thetas


def inside(
    prior: Prior, thetas: Float[np.ndarray, "*lanes param"]
) -> Float[np.ndarray, "*lanes param"]:
    """Thetas a little inside their bounds: in the unconstrained space a bound is at infinity."""
    return np.clip(thetas, *margins(prior))


@functools.cache
def margins(prior: Prior) -> tuple[Float[np.ndarray, " param"], Float[np.ndarray, " param"]]:
    """The bounds of theta, and a little inside them."""
    low, high = (np.asarray(end, float) for end in prior.bounds)
    width = np.where(np.isfinite(high - low), high - low, spread(prior_draws(prior)))
    return low + _MARGIN * width, high - _MARGIN * width


@functools.cache
def prior_draws(prior: Prior) -> Float[np.ndarray, "draw param"]:
    """Draws that say how wide the prior is, always the same."""
    return _draws(prior, jr.key(0), _DRAWS)


def _draws(prior: Prior, key: Key[Array, ""], count: int) -> Float[np.ndarray, "draw param"]:
    # A draw depends on its number alone, so that all counts share one compilation.
    numbers = np.arange(max(count, _DRAWS), dtype=np.uint32)
    with jax.enable_x64(False):
        return np.asarray(_sampled(prior, key, numbers), float)[:count]


@functools.partial(jax.jit, static_argnums=0)
def _sampled(prior: Prior, key, numbers):
    return prior.sample(key, numbers)


def spread(draws: Float[np.ndarray, "draw free"]) -> Float[np.ndarray, " free"]:
    """How far apart draws are, for each coordinate; heavy tails do not count."""
    lower, upper = np.quantile(draws, [0.25, 0.75], axis=0)
    # A prior that is all but certain still has a scale.
    return np.where(upper > lower, upper - lower, np.maximum(np.abs(upper), 1.0))
