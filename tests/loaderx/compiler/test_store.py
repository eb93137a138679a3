"""Cache of passes on disk: compiled by one process, loaded by all others, bounded in size, never a source of errors."""

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

import loaderx as lx
from loaderx.compiler import passes
from loaderx.kernels.caching import files, store
from tests.kernels.caching.lock_holder import holder
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def nowhere(tmp_path):
    """Return a path that nobody can create, root included."""
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
        # The kernels themselves are compiled once for all tests.
        if not name.startswith(("LOADERX_", "NUMBA_", "PYTHON")) or name == "NUMBA_CACHE_DIR"
    }
    return {
        **inherited,
        "LOADERX_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "error",
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


def start_python(file, **options):
    """Start a process that runs a file and imports everything itself."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, file], text=True, **pipes, **options)


@pytest.fixture
def start(forking, tmp_path):
    """Return a function that starts a process that runs a program from a file."""
    return functools.partial(start_by, forking.start, tmp_path)


def start_by(start, tmp_path, program):
    file = tmp_path / "program.py"
    if not file.exists() or file.read_text() != program:
        file.write_text(program)
    return start(file, cwd=tmp_path, env=environment(tmp_path))


def finished(process):
    printed, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    assert complaints == ""
    return json.loads(printed)


@pytest.fixture
def run(start):
    """Return a function that runs a program to its end and returns its result."""
    return lambda program: finished(start(program))


def in_this_process(definition=DEFINITION):
    """Run the definition in this process, with no passes in memory: it loads from the disk like a new process."""
    names = {"__name__": __name__}
    exec(definition, names)
    passes._LOADED.clear()
    run = lx.pipeline([names["shift"](amount=2.0)])
    samples = np.zeros((2, 3), np.float32)
    result = run(samples)
    chain = run.chain(lx.Spec((3,), np.float32), samples[0])
    (segment,) = chain.phases[0].segments
    return {"result": result[0].tolist(), "cached": segment.program.cached}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the folder of compiled ops of this process."""
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


IN_A_NOTEBOOK = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ({DEFINITION!r}, {RUN!r}):
    shell.run_cell(cell).raise_error()
"""


def test_a_transform_defined_in_a_notebook_is_compiled_by_one_process_and_loaded_by_the_next(run):
    pytest.importorskip("IPython")
    assert run(IN_A_NOTEBOOK) == {"result": SHIFTED, "cached": False}
    assert run(IN_A_NOTEBOOK) == {"result": SHIFTED, "cached": True}


PACKAGE = {
    "package/__init__.py": "",
    "package/tools.py": "import numba\n\n@numba.njit\ndef gain(value):\n    return value + 1\n",
    "package/config.py": "LEVEL = 10.0\n",
    "package/ops.py": """
import loaderx as lx
import package.config
from package import tools

@lx.transform
def shift(x, amount):
    for i in range(x.shape[0]):
        x[i] = tools.gain(x[i]) * amount + package.config.LEVEL
""",
}
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
LIKE_PYTHON = ("statistics", "profile", "code")
MODULES = ("own", "package.ops", "overloaded", *LIKE_PYTHON)
# The same run of transforms that are defined in several places, each with a cache of its own.
RUN_ALL = (
    f"""
import importlib, json, os
from loaderx.compiler import passes
cache = os.environ["LOADERX_CACHE_DIR"]
found = {{}}
def run_all():
    for name in ["__main__", *{MODULES!r}]:
        os.environ["LOADERX_CACHE_DIR"] = os.path.join(cache, name)
        passes._LOADED.clear()
        found[name] = run_one(importlib.import_module(name).shift)

def run_one(shift):
"""
    + textwrap.indent(RUN.replace("print(json.dumps(", "return ((").strip(), "    ")
    + """

run_all()
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Return the results of four processes in sequence, for transforms whose files change in between."""
    folder = tmp_path_factory.mktemp("changes")
    (folder / "package").mkdir()
    sources = {
        **PACKAGE,
        "own.py": DEFINITION,
        "overloaded.py": OVERLOAD,
        **{f"{name}.py": DEFINITION for name in LIKE_PYTHON},
    }
    # Longer than before: Python itself tells sources apart by size and by the second they were written in.
    tools = PACKAGE["package/tools.py"].replace("value + 1", "value + 1 + 1")
    changes = [
        sources,
        {
            "package/tools.py": tools,
            **{f"{name}.py": DEFINITION.replace("10.0", "20.00") for name in LIKE_PYTHON},
        },
        {
            "package/config.py": "LEVEL = 20.00\n",
            "overloaded.py": OVERLOAD.replace("10.0", "20.00"),
        },
        # Other lines of the file do not count.
        {"package/tools.py": "# A remark.\n\n" + tools},
    ]
    results = []
    for changed in changes:
        for name, text in changed.items():
            (folder / name).write_text(text)
        results.append(finished(start_by(start_python, folder, DEFINITION + RUN_ALL)))
    return folder, results


def history(processes, name):
    """Return the result of a transform in each process, and whether its pass was loaded."""
    results = [result[name] for result in processes[1]]
    for found in results:
        assert len(set(found["result"])) == 1
        assert len(found["result"]) == len(SHIFTED)
    return [(found["result"][0], found["cached"]) for found in results]


@pytest.mark.parametrize("name", ["__main__", "own"])
def test_a_transform_is_compiled_by_one_process_and_loaded_by_the_next(processes, name):
    assert history(processes, name) == [(12.0, False), (12.0, True), (12.0, True), (12.0, True)]


def test_a_change_in_a_file_that_a_transform_uses_is_seen_by_the_next_process(processes):
    expected = [(12.0, False), (14.0, False), (24.0, False), (24.0, True)]
    assert history(processes, "package.ops") == expected


@pytest.mark.parametrize("name", LIKE_PYTHON)
def test_a_module_called_like_one_of_python_is_the_users(processes, name):
    assert history(processes, name) == [(12.0, False), (22.0, False), (22.0, True), (22.0, True)]


def test_a_changed_overload_is_seen_by_the_next_process(processes):
    # Code that cannot be known in full is not cached.
    expected = [(12.0, False), (12.0, False), (22.0, False), (22.0, False)]
    assert history(processes, "overloaded") == expected
    cache = processes[0] / "cache"
    assert list((cache / "own").rglob("*.nbc"))
    assert not list((cache / "overloaded").rglob("*.nbc"))


def test_a_stopped_process_does_not_stop_others(forking, cache, monkeypatch, caplog):
    monkeypatch.setattr(store, "WAIT_SECONDS", 0.5)
    assert not in_this_process()["cached"]
    # The function as it is was compiled first, then the one with its indices checked.
    code, _ = sorted(cache.glob("*.nbc"), key=lambda file: file.stat().st_mtime_ns)
    lock = code.with_name(code.name.split(".")[0] + ".lock")
    code.unlink()
    with holder(forking, lock, "print('ready', flush=True); time.sleep(100)") as process:
        process.send_signal(signal.SIGSTOP)
        assert in_this_process() == {"result": SHIFTED, "cached": False}
        assert f"Process {process.pid} holds the lock" in caplog.text
        # Now that it is cached, nobody needs the lock.
        monkeypatch.setattr(store, "WAIT_SECONDS", 1000)
        assert in_this_process() == {"result": SHIFTED, "cached": True}


class Trace:
    """Object that leaves a trace when it is unpickled."""

    def __init__(self, folder):
        self._folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self._folder),)


def test_nothing_is_unpickled_from_a_folder_that_others_may_write(cache, tmp_path, monkeypatch):
    trace, original = tmp_path / "trace", files.read_verified

    def plant(file, key):
        # With the right checksum: that is not a secret.
        if b"pass_" in key:
            mode = file.parent.stat().st_mode
            file.parent.chmod(0o700)
            files.write_verified(file, key, pickle.dumps(Trace(trace)))
            file.parent.chmod(mode)
        return original(file, key)

    monkeypatch.setattr(files, "read_verified", plant)
    # Whoever may write to the folder has code run in this process ...
    assert in_this_process() == {"result": SHIFTED, "cached": False}
    trace.rmdir()
    # ... unless the folder is not used.
    cache.chmod(0o777)
    inner = cache / f"loaderx-{os.geteuid()}"
    inner.mkdir(mode=0o700)
    inner.chmod(0o770)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert in_this_process() == {"result": SHIFTED, "cached": False}
    assert "\n".join(str(warning.message) for warning in said).count("nothing is cached") == 1
    assert not trace.exists()


def test_in_a_folder_of_many_users_each_has_one_of_their_own(cache):
    cache.mkdir()
    cache.chmod(0o1777)
    with pytest.warns(UserWarning, match=f"loaderx-{os.geteuid()} is used instead"):
        assert in_this_process() == {"result": SHIFTED, "cached": False}
    assert in_this_process() == {"result": SHIFTED, "cached": True}
    assert [path.name for path in cache.iterdir()] == [f"loaderx-{os.geteuid()}"]


def flip(file, place):
    """Flip one bit, and keep the time."""
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    file.write_bytes(content)


def test_no_flipped_bit_is_ever_loaded(cache, monkeypatch):
    read, original = [], files.read_verified

    def noted(file, key):
        read.append((file, key))
        return original(file, key)

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_verified", noted)
        assert not in_this_process()["cached"]
    # The function as it is comes before the one with its indices checked.
    file, key = next(entry for entry in read if b"pass_" in entry[1])
    whole = file.read_bytes()
    assert original(file, key) == whole[32:]
    # At a thousand places: nothing but the whole file passes.
    accepted = 0
    for place in range(0, len(whole), max(1, len(whole) // 1000)):
        flip(file, place)
        accepted += original(file, key) is not None
        file.write_bytes(whole)
    assert accepted == 0
    # And where it would be run.
    for place in range(0, len(whole), len(whole) // 5 + 1):
        flip(file, place)
        assert in_this_process() == {"result": SHIFTED, "cached": False}
        assert in_this_process() == {"result": SHIFTED, "cached": True}


def test_another_process_loads_no_flipped_bit(run, tmp_path):
    program = DEFINITION + RUN
    assert not run(program)["cached"]
    for file in (tmp_path / "cache").glob("*.nbc"):
        flip(file, file.stat().st_size // 2)
    assert run(program) == {"result": SHIFTED, "cached": False}
    assert run(program) == {"result": SHIFTED, "cached": True}


@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.long)])
def test_of_processes_that_start_cold_together_one_compiles(start, tmp_path, count):
    processes = [start(DEFINITION + RUN) for _ in range(count)]
    results = [finished(process) for process in processes]
    assert [result["result"] for result in results] == [SHIFTED] * count
    assert sorted(result["cached"] for result in results) == [False] + [True] * (count - 1)
    names = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(names) == [".lock", ".lock", ".nbc", ".nbc"]


def test_without_any_folder_to_write_to_everything_works_and_nothing_is_kept(
    run, tmp_path, nowhere
):
    program = (
        f"import os\nos.environ.update(dict.fromkeys(['LOADERX_CACHE_DIR', 'HOME'], {nowhere!r}))"
        + DEFINITION
        + RUN
    )
    assert run(program) == {"result": SHIFTED, "cached": False}
    assert not (tmp_path / "cache").exists()
