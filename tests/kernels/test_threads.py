"""Calls share the cores: one of them at a time is parallel, under every threading layer, after forks and in hooks."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import threads
from loaderx.kernels.threads import (
    BYTES_PER_THREAD,
    POOL_FACTOR,
    ProcessThreads,
    Team,
    bounds_of,
    run_shared,
    worthwhile,
)
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
in_processes = pytest.mark.skipif(
    bool(config.DISABLE_JIT), reason="plain Python has no threading layer"
)

# Every program counts the threads at work. `check` fails if there were ever more than its callers and the other cores
# that were idle for one of them.
PRELUDE = """
import json, os, sys, threading, traceback, warnings
import numba, numpy as np
import loaderx as lx
from loaderx import kernels, transforms as T
from loaderx.kernels import threads

peaks, parallel = [0], [0]
class Counted(threads.ProcessThreads):
    def begin(self, count):
        count = super().begin(count)
        peaks[0] = max(peaks[0], self._busy)
        parallel[0] += count > 1
        return count
threads.ProcessThreads = Counted
threads._current[0] = Counted(forked=False)

generator = np.random.default_rng(0)
images = generator.integers(0, 256, (1000, 40, 40, 3), np.uint8)
rows = generator.integers(-1000, 1000, 900)
augment = lx.pipeline([T.RandomCrop(32), T.RandomFlip(), T.Brightness(0.2), T.Normalize(0.5, 0.25)], seed=3)
expected = (
    images[rows],
    kernels.normalize(images, 0.5, 0.25, threads=1),
    augment(images, rows=rows, threads=1),
)
def call():
    results = kernels.gather(images, rows), kernels.normalize(images, 0.5, 0.25), augment(images, rows=rows)
    for result, wanted in zip(results, expected, strict=True):
        assert np.array_equal(result, wanted)
def check(callers=1):
    assert peaks[0] < callers + numba.config.NUMBA_NUM_THREADS, peaks
    assert parallel[0] > 0
def own_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loaderx-kernels")]
"""
CALLERS = """
failed = []
def many():
    try:
        for _ in range(6):
            call()
    except BaseException as error:
        failed.append(error)
