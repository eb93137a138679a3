"""Compilations of more than a second are announced: to the logger, and on a terminal, but not if stderr is a pipe."""

import json
import os
import pty
from pathlib import Path

import pytest
from numba.core import config

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")

# A kernel and a transform that take a while to compile, for every type of their arguments anew, and their log.
PROGRAM = """
import json, logging, os, sys, threading, time, traceback, warnings
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
progress.SECONDS, slowly = 0.1, 0.3

def slow(value):
    pass

@overload(slow)
def slow_overload(value):
    time.sleep(slowly)
    return lambda value: value + 1

def twice(value):
    return 2 * slow(value)

twice.__module__ = "loaderx.kernels.twice"
twice = kernel(twice)

@lx.transform
def lift(x):
    for i in range(x.shape[0]):
        x[i] = slow(x[i])

def lifted(dtype):
    assert lx.pipeline([lift])(np.zeros((2, 3), dtype)).tolist() == [[1] * 3] * 2

def compile_both():
    twice(1.0)
    lifted("float32")
    kinds = [(level, message.split(",")[0]) for level, message in said if level == "INFO" and "compiling" in message]
    assert kinds == [("INFO", "compiling the kernel 'twice'"), ("INFO", "compiling the transforms lift")], said
    assert threading.enumerate() == [threading.main_thread()]
"""


def run(forking, tmp_path, program, **options):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + program)
    settings = {"PYTHONWARNINGS": "error", "LOADERX_CACHE_DIR": str(tmp_path / "cache")}
    finished = forking.run(file, env=os.environ | settings, **options)
    assert finished.returncode == 0, finished.stderr
    return finished


QUICK_AND_SLOW = """
progress.SECONDS, slowly = 60, 0.0
twice(1)
lifted("int32")
os.write(2, b"--- slow ---\\n")
progress.SECONDS, slowly = 0.1, 0.3
compile_both()
"""


@pytest.fixture(scope="module")
def on_a_terminal(forking, tmp_path_factory):
    """Return the lines that a program writes to a stderr that is a terminal, for fast and for slow compilations."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        run(forking, tmp_path_factory.mktemp("terminal"), QUICK_AND_SLOW, stderr=terminal)
    parts = []
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:  # Linux reports the end of the file so
            part = b""
        if not part:
            break
        parts.append(part)
    os.close(reader)
    lines = b"".join(parts).decode().splitlines()
    middle = lines.index("--- slow ---")
    return {"quick": lines[:middle], "slow": lines[middle + 1 :]}


def test_on_a_terminal_there_is_a_line_for_each(on_a_terminal):
    lines = on_a_terminal["slow"]
    assert len(lines) == 2
    assert lines[0] == (
        "loaderx: compiling the kernel 'twice', the first time only: later it is loaded from the cache"
    )
    # The function it calls is the user's extension of Numba.
    assert lines[1] == (
        "loaderx: compiling the transforms lift, once in every process: it cannot be cached"
    )


def test_quick_compilations_are_not_announced(on_a_terminal):
    assert on_a_terminal["quick"] == []


# Each compiles for another type, and the last closes stderr for good.
CASES = {
    "in the usual way": """
compile_both()
""",
    "of somebody else": """
numba.njit(lambda value: slow(value))(1)
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
threads = [threading.Thread(target=lifted, args=["uint16"]) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert any("compiling the transforms lift" in message for _, message in said)
""",
    "while a child is forked": """
compiling = threading.Thread(target=lifted, args=["int32"])
compiling.start()
while not said:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    # The thread that compiled is not in the child, and neither is what it waited for.
    os._exit(hasattr(progress._ANNOUNCER._state, "waiting") or threading.active_count() > 1)
assert os.waitpid(child, 0)[1] == 0
compiling.join()
""",
    "without stderr": """
stderr, sys.stderr = sys.stderr, None
try:
    lifted("int16")
finally:
    sys.stderr = stderr
assert said
""",
    "with a closed stderr": """
sys.stderr.close()
lifted("uint8")
assert said
""",
}
EACH = """
warnings.simplefilter("ignore")  # Python 3.12 warns of forks with threads
failures = {}
for name, case in CASES.items():
    said.clear()
    try:
        exec(case, globals())
        assert threading.enumerate() == [threading.main_thread()]
    except BaseException:
        failures[name] = traceback.format_exc()
print(json.dumps(failures))
"""


@pytest.fixture(scope="module")
def where_stderr_is_piped(forking, tmp_path_factory):
    """Run a program that does all of these; return its failures, and its stderr."""
    program = f"CASES = {CASES!r}\n{EACH}"
    finished = run(forking, tmp_path_factory.mktemp("piped"), program)
    return json.loads(finished.stdout), finished.stderr


def test_where_stderr_is_piped_only_the_logger_hears_it(where_stderr_is_piped):
    failures, written = where_stderr_is_piped
    assert "in the usual way" not in failures, failures["in the usual way"]
    assert written == ""


@pytest.mark.parametrize("compiled", [case for case in CASES if case != "in the usual way"])
def test_progress_never_stops_a_compilation(where_stderr_is_piped, compiled):
    failures, written = where_stderr_is_piped
    assert compiled not in failures, failures[compiled]
    assert written == ""


def test_a_program_may_end_while_something_is_compiled(forking, tmp_path):
    program = """
progress.SECONDS, slowly = 0.3, 1.0
threading.Thread(target=lifted, args=["float32"], daemon=True).start()
time.sleep(0.1)
"""
    assert run(forking, tmp_path, program).stderr == ""
