"""The estimates of several methods beside each other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from greybayes.plots.base import plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 24
"""More parameters than this in one figure cannot be read."""
_LINE, _DOT = "#000000", "#c44e00"


def plot_estimates(results: Sequence[Mapping[str, Any]]) -> "Figure":
    """A panel for each parameter, then fit % and seconds: each method beside the others.

    A result has a `label` and `parameters`, each with `name`, `mean` and maybe `interval95`, as
    `Estimate.to_dict` gives them; maybe `fit_percent` and `seconds`. Of more than `MAX_PANELS`
    parameters the first ones are drawn.

    >>> rows = [{"name": "a", "mean": 1.0, "interval95": [0.8, 1.3]}]
    >>> results = [{"label": "map", "parameters": rows}, {"label": "psem", "parameters": rows}]
    >>> [panel.get_title() for panel in plot_estimates(results).axes]
    ['a']
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["name"] for each in results for row in each["parameters"]))
    names = names[:MAX_PANELS]
    numbers = {"fit %": "fit_percent", "seconds": "seconds"}
    numbers = {title: [each.get(key) for each in results] for title, key in numbers.items()}
    numbers = {
        title: values for title, values in numbers.items() if any(v is not None for v in values)
    }
    n_panels = len(names) + len(numbers)
    n_columns = min(3, n_panels)
    n_rows = -(-n_panels // n_columns)
    height = 0.7 + 0.28 * len(results)
    figure = Figure(figsize=(1.6 + 2.4 * n_columns, 0.3 + height * n_rows), layout="constrained")
    places = np.arange(len(results))
    for k, title in enumerate((*names, *numbers)):
        panel = figure.add_subplot(n_rows, n_columns, k + 1)
        if title in numbers and k >= len(names):
            shown = [(v, p) for v, p in zip(numbers[title], places, strict=True) if v is not None]
            panel.plot(*zip(*shown, strict=True), "s", color=_LINE, markersize=5)
            if title == "seconds" and all(value > 0 for value, _ in shown):
                panel.set_xscale("log")
        else:
            _draw_parameter(panel, title, results)
        panel.set_title(plain(title), fontsize="small")
        panel.set_yticks(places, [plain(each["label"]) for each in results])
        panel.tick_params(labelsize="small", labelleft=k % n_columns == 0)
        panel.set_ylim(len(results) - 0.5, -0.5)
        if panel.get_xscale() == "linear":
            panel.locator_params(axis="x", nbins=4)
        tidy(panel)
    return figure


def _draw_parameter(panel: "Axes", name: str, results: Sequence[Mapping[str, Any]]) -> None:
    for place, each in enumerate(results):
        row = next((row for row in each["parameters"] if row["name"] == name), None)
        if row is None or row["mean"] is None:
            continue
        if row.get("interval95"):
            panel.plot(row["interval95"], [place, place], color=_LINE, linewidth=1.6)
        panel.plot(row["mean"], place, "o", color=_DOT, markersize=5)
