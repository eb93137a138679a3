"""A key shuffles any number of rows: each row at one place, computed alone or with others, in 32-bit words."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core import config

from loaderx.kernels import feistel
from tests import reference

# Plain Python takes 0.4 ms for a row, so it has few sizes.
SIZES = [*range(1, 20, 3), 100, 101] if config.DISABLE_JIT else range(1, 301)
LARGE = [301, 509] if config.DISABLE_JIT else [4095, 4096, 4097, 65_536, 99_999, 1_000_003]
words = st.integers(0, 2**32 - 1)
# JAX compiles once.
MANY_ROUNDS = 12 if config.DISABLE_JIT else 32


def grid(rows):
    """Return height and width of the smallest grid of its kind."""
    height = math.isqrt(rows - 1) + 1
    return height, -(-rows // height)


def keys_of(key, rounds):
    out = np.empty(rounds, np.uint32)
    feistel.round_keys(np.uint64(key), out)
    return out


def permute(places, rows, height, width, keys, kernel=feistel.permute):
    places = np.asarray(places, np.int64)
    out = np.full(len(places), -1, np.int64)
    kernel(places, rows, height, width, keys, np.empty((2, len(places)), np.uint32), out)
    return out


@pytest.mark.parametrize("rounds", [12, 32])
def test_every_row_has_one_place_for_any_number_of_rows(rounds):
    for rows in SIZES:
        out = permute(range(rows), rows, *grid(rows), keys_of(rows, rounds))
        assert sorted(out) == list(range(rows)), rows


@pytest.mark.parametrize("rows", LARGE)
def test_every_row_has_one_place_among_many(rows):
    out = permute(range(rows), rows, *grid(rows), keys_of(1, 12))
    np.testing.assert_array_equal(np.bincount(out, minlength=rows), np.ones(rows))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64, 99, 100, 101])
@pytest.mark.parametrize(("key", "rounds"), [(0, 12), (2**64 - 1, 32)])
def test_places_and_rows_equal_the_twin(rows, key, rounds):
    keys = keys_of(key, rounds)
    out = permute(range(rows), rows, *grid(rows), keys)
    expected = permute(range(rows), rows, *grid(rows), keys, reference.permute)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("rows", [1000, 4099, 10**6, 2**31, 2**32 + 1, 10**9 + 7, 10**12, 2**62])
def test_single_places_among_very_many_rows_equal_the_twin(rows):
    places = [0, 1, rows // 3, rows - 2, rows - 1]
    keys = keys_of(5, 12)
    out = permute(places, rows, *grid(rows), keys)
    np.testing.assert_array_equal(out, permute(places, rows, *grid(rows), keys, reference.permute))
    assert np.all((out >= 0) & (out < rows))
    assert len(set(out)) == len(places)


@pytest.mark.parametrize(("rows", "height", "width"), [(9, 3, 3), (20, 5, 4), (50, 1, 50)])
def test_a_full_grid_is_shuffled_in_one_pass(rows, height, width):
    keys = keys_of(9, 12)
    out = permute(range(rows), rows, height, width, keys)
    np.testing.assert_array_equal(out, reference.shuffled_cells(range(rows), height, width, keys))


@pytest.mark.parametrize(("rows", "height", "width"), [(10, 15, 20), (1, 10, 10), (7, 1, 90)])
def test_cells_beyond_the_rows_are_walked_until_one_is_inside(rows, height, width):
    keys = keys_of(3, 12)
    first_pass = reference.shuffled_cells(range(rows), height, width, keys)
    assert np.any(first_pass >= rows)

    out = permute(range(rows), rows, height, width, keys)

    expected = permute(range(rows), rows, height, width, keys, reference.permute)
    np.testing.assert_array_equal(out, expected)
    assert sorted(out) == list(range(rows))


def test_a_row_does_not_depend_on_the_other_places_of_the_call():
    keys = keys_of(11, 32)
    whole = permute(range(123), 123, *grid(123), keys)
    for places in ([], [5], [122, 0, 5, 5], range(7, 50)):
        np.testing.assert_array_equal(
            permute(places, 123, *grid(123), keys), whole[np.array(places, int)]
        )


@pytest.mark.parametrize("key", [0, 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("rounds", [0, 2, 12, 32])
def test_round_keys_equal_their_twin(key, rounds):
    expected = np.empty(rounds, np.uint32)
    reference.round_keys(key, expected)
    np.testing.assert_array_equal(keys_of(key, rounds), expected)


@given(coordinate=words, key=words, modulus=st.integers(1, 2**31))
def test_the_hash_of_a_coordinate_equals_its_twin(coordinate, key, modulus):
    hashed = feistel.hash_coordinate(*map(np.uint32, (coordinate, key, modulus)))
    assert hashed == reference.hash_coordinate(coordinate, key, modulus)
    assert hashed < modulus


@given(data=st.data(), modulus=st.one_of(st.integers(1, 2**31), st.just(2**31)))
def test_modular_addition_equals_its_twin(data, modulus):
    coordinate, amount = (data.draw(st.integers(0, modulus - 1)) for _ in range(2))
    total = feistel.add_modulo(*map(np.uint32, (coordinate, amount, modulus)))
    assert total == reference.add_modulo(coordinate, amount, modulus)


def high_word(first, second):
    """Return the upper half of the 64-bit product of two 32-bit words, from products of 16-bit halves."""
    low, high = first & 0xFFFF, first >> 16
    other_low, other_high = second & 0xFFFF, second >> 16
    cross = high * other_low + (low * other_low >> 16)
    carry = low * other_high + (cross & 0xFFFF)
    return high * other_high + (cross >> 16) + (carry >> 16)


@jax.jit
def device_rounds(cells, height, width, keys):
    """Run all rounds in JAX, which has no 64-bit integers here."""

    def hashed(coordinate, key, modulus):
        bits = (coordinate ^ key) * jnp.uint32(0x85EBCA6B)
        bits = (bits ^ bits >> 13) * jnp.uint32(0xC2B2AE35)
        return high_word(bits ^ bits >> 16, modulus)

    def two_rounds(cell, key):
        down, across = cell
        down = (down + hashed(across, key[0], height)) % height
        across = (across + hashed(down, key[1], width)) % width
        return (down, across), None

    start = cells // width, cells % width
    (down, across), _ = jax.lax.scan(two_rounds, start, keys.reshape(-1, 2))
    return down * width + across


def device_permute(places, rows, height, width, keys):
    cells = jnp.asarray(np.asarray(places, np.uint32))
    outside = np.ones(cells.shape, bool)
    while outside.any():
        moved = device_rounds(cells, jnp.uint32(height), jnp.uint32(width), jnp.asarray(keys))
        assert moved.dtype == jnp.uint32
        cells = jnp.where(outside, moved, cells)
        outside = np.asarray(cells) >= rows
    return np.asarray(cells)


@pytest.mark.parametrize(
    ("rows", "rounds"), [(5, MANY_ROUNDS), (1000, MANY_ROUNDS), (5000, 12), (4_294_967_000, 12)]
)
def test_a_device_without_64_bit_integers_computes_the_same_order(rows, rounds):
    assert not jax.config.jax_enable_x64
    # As many of each, some of them twice among few: one compilation for all.
    places = np.linspace(0, rows - 1, 50).astype(np.int64)
    keys = keys_of(2**63 + 1, rounds)
    np.testing.assert_array_equal(
        device_permute(places, rows, *grid(rows), keys), permute(places, rows, *grid(rows), keys)
    )
