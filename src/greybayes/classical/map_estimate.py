"""Maximum a posteriori by Newton's method, where the likelihood is exact and can be differentiated.

    theta = argmax log p(theta) + log p(y | theta)

The likelihood is that of output-error models, or Kalman's. The density is that of theta itself, so
the maximum does not depend on coordinates; the steps are taken in the unconstrained space, where
variances are near to quadratic, with forward derivatives in float64. The covariance is Laplace's,
the inverse of the negative Hessian by theta.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from greybayes._types import Seed, Theta
from greybayes.classical.box import Box
from greybayes.classical.methods import Watch, as_list, like, make_settings
from greybayes.classical.newton import Descent, Limits, descend
from greybayes.classical.starts import inside, margins, prior_draws, spread, starts
from greybayes.errors import GreybayesError, ModelError
from greybayes.estimate import Estimate
from greybayes.likelihood import kalman, output_error
from greybayes.likelihood.measured import Measured, measured_batch
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model

# A logit saturates: a longer step may land where the objective has no slope left.
_LONGEST = 1.0
# In the tail of a bijection Newton's step has length 1 however far it goes; at a maximum, none.
_TAIL = 0.1
_NEAR = 1e-3
_SINGULAR = 1e-12


@dataclasses.dataclass(frozen=True)
class MapEstimate:
    """How `map_estimate` goes about it."""

    n_starts: int = 8
    """Draws of the prior to start from; the highest end counts."""
    n_iterations: int = 100
    """At most, for each start."""
    tolerance: float = 1e-10
    """An end is where the next step promises less, as a share of the log-density."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not value > 0:
                raise GreybayesError(f"MapEstimate got {name} = {value}, expected more than 0.")


