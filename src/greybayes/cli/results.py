"""How estimates are printed, whatever command they come from."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from greybayes.cli.base import print_json
from greybayes.errors import Status

if TYPE_CHECKING:
    import numpy as np

    from greybayes.cli.reporting import Looks
    from greybayes.estimate import Estimate
    from greybayes.model import Model
    from greybayes.record import Record


def print_estimates(
    model: str,
    method: str,
    records: "Sequence[Record]",
    estimates: "Sequence[Estimate]",
    fits: Sequence[Mapping[str, float]],
    as_json: bool,
    looks: "Looks | None" = None,
) -> None:
    """One object with a list of records, or a table for each; then its checks and validation."""
    checks = [None] * len(records) if looks is None or looks.checks is None else looks.checks
    validation = [[]] * len(records) if looks is None else looks.validation
    if looks is not None:
        fits = [fit or other for fit, other in zip(fits, looks.fits, strict=True)]
    report = None if looks is None else looks.report
    troubles = [[]] * len(records) if looks is None else looks.troubles
    results = zip(records, estimates, fits, checks, validation, troubles, strict=True)
    if as_json:
        rows = [
            {"record": record.name, **estimate.to_dict(), **fit}
            | ({} if misfit is None else {"check": misfit.to_dict()})
            | ({"validation": [each.to_dict() for each in others]} if others else {})
            | ({"not_computed": trouble} if trouble else {})
            for record, estimate, fit, misfit, others, trouble in results
        ]
        told = {"model": model, "method": method, "records": rows}
        return print_json(told | ({"report": str(report)} if report else {}))
    from rich.console import Console
    from rich.markup import escape

    from greybayes.estimate import truth_of

    for record, estimate, fit, misfit, others, trouble in results:
        table = estimate.table(truth_of(record, estimate.names))
        table.title = escape(record.name) if record.name else None
        told = [f"fit {fit['fit_percent']:.1f} %"] if fit else []
        table.caption = "; ".join([*told, *_refined(estimate), *_limits(estimate)]) or None
        Console().print(table)
        label = record.name or "the record"
        if estimate.status is not Status.ok:
            typer.echo(f"{label}: {estimate.status.value}: {estimate.status.sentence}", err=True)
        for sentence in trouble:
            typer.echo(f"not computed: {sentence}", err=True)
        if misfit is not None:
            Console().print(misfit.table())
            typer.echo(misfit.sentence, err=misfit.status is not Status.ok)
        for each in others:
            for i, output in enumerate(each.record.outputs):
                fit_percent, inside = each.scores.fit_percent[i], 100 * each.inside[i]
                typer.echo(
                    f"validation, {each.record.name or 'a record'}, {output}: fit "
                    f"{fit_percent:.1f} %, {inside:.0f} % of the samples in the 95 % band"
                )
    if report is not None:
        typer.echo(f"Wrote {report}.")


def _refined(estimate: "Estimate") -> list[str]:
    """How a refined estimate was obtained, and what it is worth."""
    told = estimate.diagnostics
    if "rung" not in told:
        return []
    words = [f"rung {told['rung']}", f"{told['ess']:.0f} effective draws"]
    more = {"k_hat": "k-hat {:.2f}", "log_evidence": "log evidence {:.2f}"}
    words += [form.format(told[name]) for name, form in more.items() if name in told]
    return [", ".join(words)]


# What a method tells of parameters that it names, in words.
_LIMITS = {
    "at_bound": "at the end of the prior: {}",
    "insensitive": "of which the record tells nothing, so that the prior stands there: {}",
}


def _limits(estimate: "Estimate") -> list[str]:
    """Which parameters the record did not settle."""
    told = {key: estimate.diagnostics.get(key) for key in _LIMITS}
    return [_LIMITS[key].format(", ".join(names)) for key, names in told.items() if names]


def fit_of(model: "Model", record: "Record", theta: "np.ndarray", u: "np.ndarray | None"):
    """The fit of the simulated output, where the model has no process noise."""
    if not model.structure.output_error or u is None:
        return {}
    from greybayes.diagnose.fit import fit_percent
    from greybayes.drawing import noise_free_output

    fit = fit_percent(record.y, noise_free_output(model, theta, u))
    return {"fit_percent": fit} if math.isfinite(fit) else {}


def parse_settings(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """`NAME=VALUE` texts: whole numbers, numbers, true, false, none, or words.

    >>> parse_settings(["burn_in=100", "proposal=guided", "threshold=0.5", "n_particles=none"])
    {'burn_in': 100, 'proposal': 'guided', 'threshold': 0.5, 'n_particles': None}
    """
    from greybayes.errors import GreybayesError

    settings: dict[str, Any] = {}
    for text in texts:
        name, found, value = (part.strip() for part in text.partition("="))
        if not found or not name or not value:
            raise GreybayesError(f"{option} got {text!r}, expected NAME=VALUE.")
        if name in settings:
            raise GreybayesError(f"{option} gives {name} twice; give it once.")
        settings[name] = parse_value(value)
    return settings


def parse_value(text: str) -> Any:
    """A whole number, a number, true, false, none, or a word.

    >>> [parse_value(text) for text in ("32", "1e-3", "none", "gru")]
    [32, 0.001, None, 'gru']
    """
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    return words.get(text.lower(), text)
