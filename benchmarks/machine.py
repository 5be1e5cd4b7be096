"""What every benchmark writes beside its figures: seed, commit, machine, seconds."""

import json
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def describe_machine() -> dict[str, Any]:
    """The machine, in words that mean something on another one."""
    cpu = Path("/proc/cpuinfo")
    names = [row for row in cpu.read_text().splitlines() if row.startswith("model name")]
    return {
        "cpu": names[0].split(":")[1].strip() if names else platform.processor(),
        "cores": len(names) or None,
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }


def describe_commit() -> str:
    """The commit measured, marked where the tree differs from it in more than results."""

    def git(*arguments: str) -> str:
        run = ["git", *arguments]
        return subprocess.run(run, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "-uno", "--", ":/", f":(exclude){RESULTS}")
    return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")


def write_result(name: str, seed: int, started: float, figures: dict[str, Any]) -> Path:
    """Write `results/NAME.json`; `started` is the `time.perf_counter()` of the start."""
    result = {
        "benchmark": name,
        "seed": seed,
        "commit": describe_commit(),
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
