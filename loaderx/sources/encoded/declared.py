"""Fields that a caller declares for a container: encoded images, and numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .field import Encoded


@dataclass(frozen=True)
class Numbers:
    """Field of numbers: the name that it has in the container, and the spec of a row."""

    field: str
    spec: Spec


def declared_fields(
    given: Mapping[str, Any], plain: Callable[[str], Encoded | Numbers | None]
) -> dict[str, Encoded | Numbers]:
    """Return the fields of a row: an `Encoded`, (dtype, name) or (dtype, name, shape) each, or a name for `plain`."""
    if not hasattr(given, "items") or not given:
        raise ArgumentError(
            f'`fields` (={given!r}) must be a dict of the fields of a row, such as {{"image": Encoded("name")}}.'
        )
    return {str(name): _declared(str(name), field, plain) for name, field in given.items()}


def _declared(
    name: str, field: Any, plain: Callable[[str], Encoded | Numbers | None]
) -> Encoded | Numbers:
    found: Encoded | Numbers | None = None
    if isinstance(field, Encoded):
        found = field if field.field is not None else replace(field, field=name)
    elif isinstance(field, str):
        found = plain(field)
    elif isinstance(field, tuple) and len(field) in (2, 3) and isinstance(field[1], str):
        found = _numbers(*field)
    if found is None:
        raise ArgumentError(
            f"field {name!r} (={field!r}) must be `Encoded(...)` with the name that the images have in the files, or a "
            'dtype and the name of numbers, such as ("int64", "label").'
        )
    return found


def _numbers(dtype: Any, name: str, shape: Any = ()) -> Numbers | None:
    try:
        spec = Spec((shape,) if isinstance(shape, int) else tuple(shape), dtype)
    except (TypeError, ValueError):
        return None
    known = dtype is not None and spec.dtype.kind in "biuf" and min(spec.shape, default=1) > 0
    return Numbers(name, spec) if known else None


def fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return True if a number of Python can be stored in a dtype without another value, but for rounded floats."""
    if isinstance(value, bool) and dtype.kind != "b":
        return False
    if dtype.kind == "f":
        return isinstance(value, int | float)
    if not isinstance(value, int):
        return False
    if dtype.kind == "b":
        return value in (0, 1)
    limits = np.iinfo(dtype)
    return int(limits.min) <= value <= int(limits.max)
