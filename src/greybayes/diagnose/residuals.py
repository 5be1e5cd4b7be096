"""One-step prediction residuals, white and standard normal where the model made the record.

What a sample is under the model, given the samples before it, has a distribution; the residual is
the normal score of the sample in it. For normal noise that is the prediction error over its
standard deviation: exact for models without process noise and for linear-Gaussian ones (Kalman),
from a particle filter for all others. Each output has its own residuals, whatever the others are.
`checks` tests them.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes._lanes import as_key, lane_keys
from greybayes._types import Seed
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError
from greybayes.likelihood.density import (
    Cloud,
    NotGaussian,
    check_density,
    drawn_initial,
    drawn_next,
    moments,
)
from greybayes.likelihood.kalman import is_linear_gaussian, kalman_filter
from greybayes.likelihood.measured import measured
from greybayes.likelihood.output_error import mean_states
from greybayes.likelihood.particle import filter_pass
from greybayes.likelihood.resampling import resample
from greybayes.model import Model, Time
from greybayes.record import Record
from greybayes.structure import distribution
from greybayes.zoo import get_model

# Particles of a first pass; four times as many where hardly one was left at some sample.
_FIRST, _MOST, _FEW_LEFT = 2048, 32_768, 2
# Draws of which the largest tells where a tail begins.
_BLOCK = 32
# What the clouds of a whole pass may take.
_MOST_BYTES = 2**30


def residuals(
    model: Model | str,
    theta: Float[np.ndarray, " param"] | list[float],
    record: Record,
    *,
    key: Seed = 0,
    n_particles: int | None = None,
) -> Float[np.ndarray, "steps output"]:
    """One-step prediction residuals at theta; NaN where a sample is missing.

    `n_particles` is for models that need a particle filter; None takes as many as keep the record.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", np.array([0.7, 1.0, 0.1, 0.5]), key=1)[0]
    >>> e = residuals("growth2", [0.7, 1.0, 0.1, 0.5], record)
    >>> e.shape, bool(0.8 < e.std() < 1.2)
    ((200, 1), True)
    """
    model = get_model(model)
    check_density(model, "observation", who="a residual")
    y, u = measured(model, record)
    vector = np.asarray(model.prior.vector(theta))
    if has_exact_residuals(model):
        errors, std = prediction_errors(model, theta, record)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = errors / std
    else:
        draw = _of_known_states if model.structure.output_error else _from_particles
        at, y, u = (jnp.asarray(a, jnp.float32) for a in (theta, y, u))
        tails = draw(model, n_particles, at, y, u, as_key(key))
        found = _scores(np.asarray(tails))
    lost = record.mask & ~np.isfinite(found)
    if lost.any():
        raise GreybayesError(
            f"sample {int(lost.any(1).argmax()) + 1} of the record has no residual under "
            f"{type(model).__name__} at theta = {np.array2string(vector, precision=4)}: a state is "
            "not finite there, a noise has no variance, or the observation cannot take this value."
        )
    return np.where(record.mask, found, np.nan)


@functools.cache
def has_exact_residuals(model: Model) -> bool:
    """Whether residuals need no draws, and are linear in y: all noises are normal, by structure.

    >>> has_exact_residuals(get_model("coupled-drives")), has_exact_residuals(get_model("growth2"))
    (True, False)
    """
    if not model.structure.output_error:
        return is_linear_gaussian(model)
    signals = (jnp.zeros((1, len(names))) for names in (model.outputs, model.inputs))
    try:
        jax.eval_shape(
            functools.partial(_output_errors, model), jnp.zeros(model.prior.size), *signals
        )
    except NotGaussian:
        return False
    return True


def prediction_errors(
    model: Model, theta: Float[np.ndarray, " param"] | list[float], record: Record
) -> tuple[Float[np.ndarray, "steps output"], Float[np.ndarray, "steps output"]]:
    """Samples less their predictions, and the standard deviations of that: the exact residuals."""
    if not model.structure.output_error:
        innovation = kalman_filter(model, np.asarray(theta, float), record).innovation
        variance = np.diagonal(innovation.covariance, axis1=1, axis2=2)
        return innovation.mean, np.sqrt(variance)
    with jax.enable_x64(True):
        given = [jnp.asarray(a, jnp.float64) for a in (theta, *measured(model, record))]
        errors, std = _output_errors(model, *given)
    return np.asarray(errors), np.asarray(std)


@functools.partial(jax.jit, static_argnums=0)
def _output_errors(model: Model, theta, y, u):
    p, late = model.p(theta), delayed(model, u)

    def at(x, y, u, t):
        mean, covariance = moments(distribution(model, "observation", x, u, p, t))
        return y - mean, jnp.sqrt(jnp.diag(covariance))

    return jax.vmap(at)(mean_states(model, p, late), y, late, clock(model, len(y)))


def _scores(tails: Float[np.ndarray, "steps 2 output"]) -> Float[np.ndarray, "steps output"]:
    """Normal scores from the logs of both tails: the smaller one knows more digits."""
    from scipy.special import ndtri_exp

    below, above = np.maximum(np.moveaxis(tails.astype(float), 1, 0), -1e4)
    return np.where(below < above, ndtri_exp(below), -ndtri_exp(above))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _of_known_states(model: Model, n_draws: int | None, theta, y, u, key) -> Array:
    p, late = model.p(theta), delayed(model, u)

    def at(given):
        key, x, y, u, t = given
        return _tails(model, key, jnp.repeat(x[:, None], n_draws or _FIRST, axis=1), y, u, p, t)

    keys, x = jr.split(key, len(y)), mean_states(model, p, late)
    return jax.lax.map(at, (keys, x, y, late, clock(model, len(y))))


def _from_particles(model: Model, n_particles: int | None, theta, y, u, key) -> np.ndarray:
    room = max(1, _MOST_BYTES // (4 * len(y) * (len(model.states) + 1)))
    n = min(_FIRST, room) if n_particles is None else n_particles
    while True:
        tails, least = jax.device_get(_predicted(model, n, theta, y, u, key))
        if n_particles is not None or least >= _FEW_LEFT or 4 * n > min(_MOST, room):
            return tails
        n *= 4


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predicted(model: Model, n_particles: int, theta, y, u, key):
    """The tails of each sample in what the particles before it predict, and the least ESS."""
    p, late = model.p(theta), delayed(model, u)
    samples = y, late, clock(model, len(y))
    key_filter, key_initial, key_steps = jr.split(key, 3)
    passed = filter_pass(model, p, y, late, key_filter, n_particles, keep=True)
    assert passed.history is not None
    keys = jr.split(key_steps, (len(y), 3))

    def predict(given):
        keys, (x, log_w, _, u_before, t_before), (y, u, t) = given
        chosen = x[:, resample(keys[0], jnp.exp(log_w))]
        cloud = drawn_next(model, keys[1], chosen, u_before, p, t_before)
        return _tails(model, keys[2], cloud, y, u, p, t)

    y_1, u_1, t_1 = jax.tree.map(lambda a: a[0], samples)
    x_1 = drawn_initial(model, key_initial, n_particles, u_1, p)
    first = _tails(model, keys[0, 2], x_1, y_1, u_1, p, t_1)
    before = jax.tree.map(lambda a: a[:-1], (*passed.history, *samples))
    later = jax.tree.map(lambda a: a[1:], samples)
    rest = jax.lax.map(predict, (keys[1:], before, later))
    return jnp.concatenate([first[None], rest]), passed.ess.min()


def _tails(
    model: Model, key: Key[Array, ""], x: Cloud, y: Float[Array, " output"], u, p, t: Time
) -> Float[Array, "2 output"]:
    """Logs of how probable it is that a sample lies below y, and above, for equal particles.

    A sample is drawn for each particle and y takes its rank among them; of ties a random part
    counts as below (randomised PIT), so discrete outputs have normal scores too. A mean of the
    particles' distribution functions would know more in the middle and fail in the tails: where
    samples are precise, hardly a particle is near one that is rare.
    """
    key_draws, key_ties = jr.split(key)

    def draw(key, x):
        return jnp.asarray(distribution(model, "observation", x, u, p, t).sample(key), y.dtype)

    particles = jnp.arange(x.shape[-1], dtype=jnp.uint32)
    lanes = model.structure.lanes
    keys = lane_keys(key_draws, particles) if lanes else jr.split(key_draws, len(particles))
    drawn = jax.vmap(draw, in_axes=(0, -1))(keys, x)
    # A particle that left the numbers predicts nothing.
    finite = jnp.isfinite(drawn)
    drawn = jnp.where(finite, drawn, jnp.where(finite, drawn, 0.0).sum(0) / finite.sum(0))
    ties = (drawn == y).mean(0) * jr.uniform(key_ties, y.shape, y.dtype)
    below = (drawn < y).mean(0) + ties
    return jnp.stack([_log_tail(-drawn, -y, below), _log_tail(drawn, y, 1 - below)])


def _log_tail(
    drawn: Float[Array, "particle output"],
    y: Float[Array, " output"],
    above: Float[Array, " output"],
) -> Float[Array, " output"]:
    """The log of the share above y; beyond the last few in a hundred draws it falls exponentially.

    Of a normal tail that gives a little too much, of heavier ones too little.
    """
    n = len(drawn)
    # About the 98 % point, without sorting all: the median of the largest of each block.
    size = min(_BLOCK, n)
    start = jnp.median(drawn[: n // size * size].reshape(-1, size, len(y)).max(1), axis=0)
    count = (drawn > start).sum(0)
    excess = jnp.maximum(drawn - start, 0.0).sum(0) / jnp.maximum(count, 1)
    beyond = jnp.log(count / n) - (y - start) / jnp.maximum(excess, jnp.finfo(y.dtype).tiny)
    beyond = jnp.where(count > 0, beyond, -jnp.log(2.0 * n))
    return jnp.where(y > start, beyond, jnp.log(above))
