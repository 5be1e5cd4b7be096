"""Every built-in model against its equations, written once more in plain NumPy and float64."""

import functools
import importlib
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.signal
import scipy.stats as st
from helpers import BOUND, assert_mean, assert_moments, paper_input
from scipy.special import ndtr

import greybayes as gb
from greybayes.errors import ModelError
from greybayes.zoo import MODELS
from greybayes.zoo.__main__ import entries
from greybayes.zoo.cascaded_tanks import CascadedTanks
from greybayes.zoo.fir import Fir
from greybayes.zoo.lotka_volterra import LotkaVolterra
from greybayes.zoo.sir import Sir

N_PATHS, N_ORACLE, N_POINTS = 2_000, 20_000, 64
TIMES = np.array([0, 1, 7, 24])
rng = np.random.default_rng(7)
PRBS = np.where(rng.uniform(size=25) < 0.5, -1.0, 1.0)


class Case(NamedTuple):
    """One model: a theta, what it holds fixed, and its equations as NumPy.

    x, y and their standard normal noises w, v are lists of channels, each an array over paths.
    The noise of a step is w[draw][state]: a step of several draws has several substeps.
    """

    theta: dict[str, Any]
    initial: Callable  # (p, w) -> x_1
    transition: Callable  # (x, u, p, dt, w) -> x_{k+1}
    observation: Callable  # (x, u, p, v) -> y_k
    fixed: dict[str, Any] = {}
    dt: float = 1.0
    u: np.ndarray | None = None
    x_range: tuple = ()
    """Where single steps are checked: low and high of each state."""
    model: gb.Model | None = None
    draws: int = 1
    n_compared: int | None = None
    """How many of the states are in the docstring's units."""

    def p(self, theta=None) -> SimpleNamespace:
        return SimpleNamespace(**self.fixed, **(self.theta if theta is None else theta))


def at_zero(p, w):
    return 0 * w


def fir_observation(x, u, p, v):
    taps = np.moveaxis(np.asarray(p.theta), -1, 0)
    return [sum(t * i for t, i in zip(taps, [u, *x], strict=True)) + np.sqrt(0.09) * v[0]]


def growth_transition(x, u, p, dt, w):
    (x,) = x
    saturating = p.theta2 * x / (p.theta3 * x**2 + p.theta4)
    return [p.theta1 * x + saturating + p.theta5 * u + np.sqrt(p.theta7) * w[0][0]]


def growth(theta, fixed):
    return Case(
        theta,
        at_zero,
        growth_transition,
        lambda x, u, p, v: [p.theta6 * x[0] ** 2 + np.sqrt(p.theta8) * v[0]],
        fixed,
        u=paper_input(25),
        x_range=(-20, 20),
    )


M1_FIXED = {
    "theta1": 0.5,
    "theta2": 25.0,
    "theta3": 1.0,
    "theta4": 1.0,
    "theta5": 8.0,
    "theta6": 0.05,
}
M2_FIXED = {"theta1": 0.0, "theta3": 0.04, "theta4": 1.0, "theta5": 1.0}


def drives_transition(x, u, p, dt, w):
    a = np.array([[0, 1, 0], [0, 0, 1], [p.theta4, p.theta3, p.theta2]], float)
    b = np.array([[0], [0], [p.theta1]], float)
    a, b, *_ = scipy.signal.cont2discrete((a, b, np.eye(3), np.zeros((3, 1))), dt)
    return list(a @ np.array(x) + b * u)


def physical(K, alpha, omega0, xi, **rest):
    """The denominator multiplied out by NumPy."""
    cubic = np.polymul([1, alpha], [1, 2 * xi * omega0, omega0**2])
    gain = K * alpha * omega0**2
    return SimpleNamespace(
        theta1=gain, theta2=-cubic[1], theta3=-cubic[2], theta4=-cubic[3], **rest
    )


