"""Parameters and their joint prior: theta as names, as a vector, as an unconstrained vector.

Supports and the bijections between them and the real line are NumPyro's.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Key
from numpyro.distributions import biject_to, constraints

from greybayes._lanes import lane_keys
from greybayes._types import Lanes, Theta
from greybayes.errors import ModelError, ThetaError, nearest


@dataclass(frozen=True, eq=False)
class Parameter:
    """An unknown parameter: a prior, and what a reader of a report wants to know about it.

    A scalar prior with a `shape` counts as independent for each entry; a prior with a shape of its
    own (a vector of normals, a multivariate normal) needs none.

    >>> Parameter(dist.Uniform(0.0, 1.0), shape=(3,), unit="m").prior.event_shape
    (3,)
    """

    prior: dist.Distribution
    shape: tuple[int, ...] = ()
    unit: str = ""
    doc: str = ""
    variance: bool = False
    """Whether it is the variance of a noise; the paper's networks regress its square root."""

    def __post_init__(self) -> None:
        if not isinstance(self.prior, dist.Distribution):
            raise ModelError(
                f"a Parameter got {self.prior!r} as its prior, expected a distribution such as "
                "dist.Uniform(0.0, 1.0); a known value is gb.Fixed(value)."
            )
        _check_support(self.prior)
        own = self.prior.batch_shape + self.prior.event_shape
        if self.shape and own not in ((), self.shape):
            raise ModelError(f"a Parameter of shape {self.shape} got a prior of shape {own}.")
        prior = self.prior if own or not self.shape else self.prior.expand(self.shape)
        object.__setattr__(self, "prior", prior.to_event(len(prior.batch_shape)))
        object.__setattr__(self, "shape", own or self.shape)


def _check_support(prior: dist.Distribution) -> None:
    """Refuse a prior that is not of real numbers, or that has nothing between its ends."""
    support, name = prior.support, type(prior).__name__
    if support is None or support.is_discrete:
        raise ModelError(
            f"the prior {name} is not of real numbers, expected a continuous one such as "
            "dist.Uniform(0.0, 1.0); a whole number that is known is a field of the model."
        )
    kind, ends = _kind(support)
    if kind == "interval" and not np.all(np.asarray(ends[0]) < np.asarray(ends[1])):
        raise ModelError(
            f"the prior {name} goes from {ends[0]} to {ends[1]}: there is nothing between "
            "them. Give the smaller one first; a known value is gb.Fixed(value)."
        )


