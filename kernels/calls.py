"""Calling a function by its address: a decompressor of a C library, or a kernel that is compiled on its own."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

from . import numba_internals
from .compilation import compile_uninterrupted

WORD = ir.IntType(64)

if config.DISABLE_JIT:

    def _call(function: int, *arguments: int) -> int:
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
        return int(kind(int(function))(*map(int, arguments)))

    def fetch(function: int, entry: int, target: int, worker: int) -> int:
        """Fetch a row to `target` and return its address, which may be elsewhere; below 0 is a failure."""
        return _call(function, entry, target, worker)

    def decompress(
        function: int, context: int, target: int, room: int, source: int, size: int
    ) -> int:
        """Decompress `size` bytes into at most `room`; return the number of bytes written, below 0 on failure."""
        return _call(function, context, target, room, source, size)

else:

    def _signature(count: int) -> Any:
        return types.int64(*[types.int64] * (count + 1))

    def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, *given = arguments
        kind = ir.FunctionType(WORD, [WORD] * len(given))
        return builder.call(builder.inttoptr(function, kind.as_pointer()), given)

    @intrinsic
    def fetch(typing_context: Any, function: Any, entry: Any, target: Any, worker: Any) -> Any:
        """Fetch a row to `target` and return its address, which may be elsewhere; below 0 is a failure."""
        return _signature(3), _generate

    @intrinsic
    def decompress(
        typing_context: Any,
        function: Any,
        context: Any,
        target: Any,
        room: Any,
        source: Any,
        size: Any,
    ) -> Any:
        """Decompress `size` bytes into at most `room`; return the number of bytes written, below 0 on failure."""
        return _signature(5), _generate


@functools.cache
def function_address(function: Callable[..., int], arguments: int) -> int:
    """Return the address of a kernel that has so many int64 arguments and returns one; it must not raise."""
    if config.DISABLE_JIT:
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)
        callback = kind(function)
        _KEPT.append(callback)
        return ctypes.cast(callback, ctypes.c_void_p).value or 0
    signature = (types.int64,) * arguments
    return int(compile_uninterrupted(numba_internals.compiled_address, function, signature))


# A ctypes callback dies with the object that created it.
_KEPT: list[Any] = []
