"""What every command shares: the application, exit codes, options, printing, progress."""

import contextlib
import enum
import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from greybayes import __version__, zoo
from greybayes._configure import configure
from greybayes._files import finite, reason
from greybayes.errors import GreybayesError, RecordError

if TYPE_CHECKING:
    from greybayes.model import Model


class Exit(enum.IntEnum):
    """How the program ended, for the shell."""

    ok = 0
    bad_input = 2
    interrupted = 130


# Of the parser, which is in another place in every other version of Typer.
_UsageError: Any = typer.BadParameter.__bases__[0]


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """The one place where what a user can mend becomes a sentence and an exit code."""
    try:
        yield
    except GreybayesError as error:  # Any other is our mistake, and stays a traceback.
        _refuse(str(error))
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "greybayes"
        what = error.format_message().rstrip(".")
        _refuse(f"{what[0].lower()}{what[1:]} (see {command} --help).")
    except KeyboardInterrupt:
        raise typer.Exit(Exit.interrupted) from None
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise
        # What is left would be written at exit, and fail again.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        _refuse(f"the output cannot be written ({reason(problem)}).")


def _refuse(why: str) -> NoReturn:
    typer.echo(f"greybayes: {' '.join(why.split())}", err=True)
    raise typer.Exit(Exit.bad_input) from None


class Commands(TyperGroup):
    """All commands, with our words for what goes wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            return super().parse_args(ctx, args)  # The help.
        with _sentences():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _sentences():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Example: greybayes simulate growth2 --count 5 -o records.csv",
)

_THETA = "A known parameter; may be repeated. The others are drawn from the prior."
_INPUT = "A design such as prbs:amplitude=2, or a file with columns for u."
_MODEL = "A built-in model, or your own: my_plant.py:Plant."
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
Records = Annotated[str, typer.Argument(metavar="FILE", help="FILE, or FILE:y=z2,u=u2,dt=0.02.")]
RecordsOut = Annotated[Path, typer.Option("-o", "--output", help="A .csv, .mat or .parquet file.")]
FigureOut = Annotated[Path, typer.Option("-o", "--output", help="A .png, .svg or .pdf file.")]
ThetaTexts = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=_THETA)]
InputText = Annotated[str | None, typer.Option("--input", metavar="DESIGN|FILE", help=_INPUT)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same result.")]
Check = Annotated[
    bool, typer.Option("--check", help="Check residuals and predictions: can the model be right?")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def main() -> None:
    """Run the command line on the arguments of this process."""
    try:
        app(prog_name="greybayes")
    except SystemExit as done:
        if done.code == Exit.interrupted:
            os._exit(Exit.interrupted)  # At once: XLA's threads still compute, and would crash.
        raise


def _print_version(asked: bool) -> bool:
    if not asked:
        return False
    typer.echo(f"greybayes {__version__}")
    raise typer.Exit(Exit.ok)


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
]


@app.callback()
def _greybayes(version: _Version = False) -> None:
    """Estimate the unknown parameters of a stochastic nonlinear model from measured records."""


def start_jax() -> None:
    """Let JAX have all cores."""
    # Where it runs already, as in a test or a notebook, the process is not ours to configure.
    if "jax" not in sys.modules:
        configure()


def load_model(name: str) -> "Model":
    """A model by the name that a user gave."""
    start_jax()
    # What a user's file prints while it is loaded must not end up in our JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return zoo.get_model(name)


def check_output(path: Path, check_format: Callable[[Path], object]) -> None:
    """Refuse, before the long work, what could not be written after it."""
    check_format(path)
    if path.is_dir():
        raise RecordError(f"{path} is a folder: name a file in it.")
    places = [path.parent, path] if os.access(path, os.F_OK) else [path.parent]
    if not path.parent.is_dir() or not all(os.access(place, os.W_OK) for place in places):
        raise RecordError(f"{path} cannot be written; choose a folder that exists and is yours.")


def spinner(task: str) -> contextlib.AbstractContextManager[Any]:
    from rich import console, text

    return console.Console(stderr=True).status(text.Text(task))  # Shows on a terminal only.


@contextlib.contextmanager
def bar(task: str, total: int) -> Iterator[Callable[..., None]]:
    """A progress bar on a terminal. Tell it how much is done, of how much, and a note beside."""
    from rich import console, progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}", markup=False),
    )
    screen = console.Console(stderr=True)
    off = not screen.is_terminal
    with progress.Progress(*columns, console=screen, transient=True, disable=off) as shown:
        job = shown.add_task(task, total=total, note="")

        def tell(done: int, total: int = total, note: str = "") -> None:
            shown.update(job, completed=done, total=total, note=note)

        yield tell


def print_json(value: Any) -> None:
    typer.echo(json.dumps(finite(value), indent=2, allow_nan=False))


def print_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    from rich import box, console, table

    grid = table.Table(*titles, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        grid.add_row(*row)
    # Words of a model are not markup: b[0] is a name.
    console.Console(markup=False, emoji=False, highlight=False).print(grid)
