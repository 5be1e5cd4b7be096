"""Built-in models by name, and a user's own by file: `get_model("growth2")`, `"plant.py:Plant"`.

The catalogue is a file, so that listing the models needs neither JAX nor the models themselves.
`python -m greybayes.zoo` writes it anew; a test compares it with the classes.
"""

import contextlib
import functools
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greybayes.errors import ModelError, nearest

if TYPE_CHECKING:
    from greybayes.model import Model

# name: (module, class), in the order in which they are listed.
MODELS = {
    "fir": ("fir", "Fir"),
    "linear-gaussian": ("linear_gaussian", "LinearGaussian"),
    "growth": ("growth", "Growth"),
    "growth1": ("growth", "Growth1"),
    "growth1-text": ("growth", "Growth1Text"),
    "growth2": ("growth", "Growth2"),
    "coupled-drives": ("coupled_drives", "CoupledDrives"),
    "coupled-drives-theta": ("coupled_drives", "CoupledDrivesTheta"),
    "cascaded-tanks": ("cascaded_tanks", "CascadedTanks"),
    "lotka-volterra": ("lotka_volterra", "LotkaVolterra"),
    "sir": ("sir", "Sir"),
    "stochastic-volatility": ("stochastic_volatility", "StochasticVolatility"),
    "van-der-pol": ("van_der_pol", "VanDerPol"),
}
CATALOGUE = Path(__file__).with_name("catalogue.json")


def catalogue() -> list[dict[str, Any]]:
    """Name, summary and parameters of each built-in model, without importing any.

    >>> [entry["name"] for entry in catalogue()][:2]
    ['fir', 'linear-gaussian']
    """
    return json.loads(CATALOGUE.read_text())


def get_model(model: "Model | type[Model] | str") -> "Model":
    """A model from itself, from a built-in name, or from `file.py:Class`.

    >>> get_model("growth2").prior.names
    ('theta2', 'theta6', 'theta7', 'theta8')
    """
    if not isinstance(model, str):
        from greybayes.model import Model

        if isinstance(model, type) and issubclass(model, Model):
            return model()
        if not isinstance(model, Model):
            raise ModelError(f"{model!r} is not a model, expected a gb.Model or the name of one.")
        return model
    if model in MODELS:
        return _built_in(model)
    path, _, name = model.rpartition(":")
    if path.endswith(".py") or model.endswith(".py"):
        return _from_file(Path(path or model), name if path else "")
    raise ModelError(f"there is no model {model}; {nearest(model, MODELS)}")


@functools.cache
def _built_in(name: str) -> "Model":
    # One object for each name: compiled functions are cached by the model they were made for.
    module, cls = MODELS[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)()


def _from_file(path: Path, name: str) -> "Model":
    """The model that a user's file defines. Runs the file: it is the user's own program."""
    from greybayes.model import Model

    if not path.is_file():
        raise ModelError(f"there is no file {path}; expected a path such as my_plant.py:Plant.")
    spec = importlib.util.spec_from_file_location(f"_user_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _beside(path.parent.resolve()):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # A program that ends must not end ours.
        raise ModelError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    models = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Model) and value.__module__ == spec.name
    }
    if not models:
        raise ModelError(f"there is no model in {path}; write a class that derives from gb.Model.")
    if not name and len(models) == 1:
        name = next(iter(models))
    if name not in models:
        problem = f"there is no model {name} in {path}" if name else f"{path} needs a model's name"
        raise ModelError(f"{problem}; {nearest(name, models)}")
    try:
        return models[name]()
    except TypeError as error:
        raise ModelError(f"{name} cannot be made without arguments: {error}.") from None


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let a file import what lies beside it, and forget that: elsewhere a name is another file."""
    known, path = set(sys.modules), [*sys.path]
    # Last on the path: a csv.py there must not be taken for Python's.
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            # Beside it, and not below: there may be an environment with all that is installed.
            if file and Path(file).resolve().parent == folder:
                del sys.modules[name]
