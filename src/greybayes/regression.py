"""Closed-form updates of a model with normal noise whose mean is linear in some of its parameters.

Help for the author of `Model.statistics` and `Model.maximise`. With the mean a sum of terms, each a
gain times something known once the states are known,

    target = gain_1 term_1 + ... + gain_m term_m + e,   e ~ N(0, variance),

all that the likelihood needs of many rows (term_1, ..., term_m, target) is the sum of their
products.
"""

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

if TYPE_CHECKING:
    from greybayes.model import Model


class Moments(NamedTuple):
    """Products of the columns of a regression, and how many rows they are of."""

    products: Float[Array, "column column"]
    count: Float[Array, ""]


def moments(*columns: Any) -> Moments:
    """One row: the terms, then the target. It counts for nothing where one of them is missing.

    >>> moments(jnp.array([3.0]), 2.0)
    Moments(products=Array([[9., 6.], [6., 4.]], dtype=float32), count=Array(1., dtype=float32))
    >>> moments(jnp.array([3.0]), jnp.nan).count
    Array(0., dtype=float32)
    """
    row = jnp.stack([jnp.reshape(jnp.asarray(column, float), ()) for column in columns])
    seen = ~jnp.isnan(row).any()
    row = jnp.where(seen, row, 0.0)
    return Moments(row[:, None] * row, seen.astype(row.dtype))


def regress(
    model: "Model", rows: Moments, p: Any, *gains: str
) -> tuple[dict[str, Array], Float[Array, ""]]:
    """The most likely gains by name, within the bounds of their priors, and the variance.

    `gains` names the parameters in the order of the terms. One that is fixed keeps its value, which
    is that in `p`.
    """
    low, high = _ends(model, p, gains)
    # The least of a convex function in a box is that of one of its faces: each gain is free, or at
    # one of its ends. There are few gains, so all faces are tried.
    free, fixed = ("inside", "low", "high"), ("low",)
    ways = [free if name in model.prior.parameters else fixed for name in gains]
    faces = list(itertools.product(*ways))
    table = np.array(faces, str).reshape(len(faces), len(gains))
    at = jnp.where(table == "low", low, high)
    values = jax.vmap(_least, (None, 0, 0))(rows.products, at, table == "inside")
    lines = jnp.concatenate([-values, jnp.ones((len(table), 1))], axis=1)
    sums = jnp.einsum("fi,ij,fj->f", lines, rows.products, lines)
    # Outside of the box, or at an end that is infinite.
    bad = ((values < low) | (values > high)).any(1) | jnp.isnan(sums)
    best = jnp.argmin(jnp.where(bad, jnp.inf, sums))
    found = {name: values[best, i] for i, name in enumerate(gains)}
    return found, sums[best] / jnp.maximum(rows.count, 1.0)


def _ends(
    model: "Model", p: Any, gains: tuple[str, ...]
) -> tuple[Float[Array, " gain"], Float[Array, " gain"]]:
    """The bounds of each gain; both are its value where it is fixed."""
    bounds = dict(zip(model.prior.names, zip(*model.prior.bounds, strict=True), strict=True))
    ends = [bounds[name] if name in bounds else (getattr(p, name),) * 2 for name in gains]
    low, high = ([jnp.asarray(pair[i], float) for pair in ends] for i in (0, 1))
    return jnp.array(low, float), jnp.array(high, float)


def _least(
    products: Float[Array, "column column"],
    at: Float[Array, " gain"],
    inside: Bool[Array, " gain"],
) -> Float[Array, " gain"]:
    """The gains with the least sum of squares on one face of the box."""
    held = jnp.where(inside, 0.0, at)
    left = products[:-1, -1] - products[:-1, :-1] @ held
    matrix = jnp.where(inside[:, None] & inside, products[:-1, :-1], jnp.eye(len(at)))
    # Elimination by hand: LAPACK's batched calls do not go together with several CPU devices.
    rows = jnp.concatenate([matrix, jnp.where(inside, left, at)[:, None]], axis=1)
    for j in range(len(at)):
        row = rows[j] / rows[j, j]
        rows = (rows - rows[:, j : j + 1] * row).at[j].set(row)
    return rows[:, -1]
