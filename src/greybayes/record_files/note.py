"""The note beside the columns: what they cannot carry (names, units, a precise dt), as JSON."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from greybayes.errors import RecordError
from greybayes.record_files.checks import interval

if TYPE_CHECKING:
    from greybayes.record import Record

NOTE = "greybayes"  # the CSV comment, MAT variable and Parquet key that carry the note


def note_of(records: Sequence["Record"], ids: Sequence[str]) -> str:
    """The note for these records, under the ids that the columns give them."""
    entries: dict[str, dict[str, Any]] = {}
    for record, key in zip(records, ids, strict=True):
        entry = entries[key] = {}
        if record.name != key or not key:
            entry["name"] = record.name
        # Times say dt themselves, unless dt was given more precisely than they do.
        if record.dt is not None and record.dt != interval(None, record.times):
            entry["dt"] = record.dt
            entry |= {} if record.times is None else {"times": True}
    note = {
        "version": 1,
        "outputs": records[0].outputs,
        "inputs": records[0].inputs,
        "units": dict(records[0].units),
        "theta": theta_names(records),
        "records": {key: entry for key, entry in entries.items() if entry},
    }
    return json.dumps(note)


def parse_note(text: str, source: str) -> dict[str, Any]:
    """What `note_of` wrote. Checked, for it may be edited.

    Its keys are version, outputs, inputs, units, theta (the names), and records: for each record
    its name and dt, where the columns do not tell them.
    """
    try:
        note = json.loads(text)
        good = (
            note["version"] == 1
            and all(isinstance(n, str) for key in ("outputs", "inputs", "theta") for n in note[key])
            and all(isinstance(unit, str) for unit in note["units"].values())
            and all(isinstance(e.get("name", ""), str) for e in note["records"].values())
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        good, note = False, {}
    if not good:
        raise RecordError(
            f"{source} has a '{NOTE}' note that is damaged or from a later version: "
            "delete the note, or write the file again."
        )
    return note


def record_ids(records: Sequence["Record"], named: bool = True) -> list[str]:
    """What tells the records of a file apart: their names where they differ, else 1, 2, ..."""
    if len(records) == 1:
        return [""]
    names = [record.name for record in records]
    usable = named and all(names) and len(set(names)) == len(names)
    return names if usable else [str(k) for k in range(1, len(records) + 1)]


def theta_names(records: Sequence["Record"]) -> list[str]:
    """The parameters that are known of any of the records, in order of first appearance."""
    return list(dict.fromkeys(name for record in records for name in record.theta or {}))
