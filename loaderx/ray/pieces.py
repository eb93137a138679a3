"""Pieces of a batch: places of it that one worker builds."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.buffers import Pool
from loaderx.stream import ranges
from loaderx.stream.ranges import Range, Ranges

# For each field the ranges of places of the batch that are one array each. None: the whole batch.
PieceBlocks: TypeAlias = tuple[Ranges, ...] | None
# For each field the arrays of these ranges.
PieceArrays: TypeAlias = Sequence[Sequence[NDArray[Any]]]


def divide(blocks: Sequence[Ranges], size: int, count: int) -> list[PieceBlocks]:
    """Divide the blocks of all fields of a batch of `size` into `count` pieces of about as many places."""
    if count == 1:
        whole = all(own == ((0, size),) for own in blocks)
        return [None if whole else tuple(blocks)]
    places = ranges.union(each for own in blocks for each in own)
    shares = ranges.divided(places, count)
    return [tuple(ranges.common(own, share) for own in blocks) for share in shares if share]


def join(
    blocks: Sequence[Ranges],
    pieces: Sequence[PieceBlocks],
    built: Sequence[PieceArrays],
    pools: Sequence[Pool],
) -> list[list[NDArray[Any]]]:
    """Return one array for each block of each field; what is one array in a piece already is not copied."""
    joined: list[list[NDArray[Any]]] = []
    for field, own in enumerate(blocks):
        parts: list[tuple[Range, NDArray[Any]]] = []
        for piece, arrays in zip(pieces, built, strict=True):
            parts += zip(own if piece is None else piece[field], arrays[field], strict=True)
        joined.append([_block(block, parts, pools[field]) for block in own])
    return joined


def _block(block: Range, parts: Sequence[tuple[Range, NDArray[Any]]], pool: Pool) -> NDArray[Any]:
    """Return the array of one block from those that cover it."""
    for covered, array in parts:
        if covered == block:
            return array
    start, stop = block
    inside = [part for part in parts if start <= part[0][0] and part[0][1] <= stop]
    first = inside[0][1]
    whole = pool.lease((stop - start, *first.shape[1:]), first.dtype)
    for (begin, end), array in inside:
        whole[begin - start : end - start] = array
    return whole


def packed(arrays: PieceArrays) -> PieceArrays:
    """Return arrays whose bytes travel without a copy: those of ml_dtypes as integers."""
    return [
        [
            array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
            for array in own
        ]
        for own in arrays
    ]


def unpacked(arrays: PieceArrays, dtypes: Sequence[np.dtype[Any]]) -> PieceArrays:
    """Return packed arrays with their dtypes."""
    return [
        [array if array.dtype == dtype else array.view(dtype) for array in own]
        for own, dtype in zip(arrays, dtypes, strict=True)
    ]


def leased_copy(array: NDArray[Any], pool: Pool) -> NDArray[Any]:
    """Return a copy in leased memory."""
    copy = pool.lease(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy
