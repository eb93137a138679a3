"""zstd for compiled code: the C library inside the zstandard package, or its Python API where that is out of reach."""

import ctypes
import functools
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

NAMES = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx")
# What the frames of a record may ask for: `window_log` of the writer goes up to 31.
MOST_WINDOW = 1 << 31
Callback = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


class Decompressor:
    """A function (context, target, room, source, size) -> bytes, by its address, and contexts for it."""

    def __init__(self, library: ctypes.CDLL | None) -> None:
        self._library = library
        if library is None:
            # Takes the GIL for every record, and works everywhere.
            self._callback = Callback(decompress_in_python)
            self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
            return
        library.ZSTD_createDCtx.restype = ctypes.c_void_p
        library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
        self.address = ctypes.cast(library.ZSTD_decompressDCtx, ctypes.c_void_p).value or 0

    @property
    def native(self) -> bool:
        """Whether compiled code calls the C library itself."""
        return self._library is not None

    def context(self, owner: Any) -> int:
        """A context for one thread, which ends with its owner."""
        if self._library is None:
            return 0
        context = self._library.ZSTD_createDCtx()
        if not context:
            raise MemoryError("no memory for a zstd context")
        weakref.finalize(owner, self._library.ZSTD_freeDCtx, context)
        return int(context)


@functools.cache
def decompressor() -> Decompressor:
    """The fastest there is here."""
    for file in libraries():
        with suppress(OSError):
            library = ctypes.CDLL(str(file))
            if all(hasattr(library, name) for name in NAMES):
                return Decompressor(library)
    return Decompressor(None)


def libraries() -> Iterable[Path]:
    """The compiled modules of the zstandard package; the one for cffi shows the functions of zstd."""
    folder = Path(zstandard.__file__).parent
    return sorted(folder.glob("_cffi*.so")) + sorted(folder.glob("backend_c*.so"))


def decompress_in_python(_context: int, target: int, room: int, source: int, size: int) -> int:
    """The same by the package's own API."""
    try:
        frame = ctypes.string_at(source, size)
        # It would make room for whatever the frame claims.
        if zstandard.frame_content_size(frame) > room:
            return -1
        engine = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW)
        # 0 would mean no limit.
        values = engine.decompress(frame, max_output_size=max(room, 1), allow_extra_data=False)
    except zstandard.ZstdError:
        return -1
    if len(values) > room:
        return -1
    ctypes.memmove(target, values, len(values))
    return len(values)
