"""Table 1: the trained linear estimator of the FIR model against its limit, by P and M.

Theory: each row of the trained A is a least-squares estimate from P M records, so the squared
distance to the limit is tr(posterior covariance) N / (P M), and more by P M / (P M - N - 2), which
is 1.026 for the smallest set and 1.001 for the largest. The paper has one draw
of everything; a cell here is a mean over repetitions and over many test records.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from greybayes.amortized.linear import (
    LinearEstimator,
    fit_linear,
    linear_limit,
    linear_posterior,
    regression,
)
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.task import Data, Task, markdown_table
from greybayes.zoo.fir import Fir

TITLE = "Table 1: the linear estimator against its limit"
TRUTH = np.array([0.7, 0.7])
# Many: one record alone scatters as a square of a normal.
N_RECORDS = 2000
# P, M and repetitions.
FULL = (400, 500, 600, 1000), (50, 100, 200, 500), 36
QUICK = (400, 1000), (50, 100), 4
ESSENTIAL = "P=400, M=50", "P=400, M=100"


def sources(data: Data) -> dict[str, Path]:
    """It reads nothing."""
    return {}


def run(task: Task) -> None:
    """Every P and M of the paper; of a quick run, the corners and fewer repetitions."""
    n_thetas, n_paths, repetitions = FULL if task.full else QUICK
    model = Fir()
    assert model.design is not None
    u = model.design.fixed(task.seed, model.n_steps, model.dt)
    phi, offset, noise = regression(model, u)
    prior = np.asarray(model.prior.mean, float), np.diag(np.asarray(model.prior.variance, float))
    A, b = linear_limit(phi, *prior, noise, offset)
    _, posterior = linear_posterior(phi, phi @ TRUTH, *prior, noise, offset)
    rng = np.random.default_rng(task.seed)
    shape = N_RECORDS, len(phi)
    y = phi @ TRUTH + offset + np.sqrt(noise) * rng.standard_normal(shape)

    def cell(p: int, m: int) -> Cell:
        found = []
        for repetition in range(repetitions):
            # No two cells share a draw: their mean is then closer to theory than each.
            entropy = np.random.SeedSequence([task.seed, p, m, repetition])
            key = int(entropy.generate_state(1)[0])
            trained: LinearEstimator = fit_linear(model, p, m, inputs=u, key=key)
            found.append(np.mean(np.sum((trained(y) - y @ A.T - b) ** 2, axis=1)))
        return {
            "P": p,
            "M": m,
            "mse_sum": float(np.mean(found)),
            "standard_error": float(np.std(found, ddof=1) / np.sqrt(repetitions)),
            "theory": float(np.trace(posterior) * len(phi) / (p * m)),
            "repetitions": repetitions,
        }

    for p in n_thetas:
        for m in n_paths:
            task.cell(f"P={p}, M={m}", lambda p=p, m=m: cell(p, m), f"{repetitions} repetitions")


def slope(cells: Mapping[str, Cell]) -> float:
    """Of the logarithm of the error against that of P M; -1 in theory."""
    sizes = [np.log(cell["P"] * cell["M"]) for cell in cells.values()]
    errors = [np.log(cell["mse_sum"]) for cell in cells.values()]
    return float(np.polyfit(sizes, errors, 1)[0])


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published."""
    cells = told["cells"]
    rows = []
    for p, printed in zip(published["P"], published["mse_sum"], strict=True):
        row = [f"{p}"]
        for m, figure in zip(published["M"], printed, strict=True):
            cell = cells.get(f"P={p}, M={m}")
            ours = "" if cell is None else f"{1e5 * cell['mse_sum']:.2f}"
            ours += "" if cell is None else f" ± {1e5 * cell['standard_error']:.2f}"
            row.append(f"{ours} ({figure:.2f})")
        rows.append(row)
    table = markdown_table(["P \\ M", *(f"{m}" for m in published["M"])], rows)
    over = [cell["mse_sum"] / cell["theory"] for cell in cells.values()]
    noise = [cell["standard_error"] / cell["mse_sum"] for cell in cells.values()]
    printed = dict(zip(published["P"], published["mse_sum"], strict=True))
    apart = [
        abs(1e5 * cell["mse_sum"] / printed[cell["P"]][published["M"].index(cell["M"])] - 1)
        for cell in cells.values()
        if cell["P"] in printed and cell["M"] in published["M"]
    ]
    return (
        f"{table}\n\nmse_sum times 1e5, ours with its standard error; published in brackets, one "
        f"draw each. On average ours is {np.mean(over):.3f} times what theory gives, "
        f"tr(posterior covariance) N / (P M), single cells {min(over):.2f} to {max(over):.2f} "
        f"times with standard errors of up to {max(noise):.0%}; it falls with P M to the power "
        f"{slope(cells):.2f}. "
        f"{sum(each <= 0.35 for each in apart)} of {len(apart)} cells are within 35 % of the "
        f"published ones, the furthest at {max(apart, default=0.0):.0%}. The paper's input and its "
        "test record are not known; they change all its figures in the same direction, and a "
        "single draw scatters besides."
    )
