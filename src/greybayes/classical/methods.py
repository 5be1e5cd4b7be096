"""The table of methods, and what all of them share. To add one, see docs/add-a-method.md.

A method is a function `(model, records, *, key, settings, start, watch)` that gives an `Estimate`
for a record, or a list of them for several.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

from greybayes.errors import GreybayesError, nearest

if TYPE_CHECKING:
    from greybayes.estimate import Estimate
    from greybayes.model import Model
    from greybayes.record import Record

S = TypeVar("S")


class Progress(NamedTuple):
    """How far a method is, and what it watches: acceptance, or its objective."""

    iteration: int
    iterations: int
    note: str = ""


Watch = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class Method:
    """A method by its name; its function is imported when it is first used."""

    name: str
    summary: str
    needs: str
    """What a model must have, for a reader of the table."""
    home: str
    """`module:function:Settings` below `greybayes.classical`."""

    def _part(self, index: int) -> Any:
        module, *names = self.home.split(":")
        home = importlib.import_module(f"greybayes.classical.{module}")
        return getattr(home, ([*names, "missing"])[index])

    @property
    def run(self) -> Callable[..., Any]:
        """The function itself."""
        return self._part(0)

    @property
    def settings(self) -> type:
        """The frozen dataclass of its settings."""
        return self._part(1)

    def missing(self, model: "Model") -> str | None:
        """What this model lacks for the method, as a clause; None where nothing is missing."""
        return self._part(2)(model)


METHODS = {
    method.name: method
    for method in (
        Method(
            "cme-mh",
            "conditional mean by particle Metropolis-Hastings (Algorithm 1 of the paper)",
            "an observation with a density",
            "cme_mh:cme_mh:CmeMh",
        ),
        Method(
            "psem",
            "maximum likelihood by expectation maximisation with a particle smoother",
            "a transition and an observation with densities",
            "psem:psem:Psem",
        ),
        Method(
            "cpf-saem",
            "maximum likelihood by stochastic approximation and a conditional particle filter",
            "a transition and an observation with densities",
            "cpf_saem:cpf_saem:CpfSaem",
        ),
        Method(
            "least-squares",
            "bounded nonlinear least squares on the simulated output, from many starts",
            "means of all three distributions: the noise-free output is fitted",
            "least_squares:least_squares:LeastSquares",
        ),
        Method(
            "map",
            "maximum a posteriori by gradients of an exact likelihood",
            "no process noise, or linear and Gaussian throughout",
            "map_estimate:map_estimate:MapEstimate",
        ),
    )
}


def get_method(name: str) -> Method:
    """A method by its name, with hyphens or underscores.

    >>> get_method("cme_mh").name
    'cme-mh'
    """
    name = name.replace("_", "-")
    if name not in METHODS:
        raise GreybayesError(f"there is no method {name}; {nearest(name, METHODS)}")
    return METHODS[name]


def make_settings(kind: type[S], given: "S | Mapping[str, Any] | None") -> S:
    """The settings of a method: as they came, or its own with some changed by name."""
    if isinstance(given, kind):
        return given
    hints = get_type_hints(kind)
    changed: dict[str, Any] = {**cast("Mapping[str, Any]", given or {})}
    for name, value in changed.items():
        if name not in hints:
            raise GreybayesError(f"{kind.__name__} has no setting {name}; {nearest(name, hints)}")
        allowed = get_args(hints[name]) or (hints[name],)
        wider = (*allowed, int) if float in allowed else allowed
        if not isinstance(value, wider) or (isinstance(value, bool) and bool not in allowed):
            words = " or ".join("none" if each is type(None) else each.__name__ for each in allowed)
            raise GreybayesError(f"the setting {name} is {value!r}, expected {words}.")
        # A whole number is a number; None is None.
        changed[name] = float(value) if type(value) is int and int not in allowed else value
    return kind(**changed)


def as_list(records: "Record | Sequence[Record]") -> "list[Record]":
    """One record or several, as a list."""
    from greybayes.record import Record

    return [records] if isinstance(records, Record) else list(records)


def like(records: "Record | Sequence[Record]", estimates: "list[Estimate]") -> Any:
    """One estimate where one record came, the list otherwise."""
    from greybayes.record import Record

    return estimates[0] if isinstance(records, Record) else estimates
