"""From the disk and back, whole files at a time."""

import stat
from functools import partial
from pathlib import Path

from greybayes import _files
from greybayes.errors import RecordError
from greybayes.record_files.address import format_of

MAX_BYTES = 256 * 2**20

write_atomically = partial(_files.write_atomically, error=RecordError)


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """The whole file, its size checked before it is read."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise RecordError(f"{path} is a folder: name a file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path} is a device or a pipe: save the data to a file first.")
        format_of(path)
        if status.st_size > max_bytes:
            raise too_large(path, f"has {status.st_size / 2**20:.1f} MiB", max_bytes)
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(
            f"there is no file {path}: check the name and the folder ({Path.cwd()})."
        ) from None
    except (OSError, ValueError) as problem:
        raise RecordError(
            f"{path} cannot be read ({_files.reason(problem)}): check its permissions."
        ) from None
    if not data:
        raise RecordError(f"{path} is empty: it should hold at least one sample.")
    return data


def too_large(source: Path | str, size: str, max_bytes: int) -> RecordError:
    """The sentence for a file beyond the limit, on disk or unpacked."""
    limit = f"{max_bytes / 2**20:.1f} MiB"
    return RecordError(f"{source} {size}; the limit is {limit}: cut it, or raise max_bytes.")
