"""What a record may hold: each value checked, or refused with one sentence.

`Record` checks everything here. The columns of a file pass the same checks once before, where the
sentence can still name the row and the column.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from greybayes.errors import RecordError, nearest

# Sample times in files are rounded, so steps may differ by this share of dt and still be uniform.
_UNEVEN = 1e-3


def checked_fields(
    y: Any,
    u: Any,
    dt: Any,
    times: Any,
    outputs: Any,
    inputs: Any,
    units: Mapping[str, Any] | None,
    name: Any,
    theta: Mapping[Any, Any] | None,
) -> dict[str, Any]:
    """The fields of a `Record`, from its arguments."""
    y = matrix(y, "y")
    u = None if u is None else matrix(u, "u")
    u = None if u is not None and u.shape[1] == 0 else u  # a model without inputs
    if y.size == 0:
        raise RecordError(f"y has shape {y.shape}: a record needs at least one sample.")
    if u is not None and len(u) != len(y):
        raise RecordError(
            f"y has {len(y)} samples and u has {len(u)}: they must be equal "
            "(rows are steps, columns are channels)."
        )
    outputs = _channel_names(outputs, y.shape[1], "y", "outputs")
    inputs = _channel_names(inputs, 0 if u is None else u.shape[1], "u", "inputs")
    _check_distinct((*outputs, *inputs))
    check_values(y, "y", lambda k, c: f"y at step {k}, channel '{outputs[c]}',")
    if u is not None:
        check_values(u, "u", lambda k, c: f"u at step {k}, channel '{inputs[c]}',")
    times = None if times is None else _times(times, len(y))
    return {
        "y": _frozen(y),
        "u": None if u is None else _frozen(u),
        "dt": interval(dt, times),
        "times": None if times is None else _frozen(times),
        "outputs": outputs,
        "inputs": inputs,
        "units": MappingProxyType(_units(units or {}, (*outputs, *inputs))),
        "name": _name(name),
        "theta": MappingProxyType(_theta(theta)) if theta else None,
    }


def matrix(values: Any, what: str) -> np.ndarray:
    """Real numbers as float64 of shape (n_steps, channels), NaN where they are masked."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError
        array = np.array(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise RecordError(
            f"{what} is not an array of real numbers: pass numbers of shape (n_steps, channels)."
        ) from None
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise RecordError(
            f"{what} has shape {array.shape}: pass (n_steps, channels) or (n_steps,)."
        )
    return array


def check_values(values: np.ndarray, role: str, where: Callable[[int, int], str]) -> None:
    """Outputs may be missing, inputs may not; `where` names a step and a channel."""
    bad = np.isinf(values) if role == "y" else ~np.isfinite(values)
    if not bad.any():
        return
    step, channel = (int(index) for index in np.argwhere(bad)[0])
    advice = (
        "an output is a finite number, or NaN (in a file also an empty field) where it is missing"
        if role == "y"
        else "an input must be a finite number at every step, so fill the gap or cut the record"
    )
    raise RecordError(f"{where(step, channel)} is {values[step, channel]}: {advice}.")


def check_times(times: np.ndarray, where: Callable[[int], str]) -> None:
    """Finite and strictly increasing; `where` names a step."""
    bad = ~np.isfinite(times)
    bad[1:] |= ~(times[1:] > times[:-1])
    if bad.any():
        step = int(np.argmax(bad))
        before = f" after {times[step - 1]}" if step else ""
        raise RecordError(
            f"{where(step)} is {times[step]}{before}: sample times must be finite and strictly "
            "increasing, so sort the rows or leave the times out and give dt."
        )


def interval(dt: Any, times: np.ndarray | None) -> float | None:
    """`dt`, checked, or what even `times` say it is."""
    if dt is not None:
        given, dt = dt, _float(dt)
        if not 0 < dt < np.inf:
            raise RecordError(f"dt is {given!r}: it must be a positive number, such as 0.02.")
    if times is None or len(times) < 2:
        return dt
    # Twelve digits, so that the times 0, 0.02, 0.04 give 0.02 and not 0.020000000000000004.
    mean = float(f"{(times[-1] - times[0]) / (len(times) - 1):.12g}")
    expected = mean if dt is None else dt
    slack = _UNEVEN * expected + 4 * np.finfo(float).eps * np.abs(times).max()
    if np.abs(np.diff(times) - expected).max() <= slack:
        return expected
    if dt is None:
        return None
    raise RecordError(
        f"dt is {dt} but the sample times are {mean} apart on average, and must all be dt apart: "
        "give one of the two."
    )


def as_names(names: str | Sequence[Any]) -> tuple[Any, ...]:
    """Several names as a tuple, and one name as a tuple of one."""
    return (names,) if isinstance(names, str) else tuple(names)


def check_order(given: tuple[str, ...], model: tuple[str, ...], what: str, called: str) -> None:
    """Refuse channels that bear the model's names in another order: they are taken as they stand.

    >>> check_order(("b", "a"), ("a", "b"), "outputs", "the record")
    Traceback (most recent call last):
    greybayes.errors.RecordError: the record has the outputs b, a and the model a, b: put them in
    the model's order.
    """
    if given != model and set(given) == set(model):
        raise RecordError(
            f"{called} has the {what} {', '.join(given)} and the model {', '.join(model)}: put "
            "them in the model's order."
        )


def _times(values: Any, n_steps: int) -> np.ndarray:
    times = matrix(values, "times")
    if times.shape != (n_steps, 1):
        raise RecordError(
            f"times has {times.size} values and y has {n_steps} samples: give one time per sample."
        )
    check_times(times[:, 0], lambda k: f"times at step {k}")
    return times[:, 0].copy()


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def _channel_names(names: Any, count: int, letter: str, what: str) -> tuple[str, ...]:
    names = as_names(names)
    if not names:
        return (letter,) if count == 1 else tuple(f"{letter}{k}" for k in range(1, count + 1))
    if len(names) != count:
        raise RecordError(
            f"{what} names {len(names)} channels ({', '.join(map(str, names))}) and {letter} has "
            f"{count}: give one name per column of {letter}."
        )
    return names


def _check_distinct(names: Sequence[Any]) -> None:
    for name in names:
        if not (_is_printable(name) and name):
            raise RecordError(f"a channel is called {name!r}: use a printable name.")
        if names.count(name) > 1:
            raise RecordError(f"two channels are called '{name}': give each its own name.")


def _units(units: Mapping[str, Any], channels: tuple[str, ...]) -> dict[str, str]:
    for key, unit in units.items():
        if key not in (*channels, "t"):
            raise RecordError(
                f"units names '{key}', which is no channel of the record; "
                f"{nearest(str(key), channels)}"
            )
        if not isinstance(unit, str):
            raise RecordError(f"the unit of '{key}' is {unit!r}: give a text such as 'V'.")
    return dict(units)


def _name(name: Any) -> str:
    if not _is_printable(name):
        raise RecordError(f"the record is called {name!r}: use a printable name.")
    return name


def _theta(theta: Mapping[Any, Any]) -> dict[str, float]:
    checked = {key: _float(value) for key, value in theta.items()}
    for key, value in theta.items():
        if not (_is_printable(key) and key and np.isfinite(checked[key])):
            raise RecordError(f"theta has {key!r}: {value!r}, but maps names to finite numbers.")
    return checked


def _is_printable(name: Any) -> bool:
    return isinstance(name, str) and name.isprintable() and name == name.strip()


def _float(value: Any) -> float:
    """NaN for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
