"""Train the estimators that the package ships, and write their measured risk into their files.

    taskset -c 0 python benchmarks/pretrain.py growth1 ...     (all where none is named)

Each on one core, two at a time: that is as fast as one after the other on two. The recipe of each
is below; seed, settings, seconds and history are in the file itself.
"""

import argparse
import dataclasses
import time

import greybayes as gb

gb.configure()

from machine import describe_commit, describe_machine  # noqa: E402

from greybayes.amortized.estimator import PRETRAINED, SUFFIX  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How long a model is trained, the sizes of its network where they differ, and the seed."""

    steps: int
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    seed: int = 1


RECIPES = {
    # Chosen before the table in docs/numerics.md was made, which speaks for three levels here too.
    "growth2": Recipe(200_000, {"early": 2, "levels": 1}),
    "growth1": Recipe(150_000, {"levels": 1}),
    "linear-gaussian": Recipe(16_000),
    "stochastic-volatility": Recipe(4_000),
    "van-der-pol": Recipe(4_000),
    "fir": Recipe(4_000),
    "lotka-volterra": Recipe(6_000),
    "sir": Recipe(4_000),
}


def pretrain(name: str, recipe: Recipe) -> None:
    """Train one estimator and ship it."""
    target = PRETRAINED / f"{name}{SUFFIX}"
    target.parent.mkdir(exist_ok=True)
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

    estimator = gb.train(
        name,
        steps=recipe.steps,
        seed=recipe.seed,
        settings={"sizes": recipe.sizes},
        checkpoint=target.with_name(target.name + ".partial"),
        watch=watch,
    )
    risk = gb.bayes_risk(estimator)
    header = {
        **estimator.header,
        "bayes_risk": risk._asdict(),
        "made_by": {"commit": describe_commit(), "machine": describe_machine()},
    }
    gb.Estimator(header, estimator.arrays).save(target)
    target.with_name(target.name + ".partial").unlink(missing_ok=True)
    print(f"{name}: Bayes risk {risk.mean:.4f} +- {risk.standard_error:.4f}", flush=True)


def main() -> None:
    """Train what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RECIPES, []])
    for name in parser.parse_args().names or RECIPES:
        pretrain(name, RECIPES[name])


if __name__ == "__main__":
    main()
