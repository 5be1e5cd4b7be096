"""Which parts there are, and how they are computed and written down."""

import functools
import importlib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from greybayes._files import write_atomically
from greybayes.errors import GreybayesError, nearest
from greybayes.plots import save_figure
from greybayes.reproduce.journal import Journal, read
from greybayes.reproduce.task import Task

# The module of each part; a figure that shows what a table holds is computed with it.
PARTS = {
    "table1": "table1",
    "table2": "table2",
    "table3": "growth1",
    "table4": "growth2",
    "table5": "growth2",
    "table6": "growth2",
    "table7": "drives",
    "figure3": "growth1",
    "figure4": "growth1",
    "figure5": "growth1",
    "figure6": "drives",
}
FOLDER = Path("benchmarks/results/paper")


def published() -> dict[str, Any]:
    """The published figures, by table."""
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text())


def chosen(parts: Sequence[str]) -> list[str]:
    """The modules of some parts, each once.

    >>> chosen(["table7", "figure6", "table1"])
    ['drives', 'table1']
    """
    for part in parts:
        if part not in (*PARTS, "all"):
            raise GreybayesError(
                f"there is no {part} to reproduce; {nearest(part, [*PARTS, 'all'])}"
            )
    names = [*PARTS] if "all" in parts else parts
    return list(dict.fromkeys(PARTS[part] for part in names))


def reproduce(
    parts: Sequence[str],
    *,
    full: bool = False,
    seed: int = 0,
    folder: Path = FOLDER,
    evaluation: Path | None = None,
    drives: Path | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> dict[str, Mapping[str, Any]]:
    """Compute what is not in the folder yet; the contents of each file, by module."""
    found = {}
    for name in chosen(parts):
        path = _path(folder, name, full)
        about = {
            "part": name,
            "size": "full" if full else "quick",
            "seed": seed,
            "signals": "of the seed" if evaluation is None else "the authors'",
        }
        heard = functools.partial(lambda name, what: tell(f"{name}: {what}"), name)
        task = Task(full, seed, Journal(path, about), evaluation, drives, heard)
        part = module(name)
        part.run(task)
        # Drawn while the data are at hand: the files hold none that was measured.
        for figure, drawn in getattr(part, "pictures", lambda task: {})(task).items():
            save_figure(_path(folder, figure, full, ".svg"), drawn)
        found[name] = read(path)
    return found


def write_page(target: Path, folder: Path = FOLDER) -> None:
    """The page of all parts that were computed: the full run of each, or else the quick one."""
    sections = [_HEAD]
    for name in chosen(["all"]):
        paths = [_path(folder, name, full) for full in (True, False)]
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            continue
        full = path == paths[0]
        sections.append(page(name, read(path)))
        for figure, own in PARTS.items():
            picture = _path(folder, figure, full, ".svg")
            if own == name and picture.exists():
                link = Path(os.path.relpath(picture, target.parent)).as_posix()
                sections.append(f"![Figure {figure.removeprefix('figure')}]({link})\n")
    write_atomically(target, "\n".join(sections).encode(), GreybayesError)


_HEAD = """# The paper, made again

Every table and figure of the paper, with our methods: ours beside published. This page is written \
by `greybayes reproduce --page docs/paper.md` from the files in `benchmarks/results/paper`; \
`greybayes reproduce all --full` makes those anew.
"""


def page(name: str, told: Mapping[str, Any]) -> str:
    """The section of a part: ours beside published, and where it comes from."""
    part = module(name)
    tables = published()
    own = [key for key, value in PARTS.items() if value == name and key in tables]
    figures = tables if len(own) > 1 else tables[own[0]]
    machine = told["machine"]
    origin = (
        f"*{told['size'].capitalize()} run, seed {told['seed']}, {told['seconds']:,.0f} s on "
        f"{machine['cores']} cores ({machine['cpu']}), commit {told['commit'] or 'unknown'}.*"
    )
    return f"## {part.TITLE}\n\n{part.page(told, figures)}\n\n{origin}\n"


def module(name: str) -> ModuleType:
    """The module of a part."""
    return importlib.import_module(f"greybayes.reproduce.{name}")


def _path(folder: Path, name: str, full: bool, suffix: str = ".json") -> Path:
    return folder / f"{name}{'' if full else '-quick'}{suffix}"
