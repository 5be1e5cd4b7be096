"""The trials of a search, in an SQLite file (Optuna's)."""

import itertools
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from greybayes.errors import GreybayesError

if TYPE_CHECKING:
    import optuna

# Trials before any is broken off.
_PATIENT = 4
ERROR = "error"
"""Where a trial keeps why it could not be trained."""
SECONDS = "training_seconds"
"""Where it keeps how long it was trained, also before it was stopped."""


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


def listed(study: "optuna.Study") -> list[Trial]:
    """The trials of a study that were begun, the best first; those without a value last.

    What was taken from the queue to be put in anew was not begun.
    """
    found = [
        Trial(
            trial.number,
            dict(trial.params),
            trial.value if trial.state.name == "COMPLETE" else None,
            trial.state.name.lower(),
            trial.user_attrs.get(SECONDS) or _duration(trial),
            trial.user_attrs.get(ERROR),
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name != "WAITING" and (trial.params or not _interrupted(trial))
    ]
    return sorted(found, key=lambda t: (t.value is None, t.value or 0.0, t.number))


def _duration(trial: "optuna.trial.FrozenTrial") -> float | None:
    return trial.duration.total_seconds() if trial.duration else None


def open_study(path: Path, name: str, same: dict[str, Any]) -> "optuna.Study":
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
        before, same = study.user_attrs.get("same"), json.loads(json.dumps(same))
        if before is not None and before != same:
            keys = {**before, **same}
            differs = ", ".join(key for key in keys if same.get(key) != before.get(key))
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


def sampler(search: str, vary: Mapping[str, Choices], seed: int, n_before: int) -> Any:
    import optuna

    if search == "tpe":
        # Not of the seed alone: a search that goes on must not begin with the same draws.
        return optuna.samplers.TPESampler(seed=(seed + n_before) % 2**32)

    class Grid(optuna.samplers.GridSampler):
        """Optuna's; it is told here when to end, and may take up trials that are not its own."""

        def after_trial(self, *told: Any) -> None:
            """Nothing."""

    return Grid({key: list(choices) for key, choices in vary.items()}, seed=seed)


def suggested(trial: "optuna.Trial", name: str, choices: Choices) -> Any:
    if not isinstance(choices, Range):
        return trial.suggest_categorical(name, list(choices))
    low, high = choices
    log = low > 0 and high / low >= 10
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, float(low), float(high), log=log)


def take_up(study: "optuna.Study", vary: Mapping[str, Choices]) -> None:
    """Trials that were interrupted are tried again, the last one first: it has a checkpoint.

    Whatever waits already comes after them; else it would be trained over that checkpoint.
    """
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    trials = study.get_trials(deepcopy=False)
    ended = [trial.params for trial in _done(study)]
    # Stopped between two of its settings, a trial has none that could be tried again.
    again = [t.params for t in reversed(trials) if _interrupted(t) and set(t.params) == set(vary)]
    again = [params for params in again if params not in ended]
    if not again:
        return
    for trial in trials:
        if trial.state is TrialState.WAITING:
            again.append(trial.system_attrs.get("fixed_params", {}))
            study.tell(study.ask(), state=TrialState.FAIL)
    for number, params in enumerate(again):
        if params not in again[:number]:
            _queue(study, params)


def queue_next(study: "optuna.Study", vary: Mapping[str, Choices]) -> None:
    """Of a grid that was interrupted, what is next: its sampler takes such a trial for a visit.

    One at a time: a trial that is interrupted then is the first again, with nothing before it.
    """
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    waiting = any(trial.state is TrialState.WAITING for trial in trials)
    if not waiting and any(map(_interrupted, trials)):
        _queue(study, _untried(study, vary)[0])


def _queue(study: "optuna.Study", params: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is an experiment of Optuna's.
        study.enqueue_trial(params)


def is_left(study: "optuna.Study", vary: Mapping[str, Choices], search: str, n_trials: int) -> bool:
    """Whether there is something to try."""
    return len(_done(study)) < n_trials if search == "tpe" else bool(_untried(study, vary))


def n_ended(study: "optuna.Study") -> int:
    """How many trials have come to an end, and not to a stop."""
    return len(_done(study))


def _done(study: "optuna.Study") -> "list[optuna.trial.FrozenTrial]":
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state.is_finished() and not _interrupted(trial)]


def _untried(study: "optuna.Study", vary: Mapping[str, Choices]) -> list[dict[str, Any]]:
    """The combinations of a grid that no trial has come to an end with."""
    tried = [trial.params for trial in _done(study)]
    cells = [dict(zip(vary, cell, strict=True)) for cell in itertools.product(*vary.values())]
    return [cell for cell in cells if cell not in tried]


def _interrupted(trial: "optuna.trial.FrozenTrial") -> bool:
    return trial.state.name == "FAIL" and ERROR not in trial.user_attrs
