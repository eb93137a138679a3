"""Indexes of shards: each shard is scanned once, and the result is kept in a file.

The index of `train.tar` is `.train.tar.<request>.loaderx-index` next to it, or in the cache folder if that folder
cannot be written. It counts while the shard has the size and the time of modification that it had when it was scanned.
It holds data only, and a damaged one is made anew. A shard that was written within the last two seconds gets none.
"""

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.caching.folders import cache_folder
from loaderx.sources.files import open_file
from loaderx.sources.records.replacing import replacing

from .paths import scan_bar

# Another version of what a scan finds, or of the file, is another index.
VERSION = 2
MAGIC = b"loaderx-index\n"
SUFFIX = ".loaderx-index"
DIGEST_BYTES = 16
HEADER_BYTES = 8
# Scans wait for the disk most of the time.
THREADS = 16
# Some file systems keep times in whole seconds, or pairs of them. In nanoseconds.
COARSEST_TIME = 2_000_000_000
# The name of a file has at most 255 bytes.
MOST_NAME = 180

Columns: TypeAlias = dict[str, NDArray[Any]]
Stamp: TypeAlias = tuple[int, int]
Scan: TypeAlias = Callable[["Shard"], Columns]
logger = logging.getLogger("loaderx")


class StoppedError(Exception):
    """Raised in a scan that nobody waits for any more."""


class Shard:
    """File that is scanned."""

    def __init__(self, path: Path, file: BinaryIO, scanned: Callable[[int], None]) -> None:
        self.path = path
        self.size = os.fstat(file.fileno()).st_size
        self._number = file.fileno()
        self._scanned = scanned
        self._told = 0

    def read(self, length: int, offset: int) -> bytes:
        """Return bytes of the file, fewer at its end."""
        return os.pread(self._number, length, offset)

    def opened(self) -> BinaryIO:
        """Return the file for a library that wants one, to be closed."""
        return os.fdopen(os.dup(self._number), "rb")

    def reached(self, position: int) -> None:
        """Tell how far the scan is; this may end it."""
        self._scanned(position - self._told)
        self._told = position


def indexed(
    paths: Sequence[Path],
    what: str,
    request: Any,
    scan: Scan,
    accepts: Callable[[Columns, int], bool],
) -> list[tuple[Columns, Stamp]]:
    """Return what a scan of each shard finds, from its index if there is one, and the stamps of the shards.

    `request` is JSON; everything that the result of a scan depends on besides the shard must be in it. `accepts` is
    asked whether an index is consistent, with the size of the shard.
    """
    stamps = []
    for path in paths:
        with open_file(path, what) as file:
            stamps.append(_stamp(file))
    key = json.dumps([VERSION, what, request])
    found = [_load(path, stamp, key, accepts) for path, stamp in zip(paths, stamps, strict=True)]
    missing = [number for number, columns in enumerate(found) if columns is None]
    stop = threading.Event()

    with scan_bar("index", "B", sum(stamps[number][0] for number in missing)) as bar:
        bar.unit_scale = True

        def scanned(nbytes: int) -> None:
            if stop.is_set():
                raise StoppedError
            bar.update(nbytes)

        def index(number: int) -> Columns:
            with open_file(paths[number], what) as file:
                # Again: it may have been replaced meanwhile.
                stamps[number] = _stamp(file)
                columns = scan(Shard(paths[number], file, scanned))
            if not _is_recent(stamps[number]):
                _save(paths[number], stamps[number], key, columns)
            return columns

        # Not `with`: after an error the other scans end early.
        pool = ThreadPoolExecutor(min(THREADS, max(1, len(missing))), "loaderx-index")
        try:
            for number, columns in zip(missing, pool.map(index, missing), strict=True):
                found[number] = columns
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return [(columns or {}, stamp) for columns, stamp in zip(found, stamps, strict=True)]


def index_files(path: Path, key: str) -> list[Path]:
    """Return where the index of a shard may be: next to it, or in the cache folder."""
    request = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
    place = hashlib.blake2b(os.fsencode(path), digest_size=DIGEST_BYTES).hexdigest()
    name = os.fsdecode(os.fsencode(path.name)[:MOST_NAME])
    return [
        path.with_name(f".{name}.{request}{SUFFIX}"),
        cache_folder() / "indexes" / f"{place}.{request}{SUFFIX}",
    ]


def _is_recent(stamp: Stamp) -> bool:
    """Return True if a file was written just now: another write could leave it with the same stamp."""
    return 0 <= time.time_ns() - stamp[1] < COARSEST_TIME


def _stamp(file: BinaryIO) -> Stamp:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _load(
    path: Path, stamp: Stamp, key: str, accepts: Callable[[Columns, int], bool]
) -> Columns | None:
    for file in index_files(path, key):
        # Anybody may have written what is there.
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            with open_file(file, "an index") as opened:
                content = opened.read()
            begin = len(MAGIC) + DIGEST_BYTES
            if not content.startswith(MAGIC) or content[len(MAGIC) : begin] != _digest(
                content[begin:]
            ):
                continue
            length = int.from_bytes(content[begin : begin + HEADER_BYTES], "little")
            begin += HEADER_BYTES
            header = json.loads(content[begin : begin + length])
            if (header["name"], header["stamp"], header["key"]) == (path.name, [*stamp], key):
                columns = _columns(header["columns"], content, begin + length)
                if accepts(columns, stamp[0]):
                    return columns
    return None


def _columns(listed: Any, content: bytes, begin: int) -> Columns:
    columns = {}
    for name, dtype, shape in listed:
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        columns[name] = np.frombuffer(content, kind, count, begin).reshape(shape)
        begin += count * kind.itemsize
    return columns


def _save(path: Path, stamp: Stamp, key: str, columns: Columns) -> None:
    listed = [[name, array.dtype.str, array.shape] for name, array in columns.items()]
    header = json.dumps({"name": path.name, "stamp": stamp, "key": key, "columns": listed}).encode()
    parts = [len(header).to_bytes(HEADER_BYTES, "little"), header]
    content = b"".join([*parts, *(array.tobytes() for array in columns.values())])
    reasons: list[str] = []
    for file in index_files(path, key):
        try:
            if reasons:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(file) as opened:
                opened.write(MAGIC + _digest(content) + content)
            return
        except OSError as error:
            reasons.append(str(error))
    logger.warning(
        "The index of %s cannot be kept, so the file is scanned again next time: %s. Set LOADERX_CACHE_DIR to a folder "
        "that can be written.",
        path,
        "; ".join(reasons),
    )


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
