"""Command line: `python -m benchmarks [name ...] [--cases CASE ...] [--report] [--json FILE] [--no-peers]`."""

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from benchmarks import (
    alone,
    catalogue,
    cluster,
    containers,
    edit_loop,
    gather,
    kernels,
    on_device,
    overhead,
    records,
    report,
    sharded,
    side_by_side,
)
from benchmarks.contestants import CONTESTANTS


class Measured(Protocol):
    """Result of a benchmark."""

    def table(self) -> str: ...
    def as_dict(self) -> dict[str, object]: ...


# Each receives whether the peers take part.
DETAILS: dict[str, Callable[[bool], Iterable[Measured]]] = {
    "gather": lambda _peers: gather.run(),
    "alone": lambda _peers: alone.run(),
    "kernels": lambda _peers: kernels.run(),
    "overhead": lambda _peers: overhead.run(),
    "catalogue": catalogue.run,
    "containers": lambda _peers: containers.run(),
    "edit-loop": lambda _peers: edit_loop.run(),
    "ray": lambda _peers: cluster.run(),
    "records": lambda _peers: records.run(),
    "on_device": on_device.run,
    "sharded": lambda _peers: sharded.run(),
}
WORKLOADS = tuple(side_by_side.benchmarks())


def machine() -> dict[str, object]:
    """Return the facts that a figure depends on besides the code."""
    packages = ("loaderx", "numpy", "numba", "jax")
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def measure(names: Iterable[str], peers: bool, cases: Iterable[str]) -> Iterator[Measured]:
    """Run the benchmarks named, one after the other; of the catalogue only some cases, if given."""
    contestants = [one for one in CONTESTANTS if peers or one.peer is None]
    side_by_sides = side_by_side.benchmarks(contestants)
    for name in names:
        if name in side_by_sides:
            yield side_by_sides[name]()
        elif name == "catalogue":
            yield from catalogue.run(peers, cases)
        else:
            yield from DETAILS[name](peers)


def main() -> int:
    """Run the benchmarks named, print their tables, and write the figures if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="benchmark",
        help=f"side by side: {', '.join(WORKLOADS)} (default: all of these); more: {', '.join(DETAILS)}",
    )
    parser.add_argument(
        "--cases", nargs="+", default=[], metavar="CASE", help="of the catalogue only these rows"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--no-peers", action="store_true", help="leave out other loaders")
    parser.add_argument(
        "--report",
        action="store_true",
        help="run all side by side; write benchmarks/results, the charts and the tables of the documentation",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {*WORKLOADS, *DETAILS})
    if unknown:
        parser.error(f"unknown benchmark {unknown}; there are {[*WORKLOADS, *DETAILS]}")
    known = {case.name for _, cases, *_ in catalogue.TABLES for case in cases}
    if options.cases and options.names != ["catalogue"]:
        parser.error(
            "--cases applies to the catalogue only: `python -m benchmarks catalogue --cases Rotate`."
        )
    if not known.issuperset(options.cases):
        parser.error(
            f"unknown cases {sorted(set(options.cases) - known)}; there are {sorted(known)}"
        )
    if options.report and (options.names or options.json or options.no_peers):
        parser.error(
            "--report runs all workloads with all peers and names its file: leave out names, --json and --no-peers."
        )

    date = dt.datetime.now(dt.UTC).date().isoformat()
    results: dict[str, object] = {"date": date, "machine": machine()}
    file = report.RESULTS / f"{date}.json" if options.report else options.json
    measured: list[dict[str, object]] = []
    for benchmark in measure(options.names or WORKLOADS, not options.no_peers, options.cases):
        print(benchmark.table(), end="\n\n", flush=True)
        measured.append(benchmark.as_dict())
        if file is not None:
            # After each: a whole run takes more than an hour, and may be interrupted.
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(results | {"workloads": measured}, indent=1) + "\n")
    if options.report:
        report.write_report(results | {"workloads": measured})
    return 0


if __name__ == "__main__":
    sys.exit(main())
