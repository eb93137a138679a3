"""Blocks of a Snappy stream that can be decompressed without those before them."""

import numpy as np
from numpy.typing import NDArray

from .compilation import kernel

# The result of `snappy_blocks` for bytes that are not such a stream.
DAMAGED = -1


@kernel
def snappy_blocks(
    data: NDArray[np.uint8],
    begin: int,
    size: int,
    least: int,
    unpacked: NDArray[np.int64],
    packed: NDArray[np.int64],
) -> int:
    """Find the blocks of at least `least` unpacked bytes in a stream of `size`, whose elements begin at `begin`.

    Block b is unpacked[b] to unpacked[b + 1] of the unpacked bytes, and packed[b] to packed[b + 1] of `data`. Return
    their number. Compressors forget what they have seen every 64 KiB, so that there are such blocks.
    """
    place, position, count, after = begin, 0, 0, 0
    stop = data.shape[0]
    while place < stop:
        if position >= after and count < unpacked.shape[0] - 1:
            unpacked[count] = position
            packed[count] = place
            count += 1
            after = position + least
        tag = int(data[place])
        place += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                if place + width > stop:
                    return DAMAGED
                length = 1
                for i in range(width):
                    length += int(data[place + i]) << (8 * i)
                place += width
            place += length
        else:
            width = 4 if kind == 3 else kind
            if place + width > stop:
                return DAMAGED
            offset = 0
            for i in range(width):
                offset += int(data[place + i]) << (8 * i)
            place += width
            length = (tag >> 2) + 1
            if kind == 1:
                length = (tag >> 2 & 7) + 4
                offset += tag >> 5 << 8
            if offset == 0 or offset > position:
                return DAMAGED
            # A copy from before the beginning of a block: so no block begins there.
            while unpacked[count - 1] > position - offset:
                count -= 1
                after = position
        position += length
        if position > size or place > stop:
            return DAMAGED
    if position != size:
        return DAMAGED
    unpacked[count] = position
    packed[count] = place
    return count
