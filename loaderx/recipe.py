"""How one batch is made, from its rows to what the consumer gets: fill, mask, hook, hand-off."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .assembly import Assembly, Pipeline
from .buffers import Pool
from .device import JaxHandOff
from .errors import annotate
from .order import Order, Span
from .ranges import Ranges
from .shutdown import HandOffGate
from .sources.source import RowSpec, assemble
from .spec import Spec

MASK = "mask"
MASK_SPEC = Spec((), np.bool_)
MOST_ROWS_IN_NOTE = 16


@dataclass(frozen=True)
class Recipe:
    """All that a batch depends on. It holds no state of an iterator, so any number may share it."""

    order: Order
    pipeline: Pipeline
    structure: RowSpec
    hook: Callable[[Any], Any] | None
    device: JaxHandOff | None
    mask_pool: Pool | None

    @functools.cached_property
    def description(self) -> str:
        """The fields of the data and what they consist of, by which a saved state is compared."""
        # In any order: a dict with its fields in another one is the same data.
        fields = ", ".join(
            sorted({f"{field.origin}: {field.raw}" for field in self.pipeline.fields})
        )
        picker = self.order.picker
        return fields if picker is None else f"{fields}; {picker.describe()}"

    @functools.cached_property
    def _specs(self) -> dict[str, Spec]:
        """The arrays of a batch."""
        specs = {field.name: field.spec for field in self.pipeline.fields}
        return specs if self.mask_pool is None else {**specs, MASK: MASK_SPEC}

    @functools.cached_property
    def compiled(self) -> bool:
        """Whether no Python code of a user takes part."""
        return self.hook is None and self.pipeline.compiled

    def on_default_device(self) -> "Recipe":
        """Return the recipe for batches on JAX's default device in the calling thread: this one while that is the same.

        The default may be that of a thread, and workers have another.
        """
        if self.device is None:
            return self
        device = self.device.for_default_device()
        return self if device is self.device else dataclasses.replace(self, device=device)

    def build(self, step: int, span: Span) -> Any:
        """A whole batch in this thread."""
        assembly = self.begin(step, span)
        for phase in range(assembly.phases):
            for part in range(assembly.parts(phase)):
                self.fill(assembly, phase, part)
        return self.finish(assembly)

    def begin(self, step: int, span: Span) -> Assembly:
        """Rows and memory of a batch."""
        try:
            return Assembly(self.pipeline, step, span)
        except Exception as error:
            explain(error, step, None)
            raise

    def fill(self, assembly: Assembly, phase: int, part: int) -> None:
        """One part of the samples in one phase."""
        try:
            assembly.fill(phase, part)
        except Exception as error:
            explain(error, assembly.step, assembly.part_rows(phase, part))
            raise

    def finish(self, assembly: Assembly) -> Any:
        """Mask, hook and hand-off."""
        try:
            return self._finish(assembly)
        except Exception as error:
            explain(error, assembly.step, assembly.rows)
            raise

    def _finish(self, assembly: Assembly) -> Any:
        span = assembly.span
        arrays = list(assembly.arrays)
        if self.mask_pool is not None:
            arrays.append(
                [self._mask(span, start, stop) for start, stop in self._mask_blocks(span.size)]
            )
        if self.hook is None and self.device is not None:
            placements = (
                self.device.placement(name, spec, span.size) for name, spec in self._specs.items()
            )
            with HandOffGate():
                placed = [
                    self.device.put(blocks, placement, leased=True)
                    for blocks, placement in zip(arrays, placements, strict=True)
                ]
            return assemble(self.structure, placed)
        whole = [blocks[0] if len(blocks) == 1 else np.concatenate(blocks) for blocks in arrays]
        batch = assemble(self.structure, whole)
        if self.hook is not None:
            batch = self.hook(batch)
        if self.device is None:
            return batch
        with HandOffGate():
            return self._hand_off(batch, whole, "", assembly)

    def _mask(self, span: Span, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of some places of a batch are no padding."""
        assert self.mask_pool is not None
        mask = self.mask_pool.lease((stop - start,), np.dtype(np.bool_))
        mask[:] = np.arange(start, stop) < span.valid
        return mask

    def _mask_blocks(self, size: int) -> Ranges:
        if self.device is None:
            return ((0, size),)
        return self.device.placement(MASK, MASK_SPEC, size).blocks

    def _hand_off(
        self, batch: Any, arrays: list[NDArray[Any]], name: str, assembly: Assembly
    ) -> Any:
        assert self.device is not None
        if isinstance(batch, dict):
            return {
                key: self._hand_off(value, arrays, name or str(key), assembly)
                for key, value in batch.items()
            }
        if isinstance(batch, tuple | list):
            values = [
                self._hand_off(value, arrays, name or str(number), assembly)
                for number, value in enumerate(batch)
            ]
            # A named tuple takes its fields one by one.
            return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
        if not isinstance(batch, np.ndarray | np.generic | bool | int | float | complex):
            # A hook may add what is not a number: names, a jax.Array, None.
            return batch
        array = np.asarray(batch)
        if not self.device.has(array.dtype):
            return batch
        leased = any(np.may_share_memory(array, ours) for ours in arrays)
        if self.device.sharded:
            size = assembly.span.size
            return self.device.put_hooked(
                name or "data", array, assembly.local, size, leased=leased
            )
        return self.device.put_whole(array, leased=leased)


def with_mask(structure: RowSpec) -> RowSpec:
    """The structure of the rows with a mask added to it."""
    if isinstance(structure, dict):
        return {**structure, MASK: MASK_SPEC}
    return (structure, MASK_SPEC) if isinstance(structure, Spec) else (*structure, MASK_SPEC)


def explain(error: Exception, step: int, rows: NDArray[np.int64] | None) -> None:
    """Note in an exception which batch it belongs to."""
    annotate(error, "while building step", f"{step}{_rows_text(rows)}")


def _rows_text(rows: NDArray[np.int64] | None) -> str:
    if rows is None:
        return ""
    shown = ", ".join(str(row) for row in rows[:MOST_ROWS_IN_NOTE])
    more = f", ... ({len(rows)} rows)" if len(rows) > MOST_ROWS_IN_NOTE else ""
    return f", rows [{shown}{more}]"
