"""Records with which something went wrong, and a small network that learns to tell them.

The faults are those of sensors and of models: whatever the model is, so is what can happen to its
records. Sizes are drawn over a wide range, most of them small enough to be overlooked.
"""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float

from greybayes.amortized import faults
from greybayes.drawing import clock, delayed
from greybayes.errors import EstimatorError, ModelError, nearest
from greybayes.simulation import Paths
from greybayes.structure import distribution

Outputs = Float[np.ndarray, "path steps output"]
KINDS = (
    "offset",
    "gain",
    "disturbance",
    "slow disturbance",
    "late",
    "dead",
    "another plant",
    "reversed",
    "another signal",
    "coloured noise",
    "louder noise",
)
"""All kinds of faults; the last two where an output is known without its noise."""
_HIDDEN, _BATCH, _EPOCHS, _RATE = 64, 512, 30, 2e-3
# Paths spoilt at a time: every kind of fault is made for all of them.
_TOGETHER = 1024


def spoil(paths: Paths, rng: np.random.Generator, without: Collection[str] = ()) -> Outputs:
    """The outputs of all paths, each spoilt by one fault of a random kind and size.

    Kinds that are named in `without` are left out: to measure how often a fault is found of which
    nothing was shown.
    """
    unknown = set(without) - set(KINDS)
    if unknown:
        raise EstimatorError(f"there is no fault {min(unknown)}; {nearest(min(unknown), KINDS)}")
    y, mean = paths.y.astype(float), _without_noise(paths)
    found = []
    for i in range(0, len(y), _TOGETHER):
        part = slice(i, i + _TOGETHER)
        kinds = _kinds(y[part], None if mean is None else mean[part], rng)
        shown = np.stack([spoilt for kind, spoilt in kinds.items() if kind not in without])
        count = shown.shape[1]
        found.append(shown[rng.integers(len(shown), size=count), np.arange(count)])
    return np.concatenate(found).astype(np.float32)


def _kinds(y: Outputs, mean: Outputs | None, rng: np.random.Generator) -> dict[str, Outputs]:
    """All records with each kind of fault, of random sizes."""
    count, n_steps, _ = y.shape
    size = (count, 1, 1)
    middle, spread = y.mean(1, keepdims=True), y.std(1, keepdims=True) + 1e-12
    sign = rng.choice([-1.0, 1.0], size)
    white = rng.normal(size=y.shape)
    memory = rng.uniform(0.4, 0.99, size)
    k = np.arange(n_steps)
    since = k[:, None] >= rng.uniform(0.05, 0.95, size) * n_steps
    last = np.maximum(since.argmax(1) - 1, 0)[:, :, None]
    late = (k - rng.integers(1, 4, (count, 1))) % n_steps

    def drawn(least: float, most: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(least), np.log(most), size))

    kinds = {
        "offset": y + sign * spread * drawn(0.2, 3.0),
        "gain": y * np.exp(sign * rng.uniform(0.3, 1.5, size)),
        "disturbance": y + white * spread * drawn(0.2, 2.0),
        "slow disturbance": y + _with_memory(white, memory) * spread * drawn(0.2, 2.0),
        "late": np.take_along_axis(y, late[:, :, None], axis=1),
        "dead": np.where(since, np.take_along_axis(y, last, axis=1), y),
        # A plant that is another one from then on.
        "another plant": np.where(since, np.roll(y, 1, axis=0), y),
        # Other dynamics: with this record's spectrum, and with nothing of it.
        "reversed": y[:, ::-1],
        "another signal": middle + spread * _with_memory(white, memory),
    }
    if mean is not None:
        kinds["coloured noise"] = mean + _with_memory(y - mean, memory)
        kinds["louder noise"] = mean + (y - mean) * np.sqrt(drawn(1.5, 30.0))
    return kinds


def _with_memory(noise: Outputs, memory: np.ndarray) -> Outputs:
    """AR(1) noise of the same variance."""
    found = noise.copy()
    for k in range(1, noise.shape[1]):
        new = np.sqrt(1 - memory[:, 0] ** 2) * noise[:, k]
        found[:, k] = memory[:, 0] * found[:, k - 1] + new
    return found


def _without_noise(paths: Paths) -> Outputs | None:
    """What would have been measured without noise; None for outputs that know no mean."""
    model = paths.model
    times = clock(model, paths.y.shape[1])

    def mean(theta, x, u):
        p = model.p(theta)
        found = jax.vmap(lambda x, u, t: distribution(model, "observation", x, u, p, t).mean)
        return found(x, delayed(model, u), times)

    try:
        return np.asarray(jax.jit(jax.vmap(mean))(paths.theta, paths.x, paths.u), float)
    except (ModelError, NotImplementedError, AttributeError):
        return None


def learn(
    good: Float[np.ndarray, "path feature"], bad: Float[np.ndarray, "spoilt feature"], seed: int
) -> dict[str, np.ndarray]:
    """A small network that tells features of spoilt records from those of the model."""
    # A user's own network may make no numbers of a record that is nothing like the model's.
    bad = bad[np.isfinite(bad).all(1)]
    middle, spread = good.mean(0), good.std(0) + 1e-6
    features = np.concatenate([good, bad])
    told = np.concatenate([np.zeros(len(good)), np.ones(len(bad))])
    n_batches = max(1, len(told) // _BATCH)
    rng = np.random.default_rng(seed)
    order = np.concatenate(
        [np.resize(rng.permutation(len(told)), (n_batches, _BATCH)) for _ in range(_EPOCHS)]
    )
    key_first, key_second = jr.split(jr.key(seed))
    n_in = features.shape[1]
    trained = {
        "first": jr.normal(key_first, (n_in, _HIDDEN)) * (2 / n_in) ** 0.5,
        "bias": jnp.zeros((2, _HIDDEN)),
        "second": jr.normal(key_second, (_HIDDEN, _HIDDEN)) * (2 / _HIDDEN) ** 0.5,
        "out": jnp.zeros(_HIDDEN),
    }
    fixed = {"middle": jnp.asarray(middle, jnp.float32), "spread": jnp.asarray(spread, jnp.float32)}
    found = _trained(trained, fixed, jnp.asarray(features, jnp.float32), told, order)
    return {
        f"typical.faults.{part}": np.asarray(array, np.float32)
        for part, array in {**fixed, **found}.items()
    }


@jax.jit
def _trained(trained: Any, fixed: Any, features: Any, told: Any, order: Any) -> Any:
    optimiser = optax.adamw(optax.cosine_decay_schedule(_RATE, len(order)), weight_decay=1e-3)

    def loss(trained, rows):
        named = {f"typical.faults.{part}": array for part, array in {**fixed, **trained}.items()}
        scores = faults.score(jnp, named, features[rows])
        return optax.sigmoid_binary_cross_entropy(scores, told[rows]).mean()

    def step(carried, rows):
        trained, moments = carried
        change, moments = optimiser.update(jax.grad(loss)(trained, rows), moments, trained)
        return (optax.apply_updates(trained, change), moments), None

    (trained, _), _ = jax.lax.scan(step, (trained, optimiser.init(trained)), order)
    return trained
