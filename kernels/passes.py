"""Passes: compiled functions of one binary signature, and the layouts that say where their arguments are in memory.

A pass works on one sample. It is called in the same way for every op:

    pass(x, out, parameters, scratch, key, sizes, length) -> status

`x`, `out` and `scratch` are the addresses of the sample, of its result and of memory for the pass itself. `parameters`
is the address of a block of 8-byte words, one or more for each argument of the op. `key` is the initial state of its
draws, `sizes` the address of (height, width) of the sample if it is an image, and `length` the number of its entries
that are data and not padding. A status other than 0 ends the sample.

A `Layout` says what each argument of the op is, and where it is read from. Constants in it are compiled in. Everything
else is read at run time, so that one compiled pass serves all sizes and all parameters.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from .distributions import Draws, draws_type
from .memory import pointer
from .numba_internals import call_native, load_value, view_memory

WORD = 8
# The status of a pass that raised an exception which its caller does not raise.
RAISED = -1
HEIGHT, WIDTH = "height", "width"
# The arguments of a pass, by name, and their types.
NAMES = ("x", "out", "parameters", "scratch", "key", "sizes", "length")
SIGNATURE = (*[types.int64] * 4, types.uint64, types.int64, types.int64)
# By name: type checkers do not find them.
BaseTuple, UniTuple = (getattr(types, name) for name in ("BaseTuple", "UniTuple"))
HALVES = ("float16", "bfloat16")

# A constant, `HEIGHT` or `WIDTH` of the sample, or None: the next word of the block.
Extent: TypeAlias = int | str | None


@dataclass(frozen=True)
class Array:
    """Array at `x`, `out` or `scratch`, at an `offset` from there that the block holds, or at an address in it."""

    base: str
    dtype: str
    shape: tuple[Extent, ...]
    writable: bool = True
    offset: bool = False


@dataclass(frozen=True)
class Scalar:
    """Number in the block, of a Numba type, or one of 8 bytes at `x`, at an offset that the block holds."""

    kind: str
    base: str = "parameters"


@dataclass(frozen=True)
class Numbers:
    """Tuple of numbers, one in each word: of the block, or at an offset from `scratch` that the block holds."""

    dtype: str
    count: int
    base: str = "parameters"


@dataclass(frozen=True)
class Size:
    """Height or width of the sample."""

    extent: str


@dataclass(frozen=True)
class Rng:
    """Draws of the sample; `base` is "key", or "out" for draws whose state is stored there and is kept."""

    base: str = "key"


@dataclass(frozen=True)
class Length:
    """Number of entries of the sample that are data, at most the one in the block."""


Argument: TypeAlias = Array | Scalar | Numbers | Size | Rng | Length
Layout: TypeAlias = tuple[Argument, ...]


def element_name(dtype: Any) -> str:
    """Return the dtype of elements in compiled code; half precision is moved as bits."""
    name = str(np.dtype(dtype))
    return "uint16" if name in HALVES else name


def entry_of(function: Callable[..., Any], layout: Layout, store: Any = None) -> Callable[..., int]:
    """Return the pass that calls a function with the arguments of a layout.

    `store` is called with the result of the function, and `out`.
    """
    unpack = unpacker(layout)
    if store is None:

        def entry(x, out, parameters, scratch, key, sizes, length):
            function(*unpack(x, out, parameters, scratch, key, sizes, length))
            return 0

        return entry

    def storing_entry(x, out, parameters, scratch, key, sizes, length):
        store(function(*unpack(x, out, parameters, scratch, key, sizes, length)), out)
        return 0

    return storing_entry


def _numba_type(argument: Argument) -> Any:
    if isinstance(argument, Array):
        element = numba.from_dtype(np.dtype(argument.dtype))
        return types.Array(element, len(argument.shape), "C", readonly=not argument.writable)
    if isinstance(argument, Scalar):
        return getattr(types, argument.kind)
    if isinstance(argument, Numbers):
        return UniTuple(numba.from_dtype(np.dtype(argument.dtype)), argument.count)
    return draws_type if isinstance(argument, Rng) else types.int64


class _Reader:
    """Code generator that reads arguments, block word by block word."""

    def __init__(self, context: Any, builder: Any, given: Sequence[Any]) -> None:
        self._context, self._builder = context, builder
        self._given = dict(zip(NAMES, given, strict=True))
        self._words = 0

    def read(self, argument: Argument) -> Any:
        builder = self._builder
        if isinstance(argument, Array):
            return self._array(argument)
        if isinstance(argument, Scalar):
            kind = _numba_type(argument)
            if argument.base == "x":
                return self._value(kind, builder.add(self._given["x"], self._word()), 0)
            return self._value(
                kind, self._block_address(), 2 if argument.kind == "complex128" else 1
            )
        if isinstance(argument, Numbers):
            kind = _numba_type(argument)
            if argument.base == "parameters":
                first = self._block_address()
            else:
                first = builder.add(self._given["scratch"], self._word())
            values = [
                self._value(
                    kind.dtype, builder.add(first, ir.Constant(first.type, WORD * number)), 0
                )
                for number in range(argument.count)
            ]
            self._words += argument.count if argument.base == "parameters" else 0
            return self._context.make_tuple(builder, kind, values)
        if isinstance(argument, Size):
            return self._extent(argument.extent)
        if isinstance(argument, Rng):
            if argument.base == "out":
                return builder.inttoptr(self._given["out"], ir.IntType(64).as_pointer())
            state = cgutils.alloca_once(builder, ir.IntType(64))
            builder.store(self._given["key"], state)
            return state
        most, length = self._word(), self._given["length"]
        return builder.select(builder.icmp_signed("<", length, most), length, most)

    def _array(self, argument: Array) -> Any:
        context, builder = self._context, self._builder
        kind = _numba_type(argument)
        address = self._given.get(argument.base)
        if argument.base == "parameters":
            address = self._word()
        elif argument.offset:
            address = builder.add(address, self._word())
        shape = [self._extent(extent) for extent in argument.shape]
        return view_memory(context, builder, kind, address, shape)

    def _extent(self, extent: Extent) -> Any:
        if isinstance(extent, int):
            return ir.Constant(ir.IntType(64), extent)
        if extent is None:
            return self._word()
        sizes = self._builder.inttoptr(self._given["sizes"], ir.IntType(64).as_pointer())
        place = ir.Constant(ir.IntType(64), int(extent == WIDTH))
        return self._builder.load(self._builder.gep(sizes, [place]))

    def _block_address(self) -> Any:
        block = self._given["parameters"]
        return self._builder.add(block, ir.Constant(block.type, WORD * self._words))

    def _word(self) -> Any:
        return self._value(types.int64, self._block_address(), 1)

    def _value(self, kind: Any, address: Any, words: int) -> Any:
        self._words += words
        return load_value(self._context, self._builder, kind, address)


class _PlainReader:
    """Reader of arguments in plain Python, for runs without compilation."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._given = dict(zip(NAMES, map(int, given), strict=True))
        self._words = 0

    def read(self, argument: Argument) -> Any:
        if isinstance(argument, Array):
            address = self._given.get(argument.base, 0)
            if argument.base == "parameters":
                address = self._word()
            elif argument.offset:
                address += self._word()
            shape = tuple(self._extent(extent) for extent in argument.shape)
            return numba.carray(pointer(address), shape, np.dtype(argument.dtype))
        if isinstance(argument, Scalar):
            dtype = np.dtype({"boolean": "bool"}.get(argument.kind, argument.kind))
            if argument.base == "x":
                return _read(self._given["x"] + self._word(), dtype)
            value = self._value(dtype, 2 if argument.kind == "complex128" else 1)
            return bool(value) if dtype.kind == "b" else value
        if isinstance(argument, Numbers):
            if argument.base == "parameters":
                return tuple(
                    self._value(np.dtype(argument.dtype), 1) for _ in range(argument.count)
                )
            first = self._given["scratch"] + self._word()
            dtype = np.dtype(argument.dtype)
            return tuple(_read(first + WORD * k, dtype) for k in range(argument.count))
        if isinstance(argument, Size):
            return self._extent(argument.extent)
        if isinstance(argument, Rng):
            if argument.base == "out":
                return KeptDraws(self._given["out"])
            return Draws(self._given["key"])
        return min(self._given["length"], self._word())

    def _extent(self, extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        if extent is None:
            return self._word()
        place = self._given["sizes"] + WORD * (extent == WIDTH)
        return int(_read(place, np.dtype(np.int64)))

    def _word(self) -> int:
        return int(self._value(np.dtype(np.int64), 1))

    def _value(self, dtype: np.dtype[Any], words: int) -> Any:
        address = self._given["parameters"] + WORD * self._words
        self._words += words
        return _read(address, dtype)


def _read(address: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]


class KeptDraws(Draws):
    """Draws whose state is in memory, in plain Python."""

    def __init__(self, address: int) -> None:
        self._word = ctypes.c_uint64.from_address(int(address))

    @property
    def state(self) -> Any:
        return np.uint64(self._word.value)

    @state.setter
    def state(self, value: Any) -> None:
        self._word.value = int(value)


if config.DISABLE_JIT:
    _PASSES: list[Callable[..., int]] = []

    def unpacker(layout: Layout) -> Callable[..., tuple[Any, ...]]:
        """Return the function that reads the arguments of a layout."""

        def unpack(*given: Any) -> tuple[Any, ...]:
            reader = _PlainReader(given)
            return tuple(reader.read(argument) for argument in layout)

        return unpack

    def plain_address(entry: Callable[..., int]) -> int:
        """Return the number by which `call_pass` finds a function where nothing is compiled."""
        _PASSES.append(entry)
        return len(_PASSES) - 1

    def call_pass(function: int, raises: bool, *given: Any) -> int:
        """Call a pass; an exception is raised again, or returned as the status `RAISED`."""
        try:
            return _PASSES[function](*given)
        except Exception:
            if raises:
                raise
            return RAISED

else:

    def unpacker(layout: Layout) -> Callable[..., tuple[Any, ...]]:
        """Return the function that reads the arguments of a layout."""

        @intrinsic
        def unpack(typing_context, x, out, parameters, scratch, key, sizes, length):
            kind = BaseTuple.from_types([_numba_type(argument) for argument in layout])

            def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                reader = _Reader(context, builder, given)
                values = [reader.read(argument) for argument in layout]
                return context.make_tuple(builder, kind, values)

            return kind(*SIGNATURE), generate

        return unpack  # type: ignore[no-any-return]

    @intrinsic
    def call_pass(
        typing_context, function, raises, x, out, parameters, scratch, key, sizes, length
    ):
        """Call a pass; an exception is raised again, or returned as the status `RAISED`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, raises, *given = arguments
            condition = cgutils.is_true(builder, raises)
            status, raised = call_native(
                context, builder, address, types.int64, SIGNATURE, given, condition
            )
            return builder.select(raised, ir.Constant(status.type, RAISED), status)

        return types.int64(types.int64, types.boolean, *SIGNATURE), generate
