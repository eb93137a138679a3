"""Fuzzer: reads damaged ArrayRecord files by the thousand, and reports wrong bytes and missing errors.

    python -m tests.loaderx.sources.fuzz_records FOLDER FIRST COUNT [SEED]

Mutation `number` of a seed is the same in every run. FOLDER/current holds its number while it is read, in case the
process ends with it. The last line of the output is JSON: the number of outcomes of each class of mutations, and the
failures. The exit code is 0 if there are no failures.
"""

import json
import mmap
import os
import resource
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

from tests.loaderx.sources.fuzz_mutations import mutation
from tests.loaderx.sources.fuzz_originals import write_originals
from tests.loaderx.sources.fuzz_outcomes import load, open_as, outcome
from tests.loaderx.sources.guarded_numpy import GUARDED

# More than any of the files needs, on top of the memory that the process has before.
ROOM = 3 << 30
MOST_FAILURES = 20
# It is half of the time.
GUARDED_EVERY = 4


def limit_memory():
    """Limit the memory, so that no forged size gets as much as it asks for."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(folder, first, count, seed=0):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    originals = write_originals(folder)
    path = folder / "damaged"
    for original in originals:
        if original.fixed:
            path.write_bytes(original.data)
            original.loaded.extend(load(open_as("pixels", original, path, "always", True)))
    for name, module in list(sys.modules.items()):
        if name.startswith("loaderx.sources.records.") and hasattr(module, "np"):
            module.np = GUARDED
    limit_memory()
    counts, failures = Counter(), []
    current, target = (
        os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("current", path.name)
    )
    for number in range(first, first + count):
        os.pwrite(current, b"%-20d" % number, 0)
        damaged = mutation(number, seed, originals)
        # Not `write_bytes`: a file that is emptied first gives its memory back.
        os.pwrite(target, damaged.content, 0)
        os.ftruncate(target, len(damaged.content))
        GUARDED.on = number % GUARDED_EVERY == 0
        try:
            result = outcome(damaged, path)
        except Exception as error:  # noqa: BLE001 - any type: that is what is tested
            where = traceback.format_exc(limit=-4)
            failures.append(f"{number} ({damaged}): {type(error).__name__}: {error}\n{where}")
            result = "failed"
            if len(failures) >= MOST_FAILURES:
                break
        counts[f"{damaged.kind} {result}"] += 1
        counts[f"loaded {result}"] += damaged.loaded
    json.dump({"counts": counts, "failures": failures}, sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
