"""What an engineer looks at: the options `--report` and `--validate`, and the command `compare`."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from greybayes.cli.base import Json, app, bar, check_output, print_json, print_table
from greybayes.errors import GreybayesError, RecordError

if TYPE_CHECKING:
    import numpy as np

    from greybayes.diagnose.misfit import Misfit
    from greybayes.diagnose.output import Comparison
    from greybayes.estimate import Estimate
    from greybayes.model import Model
    from greybayes.record import Record


class Validating(TyperCommand):
    """A command whose `--validate` takes all files after it, up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _repeated("--validate", args))


def _repeated(option: str, args: Sequence[str]) -> list[str]:
    """With the option before each of its values, as the parser wants it.

    >>> _repeated("--validate", ["a.csv", "--validate", "b.csv", "c.csv", "--json"])
    ['a.csv', '--validate', 'b.csv', '--validate', 'c.csv', '--json']
    """
    found, values = [], None
    for arg in args:
        if arg.startswith("-"):
            values = 0 if arg == option else None
        elif values is not None:
            values += 1
            found += [option] * (values > 1)
        found.append(arg)
    return found


_REPORT = "Write what an engineer looks at to one .html file."
_VALIDATE = "Records of the same plant that were not used: all files up to the next option."
ReportOut = Annotated[Path | None, typer.Option("--report", metavar="FILE", help=_REPORT)]
Validate = Annotated[
    list[str] | None, typer.Option("--validate", metavar="FILE...", help=_VALIDATE)
]


def check_report(path: Path | None) -> None:
    """Refuse, before the long work, a report that could not be written after it."""
    if path is not None:
        from greybayes.report import report_format

        check_output(path, report_format)


def read_files(
    files: Sequence[str],
    outputs: Sequence[str],
    inputs: Sequence[str],
    beside: "Sequence[Record]" = (),
) -> "list[Record]":
    """All records of all files. Those of one name, also `beside`, are called by their address.

    One MAT file may hold several records, and all of them are then called as the file.
    """
    from greybayes.record import read_records

    found = [
        (Path(file).name, record)
        for file in files
        for record in read_records(file, outputs=outputs, inputs=inputs or None)
    ]
    names = Counter(record.name for record in [*beside, *(record for _, record in found)])
    renamed, seen = [], Counter(record.name for record in beside)
    for address, record in found:
        name = record.name if names[record.name] == 1 else address
        seen[name] += 1
        label = name if seen[name] == 1 else f"{name} ({seen[name]})"
        renamed.append(record if label == record.name else dataclasses.replace(record, name=label))
    return renamed


def read_validation(
    files: Sequence[str] | None,
    model: "Model",
    beside: "Sequence[Record]",
    u: "np.ndarray | None" = None,
) -> "list[Record]":
    """The records of `--validate`, refused before the long work where they are not the model's."""
    from greybayes.likelihood.measured import measured

    found = read_files(files or [], model.outputs, model.inputs, beside)
    found = with_input(found, u, model.inputs)
    for record in found:
        measured(model, record)
    return found


def with_input(
    records: "Sequence[Record]", u: "np.ndarray | None", inputs: Sequence[str]
) -> "list[Record]":
    """The records, each with an input: one without takes that which was trained for."""
    if u is None or not inputs:
        return list(records)
    for record in records:
        if record.u is None and record.n_steps != len(u):
            raise RecordError(
                f"record {record.name} has no input, and {record.n_steps} samples where that of "
                f"the estimator has {len(u)}. Name its columns: FILE:u=COLUMN."
            )
    return [
        dataclasses.replace(record, u=u, inputs=tuple(inputs)) if record.u is None else record
        for record in records
    ]


class Looks(NamedTuple):
    """What was looked at beside the estimates."""

    checks: "Sequence[Misfit | None] | None"
    """One for each estimate, where they were asked for; None for one that could not be made."""
    validation: "Sequence[Sequence[Comparison]]"
    """For each estimate, one for each validation record."""
    fits: Sequence[Mapping[str, float]] = ()
    """For each estimate, as `fit_of` gives it; also where the model has process noise."""
    report: Path | None = None
    troubles: Sequence[Sequence[str]] = ()
    """For each estimate, what could not be computed, and why."""


def look(
    model: "Model",
    records: "Sequence[Record]",
    estimates: "Sequence[Estimate]",
    seed: int,
    *,
    check: bool,
    validation: "Sequence[Record]",
    report: Path | None,
    provenance: Mapping[str, Any],
) -> Looks:
    """Check, validate and report, with a progress bar; the report computes all of it."""
    from greybayes.diagnose.misfit import check_fit
    from greybayes.diagnose.output import compare_output

    checks, compared, fits = None, [[]] * len(records), [{}] * len(records)
    of_report = [None] * len(records)
    troubles: list[list[str]] = [[] for _ in records]

    def tried(what, record: "Record", k: int):
        """What an estimate gives; where it gives nothing, its table is printed all the same."""
        try:
            return what(model, record, estimates[k], key=seed)
        except GreybayesError as error:
            troubles[k].append(f"{record.name or 'the record'}: {error}")
            return None

    if report is not None:
        from greybayes.report import write_report

        with bar(f"Writing {report}", len(records)) as tell:
            found = write_report(
                report,
                model,
                records,
                estimates,
                validation=validation,
                key=seed,
                provenance=provenance,
                watch=tell,
            )
        compared = [each.validation for each in found]
        fits = [{} if each.compared is None else each.compared.fit for each in found]
        of_report = [each.misfit for each in found]
        troubles = [list(each.troubles) for each in found]
    elif validation:
        of_all = [
            [tried(compare_output, record, k) for record in validation]
            for k in range(len(estimates))
        ]
        compared = [[each for each in of_one if each is not None] for of_one in of_all]
    if check:
        checks = []
        with bar(f"Checking {len(records)} records", len(records)) as tell:
            for k, record in enumerate(records):
                checks.append(of_report[k] if report else tried(check_fit, record, k))
                tell(len(checks))
    return Looks(checks, compared, fits, report, [list(dict.fromkeys(each)) for each in troubles])


@app.command(epilog="Example: greybayes compare map.json cme-mh.json -o compared.png")
def compare(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json...", help="What estimate or fit --json print."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The figure: a .png, .svg, .pdf or .html file."),
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which, where results have several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the results of several methods for one record: in a table, and in a figure."""
    from greybayes.plots import figure_format, plot_estimates, save_figure
    from greybayes.report import SUFFIXES
    from greybayes.report.results import comparison_rows, read_results

    as_page = output is not None and output.suffix.lower() in SUFFIXES
    if output is not None:
        check_output(output, lambda path: figure_format(path, *SUFFIXES))
    results = read_results(files, record)
    if output is not None and as_page:
        from greybayes.report.compared import write_comparison

        write_comparison(output, results)
    elif output is not None:
        save_figure(output, plot_estimates(results))
    if as_json:
        told = {"record": results[0]["record"], "results": results}
        return print_json(told | ({"path": str(output)} if output else {}))
    print_table(
        ("parameter", *(each["label"] for each in results)), map(tuple, comparison_rows(results))
    )
    if output is not None:
        typer.echo(f"Wrote {output}.")
