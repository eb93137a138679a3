"""Soak test: `python -m tests.soak --minutes 30` tries random configurations, exits, kills, forks, pickles and signals.

Every trial runs in processes of its own. It fails on a wrong byte, a wrong exit status, a crash message on standard
error, or a timeout. Not part of `make test`; `make soak` runs it.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from tests.conftest import heed_signals
from tests.soak import trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first trial; then one more each"
    )
    parser.add_argument("--slots", type=int, default=2, help="trials at a time")
    parser.add_argument("--only", choices=list(trials.TRIALS), default=None)
    parser.add_argument("--trials", type=int, default=None, help="end after so many")
    given = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    until = time.monotonic() + given.minutes * 60
    counts: collections.Counter[str] = collections.Counter()
    notes: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    lock = threading.Lock()
    numbers = iter(range(first, first + (given.trials or 10**9)))

    def slot(home: Path) -> None:
        while time.monotonic() < until:
            with lock:
                seed = next(numbers, None)
            if seed is None:
                return
            rng = random.Random(seed)
            # Drawn in any case, so that later draws are the same with --only.
            drawn = rng.choices(list(trials.TRIALS), list(trials.SHARES.values()))[0]
            kind = given.only or drawn
            try:
                note = trials.TRIALS[kind](rng, home)
            except Exception:  # noqa: BLE001 - a failure is what is looked for
                with lock:
                    failures.append(
                        f"--only {kind} --seed {seed} --trials 1\n{traceback.format_exc()}"
                    )
                    print(f"FAILED {failures[-1]}", flush=True)  # noqa: T201
            else:
                notes[f"{kind}: {note}"] += 1
            counts[kind] += 1
            if sum(counts.values()) % 20 == 0:
                print(f"{dict(counts)}, {len(failures)} failures", flush=True)  # noqa: T201

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with concurrent.futures.ThreadPoolExecutor(given.slots) as pool:
            for done in [pool.submit(slot, home) for _ in range(given.slots)]:
                done.result()
    print(json.dumps({"first seed": first, "trials": counts, "notes": notes}, indent=1))  # noqa: T201
    print(f"{sum(counts.values()) - len(failures)} passed, {len(failures)} failed")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    heed_signals()
    sys.exit(main())
