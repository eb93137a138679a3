"""Variable-length integers, and the protobuf fields made of them."""

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.framing import VARINT_BYTES, write_varints


def varint(number: int) -> bytes:
    """Return a number as protobuf encodes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes) -> bytes:
    """Return a protobuf field that holds bytes."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varints_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return numbers as varints in one array, and the end of each."""
    out, ends = np.empty(len(numbers) * VARINT_BYTES, np.uint8), np.empty(len(numbers), np.int64)
    write_varints(numbers, ends, out)
    return out, ends
