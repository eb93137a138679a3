"""Windows compose: the table of a chain of crops, pads, flips and resizes shows what doing them in turn shows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from scipy import ndimage

from loaderx.kernels import windows
from loaderx.kernels.windows import EDGE, FILL, REFLECT
from tests import reference

MODES = {FILL: "constant", REFLECT: "reflect", EDGE: "edge"}
DTYPES = [np.uint8, np.float32]
# Plain Python is slow; compiled, the first example waits for the compiler.
examples = settings(max_examples=20 if config.DISABLE_JIT else 100, deadline=None)


def padded(values, before, after, mode):
    """NumPy's own padding, with -1 as the fill colour."""
    given = {"constant_values": -1} if mode == FILL else {}
    return np.pad(values, (before, after), MODES[mode], **given)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_coordinates_outside_are_those_of_numpys_padding(size, mode):
    expected = padded(np.arange(size), 23, 23, mode)
    for coordinate in range(-23, size + 23):
        inside = windows.border(coordinate, size, mode)
        assert inside == expected[coordinate + 23] == reference.border(coordinate, size, mode)


def tables_of(kernel, before, *arguments, size):
    """The table that a kernel writes, and nothing else but the table."""
    guarded = np.full(size + 2, 99, np.int32)
    kernel(before, *arguments, guarded[1:-1])
    assert guarded[0] == guarded[-1] == 99
    return guarded[1:-1]


@st.composite
def window_of(draw, size):
    """A window of its output's own size, which may lie anywhere."""
    extent = draw(st.integers(1, 9))
    return draw(st.integers(-12, size + 12)), extent, draw(st.booleans()), draw(st.sampled_from([*MODES]))  # fmt: skip


@examples
@given(data=st.data(), size=st.integers(1, 7))
def test_a_chain_of_windows_shows_what_one_after_the_other_shows(data, size):
    pixels = data.draw(st.lists(st.integers(0, 255), min_size=size, max_size=size))
    table = np.arange(size, dtype=np.int32)
    expected = np.array(pixels)
    for _ in range(data.draw(st.integers(1, 4))):
        start, extent, flipped, mode = data.draw(window_of(len(table)))
        before = table
        table = tables_of(windows.compose, before, start, extent, flipped, mode, size=extent)
        twin = tables_of(reference.compose, before, start, extent, flipped, mode, size=extent)
        np.testing.assert_array_equal(table, twin)

        around = padded(expected, 25, 25, mode)
        expected = around[25 + start : 25 + start + extent]
        expected = np.flip(expected) if flipped else expected
    shown = [pixels[place] if place >= 0 else -1 for place in table]
    np.testing.assert_array_equal(shown, expected)


@examples
@given(data=st.data(), size=st.integers(1, 9), out=st.integers(1, 12), flipped=st.booleans())
def test_a_nearest_table_equals_its_twin(data, size, out, flipped):
    before = np.arange(10, 10 + size, dtype=np.int32)
    start = data.draw(st.integers(0, size - 1))
    extent = data.draw(st.integers(1, size - start))
    table = tables_of(windows.compose_nearest, before, start, extent, flipped, size=out)
    twin = tables_of(reference.compose_nearest, before, start, extent, flipped, size=out)
    np.testing.assert_array_equal(table, twin)
    assert before[start] <= table.min()
    assert table.max() <= before[start + extent - 1]


def linear_table(kernel, before, start, extent, flipped, size):
    low, high, weight = (np.zeros(size, dtype) for dtype in (np.int32, np.int32, np.float32))
    kernel(before, start, extent, flipped, low, high, weight)
    return low, high, weight


@examples
@given(data=st.data(), size=st.integers(1, 9), out=st.integers(1, 12), flipped=st.booleans())
def test_a_linear_table_equals_its_twin(data, size, out, flipped):
    before = np.arange(10, 10 + size, dtype=np.int32)
    start = data.draw(st.integers(0, size - 1))
    extent = data.draw(st.integers(1, size - start))
    table = linear_table(windows.compose_linear, before, start, extent, flipped, out)
    twin = linear_table(reference.compose_linear, before, start, extent, flipped, out)
    for values, expected in zip(table, twin, strict=True):
        np.testing.assert_array_equal(values, expected)
    low, high, weight = table
    assert before[start] <= low.min()
    assert high.max() <= before[start + extent - 1]
    assert np.all((weight >= 0) & (weight < 1))
    # Exactly on a pixel there is no second one: infinity times 0 would be NaN.
    assert np.all((low == high) == (weight == 0))


