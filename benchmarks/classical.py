"""How good and how fast are the classical methods, on the paper's 100 signals?

    python benchmarks/classical.py [filter] [draws] [cme-growth2] [cme-growth1]
        [cme-particle] [psem] [cpf-saem] [profile]

Each writes a result of its own. `filter` and `draws` compare with the `particles` package, which
wants an older NumPy and so a Python of its own: `make bench-classical` makes it.
"""

import argparse
import contextlib
import functools
import importlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import greybayes as gb

gb.configure()

from machine import write_result  # noqa: E402

from greybayes.classical.methods import Progress, get_method  # noqa: E402
from greybayes.errors import Status  # noqa: E402
from greybayes.likelihood.measured import measured_batch  # noqa: E402
from greybayes.likelihood.monte_carlo import log_liks  # noqa: E402
from greybayes.likelihood.particle import Batch, Filter  # noqa: E402
from greybayes.reproduce.signals import TRUTHS  # noqa: E402

SEED = 1
PEER = Path(".venv-peer/bin/python")


def on_evaluation_set(
    result: str,
    method: str,
    model: str,
    folder: Path,
    settings: dict[str, Any],
    started_by_network: bool = False,
) -> None:
    """A method on the 100 signals of a model: seconds, errors, and what did not converge."""
    started = time.perf_counter()
    records = gb.read_records(folder / f"{model}_evaluation_100.mat")
    last = started

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.perf_counter() - last > 30:
            last = time.perf_counter()
            print(f"{last - started:.0f} s: {method}, {progress}", flush=True)

    chosen = get_method(method)
    # Chains then start from the shipped network's posterior and jump to draws of it; the network's
    # own millisecond is in the seconds.
    start = gb.load(model).estimate(records) if started_by_network else None
    estimates = chosen.run(model, records, key=SEED, settings=settings, start=start, watch=watch)
    seconds = time.perf_counter() - started
    errors = (np.array([estimate.mean for estimate in estimates]) - TRUTHS[model]) ** 2
    figures: dict[str, Any] = {
        "model": model,
        "method": method,
        "settings": estimates[0].settings,
        "records": len(records),
        "method_seconds": round(seconds, 1),
        "mse_mean": float(errors.mean()),
        "mse_standard_error": float(errors.mean(1).std() / np.sqrt(len(errors))),
        "mse_sum": float(errors.sum(1).mean()),
        "mse_per_parameter": errors.mean(0).tolist(),
        "not_ok": {
            record.name: estimate.status.value
            for record, estimate in zip(records, estimates, strict=True)
            if estimate.status is not Status.ok
        },
    }
    if method == "cme-mh":
        figures |= _chains(estimates)
    print(json.dumps({**figures, "settings": None}, indent=2))
    write_result(f"classical-{result}", SEED, started, figures)


def _chains(estimates: list[gb.Estimate]) -> dict[str, Any]:
    """What the chains of all records were like."""
    watched = [estimate.diagnostics for estimate in estimates]
    draws = np.array([estimate.samples.shape[1] for estimate in estimates])  # pyright: ignore
    ess = np.array([min(each["ess"].values()) for each in watched])
    return {
        "largest_r_hat": max(max(each["r_hat"].values()) for each in watched),
        "least_ess": float(ess.min()),
        "draws_of_a_chain": {"median": float(np.median(draws)), "most": int(draws.max())},
        "acceptance": float(np.mean([each["acceptance"] for each in watched])),
        "n_nodes": _sizes(watched, "n_nodes"),
        "n_particles": _sizes(watched, "n_particles"),
    }


