"""Shuffle: place -> row, a permutation computed one element at a time.

The permutation is a Feistel network on a grid of `height` x `width` cells just large enough for n rows (Black and
Rogaway, "Ciphers with arbitrary finite domains", 2002). Each round moves the column of a cell by a hash of its row, or
its row by a hash of its column, modulo the grid. A cell beyond n goes through the rounds again until it is inside. The
rounds are modular instead of the usual xor of bits: the grid then has fewer than sqrt(n) spare cells, and both even and
odd permutations occur.

All arithmetic is in 32 bits, and for n < 2^32 the high word of the product also fits into 32-bit steps. So the same
order can be computed on a device that has no 64-bit integers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilation import gil_kernel, kernel
from .random import fold

# Exact distance from uniform on a grid of 3 x 2 cells: 0.5 ** (rounds / 2), that is 2e-5 for 32 rounds. Larger
# grids mix faster, and there the time of the rounds counts: 10 ns per row for 12.
SMALL = 4096
ROUNDS_SMALL = 32
ROUNDS = 12


@kernel
def hash_coordinate(coordinate: Any, key: Any, modulus: Any) -> Any:
    """Return a value below `modulus` that depends on all bits of `coordinate` and `key`."""
    bits = np.uint32(np.uint32(coordinate ^ key) * np.uint32(0x85EBCA6B))
    bits = np.uint32(bits ^ (bits >> np.uint32(13)))
    bits = np.uint32(bits * np.uint32(0xC2B2AE35))
    bits = np.uint32(bits ^ (bits >> np.uint32(16)))
    return np.uint32((np.uint64(bits) * np.uint64(modulus)) >> np.uint64(32))


@kernel
def add_modulo(coordinate: Any, amount: Any, modulus: Any) -> Any:
    """Return (coordinate + amount) % modulus for both below modulus <= 2^31, without a branch."""
    total = np.uint32(coordinate + amount)
    return min(total, np.uint32(total - modulus))


@gil_kernel
def round_keys(key: np.uint64, out: NDArray[np.uint32]) -> None:
    """Derive the key of every round from the 64-bit key of an epoch."""
    for i in range(out.shape[0] // 2):
        bits = fold(key, i)
        out[2 * i] = np.uint32(bits & np.uint64(0xFFFFFFFF))
        out[2 * i + 1] = np.uint32(bits >> np.uint64(32))


@gil_kernel
def permute(
    places: NDArray[np.int64],
    rows: int,
    height: int,
    width: int,
    keys: NDArray[np.uint32],
    scratch: NDArray[np.uint32],
    out: NDArray[np.int64],
) -> None:
    """Write the row at every place, for 0 <= place < rows <= height * width; scratch is 2 x len(places)."""
    tall, wide = np.uint32(height), np.uint32(width)
    down, across = scratch[0], scratch[1]
    count = places.shape[0]
    for i in range(count):
        down[i] = np.uint32(places[i] // width)
        across[i] = np.uint32(places[i] % width)
    # Rounds outside, places inside: eight places go through one round in one vector instruction.
    for k in range(0, keys.shape[0], 2):
        first, second = keys[k], keys[k + 1]
        for i in range(count):
            down[i] = add_modulo(down[i], hash_coordinate(across[i], first, tall), tall)
            across[i] = add_modulo(across[i], hash_coordinate(down[i], second, wide), wide)
    for i in range(count):
        y, x = down[i], across[i]
        row = np.int64(y) * width + np.int64(x)
        while row >= rows:
            for k in range(0, keys.shape[0], 2):
                y = add_modulo(y, hash_coordinate(x, keys[k], tall), tall)
                x = add_modulo(x, hash_coordinate(y, keys[k + 1], wide), wide)
            row = np.int64(y) * width + np.int64(x)
        out[i] = row