def drives(theta, to_theta):
    return Case(
        theta,
        at_zero,
        lambda x, u, p, dt, w: drives_transition(x, u, to_theta(p), dt, w),
        lambda x, u, p, v: [np.abs(x[0]) + np.sqrt(p.noise_variance) * v[0]],
        dt=0.02,
        u=PRBS,
        n_compared=1,
    )


def tanks_transition(x, u, p, dt, w):
    upper, lower = x
    h = dt / 200  # Euler, so fine that its error is below one in ten thousand.
    for _ in range(200):
        net = p.k4 * u - p.k1 * np.sqrt(np.clip(upper, 0, 10))
        spill = np.where(upper >= 10, np.maximum(net, 0), 0)
        inflow = p.k2 * np.sqrt(np.clip(upper, 0, 10)) - p.k3 * np.sqrt(np.clip(lower, 0, 10))
        upper, lower = upper + h * (net - spill), lower + h * (inflow + p.overflow * spill)
        upper, lower = np.clip(upper, 0, 10), np.clip(lower, 0, 10)
    return [upper + p.q * np.sqrt(dt) * w[0][0], lower + p.q * np.sqrt(dt) * w[0][1]]


def lotka_volterra_transition(x, u, p, dt, w):
    prey, predators = np.exp(x[0]), np.exp(x[1])
    h = dt / len(w)
    for w1, w2 in w:
        growth = p.alpha - p.beta * predators, p.delta * prey - p.gamma
        prey = prey * np.exp((growth[0] - p.sigma**2 / 2) * h + p.sigma * np.sqrt(h) * w1)
        predators = predators * np.exp((growth[1] - p.sigma**2 / 2) * h + p.sigma * np.sqrt(h) * w2)
    return [np.log(prey), np.log(predators)]


def sir_transition(x, u, p, dt, w):
    s, i = x
    new = np.minimum(s, p.beta * s * i * dt * np.exp(p.sigma * w[0][0] - p.sigma**2 / 2))
    return [s - new, i + new - p.gamma * i * dt]


def van_der_pol_transition(x, u, p, dt, w):
    position, speed = x
    acceleration = p.mu * (1 - position**2) * speed - p.stiffness * position
    noise = p.sigma * np.sqrt(dt) * w[0][1]
    return [position + dt * speed, speed + dt * acceleration + noise]