def _sizes(watched: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """How many records have which size of their likelihood."""
    sizes = sorted(each[name] for each in watched if name in each)
    return {str(size): sizes.count(size) for size in dict.fromkeys(sizes)}


@contextlib.contextmanager
def peer() -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that has the `particles` package do a job."""
    if not PEER.exists():
        raise SystemExit(f"{PEER} is missing: run `make bench-classical`.")
    script = Path(__file__).with_name("peer_particles.py")
    pipe = subprocess.PIPE
    with subprocess.Popen([PEER, script], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(**job: Any) -> dict[str, Any]:
            print(json.dumps(job), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())  # pyright: ignore

        yield ask
        process.stdin.close()


def bootstrap_filter(folder: Path, n_particles: int = 500, rounds: int = 15) -> None:
    """Particle-steps a second of ours, 100 records at once, over the package's, one at a time."""
    import jax.random as jr

    started = time.perf_counter()
    model = gb.get_model("growth2")
    records = gb.read_records(folder / "growth2_evaluation_100.mat")
    y, u = measured_batch(model, records)
    thetas = np.tile(TRUTHS["growth2"], (len(y), 1))
    keys = jr.split(jr.key(SEED), len(y))

    def ours() -> np.ndarray:
        return log_liks(model, n_particles, Filter(), Batch(thetas, y, u, keys))

    ours()
    best: dict[str, float] = {"ours": np.inf, "particles": np.inf}
    theirs: list[float] = []
    with peer() as ask:
        for i in range(rounds):
            begun = time.perf_counter()
            log_lik = ours()
            best["ours"] = min(best["ours"], time.perf_counter() - begun)
            for _ in range(5):
                told = ask(job="filter", y=y[0, :, 0].tolist(), n_particles=n_particles, seed=i + 1)
                best["particles"] = min(best["particles"], told["seconds"])
                theirs.append(told["log_lik"])
    steps = y.shape[1] * n_particles
    speed = {"ours": len(y) * steps / best["ours"], "particles": steps / best["particles"]}
    figures = {
        "n_particles": n_particles,
        "particle_steps_per_second": speed,
        "ratio": speed["ours"] / speed["particles"],
        "log_lik_of_the_first": {"ours": float(log_lik[0]), "particles": float(np.mean(theirs))},
    }
    print(json.dumps(figures, indent=2))
    write_result("classical-filter", SEED, started, figures)


def effective_draws(folder: Path, n_records: int = 8, n_particles: int = 500) -> None:
    """Effective draws a second: ours on several records at once, and the package's PMMH on one.

    Theirs starts at the truth and counts every draw; ours starts at the prior, and its seconds
    include the burn-in and the choice of particles or nodes. Most of the compilation is done
    before, by a run that is shorter.
    """
    import arviz

    started = time.perf_counter()
    records = gb.read_records(folder / "growth2_evaluation_100.mat")[:n_records]

    def ours(**settings: Any) -> tuple[float, float]:
        run = functools.partial(get_method("cme-mh").run, "growth2", records, key=SEED)
        run(settings={**settings, "max_draws": 200})
        begun = time.perf_counter()
        found = run(settings=settings)
        ess = sum(min(estimate.diagnostics["ess"].values()) for estimate in found)
        return ess, time.perf_counter() - begun

    # Speed is what counts here, not whether all converge: some would take ten thousand draws.
    particles = {"proposal": "guided", "burn_in": 200, "max_draws": 600}
    found = {"ours, exact": ours(**EXACT), "ours, particles": ours(**particles)}
    with peer() as ask:
        told = ask(
            job="pmmh",
            y=records[0].y[:, 0].tolist(),
            n_particles=n_particles,
            n_draws=4000,
            start=TRUTHS["growth2"],
            seed=SEED,
        )
    draws = np.array(told["draws"])
    theirs = min(float(arviz.ess(column[None])) for column in draws.T)
    found["particles"] = theirs, told["seconds"]
    speed = {name: ess / seconds for name, (ess, seconds) in found.items()}
    figures = {
        "records": n_records,
        "effective_draws": {name: ess for name, (ess, _) in found.items()},
        "method_seconds": {name: seconds for name, (_, seconds) in found.items()},
        "effective_draws_per_second": speed,
        "ratio": {name: each / speed["particles"] for name, each in speed.items()},
    }
    print(json.dumps(figures, indent=2))
    write_result("classical-draws", SEED, started, figures)


# Where the time of a method goes: (module, function) of its parts.
PARTS = {
    "cme-mh": (("cme_mh", "_look"), ("posterior", "log_liks")),
    "psem": (("psem", "expect"), ("psem", "maximise")),
    "cpf-saem": (("cpf_saem", "_passed"), ("cpf_saem", "_updated")),
}


def profile(folder: Path, n_records: int = 8) -> None:
    """The share of each method's seconds in its parts, once everything is compiled."""
    started = time.perf_counter()
    jobs = {
        "cme-mh": ("growth2", {"proposal": "guided", "burn_in": 50, "max_draws": 150}),
        "psem": ("growth2", {}),
        "cpf-saem": ("growth1", {}),
    }
    figures: dict[str, Any] = {"records": n_records}
    for name, (model, settings) in jobs.items():
        records = gb.read_records(folder / f"{model}_evaluation_100.mat")[:n_records]
        run = functools.partial(get_method(name).run, model, records, settings=settings)
        run(key=SEED)
        spent: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            for home, part in PARTS[name]:
                module = importlib.import_module(f"greybayes.classical.{home}")
                timed = _timed(getattr(module, part), spent, part.strip("_"))
                stack.enter_context(mock.patch.object(module, part, timed))
            begun = time.perf_counter()
            run(key=SEED)
            total = time.perf_counter() - begun
        shares = {part: seconds / total for part, seconds in spent.items()}
        figures[name] = {"seconds": total, "shares": shares, "rest": 1 - sum(shares.values())}
    print(json.dumps(figures, indent=2))
    write_result("classical-profile", SEED, started, figures)


def _timed(part: Callable[..., Any], spent: dict[str, float], label: str) -> Callable[..., Any]:
    """The same function, which adds its seconds to `spent`."""
    import jax

    def timed(*given: Any) -> Any:
        begun = time.perf_counter()
        found = jax.block_until_ready(part(*given))
        spent[label] = spent.get(label, 0.0) + time.perf_counter() - begun
        return found

    return timed


EXACT = {"likelihood": "exact"}
# With 400 effective draws chance alone moves the error of M1 by a percent, half of its bar.
PRECISE = {**EXACT, "burn_in": 100, "min_ess": 2000.0}
# The paper's likelihood, helped by the network: from a start that good, 100 draws are enough to
# learn the walk.
PARTICLE = {"proposal": "guided", "burn_in": 100}
JOBS: dict[str, Callable[[Path], None]] = {
    "filter": bootstrap_filter,
    "draws": effective_draws,
    "cme-growth2": lambda data: on_evaluation_set("cme-growth2", "cme-mh", "growth2", data, EXACT),
    "cme-growth1": lambda data: on_evaluation_set(
        "cme-growth1", "cme-mh", "growth1", data, PRECISE, True
    ),
    "cme-particle": lambda data: on_evaluation_set(
        "cme-particle", "cme-mh", "growth2", data, PARTICLE, True
    ),
    "profile": profile,
    "psem": lambda data: on_evaluation_set("psem", "psem", "growth2", data, {}),
    "cpf-saem": lambda data: on_evaluation_set("cpf-saem", "cpf-saem", "growth1", data, {}),
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
