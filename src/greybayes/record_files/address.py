"""Addresses: which file, and which of its columns."""

import os
import re
from pathlib import Path

from greybayes.errors import RecordError

KEYS = ("y", "u", "t", "dt", "record")
FORMATS = {".csv": "csv", ".txt": "csv", ".tsv": "csv", ".dat": "csv", ".mat": "mat"}
FORMATS |= {".parquet": "parquet"}


def parse_address(address: str | os.PathLike[str]) -> tuple[Path, dict[str, str]]:
    """Split `FILE[:y=z2,u=u2,dt=0.02]`.

    >>> parse_address("drives.mat:y=z2,u=u2,dt=0.02")[1]
    {'y': 'z2', 'u': 'u2', 'dt': '0.02'}
    """
    text = os.fsdecode(address)
    colons = [index for index, letter in enumerate(text) if letter == ":"][::-1]
    # A name on disk wins, the longest first: both file names and column names may hold a colon.
    for end in (len(text), *colons):
        if _is_file(text[:end]):
            return Path(text[:end]), _options(text[end + 1 :], text)
    for end in colons:
        if re.match(r"\s*\w+\s*=", text[end + 1 :]):
            return Path(text[:end]), _options(text[end + 1 :], text)
    return Path(text), {}


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long a name, or a zero in it
        return False


def _options(text: str, address: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(",") if text.strip() else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise RecordError(
                f"the address '{address}' holds '{part}', which is not KEY=VALUE: write it as "
                "FILE:y=NAME,u=NAME,dt=0.02 (several channels: y=y1+y2)."
            )
        if key not in KEYS:
            raise RecordError(
                f"the address '{address}' has the unknown key '{key}': "
                f"the keys are {', '.join(KEYS)}."
            )
        if key in options:
            raise RecordError(
                f"the address '{address}' gives '{key}' twice: give it once (y=y1+y2)."
            )
        options[key] = value
    return options


def format_of(path: Path) -> str:
    """`csv`, `mat` or `parquet`, by the end of the file's name."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise RecordError(
            f"{path} ends in '{suffix}', which is no kind of file that holds records: "
            f"use one of {', '.join(FORMATS)}."
        )
    return FORMATS[suffix]
