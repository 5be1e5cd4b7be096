"""The paper's networks, trained in its way: on Z(P, M), until the loss stands still."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from greybayes.amortized.estimator import Estimator
from greybayes.amortized.loop import Progress
from greybayes.amortized.paper import PaperSettings, of_model
from greybayes.amortized.trainer import experiment_of, holds, resume, train
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Task
from greybayes.zoo import get_model


def paper_cell(
    task: Task,
    name: str,
    model: str,
    settings: Mapping[str, Any],
    judge: Callable[[Estimator], Cell],
    inputs: Float[np.ndarray, "steps input"] | None = None,
) -> None:
    """Train one, and judge it.

    A training that was stopped goes on from its checkpoint, where that is of the same settings.
    """
    given = {"devices": jax.device_count(), **settings, "seed": task.seed}
    wanted = PaperSettings(**of_model(model, given))
    file = f"{model}-{wanted.network}-{wanted.n_thetas}.estimator.partial"
    checkpoint = task.journal.path.with_name(file)

    def watch(progress: Progress) -> None:
        loss = f"validation loss {progress.validation_risk:.5f}"
        task.tell(f"{name}, epoch {progress.step} of at most {progress.steps}, {loss}")

    def trained() -> Estimator:
        experiment = experiment_of(get_model(model), inputs, None, task.seed)
        if holds(checkpoint, experiment, "paper", asdict(wanted)):
            return resume(checkpoint, watch=watch)
        return train(
            model,
            preset="paper",
            inputs=inputs,
            seed=task.seed,
            settings=asdict(wanted),
            checkpoint=checkpoint,
            watch=watch,
        )

    def compute() -> Cell:
        estimator = trained()
        history = estimator.header["history"]
        started = time.perf_counter()
        judged = judge(estimator)
        # With those before a stop.
        seconds = estimator.training_seconds + time.perf_counter() - started
        return {
            **judged,
            "seconds": round(seconds, 3),
            "settings": asdict(wanted),
            "P": wanted.n_thetas,
            "M": wanted.n_paths,
            "epochs": len(history),
            "validation_loss": min(epoch["validation_loss"] for epoch in history),
            "training_seconds": estimator.training_seconds,
        }

    task.cell(name, compute)
    checkpoint.unlink(missing_ok=True)
