"""Lanes split over all cores are the lanes one by one, and no core waits for another."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg  # noqa: F401  Its library is among those that are limited from the start.
from helpers.tiny import train_tiny
from threadpoolctl import threadpool_info, threadpool_limits

from greybayes._devices import one_blas_thread, over_devices
from greybayes.amortized.training import BLOCK


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


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def test_a_core_that_calls_lapack_does_not_wait_for_the_others():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == before


def test_training_calls_lapack_so():
    seen = []
    with threadpool_limits(limits=2, user_api="blas"):
        train_tiny(steps=BLOCK, watch=lambda progress: seen.append(blas_threads()))
    assert seen == [{1}]
