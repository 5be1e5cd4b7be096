"""How a MAT file holds records: matrices for one, cell arrays with a row for each of several."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.choice import Wanted, choose
from greybayes.record_files.columns import column_names, signals_of
from greybayes.record_files.note import NOTE
from greybayes.record_files.table import THETA, Cells, Other, Table

if TYPE_CHECKING:
    from greybayes.record import Record


def mat_tables(table: Table, options: Mapping[str, Any], wanted: Wanted) -> dict[str, Table]:
    """One table for each record of a MAT file: one for each row of the output's cell array."""
    if "record" in options:
        raise RecordError(
            f"{table.source}: a MAT file has no record column; it holds several records as a cell "
            "array with one row per record."
        )
    if table.note:
        return _noted_tables(table)
    cells = [name for name, value in table.columns.items() if isinstance(value, Cells)]
    try:
        chosen = choose(table, options, wanted)
    except RecordError:
        if len(cells) != 1 or "y" in options:
            raise
        table = replace(table, columns={**table.columns, "y": table.columns[cells[0]]})
        cells.append("y")
        chosen = choose(table, options, wanted)
    return _split_cells(table, chosen.y[0], [n for n in chosen.all if n in cells])


def mat_variables(records: Sequence["Record"]) -> dict[str, np.ndarray]:
    """`y`, `u`, `t`, `theta` as matrices; as cell arrays, one row per record, for several."""
    parts = signals_of(records)
    if "theta" in parts:
        parts["theta"] = [row.T for row in parts["theta"]]
    if len(records) == 1:
        return {name: part[0] for name, part in parts.items()}
    variables = {name: np.empty((len(records), 1), dtype=object) for name in parts}
    for name, part in parts.items():
        variables[name][:, 0] = part
    return variables


def _split_cells(table: Table, output: str, cells: Sequence[str]) -> dict[str, Table]:
    """One table for each row of the cell array `output`; matrices are common to all records."""
    if output not in cells:
        return {"": table}
    rows = {name: _cell_rows(table, name) for name in cells}
    count = len(rows[output])
    tables = {}
    for k in range(count):
        columns = dict(table.columns)
        for name in cells:
            if len(rows[name]) != count:
                raise RecordError(
                    f"{table.source}: '{output}' holds {count} records and '{name}' "
                    f"{len(rows[name])}: they must be equal."
                )
            *theta, columns[name] = rows[name][k]
            for position, value in enumerate(theta[0].ravel() if theta else (), start=1):
                columns[f"{THETA}{position}"] = np.full(len(columns[name]), value)
        source = f"{table.source}, record {k + 1}"
        tables[str(k + 1)] = replace(table, source=source, columns=columns)
    return tables


def _cell_rows(table: Table, name: str) -> list[list[np.ndarray]]:
    """A cell array as one row per record: [signal], or [theta, signal]."""
    rows = table.columns[name].rows
    if len(rows) == 1 and len(rows[0]) > 2:
        rows = [[element] for element in rows[0]]
    paired = len(rows[0]) == 2 and len(rows) > 1 and len({row[0].size for row in rows}) == 1
    if len(rows[0]) > 1 and not (paired and all(len(row[0]) < len(row[1]) for row in rows)):
        raise RecordError(
            f"{table.source}: the cell array '{name}' is {len(rows)}x{len(rows[0])}: it needs one "
            "row per record, with the signal, or with theta and the (longer) output."
        )
    return rows


def _noted_tables(table: Table) -> dict[str, Table]:
    """What `write_records` wrote as y, u, t and theta, as one table of plain columns per record."""
    noted = column_names(*(table.note[key] for key in ("outputs", "inputs", "theta")))
    parts = {name: _parts(table.columns[name]) for name in noted if name in table.columns}
    count = len(parts.get("y", ()))
    misfit = RecordError(
        f"{table.source}: its variables do not fit the '{NOTE}' note beside them: "
        f"clear the variable {NOTE}, or write the file again."
    )
    if not count or any(len(part) != count for part in parts.values()):
        raise misfit
    tables = {}
    for k in range(count):
        columns: dict[str, np.ndarray] = {}
        for name, names in ((name, noted[name]) for name in parts):
            value = parts[name][k]
            # One step of several channels looks like a vector, and was made a column.
            if value.shape[1] != len(names) and value.shape != (len(names), 1):
                raise misfit
            value = value.reshape(-1, len(names))
            if name == "theta":
                value = np.repeat(value[:1], len(next(iter(columns.values()))), axis=0)
            columns |= dict(zip(names, value.T, strict=True))
        tables[str(k + 1) if count > 1 else ""] = replace(table, columns=columns, kind="column")
    return tables


def _parts(value: np.ndarray | Cells | Other) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    return [row[0] for row in value.rows] if isinstance(value, Cells) else []
