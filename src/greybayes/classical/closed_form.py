"""The M-step in closed form, for models that bring `statistics` and `maximise`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from greybayes._types import Theta
from greybayes.classical.starts import margins
from greybayes.drawing import clock
from greybayes.errors import ModelError
from greybayes.model import Model, Time


@functools.cache
def has_closed_form(model: Model) -> bool:
    """Whether a model's own `statistics` and `maximise` hold for what is free in it now.

    A class that changes a distribution must bring its own: those it inherits are for another model.

    >>> import greybayes as gb
    >>> has_closed_form(gb.get_model("growth2")), has_closed_form(gb.get_model("growth"))
    (True, False)
    """
    methods = ("initial", "transition", "observation", "prepare")
    if any(_age(model, method) < _age(model, "statistics") for method in methods):
        return False

    def update(theta, x, y, u):
        p, t = model.p(theta), Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))
        sums = _called(model, "statistics", x, x, y, u, p, t)
        if sums is None:
            return None
        return maximised(model, sums, theta)

    sizes = model.prior.size, len(model.states), len(model.outputs), len(model.inputs)
    return jax.eval_shape(update, *(jnp.zeros(size) for size in sizes)) is not None


def _age(model: Model, method: str) -> int:
    """How many classes above the model's own a method is written."""
    return next(i for i, base in enumerate(type(model).__mro__) if method in vars(base))


def expected_statistics(
    model: Model,
    theta: Theta,
    x: Float[Array, "trajectory steps state"],
    weights: Float[Array, " trajectory"],
    y: Float[Array, "steps output"],
    u: Float[Array, "steps input"],
) -> Any:
    """The sums of the model's `statistics` over the steps, averaged over weighted trajectories.

    `u` is already delayed. Transitions after the last sample that was seen say nothing, and are
    left out. In float64: squares of large states are summed and almost cancel later.
    """
    x, weights, y, u = (jnp.asarray(a, jnp.float64) for a in (x, weights, y, u))
    p, t = model.p(theta), clock(model, len(y))
    counts = _counts(~jnp.isnan(y).all(-1))

    def of_one(x):
        after = jnp.where(counts[:, None], jnp.roll(x, -1, axis=0), jnp.nan)
        steps = jax.vmap(functools.partial(_called, model, "statistics"), (0, 0, 0, 0, None, 0))
        return jax.tree.map(lambda a: a.sum(0), steps(x, after, y, u, p, t))

    sums = jax.vmap(of_one)(x)
    return jax.tree.map(lambda a: jnp.tensordot(weights, a, 1), sums)


def _counts(seen: Bool[Array, " steps"]) -> Bool[Array, " steps"]:
    """Whether a sample is seen after each one."""
    later = jnp.flip(jnp.cumsum(jnp.flip(seen))) - seen
    return later > 0


def maximised(model: Model, sums: Any, theta: Theta) -> Theta:
    """The most likely theta for these sums, a little inside its bounds."""
    found = _called(model, "maximise", sums, model.p(theta))
    lacking = [name for name in model.prior.parameters if name not in found]
    if lacking:
        raise ModelError(
            f"{type(model).__name__}.maximise gives no value for {', '.join(lacking)}, which is "
            "free; return it, or None from statistics where there is no closed form."
        )
    best = model.prior.pack(found)
    with jax.ensure_compile_time_eval():
        low, high = margins(model.prior)
    best = jnp.clip(best, low, high)
    # Trajectories of a collapsed filter are no numbers: theta then stays where it was.
    return jnp.where(jnp.isfinite(best).all(), best, theta)


def _called(model: Model, method: str, *arguments: Any) -> Any:
    """What one of the two methods returns; a mistake in it leaves as a `ModelError`."""
    try:
        return getattr(model, method)(*arguments)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__}.{method} failed with {type(error).__name__}: {error}."
        ) from error
