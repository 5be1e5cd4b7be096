"""What a design is, and the two without a formula of their own: given samples, and a stack."""

import abc
import dataclasses
import numbers
import types
import typing
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from numpy.typing import ArrayLike as NumpyLike

from greybayes.errors import InputError
from greybayes.inputs.fields import checked, is_finite, is_whole


@dataclasses.dataclass(frozen=True)
class Design(abc.ABC):
    """An experiment signal: fields check themselves, `_values` is the formula for one signal."""

    name: ClassVar[str]
    _needs_key: ClassVar[bool] = False  # random even where no field is a pair
    __no_type_check__: ClassVar[bool] = True  # for jaxtyping: fields check themselves, in sentences

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = checked(self.name, field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @abc.abstractmethod
    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        """One signal, `(steps,)` or `(steps, input)`; `p` holds the fields, pairs drawn."""

    @property
    def n_inputs(self) -> int:
        """How many channels a signal has."""
        return 1

    @property
    def is_random(self) -> bool:
        """Whether two keys give two signals."""
        return self._needs_key or bool(self._pairs())

    def _pairs(self) -> dict[str, tuple[float, float]]:
        ranged = [f.name for f in dataclasses.fields(self) if float in typing.get_args(f.type)]
        return {each: v for each in ranged if isinstance(v := getattr(self, each), tuple)}

    def draw(
        self, key: PRNGKeyArray | None, n_steps: int, dt: float | int = 1.0
    ) -> Float[Array, "steps input"]:
        """One signal u_1 ... u_n in float32. Pure: jit it (n_steps, dt static), vmap it over keys.

        >>> from greybayes.inputs import Cosine
        >>> Cosine().draw(None, 200).shape
        (200, 1)
        """
        if not is_whole(n_steps) or n_steps < 1:
            raise InputError(f"n_steps is {n_steps!r}; a whole number of 1 or more is expected.")
        if not is_finite(dt) or dt <= 0:
            raise InputError(f"dt is {dt!r}; a positive, finite number is expected.")
        p = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        key_signal = None
        if self.is_random:
            if key is None:
                raise InputError(f"{self.name} is random here; pass a key, jax.random.key(0).")
            key_fields, key_signal = jr.split(key)
            pairs = self._pairs()
            shares = jr.uniform(key_fields, (len(pairs),), jnp.float32)
            for (field, (low, high)), share in zip(pairs.items(), shares, strict=True):
                p[field] = low + (high - low) * share
        values = self._values(types.SimpleNamespace(**p), key_signal, int(n_steps), float(dt))
        return jnp.asarray(values, jnp.float32).reshape(n_steps, self.n_inputs)

    def fixed(self, key: PRNGKeyArray | int, n_steps: int, dt: float | int = 1.0) -> "Signal":
        """The design frozen into the one signal that `draw` gives for this key or seed.

        >>> from greybayes.inputs import PRBS
        >>> PRBS().fixed(0, 200)
        Signal(steps=200, inputs=1)
        """
        chosen = jr.key(typing.cast(int, key)) if isinstance(key, numbers.Integral) else key
        return Signal(self.draw(typing.cast(PRNGKeyArray, chosen), n_steps, dt))

    def to_dict(self) -> dict[str, Any]:
        """The design as plain JSON values; `from_dict` gives it back exactly.

        >>> from greybayes.inputs import Steps
        >>> Steps(hold=5).to_dict()
        {'design': 'steps', 'low': -1.0, 'high': 1.0, 'hold': 5}
        """
        values = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"design": self.name, **values}


@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class Signal(Design):
    """Given samples: u_k = values[k - 1]; a shorter signal is its beginning, a longer one an error.

    `values` is `(steps,)` or `(steps, input)`, kept in float32.

    >>> Signal([0.0, 1.0, 1.0]).draw(None, 2)[:, 0].tolist()
    [0.0, 1.0]
    """

    name: ClassVar[str] = "signal"
    values: Float[np.ndarray, "steps input"]

    def __init__(self, values: NumpyLike) -> None:
        try:
            given = np.asarray(values)
        except ValueError as error:
            raise InputError(f"u has rows of different lengths ({error}).") from None
        if given.ndim not in (1, 2) or len(given) == 0 or given.dtype.kind not in "fiu":
            raise InputError(
                f"u has shape {given.shape} and type {given.dtype}; real numbers of shape (steps,) "
                f"or (steps, input) are expected."
            )
        with np.errstate(over="ignore"):
            kept = (given if given.ndim == 2 else given[:, None]).astype(np.float32)
        bad = np.argwhere(~np.isfinite(kept))
        if len(bad):
            raise InputError(
                f"u has {len(bad)} values that are not finite in float32, the first at k = "
                f"{bad[0, 0] + 1}; an input has no missing samples. Fill or cut them first."
            )
        kept.flags.writeable = False
        object.__setattr__(self, "values", kept)

    @property
    def n_inputs(self) -> int:
        """How many channels the signal has."""
        return self.values.shape[1]

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        if n_steps > len(self.values):
            raise InputError(
                f"u has {len(self.values)} samples; {n_steps} are needed. Pass a longer signal, or "
                f"ask for {len(self.values)} steps or fewer."
            )
        return self.values[:n_steps]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signal) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.values.shape, (self.values + 0.0).tobytes()))  # -0.0 equals 0.0

    def __repr__(self) -> str:
        return f"Signal(steps={len(self.values)}, inputs={self.n_inputs})"


@dataclasses.dataclass(frozen=True, init=False)
class Stack(Design):
    """Several inputs: u_k = (u1_k, u2_k, ...), one design per channel, each with a key of its own.

    >>> from greybayes.inputs import PRBS, Cosine
    >>> Stack(PRBS(hold=5), Cosine()).draw(jr.key(0), 200).shape
    (200, 2)
    """

    name: ClassVar[str] = "stack"
    designs: tuple[Design, ...]

    def __init__(self, *designs: Design) -> None:
        strange = [each for each in designs if not isinstance(each, Design)]
        if strange or not designs:
            came = repr(strange[0]) if strange else "nothing"
            raise InputError(f"stack: {came} came; designs are expected, Stack(PRBS(), Cosine()).")
        object.__setattr__(self, "designs", designs)

    @property
    def n_inputs(self) -> int:
        """How many channels the designs have together."""
        return sum(each.n_inputs for each in self.designs)

    @property
    def is_random(self) -> bool:
        """Whether two keys give two signals: one random channel is enough."""
        return any(each.is_random for each in self.designs)

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        keys = [None] * len(self.designs) if key is None else list(jr.split(key, len(self.designs)))
        drawn = [one.draw(k, n_steps, dt) for one, k in zip(self.designs, keys, strict=True)]
        return jnp.concatenate(drawn, axis=1)


def _plain(value: Any) -> Any:
    if isinstance(value, Design):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
