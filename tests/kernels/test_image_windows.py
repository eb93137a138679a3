"""Windows onto one image: tables and filters of both axes, and filters for images that a decoder has reduced."""

import numpy as np
import pytest

from loaderx.kernels import image_windows, resizing
from tests import reference

KINDS = [resizing.BILINEAR, resizing.BICUBIC, resizing.LANCZOS]


def reduced_filter(size, factor, start, extent, flipped, kind, results):
    """Return the filter of the kernel as a matrix of (results, reduced size)."""
    reduced = -(-size // factor)
    taps = resizing.most_taps(kind, True, extent // factor + 2, results) + 1
    shares, places = np.zeros(results * taps), np.zeros(results * taps, np.int32)
    counts = np.zeros(results, np.int32)
    image_windows.compose_reduced_filter(
        reduced, factor, start, extent, flipped, kind, shares, places, counts
    )
    found = np.zeros((results, reduced))
    for i in range(results):
        for k in range(i * taps, i * taps + counts[i]):
            found[i, places[k]] += shares[k]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_filters_of_reduced_windows_are_those_of_windows_where_the_borders_agree(kind, factor):
    """A window from one pixel of the reduced image to another is a window of that image."""
    size, start, extent, results = 40 * factor, 7 * factor, 26 * factor, 9
    found = reduced_filter(size, factor, start, extent, False, kind, results)
    np.testing.assert_allclose(
        found[:, 7:33], reference.filter_matrix(26, results, kind, True), atol=1e-12
    )
    assert not found[:, :7].any()
    assert not found[:, 33:].any()
    flipped = reduced_filter(size, factor, start, extent, True, kind, results)
    np.testing.assert_array_equal(flipped, found[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_filters_of_reduced_windows_show_the_places_of_the_whole_image(kind):
    """A slope, reduced by means of blocks, keeps its values up to the ends of the window."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        factor, results = int(rng.choice([2, 4, 8])), int(rng.integers(1, 12))
        extent = int(rng.integers(factor * results, 8 * factor * results + 1))
        size = extent + int(rng.integers(0, 30))
        start, flipped = int(rng.integers(0, size - extent + 1)), bool(rng.integers(2))
        found = reduced_filter(size, factor, start, extent, flipped, kind, results)
        np.testing.assert_allclose(found.sum(1), 1)
        slope = (np.arange(found.shape[1]) + 0.5) * factor
        expected = start + (np.arange(results) + 0.5) * extent / results
        expected = expected[::-1] if flipped else expected
        # A pixel more or less at an end of the window moves the mean by less than the pixel itself.
        inside = slice(2, -2)
        np.testing.assert_allclose((found @ slope)[inside], expected[inside], atol=factor)
        used = np.flatnonzero(found.any(0))
        assert used[0] >= start // factor
        assert used[-1] < -(-(start + extent) // factor)


def drawn_windows(rng, filters):
    """Return the entries, windows and results of up to three windows onto an image, one of which may filter."""
    height, width = rng.integers(1, 60, 2).tolist()
    steps, windows, results, before = [], [], [], (height, width)
    filtering = int(rng.integers(3)) if filters else -1
    for number in range(3):
        what = image_windows.FILTERED if number == filtering else int(rng.integers(2))
        # Before a filter nothing is filled.
        border = int(rng.integers(number < filtering, 3))
        steps.append((what, border, int(rng.integers(3)), int(rng.integers(2))))
        window, result = [], []
        for size in before:
            extent = int(rng.integers(1, size + 1))
            start = int(rng.integers(0, size - extent + 1))
            target = int(rng.integers(1, 40))
            if (
                what == image_windows.MOVED
            ):  # its result is its extent, and it may reach beyond the image
                start, extent = start - 2, target
            window += [start, extent, int(rng.integers(2))]
            result.append(target)
        windows.append(window)
        results.append(result)
        before = tuple(result)
    return height, width, *(np.array(each, np.int64) for each in (steps, windows, results))


def composed(function, height, width, steps, windows, results, factor):
    tallest, widest = max(height, *results[:, 0]), max(width, *results[:, 1])
    tables = [np.full((2, size), -9, np.int32) for size in (tallest, widest)]
    lines, most = [], 400
    filtered = steps[:, 0] == image_windows.FILTERED
    for axis in range(2):
        size = int(results[filtered][0, axis]) if filtered.any() else 0
        lines += [np.zeros(size * most), np.zeros(size * most, np.int32), np.zeros(size, np.int32)]
    found = np.zeros(4, np.int64)
    function(steps, windows, results, height, width, factor, *tables, *lines, found)
    sizes = results[-1]
    chosen = [
        table[place, :size] for table, place, size in zip(tables, found[:2], sizes, strict=True)
    ]
    return [*chosen, *lines, found[2:]]


@pytest.mark.parametrize("filters", [True, False])
def test_windows_are_composed_as_defined(filters):
    rng = np.random.default_rng(filters)
    for _ in range(60):
        arguments = drawn_windows(rng, filters)
        # An image is reduced only for a filter that is the first of its windows.
        first = arguments[2][0, 0] == image_windows.FILTERED
        factor = int(rng.choice([1, 2, 4])) if first else 1
        given = composed(image_windows.compose_image_windows, *arguments, factor)
        expected = composed(reference.compose_image_windows, *arguments, factor)
        for ours, theirs in zip(given, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_places_are_shifted_except_those_of_the_fill_colour():
    places = np.array([5, -1, 7, 6], np.int32)
    image_windows.shift_places(places, 5)
    assert places.tolist() == [0, -1, 2, 1]
