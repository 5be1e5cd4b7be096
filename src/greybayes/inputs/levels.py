"""Designs made of random levels: two of them (PRBS), held ones, a new one for every sample."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike

from greybayes.errors import InputError
from greybayes.inputs.design import Design
from greybayes.inputs.fields import Hold, Range


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


def _refuse_empty(design: str, low: float, high: float) -> None:
    if not low < high:
        raise InputError(f"{design}: low is {low:g} and high {high:g}; low < high is expected.")


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
