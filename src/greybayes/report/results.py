"""Results of `estimate --json` and `fit --json`, read back to be compared.

Such a file may come from anywhere: its size, its kinds and its texts are checked, and nothing that
it does not need is looked at.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greybayes._files import reason
from greybayes.errors import GreybayesError, nearest

MAX_BYTES = 16 * 2**20
# What a table and a figure can show.
_MAX_RECORDS, _MAX_PARAMETERS, _MAX_TEXT = 100_000, 200, 200


def read_result(path: str | Path, record: str | None = None) -> dict[str, Any]:
    """One record's result from a file: `label`, `record`, `parameters`, `fit_percent`, `seconds`.

    `record` says which where the file has several. A file that is not what `--json` prints is
    refused with a sentence.
    """
    path = Path(path)
    rows = _records(path)
    names = [_text(row.get("record", ""), path, "the name of a record") for row in rows]
    if record is None and len(rows) > 1:
        some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise GreybayesError(f"{path} has {len(rows)} records: {some}; choose one with --record.")
    if record is not None and record not in names:
        raise GreybayesError(f"{path} has no record {record}; {nearest(record, names)}")
    k = 0 if record is None else names.index(record)
    return {"record": names[k], **_checked(rows[k], path)}


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        raise GreybayesError(f"{path} cannot be read ({reason(problem)}).") from None
    if len(data) > MAX_BYTES:
        raise GreybayesError(f"{path} is larger than {MAX_BYTES // 2**20} MiB, which no result is.")
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        raise _wrong(path, "it is not JSON") from None
    rows = whole.get("records") if isinstance(whole, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > _MAX_RECORDS:
        raise _wrong(path, "it has no list of records")
    if not all(isinstance(row, dict) for row in rows):
        raise _wrong(path, "a record is not an object")
    # What is said once of all records holds for each.
    common = {key: whole[key] for key in ("model", "method") if key in whole}
    return [common | row for row in rows]


def _checked(row: Mapping[str, Any], path: Path) -> dict[str, Any]:
    parameters = row.get("parameters")
    if not isinstance(parameters, list) or not 0 < len(parameters) <= _MAX_PARAMETERS:
        raise _wrong(path, f"a record needs a list of 1 to {_MAX_PARAMETERS} parameters")
    found = []
    for each in parameters:
        if not isinstance(each, dict):
            raise _wrong(path, "a parameter is not an object")
        entry: dict[str, Any] = {
            "name": _text(each.get("name"), path, "the name of a parameter"),
            "mean": _number(each.get("mean"), path, "the mean of a parameter"),
        }
        ends = each.get("interval95")
        if ends is not None:
            if not isinstance(ends, list) or len(ends) != 2:
                raise _wrong(path, "interval95 is not a pair of numbers")
            pair = [_number(end, path, "an end of an interval") for end in ends]
            entry["interval95"] = None if None in pair else pair
        found.append(entry)
    if len({entry["name"] for entry in found}) < len(found):
        raise _wrong(path, "two parameters have one name")
    return {
        "model": _text(row.get("model", ""), path, "the model"),
        "method": _text(row.get("method", ""), path, "the method"),
        "status": _text(row.get("status", ""), path, "the status"),
        "parameters": found,
        "fit_percent": _number(row.get("fit_percent"), path, "fit_percent"),
        "seconds": _number(row.get("seconds"), path, "seconds"),
    }


def _text(value: Any, path: Path, what: str) -> str:
    # What a terminal would take for a command is not printable.
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise _wrong(path, f"{what} is not a short printable text")
    return value


def _number(value: Any, path: Path, what: str) -> float | None:
    """A number; None where there is none, or it is not finite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, f"{what} is not a number")
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _wrong(path: Path, why: str) -> GreybayesError:
    return GreybayesError(f"{path} is not what estimate --json or fit --json prints: {why}.")


def read_results(paths: Sequence[str | Path], record: str | None = None) -> list[dict[str, Any]]:
    """The results of several files for one record, each with a `label` of its own.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "map.json"
    ...     row = {"record": "a", "parameters": [{"name": "gain", "mean": 1.5}]}
    ...     _ = path.write_text(json.dumps({"method": "map", "records": [row]}))
    ...     [result["label"] for result in read_results([path])]
    ['map']
    """
    results = [read_result(path, record) for path in paths]
    for path, result in zip(paths[1:], results[1:], strict=True):
        if result["record"] != results[0]["record"]:
            raise GreybayesError(
                f"{paths[0]} is of record {results[0]['record'] or 'without a name'}, {path} of "
                f"{result['record'] or 'one without a name'}; compare results of one record."
            )
    methods = Counter(result["method"] for result in results)
    stems = Counter(Path(path).stem for path in paths)
    for path, result in zip(paths, results, strict=True):
        method, stem = result["method"], Path(path).stem
        result["label"] = str(path) if stems[stem] > 1 else stem
        if method and methods[method] == 1:
            result["label"] = method
        result["path"] = str(path)
    return results


def comparison_rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each parameter, then fit %, seconds and status; a column for each result.

    >>> result = {"label": "map", "parameters": [{"name": "a", "mean": 1.0}], "seconds": 2.0}
    >>> comparison_rows([result])
    [['a', '1'], ['seconds', '2']]
    """
    names = dict.fromkeys(row["name"] for each in results for row in each["parameters"])
    rows = []
    for name in names:
        cells = []
        for each in results:
            row = next((row for row in each["parameters"] if row["name"] == name), {})
            mean, ends = row.get("mean"), row.get("interval95")
            text = "" if mean is None else f"{mean:.4g}"
            cells.append(text + (f" ({ends[0]:.4g} to {ends[1]:.4g})" if text and ends else ""))
        rows.append([name, *cells])
    for title, key, form in (("fit %", "fit_percent", ".1f"), ("seconds", "seconds", ".3g")):
        values = [each.get(key) for each in results]
        if any(value is not None for value in values):
            rows.append(
                [title, *("" if value is None else format(value, form) for value in values)]
            )
    states = [each.get("status", "") for each in results]
    return [*rows, ["status", *states]] if any(states) else rows
