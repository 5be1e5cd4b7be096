"""How good is training, and how fast? Risk after so many minutes, and our GRU beside PyTorch's.

python benchmarks/train.py speed growth2 growth1     (each may be named alone)
"""

import argparse
import time

import numpy as np

import greybayes as gb

gb.configure()

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.random as jr  # noqa: E402
import optax  # noqa: E402
from machine import interleaved, write_result  # noqa: E402

from greybayes.amortized import paper  # noqa: E402
from greybayes.amortized.training import BLOCK, Experiment, make_weights  # noqa: E402
from greybayes.simulation import resolve_inputs  # noqa: E402

MINUTES = {"growth2": 4.0, "growth1": 4.0}


def risk_after(name: str, seed: int) -> None:
    """Train for the minutes of the table and measure the Bayes risk."""
    started = time.perf_counter()
    estimator = gb.train(name, minutes=MINUTES[name], seed=seed)
    risk = gb.bayes_risk(estimator)
    settings = estimator.header["settings"]
    figures = {
        "model": name,
        "minutes": MINUTES[name],
        "training_seconds": estimator.header["seconds"],
        "paths": settings["steps"] * settings["batch"],
        "settings": settings,
        "bayes_risk": risk._asdict(),
    }
    print(write_result(f"train-{name}", seed, started, figures).read_text())


def speed(seed: int, batch: int = 256, rounds: int = 15) -> None:
    """Training sequences per second of the paper's GRU 2 x 40, ours beside PyTorch's."""
    from peers import torch_training_step

    started = time.perf_counter()
    model = gb.get_model("growth2")
    experiment = Experiment(model, *resolve_inputs(model, None, None))
    settings = paper.PaperSettings(batch=batch, seed=seed, devices=jax.device_count())
    weights = make_weights(experiment, settings.architecture, seed)
    arrays, static = eqx.partition(weights, eqx.is_inexact_array)
    optimiser = optax.adam(settings.learning_rate)
    steps = paper.make_steps(paper.as_it_is(experiment), static, optimiser, experiment, settings)
    state = [arrays, optimiser.init(arrays)]
    y = np.asarray(jr.normal(jr.key(seed), (BLOCK, batch, experiment.n_steps, 1)))
    theta = np.full((BLOCK, batch, 4), 0.5, np.float32)

    def ours() -> None:
        state[0], state[1], loss = steps(state[0], state[1], y, theta)
        jax.block_until_ready(loss)

    seconds = interleaved(
        {"ours": ours, "pytorch": torch_training_step(batch, experiment.n_steps)}, rounds
    )
    # Ours takes a block of batches at once.
    seconds["ours"] /= BLOCK
    figures = {
        "network": "GRU 2 x 40, dense 32",
        "batch": batch,
        "sequences_per_second": {name: round(batch / s) for name, s in seconds.items()},
        "ours_over_pytorch": round(seconds["pytorch"] / seconds["ours"], 2),
    }
    print(write_result("train-speed", seed, started, figures).read_text())


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["speed", "growth2", "growth1"])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for what in arguments.what:
        if what == "speed":
            speed(arguments.seed)
        else:
            risk_after(what, arguments.seed)


if __name__ == "__main__":
    main()
