"""The particle likelihood of records: one pass, many thetas, and how many particles it takes."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.drawing import delayed
from greybayes.errors import Status
from greybayes.likelihood.density import check_density
from greybayes.likelihood.measured import Measured, measured, measured_batch
from greybayes.likelihood.particle import Batch, Filter, Passed, batch_increments, filter_pass
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model


class Filtered(NamedTuple):
    """A particle filter's answer for one record."""

    log_lik: float
    increments: Float[np.ndarray, " steps"]
    """Estimates of log p(y_k | y_1 ... y_{k-1}), whose sum is `log_lik`."""
    ess: Float[np.ndarray, " steps"]
    """Effective sample size after each sample."""
    mean: Float[np.ndarray, "steps state"]
    """Of each state, after the samples up to it."""
    n_particles: int
    status: Status
    """`collapsed` where at some sample fewer than two effective particles were left."""


def particle_filter(
    model: Model | str,
    theta: Float[np.ndarray, " param"] | list[float],
    record: Record,
    *,
    key: Seed = 0,
    n_particles: int | None = None,
    settings: Filter = Filter(),  # noqa: B008
) -> Filtered:
    """One pass of a particle filter; `n_particles` is chosen (`choose_particles`) where it is None.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", np.array([0.7, 1.0, 0.1, 0.5]), key=1)[0]
    >>> filtered = particle_filter("growth2", [0.7, 1.0, 0.1, 0.5], record, n_particles=500)
    >>> filtered.mean.shape, filtered.status
    ((200, 1), <Status.ok: 'ok'>)
    """
    model = _checked(model)
    key_choice, key_pass = jr.split(as_key(key))
    if n_particles is None:
        n_particles = choose_particles(model, theta, record, key=key_choice, settings=settings)[0]
    vector = model.prior.vector(theta)
    y, u = (jnp.asarray(a, jnp.float32) for a in measured(model, record))
    passed = jax.device_get(_kept(model, n_particles, settings, vector, y, u, key_pass))
    increments = passed.increments.astype(float)
    weights = np.exp(passed.history.log_w.astype(float))
    return Filtered(
        float(increments.sum()),
        increments,
        passed.ess,
        np.einsum("ksn,kn->ks", passed.history.x, weights),
        n_particles,
        _status(increments, passed.ess, n_particles),
    )


def _status(increments: np.ndarray, ess: np.ndarray, n_particles: int) -> Status:
    """Where fewer than two particles are left somewhere, the answer is luck, mostly bad luck."""
    lost = not np.isfinite(increments).all() or ess.min() < min(2, n_particles)
    return Status.collapsed if lost else Status.ok


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _kept(model, n_particles, settings, theta, y, u, key) -> Passed:
    p = model.p(theta)
    return filter_pass(model, p, y, delayed(model, u), key, n_particles, settings, keep=True)


def particle_log_lik(
    model: Model | str,
    thetas: Float[np.ndarray, "batch param"],
    record: Record,
    *,
    key: Seed = 0,
    n_particles: int,
    settings: Filter = Filter(),  # noqa: B008
) -> Float[np.ndarray, " batch"]:
    """An estimate of the log-likelihood of a record for each of many thetas; -inf: collapsed.

    Its exponential is unbiased.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", key=1)[0]
    >>> thetas = np.array([[0.7, 1.0, 0.5, 0.1], [0.5, 1.0, 0.5, 0.1]])
    >>> particle_log_lik("growth2", thetas, record, n_particles=100).shape
    (2,)
    """
    model = _checked(model)
    signals = measured(model, record)
    count = len(thetas)
    y, u = (np.broadcast_to(a, (count, *a.shape)) for a in signals)
    keys = jr.split(as_key(key), count)
    return log_liks(model, n_particles, settings, np.asarray(thetas), y, u, keys)


def log_liks(
    model: Model,
    n_particles: int,
    settings: Filter,
    thetas: Float[np.ndarray, "batch param"],
    y: Float[np.ndarray, "batch steps output"],
    u: Float[np.ndarray, "batch steps input"],
    keys: Key[Array, " batch"],
) -> Float[np.ndarray, " batch"]:
    """Log-likelihoods of a batch, summed in float64."""
    thetas, y, u = (np.asarray(a, np.float32) for a in (thetas, y, u))
    increments = batch_increments(model, n_particles, settings, Batch(thetas, y, u, keys))
    return np.asarray(increments, float).sum(1)


# Passes from which the variance of a log-likelihood is measured.
_PASSES = 24
_FIRST, _FEWEST, MOST_PARTICLES = 256, 64, 32_768


def choose_particles(
    model: Model | str,
    theta: Float[np.ndarray, "*records param"] | list[float],
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: Filter = Filter(),  # noqa: B008
    variance: float = 1.0,
) -> list[int]:
    """For each record a power of two of particles that measures it well enough.

    That is: the variance of the log-likelihood at theta, over repeated passes, is about `variance`;
    1 is best for Metropolis-Hastings (Doucet et al. 2015). Where even the largest number does not
    reach it, it is the largest.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", np.array([0.7, 1.0, 0.1, 0.5]), key=1)[0]
    >>> (n_particles,) = choose_particles("growth2", [0.7, 1.0, 0.1, 0.5], record)
    >>> 128 <= n_particles <= 2048
    True
    """
    model = _checked(model)
    signals = measured_batch(model, [records] if isinstance(records, Record) else records)
    thetas = np.broadcast_to(np.asarray(theta, float), (len(signals.y), model.prior.size))
    return choose_for(model, thetas, signals, as_key(key), settings, variance).tolist()


def choose_for(
    model: Model,
    thetas: Float[np.ndarray, "record param"],
    signals: Measured,
    key: Key[Array, ""],
    settings: Filter,
    variance: float = 1.0,
) -> Int[np.ndarray, " record"]:
    """`choose_particles` for a batch of signals, a theta for each."""
    chosen = np.full(len(thetas), _FIRST)
    left = np.arange(len(thetas))
    while len(left):
        n = int(chosen[left].min())
        now = left[chosen[left] == n]
        key, key_now = jr.split(key)
        many = np.repeat(now, _PASSES)
        keys = jr.split(key_now, len(many))
        found = log_liks(model, n, settings, thetas[many], signals.y[many], signals.u[many], keys)
        # The variance goes with 1 / n, but while it is large it is not to be trusted.
        with np.errstate(invalid="ignore"):  # -inf where a pass collapsed: its variance is NaN.
            ratio = np.nan_to_num(found.reshape(-1, _PASSES).var(1, ddof=1) / variance, nan=np.inf)
        needed = 2 ** np.ceil(np.log2(np.maximum(n * np.clip(ratio, 1e-3, 8), _FEWEST)))
        chosen[now] = np.minimum(needed, MOST_PARTICLES).astype(int)
        trusted = (ratio <= 2) | (chosen[now] == n)
        left = np.setdiff1d(left, now[trusted])
    return chosen


def _checked(model: Model | str) -> Model:
    model = get_model(model)
    check_density(model, "observation", who="a particle filter")
    return model
