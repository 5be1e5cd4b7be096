"""Which settings are best? Trainings that differ in them, compared by their validation (Optuna).

All trials are in one SQLite file: a search that was stopped goes on with it, and Optuna's own tools
can watch it. A grid tries every combination; `tpe` learns from the trials before where the good
ones are, and breaks off those that fall behind.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from greybayes.amortized.loop import Progress
from greybayes.amortized.paper import PaperSettings
from greybayes.amortized.trainer import train
from greybayes.amortized.training import Settings
from greybayes.errors import GreybayesError
from greybayes.model import Model

if TYPE_CHECKING:
    import optuna

SEARCHES = ("grid", "tpe")
# Trials before any is broken off.
_PATIENT = 4


class Range(NamedTuple):
    """Any number between two, on a logarithmic scale where both are positive and far apart."""

    low: float
    high: float


Choices = tuple[Any, ...] | Range


@dataclass(frozen=True)
class Trial:
    """One training: its settings and how good it was; `value` is None where it was broken off."""

    number: int
    settings: dict[str, Any]
    value: float | None
    state: str
    """complete, pruned or fail."""
    seconds: float | None


Watch = Callable[[int, int, Progress], None]
"""Hears the number of the trial, of how many, and its progress."""


def tune(
    model: Model | str,
    vary: Mapping[str, Choices],
    *,
    study: str | Path,
    name: str | None = None,
    search: str = "grid",
    trials: int = 20,
    preset: str = "default",
    minutes: float | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[Trial]:
    """Train with varied settings, and list the trials, the best first.

    `vary` names settings of training or sizes of the network, each with its choices or a `Range`
    (for `tpe`). `study` is the SQLite file. `trials` is for `tpe`; a grid has as many as it has
    combinations. What does not vary is as in `train`.

    >>> import tempfile
    >>> few = {"batch": 8, "n_validation": 50, "n_reference": 50}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/a.sqlite"
    ...     found = tune("linear-gaussian", {"width": (4,)}, study=file, steps=10, settings=few)
    >>> [trial.settings for trial in found]
    [{'width': 4}]
    """
    if search not in SEARCHES:
        raise GreybayesError(f"search is {search!r}, expected {' or '.join(SEARCHES)}.")
    if not vary:
        raise GreybayesError("there is nothing to vary: name a setting and its choices.")
    if search == "grid" and any(isinstance(choices, Range) for choices in vary.values()):
        raise GreybayesError("a grid needs choices, such as width=30,40; a range is for tpe.")
    label = name or (model if isinstance(model, str) else type(model).__name__)
    opened = _open(Path(study), f"{label}, {preset}, {search}", vary, search, seed)
    n_trials = math.prod(map(len, vary.values())) if search == "grid" else trials
    is_paper = preset == "paper"
    known = {field.name for field in fields(PaperSettings if is_paper else Settings)}
    fixed = dict(settings or {})
    if not is_paper and minutes is None and steps is None:
        minutes = 1.0

    def objective(trial: "optuna.Trial") -> float:
        import optuna

        chosen = {key: _suggested(trial, key, choices) for key, choices in vary.items()}
        own = {key: value for key, value in chosen.items() if key in known}
        sizes = {key: value for key, value in chosen.items() if key not in known}
        given = {**fixed, **own, "sizes": {**fixed.get("sizes", {}), **sizes}}
        told = math.nan

        def heard(progress: Progress) -> None:
            nonlocal told
            if watch is not None:
                watch(trial.number + 1, n_trials, progress)
            if math.isfinite(progress.validation_risk) and progress.validation_risk != told:
                told = progress.validation_risk
                trial.report(told, progress.step)
                if search == "tpe" and trial.should_prune():
                    raise optuna.TrialPruned

        long = {} if is_paper else {"minutes": minutes, "steps": steps}
        estimator = train(
            model, name=name, preset=preset, seed=seed, settings=given, watch=heard, **long
        )
        history = estimator.header["history"]
        if is_paper:
            return min(seen["validation_loss"] for seen in history)
        return history[-1]["validation_risk"]

    _take_up(opened)
    while _left(opened, vary, search, n_trials):
        # One at a time: a grid's sampler ends a longer call where the last cells were taken up.
        opened.optimize(objective, n_trials=1)
    return listed(opened)


def listed(study: "optuna.Study") -> list[Trial]:
    """The trials of a study, the best first, and those that have no value last."""
    found = [
        Trial(
            trial.number,
            dict(trial.params),
            trial.value if trial.state.name == "COMPLETE" else None,
            trial.state.name.lower(),
            trial.duration.total_seconds() if trial.duration else None,
        )
        for trial in study.get_trials(deepcopy=False)
    ]
    return sorted(found, key=lambda t: (t.value is None, t.value or 0.0, t.number))


def _open(
    path: Path, name: str, vary: Mapping[str, Choices], search: str, seed: int
) -> "optuna.Study":
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if search == "grid":
        sampler: Any = optuna.samplers.GridSampler(
            {key: list(choices) for key, choices in vary.items()}, seed=seed
        )
        pruner: Any = optuna.pruners.NopPruner()
    else:
        sampler = optuna.samplers.TPESampler(seed=seed)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=_PATIENT)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            study_name=name,
            sampler=sampler,
            pruner=pruner,
            load_if_exists=True,
        )
    except SQLAlchemyError:
        raise GreybayesError(
            f"{path} cannot be opened as a study: name a new file in a folder that exists and is "
            "yours."
        ) from None
    varied = {key: [type(choices).__name__, *choices] for key, choices in vary.items()}
    before = study.user_attrs.get("vary", varied)
    if before != varied:
        raise GreybayesError(f"{path} holds a search over {before}; name another file for this.")
    study.set_user_attr("vary", varied)
    return study


def _suggested(trial: "optuna.Trial", name: str, choices: Choices) -> Any:
    if not isinstance(choices, Range):
        return trial.suggest_categorical(name, list(choices))
    low, high = choices
    log = low > 0 and high / low >= 10
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, float(low), float(high), log=log)


def _take_up(study: "optuna.Study") -> None:
    """Trials that were interrupted are tried again."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state is TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
    ended = [t.params for t in trials if t.state not in (TrialState.RUNNING, TrialState.FAIL)]
    for trial in study.get_trials(deepcopy=False, states=(TrialState.FAIL,)):
        if trial.params and trial.params not in ended:
            ended.append(trial.params)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # It is an experiment of Optuna's.
                study.enqueue_trial(trial.params)


def _left(study: "optuna.Study", vary: Mapping[str, Choices], search: str, n_trials: int) -> bool:
    """Whether there is something to try."""
    from optuna.trial import TrialState

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    if search == "tpe":
        return len(done) < n_trials
    tried = [trial.params for trial in done]
    cells = itertools.product(*vary.values())
    return any(dict(zip(vary, cell, strict=True)) not in tried for cell in cells)
