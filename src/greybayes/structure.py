"""What a model is made of, and what is wrong with it: found once, when it is first used."""

import contextlib
import enum
import traceback
from collections.abc import Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int

from greybayes._lanes import lane_keys
from greybayes.errors import ModelError, nearest
from greybayes.inputs import Design
from greybayes.noise import Channels, Sampler, as_channels

if TYPE_CHECKING:
    from greybayes.model import Model

# The share of paths that may be NaN at once before it counts as a mistake in the model.
_TOLERATED = 0.05
_CHECK = "jax_check_static_indices"


class Kind(enum.Enum):
    """What is known about a distribution that a model's method returns."""

    known = "no noise"
    density = "a density"
    singular = "noise on some channels only"
    sampler = "no density"


class Structure(NamedTuple):
    """The kinds of a model's three distributions.

    Known initial state and transition leave noise in the output only: the likelihood then has a
    closed form.
    """

    initial: Kind
    transition: Kind
    observation: Kind
    lanes: bool
    """Whether its noise can be drawn from random lanes; JAX's Poisson needs ordinary keys."""

    @property
    def output_error(self) -> bool:
        """Whether the only noise is that of the observation."""
        return self.initial is Kind.known and self.transition is Kind.known


def distribution(model: "Model", method: str, *arguments: Any) -> dist.Distribution:
    """What a method of the model returns, as a distribution over its channels.

    The one door between the library and what a user wrote: every mistake behind it leaves as a
    `ModelError` that names the method.
    """
    where = f"{type(model).__name__}.{method}"
    try:
        returned = getattr(model, method)(*arguments)
    except ModelError as error:
        raise ModelError(f"{where}: {error}" if where not in str(error) else str(error)) from None
    except Exception as error:
        raise ModelError(f"{where}{_line(error, method)} {_reason(error)}") from error
    return as_channels(returned, model.outputs if method == "observation" else model.states, where)


def _line(error: Exception, method: str) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name == method]
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""


def _reason(error: Exception) -> str:
    if isinstance(error, AttributeError) and type(error.obj).__name__ == "Parameters":
        declared = error.obj._fields  # pyright: ignore[reportAttributeAccessIssue]
        return (
            f"asks for p.{error.name}, which is not declared; {nearest(str(error.name), declared)}"
        )
    if isinstance(error, ModelError):
        return f"failed: {error}"
    if isinstance(error, IndexError):
        what = str(error).split(" (")[0]
        return f"asks for an entry that is not there: {what}; the first one has index 0."
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return "branches on a value that is not known yet; use jnp.where instead of if."
    return f"failed with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def inspect_model(model: "Model") -> Structure:
    """Trace one step of the model, without computing it, and look at what each method returns.

    Raises `ModelError` where a method is missing or returns the wrong thing.
    """
    _check_declarations(model)
    lane = lane_keys(jr.key(0), jnp.zeros(1, jnp.uint32))[0]
    try:
        return Structure(**_trace_first_step(model, lane), lanes=True)
    except NotImplementedError:
        return Structure(**_trace_first_step(model, jr.key(0)), lanes=False)


class Trouble(enum.IntEnum):
    """Where a simulated path left the numbers: at once, by which method, or later."""

    none = 0
    initial = 1
    observation = 2
    transition = 3
    later = 4


def check_first_step(
    model: "Model", thetas: Float[np.ndarray, "batch param"], trouble: Int[np.ndarray, " batch"]
) -> None:
    """Raise `ModelError` where the first step of simulated paths is NaN: a mistake, not bad luck.

    Overflow later on is a property of some thetas and is counted; NaN at once is one of the model.
    """
    for method in (Trouble.initial, Trouble.observation, Trouble.transition):
        bad = trouble == method
        if bad.mean() > _TOLERATED:
            theta = zip(model.prior.names, thetas[int(bad.argmax())], strict=True)
            shown = ", ".join(f"{name} = {value:.4g}" for name, value in theta)
            raise ModelError(
                f"{type(model).__name__}.{method.name} gives NaN at the first step for {shown}; "
                "look for a square root or logarithm of something negative, or narrow the prior."
            )


