"""What a network reads: outputs, their mask and inputs, on one scale. NumPy or JAX arrays alike."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

# Beyond this many standard deviations a channel counts as heavy-tailed, and is compressed.
_HEAVY = 10.0


@dataclass(frozen=True)
class Scaling:
    """Offset and scale of each output and input, measured on simulations of the prior.

    A heavy-tailed output (a return, a population) is compressed by arcsinh after scaling: a few
    rare values would otherwise set the scale for all others.
    """

    y_offset: tuple[float, ...]
    y_scale: tuple[float, ...]
    y_heavy: tuple[bool, ...]
    u_offset: tuple[float, ...]
    u_scale: tuple[float, ...]

    @classmethod
    def measure(
        cls,
        y: Float[np.ndarray, "batch steps output"],
        u: Float[np.ndarray, "batch steps input"],
    ) -> "Scaling":
        """From a pilot batch of finite paths."""
        # Not reshape(-1): a model without inputs has nothing to count.
        y, u = (a.reshape(a.shape[0] * a.shape[1], a.shape[2]).astype(float) for a in (y, u))
        middle, spread = y.mean(0), np.maximum(y.std(0), 1e-12)
        heavy = np.abs((y - middle) / spread).max(0, initial=0.0) > _HEAVY
        # The scale of a heavy-tailed channel is that of its bulk.
        low, median, high = np.quantile(y, [0.16, 0.5, 0.84], axis=0)
        bulk = np.maximum((high - low) / 2, 1e-12)
        return cls(
            tuple(np.where(heavy, median, middle).tolist()),
            tuple(np.where(heavy, bulk, spread).tolist()),
            tuple(heavy.tolist()),
            tuple(u.mean(0).tolist()),
            tuple(np.where(u.std(0) > 1e-12, u.std(0), 1.0).tolist()),
        )

    def channels(self, xp: Any, y: Any, u: Any) -> Any:
        """(y, mask, u) for a batch, from `xp` (NumPy or jax.numpy); NaN in y is a missing sample.

        `y` is `(batch, steps, output)`; `u` is that of the inputs, or `(steps, input)` for all.
        """
        mask = ~xp.isnan(y)
        z = (xp.where(mask, y, 0.0) - _row(xp, self.y_offset)) / _row(xp, self.y_scale)
        if any(self.y_heavy):
            z = xp.where(xp.asarray(self.y_heavy), xp.arcsinh(z), z)
        z = xp.where(mask, z, 0.0)
        v = (u - _row(xp, self.u_offset)) / _row(xp, self.u_scale)
        v = xp.broadcast_to(v, (*y.shape[:2], v.shape[-1]))
        return xp.concatenate([z, mask.astype(z.dtype), v.astype(z.dtype)], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """For the header of a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Scaling":
        """The inverse of `to_dict`."""
        return cls(**{name: tuple(values) for name, values in data.items()})


def _row(xp: Any, values: tuple[float, ...]) -> Any:
    return xp.asarray(values, dtype=xp.float32)
