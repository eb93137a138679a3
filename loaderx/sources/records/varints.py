"""Numbers of as many bytes as they need, and the protobuf fields made of them."""

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.framing import VARINT_BYTES, write_varints


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes) -> bytes:
    """A protobuf field with bytes in it."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varints_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Numbers as varints side by side, and where each ends."""
    out, ends = np.empty(len(numbers) * VARINT_BYTES, np.uint8), np.empty(len(numbers), np.int64)
    write_varints(numbers, ends, out)
    return out, ends
