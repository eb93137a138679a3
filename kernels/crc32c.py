"""CRC-32C of bytes, eight at a time by tables: the checksum of TFRecord files."""

import numpy as np
from numpy.typing import NDArray

from .compilation import kernel

# Castagnoli's polynomial, its lowest bit first.
POLYNOMIAL = 0x82F63B78


def _tables() -> NDArray[np.uint32]:
    """Return, for each place in a word, the effect that each value of a byte there has on the checksum."""
    tables = np.zeros((8, 256), np.uint32)
    rest = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        rest = np.where(rest & 1, (rest >> 1) ^ POLYNOMIAL, rest >> 1).astype(np.uint32)
    tables[0] = rest
    for place in range(1, 8):
        rest = (rest >> 8) ^ tables[0][rest & 255]
        tables[place] = rest
    return tables


TABLES = _tables()


@kernel
def crc32c(data: NDArray[np.uint8]) -> int:
    """Return the checksum of an array."""
    crc = np.uint32(0xFFFFFFFF)
    whole = data.shape[0] // 8 * 8
    for i in range(0, whole, 8):
        low = np.uint32(data[i]) | np.uint32(data[i + 1]) << np.uint32(8)
        low |= np.uint32(data[i + 2]) << np.uint32(16) | np.uint32(data[i + 3]) << np.uint32(24)
        low ^= crc
        crc = (
            TABLES[7, low & np.uint32(255)]
            ^ TABLES[6, low >> np.uint32(8) & np.uint32(255)]
            ^ TABLES[5, low >> np.uint32(16) & np.uint32(255)]
            ^ TABLES[4, low >> np.uint32(24)]
            ^ TABLES[3, data[i + 4]]
            ^ TABLES[2, data[i + 5]]
            ^ TABLES[1, data[i + 6]]
            ^ TABLES[0, data[i + 7]]
        )
    for i in range(whole, data.shape[0]):
        crc = crc >> np.uint32(8) ^ TABLES[0, (crc ^ np.uint32(data[i])) & np.uint32(255)]
    return int(crc ^ np.uint32(0xFFFFFFFF))
