"""Commands about records: `simulate`, `plot`."""

import math
import re
from typing import TYPE_CHECKING, Annotated

import typer

from greybayes.cli.base import (
    FigureOut,
    InputText,
    Json,
    ModelName,
    Records,
    RecordsOut,
    Seed,
    ThetaTexts,
    app,
    bar,
    check_output,
    load_model,
    print_json,
    spinner,
)
from greybayes.errors import InputError, ModelError, Status, ThetaError

if TYPE_CHECKING:
    from greybayes.inputs import Design
    from greybayes.model import Model


@app.command(epilog="Example: greybayes simulate growth2 --theta theta2=0.7 -o records.csv")
def simulate(
    model: ModelName,
    output: RecordsOut,
    theta: ThetaTexts = None,
    inputs: InputText = None,
    length: Annotated[int | None, typer.Option(max=10**6, help="Samples in a record.")] = None,
    count: Annotated[int, typer.Option(max=10**5, help="How many records.")] = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Simulate records of a model, and write them to a file."""
    from greybayes.record import write_records
    from greybayes.record_files import format_of

    check_output(output, format_of)
    with bar(f"Simulating {count} records", count) as tell:
        plant = load_model(model)
        from greybayes.simulation import simulate as run

        signal = input_signal(plant, inputs) if inputs is not None else None
        given = parse_theta(theta or [])
        paths = run(plant, given, inputs=signal, n_steps=length, count=count, key=seed, watch=tell)
        records = [paths[index] for index in range(count) if not paths.diverged[index]]
        if not records:
            raise ModelError(f"every path diverged; nothing is written: {Status.diverged.sentence}")
        write_records(output, records)
    n_samples = sum(record.n_steps for record in records)
    if as_json:
        written = {"path": str(output), "records": len(records), "samples": n_samples}
        return print_json({**written, "diverged": paths.n_diverged, "seed": seed})
    typer.echo(f"Wrote {output} (records: {len(records)}, samples: {n_samples}).")
    if paths.n_diverged:
        typer.echo(f"Left out, since they diverged: {paths.n_diverged} of {count}.", err=True)


@app.command(epilog="Example: greybayes plot records.csv -o records.png")
def plot(file: Records, output: FigureOut, as_json: Json = False) -> None:
    """Plot measured outputs and inputs against time."""
    from greybayes import plots
    from greybayes.record import read_records

    check_output(output, plots.figure_format)
    with spinner(f"Plotting {file}"):
        records = read_records(file)
        plots.save_figure(output, plots.plot_records(records))
    drawn = min(len(records), plots.MAX_OVERLAID)
    if as_json:
        return print_json({"path": str(output), "records": len(records), "drawn": drawn})
    left_out = f", the first of {len(records)}" if drawn < len(records) else ""
    typer.echo(f"Wrote {output} (records: {drawn}{left_out}).")


def parse_theta(texts: list[str]) -> dict[str, float] | None:
    """What `name=value` texts give; the parameters they leave out are drawn from the prior."""
    given: dict[str, float] = {}
    for text in (part for each in texts for part in each.split(",")):
        name, _, value = (part.strip() for part in text.partition("="))
        if name in given:
            raise ThetaError(f"--theta gives {name} twice; give it once.")
        try:
            given[name] = float(value)
        except ValueError:
            raise ThetaError(f"--theta got {text!r}, expected NAME=VALUE with a number.") from None
    return given or None


def input_signal(model: "Model", text: str) -> "Design":
    """The input that `--input` asks for: the words of a design, or the u columns of a file."""
    from greybayes.inputs import Signal, parse
    from greybayes.record import read_records
    from greybayes.record_files import check_order, parse_address

    # A file's name has a dot before its columns (data/u.csv:u=volts), that of a design has none.
    if "." not in re.split(r":\s*\w+\s*=", text)[0]:
        return parse(text)
    path, options = parse_address(text)
    # Read as outputs: a file that holds an input and nothing else is no record.
    chosen = {**options, "y": options.get("u") or "+".join(model.inputs), "u": ""}
    first, *others = read_records(f"{path}:{','.join(f'{k}={v}' for k, v in chosen.items())}")
    check_order(first.outputs, model.inputs, "inputs", str(path))
    if any(other.y.tolist() != first.y.tolist() for other in others):
        raise InputError(f"{path} has a different input for each record; give one with one input.")
    dt = math.nan if first.dt is None and first.times is not None else first.dt  # NaN: uneven
    if dt is not None and not math.isclose(dt, model.dt, rel_tol=1e-3):
        raise InputError(f"{path} has dt = {dt:g}, expected the model's {model.dt:g}; resample it.")
    return Signal(first.y)
