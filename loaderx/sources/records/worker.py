"""Per-thread resources for reading records."""

import threading

import numpy as np

from loaderx.errors import DataError
from loaderx.kernels import chunks

from .zstd import decompressor

_threads = threading.local()


class Worker:
    """zstd context and scratch memory of one thread."""

    def __init__(self) -> None:
        self.words = np.zeros(chunks.WORKER_WORDS, np.int64)
        self.address = self.words.ctypes.data
        zstd = decompressor()
        self.words[chunks.DECOMPRESSOR] = zstd.address
        self.words[chunks.CONTEXT] = zstd.context(self)
        self.grow(0)

    def grow(self, nbytes: int) -> None:
        """Grow the memory to at least that many bytes."""
        try:
            self._scratch = np.empty(nbytes, np.uint8)
        except (MemoryError, ValueError, OverflowError) as error:
            raise DataError(f"there is not enough memory for a record of {nbytes} bytes") from error
        self.words[chunks.SCRATCH] = self._scratch.ctypes.data
        self.words[chunks.SCRATCH_SIZE] = nbytes


def worker(nbytes: int) -> Worker:
    """Return the worker of the calling thread, with at least that much memory."""
    found: Worker | None = getattr(_threads, "worker", None)
    if found is None:
        found = _threads.worker = Worker()
    if found.words[chunks.SCRATCH_SIZE] < nbytes:
        found.grow(nbytes)
    return found
