"""The verdict in two sentences: how good, can it be trusted; and what to do next."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from greybayes.diagnose.information import AT_THE_BOUND, LIKE_THE_PRIOR, OUTSIDE
from greybayes.diagnose.misfit import advice
from greybayes.diagnose.output import Comparison
from greybayes.errors import Status
from greybayes.report.findings import Findings

GOOD, CARE, BAD = "good", "care", "bad"
HEADLINES = {
    GOOD: "Nothing speaks against it",
    CARE: "Use it with care",
    BAD: "Do not trust it yet",
}
# Points of fit that validation may lose before it is worth a word.
_LOST = 10.0


class Verdict(NamedTuple):
    """What an engineer reads first."""

    grade: str
    """`good`, `care` or `bad`."""
    how_good: str
    next_step: str

    @property
    def headline(self) -> str:
        """The grade in words."""
        return HEADLINES[self.grade]


def verdict(found: Findings) -> Verdict:
    """Two sentences, from all that was found."""
    bad, care = _objections(found)
    grade = BAD if bad else CARE if care else GOOD
    trust = {
        GOOD: "no check found anything wrong, so it can be trusted as far as these records go",
        CARE: "it is to be used with care",
        BAD: "it is not to be trusted yet",
    }[grade]
    reasons = [*bad, *care]
    because = f", because {_and(reasons[:2])}" if reasons else ""
    joint = ", and " if grade == GOOD or found.compared is None else ", but "
    how_good = f"{capital(_how_good(found))}{joint}{trust}{because}."
    return Verdict(grade, how_good, f"Next: {'; and '.join(_steps(found)[:2])}.")


def _how_good(found: Findings) -> str:
    if found.compared is None:
        return "no record could be simulated from the estimate"
    if not found.model.structure.output_error:
        # The simulated output of a plant with process noise need not fit: the band says more.
        inside = _range([found.compared], lambda c: 100 * c.inside, " %")
        text = f"{inside} of the samples are in the band that should hold 95 %"
        others = _range(found.validation, lambda c: 100 * c.inside, " %")
    else:
        fit = _range([found.compared], lambda c: c.scores.fit_percent, " %")
        text = f"the simulated output fits the record to {fit}"
        others = _range(found.validation, lambda c: c.scores.fit_percent, " %")
    n = len(found.validation)
    text += f" ({others} on {n} validation record{'s' * (n > 1)})" if others else ""
    return f"{text}{_delay(found)}"


def _delay(found: Findings) -> str:
    """That the delay of a model is right is worth a word: it is what an engineer asks first."""
    late = found.model.input_delay
    if not late or found.misfit is None:
        return ""
    passed = [c for c in found.misfit.checks if c.name == "delay" and c not in found.misfit.failed]
    word = f"{late} sample{'s' * (late > 1)}"
    return f" and {passed[0].input} arrives {word} late as the model says" if passed else ""


def _objections(found: Findings) -> tuple[list[str], list[str]]:
    """What speaks against the estimate, in clauses: so that it is not to be trusted, or less so."""
    bad, care = [], []
    status = found.estimate.status
    if status is Status.misfit:
        bad.append("the network finds the record unlike all that it was trained on")
    elif status is not Status.ok:
        bad.append(f"the method ended {status.value}")
    outside = _flagged(found, OUTSIDE)
    if outside:
        bad.append(f"{_are(outside)} outside the prior")
    if found.misfit is not None and found.misfit.status is not Status.ok:
        bad.append("the model with this estimate can hardly have made the record")
    if found.misfit is None or found.compared is None:
        care.append("not all of it could be checked")
    if found.gain is not None:
        care.append("the gain changes from record to record")
    elif _lost(found) > _LOST:
        care.append("it fits the validation worse than the record it was estimated from")
    elif any(m is not None and m.status is not Status.ok for m in found.validation_misfits):
        care.append("the checks of a validation record fail")
    bounded = _flagged(found, AT_THE_BOUND)
    if bounded:
        care.append(f"{_are(bounded)} at the bound")
    return bad, care


def _flagged(found: Findings, flag: str) -> list[str]:
    """The parameters of which that is to be said."""
    return [each.name for each in found.information if flag in each.flags]


def _steps(found: Findings) -> list[str]:
    """What to do, the most urgent first."""
    steps = []
    estimate = found.estimate
    # The paper's networks give no posterior, and there is none to refine.
    can_be_refined = estimate.method == "deepbayes" and estimate.std is not None
    outside = _flagged(found, OUTSIDE)
    if outside and estimate.method == "deepbayes":
        steps.append(
            "train longer, or without the preset paper, whose networks know no bounds of a prior"
        )
    elif outside:
        steps.append(f"widen the prior of {_and(outside)}, or use a method that keeps to it")
    if estimate.status in (Status.unconverged, Status.collapsed, Status.diverged):
        steps.append(estimate.status.sentence.rstrip("."))
    if found.misfit is not None and found.misfit.status is not Status.ok:
        clauses = advice(found.misfit.failed)
        # Of two, one makes room for what validation shows.
        steps += clauses[:1] if found.gain is not None else clauses
        if can_be_refined:
            steps.insert(1, "refine the estimate (--refine), to see that it is not to blame")
    elif estimate.status is Status.misfit:
        steps.append(
            "look at the record (units, offset, delay, a dead sensor), then widen the prior or "
            "mend the model, and train again"
        )
    if found.gain is not None:
        steps.append(
            f"{found.gain}: give the model the nonlinearity that it lacks, or estimate for the "
            "amplitude at which it will be used"
        )
    bounded = _flagged(found, AT_THE_BOUND)
    if bounded:
        steps.append(f"widen the prior of {_and(bounded)}, or ask why the record wants to leave it")
    unknown = _flagged(found, LIKE_THE_PRIOR)
    if unknown:
        steps.append(
            f"the record says nothing of {_and(unknown)}: excite more, record longer, or fix what "
            "is known"
        )
    if not steps and _lost(found) > _LOST:
        steps.append(
            "look at the validation record: another operating point, or too short a record"
        )
    failed = [m for m in found.validation_misfits if m is not None and m.status is not Status.ok]
    if not steps and failed:
        steps.append(f"on a validation record, {advice(failed[0].failed)[0]}")
    if not steps and can_be_refined:
        steps.append("refine it (--refine) where the last digit counts")
    if not found.validation:
        steps.append("validate with a record that was not used (--validate)")
    return steps or ["use it"]


def _lost(found: Findings) -> float:
    """How many points of fit the worst validation record loses."""
    if found.compared is None or not found.validation:
        return 0.0
    if not found.model.structure.output_error:
        own, others = found.compared.inside, [each.inside for each in found.validation]
        return float(100 * np.nanmax([own - other for other in others]))
    own = found.compared.scores.fit_percent
    lost = np.array([own - each.scores.fit_percent for each in found.validation])
    return float(np.nanmax(lost, initial=0.0))


def _range(compared: Sequence[Comparison], value, unit: str) -> str:
    """`78 %`, or `12 to 78 %` of several outputs and records; nothing where there is none."""
    values = np.array([value(each) for each in compared])
    values = values[np.isfinite(values)]
    if not values.size:
        return ""
    low, high = f"{values.min():.0f}", f"{values.max():.0f}"
    return (low if low == high else f"{low} to {high}") + unit


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _are(names: Sequence[str]) -> str:
    return f"{_and(names)} {'is' if len(names) == 1 else 'are'}"


def capital(text: str) -> str:
    """A clause as the beginning of a sentence."""
    return text[:1].upper() + text[1:]
