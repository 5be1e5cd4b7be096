"""What every benchmark writes beside its figures: seed, commit, machine, seconds."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from greybayes.reproduce.provenance import describe_commit, describe_machine

RESULTS = Path(__file__).parent / "results"


def write_result(name: str, seed: int, started: float, figures: dict[str, Any]) -> Path:
    """Write `results/NAME.json`; `started` is the `time.perf_counter()` of the start."""
    result = {
        "benchmark": name,
        "seed": seed,
        "commit": describe_commit(RESULTS),
        "machine": describe_machine(),
        "seconds": round(time.perf_counter() - started, 1),
        **figures,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def interleaved(
    jobs: dict[str, Callable[[], Any]], rounds: int, *, burst: int = 1, pause: float = 0.0
) -> dict[str, float]:
    """The best seconds of each job, taken in turns so that noise of the machine meets them all.

    Threads of one library spin for a while after a job, and slow the next one's: for jobs of
    milliseconds take a `pause` before each turn, and several runs in it.
    """
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            time.sleep(pause)
            for _ in range(burst):
                start = time.perf_counter()
                job()
                seconds[name].append(time.perf_counter() - start)
    return {name: float(np.min(times)) for name, times in seconds.items()}
