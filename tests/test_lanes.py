"""Random lanes against JAX's own generator, published answers, and the laws they claim to draw."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats as st
from helpers import assert_mean, assert_moments, assert_uncorrelated
from jax.extend.random import threefry_2x32

from greybayes._lanes import as_key, lane_keys, threefry

N = 20_000


def lanes(*numbers: int) -> jax.Array:
    return jnp.array(numbers, jnp.uint32)


def first(n: int) -> jax.Array:
    return jnp.arange(n, dtype=jnp.uint32)


@jax.jit
def bits(keys):
    """Eight words for each key."""
    return jax.vmap(lambda key: jr.bits(key, (8,)))(keys)


# Salmon et al., Random123, file kat_vectors: threefry2x32 with 13 and with 20 rounds.
PI = (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
    ("rounds", "counter", "key", "words"),
    [
        (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        (13, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0xFD36D048, 0x2D17272C)),
        (13, *PI, (0xBA3E4725, 0xF27D669E)),
        (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        (20, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        (20, *PI, (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(rounds, counter, key, words):
    ours = threefry(tuple(lanes(*key)), tuple(lanes(*counter)), rounds)
    assert tuple(map(int, ours)) == words


def test_threefry_equals_jax_bit_for_bit():
    words = np.random.default_rng(0).integers(0, 2**32, (8, 2, 101), dtype=np.uint32)
    for key, counter in zip(words[:, :, 0], words[:, :, 1:], strict=True):
        ours = threefry(tuple(jnp.asarray(key)), tuple(jnp.asarray(counter)), rounds=20)
        theirs = threefry_2x32(tuple(jnp.asarray(key)), jnp.asarray(counter).ravel())
        np.testing.assert_array_equal(np.concatenate(ours), theirs)


def test_a_seed_and_its_key_are_the_same_key():
    for key in (7, np.int64(7), jr.key(7)):
        assert jr.key_data(as_key(key)).tolist() == jr.key_data(jr.key(7)).tolist()


LAWS = {
    "normal": (jr.normal, st.norm()),
    "uniform": (jr.uniform, st.uniform()),
    "exponential": (jr.exponential, st.expon()),
    "gamma": (lambda key: jr.gamma(key, 2.5), st.gamma(2.5)),
    "bernoulli": (lambda key: jr.bernoulli(key, 0.3), st.bernoulli(0.3)),
    "randint": (lambda key: jr.randint(key, (), 0, 6), st.randint(0, 6)),
    "8 bits": (lambda key: jr.bits(key, (), jnp.uint8), st.randint(0, 2**8)),
    "16 bits": (lambda key: jr.bits(key, (), jnp.uint16), st.randint(0, 2**16)),
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, np.ndarray]:
    """One draw of every law in each of N lanes, and one from a child of each lane."""

    def one(key):
        draws = {name: draw(key) for name, (draw, _) in LAWS.items()}
        return {**draws, "word": jr.bits(key), "child": jr.normal(jr.split(jr.fold_in(key, 3))[1])}

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(lane_keys(jr.key(1), first(N))))


@pytest.mark.parametrize("law", LAWS)
def test_draws_across_lanes_follow_their_law(drawn, law):
    oracle = LAWS[law][1]
    assert_moments(drawn[law], oracle.mean(), oracle.var())
    if isinstance(oracle.dist, st.rv_continuous):
        assert st.kstest(drawn[law], oracle.cdf).pvalue > 1e-6


def test_children_of_lanes_follow_the_law_and_not_their_neighbours(drawn):
    child = drawn["child"]
    assert_moments(child, 0.0, 1.0)
    neighbours = [child[:-1], child[1:], drawn["normal"][:-1], drawn["normal"][1:]]
    assert_uncorrelated(np.stack(neighbours, axis=1))


def test_every_bit_of_a_word_is_fair(drawn):
    fair = np.unpackbits(drawn["word"][:, None].view(np.uint8), axis=1)
    assert fair.shape == (N, 32)
    assert_mean(fair, 0.5)
    assert_uncorrelated(fair)


def test_lanes_and_draws_are_not_correlated():
    keys = lane_keys(jr.key(3), first(64))
    table = np.asarray(jax.jit(jax.vmap(lambda key: jr.normal(key, (4096,))))(keys))
    assert_uncorrelated(table.T)
    assert_uncorrelated(table.reshape(64 * 64, 64))
    # A lane against its neighbour one draw later: counters that ran together would show here.
    assert_uncorrelated(np.stack([table[:-1, 1:].ravel(), table[1:, :-1].ravel()], axis=1))


def test_a_lane_does_not_depend_on_the_batch_it_is_drawn_in():
    whole = np.asarray(bits(lane_keys(jr.key(4), first(8))))
    np.testing.assert_array_equal(bits(lane_keys(jr.key(4), lanes(5, 3, 5))), whole[[5, 3, 5]])
    alone = jr.bits(lane_keys(jr.key(4), lanes(6))[0], (8,))
    np.testing.assert_array_equal(alone, whole[6])


def test_two_keys_and_the_last_lanes_have_streams_of_their_own():
    numbers = lanes(0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1)
    words = [bits(lane_keys(jr.key(seed), numbers)) for seed in (0, 1)]
    assert len(np.unique(np.stack(words))) == 2 * 6 * 8


def test_children_differ_from_their_parent_and_from_one_another():
    def family(key):
        split, folded = jr.split(key, 4), jax.vmap(lambda i: jr.fold_in(key, i))(first(4))
        grandchildren = jnp.stack([jr.split(split[0])[1], jr.fold_in(split[1], 0)])
        keys = jnp.concatenate([key[None], split, folded, grandchildren])
        return jax.vmap(lambda each: jr.bits(each, (16,)))(keys)

    words = np.asarray(jax.jit(jax.vmap(family))(lane_keys(jr.key(5), first(32))))
    assert words.shape == (32, 11, 16)
    # 5,632 words of 32 bits: the chance of one coincidence is 0.4 %, and the key is fixed.
    assert len(np.unique(words)) == words.size


def test_no_draw_shows_the_key_of_a_child():
    key = lane_keys(jr.key(5), lanes(3))[0]
    folded = [jr.fold_in(key, i) for i in range(4)]
    secret = np.stack([jr.key_data(child)[:2] for child in [*jr.split(key, 4), *folded]])
    assert len(np.unique(secret)) == 16
    assert not np.isin(secret, jr.bits(key, (64,))).any()


def test_lanes_of_lanes_are_distinct():
    outer = lane_keys(jr.key(7), first(4))
    words = np.asarray(jax.vmap(lambda key: bits(lane_keys(key, first(4))))(outer))
    assert len(np.unique(words)) == 4 * 4 * 8


def test_words_of_64_bits_are_both_halves_of_a_block():
    with jax.enable_x64(True):
        keys = lane_keys(jr.key(8), first(64))

        @jax.jit
        @jax.vmap
        def draw(key):
            return jr.bits(key, (4,), jnp.uint64), jr.uniform(key, (64,), jnp.float64)

        words, draws = map(np.asarray, draw(keys))
    assert (words.dtype, draws.dtype) == (np.uint64, np.float64)
    parent = jnp.asarray(jr.key_data(jr.key(8)))
    high, low = threefry((parent[0], parent[1]), (lanes(5, 5, 5, 5), first(4)))
    np.testing.assert_array_equal(words[5] >> np.uint64(32), high)
    np.testing.assert_array_equal(words[5] & np.uint64(2**32 - 1), low)
    assert_moments(draws.ravel(), 0.5, 1 / 12)
    assert (draws != draws.astype(np.float32)).mean() > 0.99
