"""A conversion in a process of its own that pauses in the middle, so that no test depends on its speed."""

import contextlib

import numpy as np

ROWS = np.random.default_rng(0).integers(0, 16, (4000, 48, 48), np.uint8)

# It announces on standard output that it has written some blocks, and continues when standard input ends.
PROGRAM = """
import os, sys
import loaderx.commands.conversion as conversion
import loaderx.commands.outputs as outputs
from loaderx.cli import main
conversion.SECONDS_BETWEEN_NOTES = 0
append, count = outputs.RecordOutput.append, 0
def counted(self, encoded):
    global count
    append(self, encoded)
    count += 1
    if count == 3:
        os.write(1, b"paused\\n")
        os.read(0, 1)
outputs.RecordOutput.append = counted
sys.exit(main())
"""


@contextlib.contextmanager
def paused_conversion(forking, *arguments, ignored=()):
    """Start to convert rows to an ArrayRecord file; once three blocks are written, the process pauses.

    Its method `communicate` has it continue, since that closes its standard input.
    """
    with forking.started(PROGRAM, "convert", *arguments, ignored=ignored) as process:
        assert process.stdout.readline() == "paused\n", process.communicate()
        yield process
