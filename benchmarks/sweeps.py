"""What a Markov chain from the truth is worth to training: less noise for more work.

    python benchmarks/sweeps.py

How far what is learnt from lies from the exact conditional mean, after so many sweeps; what that
costs; and what a network has learnt after as many records, and after as many seconds.
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
N_RECORDS, BURN_IN, LONG = 2048, 400, 3000
SWEEPS = (20, 100, 300)
PATHS = 64_000
# As many without sweeps take about as long as those with a hundred.
MORE = 96_000


def noise(name: str) -> dict[str, dict[str, float]]:
    """Squared distance to the exact mean over the prior variance, averaged over parameters.

    Two long chains, independent once they have left the truth, stand for the exact mean: the
    product of the distances to both has the expectation of the square.
    """
    model = gb.get_model(name)
    paths = gb.simulate(model, count=N_RECORDS, key=SEED)
    x, y = (jnp.moveaxis(jnp.asarray(a), 0, -1) for a in (paths.x, paths.y))
    theta, u = jnp.asarray(paths.theta), jnp.asarray(paths.u[0])

    @jax.jit
    def long_mean(key):
        def sweep(carried, key):
            (theta, x), total = carried
            theta, x = model.sweep(key, theta, x, y, u)
            return ((theta, x), total + theta), None

        keys = jr.split(key, BURN_IN + LONG)
        start, _ = jax.lax.scan(sweep, ((theta.T, x), jnp.zeros_like(theta.T)), keys[:BURN_IN])
        begun = (start[0], jnp.zeros_like(theta.T))
        (_, total), _ = jax.lax.scan(sweep, begun, keys[BURN_IN:])
        return total.T / LONG

    first, second = (np.asarray(long_mean(jr.key(seed))) for seed in (SEED + 1, SEED + 2))

    def off(mean: np.ndarray) -> float:
        return float(((mean - first) * (mean - second) / model.prior.variance).mean())

    table = {"0": {"noise": off(paths.theta), "microseconds": 0.0}}
    for sweeps in SWEEPS:

        def thetas(key, sweeps=sweeps):
            return visited(model, key, sweeps, theta, x, y, u)

        compiled = jax.jit(thetas).lower(jr.key(SEED)).compile()
        started = time.perf_counter()
        found = np.asarray(compiled(jr.key(SEED)))
        microseconds = (time.perf_counter() - started) / N_RECORDS * 1e6
        table[str(sweeps)] = {"noise": off(found.mean(1)), "microseconds": microseconds}
    print(name, table, flush=True)
    return table


def learnt(paths: int, sweeps: int) -> dict[str, float]:
    """The risk of M2's network after so many records."""
    settings = {"network": "gated", "sweeps": sweeps}
    estimator = gb.train("growth2", steps=paths // 64, seed=SEED, settings=settings)
    risk = gb.bayes_risk(estimator)
    found = {"risk": risk.mean, "seconds": estimator.header["seconds"], "paths": paths}
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
