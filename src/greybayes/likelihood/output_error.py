"""The closed-form log-likelihood of models whose only noise is that of the observation.

Where initial state and transition are known, theta and u give the states, and

    log p(y | theta) = sum_k log p(y_k | x_k(theta))

over the samples that were seen. Everything here is float64, and can be differentiated forwards.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from greybayes._types import Theta
from greybayes.drawing import clock, delayed
from greybayes.errors import ModelError
from greybayes.likelihood.density import log_density, without_density
from greybayes.likelihood.measured import measured
from greybayes.model import Model
from greybayes.record import Record
from greybayes.structure import Kind, distribution
from greybayes.zoo import get_model


def output_error_log_lik(
    model: Model | str, thetas: Float[np.ndarray, "batch param"], record: Record
) -> Float[np.ndarray, " batch"]:
    """The exact log-likelihood of a record for each of many thetas.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", n_steps=20, key=1)[0]
    >>> output_error_log_lik("fir", np.array([[1.0, 0.5], [0.9, 0.6]]), record).shape
    (2,)
    """
    model = get_model(model)
    lacks = not_output_error(model)
    if lacks:
        raise ModelError(
            f"{type(model).__name__} has no closed-form likelihood: {lacks}. Use a Kalman filter "
            "where it is linear-Gaussian, a particle filter otherwise."
        )
    with jax.enable_x64(True):
        given = (thetas, *measured(model, record))
        return np.asarray(_log_liks(model, *(jnp.asarray(a, jnp.float64) for a in given)))


def not_output_error(model: Model) -> str | None:
    """What keeps a model from having this likelihood, as a clause; None where nothing does."""
    for method in ("initial", "transition"):
        if getattr(model.structure, method) is not Kind.known:
            return f"its {method} has noise"
    return without_density(model, "observation")


@functools.partial(jax.jit, static_argnums=0)
def _log_liks(model, thetas, y, u):
    return jax.vmap(lambda theta: log_lik(model, theta, y, u))(thetas)


def log_lik(
    model: Model, theta: Theta, y: Float[Array, "steps output"], u: Float[Array, "steps input"]
) -> Float[Array, ""]:
    """log p(y | theta). Pure, for use inside compiled code; y is NaN where a sample is missing."""
    p, late, times = model.p(theta), delayed(model, u), clock(model, len(y))

    def observed(x, y, u, t):
        d = distribution(model, "observation", x, u, p, t)
        return log_density(d, y, ~jnp.isnan(y))

    return jax.vmap(observed)(mean_states(model, p, late), y, late, times).sum()


def mean_states(
    model: Model, p: Any, late: Float[Array, "steps input"]
) -> Float[Array, "steps state"]:
    """The path of the states without noise: each is the mean of its distribution.

    `late` is the input as it reaches the model (`delayed`).
    """

    def step(x, given):
        u, t = given
        after = distribution(model, "transition", x, u, p, t).mean
        return jnp.asarray(after, late.dtype), x

    x_1 = jnp.asarray(distribution(model, "initial", late[0], p).mean, late.dtype)
    return jax.lax.scan(step, x_1, (late, clock(model, len(late))))[1]
