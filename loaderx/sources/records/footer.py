"""Footer of an ArrayRecord file, and the postscript that points to it."""

from collections.abc import Iterator

import numpy as np

from loaderx.kernels.framing import ENTRY_BYTES, write_entries

from .content import Content
from .cursor import FileCursor, PlacedChunks, padding_from
from .encoding import Chunks, Encoding
from .format import CONTENT_FIELD, MAGIC
from .inputs import Numbers, Records, joined_records
from .varints import field, varint

# Of each chunk: its position, the size of its records in bytes, and their number.
Entries = tuple[Numbers, Numbers, Numbers]


def trailer(
    cursor: FileCursor, index: list[Entries], encoding: Encoding, content: Content
) -> Iterator[PlacedChunks]:
    """Return the bytes that follow the last record."""
    footer = _footer(index, encoding, content)
    postscript = _postscript(cursor.position)
    for chunks in (footer, postscript):
        yield cursor.place(chunks)
        yield from map(cursor.place, padding_from(cursor.position))


def _footer(index: list[Entries], encoding: Encoding, content: Content) -> Chunks:
    """Return the chunk with the metadata of the file and the position of each chunk."""
    begins, decoded, records = (np.concatenate(parts) for parts in zip(*index, strict=True))
    counts = b"\x10" + varint(len(begins)) + b"\x18" + varint(int(records.sum()))
    version = b"\x08\x01"
    metadata = field(1, version + counts + field(4, encoding.options.encode()))
    if described := content.as_json():
        metadata += field(CONTENT_FIELD, described)
    entries = np.empty(len(metadata) + len(begins) * ENTRY_BYTES, np.uint8)
    ends = np.empty(len(begins), np.int64)
    entries[: len(metadata)] = np.frombuffer(metadata, np.uint8)
    write_entries(begins, decoded, records, ends, entries[len(metadata) :])
    sizes = np.concatenate([[len(metadata)], np.diff(ends, prepend=0)])
    values = entries[: len(metadata) + int(ends[-1])]
    return Encoding(encoding.level, len(sizes)).encode(lambda: Records(values, sizes))


def _postscript(footer_offset: int) -> Chunks:
    """Return the chunk in the last block that points to the footer; the format requires it three times."""
    message = b"\x08" + varint(footer_offset) + b"\x10" + varint(MAGIC)
    return Encoding(None, 3).encode(lambda: joined_records([message] * 3))
