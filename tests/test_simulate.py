"""Simulation against the paper's formulas in plain NumPy, and against the paper's own signals."""

import importlib
import os
import subprocess
import sys
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.io
from helpers import (
    BOUND,
    assert_moments,
    assert_same_mean,
    assert_uncorrelated,
    growth2_path,
    paper_input,
)

import greybayes as gb
from greybayes.errors import InputError, Status, ThetaError

THETA = np.array([0.7, 1.0, 0.1, 0.2])
SILENT = {"theta2": 0.7, "theta6": 1.3, "theta7": 0.0, "theta8": 0.0}
N, STEPS, COUNT = 20_000, 8, 7
# `import greybayes.simulation as simulation` would do, were it certain not to be the function.
simulation = importlib.import_module("greybayes.simulation")


class Echo(gb.Model):
    """No noise: the outputs show what the methods were given."""

    offset = gb.Parameter(dist.Uniform(-1.0, 1.0))
    states, inputs = ("first", "before"), ("u",)
    outputs = ("first", "before", "u_seen", "k", "now", "dt", "offset")
    units = {"first": "V", "u": "V", "before": "V"}
    n_steps = STEPS
    dt = 0.25

    def initial(self, u, p):
        return gb.Channels(first=gb.Known(u), before=gb.Known(-99.0))

    def transition(self, x, u, p, t):
        return gb.Known(jnp.stack([x[0], u[0]]))

    def observation(self, x, u, p, t):
        return gb.Known(jnp.stack([x[0], x[1], u[0], t.k, t.now, t.dt, p.offset]))


@pytest.fixture(scope="module")
def echo() -> gb.Model:
    return Echo()


@pytest.fixture(scope="module")
def many() -> gb.Paths:
    return gb.simulate("growth2", THETA, count=N, n_steps=STEPS, key=1)


@pytest.fixture(scope="module")
def few() -> gb.Paths:
    return gb.simulate("growth2", count=COUNT, n_steps=STEPS, key=2)


