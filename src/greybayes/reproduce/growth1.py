"""Table 3 and Figures 3 to 5: the two variances of M1, by every method.

Ours beside the paper's: CPF-SAEM, CME-MH (on nodes, started from our network, under the stated
prior and under that of the published figure), the paper's networks in paper mode, our network, its
refined estimate, and the conditional mean itself by quadrature.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from greybayes.amortized.estimator import load
from greybayes.classical.cme_mh import cme_mh
from greybayes.classical.cpf_saem import cpf_saem
from greybayes.estimate import Estimate
from greybayes.likelihood.grid import NEAR, grid_log_lik
from greybayes.record import Record
from greybayes.refining import refine
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.paper_mode import paper_cell
from greybayes.reproduce.signals import (
    TRUTHS,
    network,
    shipped,
    shipped_weights,
    signals,
    sources_of,
    timed,
)
from greybayes.reproduce.task import Data, Task, markdown_table
from greybayes.zoo import get_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Table 3 and Figures 3 to 5: the variances of M1"
MODEL = "growth1"
NAMES = "theta7", "theta8"
ESSENTIAL = "CPF-SAEM", "CME-MH", "our network", "refined and exact"
CAPTIONS = {
    "figure3": "One chain of CME-MH on the first signal, after its burn-in. A chain that has "
    "converged wanders about the conditional mean of its record (Figure 5) and does not drift; "
    "where that is not the truth, it is the record's doing.",
    "figure4": "The estimates of all signals. The nearer the boxes of our network and of CME-MH "
    "are to one another, the less there is to gain by the slow method.",
    "figure5": "The first signals, record by record. What both methods have in common with the "
    "exact mean, and not with the truth, is in the records, and no method can do better.",
}
# What the axes call the parameters.
_LABELS = {
    "theta7": "theta7, variance\nof process noise",
    "theta8": "theta8, variance\nof output noise",
}
P = 500, 2000  # The last is the paper's.
VARIANT = "CME-MH, published prior"
# Of the rows.
_ORDER = "CPF-SAEM", "CME-MH", "refined and exact", "our network", "GRU", "LSTM"
_SHOWN_DRAWS = 1500
_NODES = 24


def sources(data: Data) -> dict[str, Path | None]:
    """The signals."""
    return sources_of(MODEL, data)


def run(task: Task) -> None:
    """Every method on the same signals."""
    records = signals(task, MODEL)
    iterations = 1000 if task.full else 100
    task.cell(
        "CPF-SAEM",
        lambda: timed(
            MODEL,
            lambda: cpf_saem(MODEL, records, key=task.seed, settings={"iterations": iterations}),
        ),
    )
    weights = shipped_weights(MODEL)
    task.cell("CME-MH", lambda: _chains(task, records), weights)
    if task.full:
        task.cell(VARIANT, lambda: _chains(task, records, variances="std"), weights)
    task.cell(
        "our network", lambda: network(MODEL, load(MODEL), records, task.draws), shipped(MODEL)
    )
    task.cell("refined and exact", lambda: _refined(task, records), weights)
    # Hours, of a full run: after all that takes minutes.
    for p in P if task.full else P[:1]:
        for kind in ("GRU", "LSTM"):
            settings = {"network": kind.lower(), **task.paper_size(p)}
            paper_cell(
                task,
                f"{kind}, P={p}",
                MODEL,
                settings,
                lambda e: network(MODEL, e, records, task.draws),
            )


def _chains(task: Task, records: list[Record], variances: str = "stated") -> Cell:
    kept: list[Estimate] = []
    settings = {"likelihood": "exact", "min_ess": 400.0 if task.full else 100.0}
    settings |= {"variances": variances}

    def chains() -> list[Estimate]:
        # From the prior the last of a hundred records had not converged after ten minutes.
        start = load(MODEL).estimate(records)
        kept.extend(cme_mh(MODEL, records, key=task.seed, settings=settings, start=start))
        return kept

    cell = timed(MODEL, chains)
    if variances != "stated":
        return cell
    samples = np.asarray(kept[0].samples)  # For Figure 3.
    return {**cell, "chain": samples[0, :_SHOWN_DRAWS].round(5).tolist()}


def _refined(task: Task, records: list[Record]) -> Cell:
    kept: list[Estimate] = []

    def refined() -> list[Estimate]:
        kept.extend(refine(MODEL, records, key=task.seed, settings={"min_ess": 1000.0}))
        return kept

    cell = timed(MODEL, refined)
    exact = np.array([exact_mean(*each) for each in zip(records, kept, strict=True)])
    means = np.array([estimate.mean for estimate in kept])
    variance = np.asarray(get_model(MODEL).prior.variance)
    errors = (exact - TRUTHS[MODEL]) ** 2
    return {
        **cell,
        "distance_to_exact": float(((means - exact) ** 2 / variance).mean()),
        "exact_mse_mean": float(errors.mean()),
        "exact_means": exact.round(6).tolist(),
    }


def exact_mean(record: Record, near: Estimate) -> Float[np.ndarray, " param"]:
    """The conditional mean by quadrature over both parameters, on nodes for the state."""
    assert near.std is not None
    low, high = get_model(MODEL).prior.bounds
    ends = np.clip([near.mean - 6 * near.std, near.mean + 6 * near.std], low, high)
    # Gauss's rule: exact up to an end of the support, where a posterior may be cut off.
    at, weight = np.polynomial.legendre.leggauss(_NODES)
    axes = [(first + last) / 2 + (last - first) / 2 * at for first, last in ends.T]
    thetas = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(NAMES))
    # Nodes are placed for the first ones: those should be likely.
    order = np.argsort((((thetas - near.mean) / near.std) ** 2).sum(1), kind="stable")
    spread = order[np.r_[np.linspace(0, len(order) // 4, NEAR).astype(int), 0 : len(order)]]
    log_lik = np.empty(len(thetas))
    log_lik[spread] = grid_log_lik(MODEL, thetas[spread], record)
    weights = np.exp(log_lik - log_lik.max()) * np.outer(weight, weight).ravel()
    return weights @ thetas / weights.sum()


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published."""
    printed = published["mse_mean"]
    rows = []
    kinds = {name: name.partition(",")[0] for name in told["cells"]}
    for name, kind in sorted(kinds.items(), key=lambda each: _ORDER.index(each[1])):
        cell = told["cells"][name]
        label = name if name == VARIANT else kind.removesuffix(" and exact")
        if "P" in cell:
            label += f", P = {cell['P']}, M = {cell['M']}, {cell['epochs']} epochs"
        risk = cell.get("bayes_risk")
        rows.append(
            [
                label,
                f"{cell['mse_mean']:.5f} ± {cell['standard_error']:.5f}",
                f"{printed[kind]:.5f}" if kind in printed else "",
                f"{risk['mean']:.4f} ± {risk['standard_error']:.4f}" if risk else "",
                f"{cell.get('training_seconds', 0):,.0f}",
                f"{cell['method_seconds']:.3g}",
            ]
        )
    last = told["cells"]["refined and exact"]
    rows.append(["exact, by quadrature", f"{last['exact_mse_mean']:.5f}", "", "", "", ""])
    titles = ["method", "mse_mean", "published", "Bayes risk", "training, s", "all signals, s"]
    cells = told["cells"]
    table = markdown_table(titles, rows)
    return f"{table}\n\n{_agreement(cells)}\n\n{_differences(cells, printed['CME-MH'])}"


