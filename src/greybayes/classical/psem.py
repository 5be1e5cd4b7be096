"""PSEM: maximum likelihood by expectation maximisation with a particle smoother.

Schön, Wills and Ninness 2011, "System identification of nonlinear state-space models". In each
iteration trajectories of the states are drawn given the record and theta (E-step: a particle filter
and backward simulation), and theta becomes the one that makes trajectories and record most likely
(M-step: in closed form where the model has it, by Newton's method otherwise).

From several starts in the prior, of which the most likely one is followed; with more particles as
theta settles; and the mean of the last iterations is the estimate: little is left of their noise.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.classical.closed_form import has_closed_form
from greybayes.classical.em import lacking
from greybayes.classical.methods import Progress, Watch, as_list, like, make_settings
from greybayes.classical.psem_steps import Expected, How, expect, maximise
from greybayes.classical.starts import starts
from greybayes.errors import GreybayesError, ModelError, Status
from greybayes.estimate import Estimate
from greybayes.likelihood.measured import Measured, measured_batch
from greybayes.likelihood.particle import Filter
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model

Thetas = Float[np.ndarray, "lane param"]

# Passes of a filter from which a log-likelihood is taken. The standard deviation of one at which
# there are enough particles, the share of the records for which it must be so, and the one beyond
# which it is no use.
_PASSES, _ENOUGH, _NEARLY_ALL, _TOO_NOISY = 8, 1.0, 0.95, 10.0


@dataclass(frozen=True)
class Psem:
    """Settings of PSEM."""

    iterations: int = 120
    """The first half with a quarter of the particles, the second with all of them. The estimate is
    the mean of the last third."""
    n_particles: int | None = None
    """None: 100 where they are guided, 500 where they move blindly, and 4 or 16 times as many in
    the second half where the log-likelihood of these is noisy."""
    n_trajectories: int = 50
    n_starts: int = 4
    """Draws of the prior to start from; half way the most likely one is chosen."""
    proposal: str | None = None
    """None: guided where the model has one state and a Gaussian transition, bootstrap otherwise."""
    n_newton: int = 1
    """Newton steps in each iteration, where the model has no closed form."""
    tolerance: float = 0.1
    """How far the mean of theta may still move within the last third, in standard deviations of the
    prior."""

    def __post_init__(self) -> None:
        least = {"iterations": 4, "n_trajectories": 1, "n_starts": 1, "n_newton": 1}
        if self.n_particles is not None:
            least["n_particles"] = 4
        for name, value in least.items():
            if getattr(self, name) < value:
                raise GreybayesError(
                    f"{name} is {getattr(self, name)}, expected {value} or more for PSEM."
                )
        if self.proposal is not None:
            Filter(self.proposal)  # Checks the name.


def missing(model: Model) -> str | None:
    """What the model lacks for PSEM."""
    return lacking(model)


def psem(
    model: Model | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: Psem | Mapping[str, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
) -> Any:
    """The maximum-likelihood estimate of each record, within the support of the prior.

    `start` is None (draws of the prior), an estimate or one for each record, or an array of thetas.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", n_steps=30, key=1)[0]
    >>> estimate = psem("linear-gaussian", record, settings={"iterations": 10, "n_particles": 20})
    >>> estimate.method, sorted(estimate.diagnostics)
    ('psem', ['closed_form', 'iterations', 'last_change', 'log_lik', 'log_lik_std', 'n_particles'])
    """
    began, name = time.perf_counter(), model if isinstance(model, str) else type(model).__name__
    model, settings = get_model(model), make_settings(Psem, settings)
    clause = missing(model)
    if clause:
        raise ModelError(f"PSEM cannot serve {name}: {clause}.")
    several = as_list(records)
    if not several:
        return []
    run = _Run(model, settings, measured_batch(model, several), watch)
    key_start, key_run = jr.split(as_key(key))
    found = run(starts(model, key_start, settings.n_starts, len(several), start), key_run)
    seconds = (time.perf_counter() - began) / len(several)
    common = {"model": name, "seconds": seconds, "settings": dataclasses.asdict(settings)}
    return like(records, [_estimate(model, settings, each, common) for each in found])


class _Found(NamedTuple):
    """What is known of one record at the end."""

    thetas: Float[np.ndarray, "iteration param"]
    """Of the last third."""
    passes: Float[np.ndarray, " iteration"]
    """The log-likelihoods of their forward passes."""
    log_lik: Float[np.ndarray, " repeat"]
    """Log-likelihoods of repeated passes at the mean of these thetas."""
    n_particles: int


class _Run:
    """The stages of a run, and what they share."""

    def __init__(
        self, model: Model, settings: Psem, signals: Measured, watch: Watch | None
    ) -> None:
        self.model, self.settings, self.signals = model, settings, signals
        self.watch = watch or (lambda progress: None)
        proposal = settings.proposal
        self.filter = Filter.looking_ahead(model) if proposal is None else Filter(proposal)
        guided = self.filter.proposal == "guided"
        self.n_particles = settings.n_particles or (100 if guided else 500)

    def __call__(
        self, thetas: Float[np.ndarray, "record start param"], key: Key[Array, ""]
    ) -> list[_Found]:
        """Both halves; between them the most likely start of each record is chosen."""
        key_first, key_enough, key_second, key_log_lik = jr.split(key, 4)
        n_records, n_starts = thetas.shape[:2]
        half = self.settings.iterations // 2
        lanes = np.repeat(np.arange(n_records), n_starts)
        flat = thetas.reshape(len(lanes), -1)
        first = self._iterate(flat, lanes, self.n_particles // 4, range(half), key_first)
        likely = _log_mean(first.log_lik[-_PASSES:]).reshape(n_records, n_starts).argmax(1)
        best = first.thetas[-1].reshape(thetas.shape)[np.arange(n_records), likely]
        n_particles = self._enough(best, key_enough)
        rest = range(half, self.settings.iterations)
        second = self._iterate(best, np.arange(n_records), n_particles, rest, key_second)
        last = max(2, self.settings.iterations // 3)
        thetas, passes = second.thetas[-last:], second.log_lik[-last:]
        log_lik = self._passes(n_particles, thetas.mean(0), key_log_lik)
        found = np.moveaxis(thetas, 0, 1), passes.T, log_lik.T
        return [_Found(*each, n_particles) for each in zip(*found, strict=True)]

    def _enough(self, thetas: Thetas, key) -> int:
        """As many particles as nearly all records need."""
        given = self.settings.n_particles
        if given is not None:
            return given
        for n_particles in (self.n_particles, 4 * self.n_particles):
            key, key_now = jr.split(key)
            noise = _noise(self._passes(n_particles, thetas, key_now))
            if np.mean(noise <= _ENOUGH) >= _NEARLY_ALL:
                return n_particles
        return 16 * self.n_particles

    def _passes(self, n_particles: int, thetas: Thetas, key) -> Float[np.ndarray, "repeat record"]:
        """Log-likelihoods of repeated passes."""
        keys = jr.split(key, _PASSES)
        passes = [self._expect(n_particles, thetas, self.signals, key).log_lik for key in keys]
        return np.stack(passes)

    def _iterate(
        self,
        thetas: Thetas,
        rows: Int[np.ndarray, " lane"],
        n_particles: int,
        iterations: range,
        key,
    ) -> "_Path":
        """Some iterations with one number of particles, for the records of these rows."""
        signals = Measured(self.signals.y[rows], self.signals.u[rows])
        path, passes = [], []
        for i in iterations:
            expected = self._expect(n_particles, thetas, signals, jr.fold_in(key, i))
            thetas = maximise(self.model, self.settings.n_newton, thetas, expected.x, signals)
            path.append(thetas)
            passes.append(expected.log_lik)
            note = f"median log-likelihood {np.median(expected.log_lik):.1f}"
            self.watch(Progress(i + 1, self.settings.iterations, note))
        return _Path(np.stack(path), np.stack(passes))

    def _expect(self, n_particles: int, thetas: Thetas, signals: Measured, key) -> Expected:
        how = How(n_particles, self.settings.n_trajectories, self.filter)
        return expect(self.model, how, thetas, signals, jr.split(key, len(thetas)))


class _Path(NamedTuple):
    """What some iterations left behind."""

    thetas: Float[np.ndarray, "iteration lane param"]
    log_lik: Float[np.ndarray, "iteration lane"]
    """Of the forward passes, each at the theta before."""


def _noise(log_lik: Float[np.ndarray, "repeat lane"]) -> Float[np.ndarray, " lane"]:
    """The standard deviation of log-likelihoods over passes; infinite where one was lost."""
    lost = ~np.isfinite(log_lik).all(0)
    return np.where(lost, np.inf, np.where(lost, 0.0, log_lik).std(0, ddof=1))


def _log_mean(log_lik: Float[np.ndarray, "repeat *lane"]) -> Float[np.ndarray, "*lane"]:
    """The log of the mean likelihood over passes; -inf where all of them were lost."""
    top = np.maximum(log_lik.max(0), np.finfo(float).min)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(log_lik - top).mean(0)) + top)


def _estimate(model: Model, settings: Psem, found: _Found, common: dict[str, Any]) -> Estimate:
    earlier, later = np.array_split(found.thetas, 2)
    change = np.abs(later.mean(0) - earlier.mean(0)) / np.sqrt(model.prior.variance)
    noise = float(_noise(found.log_lik[:, None])[0])
    status = Status.ok if change.max() <= settings.tolerance else Status.unconverged
    if noise > _TOO_NOISY or not np.isfinite(found.passes).all():
        status = Status.collapsed
    diagnostics = {
        "log_lik": float(_log_mean(found.log_lik)),
        "log_lik_std": noise,
        "n_particles": found.n_particles,
        "iterations": settings.iterations,
        "last_change": float(change.max()),
        "closed_form": has_closed_form(model),
    }
    return Estimate(
        model.prior.names,
        found.thetas.mean(0),
        method="psem",
        status=status,
        diagnostics=diagnostics,
        **common,
    )
