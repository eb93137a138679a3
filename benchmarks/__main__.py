"""The command line: `python -m benchmarks [name ...] [--json FILE] [--no-peers]`."""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import catalogue, chains, gather, on_device, overhead, records, sharded
from benchmarks.harness import Comparison

# Each is told whether the peers take part.
BENCHMARKS: dict[str, Callable[[bool], Iterable[Comparison | catalogue.Catalogue]]] = {
    "gather": gather.run,
    "overhead": lambda _peers: overhead.run(),
    "chains": chains.run,
    "catalogue": catalogue.run,
    "records": records.run,
    "on_device": on_device.run,
    "sharded": lambda _peers: sharded.run(),
}
NAMES = tuple(BENCHMARKS)


def machine() -> dict[str, object]:
    """What a figure depends on besides the code."""
    packages = ("numpy", "numba", "jax")
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def main() -> int:
    """Run the benchmarks named, print their tables, and write the figures if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="benchmark", help=f"{NAMES}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--no-peers", action="store_true", help="leave out other loaders")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"unknown benchmark {unknown}; there are {NAMES}")

    results: dict[str, object] = {"machine": machine()}
    for name in options.names or NAMES:
        measured = []
        for comparison in BENCHMARKS[name](not options.no_peers):
            print(comparison.table(), end="\n\n", flush=True)
            measured.append(comparison.as_dict())
        results[name] = measured
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
