"""Noise for every value of an image: a hash of its index, so that no draw waits for the one before it.

A 64-bit key and a 32-bit index give 32 bits, by the two rounds of multiplication and shift with the least known bias
(Wellons, "Prospecting for hash functions", 2018), with the second half of the key between them. Normal numbers come in
pairs from Box and Muller (1958), with polynomials instead of logarithm, sine and cosine, for which there are no vector
instructions: 20 bits for the radius, 5.4 deviations at most, 12 bits for the direction.
"""

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .filters import clipped
from .pixels import precise, saturate

STEP = np.uint32(0x9E3779B9)
# -2 log(1 + f) / f for f from sqrt(1/2) - 1 to sqrt(2) - 1, sin(pi y) / y and cos(pi y) in powers of y^2 up to 1/2:
# minimax polynomials, within 2e-5, 3e-6 and 7e-6.
LOGARITHM = np.array(
    [-2.000011071, 0.99982807, -0.6649656, 0.507183969, -0.44337287, 0.293241228], np.float32
)
SINE = np.array([3.141590299, -5.167408206, 2.544024907, -0.559499317], np.float32)
COSINE = np.array([0.999993339, -4.933939452, 4.04129541, -1.222153668], np.float32)
LOG_OF_FOURTH = np.float32(2 * math.log(2))
# The bits of sqrt(1/2), and those in front of the exponent.
ROOT_BITS = np.int32(0x3F3504F3)
RADIUS_UNIT = np.float32(2.0**-20)
DIRECTION_UNIT = np.float32(2.0**-11)
DIRECTION_START = np.float32(2.0**-12 - 0.5)
ONE, HALF = np.float32(1), np.float32(0.5)


@jitable
def hash_index(index: Any, first: Any, second: Any) -> Any:
    """Return 32 random bits for an index, from two words of a key that is random itself."""
    bits = np.uint32(np.uint32(index) * STEP + first)
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x21F0AAAD))
    bits = np.uint32(bits ^ second)
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * np.uint32(0xD35A2D97))
    return np.uint32(bits ^ (bits >> np.uint32(15)))


@jitable
def normal_pair(bits: Any) -> Any:
    """Return two independent normal numbers from 32 random bits."""
    # Numba gives access to the bits of a number only if np.float32 or np.int32 made it.
    share = np.float32((np.float32(np.int32(bits >> np.uint32(12))) + HALF) * RADIUS_UNIT)
    number = share.view(np.int32)
    exponent = np.int32(np.int32(number - ROOT_BITS) >> np.int32(23))
    mantissa = np.int32(number - np.int32(exponent << np.int32(23)))
    f = mantissa.view(np.float32) - ONE
    log = LOGARITHM[4] + f * LOGARITHM[5]
    log = LOGARITHM[3] + f * log
    log = LOGARITHM[2] + f * log
    log = LOGARITHM[1] + f * log
    log = LOGARITHM[0] + f * log
    distance = np.float32(np.sqrt(f * log - np.float32(exponent) * LOG_OF_FOURTH))
    # The right half of the circle, and for every other number the left half.
    y = np.float32(np.int32(bits & np.uint32(0x7FF))) * DIRECTION_UNIT + DIRECTION_START
    sign = np.uint32(np.uint32(bits & np.uint32(0x800)) << np.uint32(20))
    turned = np.uint32(distance.view(np.uint32) ^ sign)
    radius = turned.view(np.float32)
    square = y * y
    sine = SINE[1] + square * (SINE[2] + square * SINE[3])
    sine = y * (SINE[0] + square * sine)
    cosine = COSINE[1] + square * (COSINE[2] + square * COSINE[3])
    cosine = COSINE[0] + square * cosine
    return radius * cosine, radius * sine


def any_value(bits: Any, white: Any, like: Any) -> Any:
    """Return a value from black to white of the array `like`, all equally likely, from 32 random bits."""
    if like.dtype.kind == "f":
        return like.dtype.type(np.float32(np.int32(bits >> np.uint32(8))) * np.float32(2.0**-24))
    return saturate(np.floor(np.float64(bits) * 2.0**-32 * (white + 1.0)), like)


@overload(any_value)
def _any_value(bits, white, like):
    dtype = like.dtype
    if dtype == types.uint8:
        return lambda bits, white, like: np.uint8(bits >> np.uint32(24))
    if isinstance(dtype, types.Float):
        return lambda bits, white, like: dtype(
            np.float32(np.int32(bits >> np.uint32(8))) * np.float32(2.0**-24)
        )
    return lambda bits, white, like: saturate(
        np.floor(np.float64(bits) * 2.0**-32 * (white + 1.0)), like
    )


