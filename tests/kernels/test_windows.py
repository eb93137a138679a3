"""Windows compose: the table of a chain of crops, pads, flips and resizes equals one op after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config

from loaderx.kernels import windows
from loaderx.kernels.windows import EDGE, FILL, REFLECT
from tests import reference
from tests.kernels.pixel_tables import (
    ROWS_AND_CHANNELS,
    TABLES,
    check_guard,
    guarded,
    image,
    scaling,
)

MODES = {FILL: "constant", REFLECT: "reflect", EDGE: "edge"}
DTYPES = [np.uint8, np.float32]
# Plain Python is slow; compiled, the first example waits for the compiler.
examples = settings(max_examples=20 if config.DISABLE_JIT else 100, deadline=None)


def padded(values, before, after, mode):
    """Pad by NumPy, with -1 as the fill colour."""
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
    """Return the table that a kernel writes; it must write nothing else."""
    guarded = np.full(size + 2, 99, np.int32)
    kernel(before, *arguments, guarded[1:-1])
    assert guarded[0] == guarded[-1] == 99
    return guarded[1:-1]


@st.composite
def window_of(draw, size):
    """Draw a window of its output's own size, at any place."""
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


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_walk_of_a_table_equals_its_twin(table):
    for direction in (table, table[::-1]):
        found = windows.longest_run(np.array(direction, np.int32))
        assert tuple(found) == reference.longest_run(np.array(direction, np.int32))


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
