"""Rows and windows of mapped files, as datasets that can be pickled, for peers that read Python objects."""

from typing import Any

import numpy as np

from benchmarks.rows import Array
from benchmarks.workloads import Workload


class Rows:
    """Dataset of the rows of a workload with labels; mapped in every process, since pickling copies a mapped array."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.data = np.asarray(np.load(work.data, mmap_mode="r"))
        self.label = np.asarray(np.load(work.label, mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, row: int) -> tuple[Array, Any]:
        return self.data[row], self.label[row]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.work,)


class Windows:
    """Dataset of the windows of a file of tokens: item k is (inputs, targets) from token k."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.length = work.shape[0]
        self.tokens = np.memmap(work.data, work.dtype, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) - self.length

    def __getitem__(self, start: int) -> tuple[Array, Array]:
        window = self.tokens[start : start + self.length + 1]
        return window[:-1], window[1:]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.work,)
