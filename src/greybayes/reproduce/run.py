"""Which parts there are, and how they are computed and written down."""

import importlib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from greybayes._files import alone_with, reason, write_atomically
from greybayes.errors import GreybayesError, nearest
from greybayes.plots import save_figure
from greybayes.reproduce.journal import Journal, digest_of_file, each_once, read
from greybayes.reproduce.task import Data, Task

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
    names = chosen(parts)
    data = Data(evaluation, drives)
    # What is missing is told before the hours of the parts before it.
    abouts = {
        name: {
            "part": name,
            "size": "full" if full else "quick",
            "seed": seed,
            **{
                what: None if file is None else digest_of_file(file)
                for what, file in module(name).sources(data).items()
            },
        }
        for name in names
    }
    try:
        if names:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise GreybayesError(f"{folder} cannot be made ({reason(problem)}).") from None
    paths = {name: _path(folder, name, full) for name in names}
    for name, path in paths.items():
        _check_goes_on(name, Journal(path, abouts[name]))
    for name, path in paths.items():
        part = module(name)

        def heard(what: str, name: str = name) -> None:
            tell(f"{name}: {what}")

        # Two runs would each write their own cells over those of the other.
        with alone_with(path):
            task = Task(full, seed, Journal(path, abouts[name]), data, heard)
            try:
                part.run(task)
                task.journal.finish()
            finally:
                # Drawn while the data are at hand, which the files do not hold; of a run that was
                # stopped, too.
                far = hasattr(part, "pictures") and _has_essentials(part, task.journal.cells)
                for figure, drawn in (part.pictures(task) if far else {}).items():
                    save_figure(_path(folder, figure, full, ".svg"), drawn)
    return {name: read(path) for name, path in paths.items()}


def _check_goes_on(name: str, journal: Journal) -> None:
    """Refuse, before hours of another part, a file that this version cannot go on with."""
    if _has_essentials(module(name), journal.cells):
        page(name, read(journal.path))


def _has_essentials(part: ModuleType, cells: Mapping[str, Any]) -> bool:
    """Whether the cells are there that its page and its pictures are about."""
    return set(part.ESSENTIAL) <= set(cells)


def write_page(target: Path, folder: Path = FOLDER) -> None:
    """Write the page of all parts."""
    write_atomically(target, whole_page(target, folder).encode(), GreybayesError)


def whole_page(target: Path, folder: Path) -> str:
    """All parts, for a file there: the full run where it has come far enough, or the quick one."""
    sections = [_HEAD]
    for name in chosen(["all"]):
        runs = {full: _path(folder, name, full) for full in (True, False)}
        found = {full: read(path) for full, path in runs.items() if path.exists()}
        far = [full for full in found if _has_essentials(module(name), found[full]["cells"])]
        if not far:
            continue
        full = far[0]
        sections.append(page(name, found[full]))
        for figure, own in PARTS.items():
            picture = _path(folder, figure, full, ".svg")
            if own == name and picture.exists():
                link = Path(os.path.relpath(picture, target.parent)).as_posix()
                number = figure.removeprefix("figure")
                caption = f"**Figure {number}.** {module(name).CAPTIONS[figure]}"
                sections.append(f"![Figure {number}]({link})\n\n{caption}\n")
    if len(sections) == 1:
        raise GreybayesError(f"{folder} has no results of greybayes reproduce; name it with -o.")
    return "\n".join(sections)


_HEAD = """# The paper, made again

Every table and figure of the paper, with our methods: ours beside published. This page is written \
by `greybayes reproduce --page docs/paper.md` from the files in `benchmarks/results/paper`; \
`greybayes reproduce all --full --evaluation DIR --drives FILE -o NEW` makes those anew, with the \
authors' signals and the measured drives.
"""


def page(name: str, told: Mapping[str, Any]) -> str:
    """The section of a part: ours beside published, and where it comes from."""
    try:
        return _section(name, told)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise GreybayesError(
            f"the results of {name} are of another version of greybayes, or were changed by hand: "
            "their page cannot be written; compute them anew in another folder."
        ) from None


def _section(name: str, told: Mapping[str, Any]) -> str:
    part = module(name)
    tables = published()
    own = [key for key, value in PARTS.items() if value == name and key in tables]
    figures = tables if len(own) > 1 else tables[own[0]]
    machine = told["machine"]
    cells = told["cells"].values()
    commits = each_once(cell["commit"] or "unknown" for cell in cells)
    processors = each_once(cell.get("cpu") or machine["cpu"] for cell in cells)
    stopped = "" if told["complete"] else ", stopped: what it lacks is not in the table yet"
    signals = ""
    if "signals" in told:
        signals = ", the authors' signals" if told["signals"] else ", signals drawn from the seed"
    origin = (
        f"*{told['size'].capitalize()} run{stopped}; seed {told['seed']}{signals}, "
        f"{told['seconds']:,.0f} s on {machine['cores']} cores ({', '.join(processors)}), "
        f"commit {', '.join(commits)}.*"
    )
    return f"## {part.TITLE}\n\n{part.page(told, figures)}\n\n{origin}\n"


def module(name: str) -> ModuleType:
    """The module of a part."""
    return importlib.import_module(f"greybayes.reproduce.{name}")


def _path(folder: Path, name: str, full: bool, suffix: str = ".json") -> Path:
    return folder / f"{name}{'' if full else '-quick'}{suffix}"
