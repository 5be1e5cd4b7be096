"""Is a posterior as sure as it may be? One table and one verdict, for whatever gives samples."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.random as jr
import numpy as np
from jaxtyping import Float, Int

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.amortized.estimator import Estimator, load
from greybayes.diagnose.ranks import (
    Band,
    band,
    coverage,
    joint_coverage,
    joint_ranks,
    p_value,
    ranks,
)
from greybayes.errors import EstimatorError, GreybayesError, Status
from greybayes.inputs import from_dict
from greybayes.simulation import simulate

if TYPE_CHECKING:
    from rich.table import Table

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""The central intervals whose coverage is told."""
N_SAMPLES = 399
"""Samples for each record: the ends of all four intervals fall between two of 400 cells."""
JOINT = "all together"
_BLOCK = 2000
# Fewer records show nothing, and fewer samples have no 95 % interval.
_FEWEST_DRAWS, _FEWEST_SAMPLES = 100, 39
# The number of our stream of a seed: training uses the first few, and these records must be new.
_STREAM = 827


@dataclass(frozen=True, eq=False)
class Calibration:
    """What ranks say of a posterior. `print(found.sentence)`, `found.table()`, `found.to_dict()`.

    The band's level holds for all parameters and their joint together (each has its share of the
    5 %), so a right posterior is called wrong once in twenty times, or less often.

    >>> rng = np.random.default_rng(0)
    >>> theta = rng.normal(size=(1000, 1))
    >>> y = theta + rng.normal(size=(1000, 1))
    >>> samples = y[:, None] / 2 + rng.normal(size=(1000, 99, 1)) * np.sqrt(0.5)
    >>> Calibration.from_samples(theta, samples).calibrated
    True
    >>> Calibration.from_samples(theta, samples - 0.3).verdicts
    ('too low',)
    """

    names: tuple[str, ...]
    ranks: Int[np.ndarray, "draw param"]
    joint_ranks: Int[np.ndarray, " draw"]
    n_samples: int
    model: str = ""
    n_diverged: int = 0
    """Simulated records that were left out."""
    level: float = 0.95

    @classmethod
    def from_samples(
        cls,
        theta: Float[np.ndarray, "draw param"],
        samples: Float[np.ndarray, "_ sample _"],
        names: tuple[str, ...] | None = None,
        *,
        spread: Float[np.ndarray, " param"] | None = None,
        seed: int | np.random.Generator = 0,
        **rest: Any,
    ) -> "Calibration":
        """Judge any posterior: thetas of the prior, and samples `(draw, sample, param)` after each.

        The reference point of a draw is the theta of another, chosen at random; `spread` is that
        of the prior, measured where it is not given.
        """
        n_draws, size = theta.shape
        if samples.shape != (n_draws, samples.shape[1], size) or n_draws < 2:
            raise GreybayesError(
                f"theta has shape {theta.shape} and the samples {samples.shape}, expected "
                "(draw, param) and (draw, sample, param), with two draws or more."
            )
        if not (np.isfinite(theta).all() and np.isfinite(samples).all()):
            raise GreybayesError("theta or samples are not all finite; leave such draws out.")
        names = names or tuple(f"theta[{i}]" for i in range(size))
        order = np.random.default_rng(seed).permutation(n_draws)
        references = np.empty_like(theta)
        references[order] = theta[np.roll(order, 1)]  # Never its own.
        scale = theta.std(0) if spread is None else spread
        joint = joint_ranks(theta, samples, references, np.where(scale > 0, scale, 1.0))
        return cls(names, ranks(theta, samples), joint, samples.shape[1], **rest)

    @property
    def n_draws(self) -> int:
        """The number of records."""
        return len(self.ranks)

    @functools.cached_property
    def coverage(self) -> Float[np.ndarray, "level param"]:
        """How often theta is in its central interval, for each of `LEVELS`."""
        return np.stack([coverage(self.ranks, self.n_samples, level) for level in LEVELS])

    @functools.cached_property
    def joint_coverage(self) -> Float[np.ndarray, " level"]:
        """The expected coverage of all parameters together (TARP)."""
        return np.stack([joint_coverage(self.joint_ranks, self.n_samples, c) for c in LEVELS])

    @property
    def standard_errors(self) -> Float[np.ndarray, " level"]:
        """The standard error that a coverage has where the posterior is right."""
        levels = np.array(LEVELS)
        return np.sqrt(levels * (1 - levels) / self.n_draws)

    @property
    def largest_gap(self) -> float:
        """The largest difference between a parameter's coverage and its level."""
        return float(np.abs(self.coverage - np.array(LEVELS)[:, None]).max())

    @property
    def band(self) -> Band:
        """The band for each distribution of ranks."""
        return band(self.n_draws, self.n_samples, 1 - self._alpha)

    @property
    def _alpha(self) -> float:
        return (1 - self.level) / (len(self.names) + 1)

    @functools.cached_property
    def p_values(self) -> Float[np.ndarray, " param"]:
        """Those of each parameter, for itself: `inside` allows for their number."""
        return np.array([p_value(column, self.n_samples) for column in self.ranks.T])

    @functools.cached_property
    def joint_p_value(self) -> float:
        """That of all parameters together (TARP)."""
        return p_value(self.joint_ranks, self.n_samples)

    @property
    def inside(self) -> tuple[bool, ...]:
        """Whether the ranks of each parameter stay inside the band."""
        return tuple(bool(p > self._alpha) for p in self.p_values)

    @property
    def joint_inside(self) -> bool:
        """Whether the ranks of all together (TARP) do."""
        return self.joint_p_value > self._alpha

    @property
    def calibrated(self) -> bool:
        """Whether all of them do."""
        return all(self.inside) and self.joint_inside

    @property
    def verdicts(self) -> tuple[str, ...]:
        """For each parameter `inside`, or what its posteriors are: `too narrow`, `too low`, ..."""
        return tuple(
            "inside" if inside else _fault(column, self.n_samples)
            for inside, column in zip(self.inside, self.ranks.T, strict=True)
        )

    @property
    def sentence(self) -> str:
        """The verdict for a human, with what to do about it."""
        if self.calibrated:
            return f"calibrated, as far as {self.n_draws} draws can tell."
        each = zip(self.names, self.verdicts, strict=True)
        faults = [f"{name} ({verdict})" for name, verdict in each if verdict != "inside"]
        faults += [] if self.joint_inside else [JOINT]
        return (
            f"not calibrated: {', '.join(faults)}. Coverage is off by up to "
            f"{100 * self.largest_gap:.1f} points; where that is too much, train longer, or refine."
        )

    def to_dict(self) -> dict[str, Any]:
        """A plain object for JSON: what `--json` prints."""
        labels = [f"{100 * level:g}" for level in LEVELS]

        def row(name: str, covered: np.ndarray, p: float, verdict: str) -> dict[str, Any]:
            shares = dict(zip(labels, covered.tolist(), strict=True))
            return {"name": name, "coverage": shares, "p_value": p, "verdict": verdict}

        each = zip(self.names, self.coverage.T, self.p_values.tolist(), self.verdicts, strict=True)
        verdict = "inside" if self.joint_inside else "outside"
        return {
            **({"model": self.model} if self.model else {}),
            "draws": self.n_draws,
            "samples": self.n_samples,
            "diverged": self.n_diverged,
            "band": self.level,
            "calibrated": self.calibrated,
            "largest_gap": self.largest_gap,
            "parameters": [row(*parts) for parts in each],
            "joint": row(JOINT, self.joint_coverage, self.joint_p_value, verdict),
            "standard_errors": dict(zip(labels, self.standard_errors.tolist(), strict=True)),
        }

    def table(self) -> "Table":
        """A table for a terminal: coverage in per cent, and the verdicts."""
        from rich.markup import escape
        from rich.table import Table

        facts = self.to_dict()
        table = Table(
            title=f"{escape(self.model or 'posterior')} · coverage over {self.n_draws} draws"
        )
        table.add_column("parameter")
        for title in (*(f"{label} %" for label in facts["standard_errors"]), "p"):
            table.add_column(title, justify="right")
        table.add_column("ranks")
        for row in (*facts["parameters"], facts["joint"]):
            shares = [f"{100 * share:.1f}" for share in row["coverage"].values()]
            p = "< 0.001" if row["p_value"] < 0.001 else f"{row['p_value']:.2g}"
            table.add_row(escape(row["name"]), *shares, p, row["verdict"])
        errors = [f"± {100 * error:.1f}" for error in self.standard_errors]
        table.add_row("standard error", *errors, "", "", style="dim")
        return table


