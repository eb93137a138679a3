"""Arguments of `write_array_record`: validation and conversion."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from loaderx.errors import ArgumentError
from loaderx.process.cores import cores
from loaderx.sources.npy import MappedFile

from .content import Content, check_storable
from .encoding import Encoding
from .fields import RecordFields, record_fields
from .inputs import ArrayInput, IterableInput

LEVELS = -131072, 22
# Limit for records in a group and for threads.
MAX_INT32 = 2**31 - 1


def encoding_of(compression: str | None, level: int, group_size: int) -> Encoding:
    """Return the encoding of the records."""
    if compression not in ("zstd", "uncompressed", None):
        raise ArgumentError(
            f'`compression` (={compression!r}) must be "zstd", "uncompressed" or None.'
        )
    level = _integer("level", level, *LEVELS)
    group_size = _integer("group_size", group_size, 1, MAX_INT32)
    return Encoding(level if compression == "zstd" else None, group_size)


def threads_of(workers: int | None) -> int:
    """Return the number of threads that compress."""
    return cores() if workers is None else _integer("workers", workers, 1, MAX_INT32)


def given_content(
    dtype: DTypeLike | None,
    shape: tuple[int | None, ...] | None,
    fields: Mapping[str, Any] | RecordFields | None = None,
) -> Content | None:
    """Return the content of records of `bytes`, as the caller gives it."""
    if fields is not None:
        if dtype is not None or shape is not None:
            raise ArgumentError("`fields` describes the records; leave `dtype` and `shape` out.")
        given = fields if isinstance(fields, RecordFields) else record_fields(fields)
        return Content(fields=given)
    if dtype is None and shape is None:
        return None
    if dtype is None or shape is None:
        raise ArgumentError(
            f"`dtype` (={dtype!r}) and `shape` (={shape!r}) belong together: give both or none."
        )
    element = np.dtype(dtype)
    check_storable(element, "`dtype`")
    lengths = tuple(shape)
    for axis, length in enumerate(lengths):
        if length is None and axis > 0:
            raise ArgumentError(f"`shape` (={shape!r}) may have None only as its first entry.")
        if length is not None:
            _integer("shape", length, 0, 2**63 - 1)
    return Content(element, lengths)


def records_of(data: Any, given: Content | None, group: int) -> ArrayInput | IterableInput:
    """Return the records to write."""

    def nothing() -> None:
        """Check nothing: an array in memory does not shrink."""

    check = nothing
    if isinstance(data, str | os.PathLike):
        file = MappedFile(data)
        data, check = file.array, file.check
    if isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            "`data` is one record of bytes: pass an iterable of records, such as a list."
        )
    if hasattr(data, "__array__"):
        array = np.asarray(data)
        if array.ndim == 0:
            raise ArgumentError("`data` has no axes: rows are the entries along the first axis.")
        check_storable(array.dtype, "`data`")
        if given is not None:
            raise ArgumentError(
                f"{given.named} are for records of bytes, and `data` is an array of dtype {array.dtype}; leave them "
                "out."
            )
        if len(array) == 0:
            raise ArgumentError(f"`data` has no rows: its shape is {array.shape}.")
        return ArrayInput(array, group, check)
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(
            f"`data` is a {type(data).__name__}: pass an array, the path of a .npy file or an iterable."
        )
    return IterableInput(data, group, given)


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file to write, with symbolic links resolved as `open` does."""
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "not a regular file"
        raise ArgumentError(f"`path` (={str(path)!r}) is {what}: give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"`path` (={str(path)!r}): there is no folder {target.parent}.")
    return target


def _integer(name: str, value: Any, lowest: int, highest: int) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{name}` (={value!r}) must be an integer.")
    if not lowest <= value <= highest:
        raise ArgumentError(f"`{name}` (={value}) must be from {lowest} to {highest}.")
    return int(value)
