"""Kalman's formulas: exact filter, smoother and log-likelihood of linear-Gaussian models.

Whether a model is one is read from its structure: all noises Gaussian, means affine in x, and
covariances that do not depend on x. Everything here is float64. A missing sample (NaN) is left out,
of a vector output only the missing channels.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from greybayes.affine import depends, is_affine
from greybayes.drawing import clock, delayed
from greybayes.errors import ModelError
from greybayes.likelihood.density import NotGaussian, moments
from greybayes.likelihood.measured import measured
from greybayes.model import Model, Time
from greybayes.record import Record
from greybayes.structure import distribution
from greybayes.zoo import get_model


class Gaussian(NamedTuple):
    """Mean and covariance, of one vector or of one for each sample."""

    mean: Float[np.ndarray, "*steps channel"]
    covariance: Float[np.ndarray, "*steps channel channel"]


class Filtered(NamedTuple):
    """What the filter knows of each state after the samples up to it, and before them."""

    log_lik: float
    increments: Float[np.ndarray, " steps"]
    """log p(y_k | y_1 ... y_{k-1}), whose sum is `log_lik`."""
    state: Gaussian
    predicted: Gaussian
    innovation: Gaussian
    """y_k less its prediction, NaN where it is missing; the covariance of a whole sample."""


def is_linear_gaussian(model: Model | str) -> bool:
    """Whether Kalman's formulas hold for a model, whatever theta is.

    >>> is_linear_gaussian("linear-gaussian"), is_linear_gaussian("growth2")
    (True, False)
    """
    return _linear_gaussian(get_model(model))


@functools.cache
def _linear_gaussian(model: Model) -> bool:
    x, u = jnp.zeros(len(model.states)), jnp.zeros(len(model.inputs))
    theta = jnp.asarray(model.prior.mean, jnp.float32)
    t = Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))

    def initial(theta, u):
        return moments(distribution(model, "initial", u, model.p(theta)))

    def moment(method, index):
        def one(x, theta, u, t):
            return moments(distribution(model, method, x, u, model.p(theta), t))[index]

        return one

    try:
        jax.eval_shape(initial, theta, u)
        return all(
            is_affine(moment(method, 0), x, theta, u, t)
            and not depends(moment(method, 1), x, theta, u, t)
            for method in ("transition", "observation")
        )
    except NotGaussian:
        return False


def kalman_filter(
    model: Model | str, theta: Float[np.ndarray, " param"] | list[float], record: Record
) -> Filtered:
    """The exact filter of a linear-Gaussian model, and its log-likelihood.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", key=1)[0]
    >>> filtered = kalman_filter("linear-gaussian", [0.5, 1.0, 0.1, 0.1], record)
    >>> filtered.state.mean.shape
    (200, 1)
    """
    model = _checked(model)
    with jax.enable_x64(True):
        passed = jax.device_get(_filter(model, *_float64(model, theta, record)))
    return Filtered(
        float(passed["increment"].sum()),
        passed["increment"],
        Gaussian(passed["mean"], passed["covariance"]),
        Gaussian(passed["mean_before"], passed["covariance_before"]),
        Gaussian(passed["innovation"], passed["innovation_covariance"]),
    )


def kalman_smoother(
    model: Model | str, theta: Float[np.ndarray, " param"] | list[float], record: Record
) -> Gaussian:
    """Mean and covariance of each state given the whole record (Rauch, Tung and Striebel 1965).

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", key=1)[0]
    >>> kalman_smoother("linear-gaussian", [0.5, 1.0, 0.1, 0.1], record).covariance.shape
    (200, 1, 1)
    """
    model = _checked(model)
    with jax.enable_x64(True):
        return Gaussian(*jax.device_get(_smoother(model, *_float64(model, theta, record))))


def kalman_log_lik(
    model: Model | str, thetas: Float[np.ndarray, "batch param"], record: Record
) -> Float[np.ndarray, " batch"]:
    """The exact log-likelihood of a record for each of many thetas.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", key=1)[0]
    >>> kalman_log_lik("linear-gaussian", np.array([[0.5, 1.0, 0.1, 0.1]]), record).shape
    (1,)
    """
    model = _checked(model)
    with jax.enable_x64(True):
        return np.asarray(_log_liks(model, *_float64(model, thetas, record)))


def _checked(model: Model | str) -> Model:
    model = get_model(model)
    if not _linear_gaussian(model):
        raise ModelError(
            f"{type(model).__name__} is not linear-Gaussian: Kalman's formulas need normal noises, "
            "means that are affine in x and covariances that do not depend on it."
        )
    return model


def _float64(model: Model, theta, record: Record):
    model.prior.vectors(np.atleast_2d(np.asarray(theta, float)))  # Refuses what is no theta.
    signals = measured(model, record)
    return tuple(jnp.asarray(a, jnp.float64) for a in (theta, *signals))


@functools.partial(jax.jit, static_argnums=0)
def _log_liks(model, thetas, y, u):
    return jax.vmap(lambda theta: _filter(model, theta, y, u)["increment"].sum())(thetas)


@functools.partial(jax.jit, static_argnums=0)
def _filter(model: Model, theta, y, u) -> dict[str, Array]:
    p, late = model.p(theta), delayed(model, u)
    identity = jnp.eye(len(model.states))

    def at(method, x, u, t):
        """Mean, slope and covariance at x: of an affine mean, that is all of it."""

        def mean(x):
            return moments(distribution(model, method, x, u, p, t))[0]

        expected, covariance = moments(distribution(model, method, x, u, p, t))
        return expected, jax.jacfwd(mean)(x), covariance

    def step(before, given):
        (m, P), (y, u, t) = before, given
        expected, H, R = at("observation", m, u, t)
        seen = ~jnp.isnan(y)
        # A missing channel becomes one that says nothing: slope 0, unit variance, no surprise.
        H = jnp.where(seen[:, None], H, 0.0)
        R = jnp.where(seen[:, None] & seen, R, jnp.eye(len(y)))
        v = jnp.where(seen, y - expected, 0.0)
        root = jnp.linalg.cholesky(H @ P @ H.T + R)
        scaled = jax.scipy.linalg.solve_triangular(root, v, lower=True)
        gain = jax.scipy.linalg.cho_solve((root, True), H @ P).T
        increment = -0.5 * (scaled @ scaled + seen.sum() * math.log(2 * math.pi))
        increment -= jnp.log(jnp.diag(root)).sum()
        mean = m + gain @ v
        # Joseph's form stays symmetric and positive.
        rest = identity - gain @ H
        covariance = rest @ P @ rest.T + gain @ R @ gain.T
        after, F, Q = at("transition", mean, u, t)
        told = {
            "increment": increment,
            "mean": mean,
            "covariance": covariance,
            "mean_before": m,
            "covariance_before": P,
            "innovation": jnp.where(seen, v, jnp.nan),
            "innovation_covariance": root @ root.T,
            "slope": F,
        }
        return (after, F @ covariance @ F.T + Q), told

    start = moments(distribution(model, "initial", late[0], p))
    start = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), start)
    return jax.lax.scan(step, start, (y, late, clock(model, len(y))))[1]


@functools.partial(jax.jit, static_argnums=0)
def _smoother(model: Model, theta, y, u) -> tuple[Array, Array]:
    passed = _filter(model, theta, y, u)
    after = jax.tree.map(lambda a: a[1:], (passed["mean_before"], passed["covariance_before"]))
    here = jax.tree.map(lambda a: a[:-1], (passed["mean"], passed["covariance"], passed["slope"]))

    def step(later, given):
        (m_later, P_later), (m_after, P_after), (m, P, F) = later, *given
        # A state without noise has a singular covariance: what is certain needs no correction.
        gain = P @ F.T @ jnp.linalg.pinv(P_after, hermitian=True)
        smoothed = m + gain @ (m_later - m_after), P + gain @ (P_later - P_after) @ gain.T
        return smoothed, smoothed

    last = passed["mean"][-1], passed["covariance"][-1]
    _, (means, covariances) = jax.lax.scan(step, last, (after, here), reverse=True)
    return jnp.concatenate([means, last[0][None]]), jnp.concatenate([covariances, last[1][None]])
