"""Input designs: the signals u that excite a model, fixed or drawn anew for every simulation.

Samples count from k = 1, as in the paper: row 0 of a drawn signal is u_1, and k dt in a formula
starts at dt. `omega` is in radians per unit of time, `f0`, `f1` and `band` in cycles per unit of
time (Hz where dt is in seconds), `phase` in radians, `hold` in samples. A frequency above Nyquist
is refused.

Where a number may vary, a pair `(low, high)` makes it uniformly random, drawn once per signal:
`Cosine(omega=(0.5, 2.0))` is a new cosine for every key, `Cosine()` always the same one.
"""

import abc
import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from numpy.typing import ArrayLike as NumpyLike

from greybayes.errors import InputError, nearest

Range = float | tuple[float, float]  # a number, or (low, high): uniformly random per signal
Hold = int | tuple[int, int]  # samples, or (low, high): every hold drawn anew, both ends included
_LARGEST = float(np.finfo(np.float32).max)
_NOT_NEGATIVE = {"std", "rms", "f0", "f1", "band"}


@dataclasses.dataclass(frozen=True)
class Design(abc.ABC):
    """An experiment signal: fields check themselves, `_values` is the formula for one signal."""

    name: ClassVar[str]
    _needs_key: ClassVar[bool] = False  # random even where no field is a pair
    __no_type_check__: ClassVar[bool] = True  # for jaxtyping: fields check themselves, in sentences

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _checked(self.name, field, getattr(self, field.name))
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

        >>> Cosine().draw(None, 200).shape
        (200, 1)
        """
        if not _is_whole(n_steps) or n_steps < 1:
            raise InputError(f"n_steps is {n_steps!r}; a whole number of 1 or more is expected.")
        if not _is_finite(dt) or dt <= 0:
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

        >>> PRBS().fixed(0, 200)
        Signal(steps=200, inputs=1)
        """
        chosen = jr.key(typing.cast(int, key)) if isinstance(key, numbers.Integral) else key
        return Signal(self.draw(typing.cast(PRNGKeyArray, chosen), n_steps, dt))

    def to_dict(self) -> dict[str, Any]:
        """The design as plain JSON values; `from_dict` gives it back exactly.

        >>> Steps(hold=5).to_dict()
        {'design': 'steps', 'low': -1.0, 'high': 1.0, 'hold': 5}
        """
        values = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"design": self.name, **values}


@dataclasses.dataclass(frozen=True)
class Cosine(Design):
    """One tone: u_k = amplitude cos(omega k dt + phase) + offset; the paper's is cos(1.2 k).

    >>> [f"{u:.3f}" for u in Cosine().draw(None, 3)[:, 0]]
    ['0.362', '-0.737', '-0.897']
    """

    name: ClassVar[str] = "cosine"
    amplitude: Range = 1.0
    omega: Range = 1.2
    phase: Range = 0.0
    offset: Range = 0.0

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        _refuse_aliases(self.name, "omega", self.omega, math.pi / dt, dt)
        return p.amplitude * _cos(p.omega * _times(n_steps, dt) + p.phase) + p.offset


@dataclasses.dataclass(frozen=True)
class Chirp(Design):
    """Sweep: u_k = amplitude cos(2 pi (f0 t + (f1 - f0) t^2 / 2T) + phase) + offset, t = k dt.

    The frequency goes linearly from f0 at t = 0 to f1 at the last sample, t = T = n dt.

    >>> Chirp(f0=0.0, f1=0.1).draw(None, 500).shape
    (500, 1)
    """

    name: ClassVar[str] = "chirp"
    f0: Range = 0.01
    f1: Range = 0.25
    amplitude: Range = 1.0
    phase: Range = 0.0
    offset: Range = 0.0

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        _refuse_aliases(self.name, "f0", self.f0, 0.5 / dt, dt)
        _refuse_aliases(self.name, "f1", self.f1, 0.5 / dt, dt)
        t = _times(n_steps, dt)
        cycles = p.f0 * t + (p.f1 - p.f0) * (t**2 / (2 * n_steps * dt))
        return p.amplitude * _cos(2 * math.pi * cycles + p.phase) + p.offset


