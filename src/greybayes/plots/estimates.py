"""The estimates of several methods beside each other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greybayes.plots.base import plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOUR = "#000000"


def plot_estimates(results: Sequence[Mapping[str, Any]]) -> "Figure":
    """A panel for each parameter: the estimate of each method, with its 95 % interval.

    A result has a `label` and `parameters`, each with `name`, `mean` and maybe `interval95`, as
    `Estimate.to_dict` gives them.

    >>> rows = [{"name": "a", "mean": 1.0, "interval95": [0.8, 1.3]}]
    >>> results = [{"label": "map", "parameters": rows}, {"label": "psem", "parameters": rows}]
    >>> [panel.get_title() for panel in plot_estimates(results).axes]
    ['a']
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["name"] for each in results for row in each["parameters"]))
    n_columns = min(3, len(names))
    n_rows = -(-len(names) // n_columns)
    height = 0.7 + 0.28 * len(results)
    figure = Figure(figsize=(1.6 + 2.4 * n_columns, 0.3 + height * n_rows), layout="constrained")
    places = np.arange(len(results))
    for k, name in enumerate(names):
        panel = figure.add_subplot(n_rows, n_columns, k + 1)
        for place, each in zip(places, results, strict=True):
            row = next((row for row in each["parameters"] if row["name"] == name), None)
            if row is None:
                continue
            if row.get("interval95"):
                panel.plot(row["interval95"], [place, place], color=_COLOUR, linewidth=1.6)
            panel.plot(row["mean"], place, "o", color="#c44e00", markersize=5)
        panel.set_title(plain(name), fontsize="small")
        panel.set_yticks(places, [plain(each["label"]) for each in results])
        panel.tick_params(labelsize="small", labelleft=k % n_columns == 0)
        panel.set_ylim(len(results) - 0.5, -0.5)
        panel.locator_params(axis="x", nbins=4)
        tidy(panel)
    return figure
