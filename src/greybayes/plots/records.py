"""Records against time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from greybayes.errors import RecordError
from greybayes.plots.base import (
    STYLES,
    check_range,
    draw_input,
    draw_output,
    label,
    plain,
    tidy,
    time_axis,
)
from greybayes.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_OVERLAID = 6
"""More records than this in one figure hide each other; the first ones are drawn."""


def plot_records(records: Record | Sequence[Record]) -> "Figure":
    """The outputs and, below them, the inputs of records against time; records are overlaid.

    Inputs are held from sample to sample. A missing sample is a gap. Of more than `MAX_OVERLAID`
    records the first ones are drawn, and the figure says so.

    >>> figure = plot_records(Record(y=[0.1, 0.4, 0.2], u=[1, 1, -1], dt=0.5, units={"u": "V"}))
    >>> [axes.get_ylabel() for axes in figure.axes], figure.axes[-1].get_xlabel()
    (['y', 'u [V]'], 'time')
    """
    from matplotlib.figure import Figure

    records = [records] if isinstance(records, Record) else list(records)
    if not records:
        raise RecordError("there are no records to plot: pass at least one.")
    shown = records[:MAX_OVERLAID]
    for record in shown:
        check_range(record)
    outputs = list(dict.fromkeys(name for record in shown for name in record.outputs))
    inputs = list(dict.fromkeys(name for record in shown for name in record.inputs))
    heights = [2.0] * len(outputs) + [1.2] * len(inputs)
    figure = Figure(figsize=(8.0, 0.9 + sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
    panels: list[Axes] = list(grid[:, 0])
    for panel, name in zip(panels, outputs + inputs, strict=True):
        # The first is drawn last: where all have the same input, it is seen as the first one's.
        for record, (colour, dashes) in reversed(list(zip(shown, STYLES, strict=False))):
            if name in record.outputs:
                draw_output(panel, record, record.outputs.index(name), colour, dashes)
            elif name in record.inputs:
                draw_input(panel, record, record.inputs.index(name), colour, dashes)
        panel.set_ylabel(label(name, shown))
        tidy(panel)
        panel.margins(x=0.01)
    figure.align_ylabels()
    time_axis(panels[-1], shown)
    _name_records(figure, records, shown)
    return figure


def _name_records(figure: "Figure", records: Sequence[Record], shown: Sequence[Record]) -> None:
    """A title for one record, a legend for several, and a word about those left out."""
    if len(records) == 1:
        figure.suptitle(plain(records[0].name), fontsize="medium")
        return
    from matplotlib.lines import Line2D

    names = [plain(record.name) or f"record {k}" for k, record in enumerate(shown, start=1)]
    lines = [Line2D([], [], color=colour, linestyle=dashes) for colour, dashes in STYLES]
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
