"""Which density should the posterior head have? A mixture of normals against a spline flow.

    python benchmarks/heads.py

Both read the same summaries of the shipped `growth2` network, on the same line, with layers of the
same width, and are trained on the same simulations with as many steps. What counts is how sharp
they are (log-density of the true theta), whether their intervals hold, how many of their draws
refine keeps, and what a step costs. flowjax is not a dependency: `make bench-posterior` puts it
into `.venv-flow`.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import greybayes as gb

gb.configure()

from machine import write_result  # noqa: E402

from greybayes.amortized.heads import MeanAndPosterior  # noqa: E402
from greybayes.amortized.loop import seen_of  # noqa: E402
from greybayes.amortized.mixture import log_density, unpack  # noqa: E402
from greybayes.likelihood.many import ManyLogLiks  # noqa: E402
from greybayes.likelihood.measured import measured_batch  # noqa: E402

SEED = 1
N_TRAINING, N_TEST, N_REFINED, N_DRAWS = 200_000, 2000, 40, 512
STEPS, BATCH = 4000, 512


def mixture_of(head: MeanAndPosterior) -> Callable[[Any, Any], Any]:
    """The log-density of z given a summary."""

    def log_prob(z, summary):
        raw = head.mixture(summary[None])[0]
        return log_density(jnp, unpack(jnp, raw, head.n_components, len(z)), z)

    return log_prob


def flow_of(flow: Any) -> Callable[[Any, Any], Any]:
    """The same of a flow."""
    return lambda z, summary: flow.log_prob(z, summary)


def spline_flow(n_summary: int, size: int) -> Any:
    """Four coupling layers of rational quadratic splines, as wide as our head."""
    sys.path.append(".venv-flow")
    from flowjax.bijections import RationalQuadraticSpline  # pyright: ignore
    from flowjax.distributions import Normal  # pyright: ignore
    from flowjax.flows import coupling_flow  # pyright: ignore

    return coupling_flow(
        jr.key(SEED),
        base_dist=Normal(jnp.zeros(size)),
        transformer=RationalQuadraticSpline(knots=8, interval=5),
        cond_dim=n_summary,
        flow_layers=4,
        nn_width=128,
    )


def trained(module: Any, log_prob_of: Callable[[Any], Any], z, summaries) -> tuple[Any, float]:
    """Maximum likelihood with Adam and a cosine; the module, and milliseconds of a step."""
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, STEPS))
    )

    def loss(weights, z, summary):
        return -jax.vmap(log_prob_of(eqx.combine(weights, rest)))(z, summary).mean()

    @jax.jit
    def block(weights, state, start):
        def step(carried, i):
            weights, state = carried
            rows = jr.randint(jr.fold_in(jr.key(SEED), i), (BATCH,), 0, len(z))
            value, gradient = jax.value_and_grad(loss)(weights, z[rows], summaries[rows])
            change, state = optimiser.update(gradient, state)
            return (eqx.apply_updates(weights, change), state), value

        return jax.lax.scan(step, (weights, state), start + jnp.arange(500))

    state, seconds = optimiser.init(weights), []
    for start in range(0, STEPS, 500):
        begun = time.perf_counter()
        (weights, state), values = jax.block_until_ready(block(weights, state, start))
        seconds.append(time.perf_counter() - begun)
        print(f"step {start + 500}: {float(values.mean()):.4f}", flush=True)
    return eqx.combine(weights, rest), 2 * min(seconds)


def efficiency(
    model: gb.Model, records: list[gb.Record], thetas: np.ndarray, log_prob: np.ndarray
) -> np.ndarray:
    """Effective draws over draws of each record, with the likelihood on nodes."""
    many = ManyLogLiks(model, measured_batch(model, records))
    many.choose(thetas[:, :24], jr.key(SEED), 0.3)
    log_w = many.at(thetas, np.arange(len(thetas)), jr.key(SEED)) - log_prob
    w = np.exp(log_w - log_w.max(1, keepdims=True))
    return w.sum(1) ** 2 / (w**2).sum(1) / w.shape[1]


def judged(
    log_prob: Callable[[Any, Any], Any], draw: Callable[..., Any], test: gb.Paths, z, summaries
) -> dict[str, Any]:
    """What a head is worth: `log_prob(z, summary)` and `draw(key, summary, n)`, on the line."""
    line = gb.load("growth2").line
    assert line is not None
    found = np.asarray(jax.jit(jax.vmap(log_prob))(z, summaries))
    keys = jr.split(jr.key(SEED), len(z))

    def drawn(count: int, n: int) -> np.ndarray:
        given = keys[:count], summaries[:count]
        return np.asarray(jax.lax.map(lambda g: draw(*g, n), given, batch_size=50))

    samples, _ = line.from_line(np, drawn(len(z), 199).astype(float))
    few = drawn(N_REFINED, N_DRAWS)
    of_each = jax.jit(jax.vmap(jax.vmap(log_prob, in_axes=(0, None))))
    known = np.asarray(of_each(few, summaries[:N_REFINED]), float)
    thetas, log_det = line.from_line(np, few.astype(float))
    shares = efficiency(test.model, list(test)[:N_REFINED], thetas, known - log_det)
    return {
        "log_density": float(found.mean()),
        "log_density_standard_error": float(found.std() / np.sqrt(len(found))),
        "largest_gap": gb.Calibration.from_samples(test.theta, samples).largest_gap,
        "efficiency": {"median": float(np.median(shares)), "least": float(shares.min())},
    }


def main() -> None:
    """Train and judge both."""
    started = time.perf_counter()
    estimator = gb.load("growth2")
    line, prior = estimator.line, estimator.model.prior
    assert line is not None
    sets = []
    for key, count in ((SEED + 40, N_TRAINING), (SEED + 41, N_TEST)):
        paths = gb.simulate("growth2", count=count, key=key)
        summaries = seen_of(estimator.weights, estimator.scaling, paths.y, paths.u).summaries
        sets.append((paths, line.to_line(np, paths.theta.astype(float)), summaries))
    (_, z, summaries), (test, z_test, summaries_test) = sets
    centre, spread = summaries.mean(0), summaries.std(0) + 1e-6
    z, summaries, z_test, summaries_test = (
        jnp.asarray(a, jnp.float32)
        for a in (z, (summaries - centre) / spread, z_test, (summaries_test - centre) / spread)
    )
    n_summary, figures = summaries.shape[1], {}

    head, cost = trained(MeanAndPosterior(n_summary, prior, jr.key(SEED)), mixture_of, z, summaries)

    def from_mixture(key, summary, n):
        parts = unpack(jnp, head.mixture(summary[None])[0], head.n_components, prior.size)
        return sampled(key, parts, n)

    told = judged(mixture_of(head), from_mixture, test, z_test, summaries_test)
    figures["mixture"] = {**told, "milliseconds_a_step": cost}

    flow, cost = trained(spline_flow(n_summary, prior.size), flow_of, z, summaries)
    told = judged(
        flow_of(flow), lambda k, s, n: flow.sample(k, (n,), s), test, z_test, summaries_test
    )
    figures["spline flow"] = {**told, "milliseconds_a_step": cost}
    print(json.dumps(figures, indent=2))
    settings = {"steps": STEPS, "batch": BATCH, "simulations": N_TRAINING}
    write_result("heads", SEED, started, {**settings, **figures})


def sampled(key, parts, n: int):
    """Draws of a mixture on the line."""
    log_share, centre, log_diagonal, below = parts
    size = centre.shape[-1]
    key_share, key_noise = jr.split(key)
    chosen = jr.categorical(key_share, log_share, shape=(n,))
    rows, columns = np.tril_indices(size, -1)
    root = jax.vmap(jnp.diag)(jnp.exp(log_diagonal)).at[:, rows, columns].set(below)
    noise = jr.normal(key_noise, (n, size, 1))
    off = jax.scipy.linalg.solve_triangular(root[chosen], noise, lower=True)
    return centre[chosen] + off[..., 0]


if __name__ == "__main__":
    main()
