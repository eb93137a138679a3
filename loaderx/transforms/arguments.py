"""Arguments of a pass: what compiled code reads and where, and their words of the parameter block."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels import passes
from loaderx.kernels.passes import HEIGHT, WIDTH, element_name
from loaderx.spec import Spec

# Up to this many channels are compiled in, so that loops over the channels of a pixel are unrolled.
MOST_CHANNELS = 4
NO_WORDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Given:
    """Argument of a pass: its words of the block, and the array whose address is among them."""

    argument: passes.Argument
    words: NDArray[np.int64]
    kept: Any = None


RNG = Given(passes.Rng(), NO_WORDS)
# Draws whose state is at the address `out`.
KEPT_RNG = Given(passes.Rng("out"), NO_WORDS)


def array_at(base: str, spec: Spec, *, fixed: bool = False, offset: int | None = None) -> Given:
    """Return an array at `x`, `out` or `scratch`, or at an offset from there.

    Its last axis is compiled in if it is as short as channels are, and with `fixed` all of its shape.
    """
    extents, words = _extents(spec.shape or (1,), fixed)
    if offset is not None:
        words = [offset, *words]
    argument = passes.Array(base, element_name(spec.dtype), extents, offset=offset is not None)
    return Given(argument, _words(words))


def image_at(base: str, channels: int, dtype: Any) -> Given:
    """Return an image of the size of the sample."""
    extents, words = _extents((1, 1, channels), False)
    shape = (HEIGHT, WIDTH, extents[2])
    return Given(passes.Array(base, element_name(dtype), shape), _words(words[2:]))


HEIGHT_OF, WIDTH_OF = Given(passes.Size(HEIGHT), NO_WORDS), Given(passes.Size(WIDTH), NO_WORDS)


def length_of(most: int) -> Given:
    """Return how many entries of a sample are data, at most this many."""
    return Given(passes.Length(), _words([most]))


def record_at(offset: int, dtype: str, count: int) -> Given:
    """Return a tuple of numbers at an offset from `scratch`."""
    return Given(passes.Numbers(dtype, count, "scratch"), _words([offset]))


def integer_at(offset: int) -> Given:
    """Return an integer at an offset from `x`."""
    return Given(passes.Scalar("int64", "x"), _words([offset]))


def value(given: Any) -> Given:
    """Return a number, an array or a tuple of numbers of one dtype."""
    if isinstance(given, np.ndarray):
        array = np.ascontiguousarray(given)
        writable = bool(given.flags.writeable)
        extents, words = _extents(array.shape, False)
        argument = passes.Array("parameters", element_name(array.dtype), extents, writable)
        return Given(argument, _words([array.ctypes.data, *words]), array)
    if isinstance(given, tuple):
        numbers = np.asarray(given)
        held = np.zeros(len(numbers), np.int64)
        _bytes(held).reshape(-1, 8)[:, : numbers.itemsize] = _bytes(numbers).reshape(
            -1, numbers.itemsize
        )
        return Given(passes.Numbers(element_name(numbers.dtype), len(numbers)), held)
    number = np.asarray(given)
    block = np.zeros(-(-number.itemsize // 8), np.int64)
    _bytes(block)[: number.itemsize] = _bytes(number.reshape(1))
    kind = {"bool": "boolean"}.get(str(number.dtype), str(number.dtype))
    return Given(passes.Scalar(kind), block)


def _extents(shape: tuple[int, ...], fixed: bool) -> tuple[tuple[Any, ...], list[int]]:
    """Return the extents of a shape, and those that are read from the block."""
    if fixed:
        return shape, []
    constant = len(shape) > 1 and 0 < shape[-1] <= MOST_CHANNELS
    if constant:
        return (*[None] * (len(shape) - 1), shape[-1]), list(shape[:-1])
    return (None,) * len(shape), list(shape)


def _words(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.view(np.uint8)
