"""`loaderx warm` compiles ahead, in worker processes, so that the next process compiles nothing."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from numba.core import config

import loaderx as lx
from loaderx import cli
from loaderx.commands import catalogue, compile_workers, warm
from loaderx.compiler import passes
from loaderx.errors import TransformError
from tests.loaderx.transforms.catalogue import exported
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")

REPOSITORY = Path(__file__).parents[3]
PROGRAM = """
import ctypes

import numpy as np
import loaderx as lx
from loaderx import transforms as T

print("imported")
images = np.zeros((40, 12, 12, 3), np.uint8)
LEVEL = 2


@lx.transform
def lift(x, amount):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] = x[i, j, c] // 2 + LEVEL + amount


def make(*ops):
    return lx.DataLoader(images, batch_size=8, transforms=list(ops), output="numpy")


loader = make(T.Invert(), lift(amount=1))


def one():
    return make(T.Invert())


def made(level):
    @lx.transform
    def own(x):
        x[0, 0, 0] = level

    return own


def many():
    return make(*map(made, range(40)))


def calls_c():
    # Its address is that of this process.
    absolute = ctypes.CDLL(None).abs
    absolute.argtypes, absolute.restype = [ctypes.c_int], ctypes.c_int

    @lx.transform
    def own(x):
        x[0, 0, 0] = absolute(-1)

    return make(own)


number = 3
if __name__ == "__main__":
    next(iter(loader))
    fields = [field for group in loader._builder.planner.groups for field in group.fields]
    print([part.program.cached for field in fields for part in field.chain.phases[0].segments])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    monkeypatch.setattr(passes, "_LOADED", {})
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    Path("train.py").write_text(PROGRAM)
    return tmp_path


def stored():
    return {file.name for file in Path("cache").glob("*") if file.suffix != ".lock"}


def run_python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE
    )


# --- one loader -------------------------------------------------------------------------------


