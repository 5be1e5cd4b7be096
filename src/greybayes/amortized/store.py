"""Estimator files: a JSON header and named arrays in one safetensors file. Never pickle.

The file is an ordinary safetensors file whose metadata hold the header, so any tool for that
format opens it. A SHA-256 over the whole file (with its own digits as zeros) stands in the
metadata: a file that lost or changed a bit is refused. Sizes are checked before anything is read,
and nothing in the file is ever run.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from greybayes._files import write_atomically
from greybayes.errors import EstimatorError

FORMAT = 1
MAX_HEADER = 4 * 2**20
MAX_FILE = 256 * 2**20
_NO_HASH = "0" * 64


def write_file(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a file whole or not at all."""
    from safetensors.numpy import save

    text = json.dumps({**header, "format": FORMAT}, sort_keys=True, allow_nan=False)
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = save(contiguous, metadata={"greybayes": text, "sha256": _NO_HASH})
    digest = hashlib.sha256(data).hexdigest()
    head = int.from_bytes(data[:8], "little") + 8
    assert data[:head].count(_NO_HASH.encode()) == 1
    data = data[:head].replace(_NO_HASH.encode(), digest.encode()) + data[head:]
    write_atomically(Path(path), data, EstimatorError)


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file, or `EstimatorError` with one sentence."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    data = _read_checked(path)
    head = int.from_bytes(data[:8], "little") + 8
    try:
        metadata = json.loads(data[8:head])["__metadata__"]
        digest, text = metadata["sha256"], metadata["greybayes"]
        header = dict(json.loads(text))
        zeroed = data[:head].replace(digest.encode(), _NO_HASH.encode(), 1)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EstimatorError(
            f"{path} is not an estimator file of greybayes; name one that train wrote."
        ) from None
    if hashlib.sha256(zeroed + data[head:]).hexdigest() != digest:
        raise EstimatorError(
            f"{path} is damaged: its contents do not match its checksum; copy it again, or train "
            "the estimator anew."
        )
    if header.get("format") != FORMAT:
        raise EstimatorError(
            f"{path} has format {header.get('format')}, this greybayes reads {FORMAT}; train the "
            "estimator anew, or install the greybayes that wrote it "
            f"({header.get('package', 'unknown')})."
        )
    try:
        return header, load(data)
    except (SafetensorError, ValueError, KeyError):
        raise EstimatorError(f"{path} is damaged: its weights cannot be read.") from None


def _read_checked(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            head = int.from_bytes(start, "little")
            if len(start) < 8 or head > size - 8:
                raise EstimatorError(
                    f"{path} is cut short, or is not an estimator file; copy it again, or train "
                    "the estimator anew."
                )
            if head > MAX_HEADER or size > MAX_FILE:
                raise EstimatorError(
                    f"{path} is larger than any estimator ({size} bytes, header of {head}); it is "
                    "not an estimator file."
                )
            return start + stream.read(size - 8)
    except FileNotFoundError:
        raise EstimatorError(f"there is no file {path}; name one that train wrote.") from None
    except OSError as error:
        raise EstimatorError(f"{path} cannot be read: {error.strerror}.") from None
