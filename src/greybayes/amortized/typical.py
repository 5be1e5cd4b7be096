"""Is a record one that the model and its prior can have made? A check that costs next to nothing.

The network's summary of a record is compared with those of simulated records: how far is it from
what records with such an estimate have? That looks in all directions alike. A second look asks
whether it is like one of many faults, see `faults`, and a third whether plain statistics of it are
beyond all that the others were made for; the largest of the three, on one scale, counts.
Distances of fresh simulations, which took no part in fitting the comparison, give the p-value, so a
record of the model is called untypical as often as the level says, whatever the network is like.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from greybayes.amortized import faults

LEVEL = 0.01
"""A record with a smaller p-value is a misfit."""
# Directions in which summaries of the model hardly differ count no more than this share of others.
_FLOOR = 1e-3
# Beyond this many parameters the comparison has no products of two of them.
_PRODUCTS = 10

Arrays = Mapping[str, np.ndarray]
PREFIX = "typical."
"""Of the names of all its arrays."""
REFERENCE = f"{PREFIX}reference"
"""Distances of fresh simulations, in order."""
_SCALES = f"{PREFIX}scales"
_PARTS = ("middle", "spread", "expected", "whiten", "usual", "scales")
NEEDED = (*(f"{PREFIX}{part}" for part in _PARTS), *faults.NAMES)
"""The arrays from which a distance is computed; `typical.reference` turns it into a p-value."""


def can_check(arrays: Arrays) -> bool:
    """Whether an estimator's arrays hold a comparison; files of older versions do not."""
    return REFERENCE in arrays


class Seen(NamedTuple):
    """What there is to see of records: what the network makes of them, and plain statistics."""

    summaries: Any
    thetas: Any
    statistics: Any

    def features(self, xp: Any = np) -> Any:
        """What faults are told by."""
        return xp.concatenate([self.summaries, self.statistics], axis=-1)


def fit(seen: Seen) -> dict[str, np.ndarray]:
    """The comparison, from summaries and estimates of simulated records."""
    summaries, thetas = seen.summaries, seen.thetas
    middle, spread = thetas.mean(0), np.maximum(thetas.std(0), 1e-12)
    arrays = {"typical.middle": middle, "typical.spread": spread}
    basis = _basis(np, (thetas - middle) / spread)
    expected = np.linalg.lstsq(basis, summaries, rcond=None)[0]
    off = summaries - basis @ expected
    scale = off.std(0)
    used = scale > 1e-6 * max(float(scale.max(initial=0.0)), 1e-12)
    off = off[:, used] / scale[used]
    values, vectors = np.linalg.eigh(off.T @ off / len(off))
    whiten = np.zeros((summaries.shape[1], len(values)))
    whiten[used] = vectors / np.sqrt(values + _FLOOR) / scale[used, None]
    arrays |= {"typical.expected": expected, "typical.whiten": whiten}
    # Where records of some thetas are farther from their mean than others, that is allowed for.
    square = ((summaries - basis @ expected) @ whiten) ** 2
    usual = np.linalg.lstsq(basis, np.log(square.sum(1) + 1e-12), rcond=None)[0]
    arrays["typical.usual"] = usual
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}


def on_one_scale(arrays: Arrays, seen: Seen) -> dict[str, np.ndarray]:
    """With the medians and upper ends of both distances, of simulations that are new to them."""
    middle, end = np.quantile(np.stack(_both(np, arrays, seen)), [0.5, 0.995], axis=1)
    scales = np.stack([middle, np.maximum(end - middle, 1e-6)])
    return {**arrays, _SCALES: scales.astype(np.float32)}


def calibrate(arrays: Arrays, seen: Seen) -> dict[str, np.ndarray]:
    """The comparison with the distances of fresh simulations beside it."""
    reference = np.sort(np.asarray(distance(np, arrays, seen), np.float32))
    return {**arrays, REFERENCE: reference}


def distance(xp: Any, arrays: Mapping[str, Any], seen: Seen) -> Any:
    """How far each record is from those of the model: 1 is far, for one in 200 of them."""
    if _SCALES not in arrays:
        return _both(xp, arrays, seen)[0]
    middle, scale = arrays[_SCALES]
    far, fault = ((d - middle[i]) / scale[i] for i, d in enumerate(_both(xp, arrays, seen)))
    return xp.maximum(xp.maximum(far, fault), faults.beyond(xp, arrays, seen.statistics))


def _both(xp: Any, arrays: Mapping[str, Any], seen: Seen) -> tuple[Any, ...]:
    """The logarithm of the distance, relative to the usual one at its estimate; the score."""
    basis = _basis(xp, (seen.thetas - arrays["typical.middle"]) / arrays["typical.spread"])
    off = (seen.summaries - basis @ arrays["typical.expected"]) @ arrays["typical.whiten"]
    far = xp.log((off**2).sum(-1) + 1e-12) - basis @ arrays["typical.usual"]
    if faults.NAMES[0] not in arrays:
        return (far,)
    return far, faults.score(xp, arrays, seen.features(xp))


def p_values(
    reference: Float[np.ndarray, " path"], distances: Float[np.ndarray, " record"]
) -> Float[np.ndarray, " record"]:
    """The share of simulated records that are as far away.

    >>> p_values(np.arange(99.0), np.array([-1.0, 49.0, 500.0]))
    array([1.  , 0.51, 0.01])
    """
    farther = len(reference) - np.searchsorted(reference, np.asarray(distances, np.float32))
    # A distance that is no number is farther than all.
    farther = np.where(np.isnan(distances), 0, farther)
    return (1 + farther) / (1 + len(reference))


def _basis(xp: Any, t: Any) -> Any:
    size = t.shape[-1]
    # An estimate far outside what was simulated must not be extrapolated without end.
    t = xp.clip(t, -4.0, 4.0)
    columns = [xp.ones_like(t[..., :1]), t]
    if size <= _PRODUCTS:
        columns += [t[..., i : i + 1] * t[..., i:] for i in range(size)]
    else:
        columns.append(t**2)
    return xp.concatenate(columns, axis=-1)
