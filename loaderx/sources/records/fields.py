"""Records of several fields: numbers of a fixed size, and encoded images.

A record is the numbers in the order in which they are declared, little endian and without padding, and then the encoded
images in their order. A length in four bytes, little endian, is in front of every image but the last. So a record with
a single image as its only field is the bytes of the image.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.byte_rows import Buffer
from loaderx.sources.encoded.field import MODES, Encoded
from loaderx.spec import Spec, check_dtype

LENGTH_BYTES = 4
# Limit for the size of the numbers of a record, so that no file asks for more memory than there is.
MOST_NUMBERS = 1 << 31


@dataclass(frozen=True)
class RecordFields:
    """Fields of a record, in the order of the row. The spec of a number has the dtype that is stored."""

    fields: tuple[tuple[str, Spec | Encoded], ...]

    @cached_property
    def numbers(self) -> dict[str, tuple[Spec, int]]:
        """Spec of each field of numbers, and the offset of its bytes in a record."""
        found, offset = {}, 0
        for name, field in self.fields:
            if isinstance(field, Spec):
                found[name] = field, offset
                offset += field.nbytes
        return found

    @cached_property
    def images(self) -> dict[str, Encoded]:
        """The fields of encoded images, in the order of a record."""
        return {name: field for name, field in self.fields if isinstance(field, Encoded)}

    @cached_property
    def head(self) -> int:
        """Number of bytes of all numbers of a record."""
        return sum(spec.nbytes for spec, _ in self.numbers.values())

    @property
    def least(self) -> int:
        """Number of bytes that every record has."""
        return self.head + LENGTH_BYTES * max(0, len(self.images) - 1)

    def __str__(self) -> str:
        shown = (
            f"{name}: {field if isinstance(field, Spec) else 'encoded'}"
            for name, field in self.fields
        )
        return "{" + ", ".join(shown) + "}"

    def as_json(self) -> list[dict[str, Any]]:
        """Return the fields as JSON for the footer of a file."""
        return [
            {"name": name, "encoded": field.mode}
            if isinstance(field, Encoded)
            else {"name": name, "dtype": dtype_name(field.dtype), "shape": list(field.shape)}
            for name, field in self.fields
        ]

    def misfit(self, nbytes: int) -> str | None:
        """Return why a record cannot have that many bytes, or None."""
        if nbytes < self.least:
            return f"it has {nbytes} bytes, and {self} needs at least {self.least}"
        if not self.images and nbytes != self.head:
            return f"it has {nbytes} bytes, and {self} needs {self.head}"
        return None

    def images_in(self, record: Buffer) -> dict[str, Buffer]:
        """Return the bytes of each encoded image of a record. Raise DataError if they do not fit."""
        view = memoryview(record)
        if (reason := self.misfit(len(view))) is not None:
            raise DataError(f"{reason}.")
        found: dict[str, Buffer] = {}
        begin, names = self.head, list(self.images)
        for name in names[:-1]:
            length = int.from_bytes(view[begin : begin + LENGTH_BYTES], "little")
            begin += LENGTH_BYTES
            if begin + length + LENGTH_BYTES * (len(names) - len(found) - 2) > len(view):
                raise DataError(
                    f"{name!r} has {length} bytes at {begin} of a record of {len(view)} bytes."
                )
            found[name] = view[begin : begin + length]
            begin += length
        found[names[-1]] = view[begin:]
        return found


def record_fields(given: Mapping[str, Any]) -> RecordFields:
    """Return the fields that a caller declares: `Encoded`, a dtype, or (dtype, shape) for each name."""
    if not given:
        raise ArgumentError("the fields of a record are an empty dict; give at least one.")
    return RecordFields(tuple((str(name), _field(name, kind)) for name, kind in given.items()))


def _field(name: str, kind: Any) -> Spec | Encoded:
    if isinstance(kind, Encoded):
        return kind
    dtype, shape = kind if isinstance(kind, tuple | list) and len(kind) == 2 else (kind, ())
    try:
        # Importing this registers bfloat16 and similar dtypes with NumPy.
        import ml_dtypes  # noqa: F401

        if isinstance(kind, Spec):
            dtype, shape = kind.dtype, kind.shape
        spec = Spec(
            (shape,) if isinstance(shape, int) else tuple(shape),
            np.dtype(dtype).newbyteorder("<"),
        )
        # NumPy reads None as float64.
        fits = dtype is not None and min(spec.shape, default=1) > 0
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ArgumentError(
            f'field {name!r} (={kind!r}) must be `Encoded()`, a dtype such as "int64", or a dtype and a shape such '
            'as ("float32", (4,)).'
        )
    check_dtype(spec.dtype, f"field {name!r}")
    return spec


def noted_fields(noted: Any, where: str) -> RecordFields:
    """Return the fields that a file notes in its footer. Raise DataError if they are damaged."""
    fields = [_noted(one) for one in noted] if isinstance(noted, list) else []
    found = RecordFields(tuple(field for field in fields if field is not None))
    names = {name for name, _ in found.fields}
    if not names or len(names) < len(fields) or found.head > MOST_NUMBERS:
        raise DataError(
            f"{where} describes the fields of its records by {noted!r}, which is not valid."
        )
    return found


def _noted(one: Any) -> tuple[str, Spec | Encoded] | None:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        return None
    if "encoded" in one:
        mode = one["encoded"]
        return (one["name"], Encoded(mode=mode)) if mode in tuple(MODES) else None
    if not is_valid(one) or {None, 0} & set(one["shape"]):
        return None
    spec = Spec(tuple(one["shape"]), one["dtype"])
    return None if spec.dtype.hasobject or spec.dtype.names else (one["name"], spec)


def is_valid(row: Mapping[str, Any]) -> bool:
    """Return True if a file describes its records, or a field of them, by a dtype and a shape."""
    dtype, shape = row.get("dtype"), row.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, list):
        return False
    try:
        import ml_dtypes  # noqa: F401

        known = [size for size in shape[:1] if size is not None] + shape[1:]
        return (
            np.dtype(dtype).subdtype is None
            and all(type(size) is int and size >= 0 for size in known)
            # NumPy has this limit even for an array without elements.
            and math.prod(max(1, size) for size in known) * np.dtype(dtype).itemsize < 2**63
        )
    except (TypeError, ValueError, SyntaxError):
        return False


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in the footer of a file."""
    # NumPy's `str` of dtypes from other packages, such as bfloat16, is that of plain bytes.
    return dtype.str if np.dtype(dtype.str) == dtype else dtype.name


