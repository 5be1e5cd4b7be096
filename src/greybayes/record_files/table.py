"""What every reader gives: named columns, and where each value stands in its file."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from greybayes.errors import RecordError, nearest

THETA = "theta."  # begins the name of a column that holds a parameter
_MISSING = ("", "nan", "na")


class Cells(NamedTuple):
    """A MAT cell array of numbers: one row per record."""

    rows: list[list[np.ndarray]]


class Other(NamedTuple):
    """A MAT variable that is not numbers: a description of it, and what it says if it is text."""

    text: str
    words: str = ""


@dataclass(frozen=True)
class Table:
    """Named columns, not yet numbers, and where each sample stands in its file.

    In a MAT file a column is a variable, and may be a matrix of shape (n_rows, n_channels).
    """

    source: str
    columns: Mapping[str, Any]
    rows: Sequence[int]
    numbered: bool = False  # no header row: the columns are called 1, 2, ...
    decimal: str = "."
    note: Mapping[str, Any] = field(default_factory=dict)  # see note.parse_note
    kind: str = "column"

    def where(self, index: int, column: str) -> str:
        return f"{self.source}, row {self.rows[index]}, {self.kind} '{column}'"

    def check_lengths(self, names: Sequence[str]) -> None:
        """Raise unless these columns have equal lengths, as those of a MAT file need not."""
        sizes = {name: self._length(name) for name in names}
        for name, size in sizes.items():
            if size != sizes[names[0]]:
                raise RecordError(
                    f"{self.source}: '{names[0]}' has {sizes[names[0]]} samples and '{name}' has "
                    f"{size}: they must be equal."
                )

    def _length(self, name: str) -> int:
        value = self.columns[name]
        if not isinstance(value, Other | Cells):
            return len(value)
        what = value.text if isinstance(value, Other) else "a cell array, unlike the output"
        raise RecordError(
            f"{self.source}: variable '{name}' is {what}: save the signal as a plain array "
            "(of an iddata object z: y = z.y; u = z.u)."
        )

    def numbers(self, column: str, advice: str = "mend it, or leave it empty") -> np.ndarray:
        """One column as float64, NaN where it is empty, NaN or NA."""
        values = self.columns[column]
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            if values.ndim > 1 and values.shape[1] > values.shape[0]:
                raise RecordError(
                    f"{self.source}: '{column}' has {values.shape[0]} rows and {values.shape[1]} "
                    "columns: rows are steps, so transpose it."
                )
            return values.astype(np.float64)
        if self.decimal == ".":
            # The whole column at once where it is clean, as most are.
            with contextlib.suppress(TypeError, ValueError):
                if "_" not in "".join(values):
                    return np.array(list(map(float, values)))
        numbers = np.empty(len(values))
        for index, value in enumerate(values):
            try:
                numbers[index] = number(value, self.decimal)
            except (TypeError, ValueError, OverflowError):
                if self.decimal == "." and "," in str(value):
                    advice = "read it with decimal=','"
                raise RecordError(
                    f"{self.where(index, column)}: '{str(value)[:40]}' is not a number; {advice}."
                ) from None
        return numbers

    def texts(self, column: str) -> list[str]:
        """One column as words, for record names; none may be empty."""
        texts = ["" if value is None else str(value).strip() for value in self.columns[column]]
        if "" in texts:
            place = self.where(texts.index(""), column)
            raise RecordError(f"{place} is empty: say which record this sample belongs to.")
        return texts

    def listed(self) -> str:
        """The columns there are, with the shapes of MAT variables, for a message."""
        texts = [name + self._shape(value) for name, value in list(self.columns.items())[:20]]
        return ", ".join(texts) + (", ..." if len(self.columns) > 20 else "") or "none"

    def _shape(self, value: Any) -> str:
        if isinstance(value, Other):
            return f" ({value.text})"
        if isinstance(value, Cells):
            return f" ({len(value.rows)}x{len(value.rows[0])} cells)"
        return f" ({'x'.join(map(str, value.shape))})" if self.kind == "variable" else ""

    def no_such(self, name: str) -> RecordError:
        """The sentence for a column that is not there."""
        hint = nearest(name, self.columns)
        hint = hint if hint.startswith("did you mean") else "name one of these."
        return RecordError(
            f"{self.source} has no {self.kind} '{name}', it has {self.listed()}; {hint}"
        )


def number(value: Any, decimal: str = ".") -> float:
    """One field of a file as a number, NaN where it is missing."""
    if value is None:
        return math.nan
    if not isinstance(value, str):
        return float(value)
    value = value.strip()
    if value.lower() in _MISSING:
        return math.nan
    # Python reads 1_000, and with a decimal comma 1.234 may mean a thousand: both are refused.
    if "_" in value or (decimal == "," and "." in value):
        raise ValueError(value)
    return float(value.replace(decimal, "."))