@dataclasses.dataclass(frozen=True)
class PRBS(Design):
    """Two levels: u_k = offset ± amplitude, a maximum-length sequence, bits held `hold` samples.

    The sequence has period 2^order - 1 bits; without `order`, the shortest that covers the signal.
    The key chooses where in the period it starts, and its sign; a high `order` has more to choose.

    >>> sorted(set(PRBS(amplitude=0.5, offset=1.0).draw(jr.key(0), 100)[:, 0].tolist()))
    [0.5, 1.5]
    """

    name: ClassVar[str] = "prbs"
    _needs_key: ClassVar[bool] = True
    amplitude: Range = 1.0
    hold: int = 1
    offset: Range = 0.0
    order: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order is not None and self.order not in _TAPS:
            raise InputError(f"prbs: order is {self.order}; 2 to {max(_TAPS)} is expected.")

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        enough = (n for n in _TAPS if (2**n - 1) * self.hold >= n_steps)
        bits = _max_length(self.order or next(enough, max(_TAPS)))
        # One number for start and sign; jr.rademacher changes with the float64 switch.
        start = jr.randint(key, (), 0, 2 * len(bits), jnp.int32)
        sign = jnp.where(start < len(bits), 1.0, -1.0)
        clock = np.arange(n_steps) // self.hold % len(bits)
        return p.offset + p.amplitude * sign * jnp.asarray(bits)[(start + clock) % len(bits)]


