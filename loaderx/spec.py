"""Spec: shape and dtype of one row, and the checks of both."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .errors import ArgumentError

_NARROW = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
}


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of one row."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in shape))
        object.__setattr__(self, "dtype", np.dtype(dtype))

    @property
    def size(self) -> int:
        """Number of elements of one row."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of one row."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def narrowed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the 32-bit dtype that JAX uses for a 64-bit one while x64 is off."""
    return _NARROW.get(dtype, dtype)


def plain_array(value: Any, where: str) -> NDArray[Any]:
    """Return `value` as an array; refuse masked arrays and units, which would be lost."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            f"{where} is a masked array, and its mask would be lost. Give `array.filled(...)`, or two fields: "
            '{"data": array.data, "mask": np.ma.getmaskarray(array)}.'
        )
    # For other types than arrays the class is asked: a column of pandas accepts any name as one of its rows.
    owner = value if isinstance(value, np.ndarray) else type(value)
    units = [getattr(value, name) for name in ("units", "unit") if hasattr(owner, name)]
    if hasattr(value, "__array__") and any(not isinstance(unit, str | None) for unit in units):
        raise ArgumentError(
            f"{where} is a {type(value).__name__} with a unit, which would be lost. Give its numbers, such as "
            "`array.value` or `array.magnitude`."
        )
    # A memmap has its file name, by which it is pickled.
    return value if isinstance(value, np.memmap) else np.asarray(value)


def check_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Refuse dtypes without a fixed number of bytes per element, or with several values per element."""
    if dtype.hasobject:
        raise ArgumentError(
            f"{where} has dtype {dtype}: Python objects cannot be mapped. Store numbers, or pass "
            "an object with `__len__` and `__getitem__`."
        )
    if dtype.names is not None:
        raise ArgumentError(
            f"{where} has the structured dtype {dtype}. Give each of its columns "
            f"{list(dtype.names)} a file of its own and pass them as a dict."
        )
    if dtype.itemsize == 0:
        raise ArgumentError(f"{where} has dtype {dtype} with no bytes per element.")
