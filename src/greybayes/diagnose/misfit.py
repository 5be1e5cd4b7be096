"""Can the model have made this record? Checks of a fit, for the estimate of any method.

Two kinds of question. Of residuals at the mean (`residuals`, `checks`): are they white, standard
normal, free of the input? And of records that are drawn from the estimate with the record's own
input (posterior-predictive): do they look like this one? The answers are p-values, taken together
by Holm's rule, and a sentence that says what to do next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.diagnose.checks import Check, arrives_late, holm, residual_checks
from greybayes.diagnose.predictive import FEWEST, drawn_thetas, n_checks, predictive_checks
from greybayes.diagnose.residuals import has_exact_residuals, prediction_errors, residuals
from greybayes.errors import GreybayesError, Status
from greybayes.estimate import Estimate
from greybayes.likelihood.density import without_density
from greybayes.likelihood.measured import measured
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model

if TYPE_CHECKING:
    from rich.table import Table

LEVEL = 0.01
# Shorter runs may come from a converter that is coarse beside the true noise.
_LONG_RUN = 8
# In samples: a delay that is worth a word.
_LATE = 0.4
# So many times the standard deviation that the estimate allows: as another unit makes it.
_OTHER_UNIT = 5.0
# For slopes, as a share of the prior's standard deviation.
_STEP = 1e-3

_ADVICE: dict[str, Callable[[Check], str]] = {
    "run": lambda c: (
        f"{c.output} stays at one value for {c.value:.0f} samples: look for a dead or saturated "
        "sensor, and mark those samples as missing (NaN)"
    ),
    "delay": lambda c: (
        f"{c.input} seems to arrive {abs(c.value):.2g} samples "
        f"{'later' if c.value > 0 else 'earlier'} than the model says: change input_delay, or "
        "shift the record's input, and estimate again"
    ),
    "offset": lambda c: (
        f"the residuals of {c.output} have an offset of {c.value:.2g} standard deviations: look "
        "for a sensor's offset and subtract it, or give the model a parameter for it"
    ),
    "tails": lambda c: (
        f"the residuals of {c.output} are not normal, the largest is {c.value:.3g} standard "
        f"deviations at sample {c.at}: look for outliers and mark them as missing (NaN), or give "
        "the model noise with other tails (StudentT)"
    ),
    "input": lambda c: (
        f"the residuals of {c.output} still follow {c.input} (correlation {c.value:.2g} at lag "
        f"{c.at}): look for a delay (input_delay), or for dynamics that the model lacks"
    ),
    "variance": lambda c: (
        f"the residuals of {c.output} have {c.value:.3g} times the variance that the model gives "
        + (
            "them: widen the prior of the noise, or look for a disturbance that the model lacks"
            if c.value > 1
            else "them: let the prior of the noise begin lower"
        )
    ),
    "whiteness": lambda c: (
        f"the residuals of {c.output} are not white (autocorrelation {c.value:.2g} at lag {c.at}): "
        "look for dynamics that the model lacks, or give it a state for coloured noise"
    ),
    "follows": lambda c: f"{c.output} follows {c.input} {_beside(c)}: look at the gain, and at u",
    "mean": lambda c: f"{c.output} has a mean of {_beside(c)}: look for an offset",
    "std": lambda c: f"{c.output} has a standard deviation of {_beside(c)}: look at its unit",
    "largest": lambda c: f"{c.output} reaches {_beside(c)}: look for outliers, and at its unit",
    "lag 1": lambda c: f"{c.output} has an autocorrelation of {_beside(c)}: look at dt",
    "lag 5": lambda c: f"{c.output} has an autocorrelation of {_beside(c)}: look at dt",
}


def _beside(check: Check) -> str:
    assert check.expected is not None
    low, high = check.expected
    return f"{check.value:.3g} where the estimate gives {low:.3g} to {high:.3g}"


@dataclass(frozen=True, eq=False)
class Misfit:
    """What the checks of a fit found."""

    checks: tuple[Check, ...]
    residuals: Float[np.ndarray, "steps output"] | None
    """At the mean; None where the model's observation has no density."""
    sentence: str
    """The verdict for a human, with what to do about it."""
    level: float = LEVEL

    @property
    def adjusted(self) -> Float[np.ndarray, " check"]:
        """The p-value of each check, allowing for how many there are."""
        return holm(np.array([check.p for check in self.checks]))

    @property
    def p(self) -> float:
        """The verdict: the least of the adjusted p-values."""
        return float(self.adjusted.min())

    @property
    def status(self) -> Status:
        """`misfit` where a record of the model would seldom fail the same checks."""
        return Status.misfit if self.p < self.level else Status.ok

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed, the most certain ones first."""
        order = np.argsort(self.adjusted, kind="stable")
        return tuple(self.checks[i] for i in order if self.adjusted[i] < self.level)

    def to_dict(self) -> dict[str, Any]:
        """A plain object for JSON."""
        rows = []
        for check, adjusted in zip(self.checks, self.adjusted, strict=True):
            row = {name: value for name, value in vars(check).items() if value not in (None, "")}
            rows.append(row | {"adjusted_p": float(adjusted)})
        head = {"status": self.status.value, "p": self.p, "level": self.level}
        return head | {"sentence": self.sentence, "checks": rows}

    def table(self) -> "Table":
        """A table for a terminal."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=f"checks of the fit · {self.status.value}")
        for name in ("check", "output", "found", "expected", "p", "p of all"):
            table.add_column(name, justify="left" if name in ("check", "output") else "right")
        for check, adjusted in zip(self.checks, self.adjusted, strict=True):
            low, high = check.expected or (None, None)
            table.add_row(
                escape(check.label),
                escape(check.output),
                f"{check.value:.3g}",
                "" if low is None else f"{low:.3g} to {high:.3g}",
                f"{check.p:.2g}",
                f"{adjusted:.2g}" + (" !" if adjusted < self.level else ""),
            )
        return table