@dataclasses.dataclass(frozen=True)
class Multisine(Design):
    """Harmonics of the record: u_k = offset + a sum_h cos(2 pi h k / n + phase_h), h in `band`.

    `lines` of the harmonics in `band` are taken, evenly spread (all, without `lines`). The level a
    is set by `amplitude`, the peak over the signal, or by `rms`; both leave out `offset`. `phases`
    is "random" (per key) or "schroeder" (no key; low crest factor, lowest with all lines).

    >>> u = Multisine(band=(0.0, 0.2), phases="schroeder").draw(None, 500)
    >>> bool(crest_factor(u)[0] < 2)
    True
    """

    name: ClassVar[str] = "multisine"
    lines: int | None = None
    band: tuple[float, float] | None = None
    amplitude: Range | None = None
    rms: Range | None = None
    phases: str = "random"
    offset: Range = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phases not in ("random", "schroeder"):
            raise InputError(f"multisine: phases is {self.phases!r}; random or schroeder expected.")
        if self.amplitude is not None and self.rms is not None:
            raise InputError("multisine: amplitude and rms are both given; give one of them.")
        if self.amplitude is None and self.rms is None:
            object.__setattr__(self, "amplitude", 1.0)

    @property
    def is_random(self) -> bool:
        """Whether two keys give two signals."""
        return self.phases == "random" or bool(self._pairs())

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        h = self._harmonics(n_steps, dt)
        if self.phases == "random":
            xp, phase = jnp, jr.uniform(key, (len(h),), jnp.float32, maxval=2 * math.pi)
        else:
            line = np.arange(1, len(h) + 1)
            xp, phase = np, -math.pi * line * (line - 1) / len(h)
        # An inverse FFT: the matrix of all cosines would cost n_steps x lines per signal.
        place = np.full(n_steps // 2 + 1, len(h))
        place[h] = np.arange(len(h))
        spectrum = xp.append(xp.exp(1j * (phase + 2 * math.pi * h / n_steps)), 0.0)[place]
        wave = xp.fft.irfft(spectrum, n_steps) * (n_steps / 2)
        if p.rms is not None:
            return p.offset + p.rms * math.sqrt(2 / len(h)) * wave
        return p.offset + p.amplitude * (wave / abs(wave).max())

    def _harmonics(self, n_steps: int, dt: float) -> np.ndarray:
        low, high = self.band or (0.0, 0.5 / dt)
        _refuse_aliases(self.name, "band", (low, high), 0.5 / dt, dt)
        slack = 1e-9 * n_steps  # a band edge that is a harmonic belongs to the band
        first = max(1, math.ceil(low * n_steps * dt - slack))
        last = min((n_steps - 1) // 2, math.floor(high * n_steps * dt + slack))
        available = max(0, last - first + 1)
        if available < (self.lines or 1):
            raise InputError(
                f"multisine: {self.lines or 1} lines are asked for; a signal of {n_steps} samples "
                f"has {available} harmonics between {low:g} and {high:g} Hz at dt = {dt:g}. "
                f"Ask for fewer lines, a wider band, or a longer signal."
            )
        return np.linspace(first, last, self.lines or available).round().astype(int)


@dataclasses.dataclass(frozen=True)
class Steps(Design):
    """Held levels: u_k = level_i, uniform in [low, high], held `hold` samples (a pair: random).

    >>> u = Steps(low=0.0, high=2.0, hold=(5, 20)).draw(jr.key(0), 100)
    >>> u.shape, bool((u[:5] == u[0]).all())
    ((100, 1), True)
    """

    name: ClassVar[str] = "steps"
    _needs_key: ClassVar[bool] = True
    low: float = -1.0
    high: float = 1.0
    hold: Hold = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_empty(self.name, self.low, self.high)

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        key_levels, key_holds = jr.split(key)
        if isinstance(self.hold, int):
            n_levels = -(-n_steps // self.hold)
            levels = jr.uniform(key_levels, (n_levels,), jnp.float32, self.low, self.high)
            return levels[np.arange(n_steps) // self.hold]
        shortest, longest = self.hold
        levels = jr.uniform(key_levels, (n_steps,), jnp.float32, self.low, self.high)
        holds = jr.randint(key_holds, (n_steps,), shortest, longest + 1, jnp.int32)

        # A scan, with a level and a hold on offer at every sample: as fast as running sums of
        # holds, and long holds cannot overflow.
        def step(carry: Any, offer: Any) -> tuple[Any, Any]:
            left, level = (
                jnp.where(carry[0] == 0, *pair) for pair in zip(offer, carry, strict=True)
            )
            return (left - 1, level), level

        return jax.lax.scan(step, (jnp.int32(0), jnp.float32(0)), (holds, levels))[1]


@dataclasses.dataclass(frozen=True)
class WhiteNoise(Design):
    """Independent samples: u_k = offset + e_k, e_k ~ N(0, std^2), or uniform in [low, high].

    The paper's FIR model takes `WhiteNoise(low=0, high=1)`.

    >>> WhiteNoise(std=2.0).draw(jr.key(0), 100).shape
    (100, 1)
    """

    name: ClassVar[str] = "white_noise"
    _needs_key: ClassVar[bool] = True
    std: Range | None = None
    low: float | None = None
    high: float | None = None
    offset: Range = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.low is None) != (self.high is None):
            raise InputError("white_noise: low and high go together; give both, or std.")
        if self.low is not None and self.high is not None:
            _refuse_empty(self.name, self.low, self.high)
            if self.std is not None:
                raise InputError("white_noise: give std (normal), or low and high (uniform).")
        elif self.std is None:
            object.__setattr__(self, "std", 1.0)

    def _values(self, p: Any, key: Any, n_steps: int, dt: float) -> ArrayLike:
        if self.low is not None:
            return p.offset + jr.uniform(key, (n_steps,), jnp.float32, p.low, p.high)
        return p.offset + p.std * jr.normal(key, (n_steps,), jnp.float32)


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


DESIGNS: dict[str, type[Design]] = {
    each.name: each for each in (Cosine, PRBS, Multisine, Chirp, Steps, WhiteNoise, Signal, Stack)
}


def crest_factor(u: NumpyLike) -> Float[np.ndarray, "*input"]:
    """Peak over rms, max |u_k| / sqrt(mean u_k^2), per channel of `(steps,)` or `(steps, input)`.

    A binary signal has 1, a sine 1.41, normal noise 3 to 4; low is better under a limited actuator.

    >>> float(crest_factor([1.0, -1.0, 1.0]))
    1.0
    """
    samples = np.asarray(u, np.float64)
    rms = np.sqrt(np.mean(samples**2, axis=0)) if samples.size else np.zeros(())
    if not np.all(rms > 0):
        raise InputError("u is empty, zero or not finite; a crest factor needs a signal.")
    return np.asarray(np.abs(samples).max(axis=0) / rms)


def from_dict(d: Mapping[str, Any]) -> Design:
    """The design that `to_dict` wrote. Runs no code from `d`: names are looked up in `DESIGNS`.

    >>> from_dict({"design": "cosine", "omega": [0.5, 2.0]}).is_random
    True
    """
    if not isinstance(d, Mapping) or not isinstance(d.get("design"), str):
        raise InputError(f"{_short(d)} is no input design; a field design is expected.")
    design = _named(d["design"])
    values = {field: value for field, value in d.items() if field != "design"}
    _refuse_unknown(design, values)
    for field in dataclasses.fields(design):
        if field.default is dataclasses.MISSING and field.name not in values:
            raise InputError(f"{design.name} lacks its field {field.name}.")
    if design is Stack:
        if not isinstance(values["designs"], list | tuple):
            raise InputError(f"stack: designs is {_short(values['designs'])}; a list is expected.")
        return Stack(*map(from_dict, values["designs"]))
    return design(**values)


def parse(text: str) -> Design:
    """A design from text, `name:field=value,...`; `low..high` is a pair, `/` the next input.

    >>> parse("prbs:amplitude=1.5,hold=5")
    PRBS(amplitude=1.5, hold=5, offset=0.0, order=None)
    >>> parse("cosine:omega=0.5..2 / steps").n_inputs
    2
    """
    if "/" in text:
        return Stack(*map(parse, text.split("/")))
    name, _, rest = text.partition(":")
    design = _named(name.strip().lower().replace("-", "_"))
    if design in (Signal, Stack):
        raise InputError(
            f"{design.name} cannot be typed; pass samples as a record, channels as prbs/cosine."
        )
    values: dict[str, Any] = {}
    for item in rest.split(",") if rest.strip() else ():
        field, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value or field in values:
            fault = "comes twice" if field in values else "is not of the form field=value"
            raise InputError(f"{design.name}: {item.strip()!r} {fault}; {_field_list(design)}.")
        values[field] = _parsed(value)
    _refuse_unknown(design, values)
    return design(**values)


def _parsed(text: str) -> Any:
    low, dots, high = text.partition("..")
    if dots:
        return (_parsed(low), _parsed(high))
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def _named(name: str) -> type[Design]:
    if name not in DESIGNS:
        raise InputError(f"no input design is called {_short(name)}; {nearest(name, DESIGNS)}")
    return DESIGNS[name]


def _field_list(design: type[Design]) -> str:
    return "its fields are " + ", ".join(field.name for field in dataclasses.fields(design))


def _refuse_unknown(design: type[Design], values: Mapping[str, Any]) -> None:
    names = [field.name for field in dataclasses.fields(design)]
    for name in values:
        if name not in names:
            raise InputError(
                f"{design.name} has no field {_short(name)}, {_field_list(design)}; "
                f"{nearest(str(name), names)}"
            )


def _refuse_aliases(design: str, field: str, value: Range, limit: float, dt: float) -> None:
    highest = max(map(abs, value if isinstance(value, tuple) else (value,)))
    if highest > limit * (1 + 1e-6):
        raise InputError(
            f"{design}: {field} reaches {highest:g}, above the Nyquist limit {limit:g} at "
            f"dt = {dt:g}; lower it, or check the units."
        )


def _refuse_empty(design: str, low: float, high: float) -> None:
    if not low < high:
        raise InputError(f"{design}: low is {low:g} and high {high:g}; low < high is expected.")


def _checked(design: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field in its own type (a list becomes a tuple, 1 becomes 1.0), or an error."""
    kinds = typing.get_args(field.type) or (field.type,)
    if (value is None and types.NoneType in kinds) or (isinstance(value, str) and str in kinds):
        return value
    whole, pair = int in kinds, any(typing.get_origin(kind) is tuple for kind in kinds)
    floor = 1 if whole else 0 if field.name in _NOT_NEGATIVE else -math.inf
    scalar = whole or float in kinds
    cast: Any = int if whole else float

    def good(number: Any) -> bool:
        return (_is_whole(number) if whole else _is_finite(number)) and bool(number >= floor)

    if scalar and good(value):
        return cast(value)
    two: Any = value if isinstance(value, list | tuple) and len(value) == 2 else (None, None)
    if pair and good(two[0]) and good(two[1]) and two[0] < two[1]:
        return (cast(two[0]), cast(two[1]))
    expected = "text" if str in kinds else "a whole number" if whole else "a finite number"
    expected += f" of {floor} or more" if floor > -math.inf else ""
    if pair:
        both = "a pair low < high"
        expected = f"{expected}, or {both}," if scalar else f"{both}, each {expected},"
    raise InputError(f"{design}: {field.name} is {_short(value)}; {expected} is expected.")


def _is_whole(value: Any) -> bool:
    return (
        isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) < 2**30
    )


def _is_finite(value: Any) -> bool:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and abs(float(value)) <= _LARGEST  # false for NaN, and for what float32 cannot hold


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(value: Any) -> Any:
    if isinstance(value, Design):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _times(n_steps: int, dt: float) -> Float[np.ndarray, " steps"]:
    return np.arange(1, n_steps + 1) * dt


def _cos(angle: Any) -> Any:
    # NumPy where nothing is random: float64 angles, computed once when the step is compiled.
    return np.cos(angle) if isinstance(angle, np.ndarray) else jnp.cos(angle)


# s[k + n] = s[k] xor s[k + tap] xor ...: primitive polynomials, the table of scipy's max_len_seq.
_TAPS = {
    2: (1,), 3: (2,), 4: (3,), 5: (3,), 6: (5,), 7: (6,), 8: (7, 6, 1), 9: (5,), 10: (7,),
    11: (9,), 12: (11, 10, 4), 13: (12, 11, 8), 14: (13, 12, 2), 15: (14,), 16: (15, 13, 4),
    17: (14,), 18: (11,), 19: (18, 17, 14), 20: (17,),
}  # fmt: skip


@functools.lru_cache
def _max_length(order: int) -> np.ndarray:
    """One period, 2^order - 1 values of ±1 in int8, of the maximum-length shift register."""
    bits, period = np.ones(order, np.int8), 2**order - 1
    while len(bits) < period:
        # Squaring a polynomial over GF(2) doubles its lags, so the recurrence holds with all lags
        # times m = 2^i too: the sequence grows by a factor, not bit by bit.
        m = 2 ** int(math.log2(len(bits) / order))
        old, size = len(bits) - m * order, m * (order - max(_TAPS[order]))
        lags = [old, *(old + m * tap for tap in _TAPS[order])]
        bits = np.append(bits, np.bitwise_xor.reduce([bits[a : a + size] for a in lags]))
    values = 2 * bits[:period] - 1
    values.flags.writeable = False
    return values
