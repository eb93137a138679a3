"""Program: the table of a chain of compiled ops, and the calls of the driver that run samples through it."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import TransformError, annotate
from loaderx.kernels import samples
from loaderx.kernels.progress import Work
from loaderx.kernels.threads import Team, bounds_of, worthwhile
from loaderx.sources.row_addresses import RowAddresses, addresses_in
from loaderx.spec import Spec
from loaderx.transforms.step import Step

from .table import ALIGNMENT, TableBuilder

NONE = np.empty(0, np.int64)
# Minimum bytes of samples per thread; with fewer, waking it costs more than it saves. A transform does more per byte
# than a copy. [2 cores, omp: crop, flip and normalise of 32x32x3 pay for a region from 16 samples, 192 KB, on.]
BYTES_PER_THREAD = 96 * 1024


class Program:
    """Program of a chain; with `checking`, a user's code has bounds checks."""

    def __init__(
        self,
        steps: Sequence[Step],
        spec: Spec,
        *,
        checking: bool = False,
        work: Work | None = None,
    ) -> None:
        names = dict.fromkeys(step.transform.name for step in steps)
        self.work = work or Work(f"the transforms {', '.join(names)}")
        table = TableBuilder(self.work, checking=checking)
        self.input = spec
        self._fetched = table.space(spec.nbytes)
        self.output = table.chain(steps, samples.ROW, spec, samples.TARGET)
        # True if all passes were compiled before.
        self.cached = table.cached
        self._complete = table.complete
        self._reads_boxes = table.reads_boxes
        self._table = table.close()
        self._instructions = self._table.instructions.ctypes.data
        registers = self._table.registers
        self._sizes = len(self._table.names), registers.ctypes.data, len(registers)
        self._pitch = self.output.nbytes
        self._sample_bytes = max(spec.nbytes, self.output.nbytes)
        # Memory of a thread: registers, then scratch memory.
        needed = 8 * len(registers) + self._table.scratch
        self._memory_bytes = -(-needed // ALIGNMENT) * ALIGNMENT
        self._scratch = threading.local()
        self._parts_memory = np.zeros(0, np.uint8)

    def run(
        self,
        positions: NDArray[np.int64],
        located: RowAddresses,
        out: NDArray[Any],
        *,
        key: np.uint64 | None = None,
        mark: int = 0,
        threads: int | None = 1,
    ) -> None:
        """Run located samples through the chain into `out`, on at most `threads` threads; None: those of Numba.

        `key` replaces the keys of all ops. With `checking`, memory that a user's code fills holds bytes `mark` before.
        """
        if not self._complete:
            raise TransformError("the passes of this chain are listed, and not compiled.")
        assert located.boxes is not None or not self._reads_boxes
        count = len(positions)
        most = worthwhile(count, count * self._sample_bytes, BYTES_PER_THREAD)
        if most == 1:
            self._run(positions, located, out, key, mark)
            return
        # A team also for one thread: it reserves a core, so that parallel calls of other threads use fewer.
        with Team(most, 1 if located.fetcher or key is not None else threads) as team:
            if team.count > 1:
                self._run_parts(team, positions, located, out)
            else:
                self._run(positions, located, out, key, mark)

    def _run(
        self,
        positions: NDArray[np.int64],
        located: RowAddresses,
        out: NDArray[Any],
        key: np.uint64 | None,
        mark: int,
        first: int = 0,
    ) -> None:
        """Run samples through the chain in this thread; in messages they are numbered from `first` on."""
        memory = getattr(self._scratch, "address", None)
        if memory is None:
            memory = self._new_scratch()
        instructions = self._instructions
        if key is not None:
            changed = self._table.instructions.copy()
            changed[:, samples.KEY] = key.astype(np.int64)
            instructions = changed.ctypes.data
        progress = np.zeros(4, np.int64)
        progress[2] = mark
        try:
            samples.run_samples(
                instructions, *self._sizes, positions, located.addresses,
                NONE if located.lengths is None else located.lengths, self._boxes_of(located), located.fetcher,
                located.worker, self._fetched, memory, self._pitch, progress, True, out.reshape(-1).view(np.uint8),
            )  # fmt: skip
        except Exception as error:
            name = self._table.names[progress[1]]
            annotate(error, "in transform", f"{name!r}, at sample {first + progress[0]} of these")
            raise
        if progress[1] < 0:
            located.raise_failure(int(progress[0]), int(progress[1]))
        if progress[3] != 0:
            self._raise_status(progress, first)

    def _run_parts(
        self, team: Team, positions: NDArray[np.int64], located: RowAddresses, out: NDArray[Any]
    ) -> None:
        """Run samples through the chain in all threads of a team, of which there is one at a time."""
        count, pitch = team.count, self._memory_bytes
        if len(self._parts_memory) < count * pitch:
            self._parts_memory = np.zeros(count * pitch + ALIGNMENT, np.uint8)
        memory = self._begin_of(self._parts_memory)
        progress = np.zeros((count, 4), np.int64)
        lengths = NONE if located.lengths is None else located.lengths
        boxes = self._boxes_of(located)
        flat, size = out.reshape(-1).view(np.uint8), self._pitch
        table = self._instructions, *self._sizes

        def region(parts: NDArray[np.int64]) -> None:
            samples.run_parts(
                parts, *table, positions, located.addresses, lengths, boxes, 0, np.zeros(count, np.int64),
                self._fetched, memory, pitch, size, progress, flat,
            )  # fmt: skip

        def part(number: int, begin: int, end: int) -> None:
            samples.run_samples(
                *table, positions[begin:end], located.addresses[begin:end], lengths[begin:end], boxes[begin:end], 0, 0,
                self._fetched, memory + number * pitch, size, progress[number], False, flat[begin * size : end * size],
            )  # fmt: skip

        team.run(len(positions), region, part)
        stopped = np.flatnonzero(progress[:, 3])
        if len(stopped) > 0:
            # An exception cannot leave a parallel region. So the sample that failed is run again here, to raise it.
            number = int(stopped[0])
            first = int(bounds_of(len(positions), count)[number] + progress[number, 0])
            alone = slice(first, first + 1)
            of_one = RowAddresses(located.addresses[alone], hold=located.hold)
            of_one.lengths = None if located.lengths is None else located.lengths[alone]
            of_one.boxes = None if located.boxes is None else located.boxes[alone]
            self._run(positions[alone], of_one, out[alone], None, 0, first)
            progress[number, 0] = 0
            self._raise_status(progress[number], first)

    def _boxes_of(self, located: RowAddresses) -> NDArray[np.int64]:
        """Return the addresses of the boxes of every sample, if an op reads them."""
        if not self._reads_boxes or located.boxes is None:
            return NONE
        return addresses_in(located.boxes)

    def _raise_status(self, progress: NDArray[np.int64], first: int) -> None:
        name = self._table.names[progress[1]]
        raise TransformError(
            f"transform {name!r} failed with status {progress[3]}, at sample {first + progress[0]} of these."
        )

    def _new_scratch(self) -> int:
        """Return the address of scratch memory for this thread."""
        # Zeros: loops over whole blocks read beyond the end of a sample, and Python warns of invalid floats there.
        self._scratch.memory = np.zeros(self._memory_bytes + ALIGNMENT, np.uint8)
        self._scratch.address = self._begin_of(self._scratch.memory)
        return int(self._scratch.address)

    def _begin_of(self, memory: NDArray[np.uint8]) -> int:
        """Return the address where scratch memory begins: after the registers, at a cache line."""
        begin = int(memory.ctypes.data) + 8 * len(self._table.registers)
        return begin + -begin % ALIGNMENT
