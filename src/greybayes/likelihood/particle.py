"""Particle filters: an unbiased likelihood of any model whose observation has a density.

`filter_pass` is the filter for one record and one theta, pure, for use inside compiled code;
`batch_passes` runs many. Records and answers are those of `monte_carlo`.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes._devices import over_devices
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError
from greybayes.likelihood.density import Cloud, drawn_initial, observed
from greybayes.likelihood.proposals import PROPOSALS, Step, has_gaussian_transition, proposal_for
from greybayes.likelihood.resampling import SCHEMES, resample
from greybayes.model import Model

# Particles that one device moves together: their states then stay in the cache of a core.
_TOGETHER = 32_768


@dataclass(frozen=True)
class Filter:
    """How a particle filter goes about it."""

    proposal: str = "bootstrap"
    """`guided` looks at the next sample before it moves; it needs a Gaussian transition."""
    resampling: str = "systematic"
    threshold: float = 0.5
    """Resample where the effective sample size falls below this share; 1 is at every step."""

    def __post_init__(self) -> None:
        if self.resampling not in SCHEMES:
            raise GreybayesError(
                f"resampling is {self.resampling!r}, expected one of {', '.join(SCHEMES)}."
            )
        if self.proposal not in PROPOSALS:
            raise GreybayesError(
                f"the proposal is {self.proposal!r}, expected {' or '.join(PROPOSALS)}."
            )
        if not 0 <= self.threshold <= 1:
            raise GreybayesError(f"the threshold is {self.threshold}, expected one from 0 to 1.")

    @classmethod
    def looking_ahead(cls, model: Model) -> "Filter":
        """Guided where that pays: for one state with a Gaussian transition.

        With more states it solves small systems for every particle: on a record of `van-der-pol`
        it took many times as long for a log-likelihood that was no less noisy.
        """
        pays = len(model.states) == 1 and has_gaussian_transition(model)
        return cls("guided" if pays else "bootstrap")


class History(NamedTuple):
    """The clouds of a whole pass: particles after each sample, before they are resampled."""

    x: Float[Array, "steps state particle"]
    log_w: Float[Array, "steps particle"]
    """Normalised: the sum of their exponentials is 1."""


class Passed(NamedTuple):
    """What a pass leaves."""

    increments: Float[Array, " steps"]
    """log of the estimate of p(y_k | y_1 ... y_{k-1}); -inf where all particles were lost."""
    ess: Float[Array, " steps"]
    """Effective sample size after each sample."""
    history: History | None


def filter_pass(
    model: Model,
    p,
    y: Float[Array, "steps output"],
    u: Float[Array, "steps input"],
    key: Key[Array, ""],
    n_particles: int,
    settings: Filter = Filter(),  # noqa: B008  # Frozen.
    keep: bool = False,
) -> Passed:
    """One pass over a record; `u` is already delayed. A missing sample leaves the weights alone.

    Algorithm 2 of the paper, with the look ahead of an auxiliary filter where the proposal has one.
    """
    proposal = proposal_for(model, settings.proposal)
    key_initial, key_steps = jr.split(key)
    keys = jr.split(key_steps, (len(y), 2))
    times = clock(model, len(y))

    def told(x: Cloud, log_w, gained):
        """Weights made to sum to one, in log space: they underflow on long records."""
        log_w, total = _normalised(log_w)
        ess = 1.0 / jnp.exp(2 * log_w).sum()
        history = History(x, log_w) if keep else None
        return (x, log_w), Passed(gained + total, ess, history)

    def step(cloud, given):
        (x, log_w), (keys, y, u, t, u_before, t_before) = cloud, given
        now = Step(p, y, u, t, u_before, t_before)
        gained = jnp.zeros((), x.dtype)
        if proposal.look is not None:
            log_w, gained = _normalised(log_w + proposal.look(x, now))
        x, log_w = _resampled(keys[0], x, log_w, settings)
        x, correction = proposal.move(keys[1], x, now)
        return told(x, log_w + correction, gained)

    x = drawn_initial(model, key_initial, n_particles, u[0], p)
    log_w = jnp.full(n_particles, -np.log(n_particles), x.dtype)
    log_w += observed(model, x, y[0], u[0], p, jax.tree.map(lambda a: a[0], times))
    cloud, first = told(x, log_w, jnp.zeros((), x.dtype))
    later = jax.tree.map(lambda a: a[1:], (keys, y, u, times))
    before = jax.tree.map(lambda a: a[:-1], (u, times))
    _, rest = jax.lax.scan(step, cloud, (*later, *before))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)


def _normalised(log_w):
    """Log-weights that sum to one, and the log of what they summed to.

    Where nothing is left all weigh the same, and the sum says it: -inf.
    """
    log_w = jnp.where(jnp.isnan(log_w), -jnp.inf, log_w)
    top = log_w.max()
    lost = top == -jnp.inf
    total = top + jnp.log(jnp.exp(log_w - top).sum())
    log_w = jnp.where(lost, -np.log(len(log_w)), log_w - total)
    return log_w, jnp.where(lost, -jnp.inf, total)


def _resampled(key, x, log_w, settings: Filter):
    weights = jnp.exp(log_w)
    n = len(weights)
    ancestors = resample(key, weights, settings.resampling)
    chosen = x[:, ancestors]
    if settings.threshold >= 1:
        return chosen, jnp.full_like(log_w, -np.log(n))
    needed = settings.threshold * n * (weights**2).sum() > 1.0
    return jnp.where(needed, chosen, x), jnp.where(needed, -np.log(n), log_w)


class Batch(NamedTuple):
    """Filters to be run together: a theta, a record and a key for each."""

    theta: Float[Array, "batch param"] | Float[np.ndarray, "batch param"]
    y: Float[Array, "batch steps output"] | Float[np.ndarray, "batch steps output"]
    u: Float[Array, "batch steps input"] | Float[np.ndarray, "batch steps input"]
    key: Key[Array, " batch"]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def batch_passes(
    model: Model, n_particles: int, settings: Filter, keep: bool, batch: Batch
) -> Passed:
    """Many filters, split over all devices, in parts that fit their caches; each leaf has a batch.

    `keep` keeps the clouds.
    """

    def one(given: Batch) -> Passed:
        theta, y, u, key = given
        late = delayed(model, jnp.asarray(u))
        p = model.p(jnp.asarray(theta))
        return filter_pass(model, p, jnp.asarray(y), late, key, n_particles, settings, keep)

    return over_devices(one, _TOGETHER // n_particles, batch)
