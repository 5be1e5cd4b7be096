"""From a model to an `Estimator`: the experiment, the checkpoints, the header of the file."""

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array

from greybayes._version import __version__
from greybayes.amortized import loop, paper, training, typical
from greybayes.amortized.estimator import Estimator
from greybayes.amortized.header import OWN, check_checkpoint
from greybayes.amortized.heads import line_of
from greybayes.amortized.identity import (
    check_identity,
    describe_model,
    describe_theta,
    model_of,
    named_arrays,
)
from greybayes.amortized.loop import Resumed, Save, Trained, Watch
from greybayes.amortized.network import NETWORKS, Network, count_weights
from greybayes.amortized.spoilt import learn, spoil
from greybayes.amortized.store import read_file, write_file
from greybayes.amortized.training import Experiment, Settings
from greybayes.errors import EstimatorError
from greybayes.inputs import Design, from_dict
from greybayes.model import Model
from greybayes.simulation import Paths, resolve_inputs, simulate
from greybayes.zoo import MODELS, get_model

# Faults are learnt from so many times as many records as a record is compared with.
_FAULTS = 4


def train(
    model: Model | type[Model] | str,
    *,
    name: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    preset: str = "default",
    inputs: Design | np.ndarray | Array | str | None = None,
    n_steps: int | None = None,
    seed: int = 0,
    network: str | Callable | Network | None = None,
    settings: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
    watch: Watch | None = None,
) -> Estimator:
    """Train an estimator of theta for records of this model, input and length.

    The default mode simulates fresh records for every batch; give it `minutes` (5 where nothing is
    said) or `steps`. `preset="paper"` trains as the paper does, on a fixed set Z(P, M). `settings`
    changes any field of `training.Settings` (or `paper.PaperSettings`). With a `checkpoint` file
    the run can be killed at any moment and taken up by `resume`.

    >>> estimator = train("growth2", steps=10, settings={"batch": 8, "n_validation": 50})
    >>> estimator.names
    ('theta2', 'theta6', 'theta7', 'theta8')
    """
    given = dict(settings or {})
    check_asked(preset, minutes, steps, seed, given)
    given_name = model if isinstance(model, str) else None
    model = get_model(model)
    name = name or given_name or _name(model)
    experiment = experiment_of(model, inputs, n_steps, seed)
    module = None
    if isinstance(network, str):
        given["network"] = network
    elif callable(network) or isinstance(network, Network):
        module = network
    elif network is not None:
        raise EstimatorError(
            f"network is {network!r}, expected a name ({', '.join(NETWORKS)}), a module that maps "
            "(steps, channel) to a vector, or a Network."
        )
    if module is not None and checkpoint is not None:
        raise EstimatorError(
            "a training with your own module cannot be taken up again: leave out the checkpoint."
        )
    started = time.perf_counter()
    save = None if checkpoint is None else _saver(checkpoint, name, experiment, preset)
    if preset == "paper":
        if module is not None:
            raise EstimatorError(_PAPERS_OWN)
        given = {"devices": jax.device_count(), **paper.of_model(name, given)}
        chosen = make_settings(paper.PaperSettings, given, seed=seed)
        trained = paper.run(experiment, chosen, save=save, watch=watch)
    else:
        steps = given.pop("steps", steps)
        if steps is None and minutes is None:
            minutes = 5.0
        usual = {
            "devices": jax.device_count(),
            "steps": training.BLOCK if steps is None else steps,
            "head": "bounded" if line_of(model.prior) is None else "posterior",
        }
        chosen = make_settings(Settings, {**usual, **given}, seed=seed)
        trained = loop.run(
            experiment,
            chosen,
            minutes=minutes if steps is None else None,
            module=module,
            save=save,
            watch=watch,
        )
    return _estimator(name, experiment, trained, time.perf_counter() - started)


_PAPERS_OWN = (
    "the preset paper trains its own networks for epochs: it takes no minutes, steps or own "
    "module, but settings such as epochs and network."
)


def check_asked(
    preset: str,
    minutes: float | None,
    steps: int | None,
    seed: int,
    settings: Mapping[str, Any],
) -> None:
    """Refuse, before anything is computed or written, what cannot be trained or is said twice."""
    if preset not in ("default", "paper"):
        raise EstimatorError(f"there is no preset {preset}, only default and paper.")
    if seed and settings.get("seed", seed) != seed:
        raise EstimatorError(f"seed is given twice, {seed} and {settings['seed']}.")
    if preset == "paper":
        if minutes is not None or steps is not None:
            raise EstimatorError(_PAPERS_OWN)
        return
    if steps is not None and settings.get("steps", steps) != steps:
        raise EstimatorError(f"steps is given twice, {steps} and {settings['steps']}.")
    if minutes is not None and (steps is not None or "steps" in settings):
        raise EstimatorError("give minutes or steps, not both.")
    if minutes is not None and not 0 < minutes < math.inf:
        raise EstimatorError(f"minutes is {minutes}, expected a number more than 0.")


