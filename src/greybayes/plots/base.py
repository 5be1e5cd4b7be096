"""What figures share: colours, lines of many samples, labels, files."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from greybayes.errors import GreybayesError, RecordError
from greybayes.record import Record
from greybayes.record_files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# Dark to light, solid then dashed: records stay apart in grey and for the colour-blind.
STYLES: tuple[tuple[str, Any], ...] = (
    ("#000000", "-"),
    ("#c44e00", "-"),
    ("#4a9fd8", "-"),
    ("#5b2a86", "--"),
    ("#1f8a5b", "--"),
    ("#c9a100", "--"),
)
# Points that a line may have before its envelope is drawn instead: far more than a page can show.
MAX_POINTS = 20_000
SAMPLE = "sample"
_LARGEST = 1e100  # near the end of the range of numbers, matplotlib's axes overflow


def save_figure(path: str | os.PathLike[str], figure: "Figure") -> None:
    """Write a figure to a .png, .svg or .pdf file, which appears whole or not at all."""
    import matplotlib as mpl

    path = Path(path)
    kind = figure_format(path)
    stream = io.BytesIO()
    # No date in the file and no random names: the same figure is the same bytes.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context({"svg.hashsalt": "greybayes"}):
        figure.savefig(stream, format=kind, dpi=150, metadata=undated)
    write_atomically(path, stream.getvalue())


def figure_format(path: Path, *also: str) -> str:
    """`png`, `svg` or `pdf`, by the end of the file's name; `also` are ends that are right, too."""
    if path.suffix.lower() not in (*FORMATS, *also):
        raise GreybayesError(
            f"{path} ends in '{path.suffix}', which is no kind of figure: "
            f"use one of {', '.join((*FORMATS, *also))}."
        )
    return path.suffix.lower()[1:]


def check_range(record: Record) -> None:
    """Refuse what would overflow the axes."""
    highest = max(
        np.nanmax(np.abs(values), initial=0.0)
        for values in (record.y, record.u)
        if values is not None
    )
    if highest > _LARGEST:
        raise RecordError(f"{record.name or 'a record'} reaches {highest:g}, too large to plot.")


def times(record: Record) -> Float[np.ndarray, " steps"]:
    """When the samples were taken; their numbers, from 1, where that is unknown."""
    if record.times is not None:
        return record.times
    k = np.arange(record.n_steps)
    return k + 1.0 if record.dt is None else k * record.dt


def isolated(seen: Bool[np.ndarray, " steps"]) -> Bool[np.ndarray, " steps"]:
    """Samples between two gaps."""
    beside = np.pad(seen, 1)
    return seen & ~beside[:-2] & ~beside[2:]


def thinned(
    t: Float[np.ndarray, " steps"],
    values: Float[np.ndarray, " steps"],
    max_points: int = MAX_POINTS,
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The line, or the lowest and highest sample of each stretch: that looks the same."""
    stretch = 2 * len(values) // max_points
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


def label(name: str, records: Sequence[Record]) -> str:
    """A channel with its unit."""
    unit = next((record.units[name] for record in records if name in record.units), "")
    return plain(f"{name} [{unit}]" if unit else name)


def plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollars as a formula."""
    return text.replace("$", r"\$")


def time_label(records: Sequence[Record]) -> str:
    """What the axis of time shows."""
    timed = [record.times is not None or record.dt is not None for record in records]
    if not any(timed):
        return SAMPLE
    return label("t", records).replace("t", "time", 1) if all(timed) else "time, or sample"


def tidy(panel: "Axes") -> None:
    """A light grid behind, and no frame above and on the right."""
    panel.grid(color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def time_axis(panel: "Axes", records: Sequence[Record]) -> None:
    """Label the axis of time, in samples where there are no times."""
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel(time_label(records))
    if panel.get_xlabel() == SAMPLE:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_output(
    panel: "Axes",
    record: Record,
    channel: int,
    colour: str,
    dashes: str = "-",
    max_points: int = MAX_POINTS,
) -> None:
    """A measured output; missing samples are gaps."""
    t, y = times(record), record.y[:, channel]
    line = thinned(t, y, max_points)
    panel.plot(*line, color=colour, linestyle=dashes, linewidth=1.1)
    # A line needs two samples: one between two gaps is drawn as a dot.
    alone = np.flatnonzero(isolated(~np.isnan(y)))
    alone = alone[:: 1 + 4 * len(alone) // max_points]
    panel.plot(t[alone], y[alone], ".", color=colour, markersize=4)


def draw_input(
    panel: "Axes",
    record: Record,
    channel: int,
    colour: str,
    dashes: str = "-",
    max_points: int = MAX_POINTS,
) -> None:
    """An input, held from sample to sample."""
    assert record.u is not None
    t, u = times(record), record.u[:, channel]
    last = t[-1] - t[-2] if len(t) > 1 else record.dt or 1.0
    held = np.append(t, t[-1] + last), np.append(u, u[-1])
    line = thinned(*held, max_points)
    panel.plot(*line, drawstyle="steps-post", color=colour, linestyle=dashes, linewidth=1)
