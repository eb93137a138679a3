"""Labels of images from a sidecar: a JSON file, a mapping, or an array."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.sources.array import NPDataset

Labels: TypeAlias = str | os.PathLike[str] | Mapping[str, int] | NDArray[Any]


def sidecar_labels(labels: Labels, keys: Iterable[str], rows: int) -> NPDataset:
    """Return the label of each row. A mapping, or a JSON file with one, has a number for each key."""
    where = "`labels`"
    if isinstance(labels, str | os.PathLike):
        where = str(labels)
        try:
            labels = json.loads(Path(labels).read_bytes())
        except ValueError as error:
            raise DataError(f"{where} is not a JSON file: {error}") from error
    if isinstance(labels, Mapping):
        found = np.empty(rows, np.int64)
        for row, key in enumerate(keys):
            value = labels.get(key)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise DataError(f"{where} has {value!r} for {key!r} (row {row}), not an integer.")
            if not -(2**63) <= value < 2**63:
                raise DataError(f"{where} has {value} for {key!r} (row {row}), more than 64 bits.")
            found[row] = value
        return NPDataset(found)
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf" or len(array.shape) == 0:
        raise ArgumentError(
            f"{where} must be a mapping from names to integers, a JSON file of one, or an array of numbers."
        )
    if len(array) != rows:
        raise ArgumentError(f"{where} has {len(array)} numbers for {rows} images.")
    return NPDataset(array)
