"""Estimators small enough for tests, a cache that compiles each of them once, and its children."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import greybayes as gb
from greybayes.amortized import trainer
from greybayes.amortized.channels import Scaling
from greybayes.amortized.estimator import Estimator
from greybayes.amortized.loop import Trained
from greybayes.amortized.training import Experiment, Settings, make_weights
from greybayes.simulation import resolve_inputs
from greybayes.zoo.linear_gaussian import LinearGaussian

N_STEPS, STEPS = 24, 200
SIZES = {"width": 8, "depth": 1, "dense": 8}
# One device, as a process has that was not configured: the same bits wherever tests run.
SETTINGS = {
    "batch": 8,
    "chunk": 4,
    "devices": 1,
    "learning_rate": 0.01,
    "n_validation": 200,
    "n_reference": 200,
    "sizes": SIZES,
}
# The same settings for the command line.
OPTIONS = [
    *("--length", N_STEPS, "--steps", STEPS),
    *("--set", "batch=8", "--set", "chunk=4", "--set", "devices=1", "--set", "n_validation=200"),
    *(
        "--set",
        "n_reference=200",
        "--set",
        "learning_rate=0.01",
        "--set",
        "width=8",
        "--set",
        "depth=1",
        "--set",
        "dense=8",
    ),
]
_CACHE = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextlib.contextmanager
def compile_cache(folder: Path) -> Iterator[dict[str, str]]:
    """Keep what XLA compiles in a folder. Gives the environment for a child that shares it."""
    changes = {"jax_compilation_cache_dir": str(folder), **_CACHE}
    before = {name: getattr(jax.config, name) for name in changes}
    for name, value in changes.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # It may have been looked for, in vain, before.
    yield {name.upper(): str(value) for name, value in changes.items()}
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def train_tiny(model="linear-gaussian", **changes) -> Estimator:
    """A few seconds of training; `settings` are added to ours."""
    settings = {**SETTINGS, **changes.pop("settings", {})}
    return gb.train(model, **{"steps": STEPS, "n_steps": N_STEPS, **changes, "settings": settings})


def write_plant(folder: Path, base: type[gb.Model] = LinearGaussian) -> str:
    """A user's own model, as a command names it. The file `ran` appears when its program is run."""
    (folder / "plant.py").write_text(
        "from pathlib import Path\n"
        f"from {base.__module__} import {base.__name__}\n"
        'Path(__file__).with_name("ran").touch()\n'
        f"class Plant({base.__name__}):\n"
        '    """A plant."""\n'
    )
    return "plant.py:Plant"


def stop_at(step: int | None = None):
    """Whoever watches presses Ctrl-C after this step or epoch, or at once."""

    def watch(progress) -> None:
        if step is None or progress.step == step:
            raise KeyboardInterrupt

    return watch


def untrained(name: str, model=None, **settings) -> Estimator:
    """An estimator with random weights: enough for all that does not ask whether it is good."""
    model = gb.get_model(model or name)
    design, n_steps = resolve_inputs(model, None, N_STEPS)
    if design.is_random:
        design = design.fixed(0, n_steps, model.dt)
    experiment = Experiment(model, design, n_steps)
    paths = gb.simulate(model, inputs=design, n_steps=n_steps, count=64, key=5)
    ok = ~paths.diverged
    chosen = Settings(**{**SETTINGS, **settings})
    trained = Trained(
        make_weights(experiment, chosen.architecture),
        Scaling.measure(paths.y[ok], paths.u[ok]),
        chosen,
        [{"step": 10, "training_risk": 1.0, "validation_risk": 1.0}],
        0.0,
    )
    estimator = trainer._estimator(name, experiment, trained, 0.0)
    # A first estimate is near the middle of the prior; larger weights use all of the support.
    arrays = dict(estimator.arrays)
    arrays["head.out.weight"] = 10 * np.asarray(arrays["head.out.weight"])
    return with_arrays(estimator, arrays)


def with_arrays(estimator: Estimator, arrays) -> Estimator:
    """The same estimator with other weights."""
    changed = Estimator(estimator.header, arrays)
    changed.__dict__["model"] = estimator.model
    return changed


def records_of(estimator: Estimator, count: int = 3, key: int = 7) -> list[gb.Record]:
    """Records that an estimator was trained for."""
    paths = gb.simulate(
        estimator.model,
        inputs=estimator.input,
        n_steps=estimator.n_steps,
        count=count,
        key=key,
    )
    return list(paths)


def assert_same_weights(ours: Estimator, theirs: Estimator) -> None:
    """Bit for bit."""
    assert ours.arrays.keys() == theirs.arrays.keys()
    different = [k for k in ours.arrays if ours.arrays[k].tobytes() != theirs.arrays[k].tobytes()]
    assert not different


def child(code, *arguments, environment, folder) -> subprocess.CompletedProcess:
    """A program in a process of its own, which shares the cache."""
    source = str(Path(gb.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": source},
    )


# The command line, which kills itself: at a step, or while it writes its n-th checkpoint.
_DRIVER = """
import contextlib, functools, os, signal, sys
from greybayes.amortized import loop
from greybayes.cli import app, estimators

step, write, loop.EVERY_SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
die = functools.partial(os.kill, os.getpid(), signal.SIGKILL)

@contextlib.contextmanager
def watched(task):
    yield lambda progress: die() if progress.step == step else None

written, fsync = [], os.fsync

def counted(number):
    written.append(number)
    if len(written) == write:
        os.ftruncate(number, 1000)  # Half of it is on the disk.
        die()
    fsync(number)

os.fsync = counted
estimators._watched = watched
app(sys.argv[4:])
"""
NEVER = -1


def run_killed(step, write, every, *arguments, environment, folder) -> None:
    """A command, killed at that step or write, that saves `every` so many seconds."""
    given = (step, write, every, *arguments)
    done = child(_DRIVER, *given, environment=environment, folder=folder)
    assert done.returncode == -signal.SIGKILL, done.stderr
