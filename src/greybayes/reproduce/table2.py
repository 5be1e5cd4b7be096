"""Table 2: which size of the paper's networks is best on M1? A grid, in paper mode."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from greybayes.amortized.paper import PaperSettings
from greybayes.amortized.study import Choices, Trial
from greybayes.amortized.tuning import After, tune
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Data, Task, markdown_table

TITLE = "Table 2: sizes of the network on M1"
MODEL = "growth1"
VARY = {"depth": (1, 2), "width": (30, 40, 50, 60), "dense": (32, 40)}
ESSENTIAL = ("GRU",)
Size = tuple[int, int, int]
"""Layers, hidden units, dense units."""
QUICK = {"depth": (1,), "width": (30, 60), "dense": (32,)}
CHOSEN: Size = (2, 30, 32)
SPREAD, BEST = "GRU, more seeds", "GRU, our best with more seeds"


def sources(data: Data) -> dict[str, Path]:
    """It reads nothing."""
    return {}


def run(task: Task) -> None:
    """The grid for the GRU; the paper's size and our best with more seeds; the LSTM's grid."""
    ours = _values(task.cell("GRU", lambda: _grid(task, "gru")))
    chosen = CHOSEN if task.full else _size({name: some[0] for name, some in QUICK.items()})
    task.cell(SPREAD, lambda: _spread(task, "gru-chosen", chosen))
    best = next(iter(ours))
    if best != chosen:
        task.cell(BEST, lambda: _spread(task, "gru-best", best))
    task.cell("LSTM", lambda: _grid(task, "lstm"))


def _grid(task: Task, network: str) -> Cell:
    """All sizes of a network; the page has those that are ready while the others are trained."""
    size = task.paper_size(500)

    def cell(trials: list[Trial]) -> Cell:
        seconds = round(sum(trial.seconds or 0.0 for trial in trials if trial.value), 1)
        given: dict[str, Any] = {"network": network, "seed": task.seed, **size}
        settings = asdict(PaperSettings(**given))
        return {
            "trials": [asdict(trial) for trial in trials],
            **size,
            "seconds": seconds,
            "settings": {
                n: value for n, value in settings.items() if n not in ("sizes", "devices")
            },
        }

    def after(trials: list[Trial]) -> None:
        if any(trial.value is not None for trial in trials):
            task.journal.so_far(network.upper(), cell(trials))

    return cell(_study(task, network, VARY if task.full else QUICK, task.seed, after))


def _spread(task: Task, name: str, size: Size) -> Cell:
    """One size with two more seeds: other thetas, paths and first weights."""
    settings = dict(zip(VARY, size, strict=True))
    vary = {name: (value,) for name, value in settings.items()}
    found = [_study(task, name, vary, task.seed + more)[0] for more in (1, 2)]
    return {
        "size": settings,
        **task.paper_size(500),
        "values": [trial.value for trial in found],
        "seconds": round(sum(trial.seconds or 0.0 for trial in found), 1),
    }


def _study(
    task: Task,
    name: str,
    vary: Mapping[str, Choices],
    seed: int,
    after: After | None = None,
) -> list[Trial]:
    """One study, which can be watched, and which goes on where it was stopped.

    Its name begins with that of the network.
    """
    network = name.split("-")[0]
    file = f"table2-{name}{'' if task.full else '-quick'}-{seed}.sqlite"
    return tune(
        MODEL,
        vary,
        study=task.journal.path.with_name(file),
        preset="paper",
        settings={"network": network, **task.paper_size(500)},
        seed=seed,
        watch=lambda number, of, p: task.tell(
            f"{name}, seed {seed}, trial {number} of {of}, epoch {p.step} of {p.steps}"
        ),
        after=after,
    )


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published, the best first."""
    printed = {tuple(row[:3]): row[4] for row in published["rows"]}
    sections = []
    cells = told["cells"]
    grids = {name: cells[name] for name in ("GRU", "LSTM") if name in cells}
    for network, cell in grids.items():
        ready = [trial for trial in cell["trials"] if trial["state"] == "complete"]
        rows = [
            [
                *(str(each) for each in _size(trial["settings"])),
                f"{trial['value']:.5f}",
                f"{printed[_size(trial['settings'])]:.5f}" if network == "GRU" else "",
                f"{trial['seconds']:,.0f}",
            ]
            for trial in ready
        ]
        titles = ["layers", "hidden", "dense", "validation, ours", "published", "seconds"]
        so_far = f", {len(ready)} sizes so far" if cell.get("partial") else ""
        sections.append(
            f"**{network}**, P = {cell['n_thetas']}, M = {cell['n_paths']}{so_far}.\n\n"
            f"{markdown_table(titles, rows)}"
        )
    sections.append(
        "Mean squared error of the standard deviations on the validation set, best epoch. "
        + _chosen(grids["GRU"], printed)
        + _luck(cells)
    )
    if told["size"] == "quick":
        sections.append(
            "A quick run shows that the grid is walked through and written down, not which size is "
            "best: its networks see three epochs of a fiftieth of the paths."
        )
    return "\n\n".join(sections)


def _size(settings: Mapping[str, int]) -> Size:
    return settings["depth"], settings["width"], settings["dense"]


def _words(size: Size) -> str:
    return f"{size[0]} x {size[1]} with {size[2]} dense units"


def _values(cell: Cell) -> dict[Size, float]:
    """The sizes that are ready, the best first."""
    trials = cell["trials"]
    return {_size(t["settings"]): t["value"] for t in trials if t["value"] is not None}


def _chosen(cell: Cell, printed: Mapping[Size, float]) -> str:
    """The paper's best GRU and ours."""
    best = min(printed, key=lambda size: printed[size])
    told = (
        f"The paper chose {_words(best)} for the GRU; its sizes differ little, from "
        f"{min(printed.values()):.5f} to {max(printed.values()):.5f}, and two layers of 60 learn "
        "the training set by heart."
    )
    ours = _values(cell)
    if not ours:
        return told
    first, least = next(iter(ours.items()))
    if first == best:
        return f"{told} Here it is the best of {len(ours)}, too."
    stands = f"; the paper's stands at {ours[best]:.5f}" if best in ours else ""
    return f"{told} Here {_words(first)} is the best of {len(ours)}, {least:.5f}{stands}."


def _luck(cells: Mapping[str, Cell]) -> str:
    """What another seed changes, beside what another size does."""
    ours = _values(cells["GRU"])

    def seeds(name: str) -> list[float]:
        """Of all three."""
        spread = cells.get(name)
        size = _size(spread["size"]) if spread else None
        return [ours[size], *spread["values"]] if spread and size in ours else []

    usual, best = seeds(SPREAD), seeds(BEST)
    if not usual:
        return ""
    size = _words(_size(cells[SPREAD]["size"]))
    within = sum(value <= max(usual) for value in ours.values())
    told = (
        f" With three seeds, each with thetas and paths of its own, {size} comes to "
        f"{min(usual):.5f} to {max(usual):.5f}; {within} of {len(ours)} sizes are within that or "
        "better."
    )
    if not best:
        return told
    # The first seed is the one that it was chosen by.
    better = sum(one < other for one, other in zip(best[1:], usual[1:], strict=True))
    told += (
        f" Our best with the same seeds comes to {min(best):.5f} to {max(best):.5f}; with "
        f"{better} of the two by which it was not chosen it is better than {size}."
    )
    overlap = min(usual) <= max(best)
    return told + (" The two ranges overlap." if overlap else "")
