"""Content of the records of a file: dtype and shape, or fields."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import check_dtype

from .fields import RecordFields, dtype_name


@dataclass(frozen=True)
class Content:
    """Dtype and shape of a record, None as the first size for any length; or its fields. Without either it is bytes."""

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] = ()
    fields: RecordFields | None = None

    def __str__(self) -> str:
        if self.fields is not None:
            return str(self.fields)
        return "bytes" if self.dtype is None else f"{self.dtype}{list(self.shape)}"

    @property
    def named(self) -> str:
        """The arguments that gave the content, for messages."""
        return "`fields`" if self.fields else f"`dtype` (={self.dtype}) and `shape`"

    def admits(self, other: "Content") -> bool:
        """Return True if records of the other content may be in the same file."""
        return self.dtype == other.dtype and (
            self.shape == other.shape
            or (len(self.shape) == len(other.shape) > 0 and self.shape[1:] == other.shape[1:])
        )

    def fits(self, nbytes: int) -> bool:
        """Return True if a record of this content can have that many bytes."""
        if self.fields is not None:
            return self.fields.misfit(nbytes) is None
        if self.dtype is None:
            return True
        lengths = [length for length in self.shape if length is not None]
        unit = math.prod(lengths) * self.dtype.itemsize
        varies = len(lengths) < len(self.shape)
        return nbytes % unit == 0 if varies and unit else nbytes == unit

    def as_json(self) -> bytes:
        """Return the content as JSON for the footer; empty for bytes."""
        if self.fields is not None:
            return json.dumps({"loaderx": 1, "fields": self.fields.as_json()}).encode()
        if self.dtype is None:
            return b""
        noted = {"loaderx": 1, "dtype": dtype_name(self.dtype), "shape": self.shape}
        return json.dumps(noted).encode()


def check_storable(dtype: np.dtype[Any], where: str) -> None:
    """Raise if records cannot have this dtype."""
    if dtype.hasobject:
        raise ArgumentError(
            f"{where} has dtype {dtype}: Python objects cannot be stored. Store numbers, or an "
            "iterable of `bytes`."
        )
    check_dtype(dtype, where)
