"""Drivers on disk: compiled by one process and loaded by all others, bounded in size, and never in the way."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from loaderx.compiler import store

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def nowhere(tmp_path):
    """A path that nobody can create, root included."""
    (tmp_path / "file").write_text("not a folder")
    return str(tmp_path / "file" / "folder")


# --- files ------------------------------------------------------------------------------------


def test_drivers_lie_where_the_user_says_or_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "own"))
    assert store.folder() == tmp_path / "own"
    monkeypatch.delenv("LOADERX_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "darwin":
        assert store.folder() == tmp_path / "Library" / "Caches" / "loaderx"
        return
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert store.folder() == tmp_path / ".cache" / "loaderx"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.folder() == tmp_path / "xdg" / "loaderx"


def test_where_nothing_can_be_written_there_is_no_folder_and_nothing_to_lock_or_clean(
    nowhere, monkeypatch
):
    monkeypatch.setenv("LOADERX_CACHE_DIR", nowhere)
    assert store.folder() is None
    with store.locked(Path(nowhere) / "driver_1.lock"):
        pass
    store.clean(Path(nowhere), most_bytes=0)


def test_one_at_a_time_holds_the_lock_of_a_driver(tmp_path):
    entered = threading.Event()

    def enter():
        with store.locked(tmp_path / "driver_1.lock"):
            entered.set()

    waiting = threading.Thread(target=enter)
    with store.locked(tmp_path / "driver_1.lock"):
        waiting.start()
        with store.locked(tmp_path / "driver_2.lock"):
            assert not entered.wait(0.2)
    waiting.join(timeout=10)
    assert entered.is_set()


def test_the_lock_is_given_back_after_an_error(tmp_path):
    file = tmp_path / "driver_1.lock"
    with pytest.raises(KeyError), store.locked(file):
        raise KeyError
    with store.locked(file):
        pass


HOLD = """
import os, sys, time
from pathlib import Path
from loaderx.compiler import store
with store.locked(Path(sys.argv[1])):
    {then}
"""


@contextmanager
def holder(file, then):
    """A process that holds a lock, and has done what comes `then` as soon as it says so."""
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


def test_a_stopped_process_is_waited_for_only_so_long(tmp_path, monkeypatch, caplog):
    file = tmp_path / "driver_1.lock"
    monkeypatch.setattr(store, "WAIT_SECONDS", 1.5)
    caplog.set_level(logging.INFO, "loaderx")
    with holder(file, "print('ready', flush=True); time.sleep(100)") as process:
        process.send_signal(signal.SIGSTOP)
        with store.locked(file):
            process.send_signal(signal.SIGCONT)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    waiting, leaving = caplog.records
    assert f"waiting for process {process.pid}, which compiles the same" in waiting.message
    assert f"Process {process.pid} holds the lock {file} for more than 1.5 s" in leaving.message


# A child that was forked meanwhile outlives the lock.
FORK = """child = os.fork()
    if child == 0:
        time.sleep(100)
    Path(sys.argv[1] + ".child").write_text(str(child))
