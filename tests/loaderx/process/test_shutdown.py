"""Shutdown and forks: whichever way a program ends, its exit status is its own and nothing is printed."""

import os
import random
import signal
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from loaderx import DataLoader
from loaderx.process.shutdown import HandOffGate, process
from tests.conftest import CACHE
from tests.soak.trials import EXITS, ROOT, environment, run_to_the_end
from tests.waiting import join, started

# Folder of caches, so that the first program compiles for all. It stays for the next run.
HOME = CACHE / "exits"


# Most of the time is that of starting programs: others are left to `make test-long`.
USUAL = (
    "plain end",
    "exception",
    "sys.exit",
    "break in a function",
    "generator half-way",
    "iterator kept",
    "in a cycle",
    "in a thread",
    "queued by a daemon thread",
    "pytest",
    "interrupted cell",
)
# Of the usual ones, these import everything themselves; of all, those of `make test-long` below.
UNFORKED = ("plain end", "pytest")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in USUAL else [pytest.mark.long]) for way in EXITS]
)
def test_a_program_ends_with_its_own_status_and_in_silence(way, forking):
    def start_fork(program, cache):
        return forking.start(Path(program[-1]), cwd=ROOT, env=environment(cache))

    # Loaders differ from way to way.
    own = {} if way in UNFORKED else {"start": start_fork}
    run_to_the_end(way, random.Random(list(EXITS).index(way)), HOME, **own)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", EXITS)
def test_a_program_does_so_every_time(way):
    # Before the threads of dropped iterators were joined, four of nine runs of the plainest aborted.
    failures = []

    def run(number):
        try:
            run_to_the_end(way, random.Random(number), HOME)
        except AssertionError as error:
            failures.append(error)

    join(*(started(run, number) for number in range(3)), seconds=350)
    assert not failures, failures[0]


def test_nobody_but_the_main_thread_enters_jax_after_the_exit_handler_began(monkeypatch):
    monkeypatch.setattr(process, "exiting", True)
    refused = []

    def enter():
        try:
            with HandOffGate():
                pass
        except RuntimeError as error:
            refused.append(str(error))

    join(started(enter))
    enter()
    assert refused == ["the interpreter is exiting."]
    assert not process.in_hand_off


def in_forked_child(function):
    """Return the text of a function's result in a forked child, or how the child ended."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # JAX and Python warn of forks in a process with threads.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            os.write(writing, str(function()).encode())
        except BaseException as error:  # noqa: BLE001 - the error is the result
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {status}"
    return found


CODE = {
    "compiled": {},
    "a hook": {"transform": lambda batch: batch * 2},
    "a Python source": {"dataset": [np.full(3, row) for row in range(50)]},
    "a Python op": {"transforms": [np.negative]},
}


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_forked_child_continues_where_its_parent_is(code, taken):
    options = {"dataset": np.arange(150).reshape(50, 3), "batch_size": 8, "output": "numpy"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python code under the GIL
        loader = DataLoader(**options | CODE[code])
    with iter(loader) as iterator:
        for _ in range(taken):
            next(iterator)
        found = in_forked_child(lambda: [next(iterator).tolist() for _ in range(9)])
        assert found == str([next(iterator).tolist() for _ in range(9)])


def test_a_forked_child_of_a_closed_iterator_is_told_so():
    iterator = iter(DataLoader(np.arange(50), output="numpy", transform=lambda batch: batch))
    next(iterator)
    iterator.close()
    assert in_forked_child(lambda: next(iterator)).startswith(
        "ClosedError: this iterator was closed"
    )


def test_a_forked_child_is_told_that_jax_does_not_survive_it():
    with iter(DataLoader(np.arange(50), batch_size=4)) as iterator:
        jax.block_until_ready(next(iterator))
        found = in_forked_child(lambda: next(iterator))
    assert found.startswith("RuntimeError: this process was forked from one that uses JAX")
    assert 'Use output="numpy"' in found
