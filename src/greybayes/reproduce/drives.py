"""Table 7 and Figure 6: the coupled electric drives, measured.

First as the paper does it: the published prior, a network in paper mode and one in ours, CME-MH
with the closed-form likelihood. Then what an engineer would do: ask whether the model can have
made the record, widen the prior of the noise, and let the input arrive one sample later. The other
two amplitudes are records to validate with.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from greybayes.amortized.trainer import train
from greybayes.classical.cme_mh import cme_mh
from greybayes.classical.least_squares import least_squares
from greybayes.diagnose.fit import fit_percent
from greybayes.diagnose.misfit import check_fit
from greybayes.drawing import noise_free_output
from greybayes.errors import Status
from greybayes.estimate import Estimate
from greybayes.model import Model
from greybayes.record import Record
from greybayes.refining import refine
from greybayes.reproduce.journal import Cell
from greybayes.reproduce.measured import DT, measured, measured_file, reference_output
from greybayes.reproduce.paper_mode import paper_cell
from greybayes.reproduce.task import Data, Task, markdown_table
from greybayes.zoo.coupled_drives import CoupledDrives

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Table 7 and Figure 6: the coupled drives, measured"
CAPTIONS = {
    "figure6": "The measured record and what the models simulate, its first half above and its "
    "second below. Without delay the flanks come too early; with one sample of delay they are "
    "where they were measured, as with Wigren's reference, which Euler's rule delays, too."
}
ESSENTIAL = (
    *(f"network, {stage}" for stage in ("published", "no delay", "delay")),
    *(f"least squares, z{i}, delay" for i in (1, 2, 3)),
)
# Of training, for each network of a full run.
MINUTES = 8.0
_PAPER = "GRU in paper mode, published"
# The paper's 3,000 would take days: from one epoch to the next the validation loss of the drives
# goes up and down by far more than the 1 % at which its rule stops. The rate does not fall before
# the paper's first 1,000 epochs.
_EPOCHS = {"epochs": 240, "decays": 1}
# How far the prior reaches from least squares, and the variance of the noise from its residuals.
# The latter is one of five that were tried on the measured record, the others trained for less: a
# guess is that a network that often sees more noise than there is trusts fewer wrong details.
AROUND, NOISE = 0.2, (0.5, 20.0)
# Wide enough for any drives: least squares needs no other prior.
_WIDE = {
    "K": dist.Uniform(0.2, 10.0),
    "alpha": dist.Uniform(1.0, 30.0),
    "omega0": dist.Uniform(5.0, 60.0),
    "xi": dist.Uniform(0.01, 0.9),
    "noise_variance": dist.Uniform(0.0, 10.0),
}


def sources(data: Data) -> dict[str, Path]:
    """The file of the measured records, which can be read."""
    measured(data)
    return {"drives": measured_file(data)}


def run(task: Task) -> None:
    """The published prior, then ours without and with the delay."""
    records = measured(task.data)
    _stage(task, "published", CoupledDrives(), records)
    for name, delay in (("no delay", 0), ("delay", 1)):
        wide = CoupledDrives(input_delay=delay).free(**_WIDE)
        fitted = task.cell(
            f"least squares, {name}",
            lambda wide=wide: _of(wide, records, least_squares(wide, records[0])),
        )
        _stage(task, name, around(delay, fitted["theta"]), records)
    late = CoupledDrives(input_delay=1).free(**_WIDE)
    for i, record in enumerate(records, 1):
        task.cell(
            f"least squares, z{i}, delay",
            lambda record=record: _of(late, [record], least_squares(late, record)),
        )
    # Hours, of a full run: after all that takes minutes.
    paper_cell(
        task,
        _PAPER,
        "coupled-drives",
        {**task.paper_size(500), **(_EPOCHS if task.full else {})},
        lambda e: _of(CoupledDrives(), records, e.estimate(records[0])),
        inputs=np.asarray(records[0].u),
    )


def around(delay: int, theta: Mapping[str, float]) -> Model:
    """The prior that least squares suggests."""
    box = {
        name: dist.Uniform((1 - AROUND) * theta[name], (1 + AROUND) * theta[name])
        for name in ("K", "alpha", "omega0", "xi")
    }
    least, most = (times * theta["noise_variance"] for times in NOISE)
    return CoupledDrives(input_delay=delay).free(**box, noise_variance=dist.Uniform(least, most))


def _stage(task: Task, name: str, model: Model, records: list[Record]) -> None:
    """Our methods for one model and prior."""
    record, minutes = records[0], MINUTES if task.full else 0.25

    def network() -> Cell:
        estimator = train(model, minutes=minutes, inputs=np.asarray(record.u), seed=task.seed)
        found = _of(model, records, estimator.estimate(record))
        refined = _of(model, records, refine(estimator, record, key=task.seed))
        return {
            **found,
            "refined": refined,
            "minutes": minutes,
            "training_seconds": estimator.training_seconds,
            "settings": estimator.header["settings"],
        }

    def chains() -> Cell:
        # The published noise is so small that the posterior is a needle, which chains that start
        # from the prior do not find together.
        start = least_squares(model, record)
        return _of(model, records, cme_mh(model, record, key=task.seed, start=start))

    task.cell(f"network, {name}", network)
    task.cell(f"CME-MH, {name}", chains)


def _of(model: Model, records: list[Record], estimate: Estimate) -> Cell:
    """What an estimate comes to on each record, and whether the model can have made the first."""
    return {
        "theta": dict(zip(estimate.names, estimate.mean.tolist(), strict=True)),
        "std": None if estimate.std is None else estimate.std.tolist(),
        "status": estimate.status.value,
        "settings": dict(estimate.settings),
        "diagnostics": {
            key: value
            for key, value in estimate.to_dict().get("diagnostics", {}).items()
            if isinstance(value, float | int | str)
        },
        "sse": [_sse(model, estimate.mean, record) for record in records],
        "fit_percent": [
            float(fit_percent(record.y, simulated(model, estimate.mean, record)))
            for record in records
        ],
        "misfit": _misfit(model, records[0], estimate),
    }


def _misfit(model: Model, record: Record, estimate: Estimate) -> dict[str, Any]:
    # The paper's network has a linear output, which may leave the prior.
    if not model.prior.in_support(jnp.asarray(estimate.mean)):
        sentence = "the estimate is outside the prior, and was not checked."
        return {"status": "outside", "p": None, "sentence": sentence}
    checked = check_fit(model, record, estimate)
    return {"status": checked.status.value, "p": checked.p, "sentence": checked.sentence}


def simulated(
    model: Model, theta: Float[np.ndarray, " param"], record: Record
) -> Float[np.ndarray, "steps output"]:
    """The output without noise."""
    return np.asarray(noise_free_output(model, theta, np.asarray(record.u)))


def _sse(model: Model, theta: Float[np.ndarray, " param"], record: Record) -> float:
    return float(np.sum((record.y - simulated(model, theta, record)) ** 2))


def page(told: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Ours beside published, and what each stage teaches."""
    printed = {
        _PAPER: published["sse"]["GRU"],
        "CME-MH, published": published["sse"]["CME-MH"],
    }
    rows = []
    for name, cell in told["cells"].items():
        if len(cell["sse"]) == 1:
            continue  # Fitted to one of the amplitudes; told below.
        size = f", P = {cell['P']}, M = {cell['M']}, {cell['epochs']} epochs" if "P" in cell else ""
        rows.append(_row(name + size, cell, f"{printed[name]:.2f}" if name in printed else ""))
        if "refined" in cell:
            rows.append(_row(f"{name}, refined", cell["refined"], ""))
    titles = ["method, prior and structure", "sum of squared errors, z1", "published"]
    titles += ["fit % z1", "z2", "z3", "misfit p"]
    cells = told["cells"]
    objections = [
        f"- {name}: {cell['misfit']['sentence']}"
        for name, cell in cells.items()
        if name.startswith("CME-MH")
    ]
    return "\n\n".join(
        [
            markdown_table(titles, rows),
            "z1 is the record that was estimated from; z2 (amplitude 1.5) and z3 (0.5) validate. "
            "*published* is the published prior, whose noise variance ends at 0.01; *no delay* and "
            f"*delay* have a prior of {AROUND:.0%} around least squares, and a noise variance from "
            f"{NOISE[0]:g} to {NOISE[1]:g} times that of its residuals. That range is one of five "
            "that were tried on z1 itself, the other four with less training, so the figures of "
            "the networks there are chosen ones. What the check of the fit says of each posterior "
            "mean:",
            "\n".join(objections),
            _lessons(cells, published["sse"]["CME-MH"]),
        ]
    )


