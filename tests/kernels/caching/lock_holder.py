"""Process that holds the lock of a file."""

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
def holder(forking, file, then):
    """Start a process that holds a lock, and wait until it has run `then`."""
    with forking.started(HOLD.format(then=then), file) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
