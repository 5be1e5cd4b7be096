"""What a field of a design may hold: each value checked, or refused with one sentence."""

import dataclasses
import math
import numbers
import types
import typing
from typing import Any

import numpy as np

from greybayes.errors import InputError

Range = float | tuple[float, float]  # a number, or (low, high): uniformly random per signal
Hold = int | tuple[int, int]  # samples, or (low, high): every hold drawn anew, both ends included
_LARGEST = float(np.finfo(np.float32).max)
_NOT_NEGATIVE = {"std", "rms", "f0", "f1", "band"}


def checked(design: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field in its own type (a list becomes a tuple, 1 becomes 1.0), or an error."""
    kinds = typing.get_args(field.type) or (field.type,)
    if (value is None and types.NoneType in kinds) or (isinstance(value, str) and str in kinds):
        return value
    whole, pair = int in kinds, any(typing.get_origin(kind) is tuple for kind in kinds)
    floor = 1 if whole else 0 if field.name in _NOT_NEGATIVE else -math.inf
    scalar = whole or float in kinds
    cast: Any = int if whole else float

    def good(number: Any) -> bool:
        return (is_whole(number) if whole else is_finite(number)) and bool(number >= floor)

    if scalar and good(value):
        return cast(value)
    two: Any = value if isinstance(value, list | tuple) and len(value) == 2 else (None, None)
    if pair and good(two[0]) and good(two[1]) and two[0] < two[1]:
        return (cast(two[0]), cast(two[1]))
    expected = "text" if str in kinds else "a whole number" if whole else "a finite number"
    expected += f" of {floor} or more" if floor > -math.inf else ""
    if pair:
        both = "a pair low < high"
        expected = f"{expected}, or {both}," if scalar else f"{both}, each {expected},"
    raise InputError(f"{design}: {field.name} is {short(value)}; {expected} is expected.")


def is_whole(value: Any) -> bool:
    """Whether this is a whole number below 2^30, safe in int32; True and False are not."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and int(value) < 2**30


def is_finite(value: Any) -> bool:
    """Whether this is a number that float32 can hold; True and False are not."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and abs(float(value)) <= _LARGEST  # false for NaN


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
