"""Commands about estimators: `train`, `estimate`, `info`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greybayes.cli.base import (
    Check,
    InputText,
    Json,
    Seed,
    app,
    bar,
    check_output,
    load_model,
    print_json,
    print_table,
    start_jax,
)
from greybayes.cli.reporting import (
    ReportOut,
    Validate,
    Validating,
    check_report,
    look,
    read_files,
    read_validation,
    with_input,
)
from greybayes.cli.results import fit_of, parse_settings, print_estimates
from greybayes.errors import EstimatorError, GreybayesError

if TYPE_CHECKING:
    from greybayes.amortized.estimator import Estimator
    from greybayes.estimate import Estimate
    from greybayes.record import Record

_ESTIMATOR = "A pretrained estimator (growth2), or a file that train wrote."
EstimatorName = Annotated[str, typer.Argument(metavar="ESTIMATOR", help=_ESTIMATOR)]
Preset = Annotated[str, typer.Option(help="default, or paper: as the paper trains.")]
NetworkName = Annotated[
    str | None, typer.Option(help="windows (default), gated, cued, gru, lstm or rnn.")
]
SettingTexts = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as batch=128."),
]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Records to estimate from.")]
_OUTPUT = "The file to write (default MODEL.estimator)."


@app.command(epilog="Example: greybayes train growth2 --minutes 5 -o growth2.estimator")
def train(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="As for show.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help=_OUTPUT),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="How long to train (default 5).")] = None,
    steps: Annotated[int | None, typer.Option(help="Or how many steps, in tens.")] = None,
    preset: Preset = "default",
    inputs: InputText = None,
    length: Annotated[int | None, typer.Option(help="Samples in a record.")] = None,
    network: NetworkName = None,
    setting: SettingTexts = None,
    seed: Seed = 0,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a training that was interrupted.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train an estimator for a model, an input and a length."""
    if model is None and resume is None:
        raise EstimatorError("give a model to train for, or --resume FILE to go on with one.")
    if resume is not None:
        fixed = {
            "--minutes": minutes,
            "--steps": steps,
            "--input": inputs,
            "--length": length,
            "--network": network,
            "--set": setting,
            "--preset": None if preset == "default" else preset,
            "--seed": seed or None,
        }
        given = [option for option, value in fixed.items() if value is not None]
        if given:
            raise EstimatorError(
                f"--resume goes on with the settings it began with; leave out {', '.join(given)}."
            )
    target = output or (Path(str(resume).removesuffix(".partial")) if resume else _named(model))
    check_output(target, lambda path: path)
    partial = checkpoint_of(target)
    if resume is None and partial.exists():
        raise EstimatorError(
            f"{partial} is a training that was stopped. Go on with: {_go_on(model, partial)}; or "
            "remove it, or name another output with -o."
        )
    start_jax()
    from greybayes.amortized import trainer

    try:
        if resume is not None:
            partial = _found(resume)
            target = output or Path(str(partial).removesuffix(".partial"))
            with _watched("Training") as watch:
                plant = load_model(model) if model is not None else None
                estimator = trainer.resume(partial, plant, watch=watch)
        else:
            assert model is not None
            from greybayes.cli.data import input_signal

            plant = load_model(model)
            signal = input_signal(plant, inputs) if inputs is not None else None
            with _watched(f"Training {model}") as watch:
                estimator = trainer.train(
                    plant,
                    name=model,
                    minutes=minutes,
                    steps=steps,
                    preset=preset,
                    inputs=signal,
                    n_steps=length,
                    seed=seed,
                    network=network,
                    settings=settings_of(setting or []),
                    checkpoint=partial,
                    watch=watch,
                )
    except EstimatorError:
        if resume is None:
            partial.unlink(missing_ok=True)  # To go on would end in the same place.
        raise
    except KeyboardInterrupt:
        if partial.exists():
            typer.echo(f"Stopped. Go on with: {_go_on(model, partial)}", err=True)
        raise
    estimator.save(target)
    partial.unlink(missing_ok=True)
    facts = _facts(estimator)
    if as_json:
        return print_json({"path": str(target), **facts})
    typer.echo(f"Wrote {target} ({_sentence(facts)}).")


