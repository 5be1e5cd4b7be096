"""The model language: a model is three methods that return distributions.

    x_1     ~ initial(u_1, p)
    x_{k+1} ~ transition(x_k, u_k, p, t_k)
    y_k     ~ observation(x_k, u_k, p, t_k)          k = 1, ..., n_steps

A model is written for one path; the library batches it. `x`, `u` and `y` are vectors, `p` is a
named tuple of all parameters, and `t` is a `Time`.
"""

import dataclasses
import functools
import inspect
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Key

from greybayes._types import Theta
from greybayes.errors import ModelError, nearest
from greybayes.inputs import Design
from greybayes.prior import Fixed, Parameter, Prior
from greybayes.structure import Structure, inspect_model

# Not typing.Self, which the run-time check of shapes does not know.
M = TypeVar("M", bound="Model")


class Time(NamedTuple):
    """When a step happens: `k` counts samples from 1, `now` is t_k, `dt` is t_{k+1} - t_k."""

    k: Int[Array, ""]
    now: Float[Array, ""]
    dt: Float[Array, ""]


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A stochastic grey-box model. Subclass it, declare parameters, write three methods.

    Unannotated class attributes that are `Parameter` or `Fixed` declare the parameters; annotated
    ones (`order: int = 2`) are constructor fields, for structural choices. Models are frozen: a
    changed one is a new one.

    >>> class Decay(Model):
    ...     rate = Parameter(dist.Uniform(0.0, 1.0), unit="1/s")
    ...     inputs = ()
    ...     def initial(self, u, p):
    ...         return dist.Normal(1.0, 0.1)
    ...     def transition(self, x, u, p, t):
    ...         return dist.Normal(x * jnp.exp(-p.rate * t.dt), 0.01)
    ...     def observation(self, x, u, p, t):
    ...         return dist.Normal(x, 0.1)
    >>> Decay(dt=0.5).prior.names
    ('rate',)
    """

    states: ClassVar[Any] = ("x",)
    inputs: ClassVar[Any] = ("u",)
    outputs: ClassVar[Any] = ("y",)
    units: ClassVar[Mapping[str, str]] = {}
    """Units of states, inputs and outputs, by name."""

    dt: float = 1.0
    """The sampling interval. A record that brings its own must agree."""
    input_delay: int = 0
    """By how many samples the input arrives late; before the record it is `input_before`."""
    input_before: float = 0.0
    n_steps: int = 200
    """The length of a record where nobody says otherwise."""
    design: Design | None = None
    """The input of a simulation where nobody says otherwise."""

    _changed: ClassVar[Mapping[str, Parameter | Fixed]] = {}

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        # `dt = 0.02` without an annotation must change the field's default, as a reader expects.
        own = vars(cls)
        inherited = {
            field.name: field.type
            for base in cls.__bases__
            if dataclasses.is_dataclass(base)
            for field in dataclasses.fields(base)
            if field.name in own
        }
        cls.__annotations__ = {**inherited, **inspect.get_annotations(cls)}
        # Identity, not value, is what compiled functions are cached by: priors do not compare.
        dataclasses.dataclass(frozen=True, eq=False, kw_only=True)(cls)

    # What the author of a model writes.

    def initial(self, u: Float[Array, " input"], p: Any) -> dist.Distribution:
        """The distribution of x_1, given the first input."""
        raise _missing(self, "initial(u, p)", "x_1")

    def transition(
        self, x: Float[Array, " state"], u: Float[Array, " input"], p: Any, t: Time
    ) -> dist.Distribution:
        """The distribution of x_{k+1}."""
        raise _missing(self, "transition(x, u, p, t)", "x_{k+1}")

    def observation(
        self, x: Float[Array, " state"], u: Float[Array, " input"], p: Any, t: Time
    ) -> dist.Distribution:
        """The distribution of y_k."""
        raise _missing(self, "observation(x, u, p, t)", "y_k")

    def prepare(self, p: Any) -> Any:
        """What the three methods receive as `p`, computed once for each theta."""
        return p

    def statistics(
        self,
        x: Float[Array, " state"],
        after: Float[Array, " state"],
        y: Float[Array, " output"],
        u: Float[Array, " input"],
        p: Any,
        t: Time,
    ) -> Any:
        """Optional: what one step adds to the sufficient statistics of the complete data.

        Arrays in any nest of tuples and dictionaries, for x_k, `after` = x_{k+1}, y_k and u_k. The
        library adds them up over the steps and averages over trajectories of the states. What is
        not there is NaN and must add nothing: `after` of the last sample, and a missing y. Of `p`
        only what is fixed may be used. None (the default) says that there is no closed form for
        what is free: gradients are then used. See `regression` for normal noise, and
        `zoo/growth.py` for an example.
        """
        return None

    def maximise(self, sums: Any, p: Any) -> Mapping[str, Any]:
        """Optional: the free parameters that are most likely, given the complete data.

        By name, from the sums of `statistics`, within the support of the prior; `p` has the values
        of those that are fixed, which may be returned too and are left out.
        """
        raise ModelError(
            f"{type(self).__name__} has statistics but no method maximise(sums, p); write one that "
            "returns the free parameters by name."
        )

    def sweep(
        self,
        key: Key[Array, ""],
        theta: Float[Array, "param batch"],
        x: Float[Array, "steps state batch"],
        y: Float[Array, "steps output batch"],
        u: Float[Array, "steps input"] | Float[Array, "steps input batch"],
    ) -> tuple[Float[Array, "param batch"], Float[Array, "steps state batch"]]:
        """Optional: one sweep of a Markov chain over theta and the states of each record.

        It must leave p(theta, x | y) as it is. Training then learns from the thetas that a chain
        visits from the truth on (`sweeps`), instead of the true ones alone. The batch is the last
        axis, and u has its delay already. See `zoo/growth_sweep.py` for an example.
        """
        raise ModelError(f"{type(self).__name__} has no method sweep(key, theta, x, y, u).")

    def declare(self) -> Mapping[str, Parameter | Fixed]:
        """The parameters. Override it only where they depend on constructor fields."""
        declared: dict[str, Parameter | Fixed] = {}
        for base in reversed(type(self).__mro__):
            for name, value in vars(base).items():
                if isinstance(value, Parameter | Fixed):
                    declared[name] = value
                elif name in declared:
                    raise ModelError(
                        f"{base.__name__}.{name} is {value!r}, but {name} is a parameter; to know "
                        f"its value, write {name} = gb.Fixed({value!r})."
                    )
        return declared

    # What the library and its users read.

    @functools.cached_property
    def parameters(self) -> Mapping[str, Parameter | Fixed]:
        """All parameters by name, free and fixed, in the order of declaration."""
        return {**self.declare(), **self._changed}

    @functools.cached_property
    def prior(self) -> Prior:
        """The joint prior of the free parameters."""
        free = {n: v for n, v in self.parameters.items() if isinstance(v, Parameter)}
        return Prior(free)

    @functools.cached_property
    def structure(self) -> Structure:
        """What kind of distribution each method returns; finds mistakes when first asked for."""
        return inspect_model(self)

    @functools.cached_property
    def _parameters_tuple(self) -> type:
        return namedtuple("Parameters", self.parameters)

    def p(self, theta: Theta) -> Any:
        """What the three methods receive as `p` for this theta."""
        fixed = {
            name: jnp.asarray(value.value, float)
            for name, value in self.parameters.items()
            if isinstance(value, Fixed)
        }
        return self.prepare(self._parameters_tuple(**fixed, **self.prior.unpack(theta)))

    def fix(self: M, **values: Any) -> M:
        """The same model with some parameters known: `model.fix(theta2=0.7)`."""
        return self._change(
            {name: Fixed(value, *self._labels(name)) for name, value in values.items()}
        )

    def free(self: M, **priors: dist.Distribution) -> M:
        """The same model with some parameters unknown: `model.free(theta2=dist.Uniform(0, 1))`."""
        return self._change(
            {
                name: Parameter(
                    prior,
                    self._shape(name),
                    *self._labels(name),
                    variance=getattr(self.parameters[name], "variance", False),
                )
                for name, prior in priors.items()
            }
        )

    def _labels(self, name: str) -> tuple[str, str]:
        if name not in self.parameters:
            raise ModelError(
                f"{type(self).__name__} has no parameter {name}; {nearest(name, self.parameters)}"
            )
        return self.parameters[name].unit, self.parameters[name].doc

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.parameters[name].shape if name in self.parameters else ()

    def _change(self: M, changes: Mapping[str, Parameter | Fixed]) -> M:
        for name, value in changes.items():
            if value.shape != self._shape(name):
                raise ModelError(
                    f"{name} got shape {value.shape}, expected {self._shape(name)} as declared."
                )
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        # A new object, not a copy: cached properties must not come along.
        changed = type(self)(**fields)
        object.__setattr__(changed, "_changed", {**self._changed, **changes})
        return changed


def _missing(model: Model, method: str, what: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} has no method {method}; write one that returns the distribution "
        f"of {what}."
    )
