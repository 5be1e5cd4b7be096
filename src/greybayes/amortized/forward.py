"""The default network's forward pass in plain NumPy: an estimate without starting JAX.

Importing JAX takes longer than reading a record and estimating it. For the command line the same
arithmetic is written here a second time, from the named arrays of an estimator file; a test holds
it to the compiled one within 1e-5.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

Arrays = Mapping[str, np.ndarray]

# How many spreads of the prior an estimate may be from its middle, on the unconstrained line.
FARTHEST = 12.0


def can_run(header: Mapping[str, Any]) -> bool:
    """Whether the network, the head and the supports of an estimator are among those known here."""
    architecture = header["architecture"]
    return (
        architecture["network"] == "windows"
        and architecture["head"] == "bounded"
        and all(entry["support"] is not None for entry in header["theta"])
    )


def theta(
    header: Mapping[str, Any], arrays: Arrays, channels: Float[np.ndarray, "batch steps channel"]
) -> Float[np.ndarray, "batch param"]:
    """The estimate for each record."""
    summary = _summarise(arrays, channels, header["network"]["window"], header["network"]["pool"])
    for layer in ("head.hidden[0]", "head.hidden[1]"):
        summary = np.maximum(_dense(arrays, layer, summary), 0.0)
    out = _dense(arrays, "head.out", summary)
    entries = header["theta"]
    location, spread = (
        np.array([e[name] for e in entries], np.float32) for name in ("location", "spread")
    )
    free = location + spread * np.clip(out, -FARTHEST, FARTHEST)
    columns = [
        _INTO[entry["support"]](free[:, i], *entry["bounds"]) for i, entry in enumerate(entries)
    ]
    return np.stack(columns, axis=1)


_INTO: dict[str, Callable[..., np.ndarray]] = {
    "real": lambda free: free,
    "above": lambda free, low: np.maximum(low + np.exp(free), _after(low, np.inf)),
    "interval": lambda free, low, high: np.clip(
        low + (high - low) * _sigmoid(free), _after(low, np.inf), _after(high, -np.inf)
    ),
}


def _summarise(arrays: Arrays, channels: np.ndarray, window: int, pool: int) -> np.ndarray:
    batch, n_steps, _ = channels.shape
    missing = -n_steps % pool
    total = n_steps + missing
    c = np.swapaxes(channels, 0, 1).astype(np.float32)
    c = np.pad(c, ((window - 1 + missing, 0), (0, 0), (0, 0)))
    f = np.concatenate([c[i : i + total] for i in range(window)], axis=-1).reshape(
        total * batch, -1
    )
    layer = 0
    while f"network.steps[{layer}].weight" in arrays:
        f = np.maximum(_dense(arrays, f"network.steps[{layer}]", f), 0.0)
        layer += 1
    f = f.reshape(total // pool, pool, batch, -1).mean(1)
    gates = [_dense(arrays, f"network.gates[{i}]", f) for i in range(2)]
    w_z, w_n = (arrays[f"network.recurrent[{i}]"] for i in range(2))
    h, mean = np.zeros((batch, f.shape[-1]), np.float32), 0.0
    for z, n in zip(*gates, strict=True):
        z, n = _sigmoid(z + h @ w_z), np.tanh(n + h @ w_n)
        h = n + z * (h - n)
        mean = mean + h / len(f)
    return np.concatenate([f.mean(0), h, mean], axis=-1)


def _dense(arrays: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _after(end: float, towards: float) -> np.float32:
    """The float32 next to an end of the support: an estimate is never on it."""
    return np.nextafter(np.float32(end), np.float32(towards))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
