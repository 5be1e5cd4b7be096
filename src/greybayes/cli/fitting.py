"""Commands about the classical methods: `methods`, `fit`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from greybayes.classical.methods import METHODS, Progress, get_method
from greybayes.cli.base import (
    Check,
    Json,
    ModelName,
    Seed,
    app,
    bar,
    load_model,
    print_json,
    print_table,
)
from greybayes.cli.reporting import (
    ReportOut,
    Validate,
    Validating,
    check_report,
    look,
    read_files,
    read_validation,
)
from greybayes.cli.results import fit_of, parse_settings, print_estimates
from greybayes.errors import GreybayesError

if TYPE_CHECKING:
    from greybayes.model import Model
    from greybayes.record import Record

_METHOD = f"One of {', '.join(METHODS)}."
_START = (
    "Where to start: a trained estimator, whose estimates are taken, or a theta, such as "
    "theta7=1,theta8=0.1; by default the prior."
)


@app.command(epilog="Example: greybayes methods")
def methods(as_json: Json = False) -> None:
    """List the classical methods, and what each needs."""
    if as_json:
        keys = ("name", "summary", "needs")
        return print_json([{key: getattr(m, key) for key in keys} for m in METHODS.values()])
    rows = [(method.name, method.summary, method.needs) for method in METHODS.values()]
    print_table(("method", "what it gives", "what a model must have"), rows)


@app.command(cls=Validating, epilog="Example: greybayes fit cme-mh growth2 records.csv")
def fit(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=_METHOD)],
    model: ModelName,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Records to fit.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as burn_in=1000."),
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="ESTIMATOR|THETA", help=_START)] = None,
    check: Check = False,
    validate: Validate = None,
    report: ReportOut = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Estimate the parameters from records by a classical method."""
    check_report(report)
    chosen = get_method(method)
    given = parse_settings(setting or [])
    plant = load_model(model)
    from greybayes.classical.methods import make_settings
    from greybayes.likelihood.measured import measured

    settings = make_settings(chosen.settings, given)
    clause = chosen.missing(plant)
    if clause:
        raise GreybayesError(f"{chosen.name} cannot serve {model}: {clause}.")
    records = read_files(files, plant.outputs, plant.inputs)
    inputs = [measured(plant, record).u for record in records]
    others = read_validation(validate, plant, records)
    first = None if start is None else _first(start, model, plant, records)
    with bar(f"{chosen.name} on {len(records)} records", 1) as tell:

        def watch(progress: Progress) -> None:
            tell(progress.iteration, progress.iterations, progress.note)

        found = chosen.run(plant, records, key=seed, settings=settings, start=first, watch=watch)
    estimates = [estimate.replace(model=model) for estimate in found]
    fits = [
        fit_of(plant, record, estimate.mean, u)
        for record, estimate, u in zip(records, estimates, inputs, strict=True)
    ]
    looks = None
    if check or others or report:
        looks = look(
            plant,
            records,
            estimates,
            seed,
            check=check,
            validation=others,
            report=report,
            provenance={"model": model, **({"start": start} if start else {})},
        )
    print_estimates(model, chosen.name, records, estimates, fits, as_json, looks)


def _first(start: str, name: str, model: "Model", records: "list[Record]") -> Any:
    """Where the method starts: a theta, or the estimates of an estimator."""
    if "=" in start:
        return model.prior.vector(parse_settings(start.split(","), option="--start"))
    from greybayes.amortized.estimator import load

    # Passed only where it is a user's own: a shipped estimator knows its model.
    return load(start, model if ".py" in name else None).estimate(records, engine="numpy")
