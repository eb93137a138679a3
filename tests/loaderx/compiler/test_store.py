"""Passes on disk: compiled by one process and loaded by all others, bounded in size, and never in the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.caching.lock_holder import holder

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def nowhere(tmp_path):
    """A path that nobody can create, root included."""
    (tmp_path / "file").write_text("not a folder")
    return str(tmp_path / "file" / "folder")


# Where the transform is defined comes first; then one run of it, and whether its pass came from the disk.
RUN = """
import json
import numpy as np
run = lx.pipeline([shift(amount=2.0)])
samples = np.zeros((2, 3), np.float32)
result = run(samples)
chain = run.chain(lx.Spec((3,), np.float32), samples[0])
(segment,) = chain.phases[0].segments
print(json.dumps({"result": result[0].tolist(), "cached": segment.program.cached}))
"""
DEFINITION = """
import numba
import loaderx as lx

LEVEL = 10.0

@numba.njit
def shifted(value, amount):
    return value + amount + LEVEL

@lx.transform
def shift(x, amount):
    for i in range(x.shape[0]):
        x[i] = shifted(x[i], amount)
"""
SHIFTED = [12.0, 12.0, 12.0]


def environment(tmp_path):
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOADERX_", "NUMBA_", "PYTHON"))
    }
    return {
        **inherited,
        "LOADERX_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(REPOSITORY),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


def start(tmp_path, program):
    """A new process that runs a program from a file."""
    file = tmp_path / "program.py"
    if not file.exists() or file.read_text() != program:
        file.write_text(program)
    return subprocess.Popen(
        [sys.executable, "-W", "error", file],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    printed, complaints = process.communicate(timeout=100)
    assert process.returncode == 0, complaints
    assert complaints == ""
    return json.loads(printed)


def run(tmp_path, program):
    return finished(start(tmp_path, program))


IN_A_NOTEBOOK = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ({DEFINITION!r}, {RUN!r}):
    shell.run_cell(cell).raise_error()
"""
PROGRAMS = {
    "in the program": DEFINITION + RUN,
    "in a notebook": IN_A_NOTEBOOK,
    "in a module": "import loaderx as lx\nfrom own import shift" + RUN,
}


@pytest.mark.parametrize("where", PROGRAMS)
def test_a_transform_defined_anywhere_is_compiled_by_one_process_and_loaded_by_the_next(
    tmp_path, where
):
    if where == "in a notebook":
        pytest.importorskip("IPython")
    (tmp_path / "own.py").write_text(DEFINITION)
    assert run(tmp_path, PROGRAMS[where]) == {"result": SHIFTED, "cached": False}
    assert run(tmp_path, PROGRAMS[where]) == {"result": SHIFTED, "cached": True}


PACKAGE = {
    "own/__init__.py": "",
    "own/tools.py": "import numba\n\n@numba.njit\ndef gain(value):\n    return value + 1\n",
    "own/config.py": "LEVEL = 10.0\n",
    "own/ops.py": """
import loaderx as lx
import own.config
from own import tools

@lx.transform
def shift(x, amount):
    for i in range(x.shape[0]):
        x[i] = tools.gain(x[i]) * amount + own.config.LEVEL
""",
}


def test_a_change_in_a_file_that_a_transform_uses_is_seen_by_the_next_process(tmp_path):
    (tmp_path / "own").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    program = "import loaderx as lx\nfrom own.ops import shift" + RUN
    assert run(tmp_path, program) == {"result": [12.0] * 3, "cached": False}

    # Longer than they were: Python itself tells sources apart by size and by the second they were written in.
    changed = PACKAGE["own/tools.py"].replace("value + 1", "value + 1 + 1")
    (tmp_path / "own/tools.py").write_text(changed)
    assert run(tmp_path, program) == {"result": [14.0] * 3, "cached": False}

    (tmp_path / "own/config.py").write_text("LEVEL = 20.00\n")
    assert run(tmp_path, program) == {"result": [24.0] * 3, "cached": False}

    # What lies in other lines of the file does not count.
    (tmp_path / "own/tools.py").write_text("# A remark.\n\n" + changed)
    assert run(tmp_path, program) == {"result": [24.0] * 3, "cached": True}


@pytest.mark.parametrize("name", ["statistics", "profile", "code"])
def test_a_module_called_like_one_of_python_is_the_users(tmp_path, name):
    program = f"import loaderx as lx\nfrom {name} import shift" + RUN
    for level in ("10.0", "20.00"):
        (tmp_path / f"{name}.py").write_text(DEFINITION.replace("10.0", level))
        expected = [float(level) + 2] * 3
        assert run(tmp_path, program) == {"result": expected, "cached": False}
    assert run(tmp_path, program) == {"result": expected, "cached": True}


OVERLOAD = """
import loaderx as lx
from numba.extending import overload

def raised(value, amount):
    pass

@overload(raised)
def raised_overload(value, amount):
    return lambda value, amount: value + amount + 10.0

@lx.transform
def shift(x, amount):
    for i in range(x.shape[0]):
        x[i] = raised(x[i], amount)
"""


