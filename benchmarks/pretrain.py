"""Train the estimators that the package ships, and write their measured risk into their files.

    taskset -c 0 python benchmarks/pretrain.py growth1 ...     (all where none is named)

Each on one core, two at a time: that is as fast as one after the other on two. The recipe of each
is below; seed, settings, seconds and history are in the file itself. The misfit checks were made
anew later, with `--compare`.
"""

import argparse
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

import greybayes as gb

gb.configure()

from machine import RESULTS  # noqa: E402

from greybayes.amortized.estimator import PRETRAINED, SUFFIX  # noqa: E402
from greybayes.amortized.store import read_file, write_file  # noqa: E402
from greybayes.amortized.trainer import compared_anew  # noqa: E402
from greybayes.amortized.typical import PREFIX, REFERENCE  # noqa: E402
from greybayes.reproduce.provenance import describe_commit, describe_machine  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Phase:
    """How long a model is trained, and what differs from the usual settings.

    A later phase starts from the weights of the one before.
    """

    steps: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    seed: int = 1
    until: int = 0
    """Broken off at this step, with the learning rate still high, for the next phase to go on."""
    half: bool = False
    """Large arrays are kept in half precision, not only those of the comparison: a shipped file is
    to be smaller than a megabyte."""


_GROWTH1 = {"width": 96}
# Large batches: the work of the optimiser is then a small part of a step.
_GATED = {"network": "gated", "batch": 256}
# First the mean alone, then both heads from there, with a smaller step.
_MEAN, _AGAIN = {"head": "bounded"}, {"learning_rate": 1.5e-3}
# After a phase that was broken off: about the rate at which it was.
_ON = {"learning_rate": 2e-3}

RECIPES = {
    "growth2": (
        Phase(56_000, _GATED, {"width": 48}, half=True),
        # As many records again and more, in batches twice as large: there is noise in the weights.
        Phase(
            48_000,
            {"network": "gated", "batch": 512, "learning_rate": 2e-3},
            {"width": 48},
            seed=2,
            half=True,
        ),
        # Fewer records and less noise in each.
        Phase(
            50_000,
            {"network": "cued", "batch": 256, "learning_rate": 2e-3, "sweeps": 100},
            {"width": 48},
            seed=3,
            half=True,
        ),
    ),
    "growth1": (
        Phase(100_000, _MEAN, _GROWTH1, until=37_020),
        Phase(80_000, _ON, _GROWTH1, seed=2, half=True),
    ),
    "linear-gaussian": (Phase(16_000, _MEAN), Phase(6_000, _AGAIN, seed=2)),
    "stochastic-volatility": (Phase(4_000, _MEAN), Phase(2_500, _AGAIN, seed=2)),
    "van-der-pol": (Phase(4_000, _MEAN), Phase(2_500, _AGAIN, seed=2)),
    "fir": (Phase(4_000, _MEAN), Phase(2_500, _AGAIN, seed=2)),
    "lotka-volterra": (Phase(6_000, _MEAN), Phase(2_500, _AGAIN, seed=2, half=True)),
    "sir": (Phase(4_000, _MEAN), Phase(2_500, _AGAIN, seed=2)),
}

# Twice as many records as usual: what is shipped may take its time.
_N_REFERENCE = 8192


class Reached(KeyboardInterrupt):
    """The step at which a phase is broken off: the training saves, as when a user stops it."""


def pretrain(name: str, first: int) -> None:
    """Train one estimator, from this phase on, and ship it."""
    target = PRETRAINED / f"{name}{SUFFIX}"
    target.parent.mkdir(exist_ok=True)
    for number, phase in enumerate(RECIPES[name], start=1):
        if number >= first:
            train(name, phase, target, again=number > 1)


