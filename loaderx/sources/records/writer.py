"""Writer of ArrayRecord files: threads compress and frame blocks of records, which are written in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, TypeVar

from numpy.typing import DTypeLike
from tqdm import tqdm

from loaderx.errors import ArgumentError

from .arguments import encoding_of, given_content, records_of, target_of, threads_of
from .cursor import FileCursor, frame, signature
from .encoding import Encoding
from .footer import Entries, trailer
from .inputs import ArrayInput, IterableInput
from .replacing import replacing

Item = TypeVar("Item")
Result = TypeVar("Result")

# 1 to 16 MB are equally fast for rows of 3 KB and 180 KB. Small, since a few per thread are in memory.
BLOCK_BYTES = 2 << 20


def write_array_record(
    path: str | os.PathLike[str],
    data: Any,
    *,
    compression: Literal["zstd", "uncompressed"] | None = "zstd",
    level: int = 3,
    group_size: int = 1,
    dtype: DTypeLike | None = None,
    shape: tuple[int | None, ...] | None = None,
    fields: Mapping[str, Any] | None = None,
    progress: bool = True,
    workers: int | None = None,
) -> None:
    """Write an ArrayRecord file, which appears under its name when it is complete.

    path         the file; an existing file is replaced
    data         an array, the path of a .npy file, or an iterable of arrays, `bytes` or dicts: one record per row
    compression  "zstd", or "uncompressed" or None
    level        of zstd, from -131072 (fast) to 22 (small)
    group_size   records that are compressed, and later read, together; 1 is fastest in random order
    dtype        dtype of records of `bytes`; arrays have their own
    shape        shape of records of `bytes`; None as the first size for records of any length
    fields       fields of records that are dicts, such as {"image": Encoded(), "label": "int64"}: each is `Encoded()`
                 for the bytes of an encoded image, a dtype, or a dtype and a shape
    progress     show a bar while standard error is a terminal
    workers      how many threads compress; None is one per core
    """
    encoding = encoding_of(compression, level, group_size)
    threads = threads_of(workers)
    target = target_of(path)
    if isinstance(data, str | os.PathLike) and target.exists() and target.samefile(data):
        raise ArgumentError(
            f"`path` (={str(path)!r}) is the file that `data` names: write the records to another file."
        )
    records = records_of(data, given_content(dtype, shape, fields), encoding.group)
    with (
        replacing(target) as file,
        tqdm(total=records.count, unit=" records", disable=None if progress else True) as bar,
    ):
        _write(file, records, encoding, threads, bar.update)


def _write(
    file: BinaryIO,
    records: ArrayInput | IterableInput,
    encoding: Encoding,
    threads: int,
    written: Callable[[int], Any],
) -> None:
    """Write the whole file, from the signature to the last padding."""
    cursor = FileCursor()
    file.write(frame(cursor.place(signature())).data)
    index: list[Entries] = []
    # Not `with`: after a failure, blocks that have not begun are dropped.
    pool = ThreadPoolExecutor(threads, "loaderx-writer")
    try:
        encoded = in_order(pool, encoding.encode, records.blocks(BLOCK_BYTES), threads + 1)
        placed = map(cursor.place, encoded)
        framed = in_order(pool, lambda place: (place, frame(place)), placed, threads)
        for (chunks, begins), memory in framed:
            file.write(memory.data)
            index.append((begins[:-1], chunks.decoded, chunks.records))
            written(int(chunks.records.sum()))
    finally:
        pool.shutdown(cancel_futures=True)
    if not index:
        raise ArgumentError("`data` has no records: there is nothing to write.")
    for last in trailer(cursor, index, encoding, records.content()):
        file.write(frame(last).data)


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
) -> Iterator[Result]:
    """Map a function in threads, with at most `ahead` results that wait: this is the back-pressure."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
