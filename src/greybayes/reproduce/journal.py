"""What a part of the paper came to: cells, each computed once, in a JSON file.

A run that is stopped goes on with the first cell that the file does not have.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greybayes._files import write_atomically
from greybayes._version import __version__
from greybayes.errors import GreybayesError
from greybayes.reproduce.provenance import describe_commit, describe_machine

Cell = dict[str, Any]


class Journal:
    """The file of one part. `about` is what the figures depend on: size, seed, data."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.cells: dict[str, Cell] = {}
        if path.exists():
            told = read(path)
            # Cells of another seed or size would be mixed with ours.
            if all(told.get(name) == value for name, value in self.about.items()):
                self.cells = told["cells"]

    def cell(self, name: str, compute: Callable[[], Cell]) -> Cell:
        """The cell of this name, from the file where it is there, with the seconds it took."""
        if name not in self.cells:
            started = time.perf_counter()
            found = compute()
            self.cells[name] = {**found, "seconds": round(time.perf_counter() - started, 3)}
            self._write()
        return self.cells[name]

    def _write(self) -> None:
        told = {
            **self.about,
            "package": __version__,
            "commit": describe_commit(self.path.parent),
            "machine": describe_machine(),
            "seconds": round(sum(cell["seconds"] for cell in self.cells.values()), 1),
            "cells": self.cells,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(told, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path, text.encode(), GreybayesError)


def read(path: Path) -> dict[str, Any]:
    """The contents of a journal's file."""
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("cells"), dict):
        raise GreybayesError(f"{path} is not a result of greybayes reproduce; remove it.")
    return told
