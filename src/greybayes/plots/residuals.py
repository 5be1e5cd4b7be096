"""One-step prediction residuals: against time, with themselves and with the input."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from greybayes.diagnose.checks import MAX_LAG, autocorrelation, band, cross_correlation
from greybayes.plots.base import MAX_POINTS, plain, thinned, tidy, time_axis, times
from greybayes.plots.output import TIME
from greybayes.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INSIDE, _OUTSIDE = "#000000", "#c44e00"
# Inputs beside each other in one row.
_MOST_INPUTS = 3


def plot_residuals(
    residuals: Float[np.ndarray, "steps output"], record: Record, *, max_points: int = MAX_POINTS
) -> "Figure":
    """Residuals, their autocorrelation and their correlation with u, in 99 % bands.

    `residuals` are those of `gb.residuals`, or of a `Misfit`. Correlations outside the band of
    white residuals are coloured; one in a hundred is by chance. At a positive lag u came first.

    >>> rng = np.random.default_rng(0)
    >>> record = Record(y=rng.normal(size=200), u=rng.normal(size=200))
    >>> figure = plot_residuals(rng.normal(size=(200, 1)), record)
    >>> [panel.get_title(loc="left") for panel in figure.axes]
    ['residuals of y', 'autocorrelation', 'correlation with u']
    """
    from matplotlib.figure import Figure

    inputs = record.inputs[:_MOST_INPUTS] if record.u is not None else ()
    n_outputs = len(record.outputs)
    figure = Figure(figsize=(8.0, 4.2 * n_outputs), layout="constrained")
    grid = figure.add_gridspec(2 * n_outputs, 1 + len(inputs))
    n_lags = max(1, min(MAX_LAG, record.n_steps // 5))
    for i, name in enumerate(record.outputs):
        e = residuals[:, i]
        panel = figure.add_subplot(grid[2 * i, :])
        panel.plot(*thinned(times(record), e, max_points), color=_INSIDE, linewidth=0.8)
        for end in (-2.576, 2.576):
            panel.axhline(end, color="0.5", linewidth=0.8, linestyle="--")
        panel.set_title(plain(f"residuals of {name}"), loc="left", fontsize="small")
        panel.set_ylabel("standard deviations", fontsize="small")
        panel.set_gid(TIME)
        panel.margins(x=0.01)
        time_axis(panel, [record])
        tidy(panel)
        if np.isnan(e).all() or not np.nanstd(e):
            continue
        panel = figure.add_subplot(grid[2 * i + 1, 0])
        _stems(panel, np.arange(1, n_lags + 1), autocorrelation(e, n_lags)[1:], band(e))
        panel.set_title("autocorrelation", loc="left", fontsize="small")
        for k, source in enumerate(inputs):
            assert record.u is not None
            panel = figure.add_subplot(grid[2 * i + 1, 1 + k])
            r = cross_correlation(e, record.u[:, k], n_lags)
            _stems(panel, np.arange(-n_lags, n_lags + 1), r, band(e))
            panel.set_title(plain(f"correlation with {source}"), loc="left", fontsize="small")
    return figure


def _stems(panel: "Axes", lags: np.ndarray, r: Float[np.ndarray, " lags"], limit: float) -> None:
    """Correlations at lags; those outside the band are coloured and have a larger dot."""
    panel.axhspan(-limit, limit, color="0.9", linewidth=0)
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    for outside in (False, True):
        chosen = (np.abs(r) > limit) == outside
        colour = _OUTSIDE if outside else _INSIDE
        panel.vlines(lags[chosen], 0.0, r[chosen], color=colour, linewidth=1.2)
        size = 4.5 if outside else 2.5
        panel.plot(lags[chosen], r[chosen], "o", color=colour, markersize=size)
    panel.set_xlabel("lag [samples]", fontsize="small")
    reach = 1.15 * max(float(np.abs(r).max(initial=0.0)), 1.6 * limit)
    panel.set_ylim(-reach, reach)
    tidy(panel)
    panel.grid(visible=False)