def _agreement(cells: Mapping[str, Cell]) -> str:
    last, own = cells["refined and exact"], cells["our network"]
    return (
        f"{last['signals']} signals at (1, 0.1). The refined means are at a squared distance of "
        f"{last['distance_to_exact']:.1e} prior variances from the exact ones, which a quadrature "
        f"over both parameters gives with an error of {last['exact_mse_mean']:.5f}; no estimator "
        "has a smaller Bayes risk than those. Our network is "
        f"{own['mse_mean'] / last['exact_mse_mean'] - 1:+.1%} from them on these signals, CME-MH "
        f"{cells['CME-MH']['mse_mean'] / last['exact_mse_mean'] - 1:+.1%}."
    )


def _differences(cells: Mapping[str, Cell], printed: float) -> str:
    below = printed < cells["refined and exact"]["exact_mse_mean"]
    told = (
        f"The published CME-MH is {'below' if below else 'not below'} the exact mean. It has "
        "another prior, uniform on the standard deviations, and started at the truth; ours has the "
        f"stated one and starts from our network's estimate. {_as_published(cells)}CPF-SAEM "
        "maximises a likelihood and knows no prior; it has "
        f"{cells['CPF-SAEM']['settings']['iterations']} iterations here, the paper's 500. The "
        "published networks were trained with P = 2000, M = 500, on a GPU"
    )
    ran = [cell for cell in cells.values() if "P" in cell]
    if not ran:
        return f"{told}; in paper mode none was trained here yet."
    sizes = " and ".join(dict.fromkeys(f"P = {cell['P']}, M = {cell['M']}" for cell in ran))
    return f"{told}; here with {sizes}: fewer records to learn from."