CASES = {
    "fir": Case(
        {"theta": [0.7, -1.2]},
        at_zero,
        lambda x, u, p, dt, w: [u + 0 * w[0][0]],
        fir_observation,
        {"noise_variance": 0.09},
        u=rng.uniform(size=25),
        x_range=(0, 1),
    ),
    "linear-gaussian": Case(
        {"a": 0.85, "b": 1.3, "q": 0.4, "r": 0.2},
        at_zero,
        lambda x, u, p, dt, w: [p.a * x[0] + p.b * u + np.sqrt(p.q) * w[0][0]],
        lambda x, u, p, v: [x[0] + np.sqrt(p.r) * v[0]],
        u=PRBS,
        x_range=(-5, 5),
    ),
    "growth": growth(
        {f"theta{i}": v for i, v in enumerate([0.4, 12, 0.6, 0.8, 5, 0.3, 0.7, 0.5], start=1)}, {}
    ),
    "growth1": growth({"theta7": 1.0, "theta8": 0.1}, M1_FIXED),
    "growth1-text": growth({"theta7": 1.0, "theta8": 0.1}, {**M1_FIXED, "theta6": 1.0}),
    "growth2": growth({"theta2": 0.7, "theta6": 1.0, "theta7": 0.1, "theta8": 0.1}, M2_FIXED),
    "coupled-drives": drives(
        {"K": 2.0, "alpha": 5.0, "omega0": 19.0, "xi": 0.11, "noise_variance": 0.006},
        lambda p: physical(**vars(p)),
    ),
    "coupled-drives-theta": drives(
        {
            "theta1": 4400.0,
            "theta2": -9.5,
            "theta3": -410.0,
            "theta4": -2000.0,
            "noise_variance": 0.006,
        },
        lambda p: p,
    ),
    "cascaded-tanks": Case(
        {"k1": 0.05, "k2": 0.06, "k3": 0.055, "k4": 0.08, "overflow": 0.6, "q": 0.02, "r": 0.05},
        lambda p, w: 5.0 + 0.5 * w,
        tanks_transition,
        lambda x, u, p, v: [np.clip(x[1], 0, 10) + p.r * v[0]],
        {"height": 10.0, "start": 5.0},
        dt=4.0,
        u=np.repeat([5.0, 1.0], [20, 5]),
        x_range=([1, 1], [6.5, 6.5]),
        model=CascadedTanks(substeps=20),
    ),
    "lotka-volterra": Case(
        {"alpha": 0.6, "beta": 0.03, "gamma": 0.8, "delta": 0.025, "sigma": 0.2, "r": 0.2},
        lambda p, w: np.log([[30.0], [8.0]]) + 0.2 * w,
        lotka_volterra_transition,
        lambda x, u, p, v: [np.exp(x[0] + p.r * v[0]), np.exp(x[1] + p.r * v[1])],
        {"start": [30.0, 8.0]},
        dt=0.25,
        x_range=([1, 1], [4, 4]),
        draws=4,
    ),
    "sir": Case(
        {"beta": 0.8, "gamma": 0.15, "sigma": 0.4, "infected0": 0.015},
        lambda p, w: np.array([[1 - p.infected0], [p.infected0]]) + 0 * w,
        sir_transition,
        # The inverse of the distribution function turns normal noise into binomial counts.
        lambda x, u, p, v: [st.binom(500, np.clip(x[1], 0, 1)).ppf(ndtr(v[0]))],
    ),
    "stochastic-volatility": Case(
        {"mu": -0.5, "phi": 0.9, "sigma": 0.3},
        lambda p, w: p.mu + p.sigma / np.sqrt(1 - p.phi**2) * w,
        lambda x, u, p, dt, w: [p.mu + p.phi * (x[0] - p.mu) + p.sigma * w[0][0]],
        lambda x, u, p, v: [np.exp(x[0] / 2) * v[0]],
        x_range=(-3, 3),
    ),
    "van-der-pol": Case(
        {"mu": 1.5, "stiffness": 1.2, "sigma": 0.6, "r": 0.1},
        lambda p, w: np.array([[1.0], [0.0]]) + 0.5 * w,
        van_der_pol_transition,
        lambda x, u, p, v: [x[0] + p.r * v[0]],
        dt=0.05,
        x_range=([-3, -3], [3, 3]),
    ),
}


@functools.cache
def simulated(name: str) -> gb.Paths:
    case = CASES[name]
    u = None if case.u is None else case.u[:, None]
    return gb.simulate(case.model or name, case.theta, inputs=u, n_steps=25, count=N_PATHS, key=11)


def oracle_paths(case: Case, n_states: int, n_outputs: int):
    """States and outputs at TIMES, each (path, time, channel)."""
    rng, p = np.random.default_rng(3), case.p()
    x = list(case.initial(p, rng.normal(size=(n_states, N_ORACLE))))
    xs, ys = [], []
    for k in range(TIMES[-1] + 1):
        u = None if case.u is None else case.u[k]
        if k in TIMES:
            xs.append(x)
            ys.append(case.observation(x, u, p, rng.normal(size=(n_outputs, N_ORACLE))))
        w = rng.normal(size=(case.draws, n_states, N_ORACLE))
        x = case.transition(x, u, p, case.dt, w)
    return np.moveaxis(np.array(xs), 2, 0), np.moveaxis(np.array(ys), 2, 0)


