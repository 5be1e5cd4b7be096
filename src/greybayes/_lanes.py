"""Random lanes: one key for a whole batch, an independent stream for every path in it.

A simulator written for one path and batched with `jax.vmap` needs a key per path. JAX's own keys
make that slow on CPU: each path's key must first be hashed out of its parent, and the generator's
rolled loop cannot fuse with the arithmetic around it. A lane key is the parent key beside the
number of the path. The number enters the generator as half of its counter, so that a million lane
keys cost nothing to make and every draw fuses into the step that uses it.

The generator is Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"),
the one that JAX uses, with 13 rounds: the fewest for which that paper found no failure in TestU01's
BigCrush (20 are its choice with a margin, and JAX's; fewer are faster). Path i depends on the key
and on i alone: batches can be grown, chunked and sharded without changing a path.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, UInt32

from greybayes.errors import GreybayesError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
# The second half of the counter says what a block is for, so that no use meets another's blocks.
_FOR_SPLIT = np.uint32(1 << 31)
_FOR_FOLD = np.uint32(0x9E3779B9)


def threefry(
    key: tuple[Array, Array], counter: tuple[Array, Array], rounds: int = 13
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Threefry-2x32: two random words for each counter.

    Unrolled, unlike JAX's lowering for CPU, so that XLA fuses it with what uses the words.
    """
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + schedule[0], counter[1] + schedule[1]
    for number in range(rounds):
        group, place = divmod(number, 4)
        rotation = _ROTATIONS[group % 2][place]
        x0 = x0 + x1
        x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
        x1 = x1 ^ x0
        if place == 3:
            x0 = x0 + schedule[(group + 1) % 3]
            x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _seed(seed: Array) -> UInt32[Array, "3"]:
    low = jnp.asarray(seed).astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(low), low, jnp.zeros_like(low)])


def _split(key: UInt32[Array, "3"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 3"]:
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    words = threefry((key[0], key[1]), (jnp.broadcast_to(key[2], shape), index | _FOR_SPLIT))
    return jnp.stack([*words, jnp.zeros(shape, jnp.uint32)], axis=-1)


def _fold_in(key: UInt32[Array, "3"], data: UInt32[Array, ""] | int) -> UInt32[Array, "3"]:
    words = threefry((key[0] ^ _FOR_FOLD, key[1]), (key[2], jnp.asarray(data, jnp.uint32)))
    return jnp.stack([*words, jnp.zeros((), jnp.uint32)])


def _random_bits(key: UInt32[Array, "3"], bit_width: int, shape: tuple[int, ...]) -> Array:
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    # One word of each block is left unused: joining the halves would need a concatenation, and
    # that stops the fusion which makes lanes fast.
    word, spare = threefry((key[0], key[1]), (jnp.broadcast_to(key[2], shape), index))
    if bit_width == 64:
        return (word.astype(jnp.uint64) << np.uint64(32)) | spare.astype(jnp.uint64)
    return word.astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


_LANES = define_prng_impl(
    key_shape=(3,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="greybayes_lanes",
    tag="gbl",
)


def as_key(key: Key[Array, ""] | int | np.integer) -> Key[Array, ""]:
    """A JAX key from a key or from an integer seed."""
    if not isinstance(key, int | np.integer):
        return key
    if not 0 <= key < 2**32:
        # JAX would silently take another seed: the low 32 bits.
        raise GreybayesError(f"the seed is {key}, expected a whole number from 0 to 4294967295.")
    return jr.key(int(key))


def lane_keys(key: Key[Array, ""], lanes: UInt32[Array, " batch"]) -> Key[Array, " batch"]:
    """A key for each lane, to be consumed under `jax.vmap`.

    >>> keys = lane_keys(jr.key(0), jnp.arange(4, dtype=jnp.uint32))
    >>> jax.vmap(jr.normal)(keys).shape
    (4,)
    """
    if jr.key_data(key).shape == (3,):
        key = jr.fold_in(key, 0)  # A lane of its own has lanes: hash its number in first.
    parent = jnp.broadcast_to(jr.key_data(key)[:2], (lanes.shape[0], 2))
    return jr.wrap_key_data(jnp.concatenate([parent, lanes[:, None]], axis=1), impl=_LANES)