@kernel
def fill_any(key: Any, start: Any, white: Any, out: Any) -> None:
    """Write values from black to white, all equally likely: those of the indices from `start` on."""
    first_word = np.uint32(key & np.uint64(0xFFFFFFFF))
    second_word = np.uint32(key >> np.uint64(32))
    for k in range(out.shape[0]):
        out[k] = any_value(hash_index(start + k, first_word, second_word), white, out)


@kernel
def fill_shares(key: Any, start: Any, repeats: Any, out: Any) -> None:
    """Write uniform numbers in [0, 1), each `repeats` times: those of the indices from `start` on."""
    first_word = np.uint32(key & np.uint64(0xFFFFFFFF))
    second_word = np.uint32(key >> np.uint64(32))
    for k in range(out.shape[0] // repeats):
        bits = hash_index(start + k, first_word, second_word)
        share = np.float32(np.int32(bits >> np.uint32(8))) * np.float32(2.0**-24)
        for c in range(repeats):
            out[k * repeats + c] = share


@kernel
def add_noise(values: Any, key: Any, mean: Any, deviation: Any, white: Any) -> None:
    """Add a normal number to every value, clipped to 0 and white; the numbers of a pair are half of the array apart."""
    half = (values.shape[0] + 1) // 2
    first_word = np.uint32(key & np.uint64(0xFFFFFFFF))
    second_word = np.uint32(key >> np.uint64(32))
    middle, scale = precise(mean, values), np.float32(deviation)
    first, second = values[:half], values[half:]
    for k in range(second.shape[0]):
        one, other = normal_pair(hash_index(k, first_word, second_word))
        first[k] = clipped(precise(first[k], values) + (middle + one * scale), white, values)
        second[k] = clipped(precise(second[k], values) + (middle + other * scale), white, values)
    for k in range(second.shape[0], half):
        one, _ = normal_pair(hash_index(k, first_word, second_word))
        first[k] = clipped(precise(first[k], values) + (middle + one * scale), white, values)


@kernel
def mark_pixels(key: Any, first_limit: Any, limit: Any, out: Any) -> None:
    """Write 1 where 24 random bits are below the first limit, 2 where they are below the other limit, 0 elsewhere."""
    first_word = np.uint32(key & np.uint64(0xFFFFFFFF))
    second_word = np.uint32(key >> np.uint64(32))
    one, two = np.int32(first_limit), np.int32(limit)
    for k in range(out.shape[0]):
        bits = np.int32(hash_index(k, first_word, second_word) >> np.uint32(8))
        out[k] = np.uint8(1 if bits < one else 2 if bits < two else 0)


@jitable
def draw_poisson(rng: Any, mean: Any) -> Any:
    """Draw a Poisson number as a float64: by inversion, or for large means by Hörmann's rejection (PTRS, 1993)."""
    if mean < 10.0:
        left, share, count = rng.random(), math.exp(-mean), 0.0
        while left > share and count < 100.0:
            left -= share
            count += 1.0
            share *= mean / count
        return count
    root = math.sqrt(mean)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    easy = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = rng.random() - 0.5
        v = 1.0 - rng.random()
        side = max(0.5 - abs(u), 1e-16)
        count = math.floor((2.0 * a / side + b) * u + mean + 0.43)
        if side >= 0.07 and v <= easy:
            return count * 1.0
        if count < 0 or (side < 0.013 and v > side):
            continue
        bound = math.log(v * inverse / (a / (side * side) + b))
        if bound <= count * math.log(mean) - mean - math.lgamma(count + 1.0):
            return count * 1.0


@jitable
def fill_poisson(mean: Any, law: Any, guides: Any) -> Any:
    """Write the distribution function of a Poisson law, and for each part of it the count at which a search begins.

    Return whether it fits: up to a mean of 600, of which 1,024 counts are all that is drawn.
    """
    if mean > 600.0:
        return False
    last = law.shape[0] - 1
    share, total = math.exp(-mean), 0.0
    for count in range(last):
        total += share
        law[count] = total
        share *= mean / (count + 1.0)
    # The end of every search.
    law[last] = np.inf
    count, parts = 0, guides.shape[0]
    for part in range(parts):
        while law[count] <= part / parts:
            count += 1
        guides[part] = count
    return True


@jitable
def poisson_at(share: Any, law: Any, guides: Any) -> Any:
    """Return the Poisson number at a share of its law, by inversion: 5 ns, where `draw_poisson` takes 30."""
    count = guides[int(share * guides.shape[0])]
    while law[count] <= share:
        count += 1
    return count * 1.0
