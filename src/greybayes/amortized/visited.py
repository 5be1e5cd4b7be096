"""Thetas that a Markov chain visits, started at the truth: less noise to learn from.

A simulated record comes with the theta and the states it was made with: one draw of both from
their posterior given the record, and exact. A Markov chain that leaves this posterior as it is
can go on from there without any burn-in: each theta that it visits is an exact draw as well, so the
mean of them has the same expectation given the record, the conditional mean, and less variance.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes.drawing import delayed
from greybayes.errors import EstimatorError
from greybayes.model import Model
from greybayes.simulation import Paths

DRAWS = 20
"""At most as many of the visited thetas, evenly apart, are learnt from."""
_LANES = 128
"""So many records at a time: the states of a chain then stay in the cache of a core."""


def check_sweeps(model: Model, sweeps: int, paths: Paths) -> None:
    """Refuse sweeps of a model that has none, or whose sweep gives something else."""
    if not sweeps:
        return
    name = type(model).__name__
    if type(model).sweep is Model.sweep:
        raise EstimatorError(
            f"sweeps is {sweeps}, and {name} has no method sweep(key, theta, x, y, u); write one, "
            "or leave out sweeps."
        )
    assert paths.x is not None
    theta, x, y = (
        jax.ShapeDtypeStruct((*of.shape[1:], 2), np.float32)
        for of in (paths.theta, paths.x, paths.y)
    )
    u = jax.ShapeDtypeStruct(paths.u.shape[1:], np.float32)
    found = jax.tree.leaves(jax.eval_shape(model.sweep, jr.key(0), theta, x, y, u))
    came, given = ([(a.shape, str(a.dtype)) for a in arrays] for arrays in (found, (theta, x)))
    if came != given:
        raise EstimatorError(
            f"{name}.sweep(key, theta, x, y, u) gives {came} for two records, expected theta and "
            f"x as they came: {given}."
        )


def visited(
    model: Model,
    key: Key[Array, ""],
    sweeps: int,
    theta: Float[Array, "batch param"],
    x: Float[Array, "steps state batch"],
    y: Float[Array, "steps output batch"],
    u: Float[Array, "steps input"] | Float[Array, "batch steps input"],
) -> Float[Array, "batch draw param"]:
    """Thetas of each record, in the order in which at least so many sweeps of the model visit them.

    As many more as it takes for the same number between every two.
    """
    u = delayed(model, u)
    batch = len(theta)
    chunks = max(1, batch // _LANES)
    while batch % chunks:
        chunks -= 1
    sweeps_each = -(-sweeps // DRAWS)
    draws = -(-sweeps // sweeps_each)
    own_input = u.ndim == 3

    def cut(a):
        return jnp.moveaxis(a.reshape(*a.shape[:-1], chunks, batch // chunks), -2, 0)

    def one_chunk(given):
        key, theta, x, y, own = given

        def one_draw(carried, key):
            def one_sweep(carried, key):
                theta, x = carried
                return model.sweep(key, theta, x, y, own if own_input else u), None

            carried, _ = jax.lax.scan(one_sweep, carried, jr.split(key, sweeps_each))
            return carried, carried[0]

        return jax.lax.scan(one_draw, (theta, x), jr.split(key, draws))[1]

    inputs = cut(jnp.moveaxis(u, 0, -1)) if own_input else None
    keys = jr.split(key, chunks)
    thetas = jax.lax.map(one_chunk, (keys, cut(theta.T), cut(x), cut(y), inputs))
    return jnp.transpose(thetas, (0, 3, 1, 2)).reshape(batch, draws, -1)