def test_a_linear_table_of_the_same_size_is_the_identity():
    low, high, weight = linear_table(
        windows.compose_linear, np.arange(7, dtype=np.int32), 0, 7, False, 7
    )
    np.testing.assert_array_equal(low, np.arange(7))
    np.testing.assert_array_equal(high, np.arange(7))
    np.testing.assert_array_equal(weight, np.zeros(7))


@examples
@given(data=st.data(), size=st.integers(1, 7))
def test_a_window_onto_interpolated_pixels_takes_all_three_tables_along(data, size):
    before = linear_table(reference.compose_linear, np.arange(5, dtype=np.int32), 0, 5, False, size)
    start, extent, flipped, mode = data.draw(window_of(size))
    results = []
    for kernel in (windows.compose_blended, reference.compose_blended):
        tables = [np.full(extent, 99, table.dtype) for table in before]
        kernel(*before, start, extent, flipped, mode, *tables)
        results.append(tables)
    for values, expected, source in zip(*results, before, strict=True):
        np.testing.assert_array_equal(values, expected)
        around = np.pad(source, 25, MODES[mode])
        shown = around[25 + start : 25 + start + extent]
        shown = np.flip(shown) if flipped else shown
        inside = results[0][0] >= 0
        np.testing.assert_array_equal(values[inside], shown[inside])


TABLES = {
    "all of it": [0, 1, 2, 3, 4],
    "a part": [2, 3],
    "one": [4],
    "backwards": [4, 3, 2],
    "fill before": [-1, -1, 0, 1],
    "fill behind": [3, 4, -1],
    "fill on both sides": [-1, 1, 2, 3, -1, -1],
    "fill only": [-1, -1],
    "fill in the middle": [1, -1, 2, 3, 4],
    "one after the other twice": [0, 1, 1, 2],
    "mirrored at the edge": [1, 0, 1, 2, 3, 4, 3],
    "gaps": [0, 2, 4],
}


ROWS_AND_CHANNELS = [("a part", 1), ("fill on both sides", 3), ("gaps", 2), ("backwards", 4)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_walk_of_a_table_equals_its_twin(table):
    for direction in (table, table[::-1]):
        found = windows.walk(np.array(direction, np.int32))
        assert tuple(found) == reference.walk(np.array(direction, np.int32))


def image(channels, dtype, height=5, width=5):
    values = np.random.default_rng(channels).uniform(0, 256, (height, width, channels))
    return values.astype(dtype)


def guarded(shape, dtype):
    """An array with others around it that nobody may write to."""
    size = int(np.prod(shape))
    memory = np.full(size + 32, 77, dtype)
    return memory, memory[16 : 16 + size].reshape(shape)


def check_guard(memory, size):
    np.testing.assert_array_equal(memory[:16], np.full(16, 77, memory.dtype))
    np.testing.assert_array_equal(memory[16 + size :], np.full(16, 77, memory.dtype))


def scaling(channels, width):
    repeats = max(width, 4)
    scale = np.linspace(0.5, 2, channels, dtype=np.float32)
    return np.tile(scale, repeats), np.tile(np.linspace(-1, 1, channels, dtype=np.float32), repeats)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("rows", "channels"), ROWS_AND_CHANNELS)
