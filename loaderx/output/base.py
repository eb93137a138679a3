"""Protocol of all outputs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec
from loaderx.stream.ranges import Ranges

Array = NDArray[Any]
# Host arrays of one field: one for each range of the batch that this process holds.
Blocks = Sequence[Array]


@dataclass(frozen=True)
class Hooked:
    """Facts about a batch that a user's hook returned: the leased arrays it was given, and their places."""

    given: Sequence[Array]
    local: Ranges
    size: int

    def is_leased(self, array: Array) -> bool:
        """Return True if an array is memory of the batch, which nobody else writes to."""
        return any(np.may_share_memory(array, ours) for ours in self.given)


class HandOff(ABC):
    """Hand-off of finished batches to one framework.

    Host arrays are leased: their memory is reused only when the last array that shares it is gone, in any framework.
    """

    # True if batches are divided over devices.
    sharded: bool = False
    # True if what is delivered cannot be written to, so that it may share memory that is read-only.
    shares_read_only: bool = False

    def check_fields(self, names: Sequence[str]) -> None:  # noqa: B027 - most deliver any field
        """Raise if one of the fields cannot be delivered."""

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which a field is delivered; raise if the framework has none for it."""
        return dtype

    def blocks(self, name: str, spec: Spec, size: int) -> Ranges:
        """Return the ranges of a batch of `size` that are one host array each in this process."""
        return ((0, size),)

    def for_calling_thread(self) -> "HandOff":
        """Return the hand-off to the default device of the calling thread: this one unless the device changed."""
        return self

    @abstractmethod
    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        """Convert the host arrays of a batch; return one value for each field."""

    @abstractmethod
    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        """Convert a batch that a user's hook returned, of any structure."""


class ArrayHandOff(HandOff):
    """Hand-off array by array, without devices."""

    @abstractmethod
    def convert(self, array: Array) -> Any:
        """Convert a host array to the array to deliver."""

    def accepts(self, dtype: np.dtype[Any]) -> bool:
        """Return True if arrays of this dtype can be converted; a hook may return others."""
        return True

    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        return [self.convert(blocks[0]) for blocks in arrays]

    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        def convert(_: str, leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray) or not self.accepts(leaf.dtype):
                return leaf
            # A hook may later overwrite memory that is not of the batch. PyTorch aborts at negative strides.
            shared = leaf.flags.c_contiguous and facts.is_leased(leaf)
            return self.convert(leaf if shared else leaf.copy())

        return map_leaves(batch, convert)


def map_leaves(batch: Any, convert: Callable[[str, Any], Any], name: str = "") -> Any:
    """Return a batch with every leaf replaced by `convert(name of its field, leaf)`."""
    if isinstance(batch, dict):
        return {key: map_leaves(value, convert, name or str(key)) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [
            map_leaves(value, convert, name or str(number)) for number, value in enumerate(batch)
        ]
        # The constructor of a named tuple has one argument for each field.
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return convert(name, batch)
