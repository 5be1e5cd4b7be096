"""MAT files of version 5 to 7.

They are read here and not by scipy.io.loadmat, which ends the whole process (segmentation fault,
SciPy 1.17) on many a damaged file: it looks up the type code of a tag unchecked. What a record
needs, matrices and cells of them, is little, and everything else is skipped unread. See "MAT-File
Format" (MathWorks), chapter "Level 5 MAT-files".
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from greybayes.errors import RecordError
from greybayes.record_files.disk import too_large
from greybayes.record_files.note import NOTE, parse_note
from greybayes.record_files.table import Cells, Other, Table

_DAMAGED = (ValueError, IndexError, KeyError, OverflowError, MemoryError, struct.error, zlib.error)
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8"}
_NUMBERS |= {13: "u8"}
_CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "text", 5: "sparse", 16: "function"}


def read_mat(data: bytes, source: str, max_bytes: int) -> Table:
    """All variables as they are: matrices (a row vector as a column), `Cells`, or `Other`."""
    if data[124:126] in (b"\x00\x02", b"\x02\x00") or b"\x89HDF\r\n" in data[:1024]:
        raise RecordError(
            f"{source} is a MAT file of version 7.3 (HDF5): save it again with save(..., '-v7')."
        )
    try:
        order = {b"IM": "<", b"MI": ">"}[data[126:128]]
        matrices = list(_matrices(memoryview(data)[128:], order, max_bytes))
        if sum(len(matrix) for matrix in matrices) > max_bytes:
            raise too_large(source, "unpacks to more than allowed", max_bytes)
        columns = dict(_variable(matrix, order) for matrix in matrices)
    except _DAMAGED:
        raise RecordError(
            f"{source} is damaged, or not a MAT file of version 5 to 7: "
            "save it again with save(..., '-v7')."
        ) from None
    columns.pop("", None)  # where MATLAB keeps what its objects refer to
    noted = columns.pop(NOTE, None)
    note = parse_note(noted.words, source) if isinstance(noted, Other) and noted.words else {}
    return Table(source, columns, range(1, len(data) + 1), note=note, kind="variable")


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """The type code and the bytes of each element in turn."""
    position = 0
    while position < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, position)
        if kind >> 16:  # four bytes or fewer are kept within the tag
            kind, size = kind & 0xFFFF, kind >> 16
            start, end = position + 4, position + 8
            position = end
        else:
            start, end = position + 8, len(data)
            position = start + size + (0 if kind in (_MATRIX, _COMPRESSED) else -size % 8)
        if start + size > end:
            raise ValueError("an element goes on beyond its end")
        yield kind, data[start : start + size]


def _matrices(data: memoryview, order: str, max_bytes: int) -> Iterator[memoryview]:
    """The variables, inflated; of too much, only enough to see that it is too much."""
    left = max_bytes
    for kind, payload in _elements(data, order):
        if kind == _COMPRESSED:
            # 8 more for the tag of the element within.
            inflated = zlib.decompressobj().decompress(payload, left + 9)
            if len(inflated) > left + 8:
                yield memoryview(inflated)
                return
            kind, payload = next(_elements(memoryview(inflated), order), (0, payload))
        if kind != _MATRIX:
            raise ValueError("not a variable")
        left -= len(payload)
        yield payload


def _variable(
    data: memoryview, order: str, nested: bool = False
) -> tuple[str, np.ndarray | Cells | Other]:
    """The name and the value of one variable, or of one cell."""
    parts = list(_elements(data, order))
    flags = struct.unpack_from(f"{order}I", parts[0][1])[0]
    group, is_complex = flags & 0xFF, bool(flags & 0x800)
    if group == 17:  # opaque: a string, a table, an iddata of today; it has no size
        return _ascii(parts[1][1]), Other("an object")
    shape = tuple(np.frombuffer(parts[1][1], f"{order}i4").tolist())
    name, content = _ascii(parts[2][1]), parts[3:]
    size = math.prod(shape)
    described = "x".join(map(str, shape))
    if group == 4 and content:
        return name, Other(f"text ({described})", _text(*content[0], order))
    if size == 0 or len(shape) != 2 or is_complex or (nested and group == 1):
        what = "empty" if size == 0 else "complex" if is_complex else "an array"
        return name, Other(f"{what} ({described})")
    if 6 <= group <= 15:
        kind, raw = content[0]
        values = np.frombuffer(raw, order + _NUMBERS[kind]).astype(np.float64)
        # MATLAB writes column by column. A row vector is a signal too: as a column.
        values = values.reshape(shape, order="F")
        return name, np.ascontiguousarray(values.reshape(-1, 1) if 1 in shape else values)
    if group == 1:
        if len(content) != size or any(kind != _MATRIX for kind, _ in content):
            raise ValueError("not as many cells as the size says")
        cells = [_variable(raw, order, nested=True)[1] for _, raw in content]
        if not all(isinstance(cell, np.ndarray) for cell in cells):
            return name, Other(f"a cell array of other things than matrices ({described})")
        return name, Cells([cells[row :: shape[0]] for row in range(shape[0])])  # type: ignore[misc]
    return name, Other(f"{_CLASSES.get(group, 'unknown')} ({described})")


def _ascii(raw: memoryview) -> str:
    return bytes(raw).decode("ascii")


def _text(kind: int, raw: memoryview, order: str) -> str:
    wide = "utf-16-le" if order == "<" else "utf-16-be"
    return bytes(raw).decode(wide if kind in (4, 17) else "utf-8", errors="replace")


def mat_bytes(variables: Mapping[str, np.ndarray], note: str) -> bytes:
    import scipy.io

    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {**variables, NOTE: note}, do_compression=True)
    return buffer.getvalue()
