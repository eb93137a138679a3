"""Intact ArrayRecord files of every kind, to be damaged, and the positions of everything in them."""

import itertools
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER, end_of, position_of
from loaderx.kernels.chunks import ZSTD
from tests import reference
from tests.loaderx.sources.record_files import write
from tests.reference import entry_fields, split_records, split_varint

# A record is repetitions of these bytes.
STEP = 12


@dataclass(frozen=True)
class Chunk:
    """Chunk in a file, and its entry in the footer."""

    begin: int
    end: int
    decoded: int
    count: int


@dataclass(frozen=True, eq=False)
class Original:
    """Intact file."""

    name: str
    data: bytes
    records: list[bytes]
    chunks: list[Chunk]
    footer: int
    fixed: bool
    # The records as a loader delivers them.
    loaded: list[bytes] = field(default_factory=list)

    @property
    def size(self):
        return len(self.data)

    @property
    def blocks(self):
        return len(self.data) // BLOCK

    @property
    def postscript(self):
        return self.size - BLOCK

    @cached_property
    def begins(self):
        """Positions of all chunks, with those of the footer and the postscript."""
        return [*(chunk.begin for chunk in self.chunks), self.footer, self.postscript]

    @cached_property
    def headers(self):
        """Positions of the bytes of headers of blocks and chunks, and of the first bytes of a chunk's data."""
        found = [places(begin, 0, CHUNK_HEADER + 8) for begin in (0, *self.begins)]
        found += [np.arange(BLOCK_HEADER) + BLOCK * block for block in range(self.blocks)]
        return np.concatenate(found).tolist()

    @cached_property
    def index(self):
        """Positions of the bytes of the footer and the postscript."""
        found = [
            places(begin, 0, CHUNK_HEADER + len(chunk_at(self.data, begin)[1]))
            for begin in (self.footer, self.postscript)
        ]
        return np.concatenate(found).tolist()

    @cached_property
    def words(self):
        """Positions of the numbers of 8 bytes in headers."""
        found = [places(begin, 0, CHUNK_HEADER)[::8] for begin in self.begins]
        found += [BLOCK * block + np.arange(0, BLOCK_HEADER, 8) for block in range(self.blocks)]
        return np.concatenate(found).tolist()

    @cached_property
    def footer_messages(self):
        """Records of the footer."""
        return records_at(self.data, self.footer)


def write_originals(folder):
    """Write files with every combination of options and sizes."""
    made = []
    for codec, group, fixed, padded in itertools.product(
        ("uncompressed", "zstd"), (1, 5), (True, False), (True, False)
    ):
        name = f"{codec}-{group}-{'fixed' if fixed else 'varying'}{'-padded' if padded else ''}"
        made.append(write_original(folder / name, codec, group, fixed, padded))
    return made


def write_original(path, codec, group, fixed, padded):
    rng = np.random.default_rng(len(path.name))
    # With padding each chunk has its own block, unless it is larger; without, some chunks span two blocks.
    most = 12_000 if group == 1 else 5000
    count = 5 if padded and group == 1 else 12
    sizes = np.full(count, most // STEP * STEP)
    if not fixed:
        sizes = rng.integers(0, most // STEP, count) * STEP
        # The second record is empty, and two are equal.
        sizes[[1, 4]] = 0, sizes[3]
    records = []
    for size in sizes.tolist():
        values = rng.integers(0, 256, size, dtype=np.uint8)
        values[size // 2 :] //= 64
        records.append(values.tobytes())
    options = f"group_size:{group},{codec},pad_to_block_boundary:{'true' if padded else 'false'}"
    data = write(path, records, options).read_bytes()
    footer, _ = split_varint(records_at(data, len(data) - BLOCK)[0][1:])
    found = []
    for entry in records_at(data, footer)[1:]:
        begin, decoded, count = entry_fields(entry)
        end = end_of(begin, CHUNK_HEADER + len(chunk_at(data, begin)[1]))
        found.append(Chunk(begin, end, decoded, count))
    return Original(path.name, data, records, found, footer, fixed)


def places(begin, first, count):
    """Return the positions in the file of bytes of a chunk."""
    return position_of(begin, np.arange(first, first + count))


def chunk_at(data, begin):
    """Return the numbers of a chunk's header, (kind, records, decoded size), and its data."""
    data = np.frombuffer(data, np.uint8)
    header = data[places(begin, 0, CHUNK_HEADER)].view("<u8").tolist()
    content = data[places(begin, CHUNK_HEADER, header[1])].tobytes()
    return (header[3] & 255, header[3] >> 8, header[4]), content


def records_of(content, count):
    """Return the records in the data of an intact chunk."""
    length, taken = split_varint(content[1:10])
    first = 1 + taken
    listed, values = content[first : first + length], content[first + length :]
    if content[0] == ZSTD:
        listed, values = unpacked(listed), unpacked(values)
    ends = split_records(listed, count, len(values)).tolist()
    return [values[start:stop] for start, stop in itertools.pairwise([0, *ends])]


def records_at(data, begin):
    """Return the records of an intact chunk."""
    (_, count, _), content = chunk_at(data, begin)
    return records_of(content, count)


def unpacked(part):
    """Return a part of a chunk's data, decompressed."""
    return reference.unpacked(part, split_varint(part)[0], len(part))
