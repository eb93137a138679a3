"""Unsigned 64-bit arithmetic in JAX, with 32-bit words only: random generators and the Feistel shuffle of the kernels.

A 64-bit number is a pair (low, high) of uint32 arrays.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p

from loaderx.kernels import feistel
from loaderx.kernels.random import GOLDEN

Words = jax.Array
Pair = tuple[Any, Any]


def pair_of(number: int) -> Pair:
    """Return a Python integer of up to 64 bits as a pair."""
    return np.uint32(number & 0xFFFFFFFF), np.uint32(number >> 32)


def high_word(first: Any, second: Any) -> Any:
    """Return the upper half of the 64-bit product of two words, from products of 16-bit halves."""
    low, high = first & 0xFFFF, first >> 16
    other_low, other_high = second & 0xFFFF, second >> 16
    cross = high * other_low + (low * other_low >> 16)
    carry = low * other_high + (cross & 0xFFFF)
    return high * other_high + (cross >> 16) + (carry >> 16)


def add(first: Pair, second: Pair) -> Pair:
    """Return the sum, modulo 2**64."""
    low = first[0] + second[0]
    return low, first[1] + second[1] + (low < first[0]).astype(jnp.uint32)


def multiply(first: Pair, second: Pair) -> Pair:
    """Return the product, modulo 2**64."""
    high = high_word(first[0], second[0]) + first[0] * second[1] + first[1] * second[0]
    return first[0] * second[0], high


def shift_right(number: Pair, bits: int) -> Pair:
    """Shift right by less than 32 bits."""
    return number[0] >> bits | number[1] << (32 - bits), number[1] >> bits


def exclusive_or(first: Pair, second: Pair) -> Pair:
    """Return the bitwise exclusive or."""
    return first[0] ^ second[0], first[1] ^ second[1]


def fold(key: Pair, number: Pair) -> Pair:
    """Derive a new key from a key and a number: Threefry-2x32 with 20 rounds."""
    # JAX's own primitive: written out in JAX the rounds take half a second more to compile, and run six times as long.
    words = jnp.broadcast_arrays(*(jnp.asarray(word, jnp.uint32) for word in (*key, *number)))
    low, high = threefry2x32_p.bind(*words)  # type: ignore[no-untyped-call]
    return low, high


def draw(state: Pair, number: int) -> Pair:
    """Draw `number` of the samples whose keys are `state`: 64 random bits each, by SplitMix64."""
    steps = (number + 1) * int(GOLDEN) % 2**64
    bits = add(state, pair_of(steps))
    bits = multiply(exclusive_or(bits, shift_right(bits, 30)), pair_of(0xBF58476D1CE4E5B9))
    bits = multiply(exclusive_or(bits, shift_right(bits, 27)), pair_of(0x94D049BB133111EB))
    return exclusive_or(bits, shift_right(bits, 31))


class Shuffle:
    """Permutations of `rows` numbers, one for each key."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.height = math.isqrt(rows - 1) + 1
        self.width = -(-rows // self.height)
        small = rows < feistel.SMALL
        self.rounds = feistel.ROUNDS_SMALL if small else feistel.ROUNDS

    def keys(self, key: Pair) -> Words:
        """Return the round keys."""
        numbers = np.arange(self.rounds // 2, dtype=np.uint32)
        return jnp.stack(fold(key, (numbers, np.zeros_like(numbers))), axis=-1).reshape(-1)

    def at(self, places: Words, keys: Words) -> Words:
        """Return the rows at places, by keys of shape (rounds,), or (rounds, places) if each place has its own."""

        def any_left(cells_and_left: tuple[Words, Words]) -> Any:
            return jnp.any(cells_and_left[1])

        def walk(cells_and_left: tuple[Words, Words]) -> tuple[Words, Words]:
            cells, left = cells_and_left
            cells = jnp.where(left, self._through(keys, cells), cells)
            return cells, cells >= self.rows

        # Cycle walking: the grid has a few cells more than rows, and a cell beyond the rows is permuted again.
        start = jnp.asarray(places), jnp.ones(jnp.shape(places), bool)
        rows: Words = jax.lax.while_loop(any_left, walk, start)[0]
        return rows

    def _through(self, keys: Words, cells: Words) -> Words:
        """Permute cells once, by all rounds."""
        tall, wide = np.uint32(self.height), np.uint32(self.width)

        def one_round(number: Any, pair: Pair) -> Pair:
            # Rounds alternate: the coordinate that was moved is the other one of the next round.
            moved, other = pair
            modulus = jnp.where(number % 2 == 0, tall, wide)
            return other, _add_modulo(moved, _hashed(other, keys[number], modulus), modulus)

        down, across = jax.lax.fori_loop(0, self.rounds, one_round, (cells // wide, cells % wide))
        return down * wide + across  # type: ignore[no-any-return]


def _hashed(coordinate: Any, key: Any, modulus: Any) -> Any:
    """Hash a coordinate to a value below `modulus`."""
    bits = (coordinate ^ key) * np.uint32(0x85EBCA6B)
    bits = (bits ^ bits >> 13) * np.uint32(0xC2B2AE35)
    return high_word(bits ^ bits >> 16, modulus)


def _add_modulo(coordinate: Any, amount: Any, modulus: Any) -> Any:
    """Return (coordinate + amount) % modulus, for both below the modulus."""
    total = coordinate + amount
    return jnp.minimum(total, total - modulus)
