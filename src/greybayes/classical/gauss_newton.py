"""What the residuals of a least-squares fit say: covariance of theta, variance of the noise."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int

from greybayes.affine import depends
from greybayes.classical.starts import inside, prior_draws
from greybayes.errors import RecordError
from greybayes.model import Model, Time
from greybayes.structure import distribution

# Least eigenvalue of J'J with unit columns: below it a direction of theta cannot be told.
_SINGULAR = 1e-12


class End(NamedTuple):
    """What is known of one record where its best start ended; z are the box's coordinates."""

    theta: Float[np.ndarray, " param"]
    slope: Float[np.ndarray, "param free"]
    """d theta / d z."""
    sse: Float[np.ndarray, " output"]
    grams: Float[np.ndarray, "output free free"]
    """J'J of each output by z."""
    n_seen: Int[np.ndarray, " output"]
    spread: Float[np.ndarray, " output"]
    """What each output was divided by."""
    sensitive: Bool[np.ndarray, " free"]
    """Which coordinates the output depends on, at any of the ends."""
    beyond: Bool[np.ndarray, " free"]
    """Which coordinates are at a bound, and would be better beyond it."""
    found: bool
    """Whether any start had an output in the range of numbers."""


class Fit(NamedTuple):
    """Theta with its covariance, None where a direction of theta cannot be told."""

    theta: Float[np.ndarray, " param"]
    covariance: Float[np.ndarray, "param param"] | None
    diagnostics: Mapping[str, Any]


class Noise(NamedTuple):
    """An entry of theta that is the variance (power 1) or the standard deviation (2) of outputs."""

    entry: int
    power: int
    outputs: tuple[int, ...]


def gauss_newton(model: Model, end: End, number: int = 0) -> Fit:
    """Covariance and diagnostics of a fit, and the parameters that are not in its mean."""
    if not end.found:
        return Fit(model.prior.mean, None, {})
    weight = end.spread**-2.0
    gram = np.einsum("o,oij->ij", weight, end.grams)
    told = np.diag(gram) > 0
    n, n_fitted = int(end.n_seen.sum()), int(told.sum())
    if n <= n_fitted:
        raise RecordError(
            f"record {number + 1} has {n} samples that were seen; least squares fits {n_fitted} "
            f"parameters of {type(model).__name__} and needs more samples than that."
        )
    # Every fitted parameter takes one sample's worth of error away.
    share = (n - n_fitted) / n
    variance = end.sse / np.maximum(end.n_seen, 1) / share
    theta = np.where(_touched(end, end.sensitive), end.theta, model.prior.mean)
    insensitive = ~_touched(end, told)
    at_bound = _touched(end, end.beyond)

    filling = np.einsum("o,oij->ij", weight**2 * variance, end.grams)
    covariance = _sandwich(gram[told][:, told], filling[told][:, told], end.slope[:, told])
    if covariance is not None:
        covariance[insensitive, insensitive] = model.prior.variance[insensitive]
    for entry, value, uncertainty in _noises(model, end, share):
        if not insensitive[entry]:
            continue
        theta[entry], insensitive[entry] = value, False
        at_bound[entry] = inside(model.prior, theta)[entry] != value
        if covariance is not None:
            covariance[entry, entry] = uncertainty
    each = dict(zip(model.outputs, variance.tolist(), strict=True))
    diagnostics = {
        "sse": float(end.sse.sum()),
        "residual_variance": each if len(each) > 1 else variance.item(),
        "at_bound": _named(model, at_bound),
        "insensitive": _named(model, insensitive),
    }
    return Fit(inside(model.prior, theta), covariance, diagnostics)


def _noises(model: Model, end: End, share: float) -> Iterator[tuple[int, float, float]]:
    """Entries of theta that are the noise of an output, with their estimates and variances."""
    for entry, power, outputs in noise_entries(model):
        freedom = share * end.n_seen[list(outputs)].sum()
        if freedom > 0:
            value = (end.sse[list(outputs)].sum() / freedom) ** (1 / power)
            # The sum of squares has a chi-squared distribution.
            yield entry, value, 2 / freedom * (value / power) ** 2


def _touched(end: End, chosen: Bool[np.ndarray, " free"]) -> Bool[np.ndarray, " param"]:
    """Which entries of theta depend on one of the chosen coordinates."""
    return (end.slope != 0) @ chosen > 0


def _named(model: Model, chosen: Bool[np.ndarray, " param"]) -> list[str]:
    return [name for name, flag in zip(model.prior.names, chosen, strict=True) if flag]


def _sandwich(
    bread: Float[np.ndarray, "free free"],
    filling: Float[np.ndarray, "free free"],
    slope: Float[np.ndarray, "param free"],
) -> Float[np.ndarray, "param param"] | None:
    """(J'WJ)^-1 J'W S W J (J'WJ)^-1, with W the weights of the outputs and S their variances."""
    unit = np.sqrt(np.diag(bread))
    scaled = bread / np.outer(unit, unit)
    if len(unit) and np.linalg.eigvalsh(scaled)[0] < _SINGULAR:
        return None
    inverse = np.linalg.inv(scaled) / np.outer(unit, unit)
    return slope @ inverse @ filling @ inverse @ slope.T


@functools.cache
def noise_entries(model: Model) -> tuple[Noise, ...]:
    """The parameters that are the variance or the standard deviation of the output's noise.

    None where there is other noise, whose part in the residuals is not known.

    >>> import greybayes as gb
    >>> noise_entries(gb.get_model("coupled-drives"))
    (Noise(entry=4, power=1, outputs=(0,)),)
    """
    if not model.structure.output_error:
        return ()
    x, u = jnp.zeros(len(model.states)), jnp.zeros(len(model.inputs))
    given = x, u, Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))
    normal = []

    def variance(given, theta):
        x, u, t = given
        d = distribution(model, "observation", x, u, model.p(theta), t)
        base: Any = d
        while isinstance(base, dist.Independent | dist.ExpandedDistribution):
            base = base.base_dist
        normal.append(isinstance(base, dist.Normal))
        return jnp.broadcast_to(d.variance, (len(model.outputs),))

    thetas = prior_draws(model.prior)[:3]
    if depends(variance, given, jnp.asarray(thetas[0])) or not all(normal):
        return ()
    found = np.asarray(jax.jit(jax.vmap(lambda theta: variance(given, theta)))(thetas), float)
    entries = []
    # Three draws from continuous priors do not agree by chance.
    for entry in range(thetas.shape[1]):
        for power in (1, 2):
            same = np.isclose(found, thetas[:, [entry]] ** power, rtol=1e-5, atol=0).all(0)
            if same.any():
                entries.append(Noise(entry, power, tuple(np.flatnonzero(same).tolist())))
    return tuple(entries)