def test_a_changed_overload_is_seen_by_the_next_process(tmp_path):
    program = "import loaderx as lx\nfrom own import shift" + RUN
    for level in ("10.0", "20.00"):
        (tmp_path / "own.py").write_text(OVERLOAD.replace("10.0", level))
        for _ in range(2):  # what cannot be known in full is not cached
            expected = [float(level) + 2] * 3
            assert run(tmp_path, program) == {"result": expected, "cached": False}
    assert not list((tmp_path / "cache").rglob("*.nbc"))


def test_a_stopped_process_does_not_stop_others(tmp_path):
    program = (
        "from loaderx.kernels.caching import store\nstore.WAIT_SECONDS = 2\n" + DEFINITION + RUN
    )
    assert not run(tmp_path, program)["cached"]
    # The function as it is was compiled first, then the one with its indices checked.
    code, _ = sorted((tmp_path / "cache").glob("*.nbc"), key=lambda file: file.stat().st_mtime_ns)
    lock = code.with_name(code.name.split(".")[0] + ".lock")
    code.unlink()
    with holder(lock, "print('ready', flush=True); time.sleep(100)") as process:
        process.send_signal(signal.SIGSTOP)
        printed, said = start(tmp_path, program).communicate(timeout=100)
        assert json.loads(printed) == {"result": SHIFTED, "cached": False}
        assert f"Process {process.pid} holds the lock" in said
        # Now that it is cached, nobody needs the lock.
        assert run(tmp_path, program.replace("= 2", "= 1000"))["cached"]


# Code that leaves a trace when it is unpickled, with the right checksum: that is no secret.
PLANT = """
import os, pickle
from pathlib import Path
from loaderx.kernels.caching import files
class Trace:
    def __reduce__(self):
        return os.mkdir, (TRACE,)
original = files.read_verified
def plant(file, key):
    if b"pass_" in key:
        mode = file.parent.stat().st_mode
        file.parent.chmod(0o700)
        files.write_verified(file, key, pickle.dumps(Trace()))
        file.parent.chmod(mode)
    return original(file, key)
files.read_verified = plant
"""


def test_nothing_is_unpickled_from_a_folder_that_others_may_write(tmp_path):
    cache, trace = tmp_path / "cache", tmp_path / "trace"
    program = PLANT.replace("TRACE", repr(str(trace))) + DEFINITION + RUN
    # Whoever may write to the folder has code run in this process ...
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
    trace.rmdir()
    # ... unless the folder is not used.
    cache.chmod(0o777)
    inner = cache / f"loaderx-{os.geteuid()}"
    inner.mkdir(mode=0o700)
    inner.chmod(0o770)
    printed, said = start(
        tmp_path, "import warnings\nwarnings.simplefilter('always')\n" + program
    ).communicate()
    assert json.loads(printed) == {"result": SHIFTED, "cached": False}
    assert said.count("nothing is cached") == 1
    assert not trace.exists()


def test_in_a_folder_of_many_users_each_has_one_of_their_own(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o1777)
    program = "import warnings\nwarnings.simplefilter('ignore')\n" + DEFINITION + RUN
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": True}
    assert [path.name for path in cache.iterdir()] == [f"loaderx-{os.geteuid()}"]


def flip(file, place):
    """Flip one bit, and keep the time."""
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    file.write_bytes(content)


def test_no_flipped_bit_is_ever_loaded(tmp_path):
    program = DEFINITION + RUN
    assert not run(tmp_path, program)["cached"]
    # In one process, at a thousand places: nothing but the whole file passes.
    check = (
        """
import json
from loaderx.kernels.caching import files
read = []
original = files.read_verified
def noted(file, key):
    read.append((file, key))
    return original(file, key)
files.read_verified = noted
"""
        + DEFINITION
        + RUN.replace("print(", "(")
        + """
# The function as it is comes before the one with its indices checked.
file, name = next(entry for entry in read if b"pass_" in entry[1])
whole = file.read_bytes()
assert original(file, name) == whole[32:]
accepted = 0
for place in range(0, len(whole), max(1, len(whole) // 1000)):
    content = bytearray(whole)
    content[place] ^= 1 << place % 8
    file.write_bytes(content)
    accepted += original(file, name) is not None
file.write_bytes(whole)
print(json.dumps({"accepted": accepted, "size": len(whole), "file": str(file)}))
"""
    )
    found = run(tmp_path, check)
    assert found["accepted"] == 0
    file = Path(found["file"])
    assert found["size"] == len(file.read_bytes())
    # And in processes that would run what they load.
    for place in range(0, found["size"], found["size"] // 5 + 1):
        flip(file, place)
        assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
        assert run(tmp_path, program) == {"result": SHIFTED, "cached": True}


def test_of_eight_processes_that_start_cold_together_one_compiles(tmp_path):
    processes = [start(tmp_path, DEFINITION + RUN) for _ in range(8)]
    results = [finished(process) for process in processes]
    assert [result["result"] for result in results] == [SHIFTED] * 8
    assert sorted(result["cached"] for result in results) == [False] + [True] * 7
    names = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(names) == [".lock", ".lock", ".nbc", ".nbc"]


def test_without_any_folder_to_write_to_everything_works_and_nothing_is_kept(tmp_path, nowhere):
    program = (
        f"import os\nos.environ.update(dict.fromkeys(['LOADERX_CACHE_DIR', 'HOME'], {nowhere!r}))"
        + DEFINITION
        + RUN
    )
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
    assert not (tmp_path / "cache").exists()
