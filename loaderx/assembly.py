"""Rows of a batch -> host arrays of that batch, in parts that several threads can fill at once.

A process fills only the places of a batch that its devices hold, and those that are mixed into them.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ranges
from .buffers import Pool
from .compiler.chain import Chain
from .order import Order, Span
from .ranges import Range, Ranges
from .sources import LocatedSource, Source
from .sources.located import Located, located_in
from .sources.source import specs_of, store
from .spec import Spec
from .straight import Straight

# Below this many bytes a second thread costs more than it brings; a transform does more per byte than a copy.
BYTES_PER_PART = 2 * 1024 * 1024
TRANSFORMED_BYTES_PER_PART = 256 * 1024
# [2 cores: 110 us per batch of 4 bytes with workers, 50 us without] What is only copied is known by its bytes: measured
# while threads wait for each other it may seem to take any time.
WAKING_SECONDS = 120e-6
WAKING_BYTES = 384 * 1024
# Small batches are built several in a row, up to so many and for about so long: waking the consumer for each of them
# takes as long as building it.
IN_A_ROW = 4
ROW_SECONDS = 800e-6

# (field, batch size) -> the stretches of the batch that are one array each in this process
Blocks = Callable[["Field", int], Ranges]
# What a part consists of: the number of a source in the first phase and of a field in others, and places of the batch.
Part = list[tuple[int, Range]]


@dataclass(frozen=True)
class Field:
    """One array of a batch: its name, the spec its rows are delivered in, that of the source, and what lies between."""

    name: str
    spec: Spec
    raw: Spec
    chain: Chain | None = None

    @property
    def origin(self) -> str:
        """The field of the data that it is made of."""
        return self.name if self.chain is None else self.chain.origin

    @property
    def phases(self) -> int:
        """How often it must be waited for all samples of a batch, and once more."""
        return 1 if self.chain is None else len(self.chain.phases)


@dataclass(frozen=True)
class Group:
    """A source and the fields that it fills: columns[k] is what the source gives for fields[k]."""

    source: Source
    fields: tuple[Field, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Which places of a batch are filled here, phase by phase."""

    blocks: list[Ranges]
    # The places of the batch of which rows are read; None is all.
    places: NDArray[np.int64] | None
    # phase -> parts
    parts: list[list[Part]]
    # Bytes of the host arrays.
    nbytes: int


