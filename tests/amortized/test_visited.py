"""What training learns from where a chain goes on from the truth."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers.tiny import assert_same_weights, stop_at, train_tiny

import greybayes as gb
from greybayes.amortized.training import BLOCK
from greybayes.amortized.visited import DRAWS, visited
from greybayes.errors import EstimatorError
from greybayes.zoo.growth import Growth2

GROWTH = {"model": "growth2", "steps": 2 * BLOCK}


def given(count, n_steps=200):
    """Paths of M2 as training has them: the batch of states and outputs is last."""
    paths = gb.simulate("growth2", count=count, n_steps=n_steps, key=5)
    x, y = (jnp.moveaxis(jnp.asarray(a), 0, -1) for a in (paths.x, paths.y))
    return paths, jnp.asarray(paths.theta), x, y


def test_their_mean_is_nearer_the_conditional_mean():
    shipped = gb.load("growth2")
    paths, theta, x, y = given(500)
    thetas = visited(paths.model, jr.key(1), 100, theta, x, y, jnp.asarray(paths.u[0]))
    assert thetas.shape == (500, DRAWS, 4)
    estimate, variance = shipped.means(paths.y), shipped.model.prior.variance

    def off(thetas):
        return float(((np.asarray(thetas) - estimate) ** 2 / variance).mean())

    assert off(thetas.mean(1)) < 0.55 * off(theta)


def test_no_sweep_is_lost_where_they_are_not_a_multiple_of_the_draws():
    paths, theta, x, y = given(4, n_steps=12)

    def draws(sweeps):
        chain = functools.partial(visited, paths.model, jr.key(1), sweeps)
        return jax.eval_shape(chain, theta, x, y, jnp.asarray(paths.u[0])).shape[1]

    assert {sweeps: draws(sweeps) for sweeps in (19, 30, 39)} == {19: 19, 30: 15, 39: DRAWS}


@pytest.mark.parametrize("count", [131, 256])
def test_any_number_of_records_and_an_input_of_each(count):
    """A prime number is one part; of the other there are two. Records take turns with inputs."""
    paths, theta, x, y = given(count, n_steps=12)
    inputs = jnp.stack([jnp.asarray(paths.u[0]), jnp.asarray(paths.u[0]) ** 2 - 3.0])
    turns = np.arange(count) % 2
    each = visited(paths.model, jr.key(1), 3, theta, x, y, inputs[turns])
    assert each.shape == (count, 3, 4)
    for turn, u in enumerate(inputs):
        alike = visited(paths.model, jr.key(1), 3, theta, x, y, u)
        np.testing.assert_allclose(each[turns == turn], alike[turns == turn], rtol=1e-4)


def test_the_input_is_that_which_the_states_met():
    paths, theta, x, y = given(6, n_steps=12)
    late = type(paths.model)(input_delay=2)
    u = jnp.asarray(paths.u[0])
    shifted = jnp.concatenate([jnp.zeros((2, 1)), u[:-2]])
    for model, same in ((late, shifted), (paths.model, u)):
        found = visited(model, jr.key(1), 3, theta, x, y, u)
        expected = visited(paths.model, jr.key(1), 3, theta, x, y, same)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_a_diverged_path_leaves_stays_finite():
    paths, theta, x, y = given(4, n_steps=12)
    thetas = visited(paths.model, jr.key(1), 5, theta, 0 * x, 0 * y, jnp.asarray(paths.u[0]))
    assert np.isfinite(thetas).all()


def test_training_learns_from_them_and_goes_on_to_the_same_bits(tmp_path, compiled):
    settings = {"sweeps": 2}
    whole = train_tiny(**GROWTH, settings=settings)
    assert whole.header["settings"]["sweeps"] == 2
    name = "head.out.weight"
    assert (whole.arrays[name] != train_tiny(**GROWTH).arrays[name]).any()
    file = tmp_path / "a.partial"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(**GROWTH, settings=settings, checkpoint=file, watch=stop_at(BLOCK))
    assert_same_weights(gb.resume(file), whole)


def test_a_model_without_a_sweep_is_refused_before_the_work(tmp_path):
    file = tmp_path / "a.partial"
    with pytest.raises(
        EstimatorError, match=r"LinearGaussian has no method sweep.*leave out sweeps"
    ):
        train_tiny(settings={"sweeps": 5}, checkpoint=file)
    assert not file.exists()


class Shuffled(Growth2):
    """Its sweep forgets the states."""

    def sweep(self, key, theta, x, y, u):
        return theta, x[:-1]


def test_a_sweep_that_gives_something_else_is_refused():
    with pytest.raises(EstimatorError, match=r"Shuffled\.sweep.* expected theta and x as"):
        train_tiny(model=Shuffled, steps=BLOCK, settings={"sweeps": 5})


@pytest.mark.parametrize("sweeps", [-1, True])
def test_no_number_of_sweeps_is_refused(sweeps):
    with pytest.raises(EstimatorError, match="sweeps is"):
        train_tiny(settings={"sweeps": sweeps})
