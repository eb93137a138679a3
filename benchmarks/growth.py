"""Growth of a figure: opening with the number of rows, throughput with the size of a batch."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import LOADERX, Contestant, Entry
from benchmarks.harness import reason, status
from benchmarks.workloads import SMALL, Workload, write

ROWS = tuple(10**power for power in range(3, 10))
BATCH_SIZES = (1, 4, 16, 64, 256, 1_024, 4_096, 8_192)
REPEATS = 3
SECONDS = 0.25
# Seconds. A contestant that takes longer to open, or to write its own format, is not asked for ten times as many rows.
PATIENCE, WRITING = 3.0, 20.0


@dataclass(frozen=True)
class Growth:
    """Figures of several contestants at growing sizes."""

    name: str
    title: str
    unit: str
    size: str  # the quantity that grows
    lower_is_better: bool
    # # series[contestant][size]: the figures
    series: Mapping[str, Mapping[int, Sequence[float]]]
    # Contestants that took no part, or stopped, and why.
    absent: Mapping[str, str] = field(default_factory=dict)

    def medians(self, contestant: str) -> dict[int, float]:
        return {
            size: statistics.median(figures) for size, figures in self.series[contestant].items()
        }

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "size": self.size,
            "lower is better": self.lower_is_better,
            "series": {
                contestant: {
                    str(size): figures for size, figures in self.medians(contestant).items()
                }
                for contestant in self.series
            },
            "absent": dict(self.absent),
        }

    def table(self) -> str:
        sizes = sorted({size for figures in self.series.values() for size in figures})
        width = max(len(name) for name in (*self.series, *self.absent))
        head = f"{'':{width}}" + "".join(f"{size:>15,}" for size in sizes)
        lines = [f"{self.title}, {self.unit} by {self.size}", head]
        for contestant in self.series:
            medians = self.medians(contestant)
            cells = (f"{medians[size]:15,.4g}" if size in medians else f"{'':15}" for size in sizes)
            lines.append(f"{contestant:{width}}" + "".join(cells))
        lines += [f"{name:{width}}  {why}" for name, why in self.absent.items()]
        return "\n".join(lines)


def growth_of_rows(
    contestants: Sequence[Contestant], rows: Sequence[int] = ROWS, repeats: int = REPEATS
) -> Growth:
    """Measure the seconds to open a shuffled loader over so many rows of one byte, up to its first batch."""
    work = replace(SMALL, dtype="uint8", shape=(), batch_size=512)

    def sized(count: int, folder: Path) -> Workload:
        """Write sparse files, whose content does not matter; read once, as the first read of a hole is slow."""
        grown = replace(work, rows=count, folder=str(folder))
        for file, dtype in ((grown.data, np.uint8), (grown.label, np.int32)):
            np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(count,))
            with file.open("rb") as opened:
                while opened.read(2**24):
                    pass
        return grown

    def measure(entry: Entry, grown: Workload) -> Callable[[], float]:
        entry.prepare(grown)
        return lambda: entry.seconds_to_open(grown)

    return _grow(
        Growth(
            "growth-rows",
            "opening a shuffled loader and taking a batch of 512",
            "seconds",
            "rows",
            True,
            {},
        ),
        contestants,
        ((count, partial(sized, count)) for count in rows),
        measure,
        repeats,
    )


def growth_of_batch(
    contestants: Sequence[Contestant],
    sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = REPEATS,
    work: Workload = SMALL,
) -> Growth:
    """Measure rows per second of a shuffled gather in batches of so many rows."""
    with tempfile.TemporaryDirectory(prefix="loaderx-") as files:
        written = write(work, Path(files))

        def batched(size: int, _: Path) -> Workload:
            return replace(written, batch_size=size)

        def measure(entry: Entry, grown: Workload) -> Callable[[], float]:
            if grown.batch_size == sizes[0]:
                entry.prepare(grown)
            else:
                entry.restart()
            entry.open(grown)
            return lambda: entry.rows_per_second(SECONDS)

        return _grow(
            Growth(
                "growth-batch",
                "shuffled gather of 3 KB rows",
                "rows/s",
                "rows of a batch",
                False,
                {},
            ),
            contestants,
            ((size, partial(batched, size)) for size in sizes),
            measure,
            repeats,
        )


def _grow(
    empty: Growth,
    contestants: Sequence[Contestant],
    sizes: Iterator[tuple[int, Callable[[Path], Workload]]],
    measure: Callable[[Entry, Workload], Callable[[], float]],
    repeats: int,
) -> Growth:
    """Ask every contestant at each size, in interleaved repeats; one that fails or is too slow is not asked again."""
    series: dict[str, dict[int, Sequence[float]]] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        entries: dict[str, Entry] = {}
        for contestant in contestants:
            if contestant.takes_part(SMALL):
                try:
                    entry = Entry(contestant, contestant.start())
                except Exception as error:
                    absent[contestant.name] = reason(error)
                else:
                    entries[contestant.name] = stack.enter_context(entry)
        for size, sized in sizes:
            status(f"{empty.name}: {size:,} {empty.size}, {len(entries)} contestants")
            with tempfile.TemporaryDirectory(prefix="loaderx-") as folder:
                patient = empty.lower_is_better
                ended = _ask(entries, sized(Path(folder)), measure, repeats, patient, size, series)
            for name, why in ended.items():
                absent[name] = f"{why} ({size:,} {empty.size})"
                entries.pop(name).peer.kill()
    return replace(empty, series=series, absent=absent)


def _ask(
    entries: Mapping[str, Entry],
    grown: Workload,
    measure: Callable[[Entry, Workload], Callable[[], float]],
    repeats: int,
    patient: bool,
    size: int,
    series: dict[str, dict[int, Sequence[float]]],
) -> dict[str, str]:
    """Write the figures of one size to `series`; return the contestants to stop asking, and why."""
    figures: dict[str, list[float]] = {name: [] for name in entries}
    calls: dict[str, Callable[[], float]] = {}
    ended: dict[str, str] = {}
    for turn in range(repeats + 1):
        for name, entry in entries.items():
            if name in ended:
                continue
            try:
                began = time.perf_counter()
                if turn == 0:
                    calls[name] = measure(entry, grown)
                wrote = time.perf_counter() - began
                figure = calls[name]()
            except Exception as error:
                if name == LOADERX.name:
                    raise
                ended[name] = reason(error)
                continue
            if patient and wrote > WRITING:
                ended[name] = f"took {wrote:.0f} s to write it in its own format"
            elif patient and figure > PATIENCE:
                ended[name] = f"took {figure:.3g} s"
            # One turn is enough for such slow contestants, so their warm-up counts.
            if turn > 0 or name in ended:
                figures[name].append(figure)
    for name, measured in figures.items():
        if measured:
            series.setdefault(name, {})[size] = measured
    return ended
