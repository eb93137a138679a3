"""Generators and shuffle in 32-bit words give the same as the kernels in 64-bit words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loaderx.kernels import random
from loaderx.kernels.shuffling import Permutation
from loaderx.on_device import uint64

EDGES = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0xFFFF0000FFFF, 0x10000]
NUMBERS = np.concatenate(
    [np.array(EDGES, np.uint64), np.random.default_rng(0).integers(0, 2**64, 500, np.uint64)]
)
OTHERS = np.concatenate([NUMBERS[::-1], NUMBERS[:1]])[1:]


def split(numbers):
    """Split 64-bit numbers into two words."""
    return jnp.asarray(numbers.astype(np.uint32)), jnp.asarray((numbers >> 32).astype(np.uint32))


def joined(pair):
    low, high = (np.asarray(word) for word in pair)
    assert low.dtype == high.dtype == np.uint32
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def test_this_is_tested_without_64_bit_integers():
    assert jnp.asarray(np.uint64(1)).dtype == np.uint32


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1, 2**32, 2**64 - 1])
def test_a_number_is_two_words(number):
    low, high = uint64.pair_of(number)
    assert int(low) | int(high) << 32 == number


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (uint64.add, np.add),
        (uint64.multiply, np.multiply),
        (uint64.exclusive_or, np.bitwise_xor),
    ],
)
def test_arithmetic_is_that_of_64_bits(function, expected):
    with np.errstate(over="ignore"):
        assert np.array_equal(
            joined(jax.jit(function)(split(NUMBERS), split(OTHERS))), expected(NUMBERS, OTHERS)
        )


@pytest.mark.parametrize("bits", [1, 11, 27, 30, 31])
def test_a_shift_is_that_of_64_bits(bits):
    shifted = jax.jit(uint64.shift_right, static_argnums=1)(split(NUMBERS), bits)
    assert np.array_equal(joined(shifted), NUMBERS >> np.uint64(bits))


def test_the_high_word_is_that_of_the_product():
    first, second = NUMBERS & np.uint64(2**32 - 1), OTHERS & np.uint64(2**32 - 1)
    high = jax.jit(uint64.high_word)(first.astype(np.uint32), second.astype(np.uint32))
    assert np.array_equal(np.asarray(high), (first * second >> np.uint64(32)).astype(np.uint32))


def test_keys_are_those_of_the_kernel():
    folded = joined(jax.jit(uint64.fold)(split(NUMBERS), split(OTHERS)))
    expected = [random.fold(key, number) for key, number in zip(NUMBERS, OTHERS, strict=True)]
    assert np.array_equal(folded, np.array(expected, np.uint64))


def test_a_key_is_folded_with_many_numbers_at_once():
    key = NUMBERS[20]
    pair = uint64.fold(uint64.pair_of(int(key)), split(OTHERS))
    assert np.array_equal(joined(pair), [random.fold(key, number) for number in OTHERS])


@pytest.mark.parametrize("number", [0, 1, 7, 1000])
def test_draws_are_those_of_the_kernel(number):
    drawn = joined(jax.jit(uint64.draw, static_argnums=1)(split(NUMBERS), number))
    expected = [random.draw_bits(state, np.uint64(number)) for state in NUMBERS]
    assert np.array_equal(drawn, np.array(expected, np.uint64))


# Fewer than 4096 rows have more rounds.
SIZES = [1, 2, 7, 4095, 4096, 60_000, 2**31 - 1]
OTHER_SIZES = [3, 1000, 5000, 2**20 + 1]


@pytest.mark.parametrize(
    "rows", [*SIZES, *(pytest.param(rows, marks=pytest.mark.long) for rows in OTHER_SIZES)]
)
def test_the_shuffle_is_that_of_the_host(rows):
    shuffle = uint64.Shuffle(rows)
    at = jax.jit(lambda places, key: shuffle.at(places, shuffle.keys(key)))
    some = np.random.default_rng(rows).integers(0, rows, 1000)
    places = np.unique(np.concatenate([some, [0, rows // 2, rows - 1]]))
    for key in [0, 1, 2**32, 2**64 - 1, *map(int, NUMBERS[10:16])]:
        found = at(places.astype(np.uint32), uint64.pair_of(key))
        assert found.dtype == np.uint32
        assert np.array_equal(np.asarray(found), Permutation(rows, key).at(places))


def test_all_rows_are_reached_once():
    shuffle = uint64.Shuffle(5000)
    rows = shuffle.at(jnp.arange(5000, dtype=jnp.uint32), shuffle.keys(uint64.pair_of(5)))
    assert np.array_equal(np.sort(np.asarray(rows)), np.arange(5000))


def test_every_place_may_have_keys_of_its_own():
    shuffle = uint64.Shuffle(1000)
    first, second = (shuffle.keys(uint64.pair_of(key)) for key in (1, 2))
    places = np.arange(1000, dtype=np.uint32)
    keys = jnp.where(places % 2 == 0, first[:, None], second[:, None])
    expected = np.where(
        places % 2 == 0, *(Permutation(1000, key).at(places.astype(np.int64)) for key in (1, 2))
    )
    assert np.array_equal(np.asarray(shuffle.at(places, keys)), expected)
