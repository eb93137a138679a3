"""Reading memory at an address: what a mapped file, an array and a scratch row have in common."""

import ctypes
from typing import Any

from numba.core import cgutils, config, types
from numba.extending import intrinsic

if config.DISABLE_JIT:

    def pointer(address: int) -> ctypes.c_void_p:
        """An address as something `numba.carray` takes."""
        return ctypes.c_void_p(int(address))

    def copy_bytes(target: int, source: int, size: int) -> None:
        """memcpy between two addresses."""
        ctypes.memmove(int(target), int(source), int(size))

else:

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        """An address as something `numba.carray` takes."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], cgutils.voidptr_t)

        return types.voidptr(types.intp), generate

    @intrinsic
    def copy_bytes(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        """memcpy between two addresses."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source, size = arguments
            cgutils.raw_memcpy(
                builder,
                builder.inttoptr(target, cgutils.voidptr_t),
                builder.inttoptr(source, cgutils.voidptr_t),
                size,
                1,
            )
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), generate