def assert_same_moments(ours, theirs):
    """Means and variances agree within Monte Carlo error, plus the rounding of float32."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    center = theirs.mean(0)
    rounding = 1e-5 * (1 + np.abs(center))
    for power in (1, 2):
        a, b = (ours - center) ** power, (theirs - center) ** power
        error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
        excess = (np.abs(a.mean(0) - b.mean(0)) - rounding**power) / np.maximum(error, 1e-30)
        assert np.all(excess < BOUND), f"moment {power} is off by {excess} standard errors"


def test_the_table_has_every_model():
    assert list(CASES) == list(MODELS)


@pytest.mark.parametrize("name", CASES)
def test_fixed_values_and_dt_are_those_of_the_equations(name):
    model, case = gb.get_model(name), CASES[name]
    fixed = {k: v.value.tolist() for k, v in model.parameters.items() if isinstance(v, gb.Fixed)}
    assert fixed == case.fixed
    assert model.dt == case.dt


@pytest.mark.parametrize("name", CASES)
def test_simulated_paths_have_the_moments_of_the_equations(name):
    paths, case = simulated(name), CASES[name]
    assert paths.status is gb.Status.ok
    x, y = oracle_paths(case, paths.x.shape[2], paths.y.shape[2])
    kept = slice(case.n_compared)
    assert_same_moments(paths.x[:, TIMES, kept], x[..., kept])
    assert_same_moments(paths.y[:, TIMES], y)


def quantile(d, share, size: int):
    """The value below which each channel stays with this probability."""
    parts = getattr(d, "parts", (d,))
    values = [part.v if isinstance(part, gb.Known) else part.icdf(share) for part in parts]
    return jnp.broadcast_to(jnp.concatenate([jnp.atleast_1d(v) for v in values]), (size,))


# Drives: see test_coupled_drives.py. SIR has neither quantiles nor a density: see below.
BY_QUANTILES = [name for name, case in CASES.items() if case.x_range]


@pytest.mark.parametrize("name", BY_QUANTILES)
def test_single_steps_have_the_quantiles_of_the_equations(name):
    # Noise w of size one quantile: the distribution's quantile at Phi(w) is the equation at w.
    case = CASES[name]
    model = LotkaVolterra(substeps=1) if name == "lotka-volterra" else gb.get_model(name)
    n_x, n_y, has_u = len(model.states), len(model.outputs), len(model.inputs)
    rng = np.random.default_rng(5)
    low, high = np.broadcast_arrays(*case.x_range, np.zeros(n_x))[:2]
    x = rng.uniform(low, high, (N_POINTS, n_x))
    u = rng.uniform(0, 5, (N_POINTS, has_u))
    w = rng.uniform(-2, 2, N_POINTS)
    lanes = jnp.arange(N_POINTS, dtype=jnp.uint32)
    thetas = model.prior.sample(jr.key(5), lanes)

    @jax.jit
    @jax.vmap
    def ours(theta, x, u, share):
        p, t = model.p(theta), gb.Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))
        return (
            quantile(model.initial(u, p), share, n_x),
            quantile(model.transition(x, u, p, t), share, n_x),
            quantile(model.observation(x, u, p, t), share, n_y),
        )

    first, following, y = ours(thetas, *(jnp.asarray(a, jnp.float32) for a in (x, u, ndtr(w))))
    p = case.p({k: np.asarray(v, float) for k, v in jax.vmap(model.prior.unpack)(thetas).items()})
    columns, pushed = list(x.T), u[:, 0] if has_u else None
    expected = {
        "initial": (first, case.initial(p, np.tile(w, (n_x, 1)))),
        "transition": (
            following,
            case.transition(columns, pushed, p, case.dt, np.tile(w, (1, n_x, 1))),
        ),
        "observation": (y, case.observation(columns, pushed, p, np.tile(w, (n_y, 1)))),
    }
    for method, (came, wanted) in expected.items():
        scale = 1 + np.abs(wanted)
        gap = np.abs(np.asarray(came).T - wanted) / scale
        assert gap.max() < 3e-4, f"{name}.{method} is {gap.max():.2g} off"


# What is special in each.


@pytest.mark.parametrize("order", [1, 2, 5])
def test_a_fir_without_noise_is_a_matrix_product(order):
    u, theta = rng.normal(size=12), rng.normal(size=order)
    model = Fir(order=order).fix(noise_variance=0.0)
    phi = np.stack([np.concatenate([np.zeros(lag), u[: 12 - lag]]) for lag in range(order)], 1)
    y = gb.simulate(model, {"theta": theta}, inputs=u[:, None]).y[0, :, 0]
    np.testing.assert_allclose(y, phi @ theta, atol=1e-5)


def test_the_prior_of_a_fir_takes_a_vector_and_a_matrix():
    mean, covariance = (1.0, -2.0, 0.5), ((1.0, 0.6, 0.0), (0.6, 2.0, -0.3), (0.0, -0.3, 0.5))
    prior = Fir(order=3, prior_mean=mean, prior_covariance=covariance).prior
    np.testing.assert_allclose(prior.mean, mean)
    np.testing.assert_allclose(prior.variance, np.diag(covariance), rtol=1e-5)
    draws = np.asarray(prior.sample(jr.key(0), jnp.arange(N_ORACLE, dtype=jnp.uint32)), float)
    centred = draws - mean
    assert_mean(draws, mean)
    assert_mean(centred[:, :, None] * centred[:, None, :], covariance)


def test_the_prior_of_a_fir_takes_one_mean_and_one_variance():
    prior = Fir(order=4).prior
    np.testing.assert_allclose(prior.mean, np.ones(4))
    np.testing.assert_allclose(prior.variance, np.full(4, 1 / 3), rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"order": 0}, "order 0, expected 1 or more"),
        ({"order": 3, "prior_covariance": ((1.0, 0.0), (0.0, 1.0))}, r"shape \(2, 2\), expected"),
        ({"order": 3, "prior_mean": (1.0, 2.0)}, r"mean of shape \(2,\), expected"),
        ({"prior_covariance": ((1.0, 2.0), (2.0, 1.0))}, "covariance"),
    ],
)
def test_a_fir_that_cannot_be_is_refused(fields, words):
    with pytest.raises(ModelError, match=words):
        Fir(**fields).prior  # noqa: B018


def test_the_linear_gaussian_output_has_its_exact_mean_and_covariance():
    p, y = CASES["linear-gaussian"].p(), simulated("linear-gaussian").y[..., 0].astype(float)
    mean, variance = [0.0], [0.0]
    for u in PRBS[:-1]:
        mean.append(p.a * mean[-1] + p.b * u)
        variance.append(p.a**2 * variance[-1] + p.q)
    lag = np.abs(np.subtract.outer(np.arange(25), np.arange(25)))
    covariance = p.a**lag * np.minimum.outer(variance, variance) + p.r * np.eye(25)
    centred = y - mean
    assert_mean(y, mean)
    assert_mean(centred[:, :, None] * centred[:, None, :], covariance)


@pytest.mark.parametrize("name", ["growth", "growth1", "growth1-text", "growth2"])
def test_the_input_of_the_growth_models_starts_at_k_of_one(name):
    u = gb.get_model(name).design.draw(None, 200, 1.0)
    np.testing.assert_allclose(u[:, 0], np.cos(1.2 * np.arange(1, 201)), atol=2e-5)
    np.testing.assert_array_equal(simulated(name).x[:, 0], 0.0)


def test_the_priors_of_the_paper_are_as_printed():
    boxes = {
        name: {
            k: (float(v.prior.low), float(v.prior.high)) for k, v in model.prior.parameters.items()
        }
        for name in ("growth1", "growth1-text", "growth2")
        for model in [gb.get_model(name)]
    }
    m1 = {"theta7": (0.1, 1.5), "theta8": (0, 1)}
    m2 = {"theta2": (0, 1), "theta6": (0.1, 2), "theta7": (0, 1), "theta8": (0, 1)}
    for name, box in {"growth1": m1, "growth1-text": m1, "growth2": m2}.items():
        assert boxes[name] == {k: pytest.approx(v) for k, v in box.items()}


def test_sir_counts_are_whole_and_at_most_the_tests():
    paths = simulated("sir")
    np.testing.assert_array_equal(paths.y, np.round(paths.y))
    assert paths.y.min() >= 0
    assert 100 < paths.y.max() <= 500
    shares = np.clip(paths.x[..., 1].astype(float), 0, 1)[:, TIMES]
    counts = paths.y[:, TIMES, 0]
    assert_mean(counts - 500 * shares, 0.0)
    assert_mean((counts - 500 * shares) ** 2 - 500 * shares * (1 - shares), 0.0)


def test_the_number_of_tests_is_a_field():
    y = gb.simulate(Sir(tests=20), count=200, key=1).y
    assert 10 < y.max() <= 20


@pytest.mark.parametrize(("s", "i", "beta", "sigma"), [(0.9, 0.05, 0.6, 0.3), (0.5, 0.3, 0.9, 0.1)])
def test_sir_steps_move_people_from_one_share_to_the_next(s, i, beta, sigma):
    model = gb.get_model("sir")
    p = model.p(jnp.array([beta, 0.2, sigma, 0.01]))
    t = gb.Time(jnp.array(1), jnp.array(0.0), jnp.array(1.0))
    step = model.transition(jnp.array([s, i]), jnp.zeros(0), p, t)
    new_s, new_i = np.asarray(step.sample(jr.key(2), (N_ORACLE,)), float).T
    np.testing.assert_allclose(new_s + new_i, s + i - 0.2 * i, atol=1e-6)
    assert_moments(s - new_s, beta * s * i, (beta * s * i) ** 2 * np.expm1(sigma**2))


def test_sir_never_infects_more_than_there_are():
    model = gb.get_model("sir")
    p = model.p(jnp.array([1.0, 0.2, 2.0, 0.01]))
    t = gb.Time(jnp.array(1), jnp.array(0.0), jnp.array(1.0))
    draws = model.transition(jnp.array([0.1, 0.9]), jnp.zeros(0), p, t).sample(jr.key(2), (500,))
    assert float(draws[:, 0].min()) == 0.0


def test_the_position_of_van_der_pol_has_no_noise_of_its_own():
    x = simulated("van-der-pol").x.astype(float)
    np.testing.assert_allclose(x[:, 1:, 0], x[:, :-1, 0] + 0.05 * x[:, :-1, 1], atol=1e-5)


def test_populations_are_positive_and_noise_leaves_their_mean_growth():
    model = gb.get_model("lotka-volterra").fix(beta=0.0)
    theta = {"alpha": 0.5, "gamma": 0.7, "delta": 0.01, "sigma": 0.3, "r": 0.3}
    paths = gb.simulate(model, theta, n_steps=9, count=N_PATHS, key=4)
    assert paths.y.min() > 0
    # Without predation E[prey] grows as exp(alpha t), from a log-normal start.
    growth = 30 * np.exp(0.2**2 / 2) * np.exp(0.5 * 0.25 * np.arange(9))
    assert_mean(np.exp(paths.x[..., 0].astype(float)), growth)
    assert_mean(paths.y[..., 0], growth * np.exp(0.3**2 / 2))


def tanks_mean(x, u, **theta):
    model = gb.get_model("cascaded-tanks")
    p = model.p(model.prior.vector({**CASES["cascaded-tanks"].theta, **theta}))
    t = gb.Time(jnp.array(1), jnp.array(0.0), jnp.array(4.0))
    x, u = jnp.asarray(x, jnp.float32), jnp.asarray([u], jnp.float32)
    return model.transition(x, u, p, t).mean, model.observation(x, u, p, t).mean


@pytest.mark.parametrize("overflow", [0.0, 0.5, 1.0])
def test_a_full_upper_tank_spills_into_the_lower_one(overflow):
    # From steady flow between the tanks the lower one rises by what it catches, and only by that.
    (upper, lower), _ = tanks_mean([10.0, 5.0], 4.0, overflow=overflow, k2=0.05, k3=0.05 * 2**0.5)
    spill = 0.08 * 4.0 - 0.05 * np.sqrt(10)

    def rate(x):
        return 0.05 * (np.sqrt(10) - np.sqrt(2 * x)) + overflow * spill

    x = 5.0
    for _ in range(4000):
        x += rate(x) * 4 / 4000
    assert float(upper) == 10.0
    assert float(lower) == pytest.approx(x, abs=2e-4)


def test_noise_puts_no_water_above_the_rim_or_below_the_bottom():
    for u in (0.0, 5.0):
        np.testing.assert_array_equal(tanks_mean([10.3, -0.2], u)[0], tanks_mean([10, 0], u)[0])


@pytest.mark.parametrize(
    ("x", "u"), [([10.4, 10.2], 7.0), ([10.0, 9.9], 7.0), ([-0.2, -0.1], 0.0), ([0.01, 0.0], -1.0)]
)
def test_levels_stay_in_the_tanks(x, u):
    levels, seen = tanks_mean(x, u)
    assert np.all((np.asarray(levels) >= 0) & (np.asarray(levels) <= 10))
    assert 0 <= float(np.squeeze(seen)) <= 10


def test_log_variance_starts_stationary():
    x = simulated("stochastic-volatility").x[..., 0].astype(float)
    assert_moments(x, -0.5, 0.3**2 / (1 - 0.9**2))


# The catalogue.


def test_the_catalogue_is_that_of_the_classes():
    listed = json.loads(json.dumps(entries()))
    assert gb.catalogue() == listed, "the catalogue is old: run `python -m greybayes.zoo`"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_summary_and_its_equations(name):
    module, cls = MODELS[name]
    module = importlib.import_module(f"greybayes.zoo.{module}")
    own = vars(getattr(module, cls)).get("__doc__") or ""
    assert own.splitlines()[0].endswith(".")
    equations = [line for line in module.__doc__.splitlines() if line.startswith("    ")]
    assert any("=" in line for line in equations)
    unsaid = [p for p in gb.get_model(name).prior.parameters if p not in "\n".join(equations)]
    assert not unsaid, f"the equations do not mention {unsaid}"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_with_inputs_brings_a_design_for_its_record(name):
    model = gb.get_model(name)
    if not model.inputs:
        assert model.design is None
        return
    u = np.asarray(model.design.draw(jr.key(0), model.n_steps, model.dt))
    assert u.shape == (model.n_steps, len(model.inputs))
    assert np.ptp(u) > 0


def test_the_pump_of_the_tanks_never_sucks():
    model = gb.get_model("cascaded-tanks")
    assert np.min(model.design.draw(None, model.n_steps, model.dt)) >= 0


# Models by name and by file.

PLANT = """
import numpyro.distributions as dist
import greybayes as gb