def _lessons(cells: Mapping[str, Cell], printed: float) -> str:
    without, late = (
        cells[f"network, {name}"]["refined"]["sse"][0] for name in ("no delay", "delay")
    )
    gains = [cells[f"least squares, z{i}, delay"]["theta"]["K"] for i in (3, 1, 2)]
    networks = {name: cell["sse"][0] for name, cell in cells.items() if "refined" in cell}
    worst = max(networks, key=lambda name: networks[name]) == "network, published"
    return (
        "With the published prior CME-MH comes to "
        f"{cells['CME-MH, published']['sse'][0]:.2f}, published {printed:.2f}. That prior cannot "
        "have made the record: its noise is too small by far, so every network trained with it is "
        "asked about a record such as it never saw"
        f"{', and that is where its answer is worst' if worst else ''}. "
        f"{_in_paper_mode(cells)}One sample of delay takes the sum of squared errors from "
        f"{without:.2f} to {late:.2f}, "
        "and still the residuals are not white and the other amplitudes do not fit: fitted to each "
        "alone, the gain K is "
        + ", ".join(f"{gain:.2f}" for gain in gains)
        + " at amplitudes 0.5, 1 and 1.5. It grows with the amplitude, which no parameter of this "
        "structure can express; a better model needs a nonlinear gain."
    )


