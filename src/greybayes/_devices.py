"""Work on many lanes, split over all cores, in few sizes."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Int


def over_devices(one: Callable[..., Any], together: int, lanes: Any, *shared: Any) -> Any:
    """`one(lane, *shared)` for each lane, inside compiled code.

    The leaves of `lanes` have a leading axis, which is split over all devices; each takes up to
    `together` of them at a time, so that they stay in the cache of a core. What is shared goes to
    each device whole.
    """
    n_devices, size = jax.device_count(), len(jax.tree.leaves(lanes)[0])
    n_parts = -(-size // (n_devices * max(1, together)))
    together = -(-size // (n_devices * n_parts))
    filled = n_devices * n_parts * together - size

    def on_device(lanes: Any, *shared: Any) -> Any:
        return jax.lax.map(lambda lane: one(lane, *shared), lanes, batch_size=together)

    split, whole = PartitionSpec("cores"), PartitionSpec()
    run = jax.shard_map(
        on_device,
        mesh=Mesh(jax.devices(), ("cores",)),
        in_specs=(split, *(whole for _ in shared)),
        out_specs=split,
        check_vma=False,
    )
    full = jax.tree.map(lambda a: jnp.concatenate([a, a[jnp.zeros(filled, int)]]), lanes)
    return jax.tree.map(lambda a: a[:size], run(full, *shared))


@functools.cache
def without_ynnpack() -> dict[str, str]:
    """Compiler options that keep matrix products from YNNPACK; none where XLA does not know it.

    That library hands parts of each product to threads that all devices share: where two cores do
    half of the work each, they then wait for one another.
    """
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=options)()
    except jax.errors.JaxRuntimeError:
        return {}
    return options


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """LAPACK runs on the core that calls it.

    Compiled code calls SciPy's. Left alone, each call hands parts of its work to threads of its
    own; where all cores call it at once they wait for one another, many times as long as it takes.
    """
    import scipy.linalg  # noqa: F401  JAX loads it at its first use, and a limit is for what is loaded.
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def to_power_of_two(count: int) -> Int[np.ndarray, " power"]:
    """Lanes that fill a batch up to a power of two, so that few sizes are compiled.

    >>> to_power_of_two(3)
    array([0, 1, 2, 0])
    """
    return np.resize(np.arange(count), 1 << (count - 1).bit_length())
