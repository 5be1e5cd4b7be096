"""The posterior of the network, and the exact one.

    python benchmarks/posterior.py [evaluation] [speed] [efficiency] [calibration] [cost] [sbi]

Each writes a result of its own. `sbi` trains the `sbi` package's neural posterior beside ours for
as long, in a Python of its own: `make bench-posterior` makes it.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import greybayes as gb

gb.configure()

from machine import RESULTS, write_result  # noqa: E402

from greybayes.classical.methods import Progress  # noqa: E402
from greybayes.refining import RUNGS  # noqa: E402
from greybayes.reproduce.signals import TRUTHS  # noqa: E402

SEED = 1
PEER = Path(".venv-sbi/bin/python")


def evaluation(folder: Path) -> None:
    """Refined estimates of the paper's 100 M2 signals: their error, and how each was reached."""
    started = last = time.perf_counter()

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.perf_counter() - last > 30:
            last = time.perf_counter()
            print(f"{last - started:.0f} s: {progress}", flush=True)

    records = gb.read_records(folder / "growth2_evaluation_100.mat")
    found = gb.refine("growth2", records, key=SEED, settings={"min_ess": 1000.0}, watch=watch)
    seconds = time.perf_counter() - started
    errors = (np.array([estimate.mean for estimate in found]) - TRUTHS["growth2"]) ** 2
    told = [estimate.diagnostics for estimate in found]
    figures = {
        "mse_mean": float(errors.mean()),
        "mse_standard_error": float(errors.mean(1).std() / np.sqrt(len(errors))),
        "refine_seconds": round(seconds, 1),
        "rungs": {rung: sum(each["rung"] == rung for each in told) for rung in RUNGS},
        "efficiency": _quantiles([each["ess"] / each["n_draws"] for each in told]),
        "k_hat": _quantiles([each["k_hat"] for each in told if "k_hat" in each]),
        "n_nodes": _quantiles([each.get("n_nodes", 0) for each in told]),
        "over_cme_mh": _over_cme_mh(float(errors.mean())),
    }
    _write("posterior-evaluation", started, figures)


def _over_cme_mh(mse: float) -> float | None:
    """The error over that of the chains of `benchmarks/classical.py`, where they were run."""
    path = RESULTS / "classical-cme-growth2.json"
    return mse / json.loads(path.read_text())["mse_mean"] if path.exists() else None


def speed(folder: Path, n_records: int = 8) -> None:
    """One record, warm; and effective draws a second of refine over CME-MH; the same records."""
    started = time.perf_counter()
    estimator = gb.load("growth2")
    records = gb.read_records(folder / "growth2_evaluation_100.mat")[:n_records]
    for record in records:
        gb.refine(estimator, record, key=SEED + 1)
    alone = []
    for record in records:
        begun = time.perf_counter()
        found = gb.refine(estimator, record, key=SEED + 1)
        alone.append((time.perf_counter() - begun, found.diagnostics["ess"]))
    seconds, ess = np.array(alone).T
    gb.refine(estimator, records, key=SEED + 1)
    begun = time.perf_counter()
    together = gb.refine(estimator, records, key=SEED + 1)
    ours = sum(e.diagnostics["ess"] for e in together) / (time.perf_counter() - begun)
    speeds = {"refine": ours}
    # Speed is what counts here, not whether all converge: some would take ten thousand draws.
    particle = {"proposal": "guided", "burn_in": 200, "max_draws": 600}
    ways = {"particle": particle, "exact": {"likelihood": "exact"}}
    for name, settings in ways.items():
        gb.cme_mh("growth2", records, key=SEED, settings={**settings, "max_draws": 200})
        begun = time.perf_counter()
        chains = gb.cme_mh("growth2", records, key=SEED, settings=settings)
        found = sum(min(e.diagnostics["ess"].values()) for e in chains)
        speeds[f"cme_mh, {name}"] = found / (time.perf_counter() - begun)
    figures = {
        "one_record_seconds": _quantiles(seconds),
        "one_record_ess": _quantiles(ess),
        "effective_draws_per_second": speeds,
        "refine_over": {name: ours / each for name, each in speeds.items()},
    }
    _write("posterior-speed", started, figures)