def check_fit(
    model: Model | str,
    record: Record,
    estimate: Estimate,
    *,
    key: Seed = 0,
    n_draws: int | None = None,
    n_particles: int | None = None,
    level: float = LEVEL,
) -> Misfit:
    """Check whether a model with this estimate can have made a record.

    Records of the model fail in at most a share `level` of cases. `n_draws` records are drawn from
    the estimate, None draws as many as the verdict needs; `n_particles` is for models whose
    residuals need a particle filter.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", {"a": 0.7, "b": 1, "q": 0.1, "r": 0.1}, key=1)[0]
    >>> truth = Estimate(tuple(record.theta), np.array(list(record.theta.values())))
    >>> check_fit("linear-gaussian", record, truth).status
    <Status.ok: 'ok'>
    >>> shifted = gb.Record(record.y + 1.0, record.u)
    >>> check_fit("linear-gaussian", shifted, truth).sentence.split(":")[0]
    'the residuals of y have an offset of 0.92 standard deviations'
    """
    model = get_model(model)
    y, u = measured(model, record)
    if estimate.names != model.prior.names:
        raise GreybayesError(
            f"the estimate is one of {', '.join(estimate.names)}; {type(model).__name__} has "
            f"{', '.join(model.prior.names)}. Pass the model that it was made with."
        )
    if not 0 < level < 1:
        raise GreybayesError(f"the level is {level:g}, expected one in (0, 1).")
    if n_draws is not None and n_draws < FEWEST:
        raise GreybayesError(f"n_draws is {n_draws}, expected {FEWEST} or more.")
    key_residuals, key_theta, key_paths = jr.split(as_key(key), 3)
    found, e = [], None
    if without_density(model, "observation") is None:
        e = residuals(model, estimate.mean, record, key=key_residuals, n_particles=n_particles)
        found += residual_checks(e, u, model.outputs, model.inputs)
        found += _delay(model, record, u, estimate.mean)
    if n_draws is None:
        # The least p-value is 2 / (n_draws + 1): half of what one check among all must reach.
        n_draws = int(4 * (len(found) + n_checks(model)) / level)
    thetas = drawn_thetas(model, estimate, n_draws, key_theta)
    found += predictive_checks(model, thetas, y, u, key_paths)
    failed = Misfit(tuple(found), e, "", level).failed
    if not failed:
        sentence = f"no misfit was found: {len(found)} checks at a level of {100 * level:g} %."
    else:
        sentence = _sentence(failed)
    return Misfit(tuple(found), e, sentence, level)


def _delay(
    model: Model,
    record: Record,
    u: Float[np.ndarray, "steps input"],
    theta: Float[np.ndarray, " param"],
) -> list[Check]:
    """Whether the input comes later than the model says, where predictions are exact."""
    if not model.inputs or not has_exact_residuals(model):
        return []
    errors, std = prediction_errors(model, theta, record)

    def change(theta, record):
        """Of the errors alone: what changes their scale is another question."""
        return (prediction_errors(model, theta, record)[0] - errors) / std

    before = np.full((1, u.shape[1]), model.input_before)
    late = Record(record.y, np.concatenate([before, u[:-1]]))
    # Small steps, towards the middle of the prior: there is room.
    steps = _STEP * np.sqrt(model.prior.variance) * np.where(theta > model.prior.mean, -1, 1)
    slopes = np.stack([change(theta + step, record) for step in np.diag(steps)])
    answer = arrives_late(errors / std, change(theta, late), slopes)
    if answer is None:
        return []
    return [Check("delay", ", ".join(model.outputs), *answer[:2], input=", ".join(model.inputs))]


def advice(failed: tuple[Check, ...]) -> list[str]:
    """What was found and what to do, in clauses, the most telling first, and no more than two."""
    dead = [c for c in failed if c.name == "run" and c.value >= _LONG_RUN]
    # A dead sensor spoils all else, and so does a wrong unit; and residuals say more than the
    # records they come from.
    told_of = dead or _scaled(failed) or [c for c in failed if c.expected is None] or failed
    # A small part of a sample is what any misfit may look like.
    told_of = [c for c in told_of if c.name != "delay" or abs(c.value) >= _LATE] or told_of
    clauses = {check.name: _ADVICE[check.name](check) for check in reversed(told_of)}
    return [clauses[name] for name in _ADVICE if name in clauses][:2]


def _scaled(failed: tuple[Check, ...]) -> list[Check]:
    """The standard deviation where all of an output is many times too large, or too small."""

    def times(name: str, output: str) -> float:
        found = [c for c in failed if (c.name, c.output) == (name, output)]
        return found[0].value / max(found[0].expected or (np.inf,)) if found else 1.0

    def is_scaled(check: Check) -> bool:
        low, high = check.expected or (check.value, check.value)
        if check.value < low / _OTHER_UNIT:
            return True
        # Outliers raise the largest value far more than the standard deviation.
        raised = check.value / max(high, 1e-300)
        return raised > _OTHER_UNIT and times("largest", check.output) < 3 * raised

    return [check for check in failed if check.name == "std" and is_scaled(check)]


def _sentence(failed: tuple[Check, ...]) -> str:
    return (
        f"{'; and '.join(advice(failed))}. Where the estimate of another method passes, the "
        "estimate was to blame and not the model."
    )
