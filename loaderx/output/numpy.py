"""Output as NumPy arrays: the host arrays themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.spec import Spec

from .base import Blocks, HandOff, Hooked


class NumpyHandOff(HandOff):
    """Hand-off of the host arrays without conversion."""

    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        return [blocks[0] for blocks in arrays]

    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        return batch
