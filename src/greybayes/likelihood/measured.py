"""Records as likelihoods read them: checked against the model, and several as one batch."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float

from greybayes.errors import RecordError
from greybayes.model import Model
from greybayes.record import Record, check_channels, label


class Measured(NamedTuple):
    """Outputs, NaN where a sample is missing, and inputs: of one record, or of a batch."""

    y: Float[np.ndarray, "*batch steps output"]
    u: Float[np.ndarray, "*batch steps input"]


def measured(model: Model, record: Record) -> Measured:
    """The signals of a record, which must be those of the model.

    A record without u takes the input of the model's own design, where that is not random.
    """
    n_steps, name = record.n_steps, type(model).__name__
    called = label(record)
    if record.dt is not None and abs(record.dt - model.dt) > 1e-3 * model.dt:
        raise RecordError(
            f"{called} has dt = {record.dt:g}, {name} has {model.dt:g}; resample the record, or "
            "set dt in the model."
        )
    if record.dt is None and record.times is not None:
        raise RecordError(f"{called} has uneven times; resample it at dt = {model.dt:g}.")
    u = record.u
    if u is None and not model.inputs:
        u = np.zeros((n_steps, 0))
    if u is None and model.design is not None and not model.design.is_random:
        u = np.asarray(model.design.draw(jr.key(0), n_steps, model.dt), float)
    if u is None:
        raise RecordError(
            f"{called} has no input; {name} has {', '.join(model.inputs)}. Name its columns: "
            "FILE:u=COLUMN."
        )
    if record.y.shape[1] != len(model.outputs) or u.shape[1] != len(model.inputs):
        raise RecordError(
            f"{called} has {record.y.shape[1]} outputs and {u.shape[1]} inputs; "
            f"{name} has {len(model.outputs)} and {len(model.inputs)}."
        )
    check_channels(record, model.outputs, model.inputs)
    return Measured(record.y, u)


def measured_batch(model: Model, records: Sequence[Record]) -> Measured:
    """The signals of several records as one batch: the short ones end with missing samples.

    >>> import greybayes as gb
    >>> model = gb.get_model("growth2")
    >>> records = [gb.simulate(model, n_steps=n)[0] for n in (5, 8)]
    >>> np.isnan(measured_batch(model, records).y[..., 0]).sum(1)
    array([3, 0])
    """
    signals = [measured(model, record) for record in records]
    for record in records:
        if record.n_steps < 2 or np.isnan(record.y).all():
            seen = int((~np.isnan(record.y)).any(1).sum())
            raise RecordError(
                f"{label(record)} has {seen} samples that were measured; expected two or more to "
                "learn from."
            )
    longest = max(len(each.y) for each in signals)

    def filled(a: np.ndarray, **how) -> np.ndarray:
        return np.pad(a, ((0, longest - len(a)), (0, 0)), **how)

    return Measured(
        np.stack([filled(each.y, constant_values=np.nan) for each in signals]),
        np.stack([filled(each.u, mode="edge") for each in signals]),
    )
