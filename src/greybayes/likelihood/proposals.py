"""How particles move: blindly, or with an eye on the next sample.

A proposal has two parts, as in an auxiliary particle filter (Pitt and Shephard 1999): `look` says
how well each particle can explain the next sample, before it is resampled, and `move` draws its
next state and says by how much its weight must be corrected. The product of both is unbiased,
whatever the proposal; a good one only makes it less noisy.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Key

from greybayes._lanes import lane_keys
from greybayes.errors import ModelError
from greybayes.likelihood.density import Cloud, NotGaussian, drawn_next, moments, observed
from greybayes.model import Model, Time
from greybayes.structure import distribution

PROPOSALS = ("bootstrap", "guided")


class Step(NamedTuple):
    """What a step from x_{k-1} to x_k knows: p, the next sample, and both inputs and times."""

    p: Any
    y: Float[Array, " output"]
    u: Float[Array, " input"]
    t: Time
    u_before: Float[Array, " input"]
    t_before: Time


class Proposal(NamedTuple):
    """Two functions of a cloud; `look` is None where nothing is known before the move."""

    look: Callable[[Cloud, Step], Float[Array, " particle"]] | None
    move: Callable[[Key[Array, ""], Cloud, Step], tuple[Cloud, Float[Array, " particle"]]]


def proposal_for(model: Model, name: str) -> Proposal:
    """The proposal of this name for a model."""
    if name == "bootstrap":
        return _bootstrap(model)
    if not has_gaussian_transition(model):
        raise ModelError(
            f"{type(model).__name__}.transition is not Gaussian, which the guided proposal needs; "
            "use the bootstrap one."
        )
    return _cells(model) if len(model.states) == 1 else _linearised(model)


def has_gaussian_transition(model: Model) -> bool:
    """Whether the guided proposal can serve a model."""
    x, u = jnp.zeros(len(model.states)), jnp.zeros(len(model.inputs))
    t = Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))
    theta = jnp.zeros(model.prior.size)
    try:
        jax.eval_shape(
            lambda theta: _transition(model, x, Step(model.p(theta), x, u, t, u, t)), theta
        )
    except NotGaussian:
        return False
    return True


def _bootstrap(model: Model) -> Proposal:
    """By the transition alone; the weight is then p(y_k | x_k)."""

    def move(key, x, step):
        x = drawn_next(model, key, x, step.u_before, step.p, step.t_before)
        return x, observed(model, x, step.y, step.u, step.p, step.t)

    return Proposal(None, move)


# For one state: equally wide cells of the noise z, their middles and about their masses.
_N_CELLS, _END = 14, 3.2
_WIDTH = 2 * _END / _N_CELLS
_MIDDLES = -_END + _WIDTH * (np.arange(_N_CELLS) + 0.5)
_MASSES = _WIDTH * np.exp(-(_MIDDLES**2) / 2) / np.sqrt(2 * np.pi)
# The share of draws that do not trust what was seen ahead: it bounds the weights.
_BLIND = 0.1


def _cells(model: Model) -> Proposal:
    """A quadrature on the observation: x_k = mean + std z, and z in one of a few cells.

    A cell is drawn with the probability that its middle gives to the sample, and z in it evenly; a
    share of the draws is blind. What that leaves is in the weight. Written out cell by cell, and
    without tables: XLA then makes one vectorised loop of it, five times as fast.
    """

    def scores(x, step):
        mean, std = _transition_cloud(model, x, step)
        log_g = [_log_g(model, mean + std * np.float32(z), step) for z in _MIDDLES]
        top = functools.reduce(jnp.maximum, log_g, jnp.finfo(x.dtype).min)
        g = [jnp.exp(each - top) for each in log_g]
        total = sum(np.float32(mass) * each for mass, each in zip(_MASSES, g, strict=True))
        return mean, std, top, g, total

    def look(x, step):
        *_, top, _, total = scores(x, step)
        return top + jnp.log(total)

    def move(key, x, step):
        n = x.shape[-1]
        mean, std, top, g, total = scores(x, step)
        keys = lane_keys(key, jnp.arange(3 * n, dtype=jnp.uint32))
        which, inside = jax.vmap(jr.uniform)(keys[: 2 * n]).reshape(2, n)
        blind = which < _BLIND
        goal = (which - _BLIND) / (1 - _BLIND) * total
        passed, cell = jnp.zeros(n), jnp.zeros(n)
        for mass, each in zip(_MASSES[:-1], g[:-1], strict=True):
            passed = passed + np.float32(mass) * each
            cell = cell + (passed < goal)
        z = jnp.where(blind, jax.vmap(jr.normal)(keys[2 * n :]), -_END + _WIDTH * (cell + inside))
        middle = -_END + _WIDTH * (jnp.floor((z + _END) / _WIDTH) + 0.5)
        # The density of a draw over that of the transition, times the total.
        aimed = jnp.exp(_log_g(model, mean + std * middle, step) - top + (z**2 - middle**2) / 2)
        density = (1 - _BLIND) * jnp.where(jnp.abs(z) < _END, aimed, 0.0) + _BLIND * total
        x = mean + std * z
        return x, _log_g(model, x, step) - top - jnp.log(density)

    return Proposal(look, move)


def _log_g(model: Model, x: Cloud, step: Step) -> Float[Array, " particle"]:
    """log p(y_k | x_k), never NaN."""
    log_g = observed(model, x, step.y, step.u, step.p, step.t)
    return jnp.where(jnp.isnan(log_g), -jnp.inf, log_g)


def _linearised(model: Model) -> Proposal:
    """Kalman's update of the noise e in x_k = mean + root e, the observation linearised at mean.

    In the noise and not in the state, so that states without noise are no trouble.
    """
    size = len(model.states)

    def one(x, step):
        mean, root = _transition(model, x, step)

        def output(e):
            return _two_moments(model, mean + root @ e, step)

        zero = jnp.zeros(size)
        expected, variance = output(zero)
        seen = ~jnp.isnan(step.y)
        slope = jnp.where(seen[:, None], jax.jacfwd(lambda e: output(e)[0])(zero), 0.0)
        R = jnp.where(seen[:, None] & seen, variance, jnp.eye(len(seen)))
        surprise = jnp.where(seen, step.y - expected, 0.0)
        S = jnp.linalg.cholesky(slope @ slope.T + R)
        scaled = jax.scipy.linalg.solve_triangular(S, surprise, lower=True)
        gain = jax.scipy.linalg.cho_solve((S, True), slope).T
        log_ahead = -0.5 * scaled @ scaled - jnp.log(jnp.diag(S)).sum()
        log_ahead -= seen.sum() * np.log(2 * np.pi) / 2
        spread = jnp.linalg.cholesky(jnp.eye(size) - gain @ slope)
        return mean, root, log_ahead, gain @ surprise, spread

    def look(x, step):
        return jax.vmap(lambda x: one(x, step)[2], in_axes=-1)(x)

    def move(key, x, step):
        key_noise, key_blind = jr.split(key)
        z = jr.normal(key_noise, x.shape, x.dtype)
        blind = jr.uniform(key_blind, x.shape[-1:]) < _BLIND

        def each(x, z, blind):
            mean, root, log_ahead, centre, spread = one(x, step)
            e = jnp.where(blind, z, centre + spread @ z)
            scaled = jax.scipy.linalg.solve_triangular(spread, e - centre, lower=True)
            log_prior = -0.5 * e @ e
            log_aimed = -0.5 * scaled @ scaled - jnp.log(jnp.diag(spread)).sum()
            log_q = jnp.logaddexp(np.log(_BLIND) + log_prior, np.log1p(-_BLIND) + log_aimed)
            return mean + root @ e, log_prior - log_q - log_ahead

        x, correction = jax.vmap(each, in_axes=(-1, -1, 0), out_axes=(-1, 0))(x, z, blind)
        return x, correction + observed(model, x, step.y, step.u, step.p, step.t)

    return Proposal(look, move)


def _transition(model: Model, x: Float[Array, " state"], step: Step) -> tuple[Array, Array]:
    """Mean of the next state, and a root of its covariance."""
    d = distribution(model, "transition", x, step.u_before, step.p, step.t_before)
    mean, covariance = moments(d)
    if isinstance(d, dist.MultivariateNormal):
        return mean, jnp.asarray(d.scale_tril)
    return mean, jnp.sqrt(covariance)  # Diagonal.


def _transition_cloud(model: Model, x: Cloud, step: Step) -> tuple[Cloud, Cloud]:
    mean, root = jax.vmap(lambda x: _transition(model, x, step), in_axes=-1, out_axes=-1)(x)
    return mean, root[0]


def _two_moments(model: Model, x: Float[Array, " state"], step: Step) -> tuple[Array, Array]:
    """Mean and covariance of the output, also where it is not normal."""
    d = distribution(model, "observation", x, step.u, step.p, step.t)
    try:
        return moments(d)
    except NotGaussian:
        return jnp.asarray(d.mean), jnp.diag(jnp.asarray(d.variance))
