"""Maximum likelihood by stochastic approximation EM with a conditional particle filter.

Lindsten 2013, "An efficient stochastic approximation EM algorithm using conditional
particle filters". One pass with a few particles in each iteration k; what it says is mixed with
what the passes before said, with a step gamma_k that falls:

    S_k = (1 - gamma_k) S_{k-1} + gamma_k sum_i w_i S(x^i, y),   theta_k = arg max given S_k.

Where the model has no closed form, S is a store of trajectories, with weights that the same
recursion gives them, and theta climbs by Newton's method (`em`).
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.classical.closed_form import expected_statistics, has_closed_form, maximised
from greybayes.classical.em import lacking, maximise_expected
from greybayes.classical.methods import Progress, Watch, as_list, like, make_settings
from greybayes.classical.starts import starts
from greybayes.drawing import delayed
from greybayes.errors import GreybayesError, ModelError, Status
from greybayes.estimate import Estimate
from greybayes.likelihood.conditional import Conditioned, conditional_pass
from greybayes.likelihood.measured import Measured, measured_batch
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model

Thetas = Float[Array, "record param"]
Paths = Float[Array, "record steps state"]


@dataclass(frozen=True)
class CpfSaem:
    """Settings of CPF-SAEM; those of the paper, but for twice its 500 iterations."""

    n_particles: int = 15
    iterations: int = 1000
    """On the paper's M1, 500 leave a Monte Carlo error of 0.02 in theta7, itself known to 0.14."""
    search: int = 99
    """Iterations with steps of 0.98, which forget almost all. Then they fall."""
    power: float = 0.7
    """How fast the steps fall: gamma_k = 0.98 (k - search)^-power. Where two parameters explain the
    same thing EM is slow, and 0.5 with more iterations gets further."""
    n_starts: int = 10
    """Draws of the prior. A record starts at the one that a bootstrap filter finds most likely: EM
    is slow to leave a place where a noise is much too small."""
    n_first: int = 500
    """Particles of that filter, which also draws the first trajectory."""
    store: int = 100
    """Trajectories that are kept where the model has no closed form."""
    n_newton: int = 1
    """Newton steps in each iteration, likewise."""
    tolerance: float = 0.1
    """How far theta may still move in the last tenth (from the mean of its first half to that of
    its second), in standard deviations of the prior."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.power <= 1:
            raise GreybayesError(f"power is {self.power}, expected one from 0.5 to 1 for CPF-SAEM.")
        if self.search < 0:
            raise GreybayesError(f"search is {self.search}, expected 0 or more for CPF-SAEM.")
        for name in ("n_particles", "iterations", "n_starts", "n_first", "store", "n_newton"):
            # One particle alone is the reference, and would never move.
            value, least = getattr(self, name), 2 if name == "n_particles" else 1
            if value < least:
                raise GreybayesError(f"{name} is {value}, expected {least} or more for CPF-SAEM.")

    def step(self, k: int) -> float:
        """gamma_k, k from 1."""
        return 1.0 if k <= 2 else 0.98 * max(k - self.search, 1) ** -self.power


def missing(model: Model) -> str | None:
    """What the model lacks for CPF-SAEM."""
    return lacking(model)


def cpf_saem(
    model: Model | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: CpfSaem | Mapping[str, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
) -> Any:
    """The maximum-likelihood estimate of each record, within the support of the prior.

    `start` is None (draws of the prior), an estimate or one for each record, or an array of thetas.
    All records are one batch.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", n_steps=30, key=1)[0]
    >>> estimate = cpf_saem("linear-gaussian", record, settings={"iterations": 10})
    >>> estimate.method, estimate.names
    ('cpf-saem', ('a', 'b', 'q', 'r'))
    """
    name = model if isinstance(model, str) else type(model).__name__
    model, settings = get_model(model), make_settings(CpfSaem, settings)
    began, listed, clause = time.perf_counter(), as_list(records), missing(model)
    if clause:
        raise ModelError(f"CPF-SAEM cannot serve {name}: {clause}.")
    if not listed:
        return []
    signals = measured_batch(model, listed)
    key_start, key_first, key_steps = jr.split(as_key(key), 3)
    first = starts(model, key_start, settings.n_starts, len(listed), start)
    state = init(model, settings, first, signals, key_first)
    thetas, lost = [np.asarray(state.theta, float)], []
    for k, key_step in enumerate(jr.split(key_steps, settings.iterations), start=1):
        state, info = step(model, settings, state, signals, k, key_step)
        thetas.append(np.asarray(state.theta, float))
        lost.append(np.asarray(info))
        if watch is not None:
            watch(Progress(k, settings.iterations, _note(model, thetas)))
    seconds = (time.perf_counter() - began) / len(listed)
    return like(
        records,
        [
            _estimate(model, settings, *each).replace(model=name, seconds=seconds)
            for each in zip(np.stack(thetas, 1), np.stack(lost, 1), strict=True)
        ],
    )


class State(NamedTuple):
    """What is carried from iteration to iteration, for all records."""

    theta: Thetas
    path: Paths
    """The trajectory that the next pass is conditioned on."""
    memory: Any
    """Statistics where the model has a closed form, trajectories in a `Store` otherwise."""


class Store(NamedTuple):
    """Trajectories with their weights."""

    x: Float[Array, "record trajectory steps state"]
    weights: Float[Array, "record trajectory"]


def init(
    model: Model,
    settings: CpfSaem,
    thetas: Float[np.ndarray, "record start param"],
    signals: Measured,
    key: Key[Array, ""],
) -> State:
    """The most likely of the starts, a trajectory from a bootstrap filter there, and no memory."""
    theta, path = _most_likely(model, settings.n_first, thetas, signals, key)
    if has_closed_form(model):
        with jax.enable_x64(True):
            weights = jnp.zeros(path.shape[:1])
            sums = jax.eval_shape(
                _statistics(model), theta, path[:, None], weights[:, None], *signals
            )
            return State(theta, path, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), sums))
    kept = jnp.repeat(path[:, None], settings.store, axis=1)
    return State(theta, path, Store(kept, jnp.zeros(kept.shape[:2], path.dtype)))


def step(
    model: Model, settings: CpfSaem, state: State, signals: Measured, k: int, key: Key[Array, ""]
) -> tuple[State, Bool[Array, " record"]]:
    """Iteration k, and whether the particles of a record were lost in it."""
    gamma = settings.step(k)
    passed = _passed(model, settings.n_particles, state.theta, *_single(signals), key, state.path)
    if isinstance(state.memory, Store):
        theta, memory = _climbed(
            model,
            settings.n_newton,
            state.theta,
            state.memory,
            gamma,
            passed.drawn,
            *_single(signals),
        )
    else:
        with jax.enable_x64(True):
            theta, memory = _updated(
                model, state.theta, state.memory, gamma, passed.x, passed.weights, *signals
            )
    return State(theta, passed.drawn, memory), passed.lost


def _single(signals: Measured) -> tuple[Array, Array]:
    return jnp.asarray(signals.y, jnp.float32), jnp.asarray(signals.u, jnp.float32)


def _most_likely(model: Model, n_particles: int, thetas, signals: Measured, key):
    """Of each record the start with the highest likelihood, and a trajectory there."""
    paths, log_liks = [], []
    for number, key_pass in enumerate(jr.split(key, thetas.shape[1])):
        theta = jnp.asarray(thetas[:, number], jnp.float32)
        passed = _first_pass(model, n_particles, theta, *_single(signals), key_pass)
        paths.append(passed[0])
        log_liks.append(passed[1])
    best = np.argmax(np.stack(log_liks), axis=0)
    rows = np.arange(len(thetas))
    return jnp.asarray(thetas[rows, best], jnp.float32), jnp.stack(paths)[best, rows]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _first_pass(model, n_particles, theta, y, u, key):
    """A trajectory and a log-likelihood, from a bootstrap filter."""
    passed = _passed(model, n_particles, theta, y, u, key, None)
    return passed.drawn, passed.log_lik


@functools.partial(jax.jit, static_argnums=(0, 1))
def _passed(model, n_particles, theta, y, u, key, path) -> Conditioned:
    def one(theta, y, u, key, path):
        p, late = model.p(theta), delayed(model, u)
        return conditional_pass(model, p, y, late, key, n_particles, path)

    return jax.vmap(one)(theta, y, u, jr.split(key, len(theta)), path)


def _statistics(model: Model) -> Callable[..., Any]:
    """The expected statistics of each record."""

    def one(theta, x, weights, y, u):
        theta = theta.astype(jnp.float64)
        return expected_statistics(model, theta, x, weights, y, delayed(model, u))

    return jax.vmap(one)


@functools.partial(jax.jit, static_argnums=0)
def _updated(model, theta, sums, gamma, x, weights, y, u):
    """The closed form: mix the statistics, then maximise."""
    new = _statistics(model)(theta, x, weights, y, u)
    sums = jax.tree.map(lambda old, new: (1 - gamma) * old + gamma * new, sums, new)
    best = jax.vmap(functools.partial(maximised, model))(sums, theta.astype(jnp.float64))
    return best.astype(jnp.float32), sums


@functools.partial(jax.jit, static_argnums=(0, 1))
def _climbed(model, n_newton, theta, store, gamma, path, y, u):
    """Without a closed form: a trajectory into the store, for the one of least weight; then climb.

    The one that was drawn stands for its whole cloud, so that the store reaches far back.
    """

    def one(theta, x, weights, path, y, u):
        slot = jnp.argmin(weights)
        weights = ((1 - gamma) * weights).at[slot].set(gamma)
        x = x.at[slot].set(path)
        share = weights / weights.sum()
        late = delayed(model, u)
        return maximise_expected(model, theta, x, share, y, late, n_newton), Store(x, weights)

    return jax.vmap(one)(theta, store.x, store.weights, path, y, u)


def _note(model: Model, thetas: list[np.ndarray]) -> str:
    """The largest change of any record's theta in the last iteration."""
    return f"change {np.max(np.abs(thetas[-1] - thetas[-2]) / np.sqrt(model.prior.variance)):.1e}"


def _estimate(
    model: Model,
    settings: CpfSaem,
    thetas: Float[np.ndarray, "_ param"],
    lost: Bool[np.ndarray, " iteration"],
) -> Estimate:
    tenth = max(len(lost) // 10, 2)
    earlier, later = np.array_split(thetas[-tenth:], 2)
    change = np.max(np.abs(later.mean(0) - earlier.mean(0)) / np.sqrt(model.prior.variance))
    status = Status.ok if change <= settings.tolerance else Status.unconverged
    if lost[-tenth:].any():
        status = Status.collapsed
    return Estimate(
        model.prior.names,
        thetas[-1],
        method="cpf-saem",
        status=status,
        diagnostics={
            "iterations": len(lost),
            "last_change": float(change),
            "closed_form": has_closed_form(model),
        },
        settings=dataclasses.asdict(settings),
    )
