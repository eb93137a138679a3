"""The index of a file gives offset, size and records of each chunk, and a row is located in the file that holds it."""

import numpy as np
import pytest

from loaderx.kernels import chunks
from tests import reference
from tests.kernels.built_chunks import entry_of
from tests.kernels.chunk_reading import MODULES, index_of
from tests.reference import varint

ENTRY = entry_of(64, 100, 1)
LARGEST = 2**63 - 1


@MODULES
def test_an_index_has_three_numbers_of_each_chunk(module):
    numbers = [[64, 100, 1], [0, 0, 0], [LARGEST, 2**40, 127], [128, LARGEST, LARGEST]]
    assert index_of(module, [entry_of(*row) for row in numbers]) == (-1, numbers)
    turned = b"\x18" + varint(3) + b"\x08" + varint(300) + b"\x10" + varint(2)
    assert index_of(module, [turned]) == (-1, [[300, 2, 3]])
    assert index_of(module, [b"\x08\x05" + ENTRY]) == (-1, [[64, 100, 1]])


@MODULES
@pytest.mark.parametrize(
    "entry",
    [
        b"",
        ENTRY[:-2],
        ENTRY[:-1],
        ENTRY[2:],
        ENTRY[:-1] + b"\x80",
        ENTRY + b"\x08",
        ENTRY + b"\x20\0",
        ENTRY + b"\x0a\x01x",
        b"\x08" + varint(2**64 - 1) + ENTRY[2:],
        b"\x08" + b"\x80" * 9 + b"\0" + ENTRY[2:],
        b"\x08" + b"\xff" * 30,
    ],
)
def test_an_invalid_entry_of_an_index_is_named(module, entry):
    wrong, found = index_of(module, [ENTRY, ENTRY, entry, ENTRY])
    assert wrong == 2
    assert found == [[64, 100, 1], [64, 100, 1], [-7] * 3, [-7] * 3]


# Rows of several files.


@pytest.mark.parametrize("lengths", [[5], [1], [3, 4, 2], [0, 3, 0, 0, 2, 0], [1] * 20])
def test_a_row_is_located_in_the_file_that_holds_it(lengths):
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    indices = [
        1000 * file + np.arange(length + 1, dtype=np.int64) ** 2
        for file, length in enumerate(lengths)
    ]
    bases = 10**9 + np.arange(len(lengths), dtype=np.int64)
    settings = 10**6 + np.arange(len(lengths), dtype=np.int64)
    # Every third file is read by another source.
    offsets = np.array(
        [0 if file % 3 == 2 else index.ctypes.data for file, index in enumerate(indices)], np.int64
    )
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(starts[-1]), 2))
    found = []
    for module in (chunks, reference):
        entries = np.full((len(rows), chunks.ENTRY_WORDS), -7, np.int64)
        addresses = np.full(len(rows), -7, np.int64)
        module.locate_records(rows, starts, bases, settings, offsets, entries, addresses)
        assert addresses.tolist() == [entry.ctypes.data for entry in entries]
        found.append(entries.tolist())

    assert found[0] == found[1]
    owners = np.repeat(np.arange(len(lengths)), lengths)
    assert entries[:, chunks.BASE].tolist() == bases[owners[rows]].tolist()
    assert (entries[:, chunks.CHUNK] == rows - starts[owners[rows]]).all()
    assert ((entries[:, chunks.BEGIN] == -1) == (owners[rows] % 3 == 2)).all()
