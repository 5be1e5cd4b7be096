"""Table 2: which size of the paper's networks is best on M1? A grid, in paper mode."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from greybayes.amortized.tuning import tune
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Data, Task, markdown_table

TITLE = "Table 2: sizes of the network on M1"
MODEL = "growth1"
VARY = {"depth": (1, 2), "width": (30, 40, 50, 60), "dense": (32, 40)}
ESSENTIAL = ("GRU",)
QUICK = {"depth": (1,), "width": (30, 60), "dense": (32,)}


def sources(data: Data) -> dict[str, Path]:
    """It reads nothing."""
    return {}


def run(task: Task) -> None:
    """The grid for the GRU, then for the LSTM; each is one study, which can be watched."""
    for network in ("gru", "lstm"):

        def grid(network: str = network) -> Cell:
            size = "" if task.full else "-quick"
            found = tune(
                MODEL,
                VARY if task.full else QUICK,
                study=task.journal.path.with_name(f"table2-{network}{size}-{task.seed}.sqlite"),
                preset="paper",
                settings={"network": network, **task.paper_size(500)},
                seed=task.seed,
                watch=lambda number, of, p: task.tell(
                    f"{network}, trial {number} of {of}, epoch {p.step} of {p.steps}"
                ),
            )
            return {"trials": [asdict(trial) for trial in found], **task.paper_size(500)}

        task.cell(network.upper(), grid)


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published, the best first."""
    printed = {tuple(row[:3]): row[4] for row in published["rows"]}
    best = min(printed, key=lambda size: printed[size])
    sections = []
    for network, cell in told["cells"].items():
        rows = []
        for trial in cell["trials"]:
            if trial["state"] != "complete":
                continue
            size = tuple(trial["settings"][name] for name in ("depth", "width", "dense"))
            rows.append(
                [
                    *(str(each) for each in size),
                    f"{trial['value']:.5f}",
                    f"{printed[size]:.5f}" if network == "GRU" and size in printed else "",
                    f"{trial['seconds']:,.0f}",
                ]
            )
        titles = ["layers", "hidden", "dense", "validation, ours", "published", "seconds"]
        sections.append(
            f"**{network}**, P = {cell['n_thetas']}, M = {cell['n_paths']}.\n\n"
            f"{markdown_table(titles, rows)}"
        )
    chosen = f"{best[0]} layers of {best[1]} and {best[2]} dense units"
    sections.append(
        "Mean squared error of the standard deviations on the validation set, best epoch. The "
        f"paper chose {chosen} for the GRU. Its sizes differ little, "
        f"from {min(printed.values()):.5f} to {max(printed.values()):.5f}, and two layers of 60 "
        "learn the training set by heart."
    )
    if told["size"] == "quick":
        sections.append(
            "A quick run shows that the grid is walked through and written down, not which size is "
            "best: its networks see three epochs of a fiftieth of the paths."
        )
    return "\n\n".join(sections)
