"""`TokenDataset`: windows of long sequences of tokens, read in place from mapped files or arrays."""

import copy
import mmap
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.row_layout import row_layout
from loaderx.spec import plain_array

from .array import NPDataset
from .files import open_file
from .npy import MappedFile
from .parts import ArrayPart, Part
from .source import FieldsSource

FilePath: TypeAlias = str | os.PathLike[str]
MAGIC = b"\x93NUMPY"


class RawFile(MappedFile):
    """File of tokens after its first `offset` bytes, mapped read-only."""

    def __init__(self, path: FilePath, dtype: np.dtype[Any], offset: int) -> None:
        self.path = Path(path)
        self.arguments = self.path.absolute(), dtype, offset
        with open_file(path, "a file of tokens") as file:
            self._bytes = os.fstat(file.fileno()).st_size
            size = self._bytes - offset
            if size < 0 or size % dtype.itemsize:
                after = f" after the first {offset}" if offset else ""
                raise DataError(
                    f"{path} has {max(size, 0)} bytes{after}, which is not a whole number of {dtype} tokens."
                )
            if size == 0:
                # mmap refuses empty files.
                raise DataError(f"{path} holds no tokens.")
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.ndarray((size // dtype.itemsize,), dtype, self._mapping, offset)


@dataclass(frozen=True, eq=False)
class Tokens:
    """One long sequence of tokens, from a file or an array."""

    part: Part
    name: str

    @property
    def array(self) -> NDArray[Any]:
        """Array of the tokens."""
        return self.part.array


class TokenDataset(FieldsSource):
    """Windows of `length` tokens, and the same windows one token further.

    Row k is {"inputs": tokens[s : s + length], "targets": tokens[s + 1 : s + length + 1]} with s = k * stride. With
    the default stride, which is `length`, an epoch sees every token about once; with stride=1 every window is a row,
    and a shuffled loader draws random windows without replacement.

    data    a raw file of tokens (`dtype` gives their kind), a .npy file of one axis, an array of one axis, or a list
                    of these: no window spans two of them
    offset  bytes to skip at the beginning of raw files; those of llm.c have 1024

    Tokens are delivered in the dtype of the file. JAX indexes an embedding with it as well as with int32. For another
    dtype: transforms={("inputs", "targets"): [Cast("int32")]}.
    """

    def __init__(
        self,
        data: FilePath | NDArray[Any] | Sequence[FilePath | NDArray[Any]],
        length: int,
        *,
        stride: int | None = None,
        dtype: DTypeLike | None = None,
        offset: int = 0,
    ) -> None:
        length = whole_number("length", length, 1)
        stride = length if stride is None else whole_number("stride", stride, 1)
        entries = list(data) if isinstance(data, list | tuple) else [data]
        if not entries:
            raise ArgumentError("`data` is empty; give at least one file or array.")
        parts = [open_tokens(entry, dtype, offset) for entry in entries]
        for part in parts:
            if part.array.dtype != parts[0].array.dtype:
                raise ArgumentError(
                    f"all tokens must be of one dtype: {parts[0].name} has {parts[0].array.dtype}, {part.name} has "
                    f"{part.array.dtype}."
                )
            if len(part.array) < length + 1:
                raise DataError(
                    f"{part.name} holds {len(part.array)} tokens; a window of `length` (={length}) and the token "
                    f"after it need {length + 1}."
                )
        super().__init__(
            {
                "inputs": Windows(parts, length, stride, 0),
                "targets": Windows(parts, length, stride, 1),
            }
        )


class Windows(NPDataset):
    """Every `stride`-th window of `length` tokens from `first` on, without the last 1 - `first` tokens."""

    def __init__(self, tokens: Sequence[Tokens], length: int, stride: int, first: int) -> None:
        parts = [WindowPart(own.part, length, stride, first) for own in tokens]
        layouts = [row_layout(part.array) for part in parts]
        for layout, own in zip(layouts, tokens, strict=True):
            if not layout.same_as(layouts[0]):
                raise ArgumentError(
                    f"{tokens[0].name} and {own.name} have different memory layouts; give copies of one layout."
                )
        self._hold(parts, layouts[0])


class WindowPart(Part):
    """Windows of one sequence, which overlap."""

    def __init__(self, tokens: Part, length: int, stride: int, first: int) -> None:
        self.arguments = tokens, length, stride, first
        self._tokens = tokens
        array = tokens.array[first : len(tokens.array) - 1 + first]
        self.array = np.lib.stride_tricks.sliding_window_view(array, length)[::stride]

    def check(self) -> None:
        self._tokens.check()

    def __deepcopy__(self, memo: dict[int, Any]) -> "WindowPart":
        return WindowPart(*copy.deepcopy(self.arguments, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        # The tokens check themselves that they did not change; their memory layout may be another.
        return WindowPart, self.arguments


def open_tokens(data: Any, dtype: DTypeLike | None, offset: int = 0) -> Tokens:
    """Open a sequence of integers from a raw file, a .npy file or an array."""
    expected = None if dtype is None else np.dtype(dtype)
    if expected is not None and expected.kind not in "iu":
        raise ArgumentError(f"`dtype` (={dtype!r}) must be an integer dtype.")
    offset = whole_number("offset", offset, 0)
    if isinstance(data, np.ndarray):
        part: Part = ArrayPart(plain_array(data, "`data`"))
        name = "the array"
    elif isinstance(data, str | os.PathLike):
        name = str(data)
        if _is_npy(Path(data)):
            part = MappedFile(data)
        elif expected is None:
            raise ArgumentError(f"{name} is a raw file; give its dtype, such as dtype=np.uint16.")
        else:
            part = RawFile(data, expected, offset)
    else:
        raise ArgumentError(
            f"`data` (={data!r}) must be a path or a NumPy array, or a list of these."
        )
    array = part.array
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; tokens are integers along one axis."
        )
    if expected is not None and array.dtype != expected:
        raise ArgumentError(
            f"`dtype` (={dtype!r}) is not the dtype of {name}, which is {array.dtype}."
        )
    if offset and not isinstance(part, RawFile):
        raise ArgumentError(f"`offset` (={offset}) is for raw files, and {name} is not a raw file.")
    return Tokens(part, name)


def _is_npy(path: Path) -> bool:
    """Tell by the name or the first bytes: a header read as tokens would be noise that nobody notices."""
    with open_file(path, "a file of tokens") as file:
        return path.suffix == ".npy" or file.read(len(MAGIC)) == MAGIC


def whole_number(name: str, value: Any, least: int) -> int:
    """Return an integer of at least `least`, or raise."""
    try:
        number = least - 1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ArgumentError(f"`{name}` (={value!r}) must be an integer of at least {least}.")
    return number
