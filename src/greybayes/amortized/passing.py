"""A compiled pass of an estimator's network over a batch of records, on all cores."""

import functools
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float

from greybayes._devices import without_ynnpack
from greybayes.amortized import typical
from greybayes.amortized.faults import statistics
from greybayes.amortized.forward import Outputs
from greybayes.amortized.heads import MeanAndPosterior

if TYPE_CHECKING:
    from greybayes.amortized.estimator import Estimator

# Steps of records computed at a time: their features then stay in the cache of a core.
_ROWS = 5000


class Pass:
    """`(y, u, mean_only)` to what the network says; compiled once for each size of a batch."""

    def __init__(self, estimator: "Estimator") -> None:
        self._n_theta, self._n_steps = len(estimator.names), estimator.n_steps
        self._weights, self._scaling = estimator.weights, estimator.scaling
        self._input = estimator.input
        arrays = estimator.arrays if typical.can_check(estimator.arrays) else {}
        self._comparison = {n: a for n, a in arrays.items() if n in typical.NEEDED}
        self._compiled = functools.cache(self._compile)

    def __call__(
        self,
        y: Float[np.ndarray, "batch steps output"],
        u: Float[np.ndarray, "batch steps input"] | None,
        mean_only: bool,
    ) -> Outputs:
        """All cores at once where that pays, on parts small enough for the cache of a core."""
        count = len(y)
        largest = max(1, _ROWS // self._n_steps)
        n_devices = jax.device_count() if count >= largest * jax.device_count() else 1
        parts = -(-count // (n_devices * largest))
        # Few compilations, whatever number of records comes, and little computed for nothing.
        size = min(largest, 1 << (count - 1).bit_length()) if parts == 1 else largest
        step = 1 << max(0, parts.bit_length() - 4)
        parts = -(-parts // step) * step
        shape = (n_devices, parts, size)

        def split(a: np.ndarray) -> np.ndarray:
            spare = math.prod(shape) - count
            filled = np.concatenate([a, np.repeat(a[-1:], spare, axis=0)]) if spare else a
            return filled.reshape(*shape, *a.shape[1:])

        given = [split(a) for a in (y, u) if a is not None]
        packed = np.asarray(self._compiled(n_devices, mean_only)(*given))
        # The first three axes are those of the parts.
        return self._unpacked(packed.reshape(-1, packed.shape[-1])[:count], mean_only)

    def _unpacked(self, packed: Float[np.ndarray, "batch number"], mean_only: bool) -> Outputs:
        """Theta, the numbers of the mixture and the distance, which come as one array."""
        theta, rest = packed[:, : self._n_theta], packed[:, self._n_theta :]
        distance = None
        if self._comparison and not mean_only:
            rest, distance = rest[:, :-1], rest[:, -1]
        return Outputs(theta, rest if rest.size else None, distance)

    def _part(self, mean_only: bool, y, u):
        """What the network says of some records, as one array.

        To fetch three from every core takes three times as long.
        """
        weights, channels = self._weights, self._scaling.channels(jnp, y, u)
        summary = weights.network.summarise(channels)
        theta = weights.head.theta(summary)
        found = [theta]
        if isinstance(weights.head, MeanAndPosterior) and not mean_only:
            found.append(weights.head.mixture(summary))
        if self._comparison and not mean_only:
            seen = typical.Seen(summary, theta, statistics(jnp, channels, y.shape[-1]))
            found.append(typical.distance(jnp, self._comparison, seen)[:, None])
        return jnp.concatenate(found, axis=-1)

    def _compile(self, n_devices: int, mean_only: bool):
        part = functools.partial(self._part, mean_only)

        def on_device(y, u=None):
            """Its parts one after the other, with the input of all or each with its own."""
            if u is None:
                shared = jnp.asarray(self._input)
                return jax.lax.map(lambda y: part(y, shared), y[0])[None]
            return jax.lax.map(lambda given: part(*given), (y[0], u[0]))[None]

        split = PartitionSpec("cores")
        mesh = Mesh(np.array(jax.devices()[:n_devices]), ("cores",))
        # Weights are constants of the program: as arguments they would be handed over anew.
        return jax.jit(
            jax.shard_map(on_device, mesh=mesh, in_specs=split, out_specs=split, check_vma=False),
            compiler_options=without_ynnpack(),
        )
