"""Resampling: which particles live on, how often, unbiased and in the time of a few sums.

Ancestors of sorted points are found by counting: how many points lie below each cumulated weight,
a histogram of that, and its running sum. A binary search costs four times as much on a CPU.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

SCHEMES = ("systematic", "stratified", "multinomial")

_BLOCK = 32


def resample(
    key: Key[Array, ""], weights: Float[Array, " particle"], scheme: str = "systematic"
) -> Int[Array, " particle"]:
    """The ancestors of a new cloud, in increasing order; on average each has its share.

    >>> weights = jnp.array([0.5, 0.0, 0.25, 0.25])
    >>> resample(jr.key(0), weights).tolist()
    [0, 0, 2, 3]
    """
    n = weights.shape[0]
    share = cumulated(weights)
    share = share / share[-1]
    if scheme == "multinomial":
        # Sorted uniforms: partial sums of exponentials over their total.
        sums = cumulated(jr.exponential(key, (n + 1,), weights.dtype))
        below = jnp.searchsorted(sums[:-1] / sums[-1], share, method="scan")
    elif scheme == "stratified":
        position = share * n
        stratum = jnp.minimum(position.astype(jnp.int32), n - 1)
        below = stratum + (jr.uniform(key, (n,), weights.dtype)[stratum] < position - stratum)
    else:
        # The points (j + U) / n below a share.
        below = jnp.ceil(share * n - jr.uniform(key, (), weights.dtype)).astype(jnp.int32)
    # All points are below the last share, whatever rounding says.
    below = jnp.clip(below, 0, n).at[-1].set(n)
    counts = jnp.zeros(n, weights.dtype).at[below].add(1.0, mode="drop")
    return jnp.minimum(cumulated(counts).astype(jnp.int32), n - 1)


def cumulated(a: Float[Array, " n"]) -> Float[Array, " n"]:
    """Running sums as small matrix products: on a CPU several times faster than `cumsum`.

    >>> cumulated(jnp.ones(5)).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    n = a.shape[0]
    rows = -(-n // _BLOCK)
    blocks = jnp.pad(a, (0, rows * _BLOCK - n)).reshape(rows, _BLOCK)
    inner = blocks @ np.triu(np.ones((_BLOCK, _BLOCK), np.float32))
    if rows == 1:
        return inner[0, :n]
    totals = inner[:, -1]
    before = cumulated(totals) - totals
    return (inner + before[:, None]).reshape(-1)[:n]
