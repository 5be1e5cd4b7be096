"""Which columns of a table are outputs, inputs, times and record names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greybayes.errors import RecordError
from greybayes.record_files.table import Table


@dataclass(frozen=True)
class Wanted:
    """The model's channel names, where a model is known."""

    outputs: tuple[str, ...] | None = None
    inputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Choice:
    """Which columns are what."""

    y: tuple[str, ...]
    u: tuple[str, ...]
    t: str | None
    record: str | None

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.y, *self.u, *filter(None, (self.t, self.record)))


def choose(table: Table, options: Mapping[str, Any], wanted: Wanted) -> Choice:
    """What the options name, or else the model's channels, the note's, or the usual names."""
    source = table.source
    y = _named("y", options, table) or _usual("y", wanted.outputs, table, "outputs", ())
    if not y:
        raise _no_output(table)
    u = _named("u", options, table)
    if u is None:
        u = _usual("u", wanted.inputs, table, "inputs", y)
        if "y" in options and len(u) > 1 and u != wanted.inputs:
            raise RecordError(
                f"{source} has the possible inputs {', '.join(u)}: say which belong to "
                f"{'+'.join(y)}, with u={u[0]}, or u= for none."
            )
    if both := set(y) & set(u):
        raise RecordError(f"{source}: '{both.pop()}' is both output and input: name it once.")
    in_mat = table.kind == "variable"
    t = _single("t", ("t", "time"), options, table, (*y, *u))
    record = _single("record", () if in_mat else ("record",), options, table, (*y, *u))
    choice = Choice(y, u, t, record)
    if not u and "u" not in options and wanted.inputs and not table.note and not in_mat:
        _refuse_overlooked(table, choice, wanted.inputs)
    return choice


def _refuse_overlooked(table: Table, choice: Choice, inputs: tuple[str, ...]) -> None:
    """Refuse columns that may well be the input: without them another input would be taken."""
    left = [n for n in table.columns if n not in choice.all and not n.startswith("theta.")]
    if left:
        file = Path(table.source).name
        raise RecordError(
            f"{table.source} has no {table.kind} '{inputs[0]}' for the input, it has "
            f"{table.listed()}: name it, as in '{file}:u={left[0]}', or '{file}:u=' for none."
        )


def _named(key: str, options: Mapping[str, Any], table: Table) -> tuple[str, ...] | None:
    """The columns an address gives for a key: () for `u=`, None where it does not say."""
    value = options.get(key)
    if value is None:
        return None
    if isinstance(value, str):  # a column whose name holds a plus comes before a sum of columns
        value = (
            (value,) if value in table.columns else filter(None, map(str.strip, value.split("+")))
        )
    return _present(value, table)


def _usual(
    letter: str, model: tuple[str, ...] | None, table: Table, noted: str, taken: Sequence[str]
) -> tuple[str, ...]:
    if model is not None and (not model or any(name in table.columns for name in model)):
        return _present(model, table)
    if table.note:
        return _present(table.note[noted], table)
    like = [n for n in table.columns if re.fullmatch(letter + "[0-9]{0,9}", n) and n not in taken]
    return tuple(sorted(like, key=lambda n: int(n[1:] or 0)))


def _single(
    key: str,
    usual: Sequence[str],
    options: Mapping[str, Any],
    table: Table,
    taken: Sequence[str],
) -> str | None:
    """The one column for a key, if there is one."""
    named = _named(key, options, table)
    if named is None:
        return next((n for n in usual if n in table.columns and n not in taken), None)
    if len(named) > 1:
        raise RecordError(f"{table.source}: {key} names {len(named)} columns, it takes one.")
    return next(iter(named), None)


def _present(names: Iterable[str], table: Table) -> tuple[str, ...]:
    names = tuple(names)
    for name in names:
        if name not in table.columns:
            raise table.no_such(name)
    return names


def _no_output(table: Table) -> RecordError:
    file = Path(table.source).name
    if table.numbered:
        return RecordError(
            f"{table.source} has {len(table.columns)} columns and no header row: "
            f"say which is which, as in '{file}:y=1,u=2'."
        )
    example = next((n for n in table.columns if n not in ("record", "t", "time")), "NAME")
    return RecordError(
        f"{table.source} has no {table.kind} that is plainly the output, it has "
        f"{table.listed()}: name one, as in '{file}:y={example}'."
    )
