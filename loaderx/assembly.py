"""Rows of a batch -> host arrays of that batch, in parts that several threads can fill at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .buffers import Pool
from .compiler.chain import Chain, located_in
from .order import Order, Span
from .sources import LocatedSource, Source
from .sources.located import Located
from .sources.source import store
from .spec import Spec

# Below this many bytes a second thread costs more than it brings; a transform does more per byte than a copy.
BYTES_PER_PART = 2 * 1024 * 1024
TRANSFORMED_BYTES_PER_PART = 256 * 1024


@dataclass(frozen=True)
class Field:
    """One array of a batch: its name, the spec its rows are delivered in, that of the source, and what lies between."""

    name: str
    spec: Spec
    raw: Spec
    chain: Chain | None = None


@dataclass(frozen=True)
class Group:
    """A source and the fields that it fills."""

    source: Source
    fields: tuple[Field, ...]


class Assembly:
    """A batch being filled: phase by phase, each in any number of parts."""

    def __init__(self, pipeline: "Pipeline", step: int, span: Span) -> None:
        self.step = step
        self.span = span
        self._pipeline = pipeline
        self.phases = pipeline.phases
        self.rows: NDArray[np.int64] = pipeline.order.rows_of(span)
        self._positions = pipeline.order.positions(span) if pipeline.transformed else self.rows
        self.arrays = [
            pool.lease((span.size, *field.spec.shape), field.spec.dtype)
            for field, pool in zip(pipeline.fields, pipeline.pools, strict=True)
        ]
        # What a field is between two phases, where it is mixed with other samples of the batch.
        self._halfway = [
            pool.lease((span.size, *spec.shape), spec.dtype)
            for pool, spec in zip(pipeline.halfway_pools, pipeline.halfway_specs, strict=True)
        ]
        count = pipeline.parts(span.size)
        self.parts = [
            (part * span.size // count, (part + 1) * span.size // count) for part in range(count)
        ]

    def fill(self, phase: int, part: int) -> None:
        """Take the samples of one part through one phase."""
        start, stop = self.parts[part]
        if phase == 0:
            number = 0
            for group in self._pipeline.groups:
                self._read(group, number, start, stop)
                number += len(group.fields)
            return
        for number, field in enumerate(self._pipeline.fields):
            if field.chain is not None and phase < len(field.chain.phases):
                whole = self._halfway[self._pipeline.halfway[number, phase - 1]]
                self._run(number, phase, start, stop, located_in(whole[start:stop]), whole)

    def _read(self, group: Group, first: int, start: int, stop: int) -> None:
        """Rows of one source, and the first phase of its fields."""
        rows = self.rows[start:stop]
        field = group.fields[0]
        source = group.source
        if (
            field.chain is not None
            and isinstance(source, LocatedSource)
            and source.layout.offsets is None
            and not field.chain.needs_samples
            and field.chain.phases[0].segments
        ):
            self._run(first, 0, start, stop, source.locate(rows), None)
            return
        targets = [
            self.arrays[first + offset][start:stop]
            if field.chain is None
            else np.empty((stop - start, *field.raw.shape), field.raw.dtype)
            for offset, field in enumerate(group.fields)
        ]
        source.read(rows, targets)
        for offset, (field, samples) in enumerate(zip(group.fields, targets, strict=True)):
            if field.chain is not None:
                self._run(first + offset, 0, start, stop, located_in(samples), samples)

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
            out = self.arrays[number][start:stop]
        spec = chain.phases[phase].output
        target = out if out.dtype == spec.dtype else np.empty(out.shape, spec.dtype)
        chain.run(
            phase,
            start,
            self.span.position,
            self._positions[start:stop],
            located,
            samples,
            target,
        )
        if target is not out:
            store(target, self.rows[start:stop], out)

    @property
    def nbytes(self) -> int:
        """Bytes of the host arrays."""
        return sum(array.nbytes for array in self.arrays)


class Pipeline:
    """Everything that is known about a batch before its rows are."""

    def __init__(self, groups: Sequence[Group], order: Order, workers: int, prefetch: int) -> None:
        self.groups = tuple(groups)
        self.order = order
        self.fields = tuple(field for group in groups for field in group.fields)
        chains = [field.chain for field in self.fields]
        self.transformed = any(chain is not None for chain in chains)
        self.phases = max((len(chain.phases) for chain in chains if chain is not None), default=1)
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
        # A batch that is not divided keeps one worker busy, and the next must lie ready when that one is done.
        divided = self.parts(order.batch_size) > 1
        self.ahead = prefetch if divided else prefetch + workers
        # What is under way, what the consumer got, and what it had before.
        self._keep = self.ahead + 2
        self.pools = [self.pool(field.spec) for field in self.fields]
        self.halfway_pools = [self.pool(spec) for spec in self.halfway_specs]

    def pool(self, spec: Spec) -> Pool:
        """Memory for one array of every batch."""
        return Pool(self.order.batch_size * spec.nbytes, self._keep)

    def parts(self, size: int) -> int:
        """Into how many parts a batch of `size` samples is divided."""
        if not self._divisible:
            return 1
        least = TRANSFORMED_BYTES_PER_PART if self._heavy else BYTES_PER_PART
        worth = size * self._row_bytes // least if self.compiled else size
        return max(1, min(self._workers, worth, size))
