"""Backward simulation against Kalman's smoother, with rejection and without."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import assert_mean, assert_moments, assert_same_mean

import greybayes as gb
from greybayes.errors import GreybayesError, ModelError
from greybayes.likelihood.smoother import pick, smooth

pytestmark = pytest.mark.usefixtures("compiled")

THETA = [0.8, 1.0, 0.3, 0.2]
# As many particles as are needed for their own error to drown in that of the trajectories.
MANY = {"n_particles": 10_000, "n_trajectories": 400}


def gappy() -> gb.Record:
    """Some samples are missing, among them the last two."""
    record = gb.simulate("linear-gaussian", np.array(THETA), n_steps=20, key=1)[0]
    y = record.y.copy()
    y[[5, 6, 12, 18, 19]] = np.nan
    return gb.Record(y, record.u)


@pytest.fixture(scope="module")
def exact(compiled):
    return smooth("linear-gaussian", THETA, gappy(), key=2, rejection=False, **MANY).x


@pytest.fixture(scope="module")
def rejected(compiled):
    return smooth("linear-gaussian", THETA, gappy(), key=3, rejection=True, **MANY).x


@pytest.fixture(scope="module")
def hasty(compiled):
    """After one try nearly all trajectories are left, many times more than one go takes."""
    return smooth("linear-gaussian", THETA, gappy(), key=4, rejection=True, max_tries=1, **MANY).x


@pytest.mark.parametrize("how", ["exact", "rejected", "hasty"])
def test_means_and_variances_are_those_of_kalmans_smoother(how, request):
    x = request.getfixturevalue(how)[..., 0]
    kalman = gb.kalman_smoother("linear-gaussian", THETA, gappy())
    assert x.shape == (400, 20)
    # x_1 is known.
    np.testing.assert_array_equal(x[:, 0], 0.0)
    assert_moments(x[:, 1:], kalman.mean[1:, 0], kalman.covariance[1:, 0, 0])


@pytest.mark.parametrize("how", ["rejected", "hasty"])
def test_what_ties_neighbours_together_is_the_same_with_rejection_and_without(how, exact, request):
    mean = gb.kalman_smoother("linear-gaussian", THETA, gappy()).mean
    ours, theirs = ((x - mean)[..., 0] for x in (request.getfixturevalue(how), exact))
    assert_same_mean(ours[:, 1:-1] * ours[:, 2:], theirs[:, 1:-1] * theirs[:, 2:])
    # The bound says something: neighbours are not independent.
    assert (theirs[:, 1:-1] * theirs[:, 2:]).mean() > 0.02


def test_many_particles_are_proposed_first_unless_it_is_said_otherwise(rejected):
    chosen = smooth("linear-gaussian", THETA, gappy(), key=3, **MANY).x
    np.testing.assert_array_equal(chosen, rejected)


class Turning(gb.Model):
    """Two states whose noises go together, one of them measured."""

    angle = gb.Parameter(dist.Uniform(0.0, 1.0))
    states, inputs, outputs = ("a", "b"), (), ("y",)
    n_steps = 10

    def initial(self, u, p):
        return dist.Normal(jnp.zeros(2), 1.0)

    def transition(self, x, u, p, t):
        turn = jnp.array([[jnp.cos(p.angle), -jnp.sin(p.angle)], [jnp.sin(p.angle), 0.9]])
        return dist.MultivariateNormal(turn @ x, jnp.array([[0.3, 0.1], [0.1, 0.2]]))

    def observation(self, x, u, p, t):
        return dist.Normal(x[0], 0.5)


TURNING = Turning()


def test_two_states_with_correlated_noise():
    record = gb.simulate(TURNING, {"angle": 0.4}, key=3)[0]
    x = smooth(TURNING, [0.4], record, key=1, **MANY).x
    kalman = gb.kalman_smoother(TURNING, [0.4], record)
    assert_moments(x, kalman.mean, kalman.covariance[:, [0, 1], [0, 1]])


class Heavy(Turning):
    """Noise that is not Gaussian has no bound that is known."""

    def transition(self, x, u, p, t):
        return dist.StudentT(4.0, p.angle * x, 0.3)


def test_rejection_is_left_out_where_there_is_no_bound():
    model = Heavy()
    record = gb.simulate(model, {"angle": 0.4}, key=3)[0]
    few = {"n_particles": 50, "n_trajectories": 5}
    both = [smooth(model, [0.4], record, rejection=each, **few).x for each in (True, False)]
    np.testing.assert_array_equal(*both)
    assert np.isfinite(both[0]).all()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("van-der-pol", "its transition has noise on some channels only"),
        ("sir", "its transition has no density"),
        ("fir", "its transition has no noise"),
    ],
)
def test_a_transition_without_a_density_is_refused(model, why):
    with pytest.raises(ModelError, match=f"a particle smoother cannot serve .*: {why}, and a"):
        smooth(model, gb.get_model(model).prior.mean, gb.Record(np.zeros((3, 1)), np.zeros(3)))


def test_no_particles_are_a_sentence():
    with pytest.raises(GreybayesError, match=r"n_trajectories is 0 .* expected 1 or more"):
        smooth("linear-gaussian", THETA, gappy(), n_trajectories=0)


def test_particles_are_picked_by_their_weights_in_log_space():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(37, 0.3))
    weights[[0, 16, 36]] = 0.0
    weights /= weights.sum()
    points = jnp.asarray(rng.uniform(size=20_000), jnp.float32)
    # Far below what exp can hold.
    with np.errstate(divide="ignore"):
        log_w = jnp.asarray(np.log(weights) - 1e4, jnp.float32)
    picked = np.asarray(pick(points, jnp.broadcast_to(log_w, (20_000, 37))))
    likely = weights > 1e-3
    assert_mean((picked[:, None] == np.arange(37))[:, likely], weights[likely])
    assert not np.isin(picked, np.flatnonzero(weights == 0)).any()


def test_particles_are_chosen_and_a_collapse_is_a_status():
    record = gappy()
    found = smooth("linear-gaussian", THETA, record, n_trajectories=5)
    assert found.x.shape == (5, record.n_steps, 1)
    assert found.n_particles == gb.choose_particles("linear-gaussian", THETA, record)[0]
    assert found.status is gb.Status.ok
    y = np.array(record.y)
    y[3] = 1e5
    far = gb.Record(y, record.u)
    assert smooth("linear-gaussian", THETA, far, n_particles=50).status is gb.Status.collapsed
    with pytest.raises(GreybayesError, match="expected a whole number from 1 on"):
        smooth("linear-gaussian", THETA, record, n_particles=0)