def experiment_of(
    model: Model,
    inputs: Design | np.ndarray | Array | str | None,
    n_steps: int | None,
    seed: int,
) -> Experiment:
    """What a training is for, where a user says as much as this."""
    design, n_steps = resolve_inputs(model, inputs, n_steps)
    if design.is_random and model.design is design:
        # One record, one input: where nobody says otherwise, one signal of the model's own design.
        design = design.fixed(seed, n_steps, model.dt)
    return Experiment(model, design, n_steps)


def resume(
    checkpoint: str | Path, model: Model | None = None, watch: Watch | None = None
) -> Estimator:
    """Take up a training that was interrupted, and go on to the weights it would have given.

    `model` is your own, where it was trained for one: a file does not say which program to run.

    >>> resume("my.partial")
    Traceback (most recent call last):
    greybayes.errors.EstimatorError: there is no file my.partial; name one that train wrote.
    """
    header, arrays = read_file(checkpoint)
    settings, plant = _taken_up(header, checkpoint, model)
    name = header["model"]["name"]
    experiment = Experiment(plant, from_dict(header["input"]), header["n_steps"])
    started = time.perf_counter()
    trained = (paper.run if header["preset"] == "paper" else loop.run)(
        experiment,
        settings,
        save=_saver(checkpoint, name, experiment, header["preset"], header["seconds"]),
        resumed=Resumed([arrays[name] for name in sorted(arrays)], header["history"]),
        watch=watch,
    )
    spent = header["seconds"] + time.perf_counter() - started
    return _estimator(name, experiment, trained, spent)


def holds(
    checkpoint: Path, experiment: Experiment, preset: str, settings: Mapping[str, Any]
) -> bool:
    """Whether `resume` can take up a training of this experiment with these settings here.

    One that it would refuse is none: whoever asks can train anew.
    """
    try:
        header = read_file(checkpoint)[0]
        told, _ = _taken_up(header, checkpoint, experiment.model)
    except EstimatorError:
        return False
    same = all(getattr(told, name, None) == value for name, value in settings.items())
    of_records = {"preset": preset, **_of_records(experiment)}
    return same and all(header[name] == value for name, value in of_records.items())


def _taken_up(
    header: dict[str, Any], checkpoint: str | Path, model: Model | None
) -> tuple[Any, Model]:
    """The settings and the model of a checkpoint, or why it cannot be gone on with."""
    if header.get("kind") != "checkpoint":
        raise EstimatorError(
            f"{checkpoint} is a finished estimator; there is nothing to go on with."
        )
    check_checkpoint(header, checkpoint)
    cls = paper.PaperSettings if header["preset"] == "paper" else Settings
    settings = make_settings(cls, header["settings"])
    model = model or model_of(header["model"]["name"])
    check_identity(model, header)
    return settings, model


def _name(model: Model) -> str:
    for name, (_, cls) in MODELS.items():
        if type(model).__name__ == cls and type(model).__module__.startswith("greybayes.zoo"):
            return name
    return type(model).__name__


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int, np.integer), "a whole number"),
    float: ((float, int, np.number), "a number"),
    str: ((str,), "a name"),
    dict: ((Mapping,), "sizes by their names"),
}


def make_settings(cls, given: Mapping[str, Any], **defaults: Any):
    """Settings of a class, or a sentence about what is none."""
    known = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise EstimatorError(
            f"there is no setting {', '.join(unknown)}; known: {', '.join(sorted(known))}."
        )
    for name, value in given.items():
        kind = type(getattr(cls(), name))
        if isinstance(value, bool) or not isinstance(value, _KINDS[kind][0]):
            raise EstimatorError(f"{name} is {value!r}, expected {_KINDS[kind][1]}.")
    made = cls(**{**defaults, **given})
    if made.devices > jax.device_count():
        raise EstimatorError(
            f"devices is {made.devices}, here are {jax.device_count()} cores; the same weights "
            "need the same number."
        )
    return made


def _common(name: str, experiment: Experiment) -> dict[str, Any]:
    model = experiment.model
    return {
        "package": __version__,
        "model": {"name": name},
        "outputs": list(model.outputs),
        "inputs": list(model.inputs),
        "dt": model.dt,
        **_of_records(experiment),
    }


