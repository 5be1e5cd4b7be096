"""CSV files: the delimiter and the header found out, every row counted as an editor counts it."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.note import NOTE, parse_note
from greybayes.record_files.table import Table, number

_MARKS = ("\t", ";", "|", ",")


def read_csv(
    data: bytes, source: str, *, delimiter: str | None, decimal: str, header: bool | None
) -> Table:
    _check_marks(delimiter, decimal)
    lines = _decode(data, source).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    note = {}
    kept: list[tuple[int, str]] = []
    for row, line in enumerate(lines, start=1):
        if not line.startswith("#"):
            kept.append((row, line))
        elif line.startswith(f"# {NOTE} {{") and not note:
            note = parse_note(line[len(NOTE) + 3 :], f"{source}, row {row},")
    filled = [index for index, (_, line) in enumerate(kept) if line.strip()]
    if not filled:
        raise RecordError(f"{source} holds no samples: it should hold at least one row of numbers.")
    kept = kept[filled[0] : filled[-1] + 1]
    if note:  # we wrote it, so nothing need be guessed
        delimiter, header = delimiter or ",", header is not False
    mark = delimiter or _sniff([line for _, line in kept if line.strip()][:20], decimal)
    if decimal == "." and mark != "," and _has_decimal_commas(kept, mark):
        decimal = ","
    return _table(kept, mark, source, decimal, header, note)


def _has_decimal_commas(lines: Sequence[tuple[int, str]], mark: str) -> bool:
    """Whether numbers are written with commas, and none with a point: commas do not part fields."""
    fields = [text.strip() for _, line in lines[:20] for text in _split(line, mark)]
    with_comma = [text for text in fields if "," in text and _is_number(text, ",")]
    with_point = [text for text in fields if "." in text and _is_number(text, ".")]
    return bool(with_comma) and not with_point


def _table(
    lines: Sequence[tuple[int, str]],
    mark: str,
    source: str,
    decimal: str,
    header: bool | None,
    note: Mapping[str, Any],
) -> Table:
    first = [text.strip() for text in _split(lines[0][1], mark)]
    width = len(first)
    has_header = not all(_is_number(text, decimal) for text in first) if header is None else header
    names = [text or str(k) for k, text in enumerate(first, start=1)]
    names = names if has_header else [str(k) for k in range(1, width + 1)]
    if len(set(names)) < width:
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{source} has two columns called '{twice}': rename one of them.")
    rows, values = [], []
    for row, line in lines[1:] if has_header else lines:
        # In a file of one column an empty line is a missing sample; elsewhere it is only space.
        if width > 1 and not line.strip():
            continue
        fields = _split(line, mark) or [""]
        if len(fields) != width:
            raise RecordError(
                f"{source}, row {row} has {len(fields)} fields where row {lines[0][0]} has "
                f"{width}: mend the row, or say which delimiter the file has."
            )
        rows.append(row)
        values.append(fields)
    if not rows:
        raise RecordError(f"{source} has a header row but holds no samples: add rows of numbers.")
    columns = dict(zip(names, zip(*values, strict=True), strict=True))
    return Table(source, columns, rows, not has_header, decimal, note)


def _check_marks(delimiter: str | None, decimal: str) -> None:
    if decimal not in (".", ","):
        raise RecordError(f"decimal is {decimal!r}: it must be '.' or ','.")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in f'{decimal}#"\r\n\0'):
        raise RecordError(
            f"delimiter is {delimiter!r} (and decimal {decimal!r}): it must be one character, "
            "such as ',' ';' '|' tab or space, and not the decimal mark."
        )


def _decode(data: bytes, source: str) -> str:
    if b"\0" in data:
        raise RecordError(f"{source} is not text (it holds zero bytes): save it as UTF-8 CSV.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise RecordError(
            f"{source}, row {row} has a byte that is not UTF-8: save the file as UTF-8 CSV."
        ) from None


def _split(line: str, mark: str) -> list[str]:
    if mark == " ":
        return line.split()
    if '"' not in line:
        return line.split(mark)
    try:
        return next(csv.reader([line], delimiter=mark, skipinitialspace=True))
    except csv.Error:  # a field beyond the limit of the csv module
        return line.split(mark)


def _is_number(text: str, decimal: str) -> bool:
    try:
        number(text, decimal)
    except ValueError:
        return False
    return text != ""


def _sniff(lines: Sequence[str], decimal: str) -> str:
    marks = [mark for mark in _MARKS if mark != decimal]
    for mark in (*marks, " "):
        widths = {len(_split(line, mark)) for line in lines}
        if len(widths) == 1 and widths.pop() > 1:
            return mark
    # No mark divides every row alike, so a row is ragged: guess, and let the error name the row.
    in_first = [mark for mark in marks if mark in lines[0]]
    if in_first:
        return max(in_first, key=lines[0].count)
    alike = len(lines) > 1 and len(lines[0].split()) == len(lines[1].split()) > 1
    return " " if alike else marks[-1]


def csv_bytes(columns: Mapping[str, Any], note: str) -> bytes:
    lines = [f"# {NOTE} {note}", ",".join(map(_quote, columns))]
    lines += [",".join(fields) for fields in zip(*map(_fields, columns.values()), strict=True)]
    return ("\n".join(lines) + "\n").encode()


def _fields(values: np.ndarray | list[str]) -> list[str]:
    # repr is the shortest text that reads back as the same float64.
    if isinstance(values, np.ndarray):
        return ["NaN" if value != value else repr(value) for value in values.tolist()]
    return [_quote(value) for value in values]


def _quote(text: str) -> str:
    plain = not any(mark in text for mark in ',"#')
    return text if plain else '"' + text.replace('"', '""') + '"'
