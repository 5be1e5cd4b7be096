"""Which settings are best? Trainings that differ in them, compared by their validation (Optuna).

All trials are in one SQLite file: a search that was stopped goes on with it, and Optuna's own tools
can watch it. A grid tries every combination; `tpe` learns from the trials before where the good
ones are, and breaks off those that fall behind.
"""

import itertools
import json
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
from greybayes.errors import EstimatorError, GreybayesError
from greybayes.model import Model

if TYPE_CHECKING:
    import optuna

SEARCHES = ("grid", "tpe")
# Trials before any is broken off.
_PATIENT = 4
# Where a trial keeps why it could not be trained.
_ERROR = "error"


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
    error: str | None = None
    """Why it could not be trained."""


Watch = Callable[[int, int, Progress], None]
"""Hears the number of the trial, of how many, and its progress."""
After = Callable[[list[Trial]], None]
"""Hears all trials so far, the best first: of a search that goes on, and when one has ended."""


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
    after: After | None = None,
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
    is_paper = preset == "paper"
    fixed = dict(settings or {})
    if not is_paper and minutes is None and steps is None:
        minutes = 1.0
    given = _Given(PaperSettings if is_paper else Settings, fixed, vary)
    given.check(search)
    label = name or (model if isinstance(model, str) else type(model).__name__)
    varied = {key: [type(choices).__name__, *choices] for key, choices in vary.items()}
    same = {"vary": varied, "settings": fixed, "minutes": minutes, "steps": steps, "seed": seed}
    opened = _open(Path(study), f"{label}, {preset}, {search}", same)
    opened.sampler = _sampler(search, vary, seed, len(opened.trials))
    n_trials = math.prod(map(len, vary.values())) if search == "grid" else trials

    def objective(trial: "optuna.Trial") -> float:
        import optuna

        chosen = {key: _suggested(trial, key, choices) for key, choices in vary.items()}
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

        try:
            estimator = train(
                model,
                name=name,
                minutes=minutes,
                steps=steps,
                preset=preset,
                seed=seed,
                settings=given.with_(chosen),
                watch=heard,
            )
        except EstimatorError as error:
            # These settings do not work: a result, unlike an interrupt, which is tried again.
            trial.set_user_attr(_ERROR, str(error))
            raise
        history = estimator.header["history"]
        if is_paper:
            return min(seen["validation_loss"] for seen in history)
        return history[-1]["validation_risk"]

    _take_up(opened)
    after = after or (lambda trials: None)
    after(listed(opened))
    while _left(opened, vary, search, n_trials):
        opened.optimize(objective, n_trials=1, catch=(EstimatorError,))
        after(listed(opened))
    found = listed(opened)
    if all(trial.error for trial in found):
        raise EstimatorError(f"no trial could be trained; the last one: {found[-1].error}")
    return found


class _Given(NamedTuple):
    """The settings that all trials share, and those that vary."""

    cls: type
    fixed: dict[str, Any]
    vary: Mapping[str, Choices]

    def with_(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial: what is no field is a size of the network."""
        known = {field.name for field in fields(self.cls)}
        own = {key: value for key, value in chosen.items() if key in known}
        sizes = {key: value for key, value in chosen.items() if key not in known}
        return {**self.fixed, **own, "sizes": {**self.fixed.get("sizes", {}), **sizes}}

    def check(self, search: str) -> None:
        """Refuse, before anything is written, what could not be trained with."""
        if not self.vary:
            raise GreybayesError("there is nothing to vary: name a setting and its choices.")
        usual = self.cls()
        for name, choices in self.vary.items():
            if search == "grid" and isinstance(choices, Range):
                raise GreybayesError(
                    f"a grid needs choices, such as {name}=30,40; a range is for tpe."
                )
            if not choices or name == "sizes":
                raise GreybayesError(f"{name} has no choices.")
            kind = type(getattr(usual, name, 0))
            for value in choices:
                right = isinstance(value, int | float if kind is float else kind)
                if not right or (kind is not str and not math.isfinite(value)):
                    raise GreybayesError(f"{name} cannot be {value!r}.")
                settings = self.cls(**self.with_({name: value}))
                settings.architecture.complete  # noqa: B018


def listed(study: "optuna.Study") -> list[Trial]:
    """The trials of a study, the best first, and those that have no value last."""
    found = [
        Trial(
            trial.number,
            dict(trial.params),
            trial.value if trial.state.name == "COMPLETE" else None,
            trial.state.name.lower(),
            trial.duration.total_seconds() if trial.duration else None,
            trial.user_attrs.get(_ERROR),
        )
        for trial in study.get_trials(deepcopy=False)
    ]
    return sorted(found, key=lambda t: (t.value is None, t.value or 0.0, t.number))


def _open(path: Path, name: str, same: dict[str, Any]) -> "optuna.Study":
    """The study of a file, new or as it was; `same` is what all its trials must share."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    # What goes wrong in a trial is ours to tell.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            study_name=name,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_PATIENT),
            load_if_exists=True,
        )
        before = study.user_attrs.get("same")
        if before is not None and before != json.loads(json.dumps(same)):
            differs = ", ".join(key for key in same if same[key] != before.get(key))
            raise GreybayesError(
                f"{path} holds a search with other {differs}; name another file for this one."
            )
        study.set_user_attr("same", same)
    except SQLAlchemyError:
        raise GreybayesError(
            f"{path} cannot be opened as a study: name a new file in a folder that exists and is "
            "yours."
        ) from None
    return study


def _sampler(search: str, vary: Mapping[str, Choices], seed: int, n_before: int) -> Any:
    import optuna

    if search == "tpe":
        # Not of the seed alone: a search that goes on must not begin with the same draws.
        return optuna.samplers.TPESampler(seed=seed + n_before)

    class Grid(optuna.samplers.GridSampler):
        """Optuna's; it is told here when to end, and may take up trials that are not its own."""

        def after_trial(self, *told: Any) -> None:
            """Nothing."""

    return Grid({key: list(choices) for key, choices in vary.items()}, seed=seed)


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
    ended = [t.params for t in trials if t.state.is_finished() and not _interrupted(t)]
    ended += [t.system_attrs.get("fixed_params") for t in trials if t.state is TrialState.WAITING]
    for trial in study.get_trials(deepcopy=False, states=(TrialState.FAIL,)):
        if _interrupted(trial) and trial.params and trial.params not in ended:
            ended.append(trial.params)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # It is an experiment of Optuna's.
                study.enqueue_trial(trial.params)


def _left(study: "optuna.Study", vary: Mapping[str, Choices], search: str, n_trials: int) -> bool:
    """Whether there is something to try."""
    trials = study.get_trials(deepcopy=False)
    done = [trial for trial in trials if trial.state.is_finished() and not _interrupted(trial)]
    if search == "tpe":
        return len(done) < n_trials
    tried = [trial.params for trial in done]
    cells = itertools.product(*vary.values())
    return any(dict(zip(vary, cell, strict=True)) not in tried for cell in cells)


def _interrupted(trial: "optuna.trial.FrozenTrial") -> bool:
    return trial.state.name == "FAIL" and _ERROR not in trial.user_attrs
