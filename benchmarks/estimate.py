"""How good and how fast are the shipped estimators?

Bayes risk (20,000 prior draws), `mse_mean` on the paper's 100 signals, the risk of
`linear-gaussian` over the exact one, and seconds: ours beside the paper's network in PyTorch, one
record, and the command as a whole process beside `import jax`.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import greybayes as gb

gb.configure()

from exact import exact_means  # noqa: E402
from machine import interleaved, write_result  # noqa: E402

from greybayes.amortized.estimator import PRETRAINED, SUFFIX  # noqa: E402
from greybayes.amortized.risk import risk_draws  # noqa: E402
from greybayes.reproduce.signals import TRUTHS  # noqa: E402


def evaluation(name: str, folder: Path) -> dict[str, float]:
    """Squared errors on the paper's 100 signals: mean and sum over parameters."""
    records = gb.read_records(folder / f"{name}_evaluation_100.mat")
    means = np.array([estimate.mean for estimate in gb.load(name).estimate(records)])
    errors = (means - TRUTHS[name]) ** 2
    return {"mse_mean": float(errors.mean()), "mse_sum": float(errors.sum(1).mean())}


def over_exact(count: int, seed: int) -> dict[str, float]:
    """The risk of `linear-gaussian` over that of the exact conditional mean, paired."""
    estimator = gb.load("linear-gaussian")
    paths = gb.simulate("linear-gaussian", count=count, key=seed)
    exact, efficiency = exact_means(paths.y[:, :, 0], paths.u[0, :, 0])
    variance = estimator.model.prior.variance
    risk = ((exact - paths.theta) ** 2 / variance).mean(1)
    excess = ((estimator.means(paths.y) - exact) ** 2 / variance).mean(1)
    # The error of the exact mean is uncorrelated with anything computed from y, so the excess
    # risk is the squared distance to it; taken so, most of the Monte Carlo error cancels.
    return {
        "exact_risk": float(risk.mean()),
        "exact_risk_standard_error": float(risk.std() / np.sqrt(count)),
        "ratio": float(1 + excess.mean() / risk.mean()),
        "ratio_standard_error": float(excess.std() / np.sqrt(count) / risk.mean()),
        "least_effective_share": float(efficiency.min()),
        "draws": count,
    }


def above_exact(name: str, count: int) -> dict[str, float]:
    """How far a network's means are from the exact ones, which `refine` gives: its excess risk.

    On the first of the draws with which the Bayes risk is measured, so that what those draws happen
    to be like does not count.
    """
    estimator = gb.load(name)
    # All of them: those of a smaller number are others.
    records = list(next(risk_draws(estimator, 20_000)))[:count]
    exact, fast = (
        np.array([each.mean for each in found])
        for found in (gb.refine(estimator, records), estimator.estimate(records))
    )
    squares = (fast - exact) ** 2 / estimator.model.prior.variance
    each = squares.mean(1)
    risk = gb.bayes_risk(estimator).mean
    return {
        "excess": float(each.mean()),
        "excess_standard_error": float(each.std() / np.sqrt(count)),
        "exact_risk_of_the_fixed_draws": float(risk - each.mean()),
        "draws": count,
    }


