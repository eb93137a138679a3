"""Filters are those of Pillow, and a resized window equals its twin, whatever its scratch memory holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from scipy import ndimage

from loaderx.kernels import resizing
from loaderx.kernels.vectors import PAIRED_TAPS
from tests import reference
from tests.kernels.pixel_tables import (
    ROWS_AND_CHANNELS,
    TABLES,
    check_guard,
    guarded,
    image,
    scaling,
)

# Plain Python is slow; compiled, the first example waits for the compiler.
examples = settings(max_examples=20 if config.DISABLE_JIT else 100, deadline=None)
KINDS = [resizing.BILINEAR, resizing.BICUBIC, resizing.LANCZOS]


def filter_of(kernel, before, start, extent, flipped, kind, antialias, size, dtype=np.float32):
    """Return shares, places and counts, written to memory with other content."""
    taps = resizing.most_taps(kind, antialias, len(before), size)
    shares, places = np.full(size * taps, np.nan, dtype), np.full(size * taps, 99, np.int32)
    counts = np.full(size, 99, np.int32)
    kernel(before, start, extent, flipped, kind, antialias, shares, places, counts)
    return shares, places, counts


def dense(shares, places, counts, size):
    """Return the share of every pixel in every result."""
    taps = len(places) // len(counts)
    matrix = np.zeros((len(counts), size))
    for i, count in enumerate(counts):
        for k in range(i * taps, i * taps + count):
            matrix[i, places[k]] += shares[k]
    return matrix


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_a_filter_equal_their_twin(kind):
    for distance in np.linspace(-4, 4, 161):
        share = resizing.filter_share(kind, float(distance))
        assert share == pytest.approx(reference.filter_share(kind, distance), abs=1e-14)
    # Exactly: infinity times almost nothing is infinite.
    assert [resizing.filter_share(kind, float(place)) for place in (-3, -2, -1, 1, 2, 3)] == [0] * 6
    assert resizing.filter_share(kind, 0.0) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@examples
@given(
    data=st.data(),
    size=st.integers(1, 30),
    out=st.integers(1, 12),
    flipped=st.booleans(),
    antialias=st.booleans(),
)
def test_a_filter_equals_its_twin_and_its_definition(
    kind, dtype, data, size, out, flipped, antialias
):
    before = np.arange(10, 10 + size, dtype=np.int32)
    start = data.draw(st.integers(0, size - 1))
    extent = data.draw(st.integers(1, size - start))
    given = before, start, extent, flipped, kind, antialias, out, dtype
    found = filter_of(resizing.compose_filter, *given)
    twin = filter_of(reference.compose_filter, *given)
    shares = dense(*found, 10 + size)
    np.testing.assert_allclose(shares, dense(*twin, 10 + size), rtol=0, atol=1e-15)
    expected = reference.filter_matrix(extent, out, kind, antialias)
    expected = np.flip(expected, 0) if flipped else expected
    inside = slice(10 + start, 10 + start + extent)
    np.testing.assert_allclose(shares[:, inside], expected, atol=16 * np.finfo(dtype).eps)
    assert np.sum(np.abs(shares)) == pytest.approx(np.sum(np.abs(shares[:, inside])))
    # A pixel without a share is not read: infinity times 0 would be NaN.
    used = np.arange(len(found[1])) % (len(found[1]) // out) < found[2].repeat(len(found[1]) // out)
    assert np.all(found[0][used] != 0)
    assert np.all(found[1][used] >= before[start])


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_of_the_same_size_is_the_identity(kind):
    before = np.arange(7, dtype=np.int32)
    shares, places, counts = filter_of(resizing.compose_filter, before, 0, 7, False, kind, True, 7)
    taps = len(places) // 7
    np.testing.assert_array_equal(counts, np.ones(7))
    np.testing.assert_array_equal(places[::taps], before)
    np.testing.assert_array_equal(shares[::taps], np.ones(7))


def filter_for(size, kind=resizing.BILINEAR, result=5, dtype=np.float32):
    """Return the filter of five results from `size` pixels."""
    before = np.arange(size, dtype=np.int32)
    return filter_of(resizing.compose_filter, before, 0, size, False, kind, True, result, dtype)


def resized(kernel, x, rows, columns, filters, whole, out):
    """Return the result of a kernel for x; the content of its scratch memory must not matter."""
    _, width, channels = out.shape
    dtype = filters[0].dtype
    fill = np.arange(9, 9 + channels).astype(x.dtype)
    limits = (
        (dtype.type(0), dtype.type(255)) if whole else (dtype.type(-np.inf), dtype.type(np.inf))
    )
    made = np.full(width * channels + 4, np.nan, dtype)
    spaces = [np.full(x.shape[1] * channels + 4, np.nan, dtype), made]
    exact = kernel.__name__ == "resize_exactly"
    if exact:
        spaces.append(np.full((x.shape[0], made.size), np.nan, dtype))
    pairs = width // 2 * 2 * PAIRED_TAPS
    spaces += [np.full(pairs, 99, np.int32), np.full(4 * pairs, np.nan, np.float32)]
    spaces += [(0, x.shape[0], 0, 0, x.shape[1], 0)] if exact else []
    scale, bias = scaling(channels, width)
    if out.dtype != np.float32:
        scale[:], bias[:] = 1, 0
    kernel(x, rows, columns, *filters, fill, scale, bias, whole, limits, *spaces, out)


# Sizes of an image from which five pixels are made: some shrink, some do not.
SIZES = [(5, 5), (3, 4), (4, 13), (11, 2), (17, 12)]


# Of int32 the tests of `T.Resize` compare every pixel with the twin, too.
@pytest.mark.parametrize(
    "dtype", [np.uint8, np.float32, pytest.param(np.int32, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("rows", "channels"), [*ROWS_AND_CHANNELS, ("mirrored at the edge", 5)])
def test_resized_windows_equal_their_twins(rows, channels, columns, dtype):
    rows, columns = np.array(TABLES[rows], np.int32), np.array(columns, np.int32)
    shape = (len(rows), len(columns), channels)
    whole = dtype != np.float32
    for number, size in enumerate(SIZES):
        x = image(channels, dtype, *size)
        kind = KINDS[number % 3]
        exact = dtype == np.int32 or (whole and kind != resizing.BILINEAR)
        name = "resize_exactly" if exact else "resize_window"
        shares = np.float64 if dtype == np.int32 else np.float32
        filters = [table for extent in size for table in filter_for(extent, kind, dtype=shares)]
        for target in (np.float32, dtype):
            memory, out = guarded(shape, target)
            expected = np.empty(shape, target)
            resized(getattr(resizing, name), x, rows, columns, filters, whole, out)
            resized(getattr(reference, name), x, rows, columns, filters, whole, expected)
            np.testing.assert_array_equal(out, expected)
            check_guard(memory, out.size)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(3, 4), (11, 7), (5, 5)])
def test_pixels_between_others_are_those_of_scipys_interpolation(size, channels):
    x = image(channels, np.float32)
    before = np.arange(5, dtype=np.int32)
    filters = [
        table
        for count in size
        for table in filter_of(
            resizing.compose_filter, before, 0, 5, False, resizing.BILINEAR, False, count
        )
    ]
    out = np.empty((*size, channels), np.float32)
    rows, columns = (np.arange(count, dtype=np.int32) for count in size)
    resized(resizing.resize_window, x, rows, columns, filters, False, out)
    scale, bias = scaling(channels, 1)
    places = [np.clip((np.arange(count) + 0.5) * 5 / count - 0.5, 0, 4) for count in size]
    grid = np.meshgrid(*places, indexing="ij")
    for channel in range(channels):
        expected = ndimage.map_coordinates(x[..., channel], grid, order=1)
        expected = expected * scale[channel] + bias[channel]
        np.testing.assert_allclose(out[..., channel], expected, atol=1e-3)


@pytest.mark.parametrize("kernel", ["resize_window", "resize_exactly"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_infinity_stays_where_it_is_if_pixels_are_not_mixed(channels, kind, kernel):
    x = image(channels, np.float32)
    x[1, 2], x[3, 3] = np.inf, np.nan
    filters = [*filter_for(5, kind), *filter_for(5, kind)]
    out = np.empty(x.shape, np.float32)
    table = np.arange(5, dtype=np.int32)
    resized(getattr(resizing, kernel), x, table, table, filters, False, out)
    scale, bias = scaling(channels, 1)
    np.testing.assert_array_equal(out, x * scale[:channels] + bias[:channels])
