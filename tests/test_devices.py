"""Lanes split over all cores are the lanes one by one."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from greybayes._devices import over_devices


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("together", [0, 1, 3, 100])
def test_every_lane_gets_its_own_answer(size, together):
    lanes = {"x": jnp.arange(2.0 * size).reshape(size, 2), "key": jr.split(jr.key(1), size)}
    shared = jnp.array([10.0, 100.0])

    def one(lane, shared):
        return lane["x"] + shared, jr.uniform(lane["key"])

    run = jax.jit(lambda lanes, shared: over_devices(one, together, lanes, shared))
    sums, drawn = run(lanes, shared)
    np.testing.assert_array_equal(sums, lanes["x"] + shared)
    np.testing.assert_array_equal(drawn, jax.vmap(jr.uniform)(lanes["key"]))
