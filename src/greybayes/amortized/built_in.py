"""The paths that built-in models make, kept in a file: is an estimator that of the model we have?

To simulate a path takes JAX, which `greybayes estimate` and `info` do without. `python -m
greybayes.amortized.built_in` writes the file anew; a test compares it with the models.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from greybayes.errors import EstimatorError
from greybayes.zoo import MODELS, catalogue

PATHS = Path(__file__).with_name("paths.json")
# Compilers round differently from one machine to the next; models differ by more.
_TOLERANCE = 1e-3


def check_built_in(header: Mapping[str, Any]) -> None:
    """Raise where a built-in model is not the one the estimator was trained for; JAX is not used.

    A user's own model is compared when it is passed, see `identity.check_identity`.
    """
    name = header["model"]["name"]
    if name not in MODELS:
        return
    listed = next(entry for entry in catalogue() if entry["name"] == name)["parameters"]
    ours = [(p["name"], p["prior"]) for p in listed for _ in range(math.prod(p["shape"]))]
    check_priors(ours, header)
    check_path(header, json.loads(PATHS.read_text())[name])


def check_priors(ours: list[tuple[str, str]], header: Mapping[str, Any]) -> None:
    """Raise where the entries of theta, as (parameter, prior), are not those of the header."""
    trained = [(entry["parameter"], entry["prior"]) for entry in header["theta"]]
    if ours != trained:
        name = header["model"]["name"]
        changed = [n for n, p in trained if (n, p) not in ours] or [n for n, _ in ours]
        raise EstimatorError(
            f"the estimator was trained for other parameters or priors of {name} than the model "
            f"has now ({', '.join(dict.fromkeys(changed))} differ). {_again(name)}"
        )


def check_path(header: Mapping[str, Any], made: list[list[float]]) -> None:
    """Raise where the path of the header is not the one that the model makes."""
    name, ours = header["model"]["name"], np.array(made)
    try:
        trained = np.array(header["model"]["reference"], float)
    except (TypeError, ValueError):
        raise EstimatorError(f"the estimator's path of {name} is none.") from None
    if ours.shape != trained.shape or not np.allclose(
        ours, trained, rtol=_TOLERANCE, atol=_TOLERANCE * np.abs(trained).max(initial=0.0)
    ):
        raise EstimatorError(
            f"the model {name} no longer makes the path that it made when the estimator was "
            f"trained: its equations have changed. {_again(name)}"
        )


def _again(name: str) -> str:
    return f"Train it again: greybayes train {name}."


def paths() -> dict[str, list[list[float]]]:
    """The path of each built-in model, from the models themselves."""
    from greybayes.amortized.identity import reference_path
    from greybayes.zoo import get_model

    return {name: reference_path(get_model(name)) for name in MODELS}


if __name__ == "__main__":
    PATHS.write_text(json.dumps(paths()) + "\n")
