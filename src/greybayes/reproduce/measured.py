"""The measured records of the coupled drives: where they come from, and Wigren's reference."""

import contextlib
import importlib
import io
from pathlib import Path

import numpy as np
from jaxtyping import Float

from greybayes._files import reason
from greybayes.errors import GreybayesError
from greybayes.record import Record, read_records
from greybayes.reproduce.task import Data

DT = 0.02
"""Seconds from one sample to the next."""
# Of Wigren's model for PRBS inputs: theta' of the companion form; it holds under Euler's rule.
REFERENCE = (5163.0, -19.93, -509.8, -2835.0)
_BY_HAND = (
    "give --drives DATAPRBS.MAT, from the Coupled Electric Drives page of nonlinearbenchmark.org"
)


def measured_file(data: Data) -> Path:
    """The user's file, or that of the package nonlinear-benchmarks."""
    file = data.drives or _of_package()
    if file is None:
        raise GreybayesError(
            f"Table 7 and Figure 6 need the measured records: {_BY_HAND}, or install "
            "'greybayes[benchmarks]', which downloads them."
        )
    return file


def _of_package() -> Path | None:
    """The file in the cache of the package, which downloads it where it is not there."""
    try:
        package = importlib.import_module("nonlinear_benchmarks")
    except ImportError:
        return None
    try:
        # What it prints of its download would end up in our JSON.
        with contextlib.redirect_stdout(io.StringIO()):
            file = Path(package.CED(data_file_locations=True)).with_name("DATAPRBS.MAT")
        if not file.exists():
            raise FileNotFoundError(f"there is no {file.name} in its cache")
    except Exception as problem:  # No connection, no room: it raises bare exceptions.
        raise GreybayesError(
            "the package nonlinear-benchmarks could not get the measured records "
            f"({reason(problem)}): {_BY_HAND}."
        ) from None
    return file


def measured(data: Data) -> list[Record]:
    """The three records: amplitudes 1, 1.5 and 0.5."""
    file = measured_file(data)
    return [read_records(f"{file}:y=z{i},u=u{i},dt={DT}")[0] for i in (1, 2, 3)]


def reference_output(record: Record) -> Float[np.ndarray, " steps"]:
    """The output of Wigren's reference model: by Euler's rule."""
    theta1, theta2, theta3, theta4 = REFERENCE
    x, y = np.zeros(3), []
    for u in np.ravel(np.asarray(record.u)):
        y.append(abs(x[0]))
        x = x + DT * np.array(
            [x[1], x[2], theta4 * x[0] + theta3 * x[1] + theta2 * x[2] + theta1 * u]
        )
    return np.array(y)