def _check_declarations(model: "Model") -> None:
    name = type(model).__name__
    for attribute in ("states", "inputs", "outputs"):
        names = getattr(model, attribute)
        if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names):
            raise ModelError(
                f"{name}.{attribute} is {names!r}, expected a tuple of names such as "
                f"{attribute} = ('x1', 'x2'); a single one needs a comma: ('x',)."
            )
        if len(set(names)) != len(names):
            raise ModelError(f"{name}.{attribute} has a name twice: {', '.join(names)}.")
    both = set(model.inputs) & set(model.outputs)
    if both:
        raise ModelError(f"{name} calls an input and an output alike: {', '.join(sorted(both))}.")
    if not model.outputs:
        raise ModelError(f"{name} has no outputs; declare at least one: outputs = ('y',).")
    if not model.prior.size:
        raise ModelError(f"{name} has no free parameter; declare one with gb.Parameter(prior).")
    if not isinstance(model.dt, Real) or not 0 < model.dt < np.inf:
        raise ModelError(f"{name}.dt is {model.dt!r}, expected a positive number.")
    for attribute, least in (("input_delay", 0), ("n_steps", 1)):
        value = getattr(model, attribute)
        if not isinstance(value, Integral) or value < least:
            raise ModelError(f"{name}.{attribute} is {value!r}, expected {least} or more samples.")
    if model.design is not None and not isinstance(model.design, Design):
        raise ModelError(
            f"{name}.design is {model.design!r}, expected an input design such as gb.inputs.PRBS()."
        )


def _trace_first_step(model: "Model", key) -> dict[str, Kind]:
    from greybayes.model import Time

    kinds: dict[str, Kind] = {}
    u = _first_input(model)
    t = Time(jnp.array(1), jnp.array(0.0), jnp.array(model.dt))

    def draw(method, *arguments):
        d = distribution(model, method, *arguments)
        kinds[method] = _kind(d)
        try:
            value = jnp.asarray(d.sample(key), float)
        except NotImplementedError:
            raise
        except Exception as error:
            where = f"{type(model).__name__}.{method}"
            raise ModelError(f"{where} cannot be drawn from: it {_reason(error)}") from error
        names = model.outputs if method == "observation" else model.states
        if value.shape != (len(names),):
            raise ModelError(
                f"{type(model).__name__}.{method} drew a value of shape {value.shape}, expected "
                f"({len(names)},): one for each of {', '.join(names)}."
            )
        return value

    def step(theta):
        try:
            p = model.p(theta)
        except Exception as error:
            where = f"{type(model).__name__}.prepare"
            raise ModelError(f"{where}{_line(error, 'prepare')} {_reason(error)}") from error
        x = draw("initial", u, p)
        draw("observation", x, u, p, t)
        draw("transition", x, u, p, t)

    with _indices_checked():
        jax.eval_shape(step, jax.ShapeDtypeStruct((model.prior.size,), jnp.float32))
    return kinds


@contextlib.contextmanager
def _indices_checked() -> Iterator[None]:
    """An index that is not there is an error, and not the last one that is, as JAX has it."""
    before = getattr(jax.config, _CHECK, None)
    if before is None:  # An older JAX, which cannot tell.
        yield
        return
    jax.config.update(_CHECK, True)
    try:
        yield
    finally:
        jax.config.update(_CHECK, before)


def _first_input(model: "Model"):
    if model.design is None or not model.inputs:
        return jnp.zeros(len(model.inputs))
    if model.design.n_inputs != len(model.inputs):
        raise ModelError(
            f"{type(model).__name__}.design gives {model.design.n_inputs} inputs, expected "
            f"{len(model.inputs)}: {', '.join(model.inputs)}."
        )
    return jnp.zeros(len(model.inputs))


def _kind(d: dist.Distribution) -> Kind:
    base = d.base_dist if isinstance(d, dist.Independent) else d
    parts = base.parts if isinstance(base, Channels) else (base,)
    if all(isinstance(part, dist.Delta) for part in parts):
        return Kind.known
    if any(isinstance(part, dist.Delta) for part in parts):
        return Kind.singular
    return Kind.sampler if isinstance(base, Sampler) else Kind.density