def map_estimate(
    model: Model | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: MapEstimate | Mapping[str, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
) -> Any:
    """The theta with the highest posterior density, for one record or several.

    `start` replaces the draws of the prior: an estimate or one for each record, or an array. In the
    diagnostics `log_posterior` is log p(theta) + log p(y | theta), `n_agree` counts the starts that
    came to the same end, and `at_bound` names parameters whose density rises up to a bound; there
    is no covariance then, nor where a direction of theta is flat.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", {"theta": [1.0, 0.5]}, key=1)[0]
    >>> estimate = map_estimate("fir", record)
    >>> bool(abs(estimate["theta[0]"] - 1.0) < 4 * estimate.std[0])
    True
    """
    began, label = time.perf_counter(), model if isinstance(model, str) else ""
    model, listed = get_model(model), as_list(records)
    settings = make_settings(MapEstimate, settings)
    lacks = missing(model)
    if lacks:
        raise ModelError(f"map cannot serve {type(model).__name__}: {lacks}.")
    if not listed:
        return []
    thetas = starts(model, key, settings.n_starts, len(listed), start)
    data = measured_batch(model, listed)
    with jax.enable_x64(True):
        descent, tops = _climb(model, thetas, data, settings, watch)
    seconds = (time.perf_counter() - began) / len(listed)
    estimates = [
        Estimate(
            model.prior.names,
            top.theta,
            top.covariance,
            method="map",
            model=label or type(model).__name__,
            seconds=seconds,
            status=descent.status(n),
            diagnostics={**top.diagnostics, **descent.counts(n)},
            settings=dataclasses.asdict(settings),
        )
        for n, top in enumerate(tops)
    ]
    return like(records, estimates)


def missing(model: Model) -> str | None:
    """What a model lacks for an exact likelihood, as a clause; None where nothing is missing."""
    lacks = output_error.not_output_error(model)
    if lacks is None or kalman.is_linear_gaussian(model):
        return None
    return f"{lacks}, and it is not linear-Gaussian, so that it has no exact likelihood"


def _log_lik(model: Model, theta: Theta, data: Any) -> Float[Array, ""]:
    if output_error.not_output_error(model) is None:
        return output_error.log_lik(model, theta, data.y, data.u)
    return kalman._filter(model, theta, data.y, data.u)["increment"].sum()


def _evaluate(model: Model, z, data: Measured) -> tuple[Array, Array, Array, Any]:
    """The negative log-density of theta given a record, its gradient and its Hessian."""

    def objective(z):
        theta = model.prior.constrain(z)[0]
        value = -model.prior.log_prob(theta) - _log_lik(model, theta, data)
        return value, value

    # Forwards, twice: a model may have loops that cannot be followed back.
    def slope(z):
        gradient, value = jax.jacfwd(objective, has_aux=True)(z)
        return gradient, (value, gradient)

    hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(z)
    return value, gradient, hessian, ()


class _Top(NamedTuple):
    """The maximum for one record."""

    theta: Float[np.ndarray, " param"]
    covariance: Float[np.ndarray, "param param"] | None
    diagnostics: Mapping[str, Any]


def _climb(
    model: Model, thetas, data: Measured, settings: MapEstimate, watch: Watch | None
) -> tuple[Descent, list[_Top]]:
    """Where all starts ended, and the best of these ends for each record."""
    draws = inside(model.prior, prior_draws(model.prior))
    free = np.asarray(_free(model, np.concatenate([draws, np.concatenate(thetas)])))
    z = free[len(draws) :].reshape(*thetas.shape[:2], -1)
    infinite = np.full(z.shape[-1], np.inf)
    box = Box(-infinite, infinite, spread(free[: len(draws)]))
    limits = Limits(settings.n_iterations, settings.tolerance, longest=_LONGEST)

    def note(best):
        return f"log-density {-best.mean():.6g}"

    descent = descend(_evaluate, model, z, data, box, limits, watch, note)
    best = np.arange(len(z)), descent.best()
    thetas, slopes = jax.device_get(_back(model, descent.z[best]))
    ends = (descent.value, descent.gradient, descent.curvature)
    given = zip(thetas, slopes, *(each[best] for each in ends), strict=True)
    return descent, [_top(model, *each) for each in given]


@functools.partial(jax.jit, static_argnums=0)
def _free(model: Model, thetas):
    return jax.vmap(model.prior.unconstrain)(thetas)


@functools.partial(jax.jit, static_argnums=0)
def _back(model: Model, z):
    """Theta and d theta / d z of each record."""

    def one(z):
        slope, theta = jax.jacfwd(lambda z: (model.prior.constrain(z)[0],) * 2, has_aux=True)(z)
        return theta, slope

    return jax.vmap(one)(z)


def _top(model: Model, theta, slope, value, gradient, hessian) -> _Top:
    if not np.isfinite(value):
        return _Top(model.prior.mean, None, {})
    low, high = margins(model.prior)
    near = np.minimum(theta - low, high - theta) < _NEAR * spread(prior_draws(model.prior))
    rising = np.abs(gradient) > _TAIL * np.abs(np.diag(hessian))
    # Where the bijection has no slope left, theta is as near to its bound as can be.
    at_bound = near & (((slope != 0) @ rising > 0) | (slope == 0).all(1))
    covariance = None if at_bound.any() else _laplace(slope, hessian)
    names = [name for name, flag in zip(model.prior.names, at_bound, strict=True) if flag]
    told = {"log_posterior": -float(value), "at_bound": names}
    return _Top(inside(model.prior, theta), covariance, told)


def _laplace(
    slope: Float[np.ndarray, "param free"], hessian: Float[np.ndarray, "free free"]
) -> Float[np.ndarray, "param param"] | None:
    """The inverse Hessian by theta: at a maximum the bijection's own curvature does not count."""
    diagonal = np.diag(hessian)
    if not (diagonal > 0).all():
        return None
    unit = np.sqrt(diagonal)
    scaled = hessian / np.outer(unit, unit)
    scaled = (scaled + scaled.T) / 2
    if np.linalg.eigvalsh(scaled)[0] < _SINGULAR:
        return None
    return slope @ (np.linalg.inv(scaled) / np.outer(unit, unit)) @ slope.T
