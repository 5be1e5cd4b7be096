"""Records from pandas DataFrames and to them: a DataFrame is one more kind of file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.choice import Wanted
from greybayes.record_files.columns import check_alike, columns_of, fields_of
from greybayes.record_files.note import NOTE, note_of, parse_note
from greybayes.record_files.table import Table

if TYPE_CHECKING:
    from greybayes.record import Record


def fields_of_dataframe(df: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the one `Record` in a DataFrame."""
    noted = df.attrs.get(NOTE)
    if not df.columns.is_unique or not len(df):
        raise RecordError("the DataFrame needs rows, and columns of different names.")
    table = Table(
        "the DataFrame",
        {str(column): _values(df[column]) for column in df.columns},
        range(len(df)),
        note=parse_note(noted, "the DataFrame") if noted else {},
    )
    found = fields_of(table, options, Wanted(), "")
    if len(found) > 1:
        raise RecordError(
            f"the DataFrame's column 'record' names {len(found)} records: take one at a time, "
            "with for _, part in df.groupby('record')."
        )
    return found[0]


def dataframe_of(record: "Record") -> Any:
    """The columns of a record, with its note in `df.attrs`."""
    try:
        import pandas as pd
    except ImportError:
        raise RecordError(
            "a DataFrame needs pandas, which is not installed: pip install pandas."
        ) from None
    check_alike([record], "a DataFrame")
    df = pd.DataFrame(columns_of([record]))
    df.attrs[NOTE] = note_of([record], [""])
    return df


def _values(series: Any) -> Any:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return series.to_numpy()
    return series.astype(object).where(series.notna(), None).tolist()
