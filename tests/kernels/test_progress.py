"""Compiling for more than a second is announced: to the logger, and on a terminal, but not where stderr is a pipe."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")

# A kernel and a transform that take as long to compile as `slowly` says, and their log.
PROGRAM = """
import logging, os, sys, threading, time
import numba, numpy as np
import loaderx as lx
from loaderx.kernels import progress
from loaderx.kernels.compilation import kernel
from numba.extending import overload

said = []
class Collected(logging.Handler):
    def emit(self, record):
        said.append((record.levelname, record.getMessage()))
logger = logging.getLogger("loaderx")
logger.addHandler(Collected())
logger.setLevel(logging.INFO)
progress.SECONDS = 0.3

def slow(value):
    pass

@overload(slow)
def slow_overload(value):
    time.sleep(SLOWLY)
    return lambda value: value + 1

def twice(value):
    return 2 * slow(value)

twice.__module__ = "loaderx.kernels.twice"
twice = kernel(twice)

@lx.transform
def lift(x):
    for i in range(x.shape[0]):
        x[i] = slow(x[i])

def lifted():
    return lx.pipeline([lift])(np.zeros((2, 3), np.float32))
"""


def run(tmp_path, program, slowly=1.0, **options):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("SLOWLY", str(slowly)) + program)
    return subprocess.run(
        [sys.executable, "-W", "error", file],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "LOADERX_CACHE_DIR": str(tmp_path / "cache"),
        },
        check=True,
        timeout=100,
        **options,
    )


def on_a_terminal(tmp_path, program, **options):
    """What a program writes to a stderr that is a terminal."""
    reader, writer = pty.openpty()
    run(tmp_path, program, stderr=writer, **options)
    os.close(writer)
    parts = []
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:  # Linux says so at the end
            part = b""
        if not part:
            break
        parts.append(part)
    os.close(reader)
    return b"".join(parts).decode()


SLOW = """
twice(1.0)
lifted()
kinds = [(level, message.split(",")[0]) for level, message in said if level == "INFO" and "compiling" in message]
assert kinds == [("INFO", "compiling the kernel 'twice'"), ("INFO", "compiling the transforms lift")], said
assert threading.enumerate() == [threading.main_thread()]
"""


def test_on_a_terminal_there_is_a_line_for_each(tmp_path):
    lines = on_a_terminal(tmp_path, SLOW).splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "loaderx: compiling the kernel 'twice', the first time only: later it is loaded from the cache"
    )
    # What it calls is the user's extension of Numba.
    assert lines[1] == (
        "loaderx: compiling the transforms lift, once in every process: it cannot be cached"
    )


def test_where_stderr_is_piped_only_the_logger_hears_it(tmp_path):
    assert run(tmp_path, SLOW, stderr=subprocess.PIPE).stderr == b""


def test_what_is_quick_is_not_announced(tmp_path):
    program = "progress.SECONDS = 60\nlifted()\ntwice(1.0)\n"
    assert on_a_terminal(tmp_path, program, slowly=0.0) == ""


UNUSUAL = {
    "of somebody else": """
numba.njit(lambda value: slow(value))(1.0)
assert said == []
""",
    "that fails": """
wrong = kernel(lambda value: slow(value) + nothing)
try:
    wrong(1.0)
except numba.TypingError:
    pass
else:
    raise AssertionError
""",
    "in several threads": """
threads = [threading.Thread(target=lifted) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert any("compiling the transforms lift" in message for _, message in said)
""",
    "while a child is forked": """
compiling = threading.Thread(target=lifted)
compiling.start()
time.sleep(0.5)
child = os.fork()
if child == 0:
    # The thread that compiled is not in the child, and neither is what it waited for.
    os._exit(hasattr(progress._ANNOUNCER._state, "waiting") or threading.active_count() > 1)
assert os.waitpid(child, 0)[1] == 0
compiling.join()
""",
    "without stderr": """
sys.stderr = None
lifted()
""",
    "with a closed stderr": """
sys.stderr.close()
lifted()
""",
}


@pytest.mark.parametrize("compiled", UNUSUAL)
def test_nothing_is_in_the_way_of_what_is_compiled(tmp_path, compiled):
    # Forking beside a thread is warned of, from Python 3.12 on.
    program = "import warnings\nwarnings.simplefilter('ignore')\n" + UNUSUAL[compiled]
    program += "assert threading.enumerate() == [threading.main_thread()]\n"
    assert run(tmp_path, program, stderr=subprocess.PIPE).stderr == b""


def test_a_program_may_end_while_something_is_compiled(tmp_path):
    program = "threading.Thread(target=lifted, daemon=True).start()\ntime.sleep(0.1)\n"
    assert run(tmp_path, program, stderr=subprocess.PIPE).stderr == b""
