"""`RowLayout`: the arrangement of the elements of a row in memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Arrangement of a row: C-contiguous native elements, or pieces of `unit` bytes at `offsets`."""

    offsets: NDArray[np.int64] | None = None
    unit: int = 1
    swap: bool = False

    def same_as(self, other: "RowLayout") -> bool:
        """Tell whether one kernel call can read rows of both."""
        if self.offsets is None or other.offsets is None:
            return self.offsets is other.offsets
        return (self.unit, self.swap) == (other.unit, other.swap) and np.array_equal(
            self.offsets, other.offsets
        )


def row_layout(array: NDArray[Any]) -> RowLayout:
    """Return the layout of the rows of an array of any strides and byte order."""
    strides, shape = array.strides[1:], array.shape[1:]
    swap = not array.dtype.isnative
    size = array.dtype.itemsize
    packed = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) * size for axis in range(len(shape))]
    contiguous = all(
        extent <= 1 or stride == wanted
        for extent, stride, wanted in zip(shape, strides, packed, strict=True)
    )
    if contiguous and not swap and array.flags.aligned:
        return RowLayout()
    # Complex numbers and strings swap by component, all others by element.
    unit = {"c": size // 2, "U": 4}.get(array.dtype.kind, size)
    offsets = np.zeros((*shape, size // unit), np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        offsets += steps.reshape(-1, *([1] * (len(shape) - axis)))
    offsets += np.arange(size // unit, dtype=np.int64) * unit
    return RowLayout(offsets.reshape(-1), unit, swap)
