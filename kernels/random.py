"""Counter-based random generator: every draw is a function of (key, position, number of the draw), without state.

Keys are derived by Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011),
which is also JAX's own generator: 32-bit words only, so keys can be derived on a device too. The draws of one sample
come from SplitMix64 (Steele et al., 2014) with the key of that sample as its seed: one nanosecond each.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilation import gil_kernel, jitable, kernel

MASK = np.uint64(0xFFFFFFFF)
PARITY = np.uint64(0x1BD11BDA)
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Purposes of keys; they are part of every golden value and must never be renumbered.
ORDER, DRAWS, SPLIT, BRANCH, REPLACEMENT = 1, 2, 3, 4, 5


@kernel
def threefry(key: Any, counter: Any) -> Any:
    """Return the 64-bit block of Threefry-2x32-20, words packed as low | high << 32."""
    # Words of 32 bits are held in 64, so that no overflow is silent.
    k0 = np.uint64(key) & MASK
    k1 = np.uint64(key) >> np.uint64(32)
    k2 = k0 ^ k1 ^ PARITY
    x0 = ((np.uint64(counter) & MASK) + k0) & MASK
    x1 = ((np.uint64(counter) >> np.uint64(32)) + k1) & MASK
    for injection in range(5):
        for number in range(4):
            rotation = np.uint64(ROTATIONS[injection % 2][number])
            x0 = (x0 + x1) & MASK
            x1 = ((x1 << rotation) | (x1 >> (np.uint64(32) - rotation))) & MASK
            x1 ^= x0
        x0 = (x0 + k1) & MASK
        x1 = (x1 + k2 + np.uint64(injection + 1)) & MASK
        k0, k1, k2 = k1, k2, k0
    return x0 | (x1 << np.uint64(32))


@gil_kernel
def fold(key: Any, number: Any) -> Any:
    """Derive a new key from a key and any 64-bit number; different numbers never give the same key."""
    return threefry(np.uint64(key), np.uint64(number))


@jitable
def mix_bits(bits: Any) -> Any:
    """Apply the output function of SplitMix64: every bit of the input changes half of the output."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
def draw_bits(state: Any, number: Any) -> Any:
    """Return draw `number` (from 0) of the sample whose key is `state`: 64 random bits."""
    return mix_bits(np.uint64(state) + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@jitable
def as_uniform(bits: Any) -> Any:
    """Return a float64 in [0, 1) from the upper 53 bits, as NumPy does."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def uniforms(key: Any, positions: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    """Write draw j of the sample at positions[i] to out[i, j], uniform in [0, 1)."""
    for i in range(positions.shape[0]):
        state = fold(key, positions[i])
        for j in range(out.shape[1]):
            out[i, j] = as_uniform(draw_bits(state, j))
