"""Drivers on disk: compiled by one process and loaded by all others, bounded in size, and never in the way."""

import json
import os
import subprocess
import sys
import threading
import time
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


def test_a_driver_is_written_once_and_whole(cache):
    file = store.write_driver("driver_1", "first")
    assert file == cache / "driver_1.py"
    assert file.read_text() == "first"
    assert store.write_driver("driver_1", "first") == file
    assert [path.name for path in cache.iterdir()] == ["driver_1.py"]


def test_a_driver_that_is_used_becomes_the_youngest(cache):
    file = store.write_driver("driver_1", "first")
    os.utime(file, (0, 0))
    store.write_driver("driver_1", "first")
    assert time.time() - file.stat().st_mtime < 100


def test_where_nothing_can_be_written_there_is_no_file_and_nothing_to_lock_or_clean(
    nowhere, monkeypatch
):
    monkeypatch.setenv("LOADERX_CACHE_DIR", nowhere)
    assert store.write_driver("driver_1", "first") is None
    with store.locked(None):
        pass
    with store.locked(Path(nowhere) / "driver_1.py"):
        pass
    store.clean(most_bytes=0)


def test_one_at_a_time_holds_the_lock_of_a_driver(cache):
    file = store.write_driver("driver_1", "first")
    other = store.write_driver("driver_2", "second")
    entered = threading.Event()

    def enter():
        with store.locked(file):
            entered.set()

    waiting = threading.Thread(target=enter)
    with store.locked(file):
        waiting.start()
        with store.locked(other):
            assert not entered.wait(0.2)
    waiting.join(timeout=10)
    assert entered.is_set()


def test_the_lock_is_given_back_after_an_error(cache):
    file = store.write_driver("driver_1", "first")
    with pytest.raises(KeyError), store.locked(file):
        raise KeyError
    with store.locked(file):
        pass


def filled(cache, names):
    """Drivers of 1000 bytes with what belongs to them, the first not used for longest."""
    for age, name in enumerate(names):
        file = store.write_driver(name, " " * 400)
        with store.locked(file):
            pass
        (cache / "__pycache__").mkdir(exist_ok=True)
        (cache / "__pycache__" / f"{name}.drive-2.py311.nbi").write_bytes(bytes(200))
        (cache / "__pycache__" / f"{name}.drive-2.py311.1.nbc").write_bytes(bytes(400))
        os.utime(file, (1000 + age, 1000 + age))


def files_of(cache, name):
    return sorted(path.name for path in cache.rglob(f"{name}.*"))


def test_cleaning_removes_what_was_not_used_for_longest_with_all_that_belongs_to_it(cache):
    filled(cache, ["driver_c", "driver_a", "driver_b"])
    assert len(files_of(cache, "driver_c")) == 4
    store.clean(most_bytes=2500)
    assert files_of(cache, "driver_c") == []
    assert len(files_of(cache, "driver_a")) == len(files_of(cache, "driver_b")) == 4
    store.write_driver("driver_a", "used again")
    store.clean(most_bytes=1000)
    assert files_of(cache, "driver_b") == []
    assert len(files_of(cache, "driver_a")) == 4


def test_cleaning_leaves_alone_what_is_small_enough_and_what_is_not_ours(cache):
    filled(cache, ["driver_a", "driver_b"])
    (cache / "notes.txt").write_text("mine")
    store.clean(most_bytes=2000)
    assert len(files_of(cache, "driver_*")) == 8
    store.clean(most_bytes=0)
    assert files_of(cache, "driver_*") == []
    assert (cache / "notes.txt").exists()


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


def test_of_eight_processes_that_start_cold_together_one_compiles(tmp_path):
    processes = [start(tmp_path, DEFINITION + RUN) for _ in range(8)]
    results = [finished(process) for process in processes]
    assert [result["result"] for result in results] == [SHIFTED] * 8
    assert sorted(result["cached"] for result in results) == [False] + [True] * 7
    names = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(names) == [".lock", ".nbc", ".nbi", ".py"]


def test_without_any_folder_to_write_to_everything_works_and_nothing_is_kept(tmp_path, nowhere):
    program = (
        f"import os\nos.environ.update(dict.fromkeys(['LOADERX_CACHE_DIR', 'HOME'], {nowhere!r}))"
        + DEFINITION
        + RUN
    )
    assert run(tmp_path, program) == {"result": SHIFTED, "cached": False}
    assert not (tmp_path / "cache").exists()
