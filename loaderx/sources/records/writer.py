"""Writing an ArrayRecord file: blocks of records are compressed and framed in threads, and written in order."""

import json
import math
import os
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import zstandard
from numpy.typing import DTypeLike, NDArray
from tqdm import tqdm

from loaderx.cores import cores
from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.blocks import BLOCK, BLOCK_HEADER, CHUNK_HEADER
from loaderx.kernels.framing import (
    ENTRY_BYTES,
    PADDING,
    SIGNATURE,
    SIMPLE,
    VARINT_BYTES,
    lay_chunks,
    place_chunks,
    write_entries,
    write_heads,
    write_varints,
)
from loaderx.sources.npy import MappedFile
from loaderx.spec import check_dtype

from .format import CONTENT_FIELD, MAGIC

Numbers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Item = TypeVar("Item")
Result = TypeVar("Result")

# From 1 to 16 MB the same speed for rows of 3 KB and 180 KB: small, for there are a few per thread in memory.
BLOCK_BYTES = 2 << 20
# What a record costs besides its bytes, so that a block of empty ones has an end too.
RECORD_BYTES = 64

LEVELS = -131072, 22
LARGEST_GROUP = 2**31 - 1
# What array_record's own writer takes, and says so in the footer.
WINDOW_LOG = 20


def write_array_record(
    path: str | os.PathLike[str],
    data: Any,
    *,
    compression: Literal["zstd", "uncompressed"] | None = "zstd",
    level: int = 3,
    group_size: int = 1,
    dtype: DTypeLike | None = None,
    shape: tuple[int | None, ...] | None = None,
    progress: bool = True,
    workers: int | None = None,
) -> None:
    """Write an ArrayRecord file, which appears under its name when it is complete.

    path         the file; one of that name is replaced
    data         an array, the path of a .npy file, or an iterable of arrays or of `bytes`: one record per row
    compression  "zstd", or "uncompressed" or None
    level        of zstd, from -131072 (fast) to 22 (small)
    group_size   records that are compressed, and later read, together; 1 is fast to read in any order
    dtype        what records of `bytes` hold; arrays say it themselves
    shape        the same; a None in front for records of various lengths
    progress     show a bar while standard error is a terminal
    workers      how many threads compress; None is one per core
    """
    if compression not in ("zstd", "uncompressed", None):
        raise ArgumentError(
            f'`compression` (={compression!r}) must be "zstd", "uncompressed" or None.'
        )
    level = _integer("level", level, *LEVELS)
    group_size = _integer("group_size", group_size, 1, LARGEST_GROUP)
    threads = cores() if workers is None else _integer("workers", workers, 1, LARGEST_GROUP)
    given = _given_content(dtype, shape)
    records = _records(data, given, group_size)
    encoding = Encoding(level if compression == "zstd" else None, group_size)
    with (
        replacing(_target(path)) as file,
        tqdm(total=records.count, unit=" records", disable=None if progress else True) as bar,
    ):
        _write(file, records, encoding, threads, bar.update)


def _write(
    file: BinaryIO,
    records: "Rows | Stream",
    encoding: "Encoding",
    threads: int,
    written: Callable[[int], Any],
) -> None:
    """The whole file, from the signature to the last padding."""
    layout = Layout()
    file.write(frame(layout.place(marker(SIGNATURE, 0))).data)
    index: list[tuple[Numbers, Numbers, Numbers]] = []
    # Not `with`: when something fails, blocks not yet begun are dropped.
    pool = ThreadPoolExecutor(threads, "loaderx-writer")
    try:
        encoded = in_order(pool, encoding.encode, records.blocks(), threads + 1)
        placed = map(layout.place, encoded)
        framed = in_order(pool, lambda place: (place, frame(place)), placed, threads)
        for (chunks, begins), memory in framed:
            file.write(memory.data)
            index.append((begins[:-1], chunks.decoded, chunks.records))
            written(int(chunks.records.sum()))
    finally:
        pool.shutdown(cancel_futures=True)
    if not index:
        raise ArgumentError("`data` has no records: there is nothing to write.")

    footer = footer_of(index, encoding, records.content())
    postscript = postscript_of(layout.position)
    for chunks in (footer, postscript):
        file.write(frame(layout.place(chunks)).data)
        for padding in padding_from(layout.position):
            file.write(frame(layout.place(padding)).data)


