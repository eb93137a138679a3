"""Planner of batches: places that this process fills, their parts and phases, and their memory.

A process fills only the places of a batch that its devices hold, and those that are mixed into them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.buffers import Pool
from loaderx.compiler.chain import Chain
from loaderx.sources import AddressableSource, Source
from loaderx.sources.source import specs_of
from loaderx.spec import Spec
from loaderx.stream import ranges
from loaderx.stream.order import Order
from loaderx.stream.ranges import Range, Ranges
from loaderx.stream.remainder import Span

from .encoded_rows import EncodedReader
from .scheduler import Scheduler, Workload
from .shuffled_gather import ShuffledGather

# (field, batch size) -> the ranges of the batch that are one array each in this process
Blocks = Callable[["Field", int], Ranges]
# Part of a batch: pairs of a number, of a source in the first phase and of a field in others, and a range of places.
Part = list[tuple[int, Range]]


@dataclass(frozen=True)
class Field:
    """Field of a batch: its name, the spec of its delivered rows, the spec in the source, and the chain between."""

    name: str
    spec: Spec
    raw: Spec
    chain: Chain | None = None

    @property
    def origin(self) -> str:
        """Name of the field of the data that it is made from."""
        return self.name if self.chain is None else self.chain.origin

    @property
    def phases(self) -> int:
        """Number of phases. Between two of them all samples of the batch must be ready."""
        return 1 if self.chain is None else len(self.chain.phases)


@dataclass(frozen=True)
class Group:
    """Source and the fields that it fills: fields[k] is made from column columns[k] of the source.

    Its reader is for rows with encoded images.
    """

    source: Source
    fields: tuple[Field, ...]
    columns: tuple[int, ...]
    reader: EncodedReader | None = None


@dataclass(frozen=True)
class Plan:
    """Plan of a batch: the places that this process fills, phase by phase."""

    blocks: list[Ranges]
    # Places of the batch whose rows are read; None: all.
    places: NDArray[np.int64] | None
    # phase -> parts
    parts: list[list[Part]]
    # Bytes of the host arrays.
    nbytes: int


class BatchPlanner:
    """Planner of batches: everything that is known of a batch before its rows."""

    def __init__(
        self,
        groups: Sequence[Group],
        order: Order,
        workers: int,
        prefetch: int,
        blocks: Blocks | None = None,
        *,
        hooked: bool = False,
    ) -> None:
        self.groups = tuple(groups)
        self.order = order
        self.fields = tuple(field for group in groups for field in group.fields)
        # Number of the first field of every group.
        self.firsts = [0, *np.cumsum([len(group.fields) for group in groups]).tolist()][:-1]
        chains = [field.chain for field in self.fields]
        self.transformed = any(chain is not None for chain in chains)
        self.phases = max(field.phases for field in self.fields)
        # (field, phase) -> number of the intermediate array.
        self.intermediate: dict[tuple[int, int], int] = {}
        self.intermediate_specs: list[Spec] = []
        for number, chain in enumerate(chains):
            for phase in range(0 if chain is None else len(chain.phases) - 1):
                assert chain is not None
                self.intermediate[number, phase] = len(self.intermediate_specs)
                self.intermediate_specs.append(chain.phases[phase].output)
        # True if no Python code of a user runs, whose cost is not known from the bytes.
        self.compiled = all(
            isinstance(group.source, AddressableSource)
            and all(field.chain is None or field.chain.compiled for field in group.fields)
            for group in groups
        )
        # (field, phase) -> the field whose samples before that phase are the masks of objects for it.
        numbers = {field.name: number for number, field in enumerate(self.fields)}
        self.masks = {
            (number, phase): numbers[current.masks]
            for number, chain in enumerate(chains)
            for phase, current in enumerate(() if chain is None else chain.phases)
            if current.masks is not None
        }
        self._blocks = blocks or (lambda _field, size: ((0, size),))
        self.shuffled_gather = None
        if blocks is None and not self.transformed and len(self.fields) == len(groups):
            sources = [group.source for group in groups]
            specs = [field.spec for field in self.fields]
            self.shuffled_gather = ShuffledGather.of(order, sources, specs)
        self._plans: dict[int, Plan] = {}

        size = order.batch_size
        own = self.blocks(size)
        workload = Workload(
            rows=max(ranges.count(ranges.union(blocks)) for blocks in own),
            row_bytes=sum(max(field.spec.nbytes, field.raw.nbytes) for field in self.fields),
            compiled=self.compiled,
            hooked=hooked,
            copied=self.shuffled_gather is not None,
            cpu_bound=self.transformed
            or any(
                isinstance(group.source, AddressableSource) and group.source.cpu_bound
                for group in groups
            ),
            splittable=all(group.source.splittable for group in groups),
        )
        self.scheduler = Scheduler(workload, workers, prefetch)
        self.pools = [
            self.pool(field.spec, blocks) for field, blocks in zip(self.fields, own, strict=True)
        ]
        self.intermediate_pools = [
            self.pool(spec, ((0, size),)) for spec in self.intermediate_specs
        ]

    def values_of(self, origin: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values of a field of the data set in these rows, for another field."""
        group, column = next(
            (group, column)
            for group in self.groups
            for field, column in zip(group.fields, group.columns, strict=True)
            if field.origin == origin
        )
        specs = specs_of(group.source.spec)
        read = [np.empty((len(rows), *spec.shape), spec.dtype) for spec in specs]
        group.source.read(rows, read)
        return read[column]

    def pool(self, spec: Spec, blocks: Ranges) -> Pool:
        """Return a pool of memory for the blocks of one array of every batch."""
        longest = max(stop - start for start, stop in blocks)
        return Pool(longest * spec.nbytes, self.scheduler.buffers * len(blocks))

    def check_size(self, size: int) -> None:
        """Raise if a batch of `size` cannot be divided over the devices."""
        self.blocks(size)

    def blocks(self, size: int) -> list[Ranges]:
        """Return for each field the ranges of a batch of `size` that are one array each in this process."""
        return [self._blocks(field, size) for field in self.fields]

    def nbytes(self, blocks: Sequence[Ranges]) -> int:
        """Return the bytes of the host arrays of blocks."""
        return sum(
            ranges.count(own) * field.spec.nbytes
            for field, own in zip(self.fields, blocks, strict=True)
        )

    def plan(self, span: Span, blocks: Sequence[Ranges] | None = None) -> Plan:
        """Return the plan of a batch; with `blocks`, of only these blocks of each field."""
        if blocks is not None:
            return self._make_plan(span, list(blocks))
        known = self._plans.get(span.size)
        if known is not None:
            return known
        plan = self._make_plan(span, self.blocks(span.size))
        # Mixing has other partners in every batch. The plan does not depend on them if this process fills all places.
        if all(
            field.phases == 1 or ranges.union(own) == ((0, span.size),)
            for field, own in zip(self.fields, plan.blocks, strict=True)
        ):
            self._plans[span.size] = plan
        return plan

    def _make_plan(self, span: Span, blocks: list[Ranges]) -> Plan:
        size = span.size
        # field -> phase -> the places that must be ready after it
        needed: list[list[Ranges]] = [
            [()] * (field.phases - 1) + [ranges.union(own)]
            for field, own in zip(self.fields, blocks, strict=True)
        ]
        for phase in range(self.phases - 1, 0, -1):
            for number, field in enumerate(self.fields):
                if phase >= field.phases:
                    continue
                assert field.chain is not None
                mixed = list(needed[number][phase])
                for step in field.chain.partner_steps(phase, size, span.position):
                    mixed += ranges.rotated(needed[number][phase], step, size)
                for other in {number, self.masks.get((number, phase), number)}:
                    needed[other][phase - 1] = ranges.union([*needed[other][phase - 1], *mixed])
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
            most = max((ranges.count(to_fill) for _, to_fill in tasks), default=0)
            parts: list[Part] = [[] for _ in range(self.scheduler.parts(most))]
            for number, to_fill in tasks:
                for part, share in zip(parts, ranges.divided(to_fill, len(parts)), strict=True):
                    part += ((number, place_range) for place_range in share)
            phases.append(parts)
        read = ranges.union(r for places in needed for r in places[0])
        chosen = None if read == ((0, size),) else ranges.places(read)
        return Plan(blocks, chosen, phases, self.nbytes(blocks))
