"""The particle likelihood of records: one pass, many thetas, and how many particles it takes."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.drawing import delayed
from greybayes.errors import GreybayesError, Status
from greybayes.likelihood.density import check_density
from greybayes.likelihood.measured import Measured, measured, measured_batch
from greybayes.likelihood.particle import Batch, Filter, Passed, batch_passes, filter_pass
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
    vector = model.prior.vector(theta)
    n_particles = checked_or_chosen(model, n_particles, vector, record, key_choice, settings)
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
        status_of(passed, n_particles),
    )


def status_of(passed: Passed, n_particles: int) -> Status:
    """What became of one pass."""
    increments, ess = (np.asarray(a, float)[None] for a in (passed.increments, passed.ess))
    return Status.collapsed if _lost(increments, ess, n_particles)[0] else Status.ok


def _lost(
    increments: Float[np.ndarray, "batch steps"],
    ess: Float[np.ndarray, "batch steps"],
    n_particles: int,
) -> Bool[np.ndarray, " batch"]:
    """Where fewer than two particles are left somewhere, the answer is luck, mostly bad luck."""
    return ~np.isfinite(increments).all(1) | (ess.min(1) < min(2, n_particles))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _kept(model, n_particles, settings, theta, y, u, key) -> Passed:
    p = model.p(theta)
    return filter_pass(model, p, y, delayed(model, u), key, n_particles, settings, keep=True)


class Scored(NamedTuple):
    """The particle likelihood of one record for each of many thetas."""

    log_lik: Float[np.ndarray, " batch"]
    n_particles: int
    status: list[Status]
    """Of each pass, as `Filtered.status`."""


def particle_log_lik(
    model: Model | str,
    thetas: Float[np.ndarray, "batch param"],
    record: Record,
    *,
    key: Seed = 0,
    n_particles: int | None = None,
    settings: Filter = Filter(),  # noqa: B008
) -> Scored:
    """An estimate of the log-likelihood of a record for each of many thetas, and what became of it.

    Its exponential is unbiased. `n_particles` is chosen at the first theta where it is None.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", key=1)[0]
    >>> thetas = np.array([[0.7, 1.0, 0.5, 0.1], [0.5, 1.0, 0.5, 0.1]])
    >>> particle_log_lik("growth2", thetas, record, n_particles=100).log_lik.shape
    (2,)
    """
    model = _checked(model)
    vectors = np.asarray(model.prior.vectors(thetas))
    signals = measured(model, record)
    key_choice, key_passes = jr.split(as_key(key))
    n = checked_or_chosen(model, n_particles, vectors[0], record, key_choice, settings)
    y, u = (np.broadcast_to(a, (len(vectors), *a.shape)) for a in signals)
    keys = jr.split(key_passes, len(vectors))
    found, lost = scores(model, n, settings, Batch(vectors, y, u, keys))
    return Scored(found, n, [Status.collapsed if each else Status.ok for each in lost])


def checked_or_chosen(
    model: Model,
    n_particles: int | None,
    theta: Float[np.ndarray, " param"] | Float[Array, " param"],
    record: Record,
    key: Key[Array, ""],
    settings: Filter,
) -> int:
    """The number of particles that was given, or the one that the record asks for."""
    if n_particles is None:
        return choose_particles(model, np.asarray(theta), record, key=key, settings=settings)[0]
    if not isinstance(n_particles, int | np.integer) or n_particles < 1:
        raise GreybayesError(f"n_particles is {n_particles!r}, expected a whole number from 1 on.")
    return int(n_particles)


def log_liks(
    model: Model, n_particles: int, settings: Filter, batch: Batch
) -> Float[np.ndarray, " batch"]:
    """Log-likelihoods of a batch, summed in float64."""
    return scores(model, n_particles, settings, batch)[0]


def scores(
    model: Model, n_particles: int, settings: Filter, batch: Batch
) -> tuple[Float[np.ndarray, " batch"], Bool[np.ndarray, " batch"]]:
    """Log-likelihoods of a batch, summed in float64, and whether the particles lost the record."""
    theta, y, u = (np.asarray(a, np.float32) for a in batch[:3])
    single = Batch(theta, y, u, batch.key)
    passed = batch_passes(model, n_particles, settings, False, single)
    increments = np.asarray(passed.increments, float)
    return increments.sum(1), _lost(increments, np.asarray(passed.ess), n_particles)


# Passes from which the variance of a log-likelihood is measured.
_PASSES = 24
# So often must a number be found to be enough, or nearly: few passes miss the rare ones that lose
# the record, which are most of the variance where particles are scarce.
_SURE, _ABOUT = 2, 1.5
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
    given = np.asarray(model.prior.vectors(np.atleast_2d(np.asarray(theta, float))))
    thetas = np.broadcast_to(given, (len(signals.y), model.prior.size))
    return choose_for(model, thetas, signals, as_key(key), settings, variance)[0].tolist()


def choose_for(
    model: Model,
    thetas: Float[np.ndarray, "record param"],
    signals: Measured,
    key: Key[Array, ""],
    settings: Filter,
    variance: float = 1.0,
) -> tuple[Int[np.ndarray, " record"], Float[np.ndarray, " record"]]:
    """`choose_particles` for a batch of signals, a theta for each, with the variances reached."""
    chosen, reached = np.full(len(thetas), _FIRST), np.full(len(thetas), np.inf)
    # How often a number was found to be enough, and whether another was found to be too few.
    sure, raised = np.zeros(len(thetas), int), np.zeros(len(thetas), bool)
    left = np.arange(len(thetas))
    while len(left):
        n = int(chosen[left].min())
        now = left[chosen[left] == n]
        key, key_now = jr.split(key)
        many = np.repeat(now, _PASSES)
        keys = jr.split(key_now, len(many))
        batch = Batch(thetas[many], signals.y[many], signals.u[many], keys)
        found = log_liks(model, n, settings, batch)
        # The variance goes with 1 / n, but while it is large it is not to be trusted.
        with np.errstate(invalid="ignore"):  # -inf where a pass collapsed: its variance is NaN.
            ratio = np.nan_to_num(found.reshape(-1, _PASSES).var(1, ddof=1) / variance, nan=np.inf)
        needed = 2 ** np.ceil(np.log2(np.maximum(n * np.clip(ratio, 1e-3, 8), _FEWEST)))
        few, plenty = ratio > _ABOUT, (needed < n) & ~raised[now]
        chosen[now] = np.where(few | plenty, np.minimum(needed, MOST_PARTICLES), n).astype(int)
        raised[now] |= few
        reached[now] = ratio * variance
        sure[now] = np.where(chosen[now] == n, sure[now] + 1, 0)
        left = np.setdiff1d(left, now[(sure[now] >= _SURE) | (few & (n == MOST_PARTICLES))])
    return chosen, reached


def _checked(model: Model | str) -> Model:
    model = get_model(model)
    check_density(model, "observation", who="a particle filter")
    return model