# What goes in: rows of an array or records of an iterable, as blocks of bytes.


@dataclass(frozen=True)
class Content:
    """Dtype and shape of a record; without a dtype it is bytes, with None in front its length varies."""

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        return "bytes" if self.dtype is None else f"{self.dtype}{list(self.shape)}"

    def admits(self, other: "Content") -> bool:
        """Whether a record of the other kind can stand in the same file."""
        return self.dtype == other.dtype and (
            self.shape == other.shape
            or (len(self.shape) == len(other.shape) > 0 and self.shape[1:] == other.shape[1:])
        )

    def fits(self, nbytes: int) -> bool:
        """Whether a record of so many bytes can be of this kind."""
        if self.dtype is None:
            return True
        lengths = [length for length in self.shape if length is not None]
        unit = math.prod(lengths) * self.dtype.itemsize
        varies = len(lengths) < len(self.shape)
        return nbytes % unit == 0 if varies and unit else nbytes == unit

    def as_json(self) -> bytes:
        """As it is stored in the footer."""
        if self.dtype is None:
            return b""
        # NumPy spells the dtypes that others add, such as bfloat16, as bytes without a meaning.
        plain = np.dtype(self.dtype.str) == self.dtype
        name = self.dtype.str if plain else self.dtype.name
        return json.dumps({"loaderx": 1, "dtype": name, "shape": self.shape}).encode()


@dataclass(frozen=True)
class Records:
    """Records side by side."""

    values: Bytes
    sizes: Numbers


