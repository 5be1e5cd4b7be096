"""The test signals of M1 and M2, the methods on them, and their errors."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from greybayes.amortized.estimator import PRETRAINED, SUFFIX, Estimator, load
from greybayes.amortized.risk import bayes_risk
from greybayes.amortized.typical import PREFIX
from greybayes.errors import Status
from greybayes.estimate import Estimate
from greybayes.record import Record, read_records
from greybayes.reproduce.journal import Cell, digest, digest_of_file
from greybayes.reproduce.task import Data, Task
from greybayes.simulation import simulate

TRUTHS = {"growth1": (1.0, 0.1), "growth2": (0.7, 1.0, 0.1, 0.1)}
_QUICK, _PASSES = 6, 100


def sources_of(model: str, data: Data) -> dict[str, Path | None]:
    """What all figures of a model depend on: the authors' signals; None where the seed draws."""
    if data.evaluation is None:
        return {"signals": None}
    file = data.evaluation / f"{model}_evaluation_100.mat"
    read_records(file)  # What cannot be read is told now, and not after hours of another part.
    return {"signals": file}


def shipped(model: str) -> str:
    """What tells the file of the shipped network from others, for figures that depend on it."""
    return digest_of_file(PRETRAINED / f"{model}{SUFFIX}")


def shipped_weights(model: str) -> str:
    """The same of its weights alone.

    With a new misfit check, chains and draws are the same; only the count of those that are not ok
    may be another.
    """
    arrays = load(model).arrays
    names = sorted(name for name in arrays if not name.startswith(PREFIX))
    return digest(b"".join(name.encode() + arrays[name].tobytes() for name in names))


def signals(task: Task, model: str) -> list[Record]:
    """The authors' own where there is a folder of them, else as many from the seed."""
    count = 100 if task.full else _QUICK
    file = sources_of(model, task.data)["signals"]
    if file is not None:
        return read_records(file)[:count]
    return list(simulate(model, np.array(TRUTHS[model]), count=count, key=task.seed + 1))


def judged(model: str, estimates: list[Estimate]) -> Cell:
    """Errors of the estimates of all signals; the estimates are kept for the figures."""
    means = np.array([estimate.mean for estimate in estimates])
    errors = (means - TRUTHS[model]) ** 2
    return {
        "mse_mean": float(errors.mean()),
        "standard_error": float(errors.mean(1).std(ddof=1) / np.sqrt(len(errors))),
        "mse_sum": float(errors.sum(1).mean()),
        "signals": len(errors),
        "not_ok": sum(estimate.status is not Status.ok for estimate in estimates),
        "means": means.round(6).tolist(),
        "settings": dict(estimates[0].settings),
    }


def timed(model: str, compute: Callable[[], list[Estimate]]) -> Cell:
    """A method on all signals, with the seconds that it took for them."""
    started = time.perf_counter()
    found = compute()
    spent = {"method_seconds": round(time.perf_counter() - started, 4)}
    return {**judged(model, found), **spent}


def network(model: str, estimator: Estimator, records: list[Record], draws: int) -> Cell:
    """An estimator: its error, its Bayes risk, and both its times."""
    cell = timed(model, lambda: estimator.estimate(records))

    def seconds() -> float:
        started = time.perf_counter()
        estimator.estimate(records)
        return time.perf_counter() - started

    return {
        **cell,
        # That pass compiled; the others are so short that one alone says little.
        "method_seconds": float(np.median([seconds() for _ in range(_PASSES)])),
        "training_seconds": estimator.training_seconds,
        "settings": estimator.header["settings"],
        "bayes_risk": bayes_risk(estimator, draws)._asdict(),
    }
