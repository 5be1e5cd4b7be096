"""The command about trust: `diagnose`."""

from pathlib import Path
from typing import Annotated

import typer

from greybayes.cli.base import (
    Json,
    Seed,
    app,
    bar,
    check_output,
    load_model,
    print_json,
    start_jax,
)
from greybayes.cli.estimators import EstimatorName


@app.command(epilog="Example: greybayes diagnose growth2 --plot calibration.png")
def diagnose(
    estimator: EstimatorName,
    draws: Annotated[int, typer.Option(help="Records to simulate and judge it by.")] = 2000,
    seed: Seed = 0,
    model: Annotated[
        str | None, typer.Option(help="Your own model, where the estimator is for one.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png, .svg or .pdf file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that an estimator is as sure as it may be: ranks and coverage on fresh simulations."""
    from greybayes import plots
    from greybayes.amortized.estimator import load

    if plot is not None:
        check_output(plot, plots.figure_format)
    start_jax()
    from greybayes.diagnose.calibration import calibration

    with bar(f"Checking {estimator}", draws) as tell:
        trained = load(estimator, load_model(model) if model is not None else None)
        found = calibration(trained, draws, seed, watch=tell)
    if plot is not None:
        plots.save_figure(plot, plots.plot_calibration(found))
    if as_json:
        return print_json({**found.to_dict(), "seed": seed, "plot": plot and str(plot)})
    from rich.console import Console

    Console().print(found.table())
    typer.echo(f"{found.model}: {found.sentence}")
    if found.n_diverged:
        typer.echo(f"Left out, since they diverged: {found.n_diverged} of {draws}.", err=True)
    if plot is not None:
        typer.echo(f"Wrote {plot}.")
