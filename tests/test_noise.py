"""What a model's methods may return, against scipy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from helpers import assert_moments, assert_uncorrelated

from greybayes.errors import ModelError
from greybayes.noise import Channels, Known, Sampler, as_channels

N = 20_000


@pytest.fixture(scope="module")
def mixed() -> Channels:
    return Channels(
        position=Known(3.0),
        speed=dist.Normal(1.0, 2.0),
        alarm=dist.Bernoulli(0.3),
        level=dist.Gamma(2.0, 3.0),
        angle=dist.Laplace(jnp.array([0.5]), 1.0),
    )


ORACLE = {
    1: st.norm(1.0, 2.0),
    2: st.bernoulli(0.3),
    3: st.gamma(2.0, scale=1 / 3),
    4: st.laplace(0.5),
}


@pytest.mark.parametrize("value", [2, 0.5, [1.0, -2.0], np.arange(6).reshape(2, 3)])
def test_known_draws_its_value_as_floats(value):
    known = Known(value)
    drawn = known.sample(jr.key(0), (3,))
    assert drawn.dtype == jnp.float32
    np.testing.assert_array_equal(drawn, np.broadcast_to(value, (3, *np.shape(value))))
    np.testing.assert_array_equal(known.mean, value)
    np.testing.assert_array_equal(known.variance, np.zeros(np.shape(value)))


def test_known_has_all_its_mass_at_its_value():
    np.testing.assert_array_equal(Known(2.0).log_prob(jnp.array([2.0, 2.1])), [0.0, -np.inf])


@pytest.fixture(scope="module")
def draws(mixed) -> np.ndarray:
    return np.asarray(jax.jit(lambda key: mixed.sample(key, (N,)))(jr.key(0)))


def test_each_channel_is_drawn_from_its_own_distribution(mixed, draws):
    assert draws.shape == (N, 5)
    np.testing.assert_array_equal(draws[:, 0], 3.0)
    for index, oracle in ORACLE.items():
        assert_moments(draws[:, index], oracle.mean(), oracle.var())
        assert mixed.mean[index] == pytest.approx(oracle.mean(), rel=1e-6)
        assert mixed.variance[index] == pytest.approx(oracle.var(), rel=1e-6)


def test_channels_are_independent_of_one_another(draws):
    assert_uncorrelated(draws[:, 1:])


def test_channels_of_one_kind_do_not_share_their_noise():
    pair = Channels(a=dist.Normal(0.0, 1.0), b=dist.Normal(0.0, 1.0)).sample(jr.key(1), (N,))
    assert_uncorrelated(pair)


def test_log_prob_is_the_sum_over_channels(mixed, draws):
    value = draws[:50].copy()
    expected = (
        ORACLE[1].logpdf(value[:, 1])
        + ORACLE[2].logpmf(value[:, 2])
        + ORACLE[3].logpdf(value[:, 3])
        + ORACLE[4].logpdf(value[:, 4])
    )
    value[-1, 0] = 3.5  # where the known channel is not
    total, each = jax.jit(lambda v: (mixed.log_prob(v), mixed.log_prob_each(v)))(value)
    np.testing.assert_allclose(total[:-1], expected[:-1], rtol=2e-5)
    assert total[-1] == -np.inf
    np.testing.assert_allclose(each[1], ORACLE[1].logpdf(value[:, 1]), rtol=2e-5)
    np.testing.assert_array_equal(each[0][:-1], np.zeros(49))


def test_channels_can_all_be_known_and_need_no_noise():
    np.testing.assert_array_equal(
        Channels(a=Known(1.0), b=Known(-2.0)).sample(jr.key(0), (2,)), [[1.0, -2.0]] * 2
    )


def test_channels_pass_through_vmap_and_jit():
    def draw(mean, key):
        return Channels(a=Known(mean), b=dist.Uniform(mean, mean + 0.5)).sample(key)

    drawn = np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(3.0), jr.split(jr.key(0), 3)))
    np.testing.assert_array_equal(drawn[:, 0], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(np.floor(drawn[:, 1]), [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Sampler(jr.normal), ["speed is Sampler", "a Sampler gives all channels at once"]),
        (dist.Normal(jnp.zeros(2), 1.0), ["speed has shape (2,)", "expected a scalar", "x[0]"]),
        (Known([1.0, 2.0]), ["speed has shape (2,)", "x[0]"]),
        (dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)), ["speed has shape (3,)", "x[0]"]),
    ],
)
def test_a_channel_that_is_no_scalar_distribution_is_refused(part, words):
    with pytest.raises(ModelError) as error:
        Channels(position=Known(0.0), speed=part)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_sampler_draws_what_its_function_draws():
    sampler = Sampler(lambda key: jnp.exp(jr.normal(key, (2,))))
    np.testing.assert_array_equal(sampler.sample(jr.key(3)), jnp.exp(jr.normal(jr.key(3), (2,))))
    draws = np.asarray(jax.jit(lambda key: sampler.sample(key, (100, 200)))(jr.key(4)))
    assert draws.shape == (100, 200, 2)
    assert_moments(np.log(draws).reshape(-1, 2), 0.0, 1.0)
    assert_uncorrelated(np.log(draws).reshape(-1, 2))


def test_a_sampler_has_no_density():
    with pytest.raises(ModelError, match="Sampler has no density; return a distribution"):
        Sampler(jr.normal).log_prob(jnp.zeros(1))


TWO = ("x1", "x2")
POINT = jnp.array([0.3, -0.7])


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (dist.Normal(0.5, 2.0), st.norm(0.5, 2.0).logpdf(POINT).sum()),
        (dist.Normal(jnp.array([0.5, 1.0]), 2.0), st.norm([0.5, 1.0], 2.0).logpdf(POINT).sum()),
        (dist.Normal(0.5, jnp.ones(2)).to_event(1), st.norm(0.5, 1.0).logpdf(POINT).sum()),
        (
            dist.MultivariateNormal(jnp.ones(2), 2 * jnp.eye(2)),
            st.multivariate_normal([1, 1], 2 * np.eye(2)).logpdf(POINT),
        ),
        (
            Channels(x2=dist.Normal(1.0, 1.0), x1=dist.Normal(0.0, 3.0)),
            st.norm([0, 1], [3, 1]).logpdf(POINT).sum(),
        ),
    ],
    ids=["scalar", "vector", "event", "multivariate", "channels in another order"],
)
def test_what_a_method_returns_becomes_one_vector(returned, expected):
    vector = as_channels(returned, TWO, "Plant.transition")
    assert (vector.batch_shape, vector.event_shape) == ((), (2,))
    assert vector.sample(jr.key(0)).shape == (2,)
    assert vector.log_prob(POINT) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("known", "value"), [(Known(0.5), [0.5, 0.5]), (Known([1.0, 2.0]), [1.0, 2.0])]
)
def test_a_known_value_broadcasts_over_the_channels(known, value):
    vector = as_channels(known, TWO, "Plant.initial")
    assert vector.event_shape == (2,)
    np.testing.assert_array_equal(vector.sample(jr.key(0)), value)


def test_channels_are_put_in_the_order_of_the_names():
    vector = as_channels(Channels(x2=Known(2.0), x1=Known(1.0)), TWO, "Plant.initial")
    assert vector.names == TWO
    np.testing.assert_array_equal(vector.sample(jr.key(0)), [1.0, 2.0])


def test_a_sampler_is_taken_as_it_is():
    sampler = Sampler(jr.normal)
    assert as_channels(sampler, TWO, "Plant.transition") is sampler


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (0.0, ["returned float", "expected a distribution", "gb.Known(value)"]),
        (jnp.zeros(2), ["returned ArrayImpl", "expected a distribution", "gb.Known(value)"]),
        (None, ["returned NoneType"]),
        (dist.Normal(jnp.zeros(3), 1.0), ["shape (3,), expected (2,)", "each of x1, x2"]),
        (dist.Normal(jnp.zeros((1, 2)), 1.0), ["shape (1, 2), expected (2,)"]),
        (Known(jnp.zeros(3)), ["shape (3,), expected (2,)"]),
        (dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)), ["shape (3,), expected (2,)"]),
        (Channels(x1=Known(0.0)), ["returned channels x1, expected x1, x2"]),
        (Channels(x1=Known(0.0), y=Known(0.0)), ["returned channels x1, y, expected x1, x2"]),
    ],
)
def test_anything_else_is_refused_with_the_name_of_the_method(returned, words):
    with pytest.raises(ModelError) as error:
        as_channels(returned, TWO, "Plant.transition")
    assert str(error.value).startswith("Plant.transition returned")
    assert all(word in str(error.value) for word in words), str(error.value)
