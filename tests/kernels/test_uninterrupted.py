"""Imports and compilations continue where Ctrl-C cannot reach them."""

import _thread
import gc
import signal
import threading

import numpy as np
import pytest
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock

from loaderx.kernels import compilation
from loaderx.kernels.uninterrupted import import_uninterrupted, uninterrupted


def test_ctrl_c_is_raised_at_once_and_the_function_continues():
    began, proceed, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        began.set()
        assert threading.current_thread() is not threading.main_thread()
        _thread.interrupt_main()
        assert proceed.wait(10)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert began.is_set()
    assert not ended.is_set()
    proceed.set()
    assert ended.wait(10)


def test_results_and_errors_are_those_of_the_function():
    assert uninterrupted(divmod, 17, 5) == (3, 2)
    assert uninterrupted(dict, a=1) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        uninterrupted(divmod, 1, 0)


def test_garbage_is_collected_where_it_came_into_being():
    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            collectors.append(threading.current_thread())

    collectors = []

    def work():
        Cycle()
        [[] for _ in range(100_000)]  # would start the collector
        assert not collectors
        return threading.current_thread()

    assert gc.isenabled()
    worker = uninterrupted(work)
    assert collectors == [worker]
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_on_afterwards_if_it_was_before(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        threads = [
            threading.Thread(target=uninterrupted, args=(sum, range(10**5))) for _ in range(9)
        ]
        for thread in threads:
            thread.start()
        with pytest.raises(ZeroDivisionError):
            uninterrupted(divmod, 1, 0)
        for thread in threads:
            thread.join()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_another_thread_calls_it_itself():
    found = []

    def run():
        found.append(uninterrupted(threading.current_thread))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [thread]


def test_exit_handlers_may_compile(forking):
    program = (
        "import atexit, numpy as np, loaderx as lx\n"
        "source = lx.NPDataset(np.arange(9))\n"
        "atexit.register(lambda: print(source[np.array([8, 1])]))\n"
    )
    finished = forking.run(program)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "[8 1]\n", "")


def test_imports_come_one_at_a_time():
    inside, most = [], []

    def load():
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()

    threads = [threading.Thread(target=import_uninterrupted, args=(load,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")
def test_kernels_are_compiled_in_another_thread_unless_this_one_compiles_already(monkeypatch):
    threads = []

    def noted(function, *arguments, **named):
        def run():
            threads.append(threading.current_thread())
            return function(*arguments, **named)

        return uninterrupted(run)

    monkeypatch.setattr(compilation, "uninterrupted", noted)

    @compilation.kernel
    def double(x, out):
        for i in range(x.shape[0]):
            out[i] = 2 * x[i]

    out = np.empty(3)
    double(np.arange(3.0), out)
    assert out.tolist() == [0, 2, 4]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    narrow = np.empty(3, np.float32)
    with global_compiler_lock:
        double(np.arange(3, dtype=np.float32), narrow)
    assert narrow.tolist() == [0, 2, 4]
    assert len(threads) == 1


INTERRUPTED_TWICE = """
import os, signal, sys, threading, time
from pathlib import Path
from loaderx.kernels.uninterrupted import uninterrupted

working, pressed = threading.Event(), threading.Event()

def work():
    working.set()
    pressed.wait()
    Path(sys.argv[1]).write_text("done")

def press():
    working.wait()
    for _ in range(2):
        time.sleep(0.4)  # until the main thread waits for that call
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.4)
    pressed.set()

threading.Thread(target=press, daemon=True).start()
uninterrupted(work)
"""


def test_the_interpreter_waits_for_a_call_however_often_it_is_interrupted(forking, tmp_path):
    finished = forking.run(INTERRUPTED_TWICE, tmp_path / "file")
    assert "KeyboardInterrupt" in finished.stderr
    assert finished.returncode in (1, 130, -signal.SIGINT)
    assert (tmp_path / "file").read_text() == "done"