def _of_records(experiment: Experiment) -> dict[str, Any]:
    """What a header says of the length and the input."""
    return {"n_steps": experiment.n_steps, "input": experiment.design.to_dict()}


def _saver(
    path: str | Path, name: str, experiment: Experiment, preset: str, spent: float = 0.0
) -> Save:
    """Writes checkpoints of a training that has taken so many seconds already."""
    started = time.perf_counter() - spent
    common = {
        **_common(name, experiment),
        "kind": "checkpoint",
        "preset": preset,
        "model": describe_model(experiment.model, name),
        "theta": describe_theta(experiment.model.prior),
    }

    def save(state, settings, history) -> None:
        leaves = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        changing = {
            "settings": dataclasses.asdict(settings),
            "history": history,
            "seconds": time.perf_counter() - started,
        }
        write_file(path, {**common, **changing}, leaves)

    return save


def _estimator(name: str, experiment: Experiment, trained: Trained, seconds: float) -> Estimator:
    architecture = trained.settings.architecture
    if trained.is_own:
        architecture = architecture._replace(network=OWN)
    architecture = architecture.complete
    header = {
        **_common(name, experiment),
        "kind": "estimator",
        "model": describe_model(experiment.model, name),
        "theta": describe_theta(experiment.model.prior),
        "output_error": experiment.model.structure.output_error,
        "scaling": trained.scaling.to_dict(),
        "settings": dataclasses.asdict(trained.settings),
        "architecture": architecture._asdict(),
        "n_weights": count_weights(trained.weights),
        "history": trained.history,
        "share_diverged": trained.share_diverged,
        "seconds": round(seconds, 1),
    }
    arrays = named_arrays(trained.weights)
    if experiment.shared is not None:
        arrays["input"] = np.asarray(experiment.shared)
    arrays |= _comparison(experiment, trained)
    return _with_module(Estimator(header, arrays), experiment.model, trained.weights)


def compared_anew(
    estimator: Estimator, *, n_reference: int | None = None, without: Collection[str] = ()
) -> Estimator:
    """The same network with its misfit check made anew, without some kinds of faults (`spoilt`).

    From as many records as it was made of, where no other number is given.
    """
    header = estimator.header
    fields = {field.name for field in dataclasses.fields(Settings)}
    given = {name: value for name, value in header["settings"].items() if name in fields}
    count = n_reference or len(estimator.arrays[typical.REFERENCE])
    settings = dataclasses.replace(Settings(**given), n_reference=count)
    experiment = Experiment(estimator.model, from_dict(header["input"]), estimator.n_steps)
    trained = Trained(estimator.weights, estimator.scaling, settings, header["history"], 0.0)
    arrays = {n: a for n, a in estimator.arrays.items() if not n.startswith(typical.PREFIX)}
    return _with_module(
        Estimator(header, {**arrays, **_comparison(experiment, trained, without)}),
        estimator.model,
        estimator.weights,
    )


def _with_module(estimator: Estimator, model: Model, weights: training.Weights) -> Estimator:
    """With the model at hand, which a name may not find again, and the module, as it is there."""
    estimator.__dict__.update(model=model, weights=weights)
    return estimator


def _comparison(
    experiment: Experiment, trained: Trained, without: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """How simulated records are spread, how spoilt ones differ, and how far away fresh ones are.

    Each from simulations of its own, of streams of the seed that neither training (0 to 2) nor its
    validation has seen.
    """
    weights, scaling, settings = trained.weights, trained.scaling, trained.settings
    key = jr.key(settings.seed)

    def simulated(stream: int, share: int = 1) -> Paths:
        paths = simulate(
            experiment.model,
            inputs=experiment.design,
            n_steps=experiment.n_steps,
            count=share * settings.n_reference,
            key=jr.fold_in(key, stream),
        )
        return loop.finite(paths)

    def seen(paths: Paths) -> typical.Seen:
        return loop.seen_of(weights, scaling, paths.y, paths.u)

    good, bad = simulated(6, _FAULTS), simulated(7, _FAULTS)
    bad = dataclasses.replace(bad, y=spoil(bad, np.random.default_rng(settings.seed), without))
    arrays = typical.fit(seen(simulated(3)))
    arrays |= learn(seen(good).features(), seen(bad).features(), settings.seed)
    arrays = typical.on_one_scale(arrays, seen(simulated(8)))
    return typical.calibrate(arrays, seen(simulated(4)))
