"""Content of the records of a file: dtype and shape."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import check_dtype


@dataclass(frozen=True)
class Content:
    """Dtype and shape of a record. Without a dtype records are bytes; None as the first size means any length."""

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        return "bytes" if self.dtype is None else f"{self.dtype}{list(self.shape)}"

    def admits(self, other: "Content") -> bool:
        """Return True if records of the other content may be in the same file."""
        return self.dtype == other.dtype and (
            self.shape == other.shape
            or (len(self.shape) == len(other.shape) > 0 and self.shape[1:] == other.shape[1:])
        )

    def fits(self, nbytes: int) -> bool:
        """Return True if a record of this content can have that many bytes."""
        if self.dtype is None:
            return True
        lengths = [length for length in self.shape if length is not None]
        unit = math.prod(lengths) * self.dtype.itemsize
        varies = len(lengths) < len(self.shape)
        return nbytes % unit == 0 if varies and unit else nbytes == unit

    def as_json(self) -> bytes:
        """Return the content as JSON for the footer; empty for bytes."""
        if self.dtype is None:
            return b""
        # NumPy's `str` of dtypes from other packages, such as bfloat16, is that of plain bytes.
        plain = np.dtype(self.dtype.str) == self.dtype
        name = self.dtype.str if plain else self.dtype.name
        return json.dumps({"loaderx": 1, "dtype": name, "shape": self.shape}).encode()


def check_storable(dtype: np.dtype[Any], where: str) -> None:
    """Raise if records cannot have this dtype."""
    if dtype.hasobject:
        raise ArgumentError(
            f"{where} has dtype {dtype}: Python objects cannot be stored. Store numbers, or an "
            "iterable of `bytes`."
        )
    check_dtype(dtype, where)
