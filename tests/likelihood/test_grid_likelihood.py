"""The likelihood on nodes against the point-mass filter of plain NumPy, Kalman, and particles."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers.grid import m1_log_lik, m2_log_lik

import greybayes as gb
from greybayes.likelihood.grid import (
    FEWEST,
    MOST,
    NEAR,
    choose_nodes,
    grid_log_liks,
    stacked,
    without_grid,
)
from greybayes.likelihood.many import ManyLogLiks, kind_of
from greybayes.likelihood.measured import Measured, measured, measured_batch
from greybayes.likelihood.particle import Filter
from greybayes.zoo.linear_gaussian import LinearGaussian


class Bent(LinearGaussian):
    """The same system, written so that Kalman's formulas are not found, and begun anywhere."""

    spread: float = 0.0

    def initial(self, u, p):
        return dist.Normal(1.0, self.spread) if self.spread else gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.a * jnp.abs(x) * jnp.sign(x) + p.b * u, jnp.sqrt(p.q))


class Straight(LinearGaussian):
    spread: float = 0.0

    def initial(self, u, p):
        return dist.Normal(1.0, self.spread) if self.spread else gb.Known(0.0)


class Positive(gb.Model):
    """A state that cannot be negative, and counts of it."""

    rate = gb.Parameter(dist.Uniform(0.5, 1.0))
    states, inputs, outputs = ("x",), (), ("y",)

    def initial(self, u, p):
        return dist.Gamma(4.0, 1.0)

    def transition(self, x, u, p, t):
        return dist.LogNormal(p.rate * jnp.log(x), 0.3)

    def observation(self, x, u, p, t):
        return dist.Poisson(5.0 * x)


def near(model, theta, count=NEAR, share=0.05):
    """Thetas about as far apart as those of a posterior, none outside the prior."""
    rng = np.random.default_rng(3)
    z = np.asarray(model.prior.unconstrain(jnp.asarray(theta, float)))
    z = z + share * rng.standard_normal((count, len(z)))
    return np.stack([np.asarray(model.prior.constrain(jnp.asarray(each))[0], float) for each in z])


def on_nodes(model, thetas, record, proposal="bootstrap"):
    """Log-likelihoods on the nodes that are chosen for them, and how many these are."""
    y, u = measured(model, record)
    nodes = choose_nodes(model, thetas, Measured(y, u), jr.key(1), Filter(proposal))
    assert nodes is not None
    signals = Measured(y[None], u[None])
    rows = np.zeros(len(thetas), int)
    return grid_log_liks(model, thetas, signals, stacked([nodes]), rows), nodes.x.shape[1]


def agree(found, exact):
    """As near as is promised: the same but for a constant that no posterior sees, and a small one.

    Three times the tolerance within which twice as many nodes change it.
    """
    error = found - exact
    assert error.std() < 0.09
    assert abs(error.mean()) < 0.15


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_it_is_kalmans_for_a_linear_system(spread):
    theta = [0.7, 1.0, 0.3, 0.2]
    record = gb.simulate(Straight(spread=spread), np.array(theta), key=3)[0]
    y = record.y.copy()
    y[[0, 7, 50, 51, 199]] = np.nan
    record = gb.Record(y, record.u)
    thetas = near(Straight(), theta)
    found, n_nodes = on_nodes(Bent(spread=spread), thetas, record)
    agree(found, gb.kalman_log_lik(Straight(spread=spread), thetas, record))
    assert n_nodes <= 2 * FEWEST


@pytest.mark.parametrize(
    ("name", "theta", "oracle"),
    [
        ("growth1", [1.0, 0.1], m1_log_lik),
        pytest.param("growth2", [0.7, 0.5, 0.1, 0.1], m2_log_lik, marks=pytest.mark.accuracy),
    ],
)
def test_it_is_that_of_the_oracle_for_the_papers_models(name, theta, oracle):
    model = gb.get_model(name)
    record = gb.simulate(model, np.array(theta), key=4)[0]
    thetas = near(model, theta, share=0.2)
    found, _ = on_nodes(model, thetas, record, "guided")
    agree(found[-6:], oracle(thetas[-6:], record.y[:, 0]))


