"""Checksums are CRC-32C, as it is published and as it is computed bit by bit."""

import numpy as np
import pytest

from loaderx.kernels.crc32c import crc32c
from tests import reference

# Of RFC 3720, appendix B.4, and of the check value in all catalogues of checksums.
PUBLISHED = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_published_checksums_come_out(data, expected):
    assert crc32c(np.frombuffer(data, np.uint8)) == expected
    assert reference.crc32c(data) == expected


def test_any_length_and_alignment_has_the_checksum_that_bits_have():
    data = np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8).tobytes()
    for size in [*range(40), 127, 300]:
        for start in range(9):
            part = data[start : start + size]
            view = np.frombuffer(data, np.uint8)[start : start + size]
            assert crc32c(view) == reference.crc32c(part)