def test_copied_and_scaled_windows_equal_their_twins(rows, channels, columns, dtype):
    x = image(channels, dtype)
    rows, columns = np.array(TABLES[rows], np.int32), np.array(columns, np.int32)
    shape = (len(rows), len(columns), channels)
    fill = np.arange(9, 9 + channels).astype(dtype)
    scale, bias = scaling(channels, len(columns))

    memory, out = guarded(shape, dtype)
    expected = np.empty(shape, dtype)
    windows.copy_window(x, rows, columns, np.tile(fill, len(columns)), out)
    reference.copy_window(x, rows, columns, fill, expected)
    np.testing.assert_array_equal(out, expected)
    check_guard(memory, out.size)

    memory, out = guarded(shape, np.float32)
    expected = np.empty(shape, np.float32)
    windows.scale_window(x, rows, columns, fill, scale, bias, out)
    reference.scale_window(x, rows, columns, fill, scale, bias, expected)
    np.testing.assert_array_equal(out, expected)
    check_guard(memory, out.size)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows_go_in_blocks(channels, dtype):
    x = image(channels, dtype, height=2, width=45)
    rows = np.array([1, -1, 0], np.int32)
    fill = np.arange(9, 9 + channels).astype(dtype)
    for columns in (
        [*range(44, 3, -1)],
        [-1, -1, *range(40, 0, -1), -1],
        [*range(9, 0, -1), *range(45)],
    ):
        columns = np.array(columns, np.int32)
        memory, out = guarded((3, len(columns), channels), dtype)
        expected = np.empty(out.shape, dtype)
        windows.copy_window(x, rows, columns, np.tile(fill, len(columns)), out)
        reference.copy_window(x, rows, columns, fill, expected)
        np.testing.assert_array_equal(out, expected)
        check_guard(memory, out.size)


def blended_table(table):
    """Between each coordinate of a table and the next, which may lie on either side; the last exactly on a pixel."""
    low, high = np.array(table, np.int32), np.array([*table[1:], table[-1]], np.int32)
    weight = np.linspace(0.9, 0, len(low), dtype=np.float32)
    outside = (low < 0) | (high < 0)
    weight[outside] = 0
    return low, np.where(outside, low, high), weight


def blended(kernel, x, rows, columns, whole, out):
    channels = x.shape[2]
    fill = np.arange(9, 9 + channels).astype(x.dtype)
    scale, bias = scaling(channels, len(columns[0]))
    # What is left in the line from other samples must not matter.
    line = np.full(x.shape[1] * channels + 4, np.nan, np.float32)
    kernel(x, *rows, *columns, fill, scale, bias, line, whole, out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("rows", "channels"), ROWS_AND_CHANNELS)
def test_blended_windows_equal_their_twin(rows, channels, columns, dtype):
    x = image(channels, dtype)
    rows, columns = blended_table(TABLES[rows]), blended_table(columns)
    shape = (len(rows[0]), len(columns[0]), channels)
    for whole in (False, True):
        memory, out = guarded(shape, np.float32)
        expected = np.empty(shape, np.float32)
        blended(windows.blend_window, x, rows, columns, whole, out)
        blended(reference.blend_window, x, rows, columns, whole, expected)
        np.testing.assert_array_equal(out, expected)
        check_guard(memory, out.size)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(3, 4), (11, 7), (5, 5)])
def test_blended_pixels_are_those_of_scipys_interpolation(size, channels):
    x = image(channels, np.float32)
    tables = [
        linear_table(windows.compose_linear, np.arange(5, dtype=np.int32), 0, 5, False, count)
        for count in size
    ]
    out = np.empty((*size, channels), np.float32)
    line = np.zeros(5 * channels + 4, np.float32)
    ones, zeros = np.ones(4 * 11, np.float32), np.zeros(4 * 11, np.float32)
    windows.blend_window(x, *tables[0], *tables[1], zeros[:channels], ones, zeros, line, False, out)

    places = [np.clip((np.arange(count) + 0.5) * 5 / count - 0.5, 0, 4) for count in size]
    grid = np.meshgrid(*places, indexing="ij")
    for channel in range(channels):
        expected = ndimage.map_coordinates(x[..., channel], grid, order=1)
        np.testing.assert_allclose(out[..., channel], expected, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pixels_without_a_share_in_the_result_are_not_looked_at(dtype):
    """Not-a-number beside a window, or exactly one pixel further, does not spread into it."""
    x = np.full((5, 5, 3), np.nan if dtype == np.float32 else 255, dtype)
    x[1:4, 1:4] = 7
    whole_pixels = np.array([1, 2, 3], np.int32)
    table = whole_pixels, whole_pixels, np.zeros(3, np.float32)
    out = np.empty((3, 3, 3), np.float32)
    ones, zeros = np.ones(12, np.float32), np.zeros(12, np.float32)
    line = np.full(19, np.nan, np.float32)
    windows.blend_window(x, *table, *table, zeros[:3].astype(dtype), ones, zeros, line, False, out)
    np.testing.assert_array_equal(out, np.full((3, 3, 3), 7))
