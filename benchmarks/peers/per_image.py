"""Contestant that is a function of one image, called in threads; see worker.py for the protocol.

{"do": "open", "files": {"224": "x.npy", "masks": "y.npy"}}   -> {"cases": [...]}
{"do": "result", "case": "Rotate", "inputs": ["224"], "file": "out.npy"}     its results
{"do": "run", "case": "Rotate", "inputs": ["224"], "threads": 2, "rounds": 4}   -> {"images": ..., "seconds": ...}, of
                                                                                   so many times all images
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.rows import Array

# Makes a function of an image, or of an image and its mask. Called once per thread, because such functions have state.
Maker = Callable[[], Callable[..., Any]]


def _fields(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


class Session:
    """Samples of one benchmark run, and functions of them."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self.makers = makers
        self.functions: dict[str, list[Callable[..., Any]]] = {}
        self.pools = {threads: ThreadPoolExecutor(threads) for threads in (1, 2)}

    def open(self, files: dict[str, str]) -> dict[str, Any]:
        """Load all samples."""
        self.samples = {name: np.load(file) for name, file in files.items()}
        return {"cases": list(self.makers)}

    def result(self, case: str, inputs: list[str], file: str) -> dict[str, Any]:
        """Save the results of all samples."""
        function = self._functions(case)[0]
        columns = [self.samples[name] for name in inputs]
        results = [function(*sample) for sample in zip(*columns, strict=True)]
        # Of an image and a mask the image.
        np.save(file, np.stack([out[0] if isinstance(out, tuple) else out for out in results]))
        return {}

    def run(self, case: str, inputs: list[str], threads: int, rounds: int) -> dict[str, float]:
        """Time `rounds` times all samples, divided among threads, written into a batch as by every contestant."""
        columns = [self.samples[name] for name in inputs]
        functions = self._functions(case)
        first = _fields(functions[0](*(column[0] for column in columns)))
        batch = [np.empty((len(columns[0]), *field.shape), field.dtype) for field in first]

        def work(thread: int) -> None:
            function = functions[thread]
            samples = list(zip(*(column[thread::threads] for column in columns), strict=True))
            for _ in range(rounds):
                for number, sample in enumerate(samples):
                    for array, result in zip(batch, _fields(function(*sample)), strict=True):
                        array[thread + number * threads] = result

        started = time.perf_counter()
        list(self.pools[threads].map(work, range(threads)))
        seconds = time.perf_counter() - started
        return {"images": rounds * len(columns[0]), "seconds": seconds}

    def _functions(self, case: str) -> list[Callable[..., Any]]:
        if case not in self.functions:
            self.functions[case] = [self.makers[case]() for _ in range(2)]
        return self.functions[case]
