"""The command about settings: `tune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greybayes.cli.base import (
    InputText,
    Json,
    ModelName,
    Seed,
    app,
    bar,
    check_output,
    load_model,
    print_json,
    print_table,
)
from greybayes.cli.estimators import NetworkName, Preset, SettingTexts, settings_of
from greybayes.cli.results import parse_value
from greybayes.errors import GreybayesError

if TYPE_CHECKING:
    from greybayes.amortized.study import Choices

_VARY = "Choices, or a range for tpe: width=30,40,60 or learning_rate=1e-4..1e-2; may be repeated."


@app.command(
    epilog="Example: greybayes tune growth1 --vary width=32,64 --vary depth=2,3 --minutes 2"
)
def tune(
    model: ModelName,
    vary: Annotated[list[str], typer.Option(metavar="NAME=CHOICES", help=_VARY)],
    study: Annotated[
        Path, typer.Option(metavar="FILE", help="All trials, in SQLite; a stopped search goes on.")
    ] = Path("tune.sqlite"),
    search: Annotated[str, typer.Option(help="grid: all; tpe: learns, and breaks off.")] = "grid",
    trials: Annotated[int, typer.Option(min=1, help="How many, for tpe.")] = 20,
    preset: Preset = "default",
    minutes: Annotated[float | None, typer.Option(help="Of each trial (default 1).")] = None,
    steps: Annotated[int | None, typer.Option(help="Of each trial, instead of minutes.")] = None,
    inputs: InputText = None,
    length: Annotated[int | None, typer.Option(help="Samples in a record.")] = None,
    network: NetworkName = None,
    setting: SettingTexts = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find good settings: train with each, and compare their validation."""
    check_output(study, lambda path: path)
    choices: dict[str, Choices] = {}
    for name, values in map(_choices, vary):
        if name in choices:
            raise GreybayesError(f"--vary gives {name} twice; give it once.")
        choices[name] = values
    shared = settings_of(setting or []) | ({"network": network} if network else {})
    for name in choices:
        if name in shared or name in shared.get("sizes", {}):
            raise GreybayesError(f"{name} is both varied and set; leave one out.")
    plant = load_model(model)
    from dataclasses import asdict

    from greybayes.amortized import tuning
    from greybayes.cli.data import input_signal

    with bar(f"Tuning {model}", 1) as tell:
        found = tuning.tune(
            plant,
            choices,
            study=study,
            name=model,
            search=search,
            trials=trials,
            preset=preset,
            minutes=minutes,
            steps=steps,
            inputs=input_signal(plant, inputs) if inputs is not None else None,
            n_steps=length,
            settings=shared,
            seed=seed,
            watch=lambda number, of, p: tell(
                p.step, p.steps, f"trial {number} of {of}, validation {p.validation_risk:.4f}"
            ),
        )
    if as_json:
        return print_json({"model": model, "trials": [asdict(trial) for trial in found]})
    titles = ("trial", *choices, "validation", "seconds", "")
    print_table(
        titles,
        (
            (
                str(trial.number),
                *(_text(trial.settings.get(name)) for name in choices),
                "" if trial.value is None else f"{trial.value:.5f}",
                "" if trial.seconds is None else f"{trial.seconds:.0f}",
                trial.error or ("" if trial.state == "complete" else trial.state),
            )
            for trial in found
        ),
    )
    if found[0].value is not None:
        best = {**({"network": network} if network else {}), **found[0].settings}
        chosen = [f"--set {text}" for text in setting or []]
        chosen += [f"--set {name}={value}" for name, value in best.items()]
        given = {"--preset": preset if preset == "paper" else None}
        given |= {"--input": inputs, "--length": length}
        chosen = [f"{name} {value}" for name, value in given.items() if value is not None] + chosen
        typer.echo(f"Train with the best: greybayes train {' '.join([model, *chosen])}")


def _choices(text: str) -> "tuple[str, Choices]":
    """`width=30,40`, `depth=1..4` or `network=gru,lstm`."""
    from greybayes.amortized.study import Range

    name, found, values = text.partition("=")
    if not found or not values or not name:
        raise GreybayesError(f"--vary got {text!r}, expected NAME=A,B or NAME=LOW..HIGH.")
    if ".." in values:
        ends = [parse_value(value) for value in values.split("..", 1)]
        if not all(isinstance(end, int | float) for end in ends) or not ends[0] < ends[1]:
            raise GreybayesError(f"--vary got {text!r}, expected LOW..HIGH, two numbers.")
        return name, Range(*ends)
    return name, tuple(parse_value(value) for value in values.split(","))


def _text(value: Any) -> str:
    if value is None:  # Stopped before it had any.
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