def products(estimator: gb.Estimator, rows: int = 5000) -> dict[str, float]:
    """The least milliseconds for the means of 100 records: the products of the gated network alone.

    At the speed that NumPy has on one core for its largest ones, on all cores at once.
    """
    header = estimator.header
    assert header["architecture"]["network"] in ("gated", "cued")
    sizes, n_steps = header["architecture"]["sizes"], estimator.n_steps

    def positions(name: str) -> int:
        """How often an array is multiplied with, for one record."""
        if re.fullmatch(r"network\.(first|steps\[\d+\])\.weight", name):
            return n_steps
        level = re.fullmatch(r"network\.(?:near|pairs\[(\d+)\])\.weight", name)
        if level:
            return -(-n_steps // sizes["pool"] ** (int(level[1] or 0) + 1))
        is_of_mean = re.match(r"network|head\.(hidden|out)", name)
        # Cues are the same for all records: they are constants of a pass.
        return int(bool(is_of_mean) and not name.endswith("bias") and "cue" not in name)

    count = sum(positions(name) * array.size for name, array in estimator.arrays.items())
    width = sizes["width"]
    code = (
        "import sys, time, numpy as np\n"
        f"x, w = np.ones(({rows}, {width}), 'f'), np.ones(({width}, {width}), 'f')\n"
        "def seconds():\n"
        "    start = time.perf_counter(); x @ w; return time.perf_counter() - start\n"
        "print(min(seconds() for _ in range(500)))"
    )
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=alone)
    speed = 2 * rows * width * width / float(run.stdout) / 1e9
    return {
        "million_multiplications_per_record": round(count / 1e6, 2),
        "gflops_of_a_core": round(speed, 1),
        "least_milliseconds_for_100_records": round(
            2 * 100 * count / speed / jax.device_count() / 1e6, 2
        ),
    }


def seconds_of_processes(rounds: int) -> dict[str, float]:
    """`greybayes estimate growth2 file.csv` beside `python -c "import jax"`, whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.csv"
        gb.write_records(file, gb.simulate("growth2", key=1)[0])
        commands = {
            "estimate": [sys.executable, "-m", "greybayes", "estimate", "growth2", str(file)],
            "import jax": [sys.executable, "-c", "import jax"],
        }
        return interleaved(
            {
                name: lambda command=command: subprocess.run(
                    command, check=True, capture_output=True
                )
                for name, command in commands.items()
            },
            rounds,
        )


def main() -> None:
    """Measure everything, write results/estimate.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--draws", type=int, default=200_000, help="For a sharper risk, M1 and M2.")
    parser.add_argument("--exact", type=int, default=240, help="Draws that are refined, too.")
    arguments = parser.parse_args()
    from peers import torch_inference

    started = time.perf_counter()
    shipped = sorted(file.stem for file in PRETRAINED.glob(f"*{SUFFIX}"))
    growth2 = gb.load("growth2")
    paths = gb.simulate("growth2", count=100, key=arguments.seed)
    records = list(paths)
    seconds = interleaved(
        {
            "100 records, mean alone": lambda: growth2.estimate(records, mean_only=True),
            "100 records, posterior and check": lambda: growth2.estimate(records),
            "100 records, PyTorch GRU 2 x 40": torch_inference(paths.y),
            "one record, mean alone": lambda: growth2.estimate(records[0], mean_only=True),
        },
        arguments.rounds,
        burst=10,
        pause=0.5,
    )
    processes = seconds_of_processes(max(3, arguments.rounds // 3))
    figures = {
        "bayes_risk": {name: gb.bayes_risk(gb.load(name))._asdict() for name in shipped},
        "bayes_risk_of_more_draws": {
            name: gb.bayes_risk(gb.load(name), n_draws=arguments.draws)._asdict() for name in TRUTHS
        },
        "training_seconds": {name: gb.load(name).training_seconds for name in shipped},
        "evaluation": {name: evaluation(name, arguments.data) for name in TRUTHS},
        "linear_gaussian": over_exact(1000, arguments.seed),
        "above_exact": {"growth2": above_exact("growth2", arguments.exact)},
        "milliseconds": {name: round(1000 * time, 3) for name, time in seconds.items()},
        "products": products(growth2),
        "pytorch_over_ours_100_records": round(
            seconds["100 records, PyTorch GRU 2 x 40"] / seconds["100 records, mean alone"], 1
        ),
        "process_seconds": processes,
        "estimate_process_over_import_jax": round(
            processes["estimate"] / processes["import jax"], 2
        ),
    }
    print(write_result("estimate", arguments.seed, started, figures).read_text())


if __name__ == "__main__":
    main()
