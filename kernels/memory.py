"""Access to memory by address: the common form of a mapped file, an array and a scratch row."""

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

WORD = ir.IntType(64)

if config.DISABLE_JIT:

    def pointer(address: int) -> ctypes.c_void_p:
        """Return an address as a pointer that `numba.carray` accepts."""
        return ctypes.c_void_p(int(address))

    def copy_bytes(target: int, source: int, size: int) -> None:
        """Copy memory between two addresses, as memcpy."""
        ctypes.memmove(int(target), int(source), int(size))

    def fill_bytes(target: int, value: int, size: int) -> None:
        """Fill memory at an address, as memset."""
        ctypes.memset(int(target), int(value), int(size))

    def prefetch_line(address: int) -> None:
        """Prefetch the cache line at an address."""

    def load_word(address: int) -> Any:
        """Load the integer of 64 bits at an address."""
        return np.int64(ctypes.c_int64.from_address(int(address)).value)

    def load_bytes(address: int) -> Any:
        """Load eight bytes at any address, aligned or not, as an integer."""
        return load_word(address)

    def trailing_zeros(word: Any) -> int:
        """Return the number of zeros below the lowest bit of an integer that is not 0."""
        number = int(word)
        return (number & -number).bit_length() - 1

    def load_float(address: int) -> Any:
        """Load the float of 64 bits at an address."""
        return np.float64(ctypes.c_double.from_address(int(address)).value)

    def store_word(address: int, value: Any) -> None:
        """Store an integer of 64 bits at an address."""
        ctypes.c_int64.from_address(int(address)).value = int(value)

    def store_float(address: int, value: float) -> None:
        """Store a float of 64 bits at an address."""
        ctypes.c_double.from_address(int(address)).value = float(value)

else:

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        """Return an address as a pointer that `numba.carray` accepts."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], cgutils.voidptr_t)

        return types.voidptr(types.intp), generate

    @intrinsic
    def copy_bytes(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        """Copy memory between two addresses, as memcpy."""

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

    @intrinsic
    def fill_bytes(typing_context: Any, target: Any, value: Any, size: Any) -> Any:
        """Fill memory at an address, as memset."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, value, size = arguments
            place = builder.inttoptr(target, cgutils.voidptr_t)
            cgutils.memset(builder, place, size, builder.trunc(value, ir.IntType(8)))
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), generate

    @intrinsic
    def prefetch_line(typing_context: Any, address: Any) -> Any:
        """Prefetch the cache line at an address. An invalid address does no harm."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
            name = "llvm.prefetch"
            function = builder.module.declare_intrinsic(name, [cgutils.voidptr_t], kind)
            place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
            # For reading, to be kept in all caches, of data.
            builder.call(function, [place, number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(types.intp), generate

    # Each has a name of its own in this module: a function made by another one has no name that a hash could identify.

    @intrinsic
    def load_word(typing_context: Any, address: Any) -> Any:
        """Load the integer of 64 bits at an address."""
        return types.int64(types.intp), _loading(WORD)

    @intrinsic
    def load_bytes(typing_context: Any, address: Any) -> Any:
        """Load eight bytes at any address, aligned or not, as an integer."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], WORD.as_pointer()), align=1)

        return types.int64(types.intp), generate

    @intrinsic
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """Return the number of zeros below the lowest bit of an integer that is not 0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.IntType(1)(1))

        return types.int64(types.int64), generate

    @intrinsic
    def load_float(typing_context: Any, address: Any) -> Any:
        """Load the float of 64 bits at an address."""
        return types.float64(types.intp), _loading(ir.DoubleType())

    @intrinsic
    def store_word(typing_context: Any, address: Any, value: Any) -> Any:
        """Store an integer of 64 bits at an address."""
        return types.void(types.intp, types.int64), _storing(WORD)

    @intrinsic
    def store_float(typing_context: Any, address: Any, value: Any) -> Any:
        """Store a float of 64 bits at an address."""
        return types.void(types.intp, types.float64), _storing(ir.DoubleType())

    def _loading(element: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], element.as_pointer()))

        return generate

    def _storing(element: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, value = arguments
            builder.store(value, builder.inttoptr(address, element.as_pointer()))
            return context.get_dummy_value()

        return generate