print('ready', flush=True)
time.sleep(100)"""


@pytest.mark.parametrize(
    "end", ["print('ready', flush=True); os.kill(os.getpid(), 9)", FORK], ids=["killed", "forked"]
)
def test_a_process_that_is_done_blocks_nobody(tmp_path, caplog, end):
    file = tmp_path / "driver_1.lock"
    with holder(file, end):
        with store.locked(file):
            pass
        for child in tmp_path.glob("*.child"):
            os.kill(int(child.read_text()), signal.SIGKILL)
    assert caplog.records == []


def filled(cache, names):
    """Drivers of 1000 bytes with what belongs to them, the first not used for longest."""
    cache.mkdir(exist_ok=True)
    for age, name in enumerate(names):
        for file, size in ((f"{name}.lock", 0), (f"{name}.1.nbc", 400), (f"{name}.2.nbc", 600)):
            (cache / file).write_bytes(bytes(size))
            os.utime(cache / file, (1000 + age, 1000 + age))


def files_of(cache, name):
    return sorted(path.name for path in cache.rglob(f"{name}.*"))


def test_cleaning_removes_what_was_not_used_for_longest_with_all_that_belongs_to_it(cache):
    filled(cache, ["driver_c", "driver_a", "driver_b"])
    assert len(files_of(cache, "driver_c")) == 3
    store.clean(cache, most_bytes=2500)
    assert files_of(cache, "driver_c") == []
    assert len(files_of(cache, "driver_a")) == len(files_of(cache, "driver_b")) == 3
    store.mark_used(cache / "driver_a.lock")
    store.clean(cache, most_bytes=1100)
    assert files_of(cache, "driver_b") == []
    assert len(files_of(cache, "driver_a")) == 3


def test_cleaning_leaves_alone_what_is_small_enough_and_what_is_not_ours(cache):
    filled(cache, ["driver_a", "driver_b"])
    (cache / "notes.py").write_text("mine")
    (cache / "driver_folder").mkdir()
    store.clean(cache, most_bytes=2000)
    assert len(files_of(cache, "driver_*")) == 6
    store.clean(cache, most_bytes=0)
    assert files_of(cache, "driver_*") == []
    assert (cache / "notes.py").exists()
    assert (cache / "driver_folder").exists()


# --- processes --------------------------------------------------------------------------------

# Where the transform is defined comes first; then one run of it, and whether its driver came from the disk.
RUN = """
import json
import numpy as np
run = lx.pipeline([shift(amount=2.0)])
samples = np.zeros((2, 3), np.float32)
result = run(samples)
chain = run.chain(lx.Spec((3,), np.float32), samples[0])
(segment,) = chain.phases[0].segments
print(json.dumps({"result": result[0].tolist(), "cached": segment.driver.cached}))
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
    program = "from loaderx.compiler import store\nstore.WAIT_SECONDS = 2\n" + DEFINITION + RUN
    assert not run(tmp_path, program)["cached"]
    (lock,) = (tmp_path / "cache").glob("*.lock")
    (code,) = (tmp_path / "cache").glob("*.nbc")
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
from loaderx.kernels import code_cache
class Trace:
    def __reduce__(self):
        return os.mkdir, (TRACE,)
original = code_cache.read_verified
def plant(file, key):
    if b"driver_" in key:
        mode = file.parent.stat().st_mode
        file.parent.chmod(0o700)
        code_cache.write_verified(file, key, pickle.dumps(Trace()))
        file.parent.chmod(mode)
    return original(file, key)
code_cache.read_verified = plant
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
    (file,) = (tmp_path / "cache").glob("*.nbc")
    whole = file.read_bytes()
    key = f"from pathlib import Path\nfile = Path({str(file)!r})\n"
    # In one process, at a thousand places: nothing but the whole file passes.
    check = (
        key
        + """
import json
from loaderx.kernels import code_cache
keys = []
original = code_cache.read_verified
def noted(file, key):
    keys.append(key)
    return original(file, key)
code_cache.read_verified = noted
"""
        + DEFINITION
        + RUN.replace("print(", "(")
        + """
(name,) = [key for key in keys if b"driver_" in key]
whole = file.read_bytes()
assert original(file, name) == whole[32:]
accepted = 0
for place in range(0, len(whole), max(1, len(whole) // 1000)):
    content = bytearray(whole)
    content[place] ^= 1 << place % 8
    file.write_bytes(content)
    accepted += original(file, name) is not None
file.write_bytes(whole)
print(json.dumps({"accepted": accepted, "size": len(whole)}))
"""
    )
    found = run(tmp_path, check)
    assert found["accepted"] == 0
    assert found["size"] == len(whole)
    # And in processes that would run what they load.
    for place in range(0, len(whole), len(whole) // 5 + 1):
        flip(file, place)
        assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
        assert run(tmp_path, program) == {"result": SHIFTED, "cached": True}


def test_of_eight_processes_that_start_cold_together_one_compiles(tmp_path):
    processes = [start(tmp_path, DEFINITION + RUN) for _ in range(8)]
    results = [finished(process) for process in processes]
    assert [result["result"] for result in results] == [SHIFTED] * 8
    assert sorted(result["cached"] for result in results) == [False] + [True] * 7
    names = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(names) == [".lock", ".nbc"]


def test_without_any_folder_to_write_to_everything_works_and_nothing_is_kept(tmp_path, nowhere):
    program = (
        f"import os\nos.environ.update(dict.fromkeys(['LOADERX_CACHE_DIR', 'HOME'], {nowhere!r}))"
        + DEFINITION
        + RUN
    )
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
    assert not (tmp_path / "cache").exists()
