"""From the columns of a table to the fields of records, and back.

The fields are plain dictionaries, the arguments of `Record`: this side of the border does not
know the class.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.checks import check_order, check_times, check_values, matrix
from greybayes.record_files.choice import Wanted, choose
from greybayes.record_files.note import record_ids, theta_names
from greybayes.record_files.table import THETA, Table

if TYPE_CHECKING:
    from greybayes.record import Record


# From columns to records


def fields_of(
    table: Table, options: Mapping[str, Any], wanted: Wanted, stem: str, key: str = ""
) -> list[dict[str, Any]]:
    """The arguments of one `Record` for each record in a table; `key` is the table's own id."""
    if table.numbered and len(table.columns) == 1:
        options = {"y": "1", **options}
    chosen = choose(table, options, wanted)
    table.check_lengths(chosen.all)
    y, found_y = _stack(table, chosen.y, "y")
    u, found_u = _stack(table, chosen.u, "u") if chosen.u else (None, ())
    outputs = _channels(found_y, wanted.outputs, "outputs", table.source)
    inputs = _channels(found_u, wanted.inputs, "inputs", table.source)
    names = dict(zip((*found_y, *found_u), (*outputs, *inputs), strict=True)) | {"t": "t"}
    if table.numbered:  # a channel called 1 helps nobody: the record's own defaults do
        outputs = outputs if wanted.outputs else ()
        inputs = inputs if wanted.inputs else ()
    units = {names[n]: unit for n, unit in table.note.get("units", {}).items() if n in names}
    times = None
    if chosen.t:
        advice = "give times as numbers, or leave them out with t="
        times = table.numbers(chosen.t, advice).ravel()
    elif "dt" not in options and (beside := _beside(table, chosen.all)) is not None:
        options = {**options, "dt": beside}
    theta = [n for n in table.columns if n.startswith(THETA) and n not in chosen.all]
    values = {n: table.numbers(n) for n in theta}
    found = []
    for name, index in _groups(table, chosen.record, key, len(y)).items():
        entry = table.note.get("records", {}).get(name, {})
        usual_name = "-".join(filter(None, (stem, key))) if name == key else name
        when = _known_times(times, index, lambda k: table.where(k, str(chosen.t)))
        made_by = {n: _constant(values[n], index, lambda k, n=n: table.where(k, n)) for n in theta}
        found.append(
            {
                "y": y[index],
                "u": None if u is None else u[index],
                "outputs": outputs,
                "inputs": inputs,
                "units": units,
                "name": entry.get("name", usual_name),
                "theta": {n.removeprefix(THETA): v for n, v in made_by.items() if v == v},
                **_timing(when, options, entry),
            }
        )
    return found