@dataclass(frozen=True, eq=False)
class Fixed:
    """A known parameter. `model.free(name=prior)` makes it unknown."""

    value: Any
    unit: str = ""
    doc: str = ""

    def __post_init__(self) -> None:
        try:
            value = np.asarray(self.value, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(
                f"a Fixed got {self.value!r}, expected a number or an array; an unknown is "
                "gb.Parameter(prior)."
            ) from None
        object.__setattr__(self, "value", value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return np.shape(self.value)


@dataclass(frozen=True, eq=False)
class Prior:
    """The joint prior of a model's free parameters, which are independent of one another.

    >>> prior = Prior({"a": Parameter(dist.Uniform(0.0, 2.0)), "b": Parameter(dist.Normal(0, 1))})
    >>> prior.names, prior.size
    (('a', 'b'), 2)
    >>> prior.to_dict(prior.vector({"a": 0.5, "b": -1.0}))
    {'a': 0.5, 'b': -1.0}
    """

    parameters: Mapping[str, Parameter]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each entry of theta: `a` of a scalar, `b[0]`, `b[1]` of a vector."""
        return tuple(
            _entry(name, index)
            for name, parameter in self.parameters.items()
            for index in np.ndindex(*parameter.shape)
        )

    @functools.cached_property
    def by_entry(self) -> "tuple[tuple[str, Parameter], ...]":
        """The parameter that each entry of theta belongs to, with its name."""
        return tuple(
            (name, parameter)
            for name, parameter in self.parameters.items()
            for _ in np.ndindex(*parameter.shape)
        )

    @property
    def size(self) -> int:
        """The number of entries of theta."""
        return len(self.names)

    def unpack(self, theta: Theta) -> dict[str, Array]:
        """The parameters, each in its shape, from the vector."""
        sizes = [math.prod(parameter.shape) for parameter in self.parameters.values()]
        pieces = jnp.split(theta, np.cumsum(sizes)[:-1]) if sizes else []
        return {
            name: piece.reshape(parameter.shape)
            for (name, parameter), piece in zip(self.parameters.items(), pieces, strict=True)
        }

    def pack(self, values: Mapping[str, Array]) -> Theta:
        """The vector from the parameters, each in its shape. The inverse of `unpack`."""
        pieces = [jnp.ravel(jnp.asarray(values[name], float)) for name in self.parameters]
        return jnp.concatenate([*pieces, jnp.zeros(0)])

    def vector(self, theta: "Mapping[str, Any] | Array | np.ndarray | list") -> Theta:
        """Theta as a checked vector, from names or from a vector.

        Names are those of parameters (`b=[1, 2]`) or of entries (`b[0]=1`). Raises `ThetaError`
        where a name is unknown or missing, or a value is outside the support of its prior.
        """
        values = self._from_names(theta) if isinstance(theta, Mapping) else theta
        try:
            vector = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ThetaError(f"theta is {theta!r}, expected numbers.") from None
        return self.vectors(vector[None])[0]

    def vectors(self, thetas: "Array | np.ndarray") -> Float[Array, "batch param"]:
        """Many thetas, one in each row, checked likewise."""
        thetas = np.asarray(thetas, dtype=np.float64)
        if thetas.shape[1:] != (self.size,):
            raise ThetaError(
                f"theta has shape {thetas.shape[1:]}, expected ({self.size},): one value for each "
                f"of {', '.join(self.names)}."
            )
        start = 0
        for name, parameter in self.parameters.items():
            stop = start + math.prod(parameter.shape)
            values = thetas[:, start:stop].reshape(-1, *parameter.shape)
            start = stop
            inside = np.asarray(_support(parameter)(jnp.asarray(values, jnp.float32)))
            ok = (inside.reshape(len(values), -1).all(1)) & np.isfinite(values).reshape(
                len(values), -1
            ).all(1)
            if not ok.all():
                shown = ", ".join(f"{v:g}" for v in np.ravel(values[int(ok.argmin())]))
                raise ThetaError(
                    f"{name} = {shown} is outside the support of its prior "
                    f"{describe(parameter.prior)}."
                )
        return jnp.asarray(thetas, jnp.float32)

    def entries(self, theta: Mapping[str, Any]) -> dict[str, float]:
        """Values by the names of entries, from those of parameters or of entries, maybe not all.

        Of a vector all entries must be named or none: its prior may tie them together.
        """
        given: dict[str, float] = {}
        for name, value in theta.items():
            parameter = self.parameters.get(name)
            if parameter is None and name not in self.names:
                raise ThetaError(
                    f"{name} is not a free parameter of this model; {nearest(name, self.names)}"
                )
            shape = () if parameter is None else parameter.shape
            if np.shape(value) != shape:
                raise ThetaError(f"{name} has shape {np.shape(value)}, expected {shape}.")
            value = np.asarray(value)
            try:
                given |= {_entry(name, index): float(value[index]) for index in np.ndindex(*shape)}
            except (TypeError, ValueError):
                raise ThetaError(f"{name} is {value!r}, expected numbers.") from None
        for name, parameter in self.parameters.items():
            own = [_entry(name, index) for index in np.ndindex(*parameter.shape)]
            if 0 < sum(entry in given for entry in own) < len(own):
                raise ThetaError(f"theta has a part of {name}; give all of {', '.join(own)}.")
        return given

    def _from_names(self, theta: Mapping[str, Any]) -> list[float]:
        given = self.entries(theta)
        missing = [name for name in self.names if name not in given]
        if missing:
            raise ThetaError(f"theta has no value for {', '.join(missing)}.")
        return [given[name] for name in self.names]

    def to_dict(self, theta: Theta) -> dict[str, float]:
        """A plain number for each entry, by name."""
        return dict(zip(self.names, (float(value) for value in theta), strict=True))

    def sample(self, key: Key[Array, ""], lanes: Lanes) -> Float[Array, "batch param"]:
        """A draw for each lane."""
        keys = {
            name: lane_keys(jr.fold_in(key, index), lanes)
            for index, name in enumerate(self.parameters)
        }
        return jax.vmap(
            lambda keys: self.pack(
                {
                    name: jnp.asarray(p.prior.sample(keys[name]))
                    for name, p in self.parameters.items()
                }
            )
        )(keys)

    def log_prob(self, theta: Theta) -> Float[Array, ""]:
        """The log-density; -inf outside the support."""
        values = self.unpack(theta)
        total = jnp.zeros(())
        for name, parameter in self.parameters.items():
            inside = jnp.all(_support(parameter)(values[name]))
            # The support is checked here, so NumPyro need not warn about it.
            with numpyro.validation_enabled(False):
                density = parameter.prior.log_prob(values[name])
            total += jnp.where(inside, density, -jnp.inf)
        return total

    def in_support(self, theta: Theta) -> Bool[Array, ""]:
        """Whether every parameter is inside the support of its prior."""
        values = self.unpack(theta)
        inside = [jnp.all(_support(p)(values[name])) for name, p in self.parameters.items()]
        return jnp.all(jnp.stack([jnp.array(True), *inside]))

    def constrain(self, unconstrained: Float[Array, " free"]) -> tuple[Theta, Float[Array, ""]]:
        """Theta from the real line, and the log of the Jacobian's determinant.

        The density of the unconstrained vector is `log_prob(theta) + log_det`.
        """
        values, log_det, start = {}, jnp.zeros(()), 0
        for name, parameter in self.parameters.items():
            bijection = biject_to(_support(parameter))
            shape = bijection.inverse_shape(parameter.shape)
            stop = start + math.prod(shape)
            free = unconstrained[start:stop].reshape(shape)
            values[name] = bijection(free)
            log_det += jnp.sum(bijection.log_abs_det_jacobian(free, values[name]))
            start = stop
        return self.pack(values), log_det

    def unconstrain(self, theta: Theta) -> Float[Array, " free"]:
        """The inverse of `constrain`."""
        values = self.unpack(theta)
        pieces = [
            jnp.ravel(biject_to(_support(p)).inv(values[name]))
            for name, p in self.parameters.items()
        ]
        return jnp.concatenate([*pieces, jnp.zeros(0)])

    @functools.cached_property
    def bounds(self) -> tuple[Float[np.ndarray, " param"], Float[np.ndarray, " param"]]:
        """The ends of the support of each entry in float32, infinite where there is none."""
        ends: dict[str, list[np.ndarray]] = {"lower_bound": [], "upper_bound": []}
        for parameter in self.parameters.values():
            support = _base(_support(parameter))
            for (end, found), infinite in zip(ends.items(), (-np.inf, np.inf), strict=True):
                value = np.asarray(getattr(support, end, infinite), np.float32)
                found.append(np.broadcast_to(value, parameter.shape).ravel())
        return np.concatenate(ends["lower_bound"]), np.concatenate(ends["upper_bound"])

    @functools.cached_property
    def supports(self) -> tuple[tuple[str | None, tuple[float, ...]], ...]:
        """The support of each entry: `real`, `above` or `interval`, and its ends; else None."""
        found = []
        for parameter in self.parameters.values():
            kind, ends = _kind(_support(parameter))
            ends = [np.broadcast_to(np.asarray(end, float), parameter.shape) for end in ends]
            for index in np.ndindex(*parameter.shape):
                found.append((kind, tuple(float(end[index]) for end in ends)))
        return tuple(found)

    @functools.cached_property
    def is_variance(self) -> Bool[np.ndarray, " param"]:
        """Which entries are variances."""
        return np.concatenate(
            [np.full(math.prod(p.shape), p.variance) for p in self.parameters.values()]
        ).astype(bool)

    @functools.cached_property
    def mean(self) -> Float[np.ndarray, " param"]:
        """The prior mean of each entry."""
        return self._moment(lambda prior: prior.mean, lambda draws: draws.mean(0))

    @functools.cached_property
    def variance(self) -> Float[np.ndarray, " param"]:
        """The prior variance of each entry: the scale of the Bayes risk."""
        return self._moment(lambda prior: prior.variance, lambda draws: draws.var(0))

    def _moment(self, exact, empirical) -> np.ndarray:
        """A moment from its formula, or from a million fixed draws where NumPyro has none."""
        pieces = []
        for name, parameter in self.parameters.items():
            # The first to ask may be inside someone's compiled function.
            with jax.ensure_compile_time_eval():
                try:
                    value = np.asarray(exact(parameter.prior), float)
                except NotImplementedError:
                    draws = parameter.prior.sample(jr.key(0), (1_000_000,))
                    value = empirical(np.asarray(draws, float))
            if not np.isfinite(value).all():
                raise ModelError(f"the prior of {name} has no finite mean and variance.")
            pieces.append(np.broadcast_to(value, parameter.shape).ravel())
        return np.concatenate([*pieces, np.zeros(0)])


def _support(parameter: Parameter) -> Any:
    return parameter.prior.support


def _base(support: Any) -> Any:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support


def _kind(support: Any) -> tuple[str | None, list[Any]]:
    support = _base(support)
    if support in (constraints.real, constraints.real_vector):
        return "real", []
    if hasattr(support, "lower_bound") and hasattr(support, "upper_bound"):
        return "interval", [support.lower_bound, support.upper_bound]
    if hasattr(support, "lower_bound"):
        return "above", [support.lower_bound]
    return None, []


def _entry(name: str, index: tuple[int, ...]) -> str:
    return name + "".join(f"[{i}]" for i in index)


def describe(prior: dist.Distribution) -> str:
    """A prior in words: `Uniform(0, 1)`.

    >>> describe(dist.Uniform(0.0, 1.0)), describe(dist.TruncatedNormal(0.0, 2.0, low=0.0))
    ('Uniform(0, 1)', 'Normal(0, 2) on (0, inf)')
    >>> describe(dist.StudentT(3.0, 0.0, 2.0))
    'StudentT(3, 0, 2)'
    """
    base = getattr(prior, "base_dist", None)
    if isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        return describe(base)  # pyright: ignore[reportArgumentType]
    if "Truncated" in type(prior).__name__ and base is not None:
        low, high = (getattr(prior, end, default) for end, default in _ENDS)
        return f"{describe(base)} on ({_text(low)}, {_text(high)})"
    names = [name for name in prior.arg_constraints if name in prior.__dict__]
    # NumPyro keeps several forms of one covariance; the first is the one that was given.
    others = [name for name in names if name in _COVARIANCES][1:]
    given = [prior.__dict__[name] for name in names if name not in others]
    return f"{type(prior).__name__}({', '.join(map(_text, given))})"


_COVARIANCES = ("covariance_matrix", "precision_matrix", "scale_tril")
_ENDS = (("low", -np.inf), ("high", np.inf))


def _text(value) -> str:
    if np.ndim(value) == 0:
        return f"{float(value):.4g}"
    return np.array2string(np.asarray(value, float), precision=4, separator=", ").replace("\n", "")