def _in_paper_mode(cells: Mapping[str, Cell]) -> str:
    """Why the paper's network is where it is."""
    cell = cells.get(_PAPER)
    if cell is None:
        return ""
    told = (
        f"The paper's own network had M = 1000 paths for each theta, here it has {cell['M']}: "
        "what a network says beyond what it was trained for may well depend on that. "
    )
    if cell["epochs"] < cell["settings"]["epochs"]:
        return told
    return (
        f"{told}It was also cut off after {cell['epochs']} epochs, where the paper's rule had not "
        "stopped it yet and the paper allows 3000. "
    )


def _row(name: str, cell: Cell, printed: str) -> list[str]:
    fits = [f"{fit:.1f}" for fit in cell["fit_percent"]]
    p = cell["misfit"]["p"]
    # A misfit has a column of its own.
    name += ", unconverged" if cell["status"] == Status.unconverged.value else ""
    return [name, f"{cell['sse'][0]:.2f}", printed, *fits, "" if p is None else f"{p:.2g}"]


def pictures(task: Task) -> dict[str, "Figure"]:
    """Figure 6: the measured output, half of it in each panel, and what the models simulate."""
    from matplotlib.figure import Figure

    record = measured(task.data)[0]
    time = DT * np.arange(record.n_steps)
    figure = Figure(figsize=(9.0, 8.5), layout="constrained")
    first, second, below = figure.subplots(3, height_ratios=[2.0, 2.0, 1.2])

    def plot(output: Float[np.ndarray, " steps"], dashes: Any, **look: Any) -> None:
        for panel in (first, second):
            panel.plot(time, output, linestyle=dashes, **look)

    # Kinds of lines, not colours, tell them apart: the page may be printed in grey.
    plot(record.y[:, 0], "-", color="0.8", linewidth=5.0, label="measured, z1")
    shown = {"network, no delay": ((0, (4, 1.5)), "#c44e00"), "network, delay": ("-", "#000000")}
    for name, (dashes, colour) in shown.items():
        refined = task.journal.cells[name]["refined"]
        delay = int(name.endswith(", delay"))
        theta = np.array(list(refined["theta"].values()))
        output = simulated(around(delay, refined["theta"]), theta, record)[:, 0]
        label = f"{name}, refined: {refined['fit_percent'][0]:.0f} %"
        plot(output, dashes, color=colour, linewidth=1.2, label=label)
        rest = record.y[:, 0] - output
        below.plot(time, rest, linestyle=dashes, color=colour, linewidth=0.9)
    reference = {"marker": ".", "markevery": 2, "markersize": 5.0, "color": "#1f6fa8"}
    plot(reference_output(record), "none", **reference, label="Wigren's reference")
    figure.legend(
        *first.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    below.axhline(0.0, color="0.7", linewidth=0.6)
    below.set_ylabel("y - simulated [V]")
    below.set_xlabel("time [s]")
    half = time[len(time) // 2]
    for panel, ends in ((first, (0.0, half)), (second, (half, time[-1])), (below, time[[0, -1]])):
        panel.grid(color="0.9", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(*ends)
    for panel in (first, second):
        panel.set_ylabel("y [V]")
    return {"figure6": figure}
