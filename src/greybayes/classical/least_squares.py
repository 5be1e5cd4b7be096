"""Bounded nonlinear least squares on the simulated output, from many starts.

    theta = argmin sum_k |y_k - E[y_k | x_k(theta)]|^2    inside the support of the prior

where x_k(theta) is the path without noise: exact for output-error models, and for others a way to
find a prior. Levenberg and Marquardt's method with forward derivatives, in float64; each output is
divided by its standard deviation over the record, so that units do not count. The covariance is
Gauss and Newton's, s^2 (J'J)^-1 for one output, as if there were no bounds.

Parameters that the simulated output does not depend on keep their prior. Where the only noise is
that of the output, its variance is that of the residuals.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from greybayes._types import Seed, Theta
from greybayes.classical.box import box_of, coordinates, thetas_and_slopes, to_theta
from greybayes.classical.gauss_newton import End, gauss_newton
from greybayes.classical.methods import Watch, as_list, like, make_settings
from greybayes.classical.newton import Descent, Limits, descend, outward
from greybayes.classical.starts import starts
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError, ModelError
from greybayes.estimate import Estimate
from greybayes.likelihood.measured import measured_batch
from greybayes.likelihood.output_error import mean_states
from greybayes.model import Model, Time
from greybayes.record import Record
from greybayes.structure import distribution
from greybayes.zoo import get_model

# The objective counts as at least this large: a perfect fit has none.
_UNIT = 1e-8


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """How `least_squares` goes about it."""

    n_starts: int = 16
    """Draws of the prior to start from; the best end counts."""
    n_iterations: int = 200
    """At most, for each start."""
    tolerance: float = 1e-12
    """An end is where the next step promises less, as a share of the sum of squares."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not value > 0:
                raise GreybayesError(f"LeastSquares got {name} = {value}, expected more than 0.")


def least_squares(
    model: Model | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: LeastSquares | Mapping[str, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
) -> Any:
    """The theta whose output without noise is nearest to a record, for one record or several.

    `start` replaces the draws of the prior: an estimate or one for each record, or an array. In the
    diagnostics `sse` is the sum of squared errors, and `n_agree` counts the starts that came to the
    same end; `at_bound` and `insensitive` name parameters that ended at a bound, and those that the
    output does not depend on.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", {"theta": [1.0, 0.5]}, key=1)[0]
    >>> estimate = least_squares("fir", record)
    >>> bool(abs(estimate["theta[0]"] - 1.0) < 4 * estimate.std[0])
    True
    """
    began, label = time.perf_counter(), model if isinstance(model, str) else ""
    model, listed = get_model(model), as_list(records)
    settings = make_settings(LeastSquares, settings)
    lacks = missing(model)
    if lacks:
        raise ModelError(f"least-squares cannot serve {type(model).__name__}: {lacks}.")
    if not listed:
        return []
    thetas = starts(model, key, settings.n_starts, len(listed), start)
    data = _data(model, listed)
    with jax.enable_x64(True):
        descent, ends = _fit(model, thetas, data, settings, watch)
    found = [gauss_newton(model, end, n) for n, end in enumerate(ends)]
    seconds = (time.perf_counter() - began) / len(listed)
    estimates = [
        Estimate(
            model.prior.names,
            fit.theta,
            fit.covariance,
            method="least-squares",
            model=label or type(model).__name__,
            seconds=seconds,
            status=descent.status(n),
            diagnostics={**fit.diagnostics, **descent.counts(n)},
            settings=dataclasses.asdict(settings),
        )
        for n, fit in enumerate(found)
    ]
    return like(records, estimates)


def missing(model: Model) -> str | None:
    """What a model lacks for least squares, as a clause; None where nothing is missing."""

    def mean(method, *arguments):
        try:
            return jnp.asarray(distribution(model, method, *arguments).mean, float)
        except NotImplementedError:
            raise _NoMean(method) from None

    def step(theta, u, t):
        p = model.p(theta)
        x = mean("initial", u, p)
        return mean("transition", x, u, p, t), mean("observation", x, u, p, t)

    model.structure  # noqa: B018 - mistakes in the model are told first.
    t = Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))
    theta = jax.ShapeDtypeStruct((model.prior.size,), jnp.float32)
    try:
        jax.eval_shape(step, theta, jnp.zeros(len(model.inputs)), t)
    except _NoMean as error:
        return f"its {error} has no mean, and the path without noise is made of means"
    return None