def test_without_noise_the_path_is_that_of_the_formula():
    paths = gb.simulate("growth2", SILENT, count=COUNT, n_steps=STEPS)
    x, y = growth2_path((0.7, 1.3), paper_input(STEPS))
    for index in range(COUNT):
        np.testing.assert_allclose(paths.x[index, :, 0], x, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(paths.y[index, :, 0], y, rtol=1e-4, atol=1e-6)


def test_every_path_may_have_its_own_theta():
    thetas = np.random.default_rng(0).uniform([0, 0.1, 0, 0], [1, 2, 0, 0], (COUNT, 4))
    paths = gb.simulate("growth2", thetas, count=COUNT, n_steps=STEPS)
    np.testing.assert_allclose(paths.theta, thetas, rtol=1e-6)
    x, y = growth2_path(thetas.T, paper_input(STEPS)[:, None])
    np.testing.assert_allclose(paths.x[:, :, 0], x.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(paths.y[:, :, 0], y.T, rtol=1e-4, atol=1e-5)


def test_a_parameter_can_be_fixed_at_no_noise():
    model = gb.get_model("growth2").fix(theta7=0.0, theta8=0.0)
    paths = gb.simulate(model, {"theta2": 0.7, "theta6": 1.3}, n_steps=STEPS)
    expected = growth2_path((0.7, 1.3), paper_input(STEPS))[1]
    np.testing.assert_allclose(paths.y[0, :, 0], expected, rtol=1e-4, atol=1e-6)


def test_the_input_is_the_papers_from_k_1(many):
    np.testing.assert_allclose(many.u[0, :, 0], paper_input(STEPS), atol=1e-6)


def test_the_first_state_is_zero_and_the_first_output_pure_noise(many):
    np.testing.assert_array_equal(many.x[:, 0], 0.0)
    assert_moments(many.y[:, 0, 0], 0.0, THETA[3])


def test_the_noises_are_white_and_have_the_stated_variances(many):
    x, y = many.x[:, :, 0].astype(np.float64), many.y[:, :, 0].astype(np.float64)
    u = paper_input(STEPS)
    w = x[:, 1:] - (0.7 * x / (0.04 * x**2 + 1) + u)[:, :-1]
    v = y - x**2
    assert_moments(w, 0.0, THETA[2])
    assert_moments(v, 0.0, THETA[3])
    assert_uncorrelated(np.concatenate([w, v], axis=1))


def test_moments_equal_those_of_a_simulation_in_numpy(many):
    rng = np.random.default_rng(3)
    w, v = rng.normal(0, np.sqrt(THETA[2:, None, None]), (2, STEPS, 5 * N))
    x, y = growth2_path(THETA, np.broadcast_to(paper_input(STEPS)[:, None], w.shape), w, v)
    ours = np.concatenate([many.x[:, 1:, 0], many.y[:, :, 0]], axis=1)
    theirs = np.concatenate([x[1:], y]).T
    assert_same_mean(ours, theirs)
    assert_same_mean(ours**2, theirs**2)
    assert_same_mean(ours[:, 1:] * ours[:, :-1], theirs[:, 1:] * theirs[:, :-1])


def test_the_papers_own_signals_could_be_ours(shared_data):
    cells = scipy.io.loadmat(shared_data / "growth2_evaluation_100.mat")["data"]
    np.testing.assert_allclose(np.ravel(cells[0, 0]), [0.7, 1.0, 0.1, 0.1])
    theirs = np.stack([np.ravel(y) for y in cells[:, 1]])
    ours = gb.simulate("growth2", np.array([0.7, 1.0, 0.1, 0.1]), count=N, key=4).y[:, :, 0]
    mean, error = ours.mean(0), ours.std(0) / np.sqrt(100)

    def distance(signals):
        return (((signals.mean(-2) - mean) / error) ** 2).mean(-1)

    # A hundred of ours are as far from the mean as their hundred; one sample of shift is not.
    usual = distance(ours.reshape(-1, 100, 200))
    limit = usual.mean() + BOUND * usual.std()
    assert distance(theirs) < limit
    assert distance(np.roll(theirs, 1, axis=1)) > limit


def test_the_same_key_gives_the_same_bits(few):
    again = gb.simulate("growth2", count=COUNT, n_steps=STEPS, key=jr.key(2))
    for name in ("theta", "x", "y", "u"):
        np.testing.assert_array_equal(getattr(again, name), getattr(few, name))
    other = gb.simulate("growth2", count=COUNT, n_steps=STEPS, key=3)
    assert not np.isin(other.y, few.y).any()
    assert not np.isin(other.theta, few.theta).any()


def test_every_path_has_its_own_draw_of_the_prior_and_its_own_noise(few):
    assert all(len(np.unique(column)) == COUNT for column in few.theta.T)
    assert len(np.unique(few.y)) == few.y.size


def assert_same_paths(ours: gb.Paths, theirs: gb.Paths) -> None:
    """Draws agree bit for bit; arithmetic of another batch size may round otherwise."""
    np.testing.assert_array_equal(ours.theta, theirs.theta)
    np.testing.assert_array_equal(ours.u, theirs.u)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.y, theirs.y, rtol=1e-4, atol=1e-5)


def first(paths: gb.Paths, n: int) -> gb.Paths:
    p = paths
    return gb.Paths(p.model, p.theta[:n], p.x[:n], p.y[:n], p.u[:n], p.diverged[:n])


def test_a_path_does_not_depend_on_how_many_there_are(few):
    assert_same_paths(gb.simulate("growth2", count=3, n_steps=STEPS, key=2), first(few, 3))


@pytest.mark.parametrize("inputs", ["cosine", "prbs"])
def test_blocks_give_what_one_block_gives(monkeypatch, inputs):
    whole = gb.simulate("growth2", inputs=inputs, count=COUNT, n_steps=STEPS, key=2)
    monkeypatch.setattr(simulation, "CHUNK", 3)
    assert_same_paths(
        gb.simulate("growth2", inputs=inputs, count=COUNT, n_steps=STEPS, key=2), whole
    )


def test_blocks_keep_each_theta_with_its_path(monkeypatch, echo):
    monkeypatch.setattr(simulation, "CHUNK", 3)
    offsets = np.linspace(-1.0, 1.0, COUNT, dtype=np.float32)[:, None]
    paths = gb.simulate(echo, offsets, inputs="cosine", count=COUNT)
    np.testing.assert_array_equal(paths.theta, offsets)
    np.testing.assert_array_equal(paths.y[:, 0, -1:], offsets)


TWO_DEVICES = """
import sys, jax, numpy as np, greybayes as gb
assert jax.device_count() == 2
paths = gb.simulate("growth2", inputs="prbs", count={count}, n_steps={steps}, key=2)
np.savez(sys.argv[1], theta=paths.theta, x=paths.x, y=paths.y, u=paths.u)
"""


def test_two_devices_give_what_one_gives(tmp_path):
    # An odd count: the last lane of the second device is padding.
    file = tmp_path / "two.npz"
    program = TWO_DEVICES.format(count=COUNT, steps=STEPS)
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program, file], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    one = gb.simulate("growth2", inputs="prbs", count=COUNT, n_steps=STEPS, key=2)
    with np.load(file) as two:
        np.testing.assert_array_equal(one.theta, two["theta"])
        np.testing.assert_array_equal(one.u, two["u"])
        np.testing.assert_allclose(one.x, two["x"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.y, two["y"], rtol=1e-4, atol=1e-5)


def test_methods_receive_the_input_and_the_time_of_their_step(echo):
    u = np.arange(1.0, STEPS + 1)
    y = gb.simulate(echo, {"offset": 0.5}, inputs=u).y[0].T
    np.testing.assert_array_equal(y[0], np.full(STEPS, u[0]))
    np.testing.assert_array_equal(y[1], [-99.0, *u[:-1]])
    np.testing.assert_array_equal(y[2], u)
    np.testing.assert_array_equal(y[3], np.arange(1, STEPS + 1))
    np.testing.assert_array_equal(y[4], 0.25 * np.arange(STEPS))
    np.testing.assert_array_equal(y[5], np.full(STEPS, 0.25))
    np.testing.assert_array_equal(y[6], np.full(STEPS, 0.5))


@pytest.mark.parametrize("delay", [3, STEPS + 2])
def test_a_delayed_input_arrives_late_and_is_recorded_as_it_was_applied(delay):
    u = np.arange(1.0, STEPS + 1)
    paths = gb.simulate(Echo(input_delay=delay, input_before=-7.0), {"offset": 0.0}, inputs=u)
    late = np.concatenate([np.full(delay, -7.0), u])[:STEPS]
    np.testing.assert_array_equal(paths.y[0, :, 2], late)
    np.testing.assert_array_equal(paths.y[0, :, 0], np.full(STEPS, -7.0))
    np.testing.assert_array_equal(paths.u[0, :, 0], u)
    np.testing.assert_array_equal(paths[0].u[:, 0], u)


def test_without_a_word_the_input_before_the_record_is_zero():
    y = gb.simulate(Echo(input_delay=1), {"offset": 0.0}, inputs=np.ones(STEPS)).y
    np.testing.assert_array_equal(y[0, :, 2], [0.0, *np.ones(STEPS - 1)])


def test_a_random_design_gives_each_path_its_own_input(echo):
    paths = gb.simulate(echo, inputs="prbs:amplitude=2", count=COUNT, n_steps=32, key=5)
    assert len(np.unique(paths.u[:, :, 0], axis=0)) == COUNT
    np.testing.assert_array_equal(np.abs(paths.u), 2.0)
    np.testing.assert_array_equal(paths.y[:, :, 2], paths.u[:, :, 0])


def test_a_path_is_a_record_with_everything_it_came_from(echo):
    paths = gb.simulate(echo, inputs="prbs", count=COUNT, n_steps=32, key=5)
    assert len(paths) == len(list(paths)) == COUNT
    record = paths[2]
    assert isinstance(record, gb.Record)
    np.testing.assert_array_equal(record.y, paths.y[2])
    np.testing.assert_array_equal(record.u, paths.u[2])
    assert (record.dt, record.outputs, record.inputs) == (0.25, Echo.outputs, ("u",))
    assert record.units == {"first": "V", "before": "V", "u": "V"}
    assert record.theta == {"offset": pytest.approx(float(paths.theta[2, 0]))}
    assert record.name == "Echo-3"
    assert [paths[-1].name, paths[COUNT - 1].name] == [f"Echo-{COUNT}"] * 2
    with pytest.raises(IndexError):
        paths[COUNT]


def test_a_model_without_inputs_needs_none():
    class Decay(gb.Model):
        rate = gb.Parameter(dist.Uniform(0.0, 1.0))
        inputs = ()

        def initial(self, u, p):
            return gb.Known(1.0)

        def transition(self, x, u, p, t):
            return gb.Known(p.rate * x)

        def observation(self, x, u, p, t):
            return gb.Known(x)

    paths = gb.simulate(Decay(n_steps=4), {"rate": 0.5})
    np.testing.assert_array_equal(paths.y[0, :, 0], [1.0, 0.5, 0.25, 0.125])
    assert paths[0].u is None


class Explosive(gb.Model):
    a = gb.Parameter(dist.Uniform(0.0, 1.0))
    inputs = ()
    n_steps = 12

    def initial(self, u, p):
        return gb.Known(1.0)

    def transition(self, x, u, p, t):
        undefined = jnp.where(t.k < 5, x, jnp.sqrt(-x))
        return gb.Known(jnp.where(p.a > 0.9, undefined, jnp.where(p.a > 0.5, x * 1e8, x * p.a)))

    def observation(self, x, u, p, t):
        return gb.Known(x)


def test_a_path_that_diverges_is_reported_and_never_becomes_a_record():
    thetas = np.array([[0.1], [0.6], [0.2], [0.95]])  # fine, overflow, fine, NaN
    paths = gb.simulate(Explosive(), thetas, count=4)
    assert paths.diverged.tolist() == [False, True, False, True]
    assert (paths.n_diverged, paths.status) == (2, Status.diverged)
    assert "narrow the prior" in paths.status.sentence
    assert paths[2].n_steps == 12
    for index in (1, 3):
        with pytest.raises(InputError, match=rf"path {index} diverged: .*narrow the prior"):
            paths[index]
    with pytest.raises(InputError, match="path 1 diverged"):
        list(paths)


def test_paths_that_stay_finite_are_reported_as_such(few):
    assert (few.n_diverged, few.status) == (0, Status.ok)


def test_an_offline_set_has_the_paths_of_one_theta_side_by_side():
    z = gb.offline_set("growth2", 4, 3, n_steps=STEPS, key=6)
    assert (z.theta.shape, z.y.shape, z.x) == ((12, 4), (12, STEPS, 1), None)
    grouped = z.theta.reshape(4, 3, 4)
    np.testing.assert_array_equal(grouped, grouped[:, :1].repeat(3, axis=1))
    assert len(np.unique(grouped[:, 0], axis=0)) == 4
    assert len(np.unique(z.y)) == z.y.size
    assert z[3].theta == pytest.approx(dict(zip(z.model.prior.names, z.theta[3], strict=True)))


def test_the_thetas_of_an_offline_set_are_those_that_made_its_paths():
    # Silent noise: y_2 = theta6 u_1^2.
    model = gb.get_model("growth2").fix(theta7=1e-12, theta8=1e-12)
    z = gb.offline_set(model, 4, 3, n_steps=STEPS, key=6)
    expected = growth2_path(z.theta.T, paper_input(STEPS)[:, None])[1]
    np.testing.assert_allclose(z.y[:, :, 0], expected.T, rtol=1e-3, atol=1e-4)


def test_checking_many_thetas_costs_little_more_than_checking_one():
    model = gb.get_model("growth2")

    def seconds(count):
        start = time.process_time()
        simulation._thetas(model, np.full((count, 4), 0.5), count, jr.key(0))
        return time.process_time() - start

    seconds(2), seconds(100)  # compile
    one, hundred = (min(seconds(count) for _ in range(3)) for count in (2, 100))
    assert hundred < 10 * one


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"count": 0}, InputError, ["count is 0, expected 1 or more"]),
        ({"n_steps": 0}, InputError, ["0 samples", "expected 1 or more"]),
        ({"n_steps": -3}, InputError, ["-3 samples", "expected 1 or more"]),
        (
            {"inputs": np.ones(5), "n_steps": 6},
            InputError,
            ["u has 5 samples; 6 are needed"],
        ),
        (
            {"inputs": np.ones((5, 2))},
            InputError,
            ["the input has shape (5, 2), expected (5, 1)", "5 samples of u"],
        ),
        ({"inputs": "square"}, InputError, ["square"]),
        ({"inputs": None}, InputError, ["Echo has inputs u and no design", "prbs"]),
        ({"theta": {"ofset": 1.0}}, ThetaError, ["ofset", "did you mean offset?"]),
        ({"theta": np.array([2.0])}, ThetaError, ["offset = 2", "Uniform(-1, 1)"]),
        (
            {"theta": np.zeros((3, 1)), "count": 2},
            ThetaError,
            ["3 thetas came for 2 paths, expected one for each"],
        ),
        ({"theta": np.array([[0.0], [2.0]]), "count": 2}, ThetaError, ["offset = 2"]),
    ],
)
def test_what_cannot_be_simulated_is_refused(echo, arguments, error, words):
    with pytest.raises(error) as raised:
        gb.simulate(echo, **{"inputs": "cosine", **arguments})
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize(("n_thetas", "n_paths"), [(0, 3), (3, 0)])
def test_an_offline_set_needs_thetas_and_paths(n_thetas, n_paths):
    with pytest.raises(InputError, match=f"got P={n_thetas}, M={n_paths}"):
        gb.offline_set("growth2", n_thetas, n_paths)
