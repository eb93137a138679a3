"""Table of the ops of every field: specs before and after, time, and whether the op is compiled."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.sources.row_addresses import addresses_of_rows
from loaderx.spec import Spec

from .chain import Chain, CompiledSegment
from .head import Head
from .points_head import PointsHead

SAMPLES = 64
REPEATS = 5


@dataclass(frozen=True)
class OpReport:
    """Report of one op, a line of the table."""

    field: str
    op: str
    given: Any
    result: Spec
    nanoseconds: float
    how: str

    def cells(self) -> tuple[str, ...]:
        return (
            self.field,
            self.op,
            str(self.given),
            str(self.result),
            f"{self.result.nbytes:,}",
            f"{self.nanoseconds:,.0f}",
            self.how,
        )


HEAD = ("field", "op", "in", "out", "bytes/sample", "ns/sample", "how")


def explain(found: Mapping[str, Chain]) -> str:
    """Return a text table of the ops of every field, each measured separately."""
    reports = [report for name, chain in found.items() for report in _reports(name, chain)]
    lines = [HEAD, *(report.cells() for report in reports)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    right = {4, 5}
    text = []
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
        if number == 0:
            text.append("  ".join("-" * width for width in widths))
    for name, chain in found.items():
        whole, _ = _measure(chain, _samples(chain))
        text.append(
            f"{name}: the whole chain takes {whole:,.0f} ns/sample in one thread{_state(chain)}"
        )
    if any(step.transform.is_python for chain in found.values() for step in chain.steps):
        text.append(
            "Python code runs under the GIL, on one core at a time; loaderx.ray.RayLoader runs it on all cores."
        )
    return "\n".join(text)


def _reports(name: str, chain: Chain) -> list[OpReport]:
    head = chain.head
    reports = []
    if isinstance(head, PointsHead):
        reports = [_points_report(name, head)]
    elif head is not None:
        reports = [_head_report(name, head)]
    spec, samples = chain.input, _samples(chain)
    for step in chain.steps:
        alone = Chain(spec, samples[0].copy)
        alone.boxes, alone.first_boxes = chain.boxes, chain.first_boxes
        alone.add(step)
        alone.compile()
        how = "Python" if _interpreted(alone) else "compiled"
        nanoseconds, samples = _measure(alone, samples)
        reports.append(OpReport(name, step.transform.name, spec, alone.output, nanoseconds, how))
        spec = alone.output
    return reports


def _head_report(name: str, head: Head) -> OpReport:
    """Measure the decoding of the first image, with the windows onto it, for different draws."""
    image = head.first_image()
    out = np.zeros((SAMPLES, *head.output.shape), head.output.dtype)
    headers = [image.header()] * SAMPLES
    positions = np.arange(SAMPLES, dtype=np.int64)
    nanoseconds = _best_of_two(lambda: head.run([image] * SAMPLES, headers, positions, out))
    given = f"{headers[0].height} x {headers[0].width}, encoded"
    ops = f"decode, {_windows(head)}"
    return OpReport(name, ops, given, head.output, nanoseconds, "decoder, compiled")


def _points_report(name: str, head: PointsHead) -> OpReport:
    """Measure the windows onto the first image, for its points and different draws."""
    image = head.first_image()
    first = np.asarray(head.first_points())
    points = np.ascontiguousarray(np.broadcast_to(first, (SAMPLES, *first.shape)))
    out = np.zeros((SAMPLES, *head.output.shape), head.output.dtype)
    headers = [image.header()] * SAMPLES
    positions = np.arange(SAMPLES, dtype=np.int64)
    nanoseconds = _best_of_two(lambda: head.run(points, [image] * SAMPLES, headers, positions, out))
    given = Spec(first.shape, first.dtype)
    return OpReport(name, _windows(head), given, head.output, nanoseconds, "compiled")


def _windows(head: Head | PointsHead) -> str:
    return ", ".join(dict.fromkeys(step.transform.name for step in head.steps))


def _best_of_two(run: Callable[[], None]) -> float:
    """Return nanoseconds per sample."""
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best / SAMPLES * 1e9


def _segments(chain: Chain) -> Sequence[Any]:
    return [segment for phase in chain.phases for segment in phase.segments]


def _interpreted(chain: Chain) -> bool:
    return any(not isinstance(segment, CompiledSegment) for segment in _segments(chain))


def _state(chain: Chain) -> str:
    programs = [
        segment.program for segment in _segments(chain) if isinstance(segment, CompiledSegment)
    ]
    if not programs:
        return ""
    return (
        ", loaded from the cache"
        if all(program.cached for program in programs)
        else ", compiled now"
    )


def _samples(chain: Chain) -> NDArray[Any]:
    """Return copies of the first row of the data; an op might refuse made-up values."""
    first = np.asarray(chain.first_sample())
    return np.ascontiguousarray(np.broadcast_to(first, (SAMPLES, *first.shape)))


def _measure(chain: Chain, samples: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Measure nanoseconds per sample in one thread; return them, and the resulting samples."""
    positions = np.arange(SAMPLES, dtype=np.int64)
    best = float("inf")
    for _ in range(REPEATS):
        rows = samples
        seconds = 0.0
        for phase, step in enumerate(chain.phases):
            if phase == 0 and not step.segments:
                continue
            out = np.zeros((SAMPLES, *step.output.shape), step.output.dtype)
            located = addresses_of_rows(rows, boxes=chain.boxes_of_first(SAMPLES))
            masks = chain.first_masks(phase, SAMPLES)
            began = time.perf_counter()
            chain.run(phase, 0, 0, positions, located, rows, out, masks=masks)
            seconds += time.perf_counter() - began
            rows = out
        best = min(best, seconds)
    return best / SAMPLES * 1e9, rows