def efficiency(_: Path, count: int = 100) -> None:
    """Effective draws over draws on records of the prior."""
    started = time.perf_counter()
    records = list(gb.simulate("growth2", count=count, key=SEED + 10))
    found = gb.refine("growth2", records, key=SEED)
    shares = [e.diagnostics["ess"] / e.diagnostics["n_draws"] for e in found]
    rungs = [e.diagnostics["rung"] for e in found]
    figures = {
        "efficiency": _quantiles(shares),
        "rungs": {rung: rungs.count(rung) for rung in RUNGS},
    }
    _write("posterior-efficiency", started, figures)


def calibration(_: Path, n_draws: int = 10_000) -> None:
    """Coverage of the intervals of the shipped M1 and M2."""
    started = time.perf_counter()
    figures = {
        name: gb.calibration(gb.load(name), n_draws, SEED).to_dict()
        for name in ("growth1", "growth2")
    }
    _write("posterior-calibration", started, figures)


def cost(_: Path, steps: int = 1500) -> None:
    """What the posterior adds to the training of the mean, for as many steps, and to its risk."""
    started = time.perf_counter()
    figures: dict[str, Any] = {"steps": steps}
    for head in ("bounded", "posterior"):
        estimator = gb.train("growth2", steps=steps, seed=SEED, settings={"head": head})
        risk = gb.bayes_risk(estimator)._asdict()
        figures[head] = {"training_seconds": estimator.header["seconds"], "bayes_risk": risk}
    seconds = [figures[head]["training_seconds"] for head in ("posterior", "bounded")]
    figures["seconds_ratio"] = seconds[0] / seconds[1]
    _write("posterior-cost", started, figures)


def sbi(_: Path, minutes: float = 3.0, n_draws: int = 4000) -> None:
    """Ours and the `sbi` package's NPE, trained for as long one after the other, on both cores."""
    started = time.perf_counter()
    if not PEER.exists():
        raise SystemExit(f"{PEER} is missing: run `make bench-posterior`.")
    paths = gb.simulate("growth2", count=n_draws, key=SEED + 30)
    begun = time.perf_counter()
    estimator = gb.train("growth2", minutes=minutes, seed=SEED)
    seconds = time.perf_counter() - begun
    ours = _judged(
        paths,
        estimator.means(paths.y),
        [q.log_prob(t) for q, t in zip(estimator.posteriors(paths.y), paths.theta, strict=True)],
    )
    folder = Path("build/sbi")
    folder.mkdir(parents=True, exist_ok=True)
    test = folder / "test.npz"
    np.savez(test, y=paths.y[:, :, 0], theta=paths.theta)
    script = Path(__file__).with_name("peer_sbi.py")
    run = [str(PEER), str(script), str(test), str(folder / "out.npz"), str(seconds)]
    subprocess.run(run, check=True)
    told = np.load(folder / "out.npz")
    theirs = _judged(paths, told["means"], told["log_prob"])
    figures = {
        "training_seconds": {"ours": seconds, "sbi": float(told["seconds"])},
        "epochs_of_sbi": int(told["epochs"]),
        "ours": ours,
        "sbi": theirs,
        "log_density_gained": ours["log_density"] - theirs["log_density"],
        "risk_ratio": ours["bayes_risk"] / theirs["bayes_risk"],
    }
    _write("posterior-sbi", started, figures)


def _judged(paths: gb.Paths, means, log_prob) -> dict[str, float]:
    errors = ((means - paths.theta) ** 2 / paths.model.prior.variance).mean(1)
    n = np.sqrt(len(errors))
    return {
        "bayes_risk": float(errors.mean()),
        "bayes_risk_standard_error": float(errors.std() / n),
        "log_density": float(np.mean(log_prob)),
        "log_density_standard_error": float(np.std(log_prob) / n),
    }


def _quantiles(values: Any) -> dict[str, float]:
    least, median, most = np.quantile(np.asarray(values, float), [0.0, 0.5, 1.0])
    return {"least": float(least), "median": float(median), "most": float(most)}


def _write(name: str, started: float, figures: dict[str, Any]) -> None:
    print(json.dumps(figures, indent=2), flush=True)
    write_result(name, SEED, started, figures)


JOBS: dict[str, Callable[[Path], None]] = {
    "evaluation": evaluation,
    "speed": speed,
    "efficiency": efficiency,
    "calibration": calibration,
    "cost": cost,
    "sbi": sbi,
}


def main() -> None:
    """Do the jobs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    arguments = parser.parse_args()
    for name in arguments.jobs or JOBS:
        JOBS[name](arguments.data)


if __name__ == "__main__":
    main()
