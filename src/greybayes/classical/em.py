"""The M-step of expectation maximisation by Newton's method, for models without a closed form.

The expected complete-data log-likelihood, over weighted trajectories of the states,

    Q(theta) = sum_i w_i (log p(x_1) + sum_k log p(x_{k+1} | x_k) + sum_k log p(y_k | x_k)),

is maximised in the unconstrained space, so that theta stays inside the support of its prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from greybayes._types import Theta
from greybayes.affine import depends
from greybayes.classical.starts import margins
from greybayes.drawing import clock
from greybayes.likelihood.density import log_density, without_density
from greybayes.model import Model, Time
from greybayes.structure import Kind, distribution

Free = Float[Array, " free"]

# No further than this in one step, in unconstrained units: a logit saturates, and a step that
# overshoots into its flat end takes many to come back from.
_LONGEST = 2.0
# How often a step is halved before it is given up.
_HALVINGS = 8
_SMALLEST_PIVOT = 1e-4
_ROUNDING = 1e-6


def lacking(model: Model) -> str | None:
    """What a model lacks for expectation maximisation, as a clause; None where nothing is.

    >>> import greybayes as gb
    >>> lacking(gb.get_model("van-der-pol"))
    'its transition has noise on some channels only, and a density is needed there'
    """
    clause = without_density(model, "transition", "observation")
    kind = model.structure.initial
    if clause or kind is Kind.density:
        return clause
    u, theta = jnp.zeros(len(model.inputs)), jnp.zeros(model.prior.size)

    def first(theta):
        return distribution(model, "initial", u, model.p(theta)).sample(jr.key(0))

    # Trajectories that start where theta says cannot tell which theta would be a better one.
    if depends(first, theta):
        return f"its initial state depends on theta and has {kind.value}; a density is needed there"
    return None


def maximise_expected(
    model: Model,
    theta: Theta,
    x: Float[Array, "trajectory steps state"],
    weights: Float[Array, " trajectory"],
    y: Float[Array, "steps output"],
    u: Float[Array, "steps input"],
    n_newton: int = 2,
) -> Theta:
    """Theta that maximises Q, or is closer to that: `n_newton` safe steps from `theta`.

    `u` is the input as it reaches the model (`delayed`), `y` is NaN where a sample is missing. Q
    never gets worse: a step that lowers it is halved, and in the end given up. Pure, for
    use inside compiled code and under `jax.vmap`.
    """
    given = _Given(x, weights, y, u)

    def climb(free, _):
        ascent = _ascent(*_derivatives(model, free, given))
        return _climbed(lambda free: _expected(model, _p(model, free), given), free, ascent), None

    free, _ = jax.lax.scan(climb, model.prior.unconstrain(theta), length=n_newton)
    with jax.ensure_compile_time_eval():
        ends = margins(model.prior)
    moved = jnp.clip(model.prior.constrain(free)[0], *(end.astype(theta.dtype) for end in ends))
    # Trajectories of a collapsed filter are no numbers: theta then stays where it was.
    return jnp.where(jnp.isfinite(moved).all(), moved, theta)


def expected_log_lik(
    model: Model,
    theta: Theta,
    x: Float[Array, "trajectory steps state"],
    weights: Float[Array, " trajectory"],
    y: Float[Array, "steps output"],
    u: Float[Array, "steps input"],
) -> Float[Array, ""]:
    """Q(theta). Transitions after the last sample that was seen say nothing, and are left out."""
    return _expected(model, model.p(theta), _Given(x, weights, y, u))


class _Given(NamedTuple):
    """What Q is made of, but for theta."""

    x: Float[Array, "trajectory steps state"]
    weights: Float[Array, " trajectory"]
    y: Float[Array, "steps output"]
    u: Float[Array, "steps input"]


class _Sample(NamedTuple):
    """What one term of the sum over k needs: all trajectories at one sample."""

    x: Float[Array, "*steps trajectory state"]
    after: Float[Array, "*steps trajectory state"]
    counts: Bool[Array, "*steps"]
    """Whether the transition counts: not after the last sample that was seen."""
    y: Float[Array, "*steps output"]
    u: Float[Array, "*steps input"]
    t: Time


def _samples(model: Model, given: _Given) -> _Sample:
    x = jnp.moveaxis(given.x, 1, 0)
    seen_later = jnp.flip(jnp.cumsum(jnp.flip(~jnp.isnan(given.y).all(-1)))) > 0
    counts = jnp.append(seen_later[1:], False)
    after = jnp.concatenate([x[1:], x[-1:]])
    return _Sample(x, after, counts, given.y, given.u, clock(model, len(x)))


def _term(model: Model, p: Any, sample: _Sample, weights: Float[Array, " trajectory"]):
    """The term of one sample: its observation, and the transition to the next."""
    y, u, t, seen = sample.y, sample.u, sample.t, ~jnp.isnan(sample.y)

    def one(x, after):
        moved = log_density(distribution(model, "transition", x, u, p, t), after, None)
        made = log_density(distribution(model, "observation", x, u, p, t), y, seen)
        return made + jnp.where(sample.counts, moved, 0.0)

    # Not a product of matrices, which would keep XLA from fusing the densities into the sum.
    return (weights * jax.vmap(one)(sample.x, sample.after)).sum()


def _first_term(model: Model, p: Any, given: _Given) -> Float[Array, ""]:
    if model.structure.initial is not Kind.density:
        return jnp.zeros(())
    initial = distribution(model, "initial", given.u[0], p)
    return (given.weights * jax.vmap(initial.log_prob)(given.x[:, 0])).sum()


def _expected(model: Model, p: Any, given: _Given) -> Float[Array, ""]:
    def step(total, sample):
        return total + _term(model, p, sample, given.weights), None

    return jax.lax.scan(step, _first_term(model, p, given), _samples(model, given))[0]


def _p(model: Model, free: Free) -> Any:
    return model.p(model.prior.constrain(free)[0])


def _derivatives(
    model: Model, free: Free, given: _Given
) -> tuple[Float[Array, " free"], Float[Array, "free free"]]:
    """Gradient and Hessian of Q, forwards and sample by sample, so that they stay in the cache.

    The derivatives of p are taken once, outside the sum: `prepare` may be costly.
    """
    n = len(free)
    rows, columns = np.triu_indices(n)
    unit = jnp.eye(n, dtype=free.dtype)
    p, rest = eqx.partition(_p(model, free), eqx.is_inexact_array)

    def numbers(free):
        return eqx.filter(_p(model, free), eqx.is_inexact_array)

    def jet(row, column):
        """The derivatives of p by one entry, by another, and by both."""
        (_, by_row), (by_column, by_both) = jax.jvp(
            lambda free: jax.jvp(numbers, (free,), (row,)), (free,), (column,)
        )
        return by_row, by_column, by_both

    jets = jax.vmap(jet)(unit[rows], unit[columns])

    def both(term: Callable[[Any], Array]) -> tuple[Array, Array]:
        """The slope of a term along each row, and its curvature along each pair."""

        def slope(p, direction):
            return jax.jvp(lambda p: term(eqx.combine(p, rest)), (p,), (direction,))[1]

        return jax.vmap(
            lambda by_row, by_column, by_both: jax.jvp(slope, (p, by_row), (by_column, by_both))
        )(*jets)

    def step(totals, sample):
        told = both(lambda p: _term(model, p, sample, given.weights))
        return jax.tree.map(jnp.add, totals, told), None

    first = both(lambda p: _first_term(model, p, given))
    (slopes, curvatures), _ = jax.lax.scan(step, first, _samples(model, given))
    hessian = jnp.zeros((n, n), free.dtype).at[rows, columns].set(curvatures)
    return slopes[rows == columns], hessian.at[columns, rows].set(curvatures)


def _ascent(gradient: Float[Array, " free"], hessian: Float[Array, "free free"]) -> Free:
    """Newton's direction, from a factorisation whose pivots are made positive.

    Without LAPACK: its batched calls do not go together with several CPU devices.
    """
    n = len(gradient)
    # Scaled to a unit diagonal, so that pivots can be compared with 1.
    scale = 1 / jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(hessian)), 1e-12))
    left, right = -hessian * scale[:, None] * scale, gradient * scale
    columns, pivots = [], []
    for j in range(n):
        pivots.append(jnp.maximum(jnp.abs(left[j, j]), _SMALLEST_PIVOT))
        columns.append(jnp.where(jnp.arange(n) > j, left[:, j] / pivots[j], 0.0))
        left -= pivots[j] * columns[j][:, None] * columns[j]
        right -= columns[j] * right[j]
    ascent = jnp.zeros(n, gradient.dtype)
    for j in reversed(range(n)):
        ascent = ascent.at[j].set(right[j] / pivots[j] - columns[j] @ ascent)
    return ascent * scale


def _climbed(objective: Callable[[Free], Array], free: Free, ascent: Free) -> Free:
    """A step uphill: the whole of it, half, a quarter and so on, until it is one that gains."""
    longest = jnp.max(jnp.abs(ascent) / jnp.maximum(jnp.abs(free), 1.0))
    ascent = ascent * jnp.minimum(1.0, _LONGEST / jnp.maximum(longest, 1e-12))
    here = objective(free)
    # Near the top all gains drown in rounding; Newton's step is then the better judge.
    enough = here - _ROUNDING * jnp.abs(here)

    def goes_on(state):
        tried, gained, _ = state
        return ~gained & (tried < _HALVINGS)

    def attempt(state):
        tried, _, _ = state
        there = free + 0.5**tried * ascent
        return tried + 1, objective(there) >= enough, there

    _, gained, there = jax.lax.while_loop(goes_on, attempt, (0, jnp.array(False), free))
    return jnp.where(gained, there, free)