class Rows:
    """The rows of an array."""

    def __init__(self, array: NDArray[Any], group: int, check: Callable[[], None]) -> None:
        self.count: int | None = len(array)
        self._array, self._check = array, check
        self._dtype = array.dtype.newbyteorder("<")
        self._row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
        chunk = group * (self._row_bytes + RECORD_BYTES)
        self._rows = group * max(1, BLOCK_BYTES // chunk)

    def content(self) -> Content:
        """What the records hold."""
        return Content(self._dtype, self._array.shape[1:])

    def blocks(self) -> Iterator[Callable[[], Records]]:
        """Parts of the array, each a function that brings it into C order: this too is for the threads to do."""
        for start in range(0, len(self._array), self._rows):
            self._check()
            part = self._array[start : start + self._rows]
            yield lambda part=part: self._straightened(part)  # type: ignore[misc]

    def _straightened(self, part: NDArray[Any]) -> Records:
        straight = np.ascontiguousarray(part, self._dtype).reshape(-1)
        return Records(straight.view(np.uint8), np.full(len(part), self._row_bytes, np.int64))


class Stream:
    """The records of an iterable, of which nothing is known before."""

    def __init__(self, data: Iterable[Any], group: int, given: Content | None) -> None:
        self.count = len(data) if isinstance(data, Sized) else None
        self._data, self._group, self._given = data, group, given
        self._content: Content | None = None

    def content(self) -> Content:
        """What the records hold, once all of them were seen."""
        return self._given or self._content or Content()

    def blocks(self) -> Iterator[Callable[[], Records]]:
        """Records gathered to blocks of whole chunks."""
        gathered: list[bytes] = []
        nbytes = 0
        for number, record in enumerate(self._data):
            gathered.append(self._bytes_of(number, record))
            nbytes += len(gathered[-1]) + RECORD_BYTES
            if nbytes >= BLOCK_BYTES and len(gathered) % self._group == 0:
                yield lambda block=gathered: joined(block)  # type: ignore[misc]
                gathered, nbytes = [], 0
        if gathered:
            yield lambda: joined(gathered)

    def _bytes_of(self, number: int, record: Any) -> bytes:
        """One record, copied: many generators fill the same array again and again."""
        if isinstance(record, bytes | bytearray | memoryview):
            value, content = bytes(record), Content()
        elif hasattr(record, "__array__"):
            array = np.asarray(record)
            _check_dtype(array.dtype, f"record {number} of `data`")
            content = Content(array.dtype.newbyteorder("<"), array.shape)
            value = array.astype(content.dtype, copy=False).tobytes()
        else:
            raise TypeError(
                f"record {number} of `data` is a {type(record).__name__}: records are arrays or bytes."
            )
        self._check(number, content, len(value))
        return value

    def _check(self, number: int, content: Content, nbytes: int) -> None:
        if self._given is not None:
            if content.dtype is not None:
                raise ArgumentError(
                    f"`dtype` (={self._given.dtype}) and `shape` are for records of bytes, and record "
                    f"{number} of `data` is {content}, an array."
                )
            if not self._given.fits(nbytes):
                raise DataError(
                    f"record {number} of `data` has {nbytes} bytes, which is not {self._given}."
                )
        elif self._content is None:
            self._content = content
        elif self._content != content:
            if not self._content.admits(content):
                raise DataError(
                    f"record {number} of `data` is {content}, and those before it are {self._content}: "
                    "records of one file have one dtype, and one shape but for the first axis."
                )
            self._content = Content(content.dtype, (None, *content.shape[1:]))


def joined(records: list[bytes]) -> Records:
    """Records in one piece of memory."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return Records(np.frombuffer(b"".join(records), np.uint8), sizes)


# What comes out: chunks, and where in the file they lie.


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks whose data are the pieces of memory of one row each; `owners` keep that memory."""

    kind: int
    records: Numbers
    decoded: Numbers
    addresses: Numbers
    sizes: Numbers
    owners: tuple[Bytes, ...]


Placed = tuple[Chunks, Numbers]


@dataclass(frozen=True)
class Encoding:
    """Records -> chunks of `group` records, with zstd at a level or as they are."""

    level: int | None
    group: int

    def encode(self, block: Callable[[], Records]) -> Chunks:
        """The chunks of a block of records; only the last may have fewer than `group`."""
        records = block()
        starts = np.arange(0, len(records.sizes), self.group)
        decoded = np.add.reduceat(records.sizes, starts)
        counts = np.diff(starts, append=len(records.sizes))
        if self.level is None:
            owners, lengths = self._plain(records, decoded, counts)
        else:
            owners, lengths = self._compressed(self.level, records, decoded, counts)
        # A column for each piece of memory, which holds the parts of the chunks side by side.
        ends = np.cumsum(lengths, axis=0)
        bases = np.array([owner.ctypes.data for owner in owners], np.int64)
        return Chunks(SIMPLE, counts, decoded, bases + ends - lengths, lengths, owners)

    def _plain(
        self, records: Records, decoded: Numbers, counts: Numbers
    ) -> tuple[tuple[Bytes, ...], Numbers]:
        room = len(counts) * (1 + VARINT_BYTES) + len(records.sizes) * VARINT_BYTES
        heads, ends = np.empty(room, np.uint8), np.empty(len(counts), np.int64)
        write_heads(records.sizes, self.group, ends, heads)
        return (heads, records.values), np.stack([np.diff(ends, prepend=0), decoded], axis=1)

    def _compressed(
        self, level: int, records: Records, decoded: Numbers, counts: Numbers
    ) -> tuple[tuple[Bytes, ...], Numbers]:
        compress = _compressor(level)
        varints, ends = varints_of(records.sizes)
        values = records.values.data
        heads: dict[bytes, bytes] = {}
        parts: list[bytes] = []
        first = place = begin = 0
        for size, count in zip(decoded.tolist(), counts.tolist(), strict=True):
            first += count
            end = int(ends[first - 1])
            sizes = varints[begin:end].tobytes()
            # Records of one size have the same head, and most files have no other.
            if sizes not in heads:
                packed = varint(len(sizes)) + compress(sizes)
                heads[sizes] = b"z" + varint(len(packed)) + packed + varint(size)
            parts += (heads[sizes], compress(values[place : place + size]))
            begin, place = end, place + size
        lengths = np.fromiter(map(len, parts), np.int64, len(parts)).reshape(-1, 2).sum(axis=1)
        return (np.frombuffer(b"".join(parts), np.uint8),), lengths.reshape(-1, 1)


def _compressor(level: int) -> Callable[[Any], bytes]:
    # Of a thread's own: a compressor must not be used by two at once.
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=level, window_log=WINDOW_LOG, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress


class Layout:
    """How far the file reaches."""

    def __init__(self) -> None:
        self.position = 0

    def place(self, chunks: Chunks) -> Placed:
        """Where the next chunks begin, and where the last ends."""
        begins = np.empty(len(chunks.records) + 1, np.int64)
        place_chunks(self.position, chunks.sizes, chunks.records, begins)
        self.position = int(begins[-1])
        return chunks, begins


def frame(placed: Placed) -> Bytes:
    """The bytes of chunks as they stand in the file."""
    chunks, begins = placed
    # Reusing this memory gains nothing: writing to the file takes several times as long as all of framing.
    out = np.empty(begins[-1] - begins[0], np.uint8)
    lay_chunks(
        begins, chunks.kind, chunks.records, chunks.decoded, chunks.addresses, chunks.sizes, out
    )
    return out


def padding_from(position: int) -> list[Chunks]:
    """A chunk up to the next block, or to the one behind if too little room is left; none at its beginning."""
    room = -position % BLOCK
    if room == 0:
        return []
    if room < CHUNK_HEADER:
        room += BLOCK - BLOCK_HEADER
    return [marker(PADDING, room - CHUNK_HEADER)]


def marker(kind: int, zeros: int) -> Chunks:
    """A chunk without records."""
    memory, nothing = np.zeros(zeros, np.uint8), np.zeros(1, np.int64)
    address = np.array([[memory.ctypes.data]], np.int64)
    return Chunks(kind, nothing, nothing, address, np.array([[zeros]], np.int64), (memory,))


def footer_of(
    index: list[tuple[Numbers, Numbers, Numbers]], encoding: Encoding, content: Content
) -> Chunks:
    """The chunk that says what is in the file and where each chunk begins."""
    begins, decoded, records = (np.concatenate(parts) for parts in zip(*index, strict=True))
    counts = b"\x10" + varint(len(begins)) + b"\x18" + varint(int(records.sum()))
    version = b"\x08\x01"
    metadata = field(1, version + counts + field(4, _writer_options(encoding).encode()))
    if content.dtype is not None:
        metadata += field(CONTENT_FIELD, content.as_json())
    entries = np.empty(len(metadata) + len(begins) * ENTRY_BYTES, np.uint8)
    ends = np.empty(len(begins), np.int64)
    entries[: len(metadata)] = np.frombuffer(metadata, np.uint8)
    write_entries(begins, decoded, records, ends, entries[len(metadata) :])
    sizes = np.concatenate([[len(metadata)], np.diff(ends, prepend=0)])
    values = entries[: len(metadata) + int(ends[-1])]
    return Encoding(encoding.level, len(sizes)).encode(lambda: Records(values, sizes))


def postscript_of(footer_offset: int) -> Chunks:
    """The chunk in the last block, by which readers find the footer; the format wants it three times."""
    message = b"\x08" + varint(footer_offset) + b"\x10" + varint(MAGIC)
    return Encoding(None, 3).encode(lambda: joined([message] * 3))


def _writer_options(encoding: Encoding) -> str:
    """As array_record spells them: its data source, and Grain with it, looks for the group size there."""
    codec = (
        "uncompressed"
        if encoding.level is None
        else f"zstd:{encoding.level},window_log:{WINDOW_LOG}"
    )
    return (
        f"group_size:{encoding.group},transpose:false,pad_to_block_boundary:false,"
        f"{codec},max_parallelism:1"
    )


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


def varints_of(numbers: Numbers) -> tuple[Bytes, Numbers]:
    """Numbers as varints side by side, and where each ends."""
    out, ends = np.empty(len(numbers) * VARINT_BYTES, np.uint8), np.empty(len(numbers), np.int64)
    write_varints(numbers, ends, out)
    return out, ends


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
) -> Iterator[Result]:
    """`map` in threads, of which at most `ahead` results wait to be taken."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A new file beside `path`, which takes its place at the end, and is gone if there is no such end."""
    unfinished = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.unfinished")
    try:
        # Not `tempfile`: its files are for their owner only, those of `open` for whom the umask says.
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