def _as_published(cells: Mapping[str, Cell]) -> str:
    """What CME-MH comes to with the prior of the published figure."""
    if VARIANT not in cells:
        return ""
    return (
        "With that prior, and (E[s])^2 in place of E[s^2] as there, it comes to "
        f"{cells[VARIANT]['mse_mean']:.5f} here; likelihood, walk and start are ours. "
    )


def pictures(task: Task) -> dict[str, "Figure"]:
    """Figure 3: a chain. Figure 4: the estimates of the network. Figure 5: record by record."""
    from matplotlib.figure import Figure

    cells, truth = task.journal.cells, TRUTHS[MODEL]
    figures = {
        name: Figure(figsize=size, layout="constrained")
        for name, size in (("figure3", (8, 4)), ("figure4", (6, 3.5)), ("figure5", (8, 4.5)))
    }
    chain = np.array(cells["CME-MH"]["chain"])
    network_, chains = (np.array(cells[name]["means"]) for name in ("our network", "CME-MH"))
    exact = np.array(cells["refined and exact"]["exact_means"])
    panels = {
        name: figure.subplots(2, sharex=name != "figure4") for name, figure in figures.items()
    }
    boxes = panels["figure4"]
    for i, name in enumerate(NAMES):
        panel = panels["figure3"][i]
        panel.plot(chain[:, i], color="0.3", linewidth=0.6, label="CME-MH")
        drawn = boxes[i].boxplot(
            [network_[:, i], chains[:, i]],
            tick_labels=["our network", "CME-MH"],
            orientation="horizontal",
            showmeans=True,
            widths=0.6,
            medianprops={"color": "black", "linewidth": 1.5},
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black"},
        )
        boxes[i].set_xlabel(_LABELS[name].replace("\n", " "))
        panel = panels["figure5"][i]
        rows = np.arange(min(10, len(network_)))
        panel.plot(rows, chains[rows, i], "o", mfc="none", color="#4a9fd8", label="CME-MH")
        panel.plot(rows, network_[rows, i], "x", color="#c44e00", label="our network")
        panel.plot(rows, exact[rows, i], "_", color="black", markersize=14, label="exact")
        line = {"color": "0.5", "linewidth": 1.0, "linestyle": "--", "label": "truth"}
        for key in ("figure3", "figure5"):
            panels[key][i].axhline(truth[i], **line)
            panels[key][i].set_ylabel(_LABELS[name])
        line = boxes[i].axvline(truth[i], **line)
        if i == 0:
            handles = drawn["medians"][0], drawn["means"][0], line
            legend = {"loc": "outside upper center", "ncols": 4, "frameon": False}
            figures["figure4"].legend(handles, ["median", "mean", "truth"], **legend)
            for key in ("figure3", "figure5"):
                figures[key].legend(*panels[key][0].get_legend_handles_labels(), **legend)
    panels["figure3"][1].set_xlabel("draw of one chain, first test signal")
    panels["figure5"][1].set_xlabel("test signal")
    return figures
