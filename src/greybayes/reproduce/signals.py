"""The test signals of M1 and M2, the methods on them, and their errors."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from greybayes.amortized.estimator import Estimator
from greybayes.amortized.risk import bayes_risk
from greybayes.amortized.trainer import resume, train
from greybayes.errors import Status
from greybayes.estimate import Estimate
from greybayes.record import Record, read_records
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Task
from greybayes.simulation import simulate

TRUTHS = {"growth1": (1.0, 0.1), "growth2": (0.7, 1.0, 0.1, 0.1)}
_QUICK = 6


def signals(task: Task, model: str) -> list[Record]:
    """The authors' own where there is a folder of them, else as many from the seed."""
    count = 100 if task.full else _QUICK
    if task.evaluation is not None:
        return read_records(task.evaluation / f"{model}_evaluation_100.mat")[:count]
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
    }


def timed(model: str, compute: Callable[[], list[Estimate]], **more: Any) -> Cell:
    """A method on all signals, with the seconds that it took for them."""
    started = time.perf_counter()
    found = compute()
    spent = {"method_seconds": round(time.perf_counter() - started, 4)}
    return {**judged(model, found), **spent, **more}


def network(model: str, estimator: Estimator, records: list[Record], draws: int) -> Cell:
    """An estimator: its error, its Bayes risk, and both its times."""
    estimator.estimate(records)  # Once before, to compile.
    header = estimator.header
    seconds = header["seconds"] + header.get("before", {}).get("seconds", 0.0)
    cell = timed(model, lambda: estimator.estimate(records), training_seconds=seconds)
    return {**cell, "bayes_risk": bayes_risk(estimator, draws)._asdict()}


def paper_network(
    task: Task, model: str, records: list[Record], settings: Mapping[str, Any]
) -> Cell:
    """One of the paper's networks, trained in its way: on Z(P, M), until the loss stands still."""
    name = f"{model}-{settings['network']}-{settings['n_thetas']}.estimator.partial"
    checkpoint = task.journal.path.with_name(name)
    if checkpoint.exists():
        estimator = resume(checkpoint)
    else:
        estimator = train(
            model, preset="paper", seed=task.seed, settings=settings, checkpoint=checkpoint
        )
    checkpoint.unlink(missing_ok=True)
    return {
        **network(model, estimator, records, task.draws),
        "P": settings["n_thetas"],
        "M": settings["n_paths"],
        "epochs": len(estimator.header["history"]),
    }
