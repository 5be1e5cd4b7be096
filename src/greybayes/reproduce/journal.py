"""What a part of the paper came to: cells, each computed once, in a JSON file.

A run that is stopped goes on with the first cell that the file does not have.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from greybayes._files import finite, reason, write_atomically
from greybayes._version import __version__
from greybayes.errors import GreybayesError
from greybayes.reproduce.provenance import describe_commit, describe_machine

Cell = dict[str, Any]
# What a page asks of a file.
_KEYS = {"size", "seed", "machine", "seconds", "complete", "cells"}
# What a sentence calls them.
_WORDS = {"signals": "set of signals", "drives": "file of the drives"}


class Journal:
    """The file of one part. `about` is what its figures depend on: size, seed, data."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.cells: dict[str, Cell] = {}
        self.complete = False
        self._machine = describe_machine()
        # Of the source that runs: in the hours of a cell the files may become others.
        self._commit = describe_commit(path.parent)
        if path.exists():
            told = read(path)
            differs = [name for name, value in self.about.items() if told.get(name) != value]
            if differs:
                words = ", ".join(_WORDS.get(name, name) for name in differs)
                raise GreybayesError(
                    f"{path} holds figures of another {words}; name another folder with -o, or "
                    "remove the file."
                )
            self.cells, self.complete = told["cells"], told["complete"]
            self._machine = told["machine"]
            for cell in self.cells.values():
                cell.setdefault("cpu", told["machine"].get("cpu"))

    def cell(self, name: str, compute: Callable[[], Cell], source: str | None = None) -> Cell:
        """The cell of this name, from the file where it is there; its seconds, commit and CPU.

        A cell that was computed in several runs tells its seconds itself. `source` is what this
        cell depends on and others do not, such as a network that may be trained anew.
        """
        if not self.has(name, source):
            started = time.perf_counter()
            found = compute()
            seconds = round(time.perf_counter() - started, 3)
            self._put(name, {"seconds": seconds, **found, **({"source": source} if source else {})})
        return self.cells[name]

    def has(self, name: str, source: str | None = None) -> bool:
        """Whether a cell is there, and whole, and not of something else."""
        found = self.cells.get(name, {"partial": True})
        return not found.get("partial") and found.get("source") == source

    def so_far(self, name: str, found: Cell) -> None:
        """What a cell of hours has come to; it is for the page, and is computed to its end yet."""
        self._put(name, {**found, "partial": True})

    def _put(self, name: str, found: Cell) -> None:
        """With the commits and the processors of all runs that have added to it."""
        found, before = finite(found), self.cells.get(name, {})
        known = {of: before.get(of) if before.get("partial") else None for of in ("commit", "cpu")}
        if {**found, **known} == before:
            return
        self._machine = describe_machine()
        own = {"commit": self._commit, "cpu": self._machine.get("cpu")}
        several = {of: ", ".join(each_once([known[of], own[of]])) or None for of in own}
        self.cells[name] = {**found, **several}
        self.complete = False
        self._write()

    def finish(self) -> None:
        """All cells are there. Where nothing was computed the file stays as it was."""
        if not self.complete:
            self.complete = True
            self._write()

    def _write(self) -> None:
        told = {
            **self.about,
            "package": __version__,
            # Of whoever computed the last cell.
            "machine": self._machine,
            "seconds": round(sum(cell["seconds"] for cell in self.cells.values()), 1),
            "complete": self.complete,
            "cells": self.cells,
        }
        text = json.dumps(told, indent=2, allow_nan=False) + "\n"
        write_atomically(self.path, text.encode(), GreybayesError)


def each_once(told: Iterable[str | None]) -> list[str]:
    """What several runs tell of themselves, each once: some were of several runs already.

    >>> each_once(["a1, b2", None, "b2"])
    ['a1', 'b2']
    """
    return list(dict.fromkeys(one for some in told if some for one in some.split(", ")))


def digest(contents: bytes) -> str:
    """What tells some contents from others."""
    return hashlib.sha256(contents).hexdigest()[:16]


def digest_of_file(file: Path) -> str:
    """What tells a file from others."""
    try:
        return digest(file.read_bytes())
    except OSError as problem:
        raise GreybayesError(f"{file} cannot be read ({reason(problem)}).") from None


def _is_result(told: Any) -> bool:
    """Whether it is what a journal writes, as far as all parts need it."""
    if not isinstance(told, dict) or not set(told) >= _KEYS or not isinstance(told["cells"], dict):
        return False
    return all(
        isinstance(cell, dict) and {"seconds", "commit"} <= set(cell)
        for cell in told["cells"].values()
    )


def read(path: Path) -> dict[str, Any]:
    """The contents of a journal's file."""
    told: Any = None
    with contextlib.suppress(OSError, ValueError):
        told = json.loads(path.read_text())
    if not _is_result(told):
        raise GreybayesError(f"{path} is not a result of greybayes reproduce; remove it.")
    return told
