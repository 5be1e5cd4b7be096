"""Which settings are best? Trainings that differ in them, compared by their validation (Optuna).

All trials are in one SQLite file, see `study`: a search that was stopped goes on with it, the trial
that it was at from its checkpoint beside the file, and Optuna's own tools can watch it. A grid
tries every combination; `tpe` learns from the trials before where the good ones are, and breaks off
those that fall behind.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from greybayes._files import alone_with
from greybayes.amortized.estimator import Estimator
from greybayes.amortized.identity import describe_model, describe_theta
from greybayes.amortized.loop import Progress
from greybayes.amortized.paper import PaperSettings, of_model
from greybayes.amortized.study import (
    ERROR,
    SECONDS,
    Choices,
    Range,
    Trial,
    is_left,
    listed,
    n_ended,
    open_study,
    queue_next,
    sampler,
    suggested,
    take_up,
)
from greybayes.amortized.trainer import (
    check_asked,
    experiment_of,
    holds,
    make_settings,
    resume,
    train,
)
from greybayes.amortized.training import Settings
from greybayes.errors import EstimatorError, GreybayesError, nearest
from greybayes.inputs import Design
from greybayes.model import Model
from greybayes.zoo import get_model

if TYPE_CHECKING:
    import optuna

SEARCHES = ("grid", "tpe")

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
    inputs: Design | np.ndarray | str | None = None,
    n_steps: int | None = None,
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
    asked = _Asked(preset, minutes, steps, seed)
    check_asked(*asked, fixed)
    if not is_paper and minutes is None and steps is None and "steps" not in {**fixed, **vary}:
        asked = asked._replace(minutes=1.0)
    minutes = asked.minutes
    given = _Given(PaperSettings if is_paper else Settings, fixed, vary)
    given.check(search, asked)
    label = name or (model if isinstance(model, str) else type(model).__name__)
    varied = {key: [type(choices).__name__, *choices] for key, choices in vary.items()}
    plant = get_model(model)
    experiment = experiment_of(plant, inputs, n_steps, seed)
    same = {"vary": varied, "settings": fixed, "minutes": minutes, "steps": steps, "seed": seed}
    same |= {"model": describe_model(plant, label), "prior": describe_theta(plant.prior)}
    same |= {"inputs": experiment.design.to_dict(), "length": experiment.n_steps}
    opened = open_study(Path(study), f"{label}, {preset}, {search}", same)
    opened.sampler = sampler(search, vary, seed, len(opened.trials))
    n_trials = math.prod(map(len, vary.values())) if search == "grid" else trials

    def objective(trial: "optuna.Trial") -> float:
        import optuna

        chosen = {key: suggested(trial, key, choices) for key, choices in vary.items()}
        told, number = math.nan, n_ended(opened) + 1

        def heard(progress: Progress) -> None:
            nonlocal told
            if watch is not None:
                watch(number, n_trials, progress)
            if math.isfinite(progress.validation_risk) and progress.validation_risk != told:
                told = progress.validation_risk
                trial.report(told, progress.step)
                if search == "tpe" and trial.should_prune():
                    raise optuna.TrialPruned

        try:
            estimator = trained(given.with_(chosen), heard)
        except EstimatorError as error:
            # These settings do not work: a result, unlike an interrupt, which is tried again.
            trial.set_user_attr(ERROR, str(error))
            raise
        trial.set_user_attr(SECONDS, estimator.training_seconds)
        history = estimator.header["history"]
        if is_paper:
            return min(seen["validation_loss"] for seen in history)
        return history[-1]["validation_risk"]

    partial = Path(f"{study}.partial")

    def trained(settings: Mapping[str, Any], heard: Callable[[Progress], None]) -> Estimator:
        """Train, or go on where this trial was stopped."""
        wanted = {"devices": jax.device_count(), "seed": seed, **settings}
        if is_paper:
            wanted = of_model(label, wanted)
        made = make_settings(given.cls, wanted)
        if holds(partial, experiment, preset, {key: getattr(made, key) for key in wanted}):
            return resume(partial, plant, heard)
        return train(
            model,
            name=name,
            minutes=minutes,
            steps=steps,
            preset=preset,
            inputs=inputs,
            n_steps=n_steps,
            seed=seed,
            settings=settings,
            checkpoint=partial,
            watch=heard,
        )

    after = after or (lambda trials: None)
    with alone_with(Path(study)):
        take_up(opened, vary)
        after(listed(opened))
        while is_left(opened, vary, search, n_trials):
            if search == "grid":
                queue_next(opened, vary)
            opened.optimize(objective, n_trials=1, catch=(EstimatorError,))
            partial.unlink(missing_ok=True)
            after(listed(opened))
        found = listed(opened)
    if all(trial.error for trial in found):
        raise EstimatorError(f"no trial could be trained; the last one: {found[-1].error}")
    return found


class _Asked(NamedTuple):
    """What `train` is asked for beside settings."""

    preset: str
    minutes: float | None
    steps: int | None
    seed: int


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
        sizes = {**self.fixed.get("sizes", {}), **sizes}
        return {**self.fixed, **own, **({"sizes": sizes} if sizes else {})}

    def check(self, search: str, asked: _Asked) -> None:
        """Refuse, before anything is written, what could not be trained with."""
        if not self.vary:
            raise GreybayesError("there is nothing to vary: name a setting and its choices.")
        usual = self.cls()
        known = [field.name for field in fields(self.cls)]
        shared = {} if asked.steps is None else {"steps": asked.steps}
        known += make_settings(self.cls, self.with_(shared)).architecture.complete.sizes
        for name, choices in self.vary.items():
            if search == "grid" and isinstance(choices, Range):
                raise GreybayesError(
                    f"a grid needs choices, such as {name}=30,40; a range is for tpe."
                )
            if not choices or name == "sizes":
                raise GreybayesError(f"{name} has no choices.")
            # Another network may have other sizes.
            if name not in known and "network" not in self.vary:
                raise GreybayesError(f"there is no setting {name}; {nearest(name, known)}")
            kind = type(getattr(usual, name, 0))
            for value in choices:
                right = isinstance(value, int | float if kind is float else kind)
                if (
                    not right
                    or isinstance(value, bool)
                    or (kind is not str and not math.isfinite(value))
                ):
                    raise GreybayesError(f"{name} cannot be {value!r}.")
                check_asked(*asked, self.with_({name: value}))
                settings = make_settings(self.cls, self.with_({name: value}))
                settings.architecture.complete  # noqa: B018