def train(name: str, phase: Phase, target: Path, *, again: bool) -> None:
    """One phase; its risk is measured and written into the file."""
    last = time.perf_counter()

    def watch(progress) -> None:
        nonlocal last
        if time.perf_counter() - last > 30:
            last = time.perf_counter()
            print(
                f"{name}: step {progress.step} of {progress.steps}, "
                f"{progress.paths_per_second:.0f} paths/s, risk {progress.training_risk:.4f}, "
                f"validation {progress.validation_risk:.4f}",
                flush=True,
            )
        if progress.step == phase.until:
            raise Reached

    before = gb.load(name) if again else None
    settings = {**phase.settings, "sizes": phase.sizes, "start": name if again else ""}
    checkpoint = target.with_name(target.name + ".partial")
    try:
        estimator = gb.train(
            name,
            steps=phase.steps,
            seed=phase.seed,
            settings=settings,
            checkpoint=checkpoint,
            watch=watch,
        )
    except Reached:
        estimator = as_it_is(checkpoint, phase.until)
    estimator = rounded(estimator, phase.seed, "" if phase.half else PREFIX)
    risk = gb.bayes_risk(estimator)
    header = {
        **estimator.header,
        "bayes_risk": risk._asdict(),
        "made_by": {"commit": describe_commit(RESULTS), "machine": describe_machine()},
    }
    if before is not None:
        kept = ("settings", "bayes_risk", "made_by", "before")
        told = {field: before.header[field] for field in kept if field in before.header}
        header["before"] = {**told, "seconds": before.training_seconds}
    gb.Estimator(header, halved(estimator.arrays, "" if phase.half else PREFIX)).save(target)
    checkpoint.unlink(missing_ok=True)
    print(f"{name}: Bayes risk {risk.mean:.4f} +- {risk.standard_error:.4f}", flush=True)


def as_it_is(checkpoint: Path, step: int) -> gb.Estimator:
    """The estimator of a training that ends where its checkpoint is."""
    header, arrays = read_file(checkpoint)
    steps, header["settings"]["steps"] = header["settings"]["steps"], step
    write_file(checkpoint, header, arrays)
    estimator = gb.resume(checkpoint)
    settings = {**estimator.header["settings"], "steps": steps, "until": step}
    return gb.Estimator({**estimator.header, "settings": settings}, estimator.arrays)


def halved(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """With the large ones of such a name in half precision, where its range is enough."""
    kept = ("input", REFERENCE)

    def can_be(name: str, array: np.ndarray) -> bool:
        small = array.size <= 1000 or name in kept
        return name.startswith(prefix) and not small and np.abs(array).max() < 6e4

    return {
        name: array.astype(np.float16) if can_be(name, array) else array
        for name, array in arrays.items()
    }


def rounded(estimator: gb.Estimator, seed: int, prefix: str) -> gb.Estimator:
    """What a user will load; how far apart fresh simulations are is measured with it."""
    arrays = {n: array.astype(np.float32) for n, array in halved(estimator.arrays, prefix).items()}
    found = gb.Estimator(estimator.header, arrays)
    count = len(arrays[REFERENCE])
    # With the input that it was trained for: a random design of the model's would draw another.
    key = jr.fold_in(jr.key(seed), 5)
    paths = gb.simulate(found.model, inputs=found.input, count=count, key=key)
    arrays[REFERENCE] = np.sort(found.outputs(paths.y).distance)
    return found


def compare_anew(name: str) -> None:
    """Ship the same network with a misfit check that is made anew."""
    shipped = gb.load(name)
    made_by = {"commit": describe_commit(RESULTS), "n_reference": _N_REFERENCE}
    found = compared_anew(shipped, n_reference=_N_REFERENCE)
    found = gb.Estimator({**found.header, "comparison": made_by}, found.arrays)
    half = any(phase.half for phase in RECIPES[name])
    prefix = "" if half else PREFIX
    found = rounded(found, shipped.header["settings"]["seed"], prefix)
    header = {**found.header, "bayes_risk": gb.bayes_risk(found)._asdict()}
    gb.Estimator(header, halved(found.arrays, prefix)).save(PRETRAINED / f"{name}{SUFFIX}")
    print(f"{name}: compared anew, Bayes risk {header['bayes_risk']['mean']:.4f}", flush=True)


def main() -> None:
    """Train what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RECIPES, []])
    parser.add_argument("--phase", type=int, default=1, help="Go on from the shipped file.")
    parser.add_argument("--compare", action="store_true", help="Make the misfit check anew, only.")
    arguments = parser.parse_args()
    for name in arguments.names or RECIPES:
        if arguments.compare:
            compare_anew(name)
        else:
            pretrain(name, arguments.phase)


if __name__ == "__main__":
    main()