@app.command(cls=Validating, epilog="Example: greybayes estimate growth2 records.csv")
def estimate(
    estimator: EstimatorName,
    files: Files,
    model: Annotated[
        str | None, typer.Option(help="Your own model, where the estimator is for one.")
    ] = None,
    refine: Annotated[
        bool,
        typer.Option("--refine", help="Correct it with the likelihood: exact, slower."),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of --refine: min_ess=1000."),
    ] = None,
    check: Check = False,
    validate: Validate = None,
    report: ReportOut = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Estimate the parameters from records, with a trained estimator."""
    check_report(report)
    if setting and not refine:
        raise GreybayesError("--set changes how --refine goes about it; give both.")
    if refine or check or validate or report:
        start_jax()  # Before anything is loaded, so that it has all cores.
    from greybayes.amortized.estimator import load

    trained = load(estimator, load_model(model) if model is not None else None)
    outputs, inputs = trained.header["outputs"], trained.header["inputs"]
    records = read_files(files, outputs, inputs)
    others = read_validation(validate, trained.model, records, trained.input) if validate else []
    if refine:
        estimates = _refined(trained, records, seed, parse_settings(setting or []))
    else:
        # Plain NumPy: importing JAX alone would take longer than all of this.
        estimates = trained.estimate(records, engine="numpy")
    name = trained.header["model"]["name"]
    fits = [_fit(trained, *pair) for pair in zip(records, estimates, strict=True)]
    method = "refine" if refine else "deepbayes"
    looks = None
    if check or others or report:
        looks = look(
            trained.model,
            with_input(records, trained.input, inputs),
            estimates,
            seed,
            check=check,
            validation=others,
            report=report,
            provenance={"model": name, "estimator": estimator, **_training(trained)},
        )
    print_estimates(name, method, records, estimates, fits, as_json, looks)


def _refined(trained: "Estimator", records: "list[Record]", seed: int, settings: dict[str, Any]):
    from greybayes.refining import refine

    with bar(f"Refining {len(records)} records", 1) as tell:

        def watch(progress) -> None:
            tell(progress.iteration, progress.iterations, progress.note)

        return refine(trained, records, key=seed, settings=settings, watch=watch)


@app.command(epilog="Example: greybayes info growth2")
def info(estimator: EstimatorName, as_json: Json = False) -> None:
    """Say what an estimator was trained for, how, and how good it is."""
    from greybayes.amortized.estimator import load

    facts = _facts(load(estimator))
    if as_json:
        return print_json(facts)
    print_table(("property", "value"), [(key, str(value)) for key, value in facts.items()])


def _go_on(model: str | None, partial: Path) -> str:
    """The command that takes up a training."""
    # A user's own model is named again: no program is run because a file names it.
    own = f"{model} " if model is not None and ".py" in model else ""
    return f"greybayes train {own}--resume {partial}"


def checkpoint_of(output: Path) -> Path:
    """Where a training that writes `output` keeps its checkpoints."""
    return output.with_name(output.name + ".partial")


def _named(model: str | None) -> Path:
    return Path(f"{(model or '').rpartition(':')[2]}.estimator")


def _found(resume: Path) -> Path:
    # The checkpoint first: beside it may be the estimator of an earlier training.
    for path in (checkpoint_of(resume), resume):
        if path.exists():
            return path
    raise EstimatorError(
        f"there is no checkpoint {resume}; a training that got as far as its first step leaves "
        "one beside its output, with .partial at the end."
    )


_NOT_OF_TRAINING = ("model", "parameters", "dt")
_WORDS = ("network", "head", "optimiser", "start")
_OF_NETWORK = ("width", "depth", "window", "pool", "levels", "early", "context")
_SIZES = (*_OF_NETWORK, "dense", "components")


def settings_of(texts: list[str]) -> dict[str, Any]:
    """`batch=128`, or `width=32` for the sizes of a network."""
    settings = parse_settings(texts)
    for name, value in settings.items():
        if name not in _WORDS and not _is_number(value):
            raise GreybayesError(f"--set got '{name}={value}', expected NAME=VALUE with a number.")
    sizes = {name: settings.pop(name) for name in _SIZES if name in settings}
    for name, value in sizes.items():
        if not isinstance(value, int):
            raise GreybayesError(f"{name} is {value}, expected a whole number, 1 or more.")
    return {**settings, **({"sizes": sizes} if sizes else {})}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and not isinstance(value, bool)


def _watched(task: str):
    """A progress bar that shows steps, speed and risks."""
    import contextlib

    @contextlib.contextmanager
    def shown():
        with bar(task, 1) as tell:

            def watch(progress) -> None:
                tell(
                    progress.step,
                    progress.steps,
                    f"{progress.paths_per_second:,.0f} paths/s, risk {progress.training_risk:.4f}, "
                    f"validation {progress.validation_risk:.4f}",
                )

            yield watch

    return shown()


def _facts(estimator: "Estimator") -> dict[str, Any]:
    from greybayes.amortized.trained_for import design_text

    header = estimator.header
    last = header["history"][-1] if header["history"] else {}
    facts = {
        "model": header["model"]["name"],
        "parameters": ", ".join(estimator.names),
        "length": header["n_steps"],
        "dt": header["dt"],
        "input": design_text(header["input"]) if header["inputs"] else "none",
        "network": header["architecture"]["network"],
        "weights": header["n_weights"],
        **_how_long(header["settings"], last),
        "seed": header["settings"]["seed"],
        **{name: header["settings"].get(name) for name in ("batch", "learning_rate")},
        "sizes": header["architecture"]["sizes"],
        "seconds": estimator.training_seconds,
        "validation": last.get("validation_risk", last.get("validation_loss")),
        "share_diverged": header["share_diverged"],
        "package": header["package"],
    }
    return facts | ({"bayes_risk": header["bayes_risk"]} if "bayes_risk" in header else {})


def _how_long(settings: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """The steps of a training, or the epochs of one in paper mode."""
    if "steps" in settings:
        return {"steps": settings["steps"]}
    return {"epochs": last.get("epoch")}


def _training(estimator: "Estimator") -> dict[str, Any]:
    """How it was trained, for the report of an estimate."""
    told = {key: value for key, value in _facts(estimator).items() if key not in _NOT_OF_TRAINING}
    return {f"training: {key}": value for key, value in told.items()}


def _sentence(facts: dict[str, Any]) -> str:
    unit, what = ("epochs", "loss") if "epochs" in facts else ("steps", "risk")
    return (
        f"{facts['weights']} weights, {facts[unit]} {unit} in {facts['seconds']:.0f} s, "
        f"validation {what} {facts['validation']:.4f}, {facts['share_diverged']:.1%} diverged"
    )


def _fit(estimator: "Estimator", record: "Record", result: "Estimate") -> dict[str, float]:
    """The fit, without starting JAX where there is none."""
    if not estimator.header["output_error"]:
        return {}
    start_jax()
    u = record.u if record.u is not None else estimator.input
    return fit_of(estimator.model, record, result.mean, u)
