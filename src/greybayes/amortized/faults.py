"""Does a record look like one that something went wrong with? A small network was shown many.

It reads the summary of a record and a few plain statistics of its channels, and gives a score: the
higher, the more it looks like a spoilt record (see `spoilt`) and the less like one of the model.
NumPy or JAX arrays alike.
"""

from collections.abc import Mapping
from typing import Any

NAMES = tuple(
    f"typical.faults.{part}" for part in ("middle", "spread", "first", "bias", "second", "out")
)
"""The arrays from which a score is computed."""
# Autocorrelations up to this lag, and correlations with the inputs and their squares.
_LAGS = 4
# Of a statistic that is the same in all of them.
_LEAST = 1e-3
# A score looks no farther than so many standard deviations of simulated records.
_FARTHEST = 8.0


def statistics(xp: Any, channels: Any, n_outputs: int) -> Any:
    """Plain statistics of the channels (y, mask, u) of each record, `(batch, statistic)`.

    Of every output the mean, spread, roughness, autocorrelations, skewness and tails, and its
    correlation with every input and the square of it, at the same time and later.
    """
    n_steps = channels.shape[1]
    y, u = channels[..., :n_outputs], channels[..., 2 * n_outputs :]
    middle, spread = y.mean(1, keepdims=True), y.std(1, keepdims=True) + 1e-6
    z = (y - middle) / spread

    def later(v: Any, lag: int) -> Any:
        """The correlation of v with y, so many samples later; 0 in a record that is shorter."""
        lag = min(lag, n_steps)
        return (z[:, lag:] * v[:, : n_steps - lag]).sum(1) / n_steps

    rough = xp.abs(y[:, 1:] - y[:, :-1]).sum(1) / n_steps
    found = [middle[:, 0], xp.log(spread[:, 0]), xp.log(rough + 1e-6)]
    found += [(z**3).mean(1), xp.log((z**4).mean(1) + 1e-6)]
    found += [later(z, lag) for lag in range(1, _LAGS + 1)]
    for i in range(u.shape[-1]):
        for driving in (u[..., i : i + 1], u[..., i : i + 1] ** 2):
            v = driving - driving.mean(1, keepdims=True)
            v = v / (driving.std(1, keepdims=True) + 1e-6)
            found += [later(v, lag) for lag in range(_LAGS + 1)]
    return xp.concatenate(found, axis=-1)


def score(xp: Any, arrays: Mapping[str, Any], features: Any) -> Any:
    """How much each record looks like a spoilt one; `features` are summary and statistics."""
    middle, spread, first, bias, second, out = (arrays[name] for name in NAMES)
    z = xp.clip((features - middle) / spread, -_FARTHEST, _FARTHEST)
    hidden = xp.maximum(z @ first + bias[0], 0.0)
    return xp.maximum(hidden @ second + bias[1], 0.0) @ out


def beyond(xp: Any, arrays: Mapping[str, Any], statistics: Any) -> Any:
    """How far the oddest statistic of each record is from simulated ones: 1 is where a score ends.

    A network, too, may say the same of all that is far enough off.
    """
    middle, spread = (arrays[name][-statistics.shape[-1] :] for name in NAMES[:2])
    return xp.abs((statistics - middle) / xp.maximum(spread, _LEAST)).max(-1) / _FARTHEST
