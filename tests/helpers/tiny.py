"""Estimators small enough for tests, and a cache that compiles each of them once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import greybayes as gb
from greybayes.amortized import trainer
from greybayes.amortized.channels import Scaling
from greybayes.amortized.estimator import Estimator
from greybayes.amortized.training import Experiment, Settings, Trained, make_weights
from greybayes.simulation import resolve_inputs

N_STEPS, STEPS = 24, 200
SIZES = {"width": 8, "depth": 1, "dense": 8}
# One device, as a process has that was not configured: the same bits wherever tests run.
SETTINGS = {
    "batch": 8,
    "chunk": 4,
    "devices": 1,
    "learning_rate": 0.01,
    "n_validation": 200,
    "sizes": SIZES,
}
# The same settings for the command line.
OPTIONS = [
    *("--length", N_STEPS, "--steps", STEPS),
    *("--set", "batch=8", "--set", "chunk=4", "--set", "devices=1", "--set", "n_validation=200"),
    *("--set", "learning_rate=0.01", "--set", "width=8", "--set", "depth=1", "--set", "dense=8"),
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
