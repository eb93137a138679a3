"""Opening and validation of a .npy file."""

import math
import mmap
import os
import tokenize
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from loaderx.errors import DataError
from loaderx.spec import check_dtype

from .files import open_file
from .parts import Part


class MappedFile(Part):
    """.npy file, mapped read-only, and its size when it was opened.

    A mapping survives when the file is renamed, replaced or deleted. It does not survive when the file is truncated:
    touching the missing part raises SIGBUS, which ends the process. So the size is checked before every read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Absolute: the current folder may be another one when the file is opened again.
        self.arguments = (self.path.absolute(),)
        with open_file(path, "a .npy file") as file:
            self._bytes = os.fstat(file.fileno()).st_size
            if self._bytes == 0:
                raise DataError(f"{path} is empty, not a .npy file.")
            shape, order, dtype = read_header(file, self.path)
            offset = file.tell()
            # The mapping keeps the file open even if the path names another file later.
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        needed = offset + math.prod(shape) * dtype.itemsize
        if self._bytes < needed:
            raise DataError(
                f"{path} is truncated: its header promises {needed} bytes, it has {self._bytes}."
            )
        self.array = np.ndarray(shape, dtype, self._mapping, offset, order=order)

    def check(self) -> None:
        """Raise if the file shrank since it was opened."""
        size = self._mapping.size()
        if size < self._bytes:
            raise DataError(
                f"{self.path} shrank from {self._bytes} to {size} bytes while it was mapped; "
                "write a new file and rename it over the old one instead."
            )


def read_header(
    file: BinaryIO, path: Path
) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Return shape, memory order and dtype, and leave the file at the first byte of the data."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} of the format is unknown")
        # The public readers stop at version 2.0. Version 3.0 differs only in the encoding of field names.
        first = version == (1, 0)
        reader = (
            np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        )
        shape, fortran_order, dtype = reader(file)
        if any(isinstance(length, bool) or length < 0 for length in shape):
            raise ValueError(f"{shape} is not a valid shape")
    # NumPy's reader raises these on damaged headers, besides ValueError.
    except (ValueError, SyntaxError, tokenize.TokenError, RecursionError) as error:
        raise DataError(f"{path} is not a .npy file: {error}") from error
    check_dtype(dtype, str(path))
    return shape, "F" if fortran_order else "C", dtype
