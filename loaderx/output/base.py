"""The protocol of all outputs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec
from loaderx.stream.ranges import Ranges

Array = NDArray[Any]
# Host arrays of one field: one for each stretch of the batch that this process holds.
Blocks = Sequence[Array]


@dataclass(frozen=True)
class Hooked:
    """Facts about a batch that a user's hook returned: the arrays it was given, which are leased, and their places."""

    given: Sequence[Array]
    local: Ranges
    size: int

    def is_leased(self, array: Array) -> bool:
        """Tell whether an array is memory of the batch, which nobody else writes to."""
        return any(np.may_share_memory(array, ours) for ours in self.given)


class HandOff(ABC):
    """Hand-off of finished batches to one framework.

    Host arrays are leased: their memory is used again only when the last array that sees it is gone, whatever
    framework that belongs to.
    """

    # Whether batches are laid out over devices.
    sharded: bool = False

    def check_fields(self, names: Sequence[str]) -> None:  # noqa: B027 - most deliver any field
        """Raise if a field of these names cannot be delivered."""

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which a field is delivered; raise if there is none."""
        return dtype

    def blocks(self, name: str, spec: Spec, size: int) -> Ranges:
        """Return the stretches of a batch of `size` that are one host array each in this process."""
        return ((0, size),)

    def for_calling_thread(self) -> "HandOff":
        """Return the hand-off to the default device of the calling thread: this one while that is the same."""
        return self

    @abstractmethod
    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        """Return what is delivered for each field of a batch."""

    @abstractmethod
    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        """Return what is delivered for a batch that a user's hook returned, of any structure."""


class ArrayHandOff(HandOff):
    """Hand-off array by array, without devices."""

    @abstractmethod
    def convert(self, array: Array) -> Any:
        """Return what is delivered for a host array."""

    def accepts(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays of this dtype can be converted; a hook may return others."""
        return True

    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        return [self.convert(blocks[0]) for blocks in arrays]

    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        def convert(_: str, leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray) or not self.accepts(leaf.dtype):
                return leaf
            # Other memory than that of the batch, a hook may overwrite later. PyTorch aborts at negative strides.
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
        # A named tuple takes its fields one by one.
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return convert(name, batch)
