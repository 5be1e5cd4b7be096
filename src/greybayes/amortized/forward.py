"""The default network's forward pass in plain NumPy: an estimate without starting JAX.

Importing JAX takes longer than reading a record and estimating it. For the command line the same
arithmetic is written here a second time, from the named arrays of an estimator file; a test holds
it to the compiled one within 1e-5.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from greybayes.amortized import typical
from greybayes.amortized.faults import statistics
from greybayes.amortized.pyramid import Layer, Pyramid, inputs_of

Arrays = Mapping[str, np.ndarray]

# How many spreads of the prior an estimate may be from its middle, on the unconstrained line.
FARTHEST = 12.0


def can_run(header: Mapping[str, Any]) -> bool:
    """Whether the network, the head and the supports of an estimator are among those known here."""
    architecture = header["architecture"]
    return (
        architecture["network"] in _SUMMARISE
        and architecture["head"] in ("bounded", "posterior")
        and all(entry.get("support") in _INTO for entry in header["theta"])
    )


class Outputs(NamedTuple):
    """What a pass gives for each record; of what an estimator has not, none."""

    theta: Any
    raw: Any
    """The numbers of the mixture, see `mixture`."""
    distance: Any
    """How untypical it is, see `typical`."""


def outputs(
    header: Mapping[str, Any],
    arrays: Arrays,
    channels: Float[np.ndarray, "batch steps channel"],
    *,
    mean_only: bool = False,
) -> Outputs:
    """All that an estimator says of each record, or the mean alone."""
    architecture = header["architecture"]
    summary = _SUMMARISE[architecture["network"]](arrays, channels, header)
    first = np.maximum(_dense(arrays, "head.hidden[0]", summary), 0.0)
    theta = _theta(header["theta"], arrays, first)
    raw = distance = None
    if mean_only:
        return Outputs(theta, raw, distance)
    if architecture["head"] == "posterior":
        own = np.maximum(_dense(arrays, "head.own", first), 0.0)
        raw = _dense(arrays, "head.raw", own)
    if typical.can_check(arrays):
        plain = statistics(np, channels, len(header["outputs"]))
        distance = typical.distance(np, arrays, typical.Seen(summary, theta, plain))
    return Outputs(theta, raw, distance)


def _theta(
    entries: list[dict[str, Any]], arrays: Arrays, first: np.ndarray
) -> Float[np.ndarray, "batch param"]:
    """The estimate for each record."""
    out = _dense(arrays, "head.out", np.maximum(_dense(arrays, "head.hidden[1]", first), 0.0))
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


def _gated(arrays: Arrays, channels: np.ndarray, header: Mapping[str, Any]) -> np.ndarray:
    sizes = header["architecture"]["sizes"]

    def first(x: np.ndarray, cues: np.ndarray | None) -> np.ndarray:
        shift = arrays["network.first.bias"]
        if cues is not None:
            shift = shift + cues @ arrays["network.first_cue"]
        return _shifted(arrays, "network.first", x, shift)

    def layer(name: str) -> Layer:
        def gated(x: np.ndarray, context: np.ndarray, cues: np.ndarray | None) -> np.ndarray:
            hidden = np.maximum(_dense(arrays, f"{name}.context", context), 0.0)
            gain = 1.0 + hidden @ arrays[f"{name}.gain"]
            shift = _dense(arrays, f"{name}.shift", hidden)
            if cues is not None:
                gain = gain * (1.0 + cues @ arrays[f"{name}.cue.gain"])
                shift = shift + cues @ arrays[f"{name}.cue.shift"]
            return _shifted(arrays, name, x * gain, shift)

        return gated

    pyramid = Pyramid(
        first,
        [layer(f"network.steps[{i}]") for i in range(sizes["depth"] - 1)],
        layer("network.near"),
        [layer(f"network.pairs[{i}]") for i in range(sizes["levels"])],
        sizes["window"],
        sizes["pool"],
    )
    channels = channels.astype(np.float32)
    if "cues" not in sizes:
        return pyramid.summarise(np, channels)
    u = inputs_of(channels, len(header["inputs"]), one="input" in arrays)
    cues = pyramid.windows(np, u, sizes["reach"])
    for i in range(2):
        cues = np.maximum(_dense(arrays, f"network.cues.layers[{i}]", cues), 0.0)
    return pyramid.summarise(np, channels, cues)


def _windows(arrays: Arrays, channels: np.ndarray, header: Mapping[str, Any]) -> np.ndarray:
    sizes = header["architecture"]["sizes"]
    window, pool, early = (sizes[name] for name in ("window", "pool", "early"))
    n_steps = channels.shape[1]
    missing = -n_steps % pool
    total = n_steps + missing
    c = np.swapaxes(channels, 0, 1).astype(np.float32)
    c = np.pad(c, ((window - 1 + missing, 0), (0, 0), (0, 0)))
    f = np.concatenate([c[i : i + total] for i in range(window)], axis=-1)
    f = _pooled(np.maximum(_dense(arrays, "network.first", f), 0.0), early)
    for layer in range(sizes["depth"] - 1):
        f = _in_context(arrays, f"network.steps[{layer}]", f, f.mean(0))
    f = _pooled(f, pool // early)
    means = [f.mean(0)]
    for level in range(sizes["levels"]):
        f = f if level == 0 else _pooled(f, pool)
        before = np.pad(f[:-1], ((1, 0), (0, 0), (0, 0)))
        pairs = np.concatenate([f, before], axis=-1)
        f = _in_context(arrays, f"network.pairs[{level}]", pairs, f.mean(0))
        means.append(f.mean(0))
    return np.concatenate([*means, f[-1]], axis=-1)


def _in_context(arrays: Arrays, name: str, x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    context, bias = (arrays[f"{name}.{part}"] for part in ("context", "bias"))
    return _shifted(arrays, name, x, mean @ context + bias)


def _shifted(arrays: Arrays, name: str, x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """max(x W + shift, 0), as one large product."""
    product = x.reshape(-1, x.shape[-1]) @ arrays[f"{name}.weight"]
    return np.maximum(product.reshape(*x.shape[:2], -1) + shift, 0.0)


_SUMMARISE: dict[str, Callable[..., np.ndarray]] = {
    "windows": _windows,
    "gated": _gated,
    "cued": _gated,
}


def _pooled(f: np.ndarray, by: int) -> np.ndarray:
    f = np.pad(f, ((-f.shape[0] % by, 0), (0, 0), (0, 0)))
    return f.reshape(-1, by, *f.shape[1:]).mean(1)


def _dense(arrays: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _after(end: float, towards: float) -> np.float32:
    """The float32 next to an end of the support: an estimate is never on it."""
    return np.nextafter(np.float32(end), np.float32(towards))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
