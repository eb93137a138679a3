"""zstd for compiled code: the C library inside the zstandard package, or its Python API if the library is hidden."""

import ctypes
import functools
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

NAMES = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx")
# Largest window that the frame of a record may ask for: `window_log` of the writer is at most 31.
MAX_WINDOW_BYTES = 1 << 31
Callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


class Decompressor:
    """Address of a function (context, target, room, source, size) -> bytes, and contexts for it."""

    def __init__(self, library: ctypes.CDLL | None) -> None:
        self._library = library
        if library is None:
            # Acquires the GIL for every record, but works everywhere.
            self._callback = Callback(decompress_in_python)
            self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
            return
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
        self.address = ctypes.cast(library.ZSTD_decompressDCtx, ctypes.c_void_p).value or 0

    @property
    def native(self) -> bool:
        """True if compiled code calls the C library directly."""
        return self._library is not None

    def context(self, owner: Any) -> int:
        """Return a context for one thread, which is freed with its owner."""
        if self._library is None:
            return 0
        context = self._library.ZSTD_createDCtx()
        if not context:
            raise MemoryError("no memory for a zstd context")
        weakref.finalize(owner, self._library.ZSTD_freeDCtx, context)
        return int(context)


@functools.cache
def decompressor() -> Decompressor:
    """Return the fastest decompressor of this installation."""
    for file in libraries():
        with suppress(OSError):
            library = ctypes.CDLL(str(file))
            if all(hasattr(library, name) for name in NAMES):
                return Decompressor(library)
    return Decompressor(None)


def libraries() -> Iterable[Path]:
    """Yield the compiled modules of the zstandard package; the one for cffi exports the functions of zstd."""
    folder = Path(zstandard.__file__).parent
    return sorted(folder.glob("_cffi*.so")) + sorted(folder.glob("backend_c*.so"))


def decompress_in_python(_context: int, target: int, room: int, source: int, size: int) -> int:
    """Decompress by the package's Python API, with the same arguments as the C function."""
    try:
        frame = ctypes.string_at(source, size)
        # Otherwise it would allocate as much memory as the frame claims.
        if zstandard.frame_content_size(frame) > room:
            return -1
        engine = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        # 0 would mean no limit.
        values = engine.decompress(frame, max_output_size=max(room, 1), allow_extra_data=False)
    except zstandard.ZstdError:
        return -1
    if len(values) > room:
        return -1
    ctypes.memmove(target, values, len(values))
    return len(values)
