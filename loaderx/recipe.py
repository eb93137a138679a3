"""How one batch is made, from its rows to what the consumer gets: fill, mask, hook, hand-off."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .assembly import Assembly, Pipeline
from .buffers import Pool
from .device import JaxHandOff
from .order import Order, Span
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
    def compiled(self) -> bool:
        """Whether no Python code of a user takes part."""
        return self.hook is None and self.pipeline.compiled

    def build(self, step: int, span: Span) -> Any:
        """A whole batch in this thread."""
        assembly = self.begin(step, span)
        for phase in range(assembly.phases):
            for part in range(len(assembly.parts)):
                self.fill(assembly, phase, part)
        return self.finish(assembly)

    def begin(self, step: int, span: Span) -> Assembly:
        """Rows and memory of a batch."""
        try:
            return Assembly(self.pipeline, step, span)
        except BaseException as error:
            explain(error, step, None)
            raise

    def fill(self, assembly: Assembly, phase: int, part: int) -> None:
        """One part of the samples in one phase."""
        try:
            assembly.fill(phase, part)
        except BaseException as error:
            start, stop = assembly.parts[part]
            explain(error, assembly.step, assembly.rows[start:stop])
            raise

    def finish(self, assembly: Assembly) -> Any:
        """Mask, hook and hand-off."""
        try:
            return self._finish(assembly)
        except BaseException as error:
            explain(error, assembly.step, assembly.rows)
            raise

    def _finish(self, assembly: Assembly) -> Any:
        arrays = list(assembly.arrays)
        if self.mask_pool is not None:
            mask = self.mask_pool.lease((assembly.span.size,), np.dtype(np.bool_))
            mask[:] = np.arange(assembly.span.size) < assembly.span.valid
            arrays.append(mask)
        if self.hook is None and self.device is not None:
            return assemble(
                self.structure, [self.device.put(array, leased=True) for array in arrays]
            )
        batch = assemble(self.structure, arrays)
        if self.hook is not None:
            batch = self.hook(batch)
        return batch if self.device is None else self._hand_off(batch, arrays)

    def _hand_off(self, batch: Any, arrays: list[NDArray[Any]]) -> Any:
        assert self.device is not None
        if isinstance(batch, dict):
            return {name: self._hand_off(value, arrays) for name, value in batch.items()}
        if isinstance(batch, tuple | list):
            values = [self._hand_off(value, arrays) for value in batch]
            # A named tuple takes its fields one by one.
            return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
        if not isinstance(batch, np.ndarray | np.generic | bool | int | float | complex):
            # A hook may add what is not a number: names, a jax.Array, None.
            return batch
        array = np.asarray(batch)
        if not self.device.has(array.dtype):
            return batch
        leased = any(np.may_share_memory(array, ours) for ours in arrays)
        return self.device.put(array, leased=leased)


def with_mask(structure: RowSpec) -> RowSpec:
    """The structure of the rows with a mask added to it."""
    if isinstance(structure, dict):
        return {**structure, MASK: MASK_SPEC}
    return (structure, MASK_SPEC) if isinstance(structure, Spec) else (*structure, MASK_SPEC)


def explain(error: BaseException, step: int, rows: NDArray[np.int64] | None) -> None:
    """Note in an exception which batch it belongs to."""
    error.add_note(f"loaderx: while building step {step}{_rows_text(rows)}")


def _rows_text(rows: NDArray[np.int64] | None) -> str:
    if rows is None:
        return ""
    shown = ", ".join(str(row) for row in rows[:MOST_ROWS_IN_NOTE])
    more = f", ... ({len(rows)} rows)" if len(rows) > MOST_ROWS_IN_NOTE else ""
    return f", rows [{shown}{more}]"