def _fault(ranks: Int[np.ndarray, " draw"], n_samples: int) -> str:
    """What is wrong with ranks outside the band: their middle, their spread, or both."""
    place = (ranks + 0.5) / (n_samples + 1)
    # Each is a mean of what is uniform on an interval of length 1, if the posterior is right.
    shift, spread = (place - 0.5).mean(), (2 * np.abs(place - 0.5) - 0.5).mean()
    faults = {
        "too low" if shift > 0 else "too high": abs(shift),
        "too narrow" if spread > 0 else "too wide": abs(spread),
    }
    clear = 2 / math.sqrt(12 * len(ranks))  # Two standard errors.
    found = [fault for fault in sorted(faults, key=lambda f: -faults[f]) if faults[fault] > clear]
    return ", ".join(found) or "another shape"


def calibration(
    estimator: Estimator | str,
    n_draws: int = 2000,
    key: Seed = 0,
    *,
    n_samples: int = N_SAMPLES,
    watch: Callable[[int], None] | None = None,
) -> Calibration:
    """Whether the posteriors of an estimator are calibrated, on fresh draws of prior and records.

    The estimator may be given by its name. Diverged records are left out. `watch` is told from time
    to time how many draws are done.

    >>> found = calibration("linear-gaussian", n_draws=100, n_samples=39)
    >>> found.ranks.shape
    (100, 4)
    """
    estimator = load(estimator) if isinstance(estimator, str) else estimator
    if estimator.header["architecture"]["head"] != "posterior":
        name = estimator.header["model"]["name"]
        raise EstimatorError(
            f"this estimator of {name} was trained for the mean alone and has no posterior to "
            f"check; train one that has: greybayes train {name}."
        )
    if n_draws < _FEWEST_DRAWS or n_samples < _FEWEST_SAMPLES:
        raise EstimatorError(
            f"{n_draws} draws with {n_samples} samples each were asked for, expected "
            f"{_FEWEST_DRAWS} and {_FEWEST_SAMPLES} or more: fewer show nothing."
        )
    model, design = estimator.model, from_dict(estimator.header["input"])
    key_paths, key_samples = jr.split(jr.fold_in(as_key(key), _STREAM))
    rng = np.random.default_rng(np.asarray(jr.key_data(key_samples)))
    spread = np.sqrt(model.prior.variance)
    n_blocks = math.ceil(n_draws / _BLOCK)
    parts: list[Calibration] = []
    for number in range(n_blocks):
        # Blocks as equal as can be: each draw needs others in its own.
        count = n_draws // n_blocks + (number < n_draws % n_blocks)
        paths = simulate(
            model,
            inputs=design,
            n_steps=estimator.n_steps,
            count=count,
            key=jr.fold_in(key_paths, number),
        )
        good = ~paths.diverged
        if good.sum() < 2:
            raise EstimatorError(f"nearly every path diverged: {Status.diverged.sentence}")
        posteriors = estimator.posteriors(
            paths.y[good], paths.u[good] if estimator.input is None else None
        )
        samples = np.stack([posterior.sample(n_samples, rng) for posterior in posteriors])
        theta = paths.theta[good].astype(float)
        parts.append(Calibration.from_samples(theta, samples, spread=spread, seed=rng))
        if watch is not None:
            watch(sum(part.n_draws for part in parts))
    found = np.concatenate([part.ranks for part in parts])
    return Calibration(
        estimator.names,
        found,
        np.concatenate([part.joint_ranks for part in parts]),
        n_samples,
        model=estimator.header["model"]["name"],
        n_diverged=n_draws - len(found),
    )
