"""The report: what an engineer looks at, as one HTML file that needs nothing else.

`findings` computes, `verdict` judges, `sections` and `page` write. The figures are those of
`greybayes.plots`.
"""

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greybayes import __version__
from greybayes._files import write_atomically
from greybayes.errors import GreybayesError

if TYPE_CHECKING:
    from greybayes.estimate import Estimate
    from greybayes.model import Model
    from greybayes.record import Record
    from greybayes.report.findings import Findings

SUFFIXES = (".html", ".htm")
# What a result depends on.
_PACKAGES = ("jax", "numpyro", "numpy", "scipy", "arviz")


def report_format(path: Path) -> None:
    """Refuse a name that no browser opens as a page."""
    if path.suffix.lower() not in SUFFIXES:
        raise GreybayesError(f"{path} ends in '{path.suffix}'; a report is a .html file.")


def write_report(
    path: str | Path,
    model: "Model | str",
    record: "Record | Sequence[Record]",
    estimate: "Estimate | Sequence[Estimate]",
    *,
    validation: "Sequence[Record]" = (),
    key: int = 0,
    provenance: Mapping[str, Any] | None = None,
    watch: Callable[[int], None] | None = None,
) -> "list[Findings]":
    """Write the report of a record and its estimate, by whatever method, to one HTML file.

    **Arguments:**

    - `record`, `estimate`: one of each, or lists of them; each then has its own section.
    - `validation`: records of the same plant that the estimate has not seen.
    - `key`: the seed of simulated records and checks.
    - `provenance`: what else is to be told of how the answer was obtained, by name.
    - `watch`: told how many records are done.

    **Returns:**

    What the report tells, a `Findings` for each record. The file appears whole or not at all.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import greybayes as gb
    >>> record = gb.simulate("fir", np.array([1.0, 0.5]), key=1)[0]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "fir.html"
    ...     found = write_report(path, "fir", record, gb.least_squares("fir", record))
    ...     path.read_text().startswith("<!doctype html>")
    True
    """
    from greybayes.record import Record
    from greybayes.report.findings import examine
    from greybayes.report.page import page
    from greybayes.zoo import get_model

    path = Path(path)
    report_format(path)
    name = model if isinstance(model, str) else None
    plant = get_model(model)
    records = [record] if isinstance(record, Record) else list(record)
    estimates = list(estimate) if isinstance(estimate, Sequence) else [estimate]
    if not records or len(records) != len(estimates):
        raise GreybayesError(
            f"a report needs an estimate for each record; {len(records)} records and "
            f"{len(estimates)} estimates came."
        )
    told = _provenance(name or type(plant).__name__, key) | dict(provenance or {})
    found = []
    for each, result in zip(records, estimates, strict=True):
        found.append(examine(plant, each, result, validation, key=key, provenance=told))
        if watch is not None:
            watch(len(found))
    write_atomically(path, page(found).encode(), GreybayesError)
    return found


def _provenance(model: str, key: int) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in _PACKAGES}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "model": model,
        "seed": key,
        "date": today,
        "greybayes": __version__,
        "Python": platform.python_version(),
        **versions,
    }