def test_a_loader_is_compiled_and_the_second_time_all_of_it_is_there(folder, monkeypatch, capsys):
    monkeypatch.setattr(warm, "FEW_PASSES", 100)
    assert cli.main(["warm", "train.py:one", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Passes of the loader that the file makes while it is imported count, too.
    assert lines[0] == "imported"
    compiled = len(stored())
    assert lines[1].startswith(f"passes: {compiled} compiled, 0 cached before; ")
    assert lines[1].endswith(f" in {folder / 'cache'}")
    assert lines[2].startswith("kernels: ")
    assert lines[-1].endswith(" seconds")
    before = stored()
    assert cli.main(["warm", "train.py:one"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"passes: 0 compiled, {compiled} cached before; ")
    assert stored() == before


def test_a_process_after_the_command_compiles_nothing_and_imports_nothing_twice():
    # The command compiles two passes itself, and has a worker compile the third.
    finished = run_python("-m", "loaderx", "warm", "train.py:loader", "--jobs", "1")
    assert (finished.returncode, finished.stderr) == (0, "")
    # Printed once, though every worker imports the file.
    assert finished.stdout.count("imported") == 1
    assert "\npasses: 3 compiled, 0 cached before; " in finished.stdout
    before = stored()
    assert not [name for name in before if not name.endswith(".nbc")]
    finished = run_python("train.py")
    assert finished.stdout.splitlines() == ["imported", "[True]"], finished.stderr
    # A module that makes its loader while it is imported.
    finished = run_python("-c", "import train")
    assert (finished.returncode, finished.stdout) == (0, "imported\n")
    assert stored() == before


def test_workers_compile_what_is_missing(monkeypatch, capfd):
    def refuse(*_):
        raise AssertionError("compiled in the process of the command")

    monkeypatch.setattr(warm, "FEW_PASSES", 0)
    monkeypatch.setattr(passes, "_compile_now", refuse)
    assert cli.main(["warm", "train.py:loader", "--jobs", "2"]) == 0
    shown = capfd.readouterr()
    # An op, and the op of the user both plain and with checks of its indices.
    assert "\npasses: 3 compiled, 0 cached before; " in shown.out
    assert shown.out.count("imported") == 1
    # No bar without a terminal.
    assert shown.err == ""


def test_passes_that_workers_cannot_compile_are_compiled_by_the_command(monkeypatch, capsys):
    monkeypatch.setattr(warm, "FEW_PASSES", 0)
    monkeypatch.setattr(compile_workers, "START", "import sys; sys.exit(1)")
    assert cli.main(["warm", "train.py:one"]) == 0
    assert "\npasses: " in capsys.readouterr().out
    assert stored()


def test_an_op_that_cannot_be_cached_is_named(monkeypatch, capsys):
    monkeypatch.setattr(warm, "FEW_PASSES", 100)
    assert cli.main(["warm", "train.py:calls_c"]) == 0
    assert "cannot be cached, so it is compiled in every process: 'own'" in capsys.readouterr().out


def test_a_module_may_be_named_too(monkeypatch, capsys):
    Path("own_module.py").write_text(PROGRAM.replace("\nloader = ", "\n# "))
    for compiled in (True, False):
        assert cli.main(["warm", "own_module:one", "--jobs", "2"]) == 0
        monkeypatch.delitem(sys.modules, "own_module")
        shown = capsys.readouterr()
        assert shown.out.startswith("imported\n")
        assert ("everything was cached before" in shown.out) is not compiled
        assert shown.err == ""


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["train.py:loader", "--all", "neither"]),
        (["--all", "train.py:loader"], ["both"]),
        (["missing.py:loader"], ["no file missing.py"]),
        (["train.py:nothing"], ["has no 'nothing'", "its loaders are loader"]),
        (["train.py:number"], ["is an int, not a DataLoader"]),
        (["train.py"], ["must be module:name"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(warm, "FEW_PASSES", 100)
    assert cli.main(["warm", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loaderx warm: ")
    assert [word for word in words if word not in line] == []


def test_where_nothing_is_compiled_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    assert cli.main(["warm", "--all"]) == 2
    assert "LOADERX_DEBUG is set" in capsys.readouterr().err


def test_a_mistake_in_the_file_is_shown_where_it_is(capsys):
    Path("train.py").write_text("numbers = [1]\nnumbers[5]\n")
    assert cli.main(["warm", "train.py:loader"]) == 1
    shown = capsys.readouterr().err
    assert 'train.py", line 2' in shown
    assert shown.splitlines()[-1] == "loaderx warm: importing train.py failed, see above"


# --- interruption -----------------------------------------------------------------------------


def begun(*arguments):
    """Return a process with two workers while they compile: more passes than the command compiles itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loaderx", "warm", *arguments, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + PATIENCE
    workers = []
    while len(workers) < 2 or len(list(Path("cache").glob("*.lock"))) <= warm.FEW_PASSES:
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
        workers = psutil.Process(process.pid).children()
    return process, workers


@pytest.mark.parametrize(
    ("target", "printed"),
    [("train.py:many", "imported\n"), pytest.param("--all", "", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_its_workers_and_leaves_no_half_of_a_file(
    number, target, printed
):
    process, workers = begun(target)
    process.send_signal(number)
    shown = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert shown == (printed, "loaderx warm: stopped\n")
    assert not any(worker.is_running() for worker in workers)
    assert not [name for name in stored() if not name.endswith(".nbc")]


def test_workers_end_with_a_command_that_is_killed():
    process, workers = begun("train.py:many")
    process.kill()
    process.communicate(timeout=PATIENCE)
    gone, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert (len(gone), alive) == (2, [])


def test_workers_that_say_nothing_are_not_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(warm, "FEW_PASSES", 0)
    monkeypatch.setattr(compile_workers, "START", "import time; time.sleep(100)")
    monkeypatch.setattr(compile_workers, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(compile_workers, "STOP_SECONDS", 0.3)
    assert cli.main(["warm", "train.py:one"]) == 0
    assert stored()


# --- everything -------------------------------------------------------------------------------


def test_the_catalogue_has_every_op():
    tree = ast.parse(Path(catalogue.__file__).read_text())
    named = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "T"
    }
    # They declare something, and compile nothing.
    assert set(exported()) - named == {"Boxes", "Channels"}


def test_every_example_is_accepted_for_some_kind_of_samples_and_nothing_is_compiled():
    accepted = {}
    with passes.answering(lambda wanted: (passes.NOT_COMPILED, True)):
        for fields, transforms in catalogue.examples():
            ops = repr(transforms)
            accepted[ops] = catalogue.accept(fields, transforms) or accepted.get(ops, False)
    # Boxes and keypoints do not follow it.
    refused = [ops for ops, found in accepted.items() if not found and "keypoints" not in ops]
    assert [ops for ops in refused if "length" not in ops] == []
    unknown = ("Resample", "TimeStretch", "LogMel")
    assert all(any(name in ops for name in unknown) for ops in refused)
    assert not stored()


def test_the_list_of_passes_is_the_same_in_every_process():
    program = """
from loaderx.commands.compile_workers import WarmTargets, listed
print(*sorted(wanted.name for wanted in listed(WarmTargets([], True, []))))
"""
    wanted = compile_workers.listed(compile_workers.WarmTargets([], True, []))
    names = sorted(each.name for each in wanted)
    assert run_python("-c", program).stdout.split() == names
    assert len(names) > 150
    assert not stored()


def test_a_chain_that_is_only_listed_cannot_be_run():
    with passes.answering(lambda wanted: (passes.NOT_COMPILED, True)):
        pipeline = lx.pipeline([lx.transforms.Invert()])
        with pytest.raises(TransformError, match="listed, and not compiled"):
            pipeline(np.zeros((2, 4, 4, 3), np.uint8))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_everything_is_compiled_once(folder):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kernels")}
    shown = []
    for _ in range(2):
        finished = subprocess.run(
            [sys.executable, "-m", "loaderx", "warm", "--all"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert (finished.returncode, finished.stderr) == (0, "")
        shown.append(finished.stdout)
    assert ", 0 cached before; " in shown[0].splitlines()[0]
    assert "everything was cached before" in shown[1]