def encode_fields(fields: RecordFields, values: Mapping[str, Any]) -> bytes:
    """Return the record of a row: numbers or arrays, and the bytes of encoded images."""
    if values.keys() != dict(fields.fields).keys():
        raise ArgumentError(
            f"a row has the fields {list(values)}, and the records {list(dict(fields.fields))}."
        )
    parts = [_number(name, spec, values[name]) for name, (spec, _) in fields.numbers.items()]
    for place, name in enumerate(fields.images, start=1):
        value = values[name]
        if not hasattr(value, "__bytes__") and not isinstance(value, bytearray | memoryview):
            raise TypeError(
                f"field {name!r} is a {type(value).__name__}; an encoded image is the `bytes` of its file."
            )
        image = bytes(value)
        if place < len(fields.images):
            if len(image) >= 1 << 8 * LENGTH_BYTES:
                raise ArgumentError(
                    f"field {name!r} has {len(image)} bytes; an image that is not the last of its record has at most "
                    f"{(1 << 8 * LENGTH_BYTES) - 1}."
                )
            parts.append(len(image).to_bytes(LENGTH_BYTES, "little"))
        parts.append(image)
    return b"".join(parts)


def _number(name: str, spec: Spec, value: Any) -> bytes:
    array = np.asarray(value)
    fits = array.shape == spec.shape
    if fits:
        with np.errstate(all="ignore"):
            stored = array.astype(spec.dtype) if array.dtype.kind in "biufcV" else array
        # Numbers of Python are int64: only their values tell whether they fit.
        fits = (
            np.can_cast(array.dtype, spec.dtype, "same_kind")
            if spec.dtype.kind not in "biu"
            else array.dtype.kind in "biu" and np.array_equal(stored, array)
        )
    if not fits:
        raise ArgumentError(
            f"field {name!r} is {value!r} of {Spec(array.shape, array.dtype)}, which does not fit {spec}."
        )
    return stored.tobytes()


def decode_fields(fields: RecordFields, record: Buffer) -> dict[str, Any]:
    """Return the row of a record: arrays of native byte order, and the bytes of encoded images."""
    images = fields.images_in(record) if fields.images else {}
    if (reason := fields.misfit(len(record))) is not None:
        raise DataError(f"{reason}.")
    row: dict[str, Any] = {}
    for name, _ in fields.fields:
        if name in images:
            row[name] = images[name]
            continue
        spec, offset = fields.numbers[name]
        array: NDArray[Any] = np.frombuffer(record, spec.dtype, spec.size, offset)
        row[name] = array.astype(spec.dtype.newbyteorder("=")).reshape(spec.shape)
    return row
