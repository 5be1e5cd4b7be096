"""Measured against simulated output."""

from typing import TYPE_CHECKING

import numpy as np

from greybayes.plots.base import (
    MAX_POINTS,
    check_range,
    draw_input,
    draw_output,
    label,
    plain,
    thinned,
    tidy,
    time_axis,
    times,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from greybayes.diagnose.output import Comparison

TIME = "time"
"""The gid of axes of time: what may be zoomed."""
MEASURED, SIMULATED = "#000000", "#c44e00"
_BAND = "95 % of simulated records"


def plot_output(found: "Comparison", *, max_points: int = MAX_POINTS) -> "Figure":
    """The measured and the simulated output with its 95 % band, and the inputs below.

    Each output has its fit beside. A line of more than `max_points` is drawn as its envelope.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", np.array([1.0, 0.5]), key=1)[0]
    >>> truth = gb.Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]))
    >>> figure = plot_output(gb.compare_output("fir", record, truth))
    >>> [panel.get_ylabel() for panel in figure.axes]
    ['y', 'u']
    """
    from matplotlib.figure import Figure

    record = found.record
    check_range(record)
    inputs = record.inputs if record.u is not None else ()
    heights = [2.2] * len(record.outputs) + [0.9] * len(inputs)
    figure = Figure(figsize=(8.0, 1.0 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    t = times(record)
    for i, panel in enumerate(panels[: len(record.outputs)]):
        lower, upper = (thinned(t, ends[:, i], max_points) for ends in (found.lower, found.upper))
        # Both ends at the times of both: envelopes of two lines need not have the same times.
        at = np.union1d(lower[0], upper[0])
        panel.fill_between(
            at,
            np.interp(at, *lower),
            np.interp(at, *upper),
            color=SIMULATED,
            alpha=0.2,
            linewidth=0,
            label=_BAND,
        )
        draw_output(panel, record, i, MEASURED, max_points=max_points)
        panel.get_lines()[0].set_label("measured")
        simulated = thinned(t, found.simulated[:, i], max_points)
        panel.plot(*simulated, color=SIMULATED, linewidth=1.1, label="simulated")
        fit = found.scores.fit_percent[i]
        if np.isfinite(fit):
            panel.set_title(f"fit {fit:.1f} %", loc="right", fontsize="small")
    for i, panel in enumerate(panels[len(record.outputs) :]):
        draw_input(panel, record, i, MEASURED, max_points=max_points)
    for panel, name in zip(panels, (*record.outputs, *inputs), strict=True):
        panel.set_ylabel(label(name, [record]))
        panel.set_gid(TIME)
        panel.margins(x=0.01)
        tidy(panel)
    figure.align_ylabels()
    time_axis(panels[-1], [record])
    panels[0].set_title(plain(record.name), loc="left", fontsize="medium")
    handles, labels = panels[0].get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    order = ("measured", "simulated", _BAND)
    figure.legend(
        [entries[name] for name in order],
        order,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize="small",
    )
    return figure
