"""What a network reads: scales, heavy tails, missing samples, against plain NumPy."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from greybayes.amortized.channels import Scaling

RNG = np.random.default_rng(3)
Y = RNG.normal([1.0, -200.0], [2.0, 30.0], (40, 25, 2)).astype(np.float32)
U = RNG.uniform(3, 5, (40, 25, 1)).astype(np.float32)


def heavy(count=40):
    """A channel whose largest value is far beyond ten standard deviations."""
    y = RNG.normal(5.0, 1.0, (count, 25, 1))
    y[3, 4, 0] = 1e6
    return y.astype(np.float32)


def test_light_channels_have_mean_0_and_variance_1():
    channels = Scaling.measure(Y, U).channels(np, Y, U)
    flat = channels.reshape(-1, 5)
    np.testing.assert_allclose(flat[:, [0, 1, 4]].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(flat[:, [0, 1, 4]].std(0), 1, atol=1e-4)
    np.testing.assert_array_equal(flat[:, 2:4], 1)


def test_offset_and_scale_are_mean_and_standard_deviation():
    scaling = Scaling.measure(Y, U)
    flat = Y.reshape(-1, 2).astype(float)
    np.testing.assert_allclose(scaling.y_offset, flat.mean(0))
    np.testing.assert_allclose(scaling.y_scale, flat.std(0))
    np.testing.assert_allclose((scaling.u_offset[0], scaling.u_scale[0]), (U.mean(), U.std()), 1e-5)
    assert scaling.y_heavy == (False, False)


def test_a_heavy_tail_is_compressed_and_leaves_the_bulk_its_scale():
    y = np.concatenate([Y[..., :1], heavy()], axis=-1)
    scaling = Scaling.measure(y, U)
    assert scaling.y_heavy == (False, True)
    low, median, high = np.quantile(y[..., 1].astype(float), [0.16, 0.5, 0.84])
    expected = np.arcsinh((y[..., 1] - median) / ((high - low) / 2))
    got = scaling.channels(np, y, U)
    np.testing.assert_allclose(got[..., 1], expected, rtol=1e-4, atol=1e-5)
    assert got[..., 1].max() < 20
    assert 0.5 < got[..., 1].std() < 1.5


def test_a_constant_channel_stays_finite():
    y, u = np.full((8, 5, 1), 3.0, np.float32), np.full((8, 5, 1), 7.0, np.float32)
    channels = Scaling.measure(y, u).channels(np, y, u)
    np.testing.assert_allclose(channels[..., [0, 2]], 0, atol=1e-6)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_a_missing_sample_is_0_with_mask_0(xp):
    scaling = Scaling.measure(np.concatenate([Y[..., :1], heavy()], axis=-1), U)
    y = np.concatenate([Y[..., :1], heavy()], axis=-1)
    y[0, 3, 0] = y[2, :, 1] = np.nan
    got = np.asarray(scaling.channels(xp, xp.asarray(y), U))
    np.testing.assert_array_equal(got[..., 2:4], ~np.isnan(y))
    np.testing.assert_array_equal(got[..., :2][np.isnan(y)], 0)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("u", [U, U[0]], ids=["one each", "one for all"])
def test_numpy_and_jax_give_the_same_channels(u):
    y = np.concatenate([Y, heavy()], axis=-1)
    scaling = Scaling.measure(y, U)
    ours, theirs = scaling.channels(np, y, u), scaling.channels(jnp, jnp.asarray(y), jnp.asarray(u))
    assert ours.shape == (40, 25, 7)
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_one_input_for_all_is_that_input_for_each():
    scaling = Scaling.measure(Y, U)
    each = scaling.channels(np, Y, np.broadcast_to(U[0], U.shape))
    np.testing.assert_array_equal(scaling.channels(np, Y, U[0]), each)


def test_a_model_without_inputs_has_channels_for_y_alone():
    scaling = Scaling.measure(Y, np.zeros((40, 25, 0), np.float32))
    assert (scaling.u_offset, scaling.u_scale) == ((), ())
    assert scaling.channels(np, Y, np.zeros((25, 0), np.float32)).shape == (40, 25, 4)


def test_a_scaling_goes_through_json():
    scaling = Scaling.measure(np.concatenate([Y, heavy()], axis=-1), U)
    assert Scaling.from_dict(json.loads(json.dumps(scaling.to_dict()))) == scaling
