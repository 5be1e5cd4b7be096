"""What every part is given, and what its page is written with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from greybayes.reproduce.journal import Cell, Journal


class Data(NamedTuple):
    """Where the measured and the authors' data are."""

    evaluation: Path | None = None
    """The folder of the authors' test signals; without it they are drawn from the seed."""
    drives: Path | None = None
    """The measured records of the coupled drives."""


@dataclass(frozen=True)
class Task:
    """A part to be computed: how large, from which seed and data, and into which file."""

    full: bool
    seed: int
    journal: Journal
    data: Data
    tell: Callable[[str], None]
    """Hears what is computed next."""

    @property
    def draws(self) -> int:
        """Prior draws of a Bayes risk."""
        return 20_000 if self.full else 1000

    def paper_size(self, n_thetas: int) -> dict[str, int]:
        """P, M and the most epochs in paper mode; the paper's M of 500 takes ten times as long."""
        if self.full:
            return {"n_thetas": n_thetas, "n_paths": 50}
        return {"n_thetas": n_thetas // 10, "n_paths": 10, "epochs": 3}

    def cell(self, name: str, compute: Callable[[], Cell], source: str | None = None) -> Cell:
        """A cell of the part, computed where the file does not have it.

        `source` tells what this cell depends on and others do not, such as a shipped network: where
        it differs from last time, this cell is computed anew, and those that took hours are kept.
        """
        if not self.journal.has(name, source):
            self.tell(name)
        return self.journal.cell(name, compute, source)


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of a page.

    >>> print(markdown_table(["P", "ours"], [["400", "5.4"]]))
    | P | ours |
    |---|---|
    | 400 | 5.4 |
    """
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(
        f"|{'|'.join(line)}|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines
    )
