"""JPEG files with a restart marker after every row of blocks, made without loss: no coefficient changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels import jpeg_markers, jpeg_restarts
from loaderx.sources.byte_rows import Buffer

from .jpeg import BLOCK, Markers, bytes_of

START, END = b"\xff\xd8", b"\xff\xd9"
# The parameters of a scan of a sequential file: all coefficients, in full precision.
WHOLE_SCAN = bytes((0, 63, 0))
# Differences of DC values have at most 11 bits in files of 8 bits, so there are 12 categories.
CATEGORIES = 12
# The numbers of codes of 1 to 16 bits in the table of ITU-T T.81, K.3.3.1. It has every category.
STANDARD = bytes((0, 1, 5, 1, 1, 1, 1, 1, 1)) + bytes(7)
# Limits of the format: blocks of an MCU, and samples of a component per MCU, across or down.
MOST_BLOCKS, MOST_SAMPLES = 10, 4
COMPONENTS = (1, 3)
TABLES = 4


class Segment(NamedTuple):
    """Segment of a header: its marker, where it begins, where its content begins, and where it ends."""

    marker: int
    begin: int
    content: int
    end: int


class Huffman(NamedTuple):
    """Huffman table: the numbers of codes of 1 to 16 bits, and their symbols."""

    counts: bytes
    symbols: bytes

    def codes(self) -> dict[int, tuple[int, int]]:
        """Return the code of each symbol, and its length."""
        found, code, index = {}, 0, 0
        for length, count in enumerate(self.counts, 1):
            for symbol in self.symbols[index : index + count]:
                found[symbol] = code, length
                code += 1
            index += count
            code <<= 1
        return found

    def extended(self) -> "Huffman":
        """Return a table with every category of differences, if possible with the same codes for those that it has.

        The standard leaves the code of ones unused, so longer ones can begin with it.
        """
        missing = bytes(one for one in range(CATEGORIES) if one not in self.symbols)
        if not missing:
            return self
        lengths = [length for length, count in enumerate(self.counts, 1) for _ in range(count)]
        longest = max(lengths, default=0)
        unused = (1 << longest) - sum(1 << longest - length for length in lengths)
        if unused < 1 or longest + len(missing) > len(self.counts):
            return Huffman(STANDARD, bytes(range(CATEGORIES)))
        added = range(longest + 1, longest + 1 + len(missing))
        counts = bytes(count + (length in added) for length, count in enumerate(self.counts, 1))
        return Huffman(counts, self.symbols + missing)


@dataclass(frozen=True)
class Scan:
    """Blocks of an MCU, (component, DC table, AC table) each; MCU and rows of them; and DC tables, then AC tables."""

    blocks: list[tuple[int, int, int]]
    per_row: int
    rows: int
    tables: dict[int, Huffman]


def has_restart_rows(markers: Markers) -> bool:
    """Return True if there is a restart marker wherever a row of blocks ends, or one row only."""
    if not markers.sequential:
        return False
    per_row = -(-markers.width // (BLOCK * markers.across))
    one_row = markers.height <= BLOCK * markers.down
    return one_row or (markers.interval > 0 and per_row % markers.interval == 0)


def with_restart_rows(data: Buffer, markers: Markers) -> bytes | None:
    """Return a file with the same coefficients and a restart marker after every row of blocks.

    None if the file has no single scan with Huffman codes, or is damaged.
    """
    segments = list(_segments(data, markers))
    scan = _scan(data, markers, segments)
    if scan is None:
        return None
    new = {number: scan.tables[number].extended() for number in scan.tables if number < TABLES}
    found = _compressed(data, markers, scan, new)
    if found is None:
        return None
    pixels, used = found
    *before, last = segments
    others = [one for one in before if one.marker != jpeg_markers.INTERVALS]
    parts = [START, *(bytes(data[one.begin : one.end]) for one in others)]
    for number, table in new.items():
        own, codes = scan.tables[number].codes(), table.codes()
        if any(own.get(one) != codes[one] for one in codes if used[number] >> one & 1):
            content = bytes([number]) + table.counts + table.symbols
            parts.append(_segment(jpeg_markers.HUFFMAN, content))
    parts.append(_segment(jpeg_markers.INTERVALS, scan.per_row.to_bytes(2, "big")))
    parts.append(bytes(data[last.begin : last.end]))
    return b"".join([*parts, pixels.data, END])


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([255, marker]) + (2 + len(content)).to_bytes(2, "big") + content


def _segments(data: Buffer, markers: Markers) -> Iterator[Segment]:
    """Yield the segments of a header that has been read without an error; the last is that of the scan."""
    place = len(START)
    while place < markers.scan:
        begin = place
        while data[place] == 255:
            place += 1
        marker = data[place]
        place += 1
        # Markers without a content.
        if marker == jpeg_markers.TEM or jpeg_markers.RESTART <= marker < jpeg_markers.BEGIN:
            continue
        content, place = place + 2, place + int.from_bytes(data[place : place + 2], "big")
        yield Segment(marker, begin, content, place)


def _scan(data: Buffer, markers: Markers, segments: list[Segment]) -> Scan | None:
    """Return what the header says about the scan, or None if that is unusual."""
    if not markers.sequential or markers.precision != 8 or markers.components not in COMPONENTS:
        return None
    (place,) = (one.content for one in segments if one.content == markers.height_place - 1)
    frame = bytes(data[place + 6 : place + 6 + 3 * markers.components])
    names, sampling = frame[::3], frame[1::3]
    begin = segments[-1].content + 1
    listed = bytes(data[begin : begin + 2 * markers.components])
    rest = bytes(data[begin + len(listed) : segments[-1].end])
    tables = _tables(data, segments)
    if listed[::2] != names or len(set(names)) < len(names) or rest != WHOLE_SCAN or tables is None:
        return None
    # A single component has MCU of one block, whatever its sampling.
    sides = [(one >> 4, one & 15) for one in sampling] if len(sampling) > 1 else [(1, 1)]
    if not all(1 <= side <= MOST_SAMPLES for one in sides for side in one):
        return None
    blocks = [
        (component, chosen >> 4, chosen & 15)
        for component, ((across, down), chosen) in enumerate(zip(sides, listed[1::2], strict=True))
        for _ in range(across * down)
    ]
    used = {dc for _, dc, _ in blocks} | {TABLES + ac for _, _, ac in blocks}
    if len(blocks) > MOST_BLOCKS or not used <= tables.keys():
        return None
    across, down = (BLOCK * max(side) for side in zip(*sides, strict=True))
    return Scan(
        blocks,
        -(-markers.width // across),
        -(-markers.height // down),
        {number: tables[number] for number in sorted(used)},
    )


def _tables(data: Buffer, segments: list[Segment]) -> dict[int, Huffman] | None:
    """Return the Huffman tables of a header, None if one is damaged. AC tables follow those for DC."""
    found: dict[int, Huffman] = {}
    for segment in segments:
        content = bytes(data[segment.content : segment.end])
        while segment.marker == jpeg_markers.HUFFMAN and content:
            counts = content[1 : 1 + jpeg_restarts.LENGTHS]
            end = 1 + jpeg_restarts.LENGTHS + sum(counts)
            kind, number = content[0] >> 4, content[0] & 15
            known = kind < 2 and number < TABLES and sum(counts) <= jpeg_restarts.SYMBOLS
            if len(content) < end or not known:
                return None
            symbols = content[1 + jpeg_restarts.LENGTHS : end]
            found[TABLES * kind + number] = Huffman(counts, symbols)
            content = content[end:]
    return found


def _compressed(
    data: Buffer, markers: Markers, scan: Scan, new: dict[int, Huffman]
) -> tuple[NDArray[np.uint8], list[int]] | None:
    """Return the compressed pixels, and of each new table the categories that they use, as bits."""
    width = jpeg_restarts.LENGTHS + jpeg_restarts.SYMBOLS
    tables = np.zeros((jpeg_restarts.TABLES, width), np.uint8)
    for first, group in ((0, scan.tables), (jpeg_restarts.NEW, new)):
        for number, table in group.items():
            whole = table.counts + table.symbols
            tables[first + number, : len(whole)] = np.frombuffer(whole, np.uint8)
    decoders = np.empty((2 * TABLES, jpeg_restarts.DECODER), np.int32)
    codes = np.empty((TABLES, jpeg_restarts.CATEGORIES), np.int32)
    last = np.empty((2, max(COMPONENTS)), np.int64)
    result = np.empty(jpeg_restarts.RESULTS, np.int64)
    # A marker, padding and differences are 8 bytes per row, rarely more.
    room = len(data) - markers.scan + 16 * scan.rows + 64
    while True:
        out = np.empty(room, np.uint8)
        jpeg_restarts.insert_restarts(
            bytes_of(data),
            markers.scan,
            scan.rows,
            scan.per_row,
            markers.interval,
            np.array(scan.blocks, np.int64),
            tables,
            decoders,
            codes,
            last,
            out,
            result,
        )
        status, size, place, *used = result.tolist()
        if status != jpeg_restarts.FULL:
            break
        room *= 2
    if status != jpeg_restarts.FINE or data[place] != jpeg_markers.END:
        return None
    return out[:size], used