# Arguments.


def _target(path: str | os.PathLike[str]) -> Path:
    """The file to write, behind symbolic links as for `open`."""
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no regular file"
        raise ArgumentError(f"`path` (={str(path)!r}) is {what}: give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` (={str(path)!r}): there is no folder {target.parent}.")
    return target


def _records(data: Any, given: Content | None, group: int) -> Rows | Stream:
    def nothing() -> None:
        """An array in memory does not shrink."""

    check = nothing
    if isinstance(data, str | os.PathLike):
        file = MappedFile(data)
        data, check = file.array, file.check
    if isinstance(data, bytes | bytearray | memoryview):
        raise TypeError("`data` is one record of bytes: pass an iterable of such, such as a list.")
    if hasattr(data, "__array__"):
        array = np.asarray(data)
        if array.ndim == 0:
            raise ArgumentError("`data` has no axes: its rows are the entries of the first one.")
        _check_dtype(array.dtype, "`data`")
        if given is not None:
            raise ArgumentError(
                f"`dtype` (={given.dtype}) and `shape` are for records of bytes: `data` is an array "
                f"of dtype {array.dtype} already."
            )
        if len(array) == 0:
            raise ArgumentError(f"`data` has no rows: its shape is {array.shape}.")
        return Rows(array, group, check)
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(
            f"`data` is a {type(data).__name__}: pass an array, the path of a .npy file or an iterable."
        )
    return Stream(data, group, given)


def _given_content(dtype: DTypeLike | None, shape: tuple[int | None, ...] | None) -> Content | None:
    if dtype is None and shape is None:
        return None
    if dtype is None or shape is None:
        raise ArgumentError(
            f"`dtype` (={dtype!r}) and `shape` (={shape!r}) belong together: give both or none."
        )
    element = np.dtype(dtype)
    _check_dtype(element, "`dtype`")
    lengths = tuple(shape)
    for axis, length in enumerate(lengths):
        if length is None and axis > 0:
            raise ArgumentError(f"`shape` (={shape!r}) may have None in the first place only.")
        if length is not None:
            _integer("shape", length, 0, 2**63 - 1)
    return Content(element, lengths)


def _check_dtype(dtype: np.dtype[Any], where: str) -> None:
    if dtype.hasobject:
        raise ArgumentError(
            f"{where} has dtype {dtype}: Python objects cannot be stored. Store numbers, or an "
            "iterable of `bytes`."
        )
    check_dtype(dtype, where)


def _integer(name: str, value: Any, lowest: int, highest: int) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{name}` (={value!r}) must be an integer.")
    if not lowest <= value <= highest:
        raise ArgumentError(f"`{name}` (={value}) must be from {lowest} to {highest}.")
    return int(value)
