"""Builder of batches, from rows to the delivered batch: begin, fill, finish."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.buffers import Pool
from loaderx.errors import annotate
from loaderx.output import HandOff
from loaderx.output.base import Blocks, Hooked
from loaderx.output.numpy import NumpyHandOff
from loaderx.sources.encoded.decoding import decoder_description
from loaderx.sources.source import RowSpec, assemble
from loaderx.spec import Spec
from loaderx.stream.order import Order
from loaderx.stream.ranges import Ranges, common
from loaderx.stream.remainder import Span

from .in_progress import BatchInProgress
from .planner import BatchPlanner
from .scheduler import Scheduler

MASK = "mask"
MASK_SPEC = Spec((), np.bool_)
MOST_ROWS_IN_NOTE = 16


@dataclass(frozen=True)
class BatchBuilder:
    """Builder of the batches of a loader. It has no state of an iterator, so any number of iterators may share it.

    A batch is begun, then filled part by part in any thread, then finished: mask, hook and hand-off. Errors get a note
    with the step and the rows.
    """

    planner: BatchPlanner
    structure: RowSpec
    hook: Callable[[Any], Any] | None
    hand_off: HandOff
    mask_pool: Pool | None

    @property
    def order(self) -> Order:
        """Order of the stream."""
        return self.planner.order

    @property
    def scheduler(self) -> Scheduler:
        """Scheduler of the batches."""
        return self.planner.scheduler

    @functools.cached_property
    def description(self) -> str:
        """Names and specs of the fields, by which a saved state is compared."""
        # Sorted: a dict with its fields in another order is the same data.
        fields = ", ".join(
            sorted({f"{field.origin}: {field.raw}" for field in self.planner.fields})
        )
        sampler = self.order.sampler
        return fields if sampler is None else f"{fields}; {sampler.describe()}"

    @functools.cached_property
    def decoder(self) -> str | None:
        """Names and versions of the image decoders, on which pixels depend; None if no images are encoded."""
        encoded = any(group.reader is not None for group in self.planner.groups)
        return decoder_description() if encoded else None

    @functools.cached_property
    def _specs(self) -> dict[str, Spec]:
        """Specs of the arrays of a batch, by name."""
        specs = {field.name: field.spec for field in self.planner.fields}
        return specs if self.mask_pool is None else {**specs, MASK: MASK_SPEC}

    @functools.cached_property
    def compiled(self) -> bool:
        """True if no Python code of a user runs."""
        return self.hook is None and self.planner.compiled

    def for_calling_thread(self) -> "BatchBuilder":
        """Return the builder for the default device of the calling thread: this one unless the device changed.

        Workers are other threads, which may have another default device.
        """
        hand_off = self.hand_off.for_calling_thread()
        return self if hand_off is self.hand_off else dataclasses.replace(self, hand_off=hand_off)

    def for_pictures(self, size: int) -> "BatchBuilder":
        """Return a builder of batches of `size` NumPy arrays, without mask and hook."""
        order = dataclasses.replace(self.order, batch_size=size)
        return BatchBuilder(
            planner=BatchPlanner(self.planner.groups, order, 1, 1),
            structure={field.name: field.spec for field in self.planner.fields},
            hook=None,
            hand_off=NumpyHandOff(),
            mask_pool=None,
        )

    def build(self, step: int, span: Span) -> Any:
        """Build a batch in this thread and return it."""
        return self.finish(self.filled(step, span))

    def filled(
        self, step: int, span: Span, blocks: Sequence[Ranges] | None = None
    ) -> BatchInProgress:
        """Begin a batch, or only these blocks of each field, and fill it in this thread."""
        in_progress = self.begin_blocks(step, span, blocks)
        for phase in range(in_progress.phases):
            for part in range(in_progress.parts(phase)):
                self.fill(in_progress, phase, part)
        return in_progress

    def begin(self, step: int, span: Span) -> BatchInProgress:
        """Begin a batch: find its rows and lease its memory."""
        return self.begin_blocks(step, span, None)

    def begin_blocks(
        self, step: int, span: Span, blocks: Sequence[Ranges] | None
    ) -> BatchInProgress:
        """Begin a batch, or only these blocks of each field."""
        try:
            return BatchInProgress(self.planner, step, span, blocks)
        except Exception as error:
            _annotate_step(error, step, None)
            raise

    def fill(self, in_progress: BatchInProgress, phase: int, part: int) -> None:
        """Fill one part of a batch in one phase."""
        try:
            in_progress.fill(phase, part)
        except Exception as error:
            _annotate_step(error, in_progress.step, in_progress.part_rows(phase, part))
            raise

    def finish(self, in_progress: BatchInProgress) -> Any:
        """Finish a batch: mask, hook and hand-off."""
        try:
            if self.hook is None:
                return self.deliver(in_progress.span, in_progress.arrays)
            return self.hand_off.deliver_hooked(*self._hooked(in_progress))
        except Exception as error:
            _annotate_step(error, in_progress.step, in_progress.rows)
            raise

    def deliver(self, span: Span, arrays: Sequence[Blocks]) -> Any:
        """Hand off the arrays of a batch, which no hook gets, with its mask."""
        if self.mask_pool is not None:
            blocks = self.hand_off.blocks(MASK, MASK_SPEC, span.size)
            arrays = [*arrays, [self._mask(span, start, stop) for start, stop in blocks]]
        delivered = self.hand_off.deliver(self._specs, arrays, span.size)
        return assemble(self.structure, delivered)

    def call_hook(self, in_progress: BatchInProgress) -> Any:
        """Return what the hook returns for a batch, or for some places of it."""
        try:
            return self._hooked(in_progress)[0]
        except Exception as error:
            _annotate_step(error, in_progress.step, in_progress.rows)
            raise

    def _hooked(self, in_progress: BatchInProgress) -> tuple[Any, Hooked]:
        """Call the hook; return its batch, with the facts that the hand-off needs."""
        assert self.hook is not None
        span, local = in_progress.span, in_progress.local
        arrays = list(in_progress.arrays)
        if self.mask_pool is not None:
            # The hook gets the same places of all fields.
            blocks = common(self.hand_off.blocks(MASK, MASK_SPEC, span.size), local)
            arrays.append([self._mask(span, start, stop) for start, stop in blocks])
        whole = [blocks[0] if len(blocks) == 1 else np.concatenate(blocks) for blocks in arrays]
        batch = self.hook(assemble(self.structure, whole))
        return batch, Hooked(whole, local, span.size)

    def _mask(self, span: Span, start: int, stop: int) -> NDArray[np.bool_]:
        """Return the mask of places of a batch: False for padding."""
        assert self.mask_pool is not None
        mask = self.mask_pool.lease((stop - start,), np.dtype(np.bool_))
        mask[:] = np.arange(start, stop) < span.valid
        return mask


def with_mask(structure: RowSpec) -> RowSpec:
    """Add the mask to the structure of the rows."""
    if isinstance(structure, dict):
        return {**structure, MASK: MASK_SPEC}
    return (structure, MASK_SPEC) if isinstance(structure, Spec) else (*structure, MASK_SPEC)


def _annotate_step(error: Exception, step: int, rows: NDArray[np.int64] | None) -> None:
    """Add a note with the step and the rows of its batch to an exception."""
    annotate(error, "while building step", f"{step}{_rows_text(rows)}")


def _rows_text(rows: NDArray[np.int64] | None) -> str:
    if rows is None:
        return ""
    shown = ", ".join(str(row) for row in rows[:MOST_ROWS_IN_NOTE])
    more = f", ... ({len(rows)} rows)" if len(rows) > MOST_ROWS_IN_NOTE else ""
    return f", rows [{shown}{more}]"