class _NoMean(Exception):
    """A distribution that can only be drawn from."""


def simulated_output(
    model: Model, theta: Theta, u: Float[Array, "steps input"]
) -> Float[Array, "steps output"]:
    """The output without noise. Pure, for use inside compiled code."""
    p, late, times = model.p(theta), delayed(model, u), clock(model, len(u))

    def observed(x, u, t):
        return jnp.asarray(distribution(model, "observation", x, u, p, t).mean, theta.dtype)

    return jax.vmap(observed)(mean_states(model, p, late), late, times)


class _Data(NamedTuple):
    y: Any
    u: Any
    spread: Any
    """The standard deviation of each output over the record."""


def _data(model: Model, records: list[Record]) -> _Data:
    y, u = measured_batch(model, records)
    seen = ~np.isnan(y)
    n = np.maximum(seen.sum(1, keepdims=True), 1)
    centred = np.where(seen, y - np.where(seen, y, 0.0).sum(1, keepdims=True) / n, 0.0)
    spread = np.sqrt((centred**2).sum(1) / n[:, 0])
    return _Data(y, u, np.where(spread > 0, spread, 1.0))


def _evaluate(model: Model, z, data: _Data) -> tuple[Array, Array, Array, Any]:
    """Half the sum of squares, its gradient, Gauss and Newton's curvature; sums of each output."""

    def errors(z):
        error = data.y - simulated_output(model, to_theta(model.prior, z), data.u)
        error = jnp.where(jnp.isnan(data.y), 0.0, error)
        return error, error

    slope, error = jax.jacfwd(errors, has_aux=True)(z)
    weight, sse = data.spread**-2, (error**2).sum(0)
    gradients = jnp.einsum("koi,ko->oi", slope, error)
    grams = jnp.einsum("koi,koj->oij", slope, slope)
    curvature = jnp.einsum("o,oij->ij", weight, grams)
    return weight @ sse / 2, weight @ gradients, curvature, (sse, grams)


def _fit(
    model: Model, thetas, data: _Data, settings: LeastSquares, watch: Watch | None
) -> tuple[Descent, list[End]]:
    """Where all starts ended, and for each record what is known at the best of these ends."""
    box = box_of(model.prior)
    z = np.clip(coordinates(model.prior, thetas), box.low, box.high)
    limits = Limits(settings.n_iterations, settings.tolerance, _UNIT)
    n_seen = (~np.isnan(data.y)).sum((1, 2))

    def note(best):
        return f"error {100 * np.sqrt(np.mean(2 * best / n_seen)):.4g} % of the output's spread"

    lanes, n_outputs, free = z.shape[:2], data.y.shape[-1], z.shape[-1]
    extra = np.zeros((*lanes, n_outputs)), np.zeros((*lanes, n_outputs, free, free))
    descent = descend(_evaluate, model, z, data, box, limits, watch, note, extra)
    best = np.arange(len(z)), descent.best()
    finite = np.isfinite(descent.value)
    curved = np.diagonal(descent.curvature, axis1=-2, axis2=-1) > 0
    of_each = zip(
        *thetas_and_slopes(model.prior, descent.z[best]),
        *(each[best] for each in descent.extra),
        (~np.isnan(data.y)).sum(1),
        data.spread,
        (curved & finite[..., None]).any(1),
        outward(box, descent.z[best], descent.gradient[best]),
        finite[best].tolist(),
        strict=True,
    )
    return descent, [End._make(each) for each in of_each]
