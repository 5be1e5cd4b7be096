"""Files that appear whole or not at all, or are worked at by one, and numbers for JSON."""

import contextlib
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from greybayes.errors import GreybayesError


def write_atomically(path: Path, data: bytes, error: type[GreybayesError]) -> None:
    """Write beside the target and rename: a reader sees the old file or the new, never a half.

    Where the path cannot be written, `error` is raised with one sentence.
    """
    try:
        target = path.resolve()
        if target.is_dir():
            raise error(f"{path} is a folder: name a file in it.")
        # A rename would replace a write-protected file without a question.
        if target.exists() and not os.access(target, os.W_OK):
            raise error(f"{path} is write-protected: choose another name.")
        temporary = target.with_name(f".greybayes-{secrets.token_hex(8)}.tmp")
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as problem:
        raise error(
            f"{path} cannot be written ({reason(problem)}): "
            "choose a folder that exists and is yours."
        ) from None


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Refuse where another process is at work with this file; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # A system without such locks.
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GreybayesError(
                f"{path} is in use: wait for the other process, or name another file."
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def reason(problem: Exception) -> str:
    """Why the system refused, without the number and the path that `str` puts around it."""
    return str(getattr(problem, "strerror", None) or problem)


def finite(value: Any) -> Any:
    """With null for what is no number: JSON has no infinity.

    >>> finite({"r_hat": [1.0, float("nan")]})
    {'r_hat': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
