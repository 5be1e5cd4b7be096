"""The command about the paper: `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from greybayes.cli.base import Json, Seed, app, check_output, print_json, spinner, start_jax
from greybayes.errors import GreybayesError

_PARTS = "table1 to table7, figure3 to figure6, or all."
_EVALUATION = "The folder of the authors' signals; without it they are drawn from the seed."
_DRIVES = "The measured coupled drives, DATAPRBS.MAT, for table7 and figure6."


@app.command(epilog="Example: greybayes reproduce table7 figure6 --drives DATAPRBS.MAT")
def reproduce(
    parts: Annotated[list[str] | None, typer.Argument(metavar="PART...", help=_PARTS)] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="As large as the paper's, but M = 50 paths for a theta in paper mode, and 240 "
            "epochs for the drives; or small.",
        ),
    ] = False,
    seed: Seed = 0,
    evaluation: Annotated[Path | None, typer.Option(metavar="DIR", help=_EVALUATION)] = None,
    drives: Annotated[Path | None, typer.Option(metavar="FILE", help=_DRIVES)] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Results; a stopped run goes on.")
    ] = Path("benchmarks/results/paper"),
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all results as one Markdown page.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make tables and figures of the paper again: ours beside published."""
    if not parts and page is None:
        raise GreybayesError(f"name what to reproduce: {_PARTS}")
    if page is not None:
        check_output(page, lambda path: path)
    start_jax()
    from greybayes.reproduce import run

    try:
        with spinner("Reproducing") as shown:
            found = run.reproduce(
                parts or [],
                full=full,
                seed=seed,
                folder=output,
                evaluation=evaluation,
                drives=drives,
                tell=lambda what: shown.update(what),
            )
    except KeyboardInterrupt:
        typer.echo(f"Stopped. The same command goes on with what {output} lacks.", err=True)
        raise
    if page is not None:
        run.write_page(page, output)
    if as_json:
        return print_json(found)
    from rich.console import Console
    from rich.markdown import Markdown

    for name, told in found.items():
        Console().print(Markdown(run.page(name, told)))
    typer.echo(f"Wrote {page}." if page is not None else f"The figures are in {output}.")
