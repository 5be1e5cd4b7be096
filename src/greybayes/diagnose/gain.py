"""Does the gain of the plant depend on the amplitude of the input?

A model that fits one record may be wrong at another amplitude. On each record the measured output
is regressed on the simulated one; where the slope changes from record to record together with the
amplitude of u, the plant has a nonlinearity that the model lacks.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from greybayes.diagnose.output import Comparison

# What is worth a word: a change of the gain, in standard errors and as a share, and of the
# amplitude, as a share.
_ERRORS, _CHANGE, _LOUDER = 4.0, 0.1, 0.1


class Gain(NamedTuple):
    """The slope of an output on its simulation, on one record."""

    slope: float
    error: float
    """Its standard error, allowing for errors that have a memory."""
    amplitude: float
    """The standard deviation of the input."""


def gain(
    y: Float[np.ndarray, " steps"],
    simulated: Float[np.ndarray, " steps"],
    u: Float[np.ndarray, "steps input"] | None,
) -> Gain | None:
    """The slope of one output on its simulation; None where either hardly varies.

    >>> s = np.sin(np.arange(100.0))
    >>> round(gain(1.5 * s + 3.0, s, None).slope, 6)
    1.5
    """
    seen = ~np.isnan(y)
    if seen.sum() < 20:
        return None
    y, s = y[seen] - y[seen].mean(), simulated[seen] - simulated[seen].mean()
    energy = float(s @ s)
    if not (energy > 1e-12 * max(float(y @ y), 1e-300) and np.isfinite(energy)):
        return None
    slope = float(y @ s) / energy
    e = y - slope * s
    # Where errors and regressor have a memory, neighbours tell the same: Bartlett's correction.
    memory = float(np.clip(_lag_1(e) * _lag_1(s), 0.0, 0.99))
    variance = float(e @ e) / max(len(e) - 2, 1) / energy * (1 + memory) / (1 - memory)
    amplitude = 0.0 if u is None or not u.shape[1] else float(np.sqrt(u.var(0).sum()))
    return Gain(slope, float(np.sqrt(variance)), amplitude)


def _lag_1(values: Float[np.ndarray, " steps"]) -> float:
    energy = float(values @ values)
    return float(values[1:] @ values[:-1]) / energy if energy > 0 else 0.0


def gain_sentence(first: Comparison, others: Sequence[Comparison]) -> str | None:
    """What the gains of validation records say beside that of the estimation record, in a clause.

    None where the gain is the same everywhere, as far as the records tell.
    """
    for channel, output in enumerate(first.record.outputs):
        gains = [
            gain(each.record.y[:, channel], each.simulated[:, channel], each.record.u)
            for each in (first, *others)
        ]
        if gains[0] is None or gains[0].slope <= 0:
            continue
        rows = [(c, g) for c, g in zip(others, gains[1:], strict=True) if g is not None]
        changed = [(c, g) for c, g in rows if _differs(gains[0], g)]
        if changed:
            return _clause(output, gains[0], changed)
    return None


def _differs(own: Gain, other: Gain) -> bool:
    difference, error = abs(other.slope - own.slope), math.hypot(own.error, other.error)
    return difference > _ERRORS * error and difference > _CHANGE * own.slope


def _clause(output: str, own: Gain, changed: list[tuple[Comparison, Gain]]) -> str:
    louder = [g.amplitude / own.amplitude if own.amplitude else 1.0 for _, g in changed]
    change = [g.slope / own.slope for _, g in changed]
    with_u = [abs(a - 1) > _LOUDER for a in louder]
    told = ", ".join(
        f"{r:.2f} at {a:.2g} times the amplitude"
        if moved
        else f"{r:.2f} on {c.record.name or 'a validation record'}"
        for r, a, moved, (c, _) in zip(change, louder, with_u, changed, strict=True)
    )
    grows = {np.sign((r - 1) * (a - 1)) for r, a in zip(change, louder, strict=True)}
    if all(with_u) and len(grows) == 1:
        return (
            f"the gain of {output} depends on the amplitude of the input (measured over simulated, "
            f"relative to the first record: {told})"
        )
    return (
        f"the gain of {output} is not the same on all records (measured over simulated, relative "
        f"to the first: {told})"
    )
