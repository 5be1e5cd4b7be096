"""Several methods' results for one record, as a page: the table and the figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greybayes._files import write_atomically
from greybayes.errors import GreybayesError
from greybayes.plots import plot_estimates
from greybayes.report.html import element, joined, table
from greybayes.report.page import document
from greybayes.report.results import comparison_rows
from greybayes.report.sections import Figures


def write_comparison(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of results that `read_results` gave."""
    labels = [each["label"] for each in results]
    title = f"{results[0]['record'] or 'One record'}, {len(results)} results"
    caption = "Estimates with 95 % intervals, of " + ", ".join(labels)
    body = joined(
        [
            element("header", element("h1", title)),
            table(caption, ("parameter", *labels), comparison_rows(results)),
            Figures(0)(plot_estimates(results), title, f"{caption}. A panel for each parameter."),
        ]
    )
    write_atomically(path, document(title, body).encode(), GreybayesError)