def _stack(table: Table, names: Sequence[str], role: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Columns side by side, shape (n_steps, n_channels), and what each is called."""
    parts = [matrix(table.numbers(name), name) for name in names]
    owners = [name for name, part in zip(names, parts, strict=True) for _ in part.T]
    values = np.hstack(parts)
    check_values(values, role, lambda k, c: table.where(k, owners[c]))
    channels = [
        f"{name}{k}" if part.shape[1] > 1 else name
        for name, part in zip(names, parts, strict=True)
        for k in range(1, part.shape[1] + 1)
    ]
    return values, tuple(channels)


def _channels(
    found: tuple[str, ...], model: tuple[str, ...] | None, what: str, source: str
) -> tuple[str, ...]:
    """The model's names for the channels found, one for one; their own where there is no model."""
    if model is None or (what == "inputs" and not found):
        return found
    if len(found) != len(model):
        raise RecordError(
            f"{source} gives {len(found)} {what} ({', '.join(found)}) and the model has "
            f"{len(model)} ({', '.join(model) or 'none'}): name as many in the address."
        )
    check_order(found, model, what, source)
    return model


def _groups(table: Table, column: str | None, key: str, n_rows: int) -> dict[str, Any]:
    """The positions of each record's rows, records in order of first appearance."""
    if column is None:
        return {key: np.arange(n_rows)}
    groups: dict[str, list[int]] = {}
    for position, name in enumerate(table.texts(column)):
        groups.setdefault(name, []).append(position)
    return groups


def _constant(values: np.ndarray, index: Any, where: Callable[[int], str]) -> float:
    """The one value of theta in a record; NaN where the record has none."""
    part = values[index]
    changed = np.flatnonzero(~np.isclose(part, part[0], rtol=0, atol=0, equal_nan=True))
    if changed.size:
        k = int(changed[0])
        raise RecordError(
            f"{where(int(index[k]))} is {part[k]} after {part[0]}: "
            "theta must be constant within a record."
        )
    return float(part[0])


def _known_times(
    values: np.ndarray | None, index: Any, where: Callable[[int], str]
) -> np.ndarray | None:
    times = None if values is None else values[index]
    if times is None or np.isnan(times).all():
        return None
    check_times(times, lambda k: where(int(index[k])))
    return times


def _beside(table: Table, taken: Sequence[str]) -> float | None:
    """The one number called dt or Ts that a MAT file may hold beside its signals.

    0 and -1, as MATLAB has them, say that it is not known.
    """
    given = (table.columns[n] for n in ("dt", "Ts") if n in table.columns and n not in taken)
    is_mat = table.kind == "variable"
    numbers = (v.item() for v in given if is_mat and isinstance(v, np.ndarray) and v.size == 1)
    return next((number for number in numbers if 0 < number < np.inf), None)


def _timing(
    times: np.ndarray | None, options: Mapping[str, Any], entry: Mapping[str, Any]
) -> dict[str, Any]:
    """`dt` and `times` of one record; `entry` is what the note says of it."""
    if "dt" in options or "t" in options or "dt" not in entry:
        return {"dt": options.get("dt"), "times": times}
    dt = entry["dt"]
    # A t column that was made from dt is not a second source. One that was edited since is.
    if times is not None and isinstance(dt, float) and np.isfinite(dt) and not entry.get("times"):
        times = None if np.array_equal(times, dt * np.arange(len(times))) else times
    return {"dt": dt, "times": times}


# From records to columns


def check_alike(records: Sequence["Record"], path: str) -> None:
    """Raise unless the records fit into one file."""
    if not records:
        raise RecordError(f"there are no records to write to {path}: pass at least one.")
    first = records[0]
    for record in records:
        for what in ("outputs", "inputs", "units"):
            mine, others = getattr(first, what), getattr(record, what)
            if mine != others:
                raise RecordError(
                    f"the records for {path} differ in their {what} ({mine} and {others}): "
                    "write them to a file each."
                )
    for name in (*first.outputs, *first.inputs):
        if name in ("t", "record") or name.startswith(THETA):
            raise RecordError(
                f"a channel is called '{name}', which means something else in a file: rename it."
            )


def columns_of(records: Sequence["Record"]) -> dict[str, Any]:
    """The records below one another, as named columns; several get a record column."""
    columns: dict[str, Any] = {}
    lengths = [record.n_steps for record in records]
    if len(records) > 1:
        ids = zip(record_ids(records), lengths, strict=True)
        columns["record"] = [key for key, length in ids for _ in range(length)]
    names = column_names(records[0].outputs, records[0].inputs, theta_names(records))
    parts = signals_of(records)
    for role in (role for role in ("t", "y", "u", "theta") if role in parts):
        values = np.concatenate(parts[role])
        values = np.repeat(values, lengths, axis=0) if role == "theta" else values
        columns |= dict(zip(names[role], values.T, strict=True))
    return columns


def column_names(
    outputs: Sequence[str], inputs: Sequence[str], theta: Sequence[str]
) -> dict[str, list[str]]:
    """What the columns of each signal are called in a file."""
    theta = [THETA + name for name in theta]
    return {"y": list(outputs), "u": list(inputs), "t": ["t"], "theta": theta}


def signals_of(records: Sequence["Record"]) -> dict[str, list[np.ndarray]]:
    """What is known of `y`, `u`, `t`, `theta`: a matrix for each record, theta as one row."""
    signals = {"y": [record.y for record in records]}
    if records[0].inputs:
        signals["u"] = [record.u for record in records if record.u is not None]
    if any(record.dt is not None or record.times is not None for record in records):
        signals["t"] = [_sample_times(record)[:, None] for record in records]
    if names := theta_names(records):
        thetas = [record.theta or {} for record in records]
        signals["theta"] = [np.array([[theta.get(n, np.nan) for n in names]]) for theta in thetas]
    return signals


def _sample_times(record: "Record") -> np.ndarray:
    """Shape (n_steps,); NaN where neither times nor dt are known."""
    if record.times is not None:
        return record.times
    return np.arange(record.n_steps) * (np.nan if record.dt is None else record.dt)
