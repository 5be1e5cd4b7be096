"""Designs made of cosines: one tone, a sweep, many harmonics; and the crest factor."""

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike, Float
from numpy.typing import ArrayLike as NumpyLike

from greybayes.errors import InputError
from greybayes.inputs.design import Design
from greybayes.inputs.fields import Range


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


def _refuse_aliases(design: str, field: str, value: Range, limit: float, dt: float) -> None:
    highest = max(map(abs, value if isinstance(value, tuple) else (value,)))
    if highest > limit * (1 + 1e-6):
        raise InputError(
            f"{design}: {field} reaches {highest:g}, above the Nyquist limit {limit:g} at "
            f"dt = {dt:g}; lower it, or check the units."
        )


def _times(n_steps: int, dt: float) -> Float[np.ndarray, " steps"]:
    return np.arange(1, n_steps + 1) * dt


def _cos(angle: Any) -> Any:
    # NumPy where nothing is random: float64 angles, computed once when the step is compiled.
    return np.cos(angle) if isinstance(angle, np.ndarray) else jnp.cos(angle)
