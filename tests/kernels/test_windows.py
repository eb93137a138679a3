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


KINDS = [windows.BILINEAR, windows.BICUBIC, windows.LANCZOS]


def filter_of(kernel, before, start, extent, flipped, kind, antialias, size, dtype=np.float32):
    """Shares, places and counts, in memory that holds something else."""
    taps = windows.most_taps(kind, antialias, len(before), size)
    shares, places = np.full(size * taps, np.nan, dtype), np.full(size * taps, 99, np.int32)
    counts = np.full(size, 99, np.int32)
    kernel(before, start, extent, flipped, kind, antialias, shares, places, counts)
    return shares, places, counts


def dense(shares, places, counts, size):
    """The share of every pixel in every result."""
    taps = len(places) // len(counts)
    matrix = np.zeros((len(counts), size))
    for i, count in enumerate(counts):
        for k in range(i * taps, i * taps + count):
            matrix[i, places[k]] += shares[k]
    return matrix


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_a_filter_equal_their_twin(kind):
    for distance in np.linspace(-4, 4, 161):
        share = windows.filter_share(kind, float(distance))
        assert share == pytest.approx(reference.filter_share(kind, distance), abs=1e-14)
    # Exactly: infinity times almost nothing is infinite.
    assert [windows.filter_share(kind, float(place)) for place in (-3, -2, -1, 1, 2, 3)] == [0] * 6
    assert windows.filter_share(kind, 0.0) == 1


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
    found = filter_of(windows.compose_filter, *given)
    twin = filter_of(reference.compose_filter, *given)
    shares = dense(*found, 10 + size)
    np.testing.assert_allclose(shares, dense(*twin, 10 + size), rtol=0, atol=1e-15)
    expected = reference.filter_matrix(extent, out, kind, antialias)
    expected = np.flip(expected, 0) if flipped else expected
    inside = slice(10 + start, 10 + start + extent)
    np.testing.assert_allclose(shares[:, inside], expected, atol=16 * np.finfo(dtype).eps)
    assert np.sum(np.abs(shares)) == pytest.approx(np.sum(np.abs(shares[:, inside])))
    # What has no share is not looked at: infinity times 0 would be NaN.
    used = np.arange(len(found[1])) % (len(found[1]) // out) < found[2].repeat(len(found[1]) // out)
    assert np.all(found[0][used] != 0)
    assert np.all(found[1][used] >= before[start])


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_of_the_same_size_is_the_identity(kind):
    before = np.arange(7, dtype=np.int32)
    shares, places, counts = filter_of(windows.compose_filter, before, 0, 7, False, kind, True, 7)
    taps = len(places) // 7
    np.testing.assert_array_equal(counts, np.ones(7))
    np.testing.assert_array_equal(places[::taps], before)
    np.testing.assert_array_equal(shares[::taps], np.ones(7))


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


def filter_for(size, kind=windows.BILINEAR, result=5, dtype=np.float32):
    """The filter of five results from `size` pixels."""
    before = np.arange(size, dtype=np.int32)
    return filter_of(windows.compose_filter, before, 0, size, False, kind, True, result, dtype)


def resized(kernel, x, rows, columns, filters, whole, out):
    """What a kernel makes of x; what is left in its memory from other samples must not matter."""
    _, width, channels = out.shape
    dtype = filters[0].dtype
    fill = np.arange(9, 9 + channels).astype(x.dtype)
    limits = (
        (dtype.type(0), dtype.type(255)) if whole else (dtype.type(-np.inf), dtype.type(np.inf))
    )
    made = np.full(width * channels + 4, np.nan, dtype)
    spaces = [np.full(x.shape[1] * channels + 4, np.nan, dtype), made]
    if kernel.__name__ == "resize_exactly":
        spaces.append(np.full((x.shape[0], made.size), np.nan, dtype))
        spaces.append((0, x.shape[0], 0, 0, x.shape[1], 0))
    else:
        spaces += [np.full(width, 99, np.int32), np.full(width, 99, np.int32)]
        spaces.append(np.full(width, np.nan, np.float32))
    kernel(
        x, rows, columns, *filters, fill, *scaling(channels, width), whole, limits, *spaces, out
    )  # fmt: skip


# Sizes of an image of which five pixels are made: some shrink, some do not.
SIZES = [(5, 5), (3, 4), (4, 13), (11, 2), (17, 12)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int32])
@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("rows", "channels"), [*ROWS_AND_CHANNELS, ("mirrored at the edge", 5)])
def test_resized_windows_equal_their_twins(rows, channels, columns, dtype):
    rows, columns = np.array(TABLES[rows], np.int32), np.array(columns, np.int32)
    shape = (len(rows), len(columns), channels)
    whole = dtype != np.float32
    for number, size in enumerate(SIZES):
        x = image(channels, dtype, *size)
        kind = KINDS[number % 3]
        exact = dtype == np.int32 or (whole and kind != windows.BILINEAR)
        name = "resize_exactly" if exact else "resize_window"
        shares = np.float64 if dtype == np.int32 else np.float32
        filters = [table for extent in size for table in filter_for(extent, kind, dtype=shares)]
        for target in (np.float32, dtype):
            memory, out = guarded(shape, target)
            expected = np.empty(shape, target)
            resized(getattr(windows, name), x, rows, columns, filters, whole, out)
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
            windows.compose_filter, before, 0, 5, False, windows.BILINEAR, False, count
        )
    ]
    out = np.empty((*size, channels), np.float32)
    rows, columns = (np.arange(count, dtype=np.int32) for count in size)
    resized(windows.resize_window, x, rows, columns, filters, False, out)
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
    resized(getattr(windows, kernel), x, table, table, filters, False, out)
    scale, bias = scaling(channels, 1)
    np.testing.assert_array_equal(out, x * scale[:channels] + bias[:channels])
