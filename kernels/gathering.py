"""Gather: rows at addresses -> batch, plain, strided, byte-swapped or narrowed.

A row is named by the address of its first byte. So one file, many files, a subset and an array in memory are the same
to a kernel, and read-only and writable memory are not two types to compile for.
"""

import numpy as np
from numba import carray, prange
from numpy.typing import NDArray

from .compilation import gil_kernel, jitable, kernel, parallel_kernel
from .feistel import permute
from .memory import copy_bytes, pointer, prefetch_line

CACHE_LINE = 64
# Rows are read in a random order, each from a page of its own, and waiting for its first bytes is a sixth of the time.
# [512 rows of 3 KB: 184 us without this, 157 us with it; in two threads 91 and 84; to prefetch all bytes gains nothing]
ROWS_AHEAD = 2
PREFETCHED_BYTES = 512
LOW_HALF = 0 if np.little_endian else 1
Addresses = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@jitable
def part_of(row: int, starts: NDArray[np.int64], parts: int) -> int:
    """Return the part that holds a row, where part p holds the rows from starts[p] up to starts[p + 1]."""
    low, high = 0, parts
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= row:
            low = middle
        else:
            high = middle
    return low


@gil_kernel
def locate_rows(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    bases: Addresses,
    strides: NDArray[np.int64],
    out: Addresses,
) -> None:
    """Write the address of every row."""
    for i in range(rows.shape[0]):
        part = part_of(rows[i], starts, bases.shape[0])
        out[i] = bases[part] + (rows[i] - starts[part]) * strides[part]


@gil_kernel
def address_rows(
    rows: NDArray[np.int64],
    count: int,
    base: int,
    pitch: int,
    out: Addresses,
    misfit: NDArray[np.int64],
) -> None:
    """Write the address of every row of one array; negative rows count from its end.

    misfit[0] is the first row outside, or -1.
    """
    misfit[0] = -1
    for i in range(rows.shape[0]):
        row = rows[i] + count if rows[i] < 0 else rows[i]
        if row < 0 or row >= count:
            misfit[0] = i
            return
        out[i] = base + row * pitch


@jitable
def prefetch_row(address: int, size: int) -> None:
    """Prefetch the first bytes of a row: the processor detects the rest."""
    for k in range(0, min(size, PREFETCHED_BYTES), CACHE_LINE):
        prefetch_line(address + k)


@kernel
def copy_rows(addresses: Addresses, size: int, out: Bytes) -> None:
    """Copy `size` bytes from every address, one row after the other."""
    target, count = out.ctypes.data, addresses.shape[0]
    for i in range(count):
        if i + ROWS_AHEAD < count:
            prefetch_row(addresses[i + ROWS_AHEAD], size)
        copy_bytes(target + i * size, addresses[i], size)


@parallel_kernel
def copy_rows_in_parts(
    parts: NDArray[np.int64], addresses: Addresses, size: int, out: Bytes
) -> None:
    """Run `copy_rows` for all parts at once: the rows from parts[p] to parts[p + 1]."""
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)  # Numba counts in unsigned integers, whose differences are floats
        begin, end = parts[part], parts[part + 1]
        copy_rows(addresses[begin:end], size, out[begin * size : end * size])


@gil_kernel
def copy_rows_holding_gil(addresses: Addresses, size: int, out: Bytes) -> None:
    """Run `copy_rows` for a few kilobytes, holding the GIL."""
    copy_rows(addresses, size, out)


@kernel
def copy_shuffled(
    first: int,
    rows: int,
    height: int,
    width: int,
    keys: NDArray[np.uint32],
    fields: NDArray[np.int64],
    scratch: NDArray[np.uint32],
    numbers: NDArray[np.int64],
) -> None:
    """Copy the rows at places `first` and following of a permutation, see `permute`; write their numbers to `numbers`.

    fields[f] is (address of row 0, bytes from row to row, bytes of a row, address of the rows to be written).
    """
    for i in range(numbers.shape[0]):
        numbers[i] = first + i
    permute(numbers, rows, height, width, keys, scratch, numbers)
    for f in range(fields.shape[0]):
        base, pitch, size, target = fields[f]
        for i in range(numbers.shape[0]):
            if i + ROWS_AHEAD < numbers.shape[0]:
                prefetch_row(base + numbers[i + ROWS_AHEAD] * pitch, size)
            copy_bytes(target + i * size, base + numbers[i] * pitch, size)


@gil_kernel
def copy_shuffled_holding_gil(
    first: int,
    rows: int,
    height: int,
    width: int,
    keys: NDArray[np.uint32],
    fields: NDArray[np.int64],
    scratch: NDArray[np.uint32],
    numbers: NDArray[np.int64],
) -> None:
    """Run `copy_shuffled` for a few kilobytes, holding the GIL."""
    copy_shuffled(first, rows, height, width, keys, fields, scratch, numbers)


@kernel
def collect_rows(
    addresses: Addresses, offsets: NDArray[np.int64], unit: int, swap: bool, out: Bytes
) -> None:
    """Collect elements of `unit` bytes at `offsets` from every address, with reversed bytes if `swap`."""
    elements = offsets.shape[0]
    for i in range(addresses.shape[0]):
        place = i * elements * unit
        for j in range(elements):
            element = carray(pointer(addresses[i] + offsets[j]), (unit,), np.uint8)
            for k in range(unit):
                out[place + k] = element[unit - 1 - k] if swap else element[k]
            place += unit


@parallel_kernel
def collect_rows_in_parts(
    parts: NDArray[np.int64],
    addresses: Addresses,
    offsets: NDArray[np.int64],
    unit: int,
    swap: bool,
    out: Bytes,
) -> None:
    """Run `collect_rows` for all parts at once."""
    size = offsets.shape[0] * unit
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)
        begin, end = parts[part], parts[part + 1]
        collect_rows(addresses[begin:end], offsets, unit, swap, out[begin * size : end * size])


# Two functions and not one with a flag: the check costs the float loop its vector instructions.
@kernel
def narrow_integers(
    addresses: Addresses,
    wide: NDArray[np.integer],
    out: NDArray[np.integer],
    misfit: NDArray[np.int64],
) -> None:
    """Narrow 64-bit integers of the dtype of `wide` to 32 bits; misfit[0] is the first that does not fit, or -1."""
    size = out.shape[1]
    misfit[0] = -1
    for i in range(addresses.shape[0]):
        row = carray(pointer(addresses[i]), (size,), wide.dtype)
        # A number that is too large wraps in compiled code and raises in plain Python; its low half does neither.
        halves = carray(pointer(addresses[i]), (size, 2), out.dtype)
        fits = True
        for j in range(size):
            out[i, j] = halves[j, LOW_HALF]
            fits &= out[i, j] == row[j]
        if not fits and misfit[0] < 0:
            for j in range(size):
                if out[i, j] != row[j]:
                    misfit[0] = i * size + j
                    break


@kernel
def narrow_floats(
    addresses: Addresses, wide: NDArray[np.inexact], out: NDArray[np.inexact]
) -> None:
    """Narrow floats or complex numbers of the dtype of `wide` to half the bytes."""
    size = out.shape[1]
    for i in range(addresses.shape[0]):
        row = carray(pointer(addresses[i]), (size,), wide.dtype)
        for j in range(size):
            out[i, j] = row[j]
