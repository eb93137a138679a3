"""Rows at addresses arrive in the batch as they are, whatever their dtype, strides, byte order or alignment."""

import itertools
import math

import numba
import numpy as np
import pytest

from loaderx.kernels import gathering
from tests import reference

DTYPES = ["?", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "S5", "M8[s]"]
# One byte more and one byte less than a machine word, a vector and a cache line.
SIZES = [0, 1, 2, 3, 7, 8, 9, 31, 33, 63, 65, 1000]


def random_array(shape, dtype, seed=0):
    """Return any bit patterns of a dtype, NaNs and padding included."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    memory = np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    return memory.view(dtype).reshape(shape)


def addresses_of(array, rows):
    """Return the addresses of rows of an array."""
    return array.__array_interface__["data"][0] + np.asarray(rows, np.int64) * array.strides[0]


def elements_of(array):
    """Return offsets, size and byte order of the parts that swap as one, for rows of any strides."""
    unit = array.itemsize // 2 if array.dtype.kind == "c" else array.itemsize
    components = range(0, array.itemsize, unit)
    offsets = [
        sum(index * stride for index, stride in zip(place, array.strides[1:], strict=True)) + part
        for place in np.ndindex(array.shape[1:])
        for part in components
    ]
    return np.array(offsets, np.int64), unit, not array.dtype.isnative


def as_bytes(array):
    return np.frombuffer(array.tobytes(), np.uint8)


@pytest.mark.parametrize(
    ("lengths", "strides"),
    [
        ([10], [8]),
        ([1], [3]),
        ([4, 3, 5], [16, 16, 16]),
        ([4, 3, 5], [16, -48, 0]),
        ([0, 4, 0, 0, 3, 0, 2], [8, 8, 8, 24, 8, 8, 8]),
        ([1] * 37, range(37)),
    ],
)
def test_a_row_is_located_in_the_part_that_holds_it(lengths, strides):
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    bases = 10**6 * np.arange(1, len(lengths) + 1, dtype=np.int64)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(sum(lengths)), 2))
    out, expected = np.empty_like(rows), np.full_like(rows, -1)
    strides = np.array(strides, np.int64)

    gathering.locate_rows(rows, starts, bases, strides, out)

    reference.locate_rows(rows, starts, bases, strides, expected)
    np.testing.assert_array_equal(out, expected)
    owner = np.repeat(np.arange(len(lengths)), lengths)[rows]
    np.testing.assert_array_equal(out, bases[owner] + (rows - starts[owner]) * strides[owner])


def test_rows_beyond_four_gigabytes_are_located_without_overflow():
    rows = np.array([0, 2**40, 2**40 + 1, 2**41 - 1], np.int64)
    starts = np.array([0, 2**40, 2**41], np.int64)
    bases = np.array([2**46, 2**47 - 1], np.int64)
    strides = np.array([12, -5], np.int64)
    out, expected = np.empty_like(rows), np.empty_like(rows)

    gathering.locate_rows(rows, starts, bases, strides, out)

    reference.locate_rows(rows, starts, bases, strides, expected)
    np.testing.assert_array_equal(out, expected)
    assert out[0] == 2**46
    assert out[1] == 2**47 - 1
    assert out[3] == 2**47 - 1 - 5 * (2**40 - 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_copied_rows_are_the_rows(dtype, shape):
    array = random_array((20, *shape), dtype)
    rows = np.array([3, 0, 19, 3, 3, 7])
    out = np.zeros(array[rows].nbytes, np.uint8)
    expected = np.zeros_like(out)

    gathering.copy_rows(addresses_of(array, rows), array[0].nbytes, out)

    reference.copy_rows(addresses_of(array, rows), array[0].nbytes, expected)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, as_bytes(array[rows]))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_a_copy_of_any_size_to_any_address_writes_its_own_bytes_only(size, count, shift):
    array = random_array((8 * (size + 1) + shift,), "u1")
    addresses = array.ctypes.data + shift + np.arange(count, dtype=np.int64)[::-1] * (size + 1)
    addresses = np.ascontiguousarray(addresses)
    memory = np.full(count * size + shift + 64, 170, np.uint8)
    expected = memory.copy()
    inside = slice(shift, shift + count * size)

    gathering.copy_rows(addresses, size, memory[inside])

    reference.copy_rows(addresses, size, expected[inside])
    np.testing.assert_array_equal(memory, expected)


def strided_arrays():
    """Return arrays whose rows are not contiguous in native byte order."""
    whole = random_array((6, 4, 5), "i4")
    yield "Fortran order", np.asfortranarray(whole)
    yield "transposed", whole.transpose(2, 1, 0)
    yield "negative strides", whole[::-1, ::-1, ::-2]
    yield "every other column", whole[:, :, 1::2]
    yield "broadcast", np.broadcast_to(whole[:, :1], whole.shape)
    yield "one element", whole[:1, :1, :1]
    yield "rows of nothing", whole[:, :0]
    yield "numbers as rows, backwards", whole[::-1, 0, 0]
    yield "unaligned", random_array((6 * 20 * 4 + 1,), "u1")[1:].view("i4").reshape(6, 4, 5)
    for dtype in ("i2", "u4", "i8", "f8", "c8", "c16", "M8[s]"):
        yield f"swapped {dtype}", random_array((6, 3), np.dtype(dtype).newbyteorder())
    yield "swapped and strided", random_array((6, 4, 5), ">f4" if np.little_endian else "<f4").T


@pytest.mark.parametrize("array", [pytest.param(a, id=name) for name, a in strided_arrays()])
def test_collected_rows_are_the_rows_in_native_order(array):
    rows = np.array([0, len(array) - 1, len(array) // 2, 0])
    offsets, unit, swap = elements_of(array)
    out = np.zeros(array[rows].nbytes, np.uint8)
    expected = np.zeros_like(out)

    gathering.collect_rows(addresses_of(array, rows), offsets, unit, swap, out)

    reference.collect_rows(addresses_of(array, rows), offsets, unit, swap, expected)
    np.testing.assert_array_equal(out, expected)
    native = array[rows].astype(array.dtype.newbyteorder("="), casting="equiv")
    np.testing.assert_array_equal(out, as_bytes(native))


@pytest.mark.parametrize("unit", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("swap", [False, True])
def test_elements_of_any_size_are_collected_and_swapped(unit, swap):
    memory = random_array((400,), "u1")
    addresses = memory.ctypes.data + np.array([300, 200, 100], np.int64)
    offsets = np.array([0, 40, -40, 7], np.int64)
    out = np.zeros(3 * 4 * unit, np.uint8)
    expected = np.zeros_like(out)

    gathering.collect_rows(addresses, offsets, unit, swap, out)

    reference.collect_rows(addresses, offsets, unit, swap, expected)
    np.testing.assert_array_equal(out, expected)


INTEGERS = [("i8", "i4"), ("u8", "u4")]


def narrow(array, rows, dtype):
    """Return the rows in 32 bits, by the kernel and by its twin, each with its first misfit."""
    results = []
    for kernel in (gathering.narrow_integers, reference.narrow_integers):
        out = np.zeros((len(rows), array[0].size), dtype)
        misfit = np.zeros(1, np.int64)
        kernel(addresses_of(array, rows), np.empty(0, array.dtype), out, misfit)
        results.append((out, int(misfit[0])))
    return results


@pytest.mark.parametrize(("wide", "narrowed"), INTEGERS)
@pytest.mark.parametrize("shape", [(), (1,), (4, 5), (0,), (37,)])
def test_integers_that_fit_are_narrowed_exactly(wide, narrowed, shape):
    limits = np.iinfo(narrowed)
    array = np.random.default_rng(0).integers(limits.min, limits.max, (9, *shape), wide, endpoint=True)  # fmt: skip
    array.reshape(-1)[:1] = limits.max
    array.reshape(-1)[-1:] = limits.min
    rows = np.array([8, 0, 8, 4])

    (out, misfit), (expected, _) = narrow(array, rows, narrowed)

    assert misfit == -1
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, array[rows].reshape(4, -1))


@pytest.mark.parametrize(
    ("wide", "narrowed", "value"),
    [
        ("i8", "i4", 2**31),
        ("i8", "i4", -(2**31) - 1),
        ("i8", "i4", 2**32),
        ("i8", "i4", -(2**32)),
        ("i8", "i4", 2**63 - 1),
        ("i8", "i4", -(2**63)),
        ("u8", "u4", 2**32),
        ("u8", "u4", 2**63),
        ("u8", "u4", 2**64 - 1),
    ],
)
@pytest.mark.parametrize("places", [[0], [17], [59], [17, 18, 41], [41, 59]])
def test_the_first_integer_that_does_not_fit_is_named(wide, narrowed, value, places):
    array = np.arange(60, dtype=wide).reshape(3, 20)
    array.flat[places] = value

    (out, misfit), (expected, expected_misfit) = narrow(array, np.arange(3), narrowed)

    assert misfit == expected_misfit == places[0]
    fits = array == expected
    assert np.count_nonzero(~fits) == len(places)
    np.testing.assert_array_equal(out[fits], expected[fits])


def test_a_misfit_of_an_earlier_batch_is_forgotten():
    array = np.arange(4).reshape(2, 2)
    out, misfit = np.empty((2, 2), np.int32), np.array([3])
    gathering.narrow_integers(addresses_of(array, [0, 1]), np.empty(0, np.int64), out, misfit)
    assert misfit[0] == -1


@pytest.mark.parametrize(("wide", "narrowed"), [("f8", "f4"), ("c16", "c8")])
@pytest.mark.parametrize("shape", [(), (1,), (4, 5), (0,)])
def test_floats_are_rounded_to_the_nearest(wide, narrowed, shape):
    array = np.random.default_rng(0).normal(size=(50, *shape)).astype(wide)
    rows = np.array([49, 0, 7, 7])
    out = np.zeros((4, array[0].size), narrowed)
    expected = np.zeros_like(out)

    gathering.narrow_floats(addresses_of(array, rows), np.empty(0, wide), out)

    reference.narrow_floats(addresses_of(array, rows), np.empty(0, wide), expected)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, array[rows].reshape(4, -1).astype(narrowed))


def test_special_floats_stay_what_they_are_and_large_ones_become_infinite():
    largest = float(np.finfo("f4").max)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-320, 1e300, -1e300, largest]
    halves = [1 + 2**-24, 1 + 3 * 2**-24, 2**24 + 1]
    array = np.array([special + halves])
    out, expected = np.zeros(array.shape, "f4"), np.zeros(array.shape, "f4")

    gathering.narrow_floats(addresses_of(array, [0]), np.empty(0), out)

    reference.narrow_floats(addresses_of(array, [0]), np.empty(0), expected)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.signbit(out[:, :4]), np.signbit(array[:, :4]))
    np.testing.assert_array_equal(out[0, 7:9], [np.inf, -np.inf])


def test_read_only_memory_is_read_like_any_other(tmp_path):
    array = random_array((10, 7), "f8")
    np.save(tmp_path / "rows.npy", array)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    rows = [9, 0, 5]
    for source, order in itertools.product((array, mapped), (1, -1)):
        out = np.zeros(3 * 56, np.uint8)
        gathering.copy_rows(addresses_of(source[::order], rows), 56, out)
        np.testing.assert_array_equal(out, as_bytes(array[::order][rows]))


@pytest.mark.parametrize("name", ["copy_shuffled", "copy_shuffled_holding_gil"])
@pytest.mark.parametrize(
    ("rows", "first", "count"), [(1, 0, 1), (10, 3, 7), (5000, 4990, 10), (70, 0, 70)]
)
def test_shuffled_rows_of_several_arrays_equal_their_twin(name, rows, first, count):
    height = math.isqrt(rows - 1) + 1
    width = -(-rows // height)
    keys = np.random.default_rng(rows).integers(0, 2**32, 8, dtype=np.uint32)
    wide = random_array((rows, 12), "u1")
    sources = [random_array((rows, 33), "u1"), random_array((rows,), "i4"), wide[:, 2:9]]
    results = []
    for copy in (getattr(gathering, name), getattr(reference, name)):
        outs = [np.zeros((count, *source.shape[1:]), source.dtype) for source in sources]
        fields = np.array(
            [
                [
                    int(addresses_of(source, [0])[0]),
                    source.strides[0],
                    out[0].nbytes,
                    out.ctypes.data,
                ]
                for source, out in zip(sources, outs, strict=True)
            ],
            np.int64,
        )
        numbers = np.empty(count, np.int64)
        copy(first, rows, height, width, keys, fields, np.empty((2, count), np.uint32), numbers)
        results.append((numbers, outs))
    (numbers, outs), (expected_numbers, expected) = results
    np.testing.assert_array_equal(numbers, expected_numbers)
    for source, out, twin in zip(sources, outs, expected, strict=True):
        np.testing.assert_array_equal(out, twin)
        np.testing.assert_array_equal(out, source[numbers])


@pytest.mark.parametrize("pitch", [24, -24, 0])
def test_rows_of_one_array_have_the_addresses_of_the_twin(pitch):
    rows = np.array([0, 5, -1, -6, 3])
    found = []
    for kernel in (gathering.address_rows, reference.address_rows):
        out, misfit = np.zeros(5, np.int64), np.zeros(1, np.int64)
        kernel(rows, 6, 1000, pitch, out, misfit)
        assert misfit[0] == -1
        found.append(out.tolist())
    assert found[0] == found[1] == [1000 + pitch * row for row in (0, 5, 5, 0, 3)]


@pytest.mark.parametrize(("rows", "place"), [([6], 0), ([0, -7, 9], 1), ([0, 1, 2**62], 2)])
def test_the_first_row_outside_is_told(rows, place):
    for kernel in (gathering.address_rows, reference.address_rows):
        out, misfit = np.zeros(len(rows), np.int64), np.zeros(1, np.int64)
        kernel(np.array(rows), 6, 0, 8, out, misfit)
        assert misfit[0] == place


@pytest.mark.parametrize("parts", [[0, 7], [0, 2, 2, 7], range(8)])
def test_rows_in_parts_are_those_of_the_whole(parts):
    array = np.random.default_rng(0).integers(0, 256, (9, 10), np.uint8)
    rows = np.array([8, 0, 3, 3, 5, 1, 7])
    addresses, parts = addresses_of(array, rows), np.array(parts)
    offsets = np.arange(10)[::-1].copy()
    for module in (gathering, reference):
        out = np.zeros(70, np.uint8)
        module.copy_rows_in_parts(parts, addresses, 10, out)
        np.testing.assert_array_equal(out.reshape(7, 10), array[rows])
        module.collect_rows_in_parts(parts, addresses, offsets, 1, False, out)
        np.testing.assert_array_equal(out.reshape(7, 10), array[rows][:, ::-1])


def test_asking_for_memory_that_is_not_there_does_no_harm():
    @numba.njit
    def ask(address):
        gathering.prefetch_row(address, 4096)

    for address in (0, 1, -1, 2**62):
        ask(address)
