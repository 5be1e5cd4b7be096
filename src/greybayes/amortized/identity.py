"""Which model an estimator belongs to: what its header says, and whether a model is the one."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from greybayes.amortized.built_in import check_path, check_priors
from greybayes.amortized.header import OWN
from greybayes.amortized.heads import Lines, Unconstrained, line_of
from greybayes.amortized.line import Line
from greybayes.amortized.training import (
    Architecture,
    Experiment,
    Weights,
    array_name,
    make_weights,
)
from greybayes.errors import EstimatorError
from greybayes.inputs import from_dict
from greybayes.model import Model
from greybayes.prior import Prior, describe
from greybayes.simulation import simulate
from greybayes.zoo import MODELS, get_model

_REFERENCE_STEPS = 16


def describe_theta(prior: Prior) -> list[dict[str, Any]]:
    """Each entry of theta: its name, its prior, and how lines are taken into its support."""
    parameters = prior.by_entry
    entries = [
        {
            "name": name,
            "parameter": parameter,
            "prior": describe(declared.prior),
            "unit": declared.unit,
            "support": support,
            "bounds": list(ends),
            "prior_mean": float(mean),
            "prior_variance": float(variance),
        }
        for name, (parameter, declared), (support, ends), mean, variance in zip(
            prior.names, parameters, prior.supports, prior.mean, prior.variance, strict=True
        )
    ]
    free = Unconstrained.of(prior)
    if len(free.location) == len(entries):
        for entry, location, spread in zip(entries, free.location, free.spread, strict=True):
            entry.update(location=location, spread=spread)
    line = line_of(prior)
    if line is not None:
        for entry, location, spread in zip(entries, line.location, line.spread, strict=True):
            entry.update(line=[location, spread])
    return entries


def reference_path(model: Model, n_steps: int = _REFERENCE_STEPS) -> list[list[float]]:
    """A short path that the model makes from a fixed key: its fingerprint."""
    inputs = None if model.design is not None else np.ones((n_steps, len(model.inputs)))
    path = simulate(model, inputs=inputs, n_steps=n_steps, key=12345)
    y = np.nan_to_num(path.y[0].astype(float))
    return [[float(f"{value:.7g}") for value in row] for row in y]


def describe_model(model: Model, name: str) -> dict[str, Any]:
    """What a header says of its model."""
    return {"name": name, "class": type(model).__name__, "reference": reference_path(model)}


def model_of(name: str) -> Model:
    """The model that a file names, where it is one of ours.

    A name such as `plant.py:Plant` would run a program because a file says so; the user passes that
    model, and `check_identity` compares.
    """
    if name not in MODELS:
        raise EstimatorError(
            f"the file is for the model {name}, which is not one of ours: pass it as model "
            f"(gb.load(FILE, model=...) in Python, --model {name} for the commands estimate and "
            f"diagnose, greybayes train {name} --resume FILE)."
        )
    return get_model(name)


def check_identity(model: Model, header: Mapping[str, Any]) -> None:
    """Raise where a model is not the one the estimator was trained for."""
    ours = [(name, describe(each.prior)) for name, each in model.prior.by_entry]
    told, given = header["model"].get("class"), type(model).__name__
    if told != given and [name for name, _ in ours] != [e["parameter"] for e in header["theta"]]:
        raise EstimatorError(
            f"the file is for the model {header['model']['name']} ({told}), and {given} has other "
            "parameters: give the model that it is for, or none."
        )
    check_priors(ours, header)
    check_path(header, reference_path(model, len(header["model"]["reference"])))


def weights_from(
    model: Model, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Weights:
    """Network and head with the weights of a file."""
    if header["architecture"]["network"] == OWN:
        raise EstimatorError(
            "the estimator was trained with its author's own module as network, which is not in "
            "the file; it works only in the program that trained it."
        )
    experiment = Experiment(model, from_dict(header["input"]), header["n_steps"])
    lines = Lines(_line(model.prior, header["theta"]), Line.of(header["theta"]))
    # Shapes only: nothing is drawn that a file then replaces.
    shapes = eqx.filter_eval_shape(
        lambda: make_weights(experiment, Architecture(**header["architecture"]), lines=lines)
    )
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    trained, static = eqx.partition(shapes, is_shape)
    leaves, tree = jax.tree_util.tree_flatten_with_path(trained)
    try:
        read = [jnp.asarray(arrays[array_name(path)]) for path, _ in leaves]
    except KeyError as error:
        raise EstimatorError(f"the estimator file has no weights {error}.") from None
    for (path, leaf), value in zip(leaves, read, strict=True):
        if leaf.shape != value.shape:
            raise EstimatorError(
                f"the weights {array_name(path)} have shape {value.shape}, expected {leaf.shape}."
            )
    return eqx.combine(jax.tree.unflatten(tree, read), static)


def _line(prior: Prior, entries: list[dict[str, Any]]) -> Unconstrained:
    if all("location" in entry for entry in entries):
        return Unconstrained(*(tuple(e[name] for e in entries) for name in ("location", "spread")))
    return Unconstrained.of(prior)


def named_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """The weights by name, as a file holds them."""
    trained = eqx.filter(weights, eqx.is_inexact_array)
    leaves, _ = jax.tree_util.tree_flatten_with_path(trained)
    return {array_name(path): np.asarray(leaf) for path, leaf in leaves}
