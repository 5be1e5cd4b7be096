"""One measured (or simulated) data set, and the files it comes from and goes to.

A `Record` is checked once, here at the border, and frozen; everything behind trusts it. The formats
themselves, and how their columns become outputs, inputs and times, are in `record_files`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.address import format_of, parse_address
from greybayes.record_files.checks import as_names, check_order, checked_fields
from greybayes.record_files.choice import Wanted
from greybayes.record_files.columns import check_alike, columns_of, fields_of
from greybayes.record_files.csv import csv_bytes, read_csv
from greybayes.record_files.dataframe import dataframe_of, fields_of_dataframe
from greybayes.record_files.disk import MAX_BYTES, read_bytes, write_atomically
from greybayes.record_files.mat import mat_bytes, read_mat
from greybayes.record_files.mat_records import mat_tables, mat_variables
from greybayes.record_files.note import note_of, record_ids
from greybayes.record_files.parquet import parquet_bytes, read_parquet


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Record:
    """One record: outputs, inputs where they are known, and when they were sampled.

    **Arguments:**

    - `y`: outputs, shape (n_steps, n_outputs) or (n_steps,); NaN marks a missing sample, and so
      does the mask of a NumPy masked array.
    - `u`: inputs, shape (n_steps, n_inputs) or (n_steps,); None where they are unknown, and then
      an estimator takes its own fixed input.
    - `dt`: time from one sample to the next; None where it is unknown or uneven.
    - `times`: sample times, shape (n_steps,), strictly increasing. Even times fill in `dt`.
    - `outputs`, `inputs`: names of the channels, by default `y` or `y1, y2, ...`.
    - `units`: unit of a channel (or of the time `t`), by name.
    - `name`: what tables and plots call the record.
    - `theta`: the parameters that made it, where they are known.

    Arrays are copied to read-only float64.

    >>> import numpy as np
    >>> record = Record(y=[0.1, np.nan, 0.3], u=[1, 1, -1], dt=0.02, units={"y": "V"}, name="motor")
    >>> record
    Record('motor': 3 steps, y: y [V], u: u, dt=0.02, 1 missing)
    >>> record.y.shape, record.mask[:, 0].tolist()
    ((3, 1), [True, False, True])
    """

    y: np.ndarray
    u: np.ndarray | None
    dt: float | None
    times: np.ndarray | None
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    units: Mapping[str, str]
    name: str
    theta: Mapping[str, float] | None

    # Any: whatever NumPy reads as numbers; what it is is checked here, with a sentence.
    def __init__(
        self,
        y: Any,
        u: Any = None,
        dt: Any = None,
        times: Any = None,
        outputs: Sequence[str] = (),
        inputs: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        name: str = "",
        theta: Mapping[str, Any] | None = None,
    ) -> None:
        checked = checked_fields(y, u, dt, times, outputs, inputs, units, name, theta)
        for key, value in checked.items():
            object.__setattr__(self, key, value)

    @property
    def n_steps(self) -> int:
        """Length of the record."""
        return self.y.shape[0]

    @property
    def mask(self) -> np.ndarray:
        """True where an output was observed, shape (n_steps, n_outputs)."""
        return ~np.isnan(self.y)

    @property
    def n_missing(self) -> int:
        """How many samples are missing, over all outputs."""
        return int(np.isnan(self.y).sum())

    @classmethod
    def from_dataframe(
        cls,
        df: Any,
        y: str | Sequence[str] | None = None,
        u: str | Sequence[str] | None = None,
        dt: Any = None,
        *,
        t: str | None = None,
        units: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> "Record":
        """A record from columns of a pandas DataFrame, chosen as in a file (see `read_records`).

        >>> import pandas as pd
        >>> df = pd.DataFrame({"speed": [0.0, 0.4, None], "volts": [1.0, 1.0, -1.0]})
        >>> Record.from_dataframe(df, y="speed", u="volts", dt=0.02)
        Record(3 steps, y: speed, u: volts, dt=0.02, 1 missing)
        """
        chosen = {"y": y, "u": u, "t": t, "dt": dt}
        options = {key: value for key, value in chosen.items() if value is not None}
        given = {"units": units, "name": name}
        given = {key: value for key, value in given.items() if value is not None}
        return cls(**fields_of_dataframe(df, options) | given)

    def to_dataframe(self) -> Any:
        """A pandas DataFrame: `t` where known, outputs, inputs, and `theta.NAME` where known.

        Units, name and dt travel in `df.attrs`, so that `Record.from_dataframe` gives them back.

        >>> Record(y=[1.0, 2.0], u=[0.0, 1.0], dt=0.5).to_dataframe().columns.tolist()
        ['t', 'y', 'u']
        """
        return dataframe_of(self)

    def __eq__(self, other: object) -> bool:
        """Equal in every field; missing samples are equal to missing samples."""
        if not isinstance(other, Record):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: a pickled read-only array or mapping would come back writable.
        values = (getattr(self, f.name) for f in fields(self))
        plain = (dict(value) if isinstance(value, Mapping) else value for value in values)
        return Record, tuple(plain)

    def __repr__(self) -> str:
        def listed(names: tuple[str, ...]) -> str:
            shown = [n + (f" [{self.units[n]}]" if n in self.units else "") for n in names[:4]]
            return ", ".join(shown) + (f", ... ({len(names)})" if len(names) > 4 else "")

        parts = [f"{self.n_steps} step{'s' * (self.n_steps != 1)}", f"y: {listed(self.outputs)}"]
        parts += [f"u: {listed(self.inputs)}"] if self.inputs else []
        parts += [f"dt={self.dt:g}"] if self.dt is not None else []
        parts += ["uneven times"] if self.dt is None and self.times is not None else []
        parts += [f"{self.n_missing} missing"] if self.n_missing else []
        parts += ["theta known"] if self.theta else []
        return f"Record({repr(self.name) + ': ' if self.name else ''}{', '.join(parts)})"


def read_records(
    address: str | os.PathLike[str],
    *,
    decimal: str = ".",
    delimiter: str | None = None,
    header: bool | None = None,
    max_bytes: int = MAX_BYTES,
    outputs: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
) -> list[Record]:
    """The records in a CSV, MAT or Parquet file.

    **Arguments:**

    - `address`: `FILE` or `FILE:y=z2,u=u2,dt=0.02`, with columns (MAT: variables) by name. Several
      channels are joined with `+`: `y=y1+y2`. The keys are `y`, `u`, `t` (sample times), `dt` and
      `record` (which record a row belongs to); `u=` with nothing behind it means none.
    - `decimal`, `delimiter`, `header`: of a CSV file. By default the delimiter is found out, and
      the first row is a header unless all of it is numbers; columns without a header are called
      1, 2, ...
    - `max_bytes`: limit on the size of the file, and on what it unpacks to.
    - `outputs`, `inputs`: the model's channel names. They are looked for in the file, and they
      become the names of the channels.

    **Returns:**

    A list, also for one record. Where the address names no column, those called as the model's
    channels are taken, or else `y` or `y1, y2, ...`; `u` or `u1, u2, ...`; `t` or `time`;
    `record`; and `theta.NAME`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "motor.csv"
    ...     _ = path.write_text("volts,speed\\n1,0.1\\n1,\\n-1,0.3\\n")
    ...     read_records(f"{path}:y=speed,u=volts,dt=0.02")
    [Record('motor': 3 steps, y: speed, u: volts, dt=0.02, 1 missing)]
    """
    path, options = parse_address(address)
    data = read_bytes(path, max_bytes)
    kind, source = format_of(path), str(path)
    wanted = Wanted(*(None if names is None else as_names(names) for names in (outputs, inputs)))
    if kind == "csv":
        table = read_csv(data, source, delimiter=delimiter, decimal=decimal, header=header)
        tables = {"": table}
    elif kind == "parquet":
        tables = {"": read_parquet(data, source, max_bytes)}
    else:
        tables = mat_tables(read_mat(data, source, max_bytes), options, wanted)
    stem = path.stem.strip() if path.stem.isprintable() else ""
    found = [
        values
        for key, table in tables.items()
        for values in fields_of(table, options, wanted, stem, key)
    ]
    return [_located(values, source) for values in found]


def write_records(path: str | os.PathLike[str], records: Record | Sequence[Record]) -> None:
    """Write one or several records to a .csv, .mat or .parquet file that `read_records` reads.

    The file holds `t` (where dt or times are known), outputs, inputs and `theta.NAME` as columns,
    and for several records a `record` column; a MAT file holds `y`, `u`, `t` and `theta`, as cell
    arrays for several records. A note beside them keeps names, units and dt, so the records read
    back are equal to the ones written. The file appears whole or not at all.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "two.csv"
    ...     two = [Record(y=[0.1, 0.2], name="a"), Record(y=[0.3], name="b")]
    ...     write_records(path, two)
    ...     read_records(path) == two
    True
    """
    path = Path(os.fsdecode(path))
    kind = format_of(path)
    records = [records] if isinstance(records, Record) else list(records)
    check_alike(records, str(path))
    note = note_of(records, record_ids(records, named=kind != "mat"))
    if kind == "mat":
        data = mat_bytes(mat_variables(records), note)
    else:
        to_bytes = csv_bytes if kind == "csv" else parquet_bytes
        data = to_bytes(columns_of(records), note)
    write_atomically(path, data)


def check_channels(record: Record, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> None:
    """Refuse a record whose channels bear the model's names in another order."""
    if (record.outputs, record.inputs) != (outputs, inputs):
        check_order(record.outputs, outputs, "outputs", label(record))
        check_order(record.inputs, inputs, "inputs", label(record))


def label(record: Record) -> str:
    """What a sentence calls a record."""
    return f"record {record.name}" if record.name else "the record"


def _located(values: dict[str, Any], source: str) -> Record:
    try:
        return Record(**values)
    except RecordError as error:
        raise RecordError(f"{source}: {error}") from None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    return type(a) is type(b) and a == b