callers = [threading.Thread(target=many) for _ in range(4)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
assert not failed, failed
check(4)
"""
FORKS = """
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks with threads
call()
busy = [True]
def many():
    while busy[0]:
        call()
others = [threading.Thread(target=many) for _ in range(2)]
for other in others:
    other.start()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        try:
            peaks[0] = parallel[0] = 0
            call()
            call()
            check()
            assert not threads._current[0].has_regions()
            grandchild = os.fork()
            if grandchild == 0:
                call()
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
busy[0] = False
for other in others:
    other.join()
assert codes == [0] * 3, codes
call()
"""
HOOK = """
def hook(batch):
    call()
    return {"data": augment(batch["data"])}
loader = lx.DataLoader({"data": images}, batch_size=64, seed=1, transform=hook, output="numpy", workers=2)
with iter(loader) as batches:
    for step, batch in zip(range(6), batches):
        wanted = augment(images, rows=loader.indices(step), positions=np.arange(64), threads=1)
        assert np.array_equal(batch["data"], wanted)
check(3)
"""
# With the layer of the parent, which the child cannot detect.
LATE_IMPORT = """
import multiprocessing, os, warnings
import numba, numpy as np
warnings.simplefilter("ignore", DeprecationWarning)
@numba.njit(parallel=True)
def double(x):
    for i in numba.prange(len(x)):
        x[i] *= 2
double(np.ones(100))
def work():
    from loaderx import kernels
    source = np.arange(1 << 20).reshape(1024, -1)
    assert np.array_equal(kernels.gather(source, np.arange(1024)[::-1]), source[::-1])
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
print(numba.threading_layer())
"""
# One after the other in one process: the first begin with many threads at once.
PROGRAMS = {"callers": CALLERS, "hook": HOOK, "forks": FORKS}
EACH = """
found = {}
for name, program in PROGRAMS.items():
    peaks[0] = parallel[0] = 0
    try:
        exec(program, globals())
        found[name] = numba.threading_layer(), len(own_threads())
    except BaseException:
        found[name] = traceback.format_exc(), 0
print(json.dumps(found))
"""

LAYERS = ["omp", "tbb", "workqueue"]
# The system library that a layer needs, and Numba's message without it.
LIBRARIES = {"omp": "libgomp", "tbb": "libtbb"}
MISSING = ("layer is not initialized", "No threading layer could be loaded")


def run(program, layer):
    """Run a program under a threading layer; return its output."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "NUMBA_THREADING_LAYER": layer,
            "NUMBA_NUM_THREADS": "2",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    said = finished.stdout + finished.stderr
    if layer in LIBRARIES and any(words in said for words in MISSING):
        pytest.skip(f"this machine has no {LIBRARIES[layer]}")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module", params=LAYERS)
def programs_under(request):
    """Return a threading layer, and for each program its layer and the number of threads of our own."""
    program = f"{PRELUDE}\nPROGRAMS = {PROGRAMS!r}\n{EACH}"
    return request.param, json.loads(run(program, request.param))


@in_processes
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_share_the_cores(program, programs_under):
    layer, found = programs_under
    used, own = found[program]
    assert used == layer, used
    assert own == (1 if layer == "workqueue" else 0)


@in_processes
@pytest.mark.parametrize("layer", LAYERS)
def test_a_forked_child_that_imports_the_kernels_is_safe(layer):
    assert run(LATE_IMPORT, layer) == f"{layer}\n"


@in_processes
def test_a_layer_that_cannot_be_loaded_is_not_needed():
    # Of these layers only TBB exists, which few machines have.
    program = PRELUDE + "call()\nprint(len(own_threads()) or numba.threading_layer())"
    assert run(program, "safe") in ("1\n", "tbb\n")


@pytest.fixture
def process(monkeypatch):
    """Return the threads of a process with four cores, in which nothing runs."""
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", 4)
    found = ProcessThreads(forked=True)
    monkeypatch.setattr(threads, "_current", [found])
    return found


def test_one_call_at_a_time_is_parallel(process):
    with Team(8, 3) as first:
        assert first.count == 3
        with Team(8, 4) as second:
            assert second.count == 1
            assert process._busy == 4
    with Team(8, 4) as third:
        assert third.count == 4


def test_a_call_leaves_the_cores_to_others_that_are_not_parallel(process):
    with Team(8, 1), Team(8, 1):
        with Team(8, 4) as third:
            assert third.count == 2
        with Team(1, 4) as fourth:
            assert fourth.count == 1
    assert process._busy == 0


def test_an_error_gives_threads_back(process):
    with pytest.raises(KeyError), Team(8, 4):
        raise KeyError
    assert (process._busy, process._divided) == (0, False)


@pytest.mark.parametrize("given", [None, 2, 100])
def test_numbas_number_of_threads_is_the_limit_unless_another_is_given(process, monkeypatch, given):
    monkeypatch.setattr(threads, "num_threads", lambda: 3)
    with Team(100, given) as team:
        assert team.count == {None: 3, 2: 2, 100: 4}[given]


def shared(size, nbytes, count, process):
    """Return how samples are shared: the parts, and the threads they ran in."""
    found = []

    def part(number, begin, end):
        found.append((number, begin, end, threading.current_thread().name))

    run_shared(size, nbytes, count, lambda parts: pytest.fail("a region in a forked child"), part)
    return sorted(found)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no threads of its own")
def test_samples_are_shared_without_gaps(process):
    own = threading.current_thread().name
    parts = shared(10, 3 * POOL_FACTOR * BYTES_PER_THREAD, 4, process)
    assert [part[:3] for part in parts] == [(0, 0, 3), (1, 3, 6), (2, 6, 10)]
    assert parts[0][3] == own
    assert all(part[3] == own or part[3].startswith("loaderx-kernels") for part in parts[1:])
    assert bounds_of(10, 3).tolist() == [0, 3, 6, 10]


def test_small_work_is_not_shared(process):
    own = threading.current_thread().name
    for size, nbytes in ((10, 2 * BYTES_PER_THREAD - 1), (1, 1 << 30), (0, 0)):
        assert shared(size, nbytes, 4, process) == [(0, 0, size, own)]


def test_threads_of_our_own_are_woken_for_more_work_than_those_of_numba(process):
    for regions, nbytes in ((True, 20), (False, 20 * POOL_FACTOR)):
        process._regions = regions
        assert worthwhile(100, nbytes - 1, 10) == 1
        assert worthwhile(100, nbytes, 10) == 2
        assert worthwhile(3, 1 << 30, 10) == 3
        assert worthwhile(0, 0, 10) == 1


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no threads of its own")
def test_a_caller_does_what_no_other_thread_has_begun(process):
    busy = threading.Event()
    process._run_pool(lambda *part: None, bounds_of(4, 4))
    blockers = [process._pool.submit(busy.wait, 60) for _ in range(3)]
    parts = shared(8, 1 << 30, 4, process)
    busy.set()
    assert {part[3] for part in parts} == {threading.current_thread().name}
    assert [part[0] for part in parts] == [0, 1, 2, 3]
    assert all(blocker.result() for blocker in blockers)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no threads of its own")
def test_an_exception_of_another_thread_is_raised_after_all_have_ended(process):
    ended = []

    def part(number, begin, end):
        if number == 1:
            raise ValueError("part 1")
        ended.append(number)

    with pytest.raises(ValueError, match="part 1"):
        run_shared(4, 1 << 30, 4, lambda parts: None, part)
    assert sorted(ended) == [0, 2, 3]
    assert process._busy == 0


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no threads of its own")
def test_a_pool_that_starts_no_threads_leaves_the_work_to_the_caller(process, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    own = threading.current_thread().name
    parts = shared(8, 1 << 30, 4, process)
    assert [part[:3] for part in parts] == [(0, 0, 2), (1, 2, 4), (2, 4, 6), (3, 6, 8)]
    assert {part[3] for part in parts} == {own}


@in_processes
def test_a_region_has_as_many_threads_as_the_call():
    seen = []
    before = numba.get_num_threads()
    process = ProcessThreads(forked=False)
    process._regions = True
    process.run(4, 1, lambda parts: seen.append((numba.get_num_threads(), parts.tolist())), None)
    assert seen == [(1, [0, 4])]
    assert numba.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        process.run(4, 1, lambda parts: 1 / 0, None)
    assert numba.get_num_threads() == before


def test_without_compilation_parts_run_in_the_calling_thread(monkeypatch):
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    seen = []
    ProcessThreads(forked=False).run(5, 2, lambda parts: seen.append(np.array(parts)), None)
    assert [parts.tolist() for parts in seen] == [[0, 2, 5]]