def test_thetas_between_those_for_which_nodes_are_placed_have_some_too():
    model = gb.get_model("growth2")
    # Each theta6 has the state where it alone explains the sample: the noise is a hundredth of it.
    theta = [0.87, 1.75, 0.95, 0.02]
    record = gb.simulate(model, np.array(theta), n_steps=60, key=4)[0]
    thetas = near(model, theta, share=0.4)
    found, n_nodes = on_nodes(model, thetas, record, "guided")
    agree(found[-4:], m2_log_lik(thetas[-4:], record.y[:, 0]))
    assert n_nodes < MOST


@pytest.mark.parametrize(
    ("model", "theta"),
    [
        pytest.param("stochastic-volatility", [0.0, 0.95, 0.2], marks=pytest.mark.accuracy),
        (Positive(n_steps=60), [0.8]),
    ],
    ids=["volatility", "counts"],
)
def test_it_is_the_mean_of_particle_filters(model, theta):
    model = gb.get_model(model)
    record = gb.simulate(model, np.array(theta), n_steps=60, key=5)[0]
    thetas = near(model, theta)
    found, _ = on_nodes(model, thetas, record)
    many = np.repeat(thetas[:1], 64, axis=0)
    drawn = gb.particle_log_lik(model, many, record, n_particles=4096).log_lik
    assert drawn.std() < 0.3
    mean = np.log(np.mean(np.exp(drawn - drawn.max()))) + drawn.max()
    assert found[0] == pytest.approx(mean, abs=0.05 + 4 * drawn.std() / 8)


@pytest.mark.accuracy  # Quick runs have the next but one.
def test_a_record_that_needs_too_many_nodes_gets_none():
    model = gb.get_model("growth2")
    theta = np.array([0.7, 0.5, 1e-9, 0.9])  # Hardly any process noise: the state is a thin line.
    record = gb.simulate(model, theta, n_steps=40, key=6)[0]
    thetas = near(model, theta)
    with pytest.raises(gb.GreybayesError, match="moves too finely in this record for 512 nodes"):
        gb.grid_log_lik(model, thetas, record)


def test_what_a_model_lacks_is_said():
    class Counting(Positive):
        def transition(self, x, u, p, t):
            return dist.Poisson(p.rate * x)

    class Drawn(Positive):
        def transition(self, x, u, p, t):
            return gb.Sampler(lambda key: x + jr.normal(key, (1,)))

    assert without_grid(Positive()) is None
    assert without_grid(Counting()) == "its state counts, and a density is needed there"
    assert "its transition has no density" in str(without_grid(Drawn()))
    assert "its transition has no noise" in str(without_grid(gb.get_model("fir")))
    assert kind_of(Counting()) == "particle"
    with pytest.raises(gb.GreybayesError, match="a grid cannot serve VanDerPol: it has 2 states"):
        gb.grid_log_lik("van-der-pol", np.ones((1, 3)), gb.Record(np.zeros(9)))


@pytest.mark.accuracy
def test_records_with_and_without_nodes_are_served_together():
    model = gb.get_model("growth2")
    easy, hard = np.array([0.7, 0.5, 0.3, 0.1]), np.array([0.7, 0.5, 1e-9, 0.9])
    records = [gb.simulate(model, theta, n_steps=40, key=7)[0] for theta in (easy, hard, easy)]
    thetas = np.stack([near(model, theta) for theta in (easy, hard, easy)])
    both = ManyLogLiks(model, measured_batch(model, records))
    both.choose(thetas, jr.key(1), 1.0)
    assert [both.told(row)["likelihood"] for row in range(3)] == ["grid", "particle", "grid"]
    assert FEWEST <= both.n_nodes[0] <= MOST
    heard = []
    found = both.at(thetas[:, :5], np.arange(3), jr.key(2), heard.append)
    assert heard[-1] == 15
    # Rows are found again, whatever others are asked for.
    np.testing.assert_allclose(both.at(thetas[2:, :5], np.array([2]), jr.key(3))[0], found[2])
    assert np.isfinite(found).all()
    # And the noise is where the particles are.
    again = both.at(thetas[:, :5], np.arange(3), jr.key(4))
    np.testing.assert_array_equal(again[0], found[0])
    assert (again[1] != found[1]).any()


def test_given_particles_are_used():
    model = gb.get_model("growth2")
    record = gb.simulate(model, n_steps=20, key=1)[0]
    given = ManyLogLiks(model, measured_batch(model, [record]), n_particles=64)
    given.choose(near(model, [0.7, 0.5, 0.3, 0.1])[None], jr.key(0), 1.0)
    assert given.told(0) == {"likelihood": "particle", "n_particles": 64}
