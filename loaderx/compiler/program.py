"""A chain of compiled ops that can be run: its table, and the driver that walks samples through it."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import TransformError, annotate
from loaderx.kernels import samples
from loaderx.kernels.progress import Work
from loaderx.sources.located import Located
from loaderx.spec import Spec
from loaderx.transforms.step import Step

from .table import ALIGNMENT, TableBuilder

NONE = np.empty(0, np.int64)


class Program:
    """The table of a chain; with `checking` every index of a user's code is checked."""

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
        # Whether everything in it was compiled before.
        self.cached = table.cached
        self._complete = table.complete
        self._table = table.close()
        self._instructions = self._table.instructions.ctypes.data
        self._registers = self._table.registers.ctypes.data
        self._scratch = threading.local()

    def run(
        self,
        positions: NDArray[np.int64],
        located: Located,
        out: NDArray[Any],
        *,
        key: np.uint64 | None = None,
        mark: int = 0,
    ) -> None:
        """Take located samples through the chain into `out`.

        A `key` is that of all ops, in place of their own. Where a user's code is checked, what it fills holds the byte
        `mark` before.
        """
        if not self._complete:
            raise TransformError("the passes of this chain are listed, and not compiled.")
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
                instructions, len(self._table.names), self._registers, len(self._table.registers),
                positions, located.addresses, NONE if located.lengths is None else located.lengths,
                located.fetcher, located.worker, self._fetched, memory, self.output.nbytes, progress, True,
                out.reshape(-1).view(np.uint8),
            )  # fmt: skip
        except Exception as error:
            name = self._table.names[progress[1]]
            annotate(error, "in transform", f"{name!r}, at sample {progress[0]} of these")
            raise
        if progress[1] < 0:
            located.raise_failure(int(progress[0]), int(progress[1]))
        if progress[3] != 0:
            name = self._table.names[progress[1]]
            raise TransformError(
                f"transform {name!r} failed with status {progress[3]}, at sample {progress[0]} of these."
            )

    def _new_scratch(self) -> int:
        """Return the address of scratch memory for this thread, behind its registers, at a cache line."""
        registers = 8 * len(self._table.registers)
        # Zeros: loops over whole blocks pass the end of a sample, and plain Python warns of what lies there.
        memory = np.zeros(registers + self._table.scratch + ALIGNMENT, np.uint8)
        begin = memory.ctypes.data + registers
        self._scratch.memory = memory
        self._scratch.address = begin + -begin % ALIGNMENT
        return int(self._scratch.address)
