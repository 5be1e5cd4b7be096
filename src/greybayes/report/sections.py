"""The sections of one record: parameters, fit, residuals, posterior, misfit, how it was made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from greybayes import plots
from greybayes.diagnose.checks import MAX_LAG, autocorrelation, band, cross_correlation
from greybayes.diagnose.misfit import Misfit
from greybayes.diagnose.output import Comparison
from greybayes.errors import Status
from greybayes.estimate import truth_of
from greybayes.plots.posterior import MAX_PAIRS
from greybayes.prior import describe
from greybayes.report.figures import inline_svg
from greybayes.report.findings import Findings
from greybayes.report.html import Html, element, joined, table
from greybayes.report.obtained import obtained
from greybayes.report.verdict import capital, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HINT = (
    "Drag to zoom in time, double-click to see all; Shift and drag, or the wheel after a click, or "
    "the keys + - ← → 0 do the rest."
)


class Figures:
    """Counts the figures of a page, and draws them into it."""

    def __init__(self, max_points: int) -> None:
        self.max_points = max_points
        self.count = 0

    def __call__(
        self, figure: "Figure", title: str, description: str, *, zoom: bool = False
    ) -> Html:
        """The figure with its caption; the description is for those who cannot see it."""
        self.count += 1
        svg = inline_svg(figure, self.count, title, description)
        width = figure.get_size_inches()[0] * 72 * 4 / 3 * 1.2
        drawn = Html(svg.replace("<svg ", f'<svg style="max-width: {width:.0f}px" ', 1))
        hint = Html(f'<p class="hint" hidden>{_HINT}</p>') if zoom else ""
        return element("figure", drawn, element("figcaption", description), hint)


def sections(found: Findings, figures: Figures) -> list[Html]:
    """All sections of a record, in the order in which they are read."""
    judged = verdict(found)
    parts = [
        element(
            "section",
            element("p", judged.headline, class_="headline"),
            element("p", judged.how_good),
            element("p", judged.next_step),
            *_tally(found),
            class_=f"verdict {judged.grade}",
            aria_label="Verdict",
        ),
        _section("Parameters", _parameters(found)),
        _section("Measured against simulated", *_fit(found, figures)),
        _section("One-step prediction residuals", *_residuals(found, figures)),
        _section("Before and after the record", *_posterior(found, figures)),
        _section("Can the model have made this record?", *_misfit(found)),
        _section("How the answer was obtained", *obtained(found)),
    ]
    return [part for part in parts if part]


def _tally(found: Findings) -> list[Html]:
    """Which checks of the record failed, and which passed."""
    if found.misfit is None:
        return []
    failed = {id(check) for check in found.misfit.failed}
    words = {"Failed": [], "Passed": []}
    for check in found.misfit.checks:
        # Where it shows most is for the table.
        label = check.label.split(" (lag ")[0]
        words["Failed" if id(check) in failed else "Passed"].append(label)
    told = [f"{word}: {', '.join(dict.fromkeys(each))}." for word, each in words.items() if each]
    return [element("p", " ".join(told), class_="muted")]


def _section(title: str, *content: object) -> Html:
    """A section, or nothing where there is nothing to show."""
    shown = [part for part in content if part]
    return element("section", element("h3", title), *shown) if shown else Html("")


def _parameters(found: Findings) -> Html:
    estimate, truth = found.estimate, truth_of(found.record, found.estimate.names)
    interval = estimate.interval()
    titles = ["parameter", "unit", "meaning", "prior", "estimate"]
    titles += ["± 1σ"] * (estimate.std is not None)
    titles += (
        ["95 % interval"] * (interval is not None) + ["truth"] * (truth is not None) + ["flags"]
    )
    rows = []
    texts = estimate.rows(truth)
    entries = zip(texts, found.model.prior.by_entry, found.information, strict=True)
    for text, (_, parameter), told in entries:
        row: list[object] = [text["parameter"], parameter.unit, parameter.doc]
        row += [describe(parameter.prior).replace(" ", "\u00a0"), text["estimate"]]
        row += [f"± {text['std']}"] if "std" in text else []
        row += [text[title] for title in ("95 % interval", "truth") if title in text]
        flags = [element("span", flag, class_="flag") for flag in told.flags]
        rows.append([*row, joined(_spaced(flags))])
    return table("Estimates, with what was known before", titles, rows)


def _spaced(parts: Sequence[object]) -> list[object]:
    return [each for k, part in enumerate(parts) for each in ([", ", part] if k else [part])]


def _fit(found: Findings, figures: Figures) -> list[object]:
    if found.compared is None:
        return []
    compared = [found.compared, *found.validation]
    misfits = [found.misfit, *found.validation_misfits]
    roles = ["estimation", *["validation"] * len(found.validation)]
    rows = []
    for each, misfit, role in zip(compared, misfits, roles, strict=True):
        checks = "" if misfit is None else "passed" if misfit.status is Status.ok else "failed"
        for i, output in enumerate(each.record.outputs):
            fit, rmse, nrmse, r_squared = (values[i] for values in each.scores)
            numbers = [_number(fit, ".1f"), *(_number(v, ".4g") for v in (rmse, nrmse, r_squared))]
            inside = f"{100 * each.inside[i]:.0f}"
            rows.append([each.record.name or role, role, output, *numbers, inside, checks])
    titles = ("record", "use", "output", "fit %", "RMSE", "NRMSE", "R²", "% in the band", "checks")
    noise = (
        "Simulated: from the input alone, at the estimate."
        if found.model.structure.output_error
        else "Simulated: from the input alone, the mean over records drawn from the estimate; the "
        "model has process noise, so even the true parameters do not fit to 100 %."
    )
    parts: list[object] = [
        element("p", f"{noise} The band should hold 95 % of the samples."),
        table("Fit of the simulated output", titles, rows),
    ]
    if found.gain is not None:
        parts.append(element("p", element("strong", f"{capital(found.gain)}.")))
    for each, role in zip(compared, roles, strict=True):
        parts.append(
            figures(
                plots.plot_output(each, max_points=figures.max_points),
                f"Measured and simulated output, {role} record {each.record.name}",
                _fit_words(each, role),
                zoom=True,
            )
        )
    return parts


def _fit_words(each: Comparison, role: str) -> str:
    fits = [
        f"{output}: fit {_number(fit, '.1f') or 'none'} %, {100 * inside:.0f} % of the samples in "
        "the 95 % band"
        for output, fit, inside in zip(
            each.record.outputs, each.scores.fit_percent, each.inside, strict=True
        )
    ]
    name = each.record.name or "record"
    return f"Measured and simulated output, {name} ({role}). {'; '.join(fits)}."


def _residuals(found: Findings, figures: Figures) -> list[object]:
    if found.misfit is None or found.misfit.residuals is None:
        return []
    e, record = found.misfit.residuals, found.record
    kind = (
        "Errors of the simulated output over their standard deviation: the model has no process "
        "noise."
        if found.model.structure.output_error
        else "Each sample beside what the model predicts from the samples before it, as a normal "
        "score."
    )
    words = (
        "A right model leaves residuals that are white and have nothing to do with the input: of a "
        "hundred correlations about one is outside its 99 % band. At a positive lag the input came "
        "first; at a negative one it followed, as it does under feedback. Correlations with an "
        "input that is itself no noise depend on one another; the checks below allow for that."
    )
    n_lags = max(1, min(MAX_LAG, record.n_steps // 5))
    told = []
    for i, name in enumerate(record.outputs):
        column = e[:, i]
        if np.isnan(column).all() or not np.nanstd(column):
            continue
        limit = band(column)
        r = autocorrelation(column, n_lags)[1:]
        told.append(
            f"{name}: {_count(r, limit)} of {n_lags} autocorrelations are outside the 99 % band of "
            f"± {limit:.2g}"
        )
        for k, source in enumerate(record.inputs if record.u is not None else ()):
            assert record.u is not None
            r = cross_correlation(column, record.u[:, k], n_lags)
            told[-1] += f", and {_count(r, limit)} of {len(r)} correlations with {source}"
    return [
        element("p", f"{kind} {words}"),
        figures(
            plots.plot_residuals(e, record, max_points=figures.max_points),
            f"Residuals of {record.name or 'the record'} and their correlations",
            f"{'; '.join(told)}.",
            zoom=True,
        ),
    ]


def _count(r: np.ndarray, limit: float) -> str:
    outside = int((np.abs(r) > limit).sum())
    return str(outside or "none")


def _posterior(found: Findings, figures: Figures) -> list[object]:
    estimate, model = found.estimate, found.model
    if estimate.std is None or not np.isfinite(estimate.std).all():
        return []
    shares = [
        f"{each.name} is known {1 / each.share:.3g} times as well as before"
        for each in found.information
        if each.share
    ]
    parts: list[object] = [
        figures(
            plots.plot_posterior(model, estimate),
            "Prior and posterior of each parameter",
            f"Prior and posterior of each parameter. By standard deviation, {', '.join(shares)}.",
        )
    ]
    if int((estimate.std > 0).sum()) >= 2:
        left_out = f", the first {MAX_PAIRS}" if len(estimate.names) > MAX_PAIRS else ""
        parts.append(
            figures(
                plots.plot_pairs(model, estimate),
                "Pairs of parameters",
                f"Pairs of parameters{left_out}: regions that hold 50 and 95 % of the posterior. "
                f"{_correlated(found)}",
            )
        )
    return parts


def _correlated(found: Findings) -> str:
    r = np.abs(np.nan_to_num(np.asarray(found.estimate.correlation))) - np.eye(
        len(found.information)
    )
    i, j = np.unravel_index(r.argmax(), r.shape)
    assert found.estimate.correlation is not None
    names, value = found.estimate.names, found.estimate.correlation[i, j]
    return f"The most correlated are {names[i]} and {names[j]}, with {value:.2f}."


def _misfit(found: Findings) -> list[object]:
    parts: list[object] = []
    p = found.estimate.diagnostics.get("misfit_p")
    if p is not None:
        verdict_word = "unlike" if found.estimate.status is Status.misfit else "like"
        parts.append(
            element(
                "p",
                f"By the network: the record is {verdict_word} those that it was trained on "
                f"(p = {p:.2g}).",
            )
        )
    if found.misfit is not None:
        parts += [element("p", capital(found.misfit.sentence)), *_passed(found.misfit)]
        parts.append(_checks(found.misfit, found.record.name))
    for each, misfit in zip(found.validation, found.validation_misfits, strict=True):
        if misfit is not None:
            name = each.record.name or "validation"
            parts.append(element("p", f"Validation, {name}: {misfit.sentence}"))
            parts.append(_checks(misfit, name))
    parts += [element("p", f"Not computed: {trouble}") for trouble in found.troubles]
    return parts


def _passed(misfit: Misfit) -> list[Html]:
    """A delay that is not there is worth a word: it is what an engineer asks first."""
    failed = {check.name for check in misfit.failed}
    delays = [check for check in misfit.checks if check.name == "delay"]
    if not delays or "delay" in failed:
        return []
    late = delays[0]
    return [
        element(
            "p",
            f"{late.input} arrives when the model says it does (a delay of {late.value:.2g} "
            f"samples more would fit best, p = {late.p:.2g}).",
        )
    ]


def _checks(misfit: Misfit, name: str) -> Html:
    rows = []
    for check, adjusted in zip(misfit.checks, misfit.adjusted, strict=True):
        expected = "" if check.expected is None else "{:.3g} to {:.3g}".format(*check.expected)
        failed = element("span", "failed", class_="flag") if adjusted < misfit.level else "passed"
        numbers = (f"{check.value:.3g}", expected, f"{check.p:.2g}", f"{adjusted:.2g}")
        rows.append((check.label, check.output, *numbers, failed))
    titles = ("check", "output", "found", "expected", "p", "p of all (Holm)", "")
    return table(f"Checks of {name or 'the record'}", titles, rows)


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else ""
