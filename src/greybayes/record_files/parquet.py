"""Parquet files, through pyarrow where it is installed."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.disk import too_large
from greybayes.record_files.note import NOTE, parse_note
from greybayes.record_files.table import Table


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise RecordError(
            "Parquet files need pyarrow, which is not installed: pip install greybayes[parquet]."
        ) from None
    return pyarrow


def read_parquet(data: bytes, source: str, max_bytes: int) -> Table:
    arrow = _pyarrow()
    try:
        file = arrow.parquet.ParquetFile(arrow.BufferReader(data))
        names = list(file.schema_arrow.names)
        unpacked = file.metadata.num_rows * len(names) * 8
        if unpacked > max_bytes:
            raise too_large(source, f"unpacks to {unpacked / 2**20:.1f} MiB", max_bytes)
        table = file.read()
        columns = {name: _arrow_values(arrow, table.column(k)) for k, name in enumerate(names)}
        noted = (file.schema_arrow.metadata or {}).get(NOTE.encode())
    except RecordError:
        raise
    # As for MAT: a corrupt file fails in many ways.
    except Exception as error:
        raise RecordError(
            f"{source} is not a Parquet file that can be read ({type(error).__name__}): "
            "write it again."
        ) from error
    if len(columns) != len(names):
        raise RecordError(f"{source} has two columns of one name: rename one of them.")
    note = parse_note(noted.decode(errors="replace"), source) if noted else {}
    return Table(source, columns, range(1, table.num_rows + 1), note=note)


def _arrow_values(arrow: Any, column: Any) -> np.ndarray | list[Any]:
    types = arrow.types
    if types.is_floating(column.type) or types.is_integer(column.type):
        return column.to_numpy()
    return column.to_pylist()


def parquet_bytes(columns: Mapping[str, Any], note: str) -> bytes:
    arrow = _pyarrow()
    table = arrow.table({name: arrow.array(values) for name, values in columns.items()})
    table = table.replace_schema_metadata({NOTE: note})
    buffer = io.BytesIO()
    arrow.parquet.write_table(table, buffer)
    return buffer.getvalue()
