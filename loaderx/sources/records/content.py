"""What a record to be written holds, as the file says it."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import check_dtype


@dataclass(frozen=True)
class Content:
    """Dtype and shape of a record; without a dtype it is bytes, with None in front its length varies."""

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        return "bytes" if self.dtype is None else f"{self.dtype}{list(self.shape)}"

    def admits(self, other: "Content") -> bool:
        """Whether a record of the other kind can stand in the same file."""
        return self.dtype == other.dtype and (
            self.shape == other.shape
            or (len(self.shape) == len(other.shape) > 0 and self.shape[1:] == other.shape[1:])
        )

    def fits(self, nbytes: int) -> bool:
        """Whether a record of so many bytes can be of this kind."""
        if self.dtype is None:
            return True
        lengths = [length for length in self.shape if length is not None]
        unit = math.prod(lengths) * self.dtype.itemsize
        varies = len(lengths) < len(self.shape)
        return nbytes % unit == 0 if varies and unit else nbytes == unit

    def as_json(self) -> bytes:
        """As it is stored in the footer, which says nothing of bytes."""
        if self.dtype is None:
            return b""
        # NumPy spells the dtypes that others add, such as bfloat16, as bytes without a meaning.
        plain = np.dtype(self.dtype.str) == self.dtype
        name = self.dtype.str if plain else self.dtype.name
        return json.dumps({"loaderx": 1, "dtype": name, "shape": self.shape}).encode()


def check_storable(dtype: np.dtype[Any], where: str) -> None:
    """Raise if records cannot be of this dtype."""
    if dtype.hasobject:
        raise ArgumentError(
            f"{where} has dtype {dtype}: Python objects cannot be stored. Store numbers, or an "
            "iterable of `bytes`."
        )
    check_dtype(dtype, where)