class {name}(gb.Model):
    gain = gb.Parameter(dist.Uniform(0.0, 1.0))
    inputs = ()
    def initial(self, u, p):
        return gb.Known(0.0)
    def transition(self, x, u, p, t):
        return dist.Normal(p.gain * x, 1.0)
    def observation(self, x, u, p, t):
        return dist.Normal(x, 1.0)
"""
NEEDS = "import greybayes as gb\nclass Needs(gb.Model):\n    order: int\n"


@pytest.fixture
def folder(tmp_path):
    files = {
        "plant": PLANT.format(name="Plant"),
        "two": PLANT.format(name="Pump") + PLANT.format(name="Valve"),
        "empty": "from greybayes import Model\n",
        "broken": "raise ValueError('no such sensor')",
        "typo": "def (",
        "ends": "raise SystemExit('no licence')",
        "needs": NEEDS,
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_a_name_gives_its_model_and_always_the_same_object(name):
    model = gb.get_model(name)
    assert type(model).__name__ == MODELS[name][1]
    assert gb.get_model(name) is model
    assert gb.get_model(model) is model


def test_a_class_gives_its_model():
    model = gb.get_model(Fir)
    assert type(model) is Fir
    assert model.order == 2


@pytest.mark.parametrize(
    ("address", "cls"),
    [("plant.py", "Plant"), ("plant.py:Plant", "Plant"), ("two.py:Valve", "Valve")],
)
def test_a_file_gives_the_model_it_defines(folder, address, cls):
    model = gb.get_model(f"{folder}/{address}")
    assert type(model).__name__ == cls
    assert model.prior.names == ("gain",)


def test_a_file_is_found_from_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert type(gb.get_model("plant.py:Plant")).__name__ == "Plant"


def test_a_file_may_import_what_is_beside_it(folder, monkeypatch):
    before, known = [*sys.path], set(sys.modules)
    monkeypatch.delitem(sys.modules, "csv")
    (folder / "csv.py").write_text("raise ValueError('not the one of Python')")
    text = "import csv\nfrom helper import Plant\n\nclass Larger(Plant):\n    pass\n"
    for gain in ("1.0", "2.0"):  # A folder each, with helpers of one name.
        own = folder / gain
        own.mkdir()
        (own / "larger.py").write_text(text)
        plant = (folder / "plant.py").read_text()
        (own / "helper.py").write_text(f"{plant}\n    helped = {gain}\n")
        model = gb.get_model(f"{own}/larger.py")
        assert (type(model).__name__, model.helped) == ("Larger", float(gain))
    assert sys.path == before
    assert "helper" not in set(sys.modules) - known


def test_a_model_from_a_file_simulates(folder):
    paths = gb.simulate(f"{folder}/plant.py:Plant", count=2, n_steps=5)
    assert paths.y.shape == (2, 5, 1)
    assert paths.status is gb.Status.ok


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("grwth2", ["no model grwth2", "did you mean growth2"]),
        ("quadcopter", ["no model quadcopter", "known: fir"]),
        ("", ["no model", "known: fir"]),
        ("{}/absent.py:Plant", ["no file", "absent.py", "my_plant.py:Plant"]),
        ("{}/absent.py", ["no file", "absent.py"]),
        ("{}/broken.py:Plant", ["broken.py cannot be loaded", "ValueError: no such sensor"]),
        ("{}/typo.py", ["typo.py cannot be loaded", "SyntaxError"]),
        ("{}/ends.py", ["ends.py cannot be loaded", "SystemExit: no licence"]),
        ("{}/plant.py:Plnt", ["no model Plnt", "plant.py", "did you mean Plant?"]),
        ("{}/two.py", ["two.py", "needs a model's name", "Pump", "Valve"]),
        ("{}/empty.py", ["empty.py", "no model"]),
        ("{}/empty.py:Model", ["no model", "empty.py", "gb.Model"]),
        ("{}/needs.py:Needs", ["Needs cannot be made without arguments", "order"]),
    ],
)
def test_a_model_that_is_not_there_is_refused_with_what_to_do(folder, address, words):
    with pytest.raises(ModelError) as error:
        gb.get_model(address.format(folder))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("thing", [3, None, int, dist.Normal(0.0, 1.0)])
def test_what_is_not_a_model_is_refused(thing):
    with pytest.raises(ModelError, match=r"is not a model, expected a gb\.Model or the name"):
        gb.get_model(thing)