class Assembly:
    """A batch being filled: phase by phase, each in any number of parts."""

    def __init__(self, pipeline: "Pipeline", step: int, span: Span) -> None:
        self.step = step
        self.span = span
        self._pipeline = pipeline
        self._plan = pipeline.plan(span)
        self.phases = pipeline.phases
        straight = pipeline.straight
        self._straight = straight if straight is not None and straight.reaches(span) else None
        self._rows: NDArray[np.int64] | None = None
        if self._straight is None:
            positions = pipeline.order.positions(span, self._plan.places)
            self._rows = pipeline.order.rows_at(positions)
            self._positions = positions if pipeline.transformed else self._rows
        # field -> its blocks
        self.arrays = [
            [pool.lease((stop - start, *field.spec.shape), field.spec.dtype) for start, stop in own]
            for field, pool, own in zip(
                pipeline.fields, pipeline.pools, self._plan.blocks, strict=True
            )
        ]
        # What a field is between two phases, where it is mixed with other samples of the batch.
        self._halfway = [
            pool.lease((span.size, *spec.shape), spec.dtype)
            for pool, spec in zip(pipeline.halfway_pools, pipeline.halfway_specs, strict=True)
        ]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that are read here."""
        if self._rows is None:
            self._rows = self._pipeline.order.rows_of(self.span)
        return self._rows

    @property
    def local(self) -> Ranges:
        """The places of the batch that the arrays of this process hold."""
        return ranges.union(self._plan.blocks[0])

    def parts(self, phase: int) -> int:
        """Into how many parts a phase is divided."""
        return len(self._plan.parts[phase])

    def part_rows(self, phase: int, part: int) -> NDArray[np.int64]:
        """The rows of a part, for messages."""
        stretches = ranges.union(stretch for _, stretch in self._plan.parts[phase][part])
        found = [self.rows[self._numbers(*stretch)] for stretch in stretches]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def fill(self, phase: int, part: int) -> None:
        """Take the samples of one part through one phase."""
        if self._straight is not None:
            # All fields have the same places.
            start, stop = self._plan.parts[0][part][0][1]
            self._straight.fill(self.span, start, stop, [blocks[0] for blocks in self.arrays])
            return
        for number, (start, stop) in self._plan.parts[phase][part]:
            if phase == 0:
                self._read(number, start, stop)
                continue
            whole = self._halfway[self._pipeline.halfway[number, phase - 1]]
            self._run(number, phase, start, stop, located_in(whole[start:stop]), whole)

    def _numbers(self, start: int, stop: int) -> slice:
        """Where places of the batch stand among those that are read."""
        if self._plan.places is not None:
            stop -= start
            start = int(np.searchsorted(self._plan.places, start))
            stop += start
        return slice(start, stop)

    def _read(self, number: int, start: int, stop: int) -> None:
        """Rows of one source, and the first phase of its fields."""
        group, first = self._pipeline.groups[number], self._pipeline.firsts[number]
        rows = self.rows[self._numbers(start, stop)]
        field = group.fields[0]
        source = group.source
        if len(group.fields) == 1 and isinstance(source, LocatedSource):
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
                samples = targets[column]
                beside = [own.origin for own in group.fields]
                length = field.chain.length
                lengths = None
                if length in beside:
                    lengths = targets[group.columns[beside.index(length)]].astype(np.int64)
                self._run(first + offset, 0, start, stop, located_in(samples, lengths), samples)

    def _run(
        self,
        number: int,
        phase: int,
        start: int,
        stop: int,
        located: Located,
        samples: NDArray[Any] | None,
    ) -> None:
        chain = self._pipeline.fields[number].chain
        assert chain is not None
        if phase < len(chain.phases) - 1:
            out = self._halfway[self._pipeline.halfway[number, phase]][start:stop]
        else:
            block = self._block(number, start, stop)
            if block is None:
                return
            out = block
        spec = chain.phases[phase].output
        target = out if out.dtype == spec.dtype else np.empty(out.shape, spec.dtype)
        own = self._numbers(start, stop)
        if chain.length is not None and located.lengths is None:
            located.lengths = self._pipeline.lengths(chain.length, self.rows[own])
        chain.run(phase, start, self.span.position, self._positions[own], located, samples, target)
        if target is not out:
            store(target, self.rows[own], out)

    def _block(self, number: int, start: int, stop: int) -> NDArray[Any] | None:
        """The memory of places of a field, which no part has of two blocks; None if they are not wanted."""
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


class Pipeline:
    """Everything that is known about a batch before its rows are."""

    def __init__(
        self,
        groups: Sequence[Group],
        order: Order,
        workers: int,
        prefetch: int,
        blocks: Blocks | None = None,
    ) -> None:
        self.groups = tuple(groups)
        self.order = order
        self.fields = tuple(field for group in groups for field in group.fields)
        # The number of the first field of every group.
        self.firsts = [0, *np.cumsum([len(group.fields) for group in groups]).tolist()][:-1]
        chains = [field.chain for field in self.fields]
        self.transformed = any(chain is not None for chain in chains)
        self.phases = max(field.phases for field in self.fields)
        # (field, phase) -> which of the arrays between phases.
        self.halfway: dict[tuple[int, int], int] = {}
        self.halfway_specs: list[Spec] = []
        for number, chain in enumerate(chains):
            for phase in range(0 if chain is None else len(chain.phases) - 1):
                assert chain is not None
                self.halfway[number, phase] = len(self.halfway_specs)
                self.halfway_specs.append(chain.phases[phase].output)
        self._workers = workers
        self._row_bytes = sum(max(field.spec.nbytes, field.raw.nbytes) for field in self.fields)
        # Whether no Python code of a user takes part; what that costs is not known from the bytes.
        self.compiled = all(
            isinstance(group.source, LocatedSource)
            and all(field.chain is None or field.chain.compiled for field in group.fields)
            for group in groups
        )
        self._divisible = all(group.source.divisible for group in groups)
        self._heavy = self.transformed or any(
            isinstance(group.source, LocatedSource) and group.source.heavy for group in groups
        )
        self._blocks = blocks or (lambda _field, size: ((0, size),))
        self.straight = None
        if blocks is None and not self.transformed and len(self.fields) == len(groups):
            sources = [group.source for group in groups]
            self.straight = Straight.of(order, sources, [field.spec for field in self.fields])
        self._plans: dict[int, Plan] = {}

        size = order.batch_size
        self._batch_bytes = size * self._row_bytes
        own = [self._blocks(field, size) for field in self.fields]
        # A batch that is not divided keeps one worker busy, and the next must lie ready when that one is done.
        divided = self._parts(max(ranges.count(ranges.union(blocks)) for blocks in own)) > 1
        self.ahead = prefetch if divided else prefetch + workers
        # Whether a worker may build several in a row; of large ones that would take memory and bring nothing.
        self._rowed = self.straight is not None and self._batch_bytes <= BYTES_PER_PART
        # What is under way, what the consumer got, and what it had before.
        self._keep = self.ahead * (IN_A_ROW if self._rowed else 1) + 2
        self.pools = [
            self.pool(field.spec, blocks) for field, blocks in zip(self.fields, own, strict=True)
        ]
        self.halfway_pools = [self.pool(spec, ((0, size),)) for spec in self.halfway_specs]

    def lengths(self, origin: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How much of these rows is data, as a field of the data set says."""
        group, column = next(
            (group, column)
            for group in self.groups
            for field, column in zip(group.fields, group.columns, strict=True)
            if field.origin == origin
        )
        specs = specs_of(group.source.spec)
        read = [np.empty((len(rows), *spec.shape), spec.dtype) for spec in specs]
        group.source.read(rows, read)
        return read[column].astype(np.int64)

    def pool(self, spec: Spec, blocks: Ranges) -> Pool:
        """Memory for the blocks of one array of every batch."""
        longest = max(stop - start for start, stop in blocks)
        return Pool(longest * spec.nbytes, self._keep * len(blocks))

    def small(self, seconds: float) -> bool:
        """Whether a batch that takes so many seconds is less than waking a thread and taking turns with it."""
        if self.straight is None:
            return seconds < WAKING_SECONDS
        return self._batch_bytes < WAKING_BYTES

    def in_a_row(self, seconds: float) -> int:
        """How many batches that take so many seconds a worker builds before it wakes the consumer."""
        return max(1, min(IN_A_ROW, math.ceil(ROW_SECONDS / seconds))) if self._rowed else 1

    def check_size(self, size: int) -> None:
        """Raise if a batch of `size` cannot be divided over the devices."""
        for field in self.fields:
            self._blocks(field, size)

    def plan(self, span: Span) -> Plan:
        """What of a batch is filled here."""
        known = self._plans.get(span.size)
        if known is not None:
            return known
        plan = self._make_plan(span)
        # With whom samples are mixed is different in every batch; if all are wanted here that makes no difference.
        if all(
            field.phases == 1 or ranges.union(own) == ((0, span.size),)
            for field, own in zip(self.fields, plan.blocks, strict=True)
        ):
            self._plans[span.size] = plan
        return plan

    def _make_plan(self, span: Span) -> Plan:
        size = span.size
        blocks = [self._blocks(field, size) for field in self.fields]
        # field -> phase -> the places that must have come so far
        needed: list[list[Ranges]] = []
        for field, own in zip(self.fields, blocks, strict=True):
            places = [ranges.union(own)]
            for phase in range(field.phases - 1, 0, -1):
                assert field.chain is not None
                step = field.chain.partner_step(phase, size, span.position)
                partners = ranges.rotated(places[0], step, size)
                places.insert(0, ranges.union([*places[0], *partners]))
            needed.append(places)
        phases: list[list[Part]] = []
        for phase in range(self.phases):
            tasks: list[tuple[int, list[Range]]] = []
            if phase == 0:
                for number, (group, first) in enumerate(zip(self.groups, self.firsts, strict=True)):
                    members = range(first, first + len(group.fields))
                    wanted = ranges.union(r for member in members for r in needed[member][0])
                    borders = [b for member in members for block in blocks[member] for b in block]
                    tasks.append((number, ranges.cut(wanted, borders)))
            else:
                for number, field in enumerate(self.fields):
                    if phase < field.phases:
                        borders = [b for block in blocks[number] for b in block]
                        tasks.append((number, ranges.cut(needed[number][phase], borders)))
            most = max((ranges.count(stretches) for _, stretches in tasks), default=0)
            parts: list[Part] = [[] for _ in range(self._parts(most))]
            for number, stretches in tasks:
                for part, own_stretches in zip(
                    parts, ranges.divided(stretches, len(parts)), strict=True
                ):
                    part += ((number, stretch) for stretch in own_stretches)
            phases.append(parts)
        read = ranges.union(r for places in needed for r in places[0])
        nbytes = sum(
            ranges.count(own) * field.spec.nbytes
            for field, own in zip(self.fields, blocks, strict=True)
        )
        chosen = None if read == ((0, size),) else ranges.places(read)
        return Plan(blocks, chosen, phases, nbytes)

    def _parts(self, size: int) -> int:
        """Into how many parts `size` samples are divided."""
        if not self._divisible:
            return 1
        least = TRANSFORMED_BYTES_PER_PART if self._heavy else BYTES_PER_PART
        worth = size * self._row_bytes // least if self.compiled else size
        return max(1, min(self._workers, worth, size))
