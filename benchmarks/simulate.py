"""How fast is the simulator? Paths per second, beside two ways of doing without it, in one run.

(a) the paper's way: one path after the other, a Python loop over the steps (for the coupled drives
scipy.signal on each path); (b) NumPy vectorised over paths, float32, one thread, its best batch.
Noise and thetas are drawn inside the measured time by all of them. It also measures what the
simulator cannot do without, the normal numbers alone, and says how far it is from that.
"""

import argparse
import time

import numpy as np

import greybayes as gb

gb.configure()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.random as jr  # noqa: E402
from machine import interleaved, write_result  # noqa: E402
from scipy import signal  # noqa: E402

from greybayes._lanes import lane_keys  # noqa: E402
from greybayes.drawing import draw_block  # noqa: E402

N_STEPS = 200


def growth2_loop(rng: np.random.Generator, n_steps: int = N_STEPS) -> np.ndarray:
    """One path of M2 as a Python loop."""
    theta2, theta6, theta7, theta8 = rng.uniform((0, 0.1, 0, 0), (1, 2, 1, 1))
    x, y = 0.0, np.empty(n_steps)
    for k in range(n_steps):
        y[k] = theta6 * x**2 + np.sqrt(theta8) * rng.standard_normal()
        x = theta2 * x / (0.04 * x**2 + 1) + np.cos(1.2 * (k + 1))
        x += np.sqrt(theta7) * rng.standard_normal()
    return y


def growth2_vectorised(rng: np.random.Generator, count: int) -> np.ndarray:
    """Many paths of M2, a step at a time, in float32."""
    f32 = np.float32
    theta2, theta6, theta7, theta8 = (
        low + (high - low) * rng.random(count, dtype=f32)
        for low, high in ((f32(0), f32(1)), (f32(0.1), f32(2)), (f32(0), f32(1)), (f32(0), f32(1)))
    )
    u = np.cos(1.2 * np.arange(1, N_STEPS + 1)).astype(f32)
    q, r = np.sqrt(theta7), np.sqrt(theta8)
    x, y = np.zeros(count, f32), np.empty((N_STEPS, count), f32)
    for k in range(N_STEPS):
        square = x * x
        y[k] = theta6 * square + r * rng.standard_normal(count, dtype=f32)
        x = theta2 * x / (f32(0.04) * square + f32(1)) + u[k]
        x += q * rng.standard_normal(count, dtype=f32)
    return y


def drives_scipy(rng: np.random.Generator, u: np.ndarray) -> np.ndarray:
    """One path of the coupled drives with scipy.signal."""
    center = np.array([2.058, 5.347, 19.62, 0.1205])
    gain, alpha, omega0, xi = rng.uniform(0.8 * center, 1.2 * center)
    denominator = np.polymul([1, alpha], [1, 2 * xi * omega0, omega0**2])
    system = signal.TransferFunction([gain * alpha * omega0**2], denominator)
    _, x, _ = signal.lsim(system, u, 0.02 * np.arange(len(u)), interp=False)
    return np.abs(x) + np.sqrt(rng.uniform(0, 0.01)) * rng.standard_normal(len(u))


def ours(name: str, count: int):
    """A job that draws `count` paths, thetas and all, and leaves them on the devices."""
    model = gb.get_model(name)
    assert model.design is not None
    u = model.design.draw(jr.key(0), model.n_steps, model.dt)
    lanes = np.arange(count, dtype=np.uint32)
    keys = iter(jr.split(jr.key(1), 1000))

    def job():
        return jax.block_until_ready(
            draw_block(model, None, model.n_steps, False, lanes, None, u, next(keys))
        )

    return job


def normals_alone(count: int):
    """A job that draws the two normals a step of M2 needs, and adds them up: the floor."""
    from jax.sharding import Mesh, PartitionSpec

    def on_device(lanes, key):
        def step(total, key):
            draw = jax.vmap(lambda key: jr.normal(key, (1,)), out_axes=-1)
            one, two = (draw(lane_keys(half, lanes)) for half in key)
            return total + one * two, None

        return jax.lax.scan(step, jnp.zeros((1, lanes.size)), jr.split(key, (N_STEPS, 2)))[0]

    split = PartitionSpec("paths")
    mesh = Mesh(jax.devices(), ("paths",))
    run = jax.jit(
        jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(split, PartitionSpec()),
            out_specs=PartitionSpec(None, "paths"),
            check_vma=False,
        )
    )
    lanes = np.arange(count, dtype=np.uint32)
    return lambda: jax.block_until_ready(run(lanes, jr.key(2)))


def main() -> None:
    """Measure, print the ratios, write results/simulate.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    rng = np.random.default_rng(arguments.seed)
    count, loops = arguments.count, 20
    drives = gb.get_model("coupled-drives")
    assert drives.design is not None
    u = np.asarray(drives.design.draw(jr.key(0), drives.n_steps, drives.dt))[:, 0]
    batches = (1024, 4096, 16384, 65536)
    paths = {
        "growth2 ours": (count, ours("growth2", count)),
        "growth2 loop": (loops, lambda: [growth2_loop(rng) for _ in range(loops)]),
        "normals alone": (count, normals_alone(count)),
        "coupled-drives ours": (count, ours("coupled-drives", count)),
        "coupled-drives scipy": (loops, lambda: [drives_scipy(rng, u) for _ in range(loops)]),
    }
    for batch in batches:
        paths[f"growth2 vectorised {batch}"] = (
            batch,
            lambda batch=batch: growth2_vectorised(rng, batch),
        )
    seconds = interleaved({name: job for name, (_, job) in paths.items()}, arguments.rounds)
    speed = {name: paths[name][0] / seconds[name] for name in paths}
    vectorised = max(speed[f"growth2 vectorised {batch}"] for batch in batches)
    speed["growth2 vectorised, best"] = vectorised
    figures = {
        "devices": jax.device_count(),
        "paths_per_second": {name: round(value) for name, value in speed.items()},
        "growth2_over_loop": round(speed["growth2 ours"] / speed["growth2 loop"], 1),
        "growth2_over_vectorised": round(speed["growth2 ours"] / vectorised, 2),
        "coupled_drives_over_scipy": round(
            speed["coupled-drives ours"] / speed["coupled-drives scipy"], 1
        ),
        "share_of_the_limit_set_by_normals": round(
            speed["growth2 ours"] / speed["normals alone"], 2
        ),
    }
    path = write_result("simulate", arguments.seed, started, figures)
    print(path.read_text())


if __name__ == "__main__":
    main()
