"""A conversion in a process of its own that pauses in the middle: no test depends on how fast it is."""

import contextlib
import os
import subprocess
import sys

import numpy as np

PATIENCE = 100  # seconds for a process, which takes two or three
ROWS = np.random.default_rng(0).integers(0, 16, (4000, 48, 48), np.uint8)

# It announces that it has written some blocks, and continues when standard input ends.
PROGRAM = """
import os, sys
import loaderx.commands.conversion as conversion
import loaderx.commands.outputs as outputs
from loaderx.cli import main
conversion.SECONDS_BETWEEN_NOTES = 0
announcements, append, count = int(sys.argv.pop(1)), outputs.RecordOutput.append, 0
def counted(self, encoded):
    global count
    append(self, encoded)
    count += 1
    if count == 3:
        os.write(announcements, b"x")
        os.read(0, 1)
outputs.RecordOutput.append = counted
sys.exit(main())
"""


@contextlib.contextmanager
def paused_conversion(*arguments):
    """Start to convert rows to an ArrayRecord file; once three blocks are written, the process pauses.

    `Popen.communicate` has it continue, since that closes its standard input.
    """
    announced, announcements = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(announcements), "convert", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[announcements],
    )
    os.close(announcements)
    try:
        assert os.read(announced, 1) == b"x", process.communicate(timeout=PATIENCE)
        yield process
    finally:
        os.close(announced)
        process.kill()
        with contextlib.suppress(ValueError):  # its streams are closed: it has ended
            process.communicate(timeout=PATIENCE)
