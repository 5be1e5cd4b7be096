"""Table 2: which size of the paper's networks is best on M1? A grid, in paper mode."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from greybayes.amortized.tuning import Trial, tune
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Data, Task, markdown_table

TITLE = "Table 2: sizes of the network on M1"
MODEL = "growth1"
VARY = {"depth": (1, 2), "width": (30, 40, 50, 60), "dense": (32, 40)}
ESSENTIAL = ("GRU",)
Size = tuple[int, int, int]
"""Layers, hidden units, dense units."""
QUICK = {"depth": (1,), "width": (30, 60), "dense": (32,)}


def sources(data: Data) -> dict[str, Path]:
    """It reads nothing."""
    return {}


def run(task: Task) -> None:
    """The grid for the GRU, then for the LSTM; each is one study, which can be watched."""
    for network in ("gru", "lstm"):
        task.cell(network.upper(), lambda network=network: _grid(task, network))


def _grid(task: Task, network: str) -> Cell:
    """All sizes of a network; the page has those that are ready while the others are trained."""
    size = task.paper_size(500)

    def cell(trials: list[Trial]) -> Cell:
        seconds = round(sum(trial.seconds or 0.0 for trial in trials if trial.value), 1)
        return {"trials": [asdict(trial) for trial in trials], **size, "seconds": seconds}

    def after(trials: list[Trial]) -> None:
        if any(trial.value is not None for trial in trials):
            task.journal.so_far(network.upper(), cell(trials))

    found = tune(
        MODEL,
        VARY if task.full else QUICK,
        study=task.journal.path.with_name(
            f"table2-{network}{'' if task.full else '-quick'}-{task.seed}.sqlite"
        ),
        preset="paper",
        settings={"network": network, **size},
        seed=task.seed,
        watch=lambda number, of, p: task.tell(
            f"{network}, trial {number} of {of}, epoch {p.step} of {p.steps}"
        ),
        after=after,
    )
    return cell(found)


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published, the best first."""
    printed = {tuple(row[:3]): row[4] for row in published["rows"]}
    sections = []
    for network, cell in told["cells"].items():
        ready = [trial for trial in cell["trials"] if trial["state"] == "complete"]
        rows = [
            [
                *(str(each) for each in _size(trial)),
                f"{trial['value']:.5f}",
                f"{printed[_size(trial)]:.5f}" if network == "GRU" else "",
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
        + _chosen(told["cells"]["GRU"], printed)
    )
    if told["size"] == "quick":
        sections.append(
            "A quick run shows that the grid is walked through and written down, not which size is "
            "best: its networks see three epochs of a fiftieth of the paths."
        )
    return "\n\n".join(sections)


def _size(trial: Mapping[str, Any]) -> Size:
    depth, width, dense = (trial["settings"][name] for name in ("depth", "width", "dense"))
    return depth, width, dense


def _chosen(cell: Cell, printed: Mapping[Size, float]) -> str:
    """The paper's best GRU and ours."""

    def words(size: Size) -> str:
        return f"{size[0]} x {size[1]} with {size[2]} dense units"

    best = min(printed, key=lambda size: printed[size])
    told = (
        f"The paper chose {words(best)} for the GRU; its sizes differ little, from "
        f"{min(printed.values()):.5f} to {max(printed.values()):.5f}, and two layers of 60 learn "
        "the training set by heart."
    )
    # The best comes first.
    ours = {_size(trial): trial["value"] for trial in cell["trials"] if trial["value"] is not None}
    if not ours:
        return told
    first, least = next(iter(ours.items()))
    if first == best:
        return f"{told} Here it is the best of {len(ours)}, too."
    stands = f"; the paper's stands at {ours[best]:.5f}" if best in ours else ""
    return f"{told} Here {words(first)} is the best of {len(ours)}, {least:.5f}{stands}."
