"""Whether a posterior is as sure as it may be."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from greybayes.plots.base import STYLES, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from greybayes.diagnose.calibration import Calibration


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
        panel.set_title(plain(f"{name}: {verdict}"), fontsize="small")
        panel.set_xlabel("rank", fontsize="small")
        panel.tick_params(labelsize="small", labelleft=k % n_columns == 0)
        if k % n_columns == 0:
            panel.set_ylabel("ECDF - uniform", fontsize="small")
    _draw_coverage(figure.add_subplot(grid[-1, :]), found)
    figure.suptitle(
        plain(f"{found.model or 'posterior'}, {found.n_draws} draws"), fontsize="medium"
    )
    return figure


def _draw_ranks(
    panel: "Axes", found: "Calibration", ranks: Int[np.ndarray, " draw"], inside: bool
) -> None:
    at, lower, upper = found.band
    panel.fill_between(at, lower - at, upper - at, color="0.88", linewidth=0)
    counts = np.bincount(ranks, minlength=found.n_samples + 1)[:-1]
    colour = STYLES[0 if inside else 1][0]
    panel.plot(at, np.cumsum(counts) / found.n_draws - at, color=colour, linewidth=1.1)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_coverage(panel: "Axes", found: "Calibration") -> None:
    from greybayes.diagnose.ranks import coverage

    levels = np.linspace(0.0, 1.0, 101)
    error = 200 * np.sqrt(levels * (1 - levels) / found.n_draws)
    panel.fill_between(100 * levels, -error, error, color="0.88", linewidth=0)
    gaps = np.stack([coverage(found.ranks, found.n_samples, c) - c for c in levels.tolist()])
    for k, (name, gap) in enumerate(zip(found.names, 100 * gaps.T, strict=True)):
        colour, dashes = STYLES[k % len(STYLES)]
        # Of many parameters no line would be told from the others: then they are a bundle.
        many = len(found.names) > len(STYLES)
        style: Any = {"color": "0.3"} if many else {"color": colour, "linestyle": dashes}
        panel.plot(100 * levels, gap, linewidth=1.1, label=None if many else plain(name), **style)
    panel.set_xlabel("central interval [%]")
    panel.set_ylabel("coverage - level [points]", fontsize="small")
    panel.spines[["top", "right"]].set_visible(False)
    if len(found.names) <= len(STYLES):
        panel.legend(loc="best", ncols=3, frameon=False, fontsize="small")
