"""ArrayRecord files by array_record's own writer, and functions that open and damage them."""

import contextlib

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from loaderx import ARDataset, Spec
from loaderx.sources.records.file import RecordFile
from tests.loaderx.sources.rows import assert_same, native

# Options for files that compiled code reads, one by one or in groups, and that only the package reads.
DIRECT = {
    "zstd": "group_size:1,zstd",
    "zstd:1": "group_size:1,zstd:1",
    "zstd:19": "group_size:1,zstd:19",
    "small window": "group_size:1,zstd,window_log:12",
    "large window": "group_size:1,zstd,window_log:31",
    "uncompressed": "group_size:1,uncompressed",
}
GROUPS = {
    "7": "group_size:7,zstd",
    "7 uncompressed": "group_size:7,uncompressed",
    "7 small window": "group_size:7,zstd:19,window_log:12",
    "1000": "group_size:1000,zstd:1",
    "1000 uncompressed": "group_size:1000,uncompressed",
}
PADDED = {
    "padded": "group_size:1,zstd,pad_to_block_boundary:true",
    "padded uncompressed": "group_size:1,uncompressed,pad_to_block_boundary:true",
    "7 padded": "group_size:7,zstd,pad_to_block_boundary:true",
    "7 padded uncompressed": "group_size:7,uncompressed,pad_to_block_boundary:true",
}
SLOW = {
    "brotli": "group_size:1,brotli",
    "7 brotli": "group_size:7,brotli:1",
    "snappy": "group_size:1,snappy",
    "7 snappy": "group_size:7,snappy",
    "transposed": "group_size:1,zstd,transpose",
    "7 transposed": "group_size:7,transpose,transpose_bucket_size:64",
    "transposed uncompressed": "group_size:7,uncompressed,transpose",
}
OPTIONS = {**DIRECT, **GROUPS, **PADDED, **SLOW}
# One of each way that records are read.
KINDS = {
    "zstd": DIRECT["zstd"],
    "uncompressed": DIRECT["uncompressed"],
    "7": GROUPS["7"],
    "7 uncompressed": GROUPS["7 uncompressed"],
    "brotli": SLOW["brotli"],
}


def write(path, records, options="group_size:1,uncompressed"):
    """Write a file of these records, which are bytes or rows of an array."""
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record if isinstance(record, bytes) else np.asarray(record).tobytes())
    writer.close()
    return path


def expected_warning(options):
    """Return the context in which a data set of such files is opened."""
    if options not in SLOW.values():
        return contextlib.nullcontext()
    return pytest.warns(UserWarning, match="array_record package")


def opened(path, array, options, **more):
    """Open a data set of rows like those of an array."""
    with expected_warning(options):
        return ARDataset(path, array.dtype, array.shape[1:], **more)


def assert_reads_as(source, array):
    """Assert that indexing a data set returns the same as indexing the array."""
    count = len(array)
    assert len(source) == count
    assert source.spec == Spec(array.shape[1:], array.dtype.newbyteorder("="))
    random = np.random.default_rng(0)
    keys = [
        *{0, count - 1, -1, -count, count // 2},
        *(slice(None), slice(None, None, -1), slice(1, None, 3), slice(count, None)),
        np.array([], np.int64),
        random.integers(-count, count, 20 if array.nbytes < 1 << 20 else 3),
        list(random.integers(0, count, 2)),
        random.random(count) < 0.5,
    ]
    for key in keys:
        assert_same(source[key], native(array)[key])
    for outside in (count, -count - 1, [0, count], np.array([-count - 1])):
        with pytest.raises(IndexError, match=f"outside of {count} rows"):
            source[outside]


def flip(path, position):
    """Damage one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ 0x10]))


def damage_record(path, number):
    """Damage a byte in the middle of the only record of a chunk, found by the index."""
    offsets = RecordFile(path, 0, False).offsets
    flip(path, int(offsets[number] + offsets[number + 1]) // 2)
