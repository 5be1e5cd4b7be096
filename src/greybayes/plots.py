"""Figures: functions from results to matplotlib figures. Nothing is shown, and no state is kept.

Figures are made with matplotlib's object interface, never with pyplot, so that they work in a
server, in a test and in a notebook alike. Matplotlib is loaded when a figure is first asked for.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from greybayes.errors import GreybayesError, RecordError
from greybayes.record import Record
from greybayes.record_files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from greybayes.diagnose.calibration import Calibration

FORMATS = (".png", ".svg", ".pdf")
MAX_OVERLAID = 6
"""More records than this in one figure hide each other; the first ones are drawn."""

# Dark to light, solid then dashed: records stay apart in grey and for the colour-blind.
_STYLES: tuple[tuple[str, Any], ...] = (
    ("#000000", "-"),
    ("#c44e00", "-"),
    ("#4a9fd8", "-"),
    ("#5b2a86", "--"),
    ("#1f8a5b", "--"),
    ("#c9a100", "--"),
)
# Points that a line may have before its envelope is drawn instead: far more than a page can show.
_MAX_POINTS = 20_000
_SAMPLE = "sample"
_LARGEST = 1e100  # near the end of the range of numbers, matplotlib's axes overflow


def plot_records(records: Record | Sequence[Record]) -> "Figure":
    """The outputs and, below them, the inputs of records against time; records are overlaid.

    Inputs are held from sample to sample. A missing sample is a gap. Of more than `MAX_OVERLAID`
    records the first ones are drawn, and the figure says so.

    >>> figure = plot_records(Record(y=[0.1, 0.4, 0.2], u=[1, 1, -1], dt=0.5, units={"u": "V"}))
    >>> [axes.get_ylabel() for axes in figure.axes], figure.axes[-1].get_xlabel()
    (['y', 'u [V]'], 'time')
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    records = [records] if isinstance(records, Record) else list(records)
    if not records:
        raise RecordError("there are no records to plot: pass at least one.")
    shown = records[:MAX_OVERLAID]
    for record in shown:
        _check_range(record)
    outputs = list(dict.fromkeys(name for record in shown for name in record.outputs))
    inputs = list(dict.fromkeys(name for record in shown for name in record.inputs))
    heights = [2.0] * len(outputs) + [1.2] * len(inputs)
    figure = Figure(figsize=(8.0, 0.9 + sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
    panels: list[Axes] = list(grid[:, 0])
    for panel, name in zip(panels, outputs + inputs, strict=True):
        # The first is drawn last: where all have the same input, it is seen as the first one's.
        for record, (colour, dashes) in reversed(list(zip(shown, _STYLES, strict=False))):
            if name in record.outputs:
                _draw_output(panel, record, record.outputs.index(name), colour, dashes)
            elif name in record.inputs:
                _draw_input(panel, record, record.inputs.index(name), colour, dashes)
        panel.set_ylabel(_label(name, shown))
        panel.grid(color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.01)
    figure.align_ylabels()
    panels[-1].set_xlabel(_time_label(shown))
    if panels[-1].get_xlabel() == _SAMPLE:
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _name_records(figure, records, shown)
    return figure


def save_figure(path: str | os.PathLike[str], figure: "Figure") -> None:
    """Write a figure to a .png, .svg or .pdf file, which appears whole or not at all."""
    path = Path(path)
    kind = figure_format(path)
    stream = io.BytesIO()
    # No date in the file: the same figure is the same bytes.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(stream, format=kind, dpi=150, metadata=undated)
    write_atomically(path, stream.getvalue())


def figure_format(path: Path) -> str:
    """`png`, `svg` or `pdf`, by the end of the file's name."""
    if path.suffix.lower() not in FORMATS:
        raise GreybayesError(
            f"{path} ends in '{path.suffix}', which is no kind of figure: "
            f"use one of {', '.join(FORMATS)}."
        )
    return path.suffix.lower()[1:]


def _check_range(record: Record) -> None:
    highest = max(
        np.nanmax(np.abs(values), initial=0.0)
        for values in (record.y, record.u)
        if values is not None
    )
    if highest > _LARGEST:
        raise RecordError(f"{record.name or 'a record'} reaches {highest:g}, too large to plot.")


def _draw_output(panel: "Axes", record: Record, channel: int, colour: str, dashes: str) -> None:
    t, y = _times(record), record.y[:, channel]
    panel.plot(*_thinned(t, y), color=colour, linestyle=dashes, linewidth=1.1)
    # A line needs two samples: one between two gaps is drawn as a dot.
    alone = _isolated(~np.isnan(y))
    panel.plot(t[alone], y[alone], ".", color=colour, markersize=4)


def _draw_input(panel: "Axes", record: Record, channel: int, colour: str, dashes: str) -> None:
    assert record.u is not None
    t, u = _times(record), record.u[:, channel]
    last = t[-1] - t[-2] if len(t) > 1 else record.dt or 1.0
    held = np.append(t, t[-1] + last), np.append(u, u[-1])
    panel.plot(
        *_thinned(*held), drawstyle="steps-post", color=colour, linestyle=dashes, linewidth=1
    )


def _times(record: Record) -> Float[np.ndarray, " steps"]:
    """When the samples were taken; their numbers, from 1, where that is unknown."""
    if record.times is not None:
        return record.times
    k = np.arange(record.n_steps)
    return k + 1.0 if record.dt is None else k * record.dt


def _isolated(seen: Bool[np.ndarray, " steps"]) -> Bool[np.ndarray, " steps"]:
    beside = np.pad(seen, 1)
    return seen & ~beside[:-2] & ~beside[2:]


def _thinned(
    t: Float[np.ndarray, " steps"], values: Float[np.ndarray, " steps"]
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The line, or the lowest and highest sample of each stretch: that looks the same."""
    stretch = 2 * len(values) // _MAX_POINTS
    if stretch < 3:
        return t, values
    n_whole = len(values) // stretch * stretch
    blocks = values[:n_whole].reshape(-1, stretch)
    low = np.where(np.isnan(blocks), np.inf, blocks).argmin(axis=1)
    high = np.where(np.isnan(blocks), -np.inf, blocks).argmax(axis=1)
    kept = (
        np.sort(np.stack([low, high], axis=1), axis=1) + stretch * np.arange(len(blocks))[:, None]
    )
    index = np.append(kept.ravel(), np.arange(n_whole, len(values)))
    return t[index], values[index]


def _label(name: str, records: Sequence[Record]) -> str:
    unit = next((record.units[name] for record in records if name in record.units), "")
    return _plain(f"{name} [{unit}]" if unit else name)


def _plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollars as a formula."""
    return text.replace("$", r"\$")


def _time_label(records: Sequence[Record]) -> str:
    timed = [record.times is not None or record.dt is not None for record in records]
    if not any(timed):
        return _SAMPLE
    return _label("t", records).replace("t", "time", 1) if all(timed) else "time, or sample"


def _name_records(figure: "Figure", records: Sequence[Record], shown: Sequence[Record]) -> None:
    """A title for one record, a legend for several, and a word about those left out."""
    if len(records) == 1:
        figure.suptitle(_plain(records[0].name), fontsize="medium")
        return
    from matplotlib.lines import Line2D

    names = [_plain(record.name) or f"record {k}" for k, record in enumerate(shown, start=1)]
    lines = [Line2D([], [], color=colour, linestyle=dashes) for colour, dashes in _STYLES]
    left_out = f"the first {len(shown)} of {len(records)} records"
    figure.legend(
        lines[: len(shown)],
        names,
        title=left_out if len(records) > len(shown) else None,
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize="small",
    )


def plot_calibration(found: "Calibration") -> "Figure":
    """The ranks of each parameter and of all together in their band, and the coverage below.

    A panel shows how far the distribution function of the ranks is from a uniform one; a line that
    leaves the grey band is coloured. Below, coverage less its level, for every level of central
    intervals, and what is within two standard errors of zero.

    >>> from greybayes.diagnose.calibration import Calibration
    >>> rng = np.random.default_rng(0)
    >>> theta, samples = rng.normal(size=(200, 2)), rng.normal(size=(200, 99, 2))
    >>> figure = plot_calibration(Calibration.from_samples(theta, samples, ("a", "b")))
    >>> [axes.get_title() for axes in figure.axes]
    ['a: inside', 'b: inside', 'all together: inside', '']
    """
    from matplotlib.figure import Figure

    from greybayes.diagnose.calibration import JOINT

    verdicts = (*found.verdicts, "inside" if found.joint_inside else "outside")
    all_ranks = [*found.ranks.T, found.joint_ranks]
    n_rows = -(-len(verdicts) // 5)
    n_columns = -(-len(verdicts) // n_rows)
    figure = Figure(figsize=(8.0, 2.2 * n_rows + 2.8), layout="constrained")
    grid = figure.add_gridspec(n_rows + 1, n_columns, height_ratios=[*[1.0] * n_rows, 1.2])
    first = None
    for k, (name, verdict) in enumerate(zip((*found.names, JOINT), verdicts, strict=True)):
        first = panel = figure.add_subplot(grid[divmod(k, n_columns)], sharex=first, sharey=first)
        _draw_ranks(panel, found, all_ranks[k], verdict == "inside")
        panel.set_title(_plain(f"{name}: {verdict}"), fontsize="small")
        panel.set_xlabel("rank", fontsize="small")
        panel.tick_params(labelsize="small", labelleft=k % n_columns == 0)
        if k % n_columns == 0:
            panel.set_ylabel("ECDF - uniform", fontsize="small")
    _draw_coverage(figure.add_subplot(grid[-1, :]), found)
    figure.suptitle(
        _plain(f"{found.model or 'posterior'}, {found.n_draws} draws"), fontsize="medium"
    )
    return figure


def _draw_ranks(
    panel: "Axes", found: "Calibration", ranks: Int[np.ndarray, " draw"], inside: bool
) -> None:
    at, lower, upper = found.band
    panel.fill_between(at, lower - at, upper - at, color="0.88", linewidth=0)
    counts = np.bincount(ranks, minlength=found.n_samples + 1)[:-1]
    colour = _STYLES[0 if inside else 1][0]
    panel.plot(at, np.cumsum(counts) / found.n_draws - at, color=colour, linewidth=1.1)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_coverage(panel: "Axes", found: "Calibration") -> None:
    from greybayes.diagnose.ranks import coverage

    levels = np.linspace(0.0, 1.0, 101)
    error = 200 * np.sqrt(levels * (1 - levels) / found.n_draws)
    panel.fill_between(100 * levels, -error, error, color="0.88", linewidth=0)
    gaps = np.stack([coverage(found.ranks, found.n_samples, c) - c for c in levels.tolist()])
    for k, (name, gap) in enumerate(zip(found.names, 100 * gaps.T, strict=True)):
        colour, dashes = _STYLES[k % len(_STYLES)]
        # Of many parameters no line would be told from the others: then they are a bundle.
        many = len(found.names) > len(_STYLES)
        style: Any = {"color": "0.3"} if many else {"color": colour, "linestyle": dashes}
        panel.plot(100 * levels, gap, linewidth=1.1, label=None if many else _plain(name), **style)
    panel.set_xlabel("central interval [%]")
    panel.set_ylabel("coverage - level [points]", fontsize="small")
    panel.spines[["top", "right"]].set_visible(False)
    if len(found.names) <= len(_STYLES):
        panel.legend(loc="best", ncols=3, frameon=False, fontsize="small")
