"""What a report tells, before it is written: all that a record and its estimate give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax.random as jr

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.diagnose.gain import gain_sentence
from greybayes.diagnose.information import Information, information
from greybayes.diagnose.misfit import Misfit, check_fit
from greybayes.diagnose.output import Comparison, compare_output
from greybayes.errors import GreybayesError
from greybayes.estimate import Estimate
from greybayes.model import Model
from greybayes.record import Record

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Findings:
    """One record with its estimate, and all that can be said of it."""

    model: Model
    record: Record
    estimate: Estimate
    information: Sequence[Information]
    compared: Comparison | None
    """None where no record could be drawn from the estimate; `troubles` says why."""
    validation: Sequence[Comparison] = ()
    misfit: Misfit | None = None
    validation_misfits: Sequence[Misfit | None] = ()
    gain: str | None = None
    """A clause, where validation shows another gain."""
    troubles: Sequence[str] = ()
    """What could not be computed, and why."""
    provenance: Mapping[str, Any] = field(default_factory=dict)


def examine(
    model: Model,
    record: Record,
    estimate: Estimate,
    validation: Sequence[Record] = (),
    *,
    key: Seed = 0,
    provenance: Mapping[str, Any] | None = None,
) -> Findings:
    """Simulate, compare and check: the record itself, and the records to validate with.

    What fails for one reason or another (records that diverge, a residual that is not finite) is
    left out and said.
    """
    key = as_key(key)
    keys = [jr.fold_in(key, 1 + k) for k in range(len(validation))]
    record, *validation = (_with_units(each, model) for each in (record, *validation))
    troubles: list[str] = []

    def tried(what: Callable[..., T], record: Record, key: Any) -> T | None:
        try:
            return what(model, record, estimate, key=key)
        except GreybayesError as error:
            troubles.append(f"{record.name or 'the record'}: {error}")
            return None

    compared = tried(compare_output, record, key)
    misfit = tried(check_fit, record, key)
    others = [
        (found, tried(check_fit, other, each))
        for other, each in zip(validation, keys, strict=True)
        if (found := tried(compare_output, other, each)) is not None
    ]
    comparisons = [found for found, _ in others]
    return Findings(
        model,
        record,
        estimate,
        information(model.prior, estimate),
        compared,
        comparisons,
        misfit,
        [misfit for _, misfit in others],
        gain_sentence(compared, comparisons) if compared is not None else None,
        tuple(dict.fromkeys(troubles)),
        provenance or {},
    )


def _with_units(record: Record, model: Model) -> Record:
    """The model knows units that a file may not."""
    names = {*record.outputs, *record.inputs}
    known = {name: unit for name, unit in model.units.items() if name in names}
    return replace(record, units={**known, **record.units})
