"""Batch in progress: filled phase by phase, each phase in parts that several threads fill at once."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.compiler.head import Head
from loaderx.compiler.points_head import PointsHead
from loaderx.sources import AddressableSource
from loaderx.sources.row_addresses import RowAddresses, addresses_of_rows
from loaderx.sources.source import narrow_into, specs_of
from loaderx.stream import ranges
from loaderx.stream.ranges import Ranges
from loaderx.stream.remainder import Span

from .encoded_rows import EncodedReader
from .planner import BatchPlanner

# Rows that are decoded before the rest of the chain runs: they stay in the cache, and their memory is used again.
DECODED_AT_ONCE = 8


class BatchInProgress:
    """Batch that is being filled, with its rows and its memory; with `blocks`, only these blocks of each field."""

    def __init__(
        self,
        planner: BatchPlanner,
        step: int,
        span: Span,
        blocks: Sequence[Ranges] | None = None,
    ) -> None:
        self.step = step
        self.span = span
        self._planner = planner
        self._plan = planner.plan(span, blocks)
        self.phases = planner.phases
        gather = planner.shuffled_gather if blocks is None else None
        self._gather = gather if gather is not None and gather.reaches(span) else None
        self._rows: NDArray[np.int64] | None = None
        # Number of rows that were damaged, and replaced by others.
        self.replaced = 0
        if self._gather is None:
            positions = planner.order.positions(span, self._plan.places)
            self._rows = planner.order.rows_at(positions)
            self._positions = positions if planner.transformed else self._rows
        # field -> its blocks
        self.arrays = [
            [pool.lease((stop - start, *field.spec.shape), field.spec.dtype) for start, stop in own]
            for field, pool, own in zip(
                planner.fields, planner.pools, self._plan.blocks, strict=True
            )
        ]
        # Samples between two phases, for fields whose samples are mixed with others of the batch.
        self._intermediate = [
            pool.lease((span.size, *spec.shape), spec.dtype)
            for pool, spec in zip(
                planner.intermediate_pools, planner.intermediate_specs, strict=True
            )
        ]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows that this process reads."""
        if self._rows is None:
            self._rows = self._planner.order.rows_of(self.span)
        return self._rows

    @property
    def local(self) -> Ranges:
        """Places of the batch that the arrays of this process hold."""
        return ranges.union(self._plan.blocks[0])

    def cancel(self) -> None:
        """Do nothing: the parts that threads are filling end soon."""

    def parts(self, phase: int) -> int:
        """Return the number of parts of a phase."""
        return len(self._plan.parts[phase])

    def part_rows(self, phase: int, part: int) -> NDArray[np.int64]:
        """Return the rows of a part, for messages."""
        joined = ranges.union(own for _, own in self._plan.parts[phase][part])
        found = [self.rows[self._numbers(*own)] for own in joined]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def fill(self, phase: int, part: int) -> None:
        """Take the samples of one part through one phase."""
        if self._gather is not None:
            # All fields have the same places.
            start, stop = self._plan.parts[0][part][0][1]
            self._gather.fill(self.span, start, stop, [blocks[0] for blocks in self.arrays])
            return
        for number, (start, stop) in self._plan.parts[phase][part]:
            if phase == 0:
                self._read(number, start, stop)
                continue
            whole = self._intermediate[self._planner.intermediate[number, phase - 1]]
            self._run(number, phase, start, stop, addresses_of_rows(whole[start:stop]), whole)

    def _numbers(self, start: int, stop: int) -> slice:
        """Return the index of places of the batch in the rows that this process reads."""
        if self._plan.places is not None:
            stop -= start
            start = int(np.searchsorted(self._plan.places, start))
            stop += start
        return slice(start, stop)

    def _read(self, number: int, start: int, stop: int) -> None:
        """Read rows of one source, and run the first phase of its fields."""
        group, first = self._planner.groups[number], self._planner.firsts[number]
        if group.reader is not None:
            for begin in range(start, stop, DECODED_AT_ONCE):
                self._decode(number, group.reader, begin, min(begin + DECODED_AT_ONCE, stop))
            return
        rows = self.rows[self._numbers(start, stop)]
        field = group.fields[0]
        source = group.source
        if len(group.fields) == 1 and isinstance(source, AddressableSource):
            if field.chain is None:
                block = self._block(first, start, stop)
                assert block is not None
                source.read(rows, (block,))
                return
            if (
                source.layout.offsets is None
                and not field.chain.needs_samples
                and field.chain.phases[0].segments
            ):
                self._run(first, 0, start, stop, source.locate(rows), None)
                return
        targets: dict[int, NDArray[Any]] = {}
        for offset, (field, column) in enumerate(zip(group.fields, group.columns, strict=True)):
            target = None if field.chain is not None else self._block(first + offset, start, stop)
            if target is None and column not in targets:
                spec = field.raw if field.chain is not None else field.spec
                target = np.empty((stop - start, *spec.shape), spec.dtype)
            if target is not None:
                targets[column] = target
        source.read(rows, [targets[column] for column in sorted(targets)])
        for offset, (field, column) in enumerate(zip(group.fields, group.columns, strict=True)):
            if field.chain is not None:
                self._run_column(number, offset, start, stop, targets, targets[column])

    def _run_column(
        self,
        number: int,
        offset: int,
        start: int,
        stop: int,
        targets: dict[int, NDArray[Any]],
        samples: NDArray[Any],
        boxes: NDArray[Any] | None = None,
    ) -> None:
        """Run the first phase of one field of a source, with what other columns of it say of its samples.

        `boxes` are those next to its samples, if they are not as in their column.
        """
        group, first = self._planner.groups[number], self._planner.firsts[number]
        chain = group.fields[offset].chain
        assert chain is not None
        origins = [own.origin for own in group.fields]
        located = addresses_of_rows(samples)
        if chain.length in origins:
            lengths = targets[group.columns[origins.index(chain.length)]]
            located.lengths = lengths.astype(np.int64)
        if boxes is not None:
            located.boxes = boxes
        elif chain.boxes in origins:
            located.boxes = targets[group.columns[origins.index(chain.boxes)]]
        self._run(first + offset, 0, start, stop, located, samples)

    def _decode(self, number: int, reader: EncodedReader, start: int, stop: int) -> None:
        """Read and decode a few rows with encoded images, and run the first phase of their fields."""
        group, first = self._planner.groups[number], self._planner.firsts[number]
        own = self._numbers(start, stop)
        targets: dict[int, NDArray[Any]] = {}
        samples: dict[Head | PointsHead, NDArray[Any]] = {}
        # Several fields may be made from one column, and one of them may be the column itself.
        for offset, (field, column) in enumerate(zip(group.fields, group.columns, strict=True)):
            if field.chain is not None and field.chain.head is not None:
                spec = field.chain.input
                samples[field.chain.head] = np.empty((stop - start, *spec.shape), spec.dtype)
                if isinstance(field.chain.head, Head):
                    continue
            target = None if field.chain is not None else self._block(first + offset, start, stop)
            if target is None and column not in targets:
                spec = field.raw if field.chain is not None else field.spec
                target = np.empty((stop - start, *spec.shape), spec.dtype)
            if target is not None:
                targets[column] = target
        count = len(specs_of(group.source.spec))
        columns = [targets.get(column) for column in range(count)]
        rows = self.rows[own]
        found = reader.read(rows, self._positions[own], columns, samples)
        self.replaced += int(np.count_nonzero(found != rows))
        self.rows[own] = found
        for offset, (field, column) in enumerate(zip(group.fields, group.columns, strict=True)):
            if field.chain is not None:
                head, boxes_head = field.chain.head, field.chain.boxes_head
                self._run_column(
                    *(number, offset, start, stop, targets),
                    targets[column] if head is None else samples[head],
                    None if boxes_head is None else samples[boxes_head],
                )

    def _run(
        self,
        number: int,
        phase: int,
        start: int,
        stop: int,
        located: RowAddresses,
        samples: NDArray[Any] | None,
    ) -> None:
        chain = self._planner.fields[number].chain
        assert chain is not None
        if phase < len(chain.phases) - 1:
            out = self._intermediate[self._planner.intermediate[number, phase]][start:stop]
        else:
            block = self._block(number, start, stop)
            if block is None:
                return
            out = block
        spec = chain.phases[phase].output
        target = out if out.dtype == spec.dtype else np.empty(out.shape, spec.dtype)
        own = self._numbers(start, stop)
        if chain.length is not None and located.lengths is None:
            lengths = self._planner.values_of(chain.length, self.rows[own])
            located.lengths = lengths.astype(np.int64)
        # Of encoded images, only the first phase reads boxes.
        if chain.boxes is not None and chain.boxes_head is None and located.boxes is None:
            located.boxes = self._planner.values_of(chain.boxes, self.rows[own])
        masks = None
        field_of_masks = self._planner.masks.get((number, phase))
        if field_of_masks is not None:
            masks = self._intermediate[self._planner.intermediate[field_of_masks, phase - 1]]
        chain.run(
            *(phase, start, self.span.position, self._positions[own], located, samples, target),
            masks=masks,
        )
        if target is not out:
            narrow_into(target, self.rows[own], out)

    def _block(self, number: int, start: int, stop: int) -> NDArray[Any] | None:
        """Return the memory of places of a field, which are in one block; None if this process does not hold them."""
        blocks = self._plan.blocks[number]
        found = bisect_right(blocks, (start, self.span.size)) - 1
        if found < 0 or blocks[found][1] < stop:
            return None
        first = blocks[found][0]
        memory: NDArray[Any] = self.arrays[number][found][start - first : stop - first]
        return memory

    @property
    def nbytes(self) -> int:
        """Bytes of the host arrays."""
        return self._plan.nbytes
