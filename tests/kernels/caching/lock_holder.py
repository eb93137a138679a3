"""Process that holds the lock of a file."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
HOLD = """
import os, sys, time
from pathlib import Path
from loaderx.kernels.caching import store
with store.locked(Path(sys.argv[1])):
    {then}
"""


@contextmanager
def holder(file, then):
    """Start a process that holds a lock, and wait until it has run `then`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(then=then), file],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
