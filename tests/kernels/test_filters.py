"""Filters of neighbourhoods equal their twins to the last bit, in images of any size; tiles are those of OpenCV."""

import cv2
import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import filters
from tests import reference

SHAPES = [(9, 31, 3), (40, 3, 1), (3, 50, 4), (2, 2, 2), (1, 7, 3), (1, 1, 1)]
TILED = [(32, 48), (33, 48), (30, 41), (7, 5), (1, 1)]
if config.DISABLE_JIT:  # plain Python takes microseconds for a pixel
    SHAPES = [(4, 9, 3), (12, 3, 1), (3, 11, 4), (2, 2, 2), (1, 7, 3), (1, 1, 1)]
    TILED = [(16, 24), (10, 13), (1, 1)]
DTYPES = [("u1", "u2"), ("u1", "f4"), ("f4", "f4"), ("f8", "f8")]


def values_of(shape, dtype, seed=0):
    values = np.random.default_rng(seed).random(shape)
    return (values * (255.99 if dtype == np.uint8 else 1)).astype(dtype)


def spaces(shape, radius, dtype):
    """Return the scratch memory of `blur`."""
    block = filters.BLOCK_BYTES // np.dtype(dtype).itemsize
    length = -(-shape[1] * shape[2] // block) * block
    before, after = np.empty(radius + 1, np.int64), np.empty(radius + 1, np.int64)
    sizes = length + 2 * radius * shape[2], length, (2 * radius + 1) * length
    return before, after, *(np.zeros(size, dtype) for size in sizes)


def shares_of(radius, dtype, sigma=2.0):
    weights = np.exp(-0.5 * (np.arange(radius + 1) / sigma) ** 2)
    weights /= 2 * weights.sum() - weights[0]
    if dtype == np.uint16:
        weights = np.floor(weights * 65536 + 0.5)
        weights[0] = 32768 - weights[1:].sum()
    else:
        weights[0] /= 2
    return weights.astype(dtype)


@pytest.mark.parametrize(("dtype", "precision"), DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [1, 2, 6, 9])
def test_a_blurred_image_equals_its_twin(shape, dtype, precision, radius):
    x = values_of(shape, np.dtype(dtype))
    out, expected = x.copy(), x.copy()
    arguments = shares_of(radius, np.dtype(precision)), *spaces(shape, radius, precision)
    filters.blur(out, *arguments)
    reference.blur(expected, *arguments)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("level", [0, 1, 128, 254, 255])
@pytest.mark.parametrize("radius", [1, 6, 32])
def test_one_colour_stays_that_colour(level, radius):
    x = np.full((5, 40, 3), level, np.uint8)
    shares = shares_of(radius, np.uint16, radius / 3)
    filters.blur(x, shares, *spaces(x.shape, radius, np.uint16))
    assert np.all(x == level)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.uint16, np.int32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [0.0, 0.4, 3.0])
def test_a_sharpened_image_equals_its_twin(shape, dtype, factor):
    x = values_of(shape, np.uint8).astype(dtype)
    white = 255.0 if dtype != np.float32 else 1.0
    x = x / np.float32(255) if dtype == np.float32 else x
    out, expected = x.copy(), x.copy()
    length = shape[1] * shape[2]
    precision = np.float64 if dtype == np.int32 else np.float32
    lines, sums = np.empty((2, length), dtype), np.empty(length, precision)
    filters.sharpen(out, factor, white, lines, sums)
    reference.sharpen(expected, factor, white, lines, sums)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", TILED)
@pytest.mark.parametrize(("clip", "tiles"), [(4.0, (8, 8)), (0.0, (3, 5)), (1.5, (1, 1)), (40.0, (2, 3))])  # fmt: skip
@pytest.mark.parametrize("levels", [256, 50, 1])
def test_tiles_equal_their_twin_and_those_of_opencv(shape, clip, tiles, levels):
    grey = np.random.default_rng(0).integers(0, levels, shape).astype(np.uint8)
    curves, expected_curves = (np.empty((*tiles, 256), np.float32) for _ in range(2))
    counts = np.empty(256, np.int64)
    filters.tile_curves(grey, clip, counts, curves)
    reference.tile_curves(grey, clip, counts, expected_curves)
    np.testing.assert_array_equal(curves, expected_curves)
    tables = (np.empty(shape[1], dtype) for dtype in (np.int32, np.int32, np.float32))
    out, expected = np.empty_like(grey), np.empty_like(grey)
    filters.apply_curves(grey, curves, *tables, out)
    reference.apply_curves(grey, curves, None, None, None, expected)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, cv2.createCLAHE(clip, tiles[::-1]).apply(grey))


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", "u4", "?", "f4", "f8"])
def test_clipping_in_plain_python_gives_the_same(dtype):
    like = np.zeros(1, dtype)
    precision = np.float32 if np.can_cast(like.dtype, np.float32) else np.float64
    white = float(np.iinfo(dtype).max) if like.dtype.kind in "iu" else 1.0
    values = np.array([-3, -0.5, 0, 0.25, 0.5, 1, 1.5, 99.5, 254.5, 255, 256, 1e12], precision)
    expected = reference.clipped(values, white, like).astype(dtype)
    found = [filters.clipped(value, white, like) for value in values]
    assert {value.dtype for value in found} == {like.dtype}
    np.testing.assert_array_equal(found, expected)
