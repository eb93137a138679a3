"""Pixels are scaled in float32, converted to half precision and rounded to the last bit as by NumPy."""

import ml_dtypes
import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import pixels
from tests import reference

# A number costs 10 us in plain Python, so only a part of the patterns is tested there.
EVERY = 37 if config.DISABLE_JIT else 1


def values_of(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return random.normal(0, 100, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 33)])
def test_scaled_pixels_equal_their_twin(shape, dtype):
    x = values_of(shape, dtype)
    scale = np.linspace(-0.1, 0.02, shape[1], dtype=np.float32)
    bias = np.linspace(-2, 2, shape[1], dtype=np.float32)
    out, expected = np.empty(shape, np.float32), np.empty(shape, np.float32)
    pixels.scale_pixels(x, scale, bias, out)
    reference.scale_pixels(x, scale, bias, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 1), (3, 5, 2), (2, 4, 3), (5, 3, 4)])
def test_scaled_planes_equal_their_twin(shape, dtype):
    x = values_of(shape, dtype)
    scale = np.linspace(0.5, 2, shape[2], dtype=np.float32)
    bias = np.linspace(-2, 2, shape[2], dtype=np.float32)
    out, expected = (np.empty((shape[2], *shape[:2]), np.float32) for _ in range(2))
    pixels.scale_planes(x, scale, bias, out)
    reference.scale_planes(x, scale, bias, expected)
    np.testing.assert_array_equal(out, expected)


def neighbourhoods(dtype, unit):
    """Return float32 bits around all 65,536 numbers of a half dtype.

    These are each number, the middle to the next one, and their neighbours.
    """
    numbers = np.arange(0, 2**16, dtype=np.uint16)[::EVERY].view(dtype)
    with np.errstate(invalid="ignore"):
        bits = numbers.astype(np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        steps = np.array([0, 1, 2, unit // 2 - 1, unit // 2, unit // 2 + 1, unit - 1], np.uint32)
        return np.concatenate([(bits[:, None] + steps).reshape(-1), bits - np.uint32(1)])


# Many exponents of float32 are between the smallest half numbers.
SMALL = np.concatenate(
    [
        (np.arange(2**11)[:: 20 if config.DISABLE_JIT else 1] * scale).astype(np.float32)
        for scale in (2.0**-24, 2.0**-25, 2.0**-26, 1.001 * 2.0**-25, 0.999 * 2.0**-25)
    ]
)
LARGE = [np.inf, -np.inf, np.nan, -np.nan, 65504, 65519.996, 65520, 65536, 1e30, 3.39e38, 3.4e38]
TINY = [0.0, -0.0, 2.0**-14, 2.0**-24, 2.0**-25, 1.0001 * 2.0**-25, 2.0**-126, 1e-45]
SPECIAL = np.array(LARGE + TINY, np.float32)


def check_halves(kernel, twin, dtype, bits):
    out, expected = np.empty(len(bits), np.uint16), np.empty(len(bits), np.uint16)
    kernel(bits, out)
    twin(bits, expected)
    # The bit pattern of the resulting NaN does not matter, and NumPy's is another.
    numbers = ~np.isnan(bits.view(np.float32))
    np.testing.assert_array_equal(out[numbers], expected[numbers])
    assert np.all(np.isnan(out[~numbers].view(dtype)))


@pytest.mark.parametrize("bits", [SMALL.view(np.uint32), SPECIAL.view(np.uint32)])
def test_special_numbers_become_the_nearest_half(bits):
    check_halves(pixels.to_float16, reference.to_float16, np.float16, bits)
    check_halves(pixels.to_float16, reference.to_float16, np.float16, bits | np.uint32(2**31))
    check_halves(pixels.to_bfloat16, reference.to_bfloat16, ml_dtypes.bfloat16, bits)


def test_every_number_around_a_float16_becomes_the_nearest_ties_to_even():
    bits = neighbourhoods(np.float16, 1 << 13)
    check_halves(pixels.to_float16, reference.to_float16, np.float16, bits)


def test_every_number_around_a_bfloat16_becomes_the_nearest_ties_to_even():
    bits = neighbourhoods(ml_dtypes.bfloat16, 1 << 16)
    check_halves(pixels.to_bfloat16, reference.to_bfloat16, ml_dtypes.bfloat16, bits)


def test_any_bits_become_the_nearest_half():
    bits = np.random.default_rng(0).integers(0, 2**32, 400_000 // EVERY, dtype=np.uint32)
    check_halves(pixels.to_float16, reference.to_float16, np.float16, bits)
    check_halves(pixels.to_bfloat16, reference.to_bfloat16, ml_dtypes.bfloat16, bits)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_half_becomes_the_float_of_the_same_value(name):
    bits = np.arange(0, 2**16, 7 if config.DISABLE_JIT else 1).astype(np.uint16)
    out, expected = np.empty(len(bits), np.uint32), np.empty(len(bits), np.uint32)
    getattr(pixels, f"from_{name}")(bits, out)
    getattr(reference, f"from_{name}")(bits, expected)
    numbers = ~np.isnan(expected.view(np.float32))
    np.testing.assert_array_equal(out[numbers], expected[numbers])
    assert np.all(np.isnan(out[~numbers].view(np.float32)))
    assert numbers.mean() > 0.9


EDGES = [0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 126.5, 127.5, 254.5, 255.5, -128.5, -129]
FAR = [300, 1e5, -1e5, 8388609, 16777217, 2**31, -(2**31), 3e9, 2**32, 2**63, -(2**63), 2**64, 1e30, -1e30]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.bool, np.float64]
)
def test_stored_values_are_rounded_and_clipped(dtype):
    for x in (np.array(EDGES + FAR, np.float32), np.random.default_rng(0).normal(0, 99, 50)):
        x = x.astype(np.float32)
        out, expected = np.zeros(len(x), dtype), np.zeros(len(x), dtype)
        pixels.store_values(x, out)
        reference.store_values(x, expected)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64, np.bool, np.float32])
def test_saturating_in_plain_python_gives_the_same(dtype):
    for precision in (np.float32, np.float64):
        x = np.array(EDGES + FAR, precision)
        expected = np.zeros(len(x), dtype)
        reference.store_values(x, expected)
        stored = [pixels.saturate(value, expected) for value in x]
        assert {value.dtype for value in stored} == {np.dtype(dtype)}
        np.testing.assert_array_equal(stored, expected)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "f4", "i4", "u4", "f8"])
def test_calculations_are_in_a_float_that_holds_every_value(dtype):
    array = np.zeros(1, dtype)
    if array.dtype.kind in "iu":
        array[0] = np.iinfo(array.dtype).max
    elif array.dtype.kind == "f":
        array[0] = np.pi
    number = pixels.precise(array[0], array)
    assert number == array[0]
    assert number.dtype == (np.float64 if dtype in ("i4", "u4", "f8") else np.float32)


def test_grey_is_that_of_the_television_standard():
    colours = np.eye(3, dtype=np.float32)
    shares = [pixels.luminance(*colour) for colour in colours]
    np.testing.assert_allclose(shares, [0.299, 0.587, 0.114], rtol=1e-6)
    assert pixels.luminance(*np.float32([255, 255, 255])) == 255
