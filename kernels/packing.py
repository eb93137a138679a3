"""Packing: documents of any length into rows of one length, first the plan, then the rows."""

import numpy as np
from numpy.typing import NDArray

from .compilation import kernel
from .memory import copy_bytes


@kernel
def cut_documents(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    length: int,
    piece_starts: NDArray[np.int64],
    piece_sizes: NDArray[np.int32],
) -> None:
    """Cut every document into as few pieces of at most `length` tokens as possible."""
    piece = 0
    for document in range(starts.shape[0]):
        start, end = starts[document], starts[document] + sizes[document]
        while start < end:
            piece_starts[piece] = start
            piece_sizes[piece] = min(end - start, length)
            start += length
            piece += 1


@kernel
def first_fit(
    sizes: NDArray[np.int32], length: int, room: NDArray[np.int32], rows: NDArray[np.int32]
) -> None:
    """Assign each piece, in order, to the first row with enough room.

    `room` is a tree of 2 * n nodes, n a power of two and at least the number of rows. Node n + r is the room of row r,
    and room[k] is the larger one of its children 2 * k and 2 * k + 1. So the first row with enough room is found in
    log2(n) steps.
    """
    leaves = room.shape[0] // 2
    for node in range(room.shape[0]):
        room[node] = length
    for piece in range(sizes.shape[0]):
        size = sizes[piece]
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < size:
                node += 1
        rows[piece] = node - leaves
        left = room[node] - size
        room[node] = left
        # Update the ancestors until another row has as much room as this one had.
        while node > 1:
            most = max(left, room[node ^ 1])
            node //= 2
            if room[node] == most:
                break
            room[node] = most
            left = most


@kernel
def sort_pieces(
    rows: NDArray[np.int32],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    firsts: NDArray[np.int64],
    sorted_starts: NDArray[np.int64],
    sorted_sizes: NDArray[np.int32],
) -> None:
    """Sort the pieces by row, in order within a row; row r has those from firsts[r] up to firsts[r + 1]."""
    count = firsts.shape[0] - 1
    firsts[:] = 0
    for piece in range(rows.shape[0]):
        firsts[rows[piece] + 1] += 1
    for row in range(count):
        firsts[row + 1] += firsts[row]
    for piece in range(rows.shape[0]):
        place = firsts[rows[piece]]
        sorted_starts[place] = starts[piece]
        sorted_sizes[place] = sizes[piece]
        firsts[rows[piece]] += 1
    # Each entry is now the beginning of the next row.
    for row in range(count, 0, -1):
        firsts[row] = firsts[row - 1]
    firsts[0] = 0


@kernel
def pack_rows(
    rows: NDArray[np.int64],
    firsts: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    address: int,
    padding: NDArray[np.uint8],
    tokens: NDArray[np.uint8],
    segments: NDArray[np.int32],
    positions: NDArray[np.int32],
) -> None:
    """Write the tokens at `address` row by row, as bytes, then `padding`, which is that of a whole row.

    `segments` numbers the pieces of a row from 1, and `positions` the tokens of a piece from 0; both are 0 in the
    padding.
    """
    length = segments.shape[1]
    width = padding.shape[0] // length
    target, padded = tokens.ctypes.data, padding.ctypes.data
    for i in range(rows.shape[0]):
        first, end = firsts[rows[i]], firsts[rows[i] + 1]
        place = 0
        for piece in range(first, end):
            size = int(sizes[piece])
            copy_bytes(target + place * width, address + starts[piece] * width, size * width)
            segment = segments[i, place : place + size]
            position = positions[i, place : place + size]
            number = np.int32(piece - first + 1)
            for j in range(size):
                segment[j] = number
            for j in range(size):
                position[j] = j
            place += size
        copy_bytes(target + place * width, padded, (length - place) * width)
        segments[i, place:] = 0
        positions[i, place:] = 0
        target += length * width
