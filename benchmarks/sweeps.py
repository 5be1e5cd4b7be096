"""What a Markov chain from the truth is worth to training: less noise for more work.

    python benchmarks/sweeps.py

How far what is learnt from lies from the conditional mean that the shipped network gives, after so
many sweeps; what that costs; and what a network has learnt after as many records, and after as many
seconds.
"""

import time

import greybayes as gb

gb.configure()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.random as jr  # noqa: E402
import numpy as np  # noqa: E402
from machine import write_result  # noqa: E402

from greybayes.amortized.visited import visited  # noqa: E402

SEED = 1
N_RECORDS = 8192
SWEEPS = (20, 100, 300)
PATHS = 64_000
# As many without sweeps take about as long as those with a hundred.
MORE = 96_000


def noise(name: str) -> dict[str, dict[str, float]]:
    """Squared distance to the shipped network over the prior variance, averaged over parameters.

    Each theta that is visited is an exact draw given the record, so this is the variance of what is
    learnt from, and how far the network is from the exact mean.
    """
    shipped = gb.load(name)
    model = shipped.model
    paths = gb.simulate(model, count=N_RECORDS, key=SEED)
    x, y = (jnp.moveaxis(jnp.asarray(a), 0, -1) for a in (paths.x, paths.y))
    theta, u = jnp.asarray(paths.theta), jnp.asarray(paths.u[0])
    near = shipped.means(paths.y)

    def off(mean: np.ndarray) -> dict[str, float]:
        each = ((mean - near) ** 2 / model.prior.variance).mean(1)
        return {
            "noise": float(each.mean()),
            "standard_error": float(each.std() / np.sqrt(N_RECORDS)),
        }

    table = {"0": off(paths.theta)}
    for sweeps in SWEEPS:

        def thetas(key, sweeps=sweeps):
            return visited(model, key, sweeps, theta, x, y, u)

        compiled = jax.jit(thetas).lower(jr.key(SEED)).compile()
        started = time.perf_counter()
        found = np.asarray(compiled(jr.key(SEED)))
        microseconds = (time.perf_counter() - started) / N_RECORDS * 1e6
        table[str(sweeps)] = {**off(found.mean(1)), "microseconds": microseconds}
    print(name, table, flush=True)
    return table


def learnt(paths: int, sweeps: int) -> dict[str, float]:
    """The risk of M2's network after so many records."""
    settings = {"network": "gated", "sweeps": sweeps}
    times = []
    estimator = gb.train(
        "growth2",
        steps=paths // 64,
        seed=SEED,
        settings=settings,
        watch=lambda progress: times.append(time.perf_counter()),
    )
    risk = gb.bayes_risk(estimator)
    # Without what is compiled, which is before the end of the first block.
    seconds = (times[-1] - times[0]) * len(times) / (len(times) - 1)
    found = {"risk": risk.mean, "seconds": round(seconds, 1), "paths": paths}
    print(sweeps, found, flush=True)
    return found


def main() -> None:
    """Measure all, write results/sweeps.json."""
    started = time.perf_counter()
    figures = {
        "records": N_RECORDS,
        "noise": {name: noise(name) for name in ("growth2", "growth1")},
        "learnt": {
            "truth": learnt(PATHS, 0),
            "truth, more records": learnt(MORE, 0),
            "100 sweeps": learnt(PATHS, 100),
        },
    }
    write_result("sweeps", SEED, started, figures)


if __name__ == "__main__":
    main()
