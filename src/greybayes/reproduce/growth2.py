"""Tables 4, 5 and 6: all parameters of M2; the effect of P, every method, and their seconds."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greybayes.amortized.estimator import load
from greybayes.classical.cme_mh import cme_mh
from greybayes.classical.psem import psem
from greybayes.refining import refine
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.paper_mode import paper_cell
from greybayes.reproduce.signals import (
    network,
    shipped,
    shipped_weights,
    signals,
    sources_of,
    timed,
)
from greybayes.reproduce.task import Data, Task, markdown_table

TITLE = "Tables 4, 5 and 6: all parameters of M2"
MODEL = "growth2"
ESSENTIAL = "our network", "refined", "CME-MH", "PSEM"
P = (500, 1000, 1500, 2000)


def sources(data: Data) -> dict[str, Path | None]:
    """The signals."""
    return sources_of(MODEL, data)


def run(task: Task) -> None:
    """Every method on the same signals, and the paper's network for each P."""
    records = signals(task, MODEL)
    task.cell(
        "our network", lambda: network(MODEL, load(MODEL), records, task.draws), shipped(MODEL)
    )
    task.cell(
        "refined",
        lambda: timed(
            MODEL, lambda: refine(MODEL, records, key=task.seed, settings={"min_ess": 1000.0})
        ),
        shipped_weights(MODEL),
    )
    chains = {"likelihood": "exact"} if task.full else {"likelihood": "exact", "min_ess": 100.0}
    task.cell(
        "CME-MH",
        lambda: timed(MODEL, lambda: cme_mh(MODEL, records, key=task.seed, settings=chains)),
    )
    task.cell("PSEM", lambda: timed(MODEL, lambda: psem(MODEL, records, key=task.seed)))
    for p in P if task.full else P[::3]:
        settings = task.paper_size(p)
        paper_cell(
            task,
            f"GRU, P={p}",
            MODEL,
            settings,
            lambda e: network(MODEL, e, records, task.draws),
        )


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Table 4, then 5 and 6 as one."""
    cells = told["cells"]
    printed = dict(zip(published["table4"]["P"], published["table4"]["mse_mean"], strict=True))
    effect = []
    for cell in cells.values():
        if "bayes_risk" not in cell:
            continue
        risk = cell["bayes_risk"]
        p = cell.get("P")
        label = "fresh simulations, our network" if p is None else f"P = {p}, M = {cell['M']}"
        effect.append(
            [
                label,
                f"{risk['mean']:.4f} ± {risk['standard_error']:.4f}",
                f"{cell['mse_mean']:.5f}",
                f"{printed[p]:.5f}" if p in printed else "",
                f"{cell['training_seconds']:,.0f}",
            ]
        )
    five, six = published["table5"]["mse_mean"], published["table6"]["seconds"]
    trained = published["table6"]["training_seconds"]
    methods = []
    for name, cell in cells.items():
        kind = name.split(",")[0]
        if kind == "GRU" and name != f"GRU, P={P[-1]}":
            continue
        methods.append(
            [
                kind if kind != "GRU" else f"GRU in paper mode, P = {cell['P']}, M = {cell['M']}",
                f"{cell['mse_mean']:.5f} ± {cell['standard_error']:.5f}",
                f"{five[kind]:.5f}" if kind in five else "",
                f"{cell.get('training_seconds', 0):,.0f}",
                f"{cell['method_seconds']:.3g}",
                " + ".join(f"{seconds[kind]:,g}" for seconds in (trained, six) if kind in seconds),
            ]
        )
    four = markdown_table(
        ["training set", "Bayes risk", "mse_mean", "published, M = 500", "training, s"], effect
    )
    titles = ["method", "mse_mean", "published", "training, s", "all signals, s", "paper's, s"]
    what = f"{cells['refined']['signals']} signals"
    return (
        f"**Table 4.** {what}; what the size of the training set does for the paper's GRU.\n\n"
        f"{four}\n\n**Tables 5 and 6.** {what}.\n\n{markdown_table(titles, methods)}\n\n"
        f"{_lessons(cells, printed)}"
    )


def _lessons(cells: Mapping[str, Cell], printed: Mapping[int, float]) -> str:
    own, refined, chains = (cells[name] for name in ("our network", "refined", "CME-MH"))
    smoothed = cells["PSEM"]["settings"]
    told = (
        "CME-MH and refine aim at the same conditional mean: refined over CME-MH is "
        f"{refined['mse_mean'] / chains['mse_mean']:.3f}. The error of our network, "
        f"which is fast, is {own['mse_mean'] / refined['mse_mean'] - 1:+.1%} from the refined "
        "one's on these signals. PSEM maximises a likelihood and knows no prior; here it "
        f"has {smoothed['iterations']} iterations with {smoothed['n_trajectories']} trajectories "
        f"from {smoothed['n_starts']} draws of the prior, the paper's 1000 with 200 from within "
        "20 % of the truth. The "
        "paper's seconds are of MATLAB on four cores and of a GPU for the GRU; ours are of "
        f"the processors below, the training of our network on {own['settings']['devices']} of "
        "their cores. All methods see the same signals; refine needs our network, and its seconds "
        "are without that training."
    )
    fixed = [cell for name, cell in cells.items() if name.startswith("GRU")]
    if not fixed:
        return f"{told} In paper mode no network was trained here yet."
    risks = [cell["bayes_risk"]["mean"] for cell in fixed]
    errors = [cell["mse_mean"] for cell in fixed]
    falls = all(after < before for before, after in itertools.pairwise(risks))
    return (
        f"{told} With a fixed set of simulations the Bayes risk is {risks[0]:.4f} for the smallest "
        f"P here and {risks[-1]:.4f} for the largest{', and falls with every P' if falls else ''}; "
        f"mse_mean goes from {errors[0]:.5f} to {errors[-1]:.5f}, published from "
        f"{printed[P[0]]:.5f} to {printed[P[-1]]:.5f} with {500 / fixed[0]['M']:.0f} times as many "
        "paths for each theta. With fresh simulations in every step the risk is "
        f"{own['bayes_risk']['mean']:.4f}: then nothing can be learnt by heart, though the network "
        "is another, too."
    )
