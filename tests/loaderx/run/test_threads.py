"""Threads end when they should, nothing hangs, and Ctrl-C and `close` are safe at any moment."""

import dis
import functools
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import loaderx
from loaderx import ClosedError, DataLoader
from loaderx.batch import scheduler
from loaderx.process import shutdown
from tests.waiting import PATIENCE, join, started, wait_for, wait_until

REPOSITORY = Path(__file__).parents[3]
PACKAGE = str(Path(loaderx.__file__).parent)

DATA = np.arange(40)


def loader_of(data=DATA, **options):
    """Return a loader of batches of four that hold the numbers of their rows: batch k begins with 4 * k."""
    defaults = {"batch_size": 4, "shuffle": False, "output": "numpy", "workers": 2}
    return DataLoader(data, **(defaults | options))


def loaderx_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loaderx")]


def wait_for_threads_to_end():
    if loaderx_threads():
        gc.collect()  # a failed assertion may keep an iterator in its traceback
        wait_until(lambda: not loaderx_threads())


@pytest.fixture(autouse=True)
def no_threads_are_left():
    wait_for_threads_to_end()
    yield
    wait_for_threads_to_end()


# Threads end.


def test_an_iterator_has_the_threads_asked_for_and_closing_ends_them():
    with iter(loader_of(workers=3)) as iterator:
        next(iterator)
        assert len(loaderx_threads()) == 3
    assert loaderx_threads() == [], "close waits for them"


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
def test_any_number_of_threads_ends_at_once(workers):
    with iter(loader_of(workers=workers, prefetch=workers)) as iterator:
        assert list(next(iterator)) == [0, 1, 2, 3]
    assert loaderx_threads() == []


def test_opening_a_loader_and_asking_for_one_batch_starts_no_thread():
    loader = loader_of()
    loader.batch(3)
    loader.indices(3)
    assert loaderx_threads() == []


def test_small_batches_are_built_by_who_asks_for_them_and_need_no_thread():
    with iter(loader_of(shuffle=True)) as iterator:
        batches = [next(iterator) for _ in range(30)]
        assert loaderx_threads() == []
        assert iterator.stats().batches == 30
    np.testing.assert_array_equal(np.sort(np.concatenate(batches[:10])), DATA)


def test_an_abandoned_iterator_ends_its_threads():
    iterator = iter(loader_of())
    next(iterator)
    gone = weakref.ref(iterator)
    del iterator
    assert gone() is None, "nothing keeps it, not even its own threads"
    wait_until(lambda: not loaderx_threads())


def test_an_iterator_abandoned_in_a_reference_cycle_ends_its_threads():
    cycle = [iter(loader_of())]
    cycle.append(cycle)
    next(cycle[0])
    del cycle
    gc.collect()
    wait_until(lambda: not loaderx_threads())


def test_an_iterator_abandoned_while_a_hook_runs_ends_its_threads():
    entered, proceed = threading.Event(), threading.Event()

    def block(batch):
        entered.set()
        wait_for(proceed)
        return batch

    iterator = iter(loader_of(transform=block))
    started(lambda: (wait_for(entered), proceed.set()))
    next(iterator)
    proceed.clear()
    del iterator
    proceed.set()
    wait_until(lambda: not loaderx_threads())


def test_an_exception_in_the_consumer_ends_the_threads():
    def train():
        for batch in loader_of():
            if batch[0] == 8:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    # The traceback holds the frame that holds the iterator.
    gc.collect()
    wait_until(lambda: not loaderx_threads())


def test_an_error_in_a_hook_ends_no_thread_early_and_leaves_none_running():
    def fail(batch):
        raise OSError

    with iter(loader_of(transform=fail, workers=3)) as iterator:
        for _ in range(20):
            with pytest.raises(OSError):  # noqa: PT011
                next(iterator)
        assert len(loaderx_threads()) == 3


BREAKS = """
import gc
import threading
import time
from pathlib import Path
import numpy as np
from loaderx import DataLoader

def resident_megabytes():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if "RssAnon" in line)

def leave_early(times):
    for _ in range(times):
        for batch in loader:
            assert len(batch) == 16
            break

loader = DataLoader(np.ones((64, 2**14), np.float32), batch_size=16, output="numpy", workers=2)
leave_early(100)
before = resident_megabytes()
leave_early(1000)
# They end on their own, soon after.
while threading.active_count() > 1:
    time.sleep(0.01)
# A leak would be two batches of 1 MB for every break.
print(round(resident_megabytes() - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_1000_early_breaks_leave_neither_threads_nor_memory(run):
    assert int(run(BREAKS).stdout) < 32


# Interpreter exit.


@pytest.fixture
def run(forking):
    """Return a function that runs a program, which must end and print no complaint."""

    def run(program):
        return without_complaint(forking.run(program, cwd=REPOSITORY))

    return run


def without_complaint(finished):
    assert finished.stderr == ""
    assert finished.returncode == 0
    return finished


OPEN_ITERATORS = """
import threading
import time
import numpy as np
from loaderx import DataLoader

output, case = ARGUMENTS
entered = threading.Event()

def hook(batch):
    if batch["label"][0] == 16:
        entered.set()
        if case == "a hook runs":
            time.sleep(0.5)
        if case == "a hook never returns":
            threading.Event().wait()
    return batch

data = {"image": np.ones((64, 2**16), np.float32), "label": np.arange(64)}
options = {"batch_size": 16, "shuffle": False, "output": output, "workers": 4, "prefetch": 4}
loader = DataLoader(data, transform=hook, **options)
iterator, other, untouched = iter(loader), iter(loader), iter(loader)
batch = next(iterator)
entered.wait()
next(other)
"""


@pytest.mark.parametrize(
    ("output", "case"),
    [
        ("numpy", "all is ready"),
        ("numpy", "a hook runs"),
        ("jax", "a hook never returns"),
    ],
)
def test_the_interpreter_exits_quietly_with_iterators_open(run, output, case):
    run(OPEN_ITERATORS.replace("ARGUMENTS", repr((output, case))))


def test_the_interpreter_exits_quietly_while_batches_are_being_built(run):
    run("""
import itertools
import numpy as np
from loaderx import DataLoader
loader = DataLoader(np.ones((64, 2**18), np.float32), batch_size=32, output="jax", prefetch=8)
kept = list(itertools.islice(loader, 3))
last = iter(loader)
batch = next(last)
""")


def test_the_interpreter_exits_quietly_while_jax_computes_on_a_batch(run):
    run("""
import jax
import numpy as np
from loaderx import DataLoader

@jax.jit
def slow(batch):
    return jax.lax.fori_loop(0, 100, lambda _, matrix: matrix @ batch, batch)

loader = DataLoader(np.full((512, 512), 1 / 512, np.float32), batch_size=512)
iterator = iter(loader)
slow(next(iterator)).block_until_ready()
slow(next(iterator))
""")


# Closing from elsewhere.


def test_closing_from_another_thread_wakes_the_consumer_up():
    entered, proceed = threading.Event(), threading.Event()

    def block_at_third(batch):
        if batch[0] == 8:
            entered.set()
            wait_for(proceed)
        return batch

    iterator = iter(loader_of(transform=block_at_third))

    def close():
        wait_for(entered)
        closer = started(iterator.close)
        time.sleep(0.05)  # until it waits for the hook; before is as good
        proceed.set()
        join(closer)

    thread = started(close)
    with pytest.raises(ClosedError):
        list(iterator)
    join(thread)


def test_closing_while_parts_of_a_batch_are_being_read_does_not_strand_the_consumer():
    class Rows:
        def __len__(self):
            return 64

        def __getitem__(self, row):
            if row == 40:
                reading.set()
                time.sleep(0.01)
            return np.int64(row)

    def close():
        wait_for(reading)
        iterator.close()

    for _ in range(20):
        reading = threading.Event()
        iterator = iter(loader_of(Rows(), batch_size=16, workers=4, prefetch=1))
        closer = started(close)
        with pytest.raises(ClosedError):
            list(iterator)
        join(closer)


def test_many_threads_may_close_at_once():
    for _ in range(20):
        iterator = iter(loader_of(workers=4, prefetch=4))
        next(iterator)
        join(*[started(iterator.close) for _ in range(8)])
        assert loaderx_threads() == []


# Several at once.


def test_many_iterators_run_interleaved():
    loader = loader_of(np.arange(1000), shuffle=True, batch_size=10)
    expected = [loader.batch(step) for step in range(30)]
    iterators = [iter(loader) for _ in range(10)]
    for step in range(30):
        for iterator in iterators:
            np.testing.assert_array_equal(next(iterator), expected[step])
    for iterator in iterators:
        iterator.close()


def test_an_iterator_may_be_handed_from_thread_to_thread():
    batches = []
    with iter(loader_of()) as iterator:
        for _ in range(10):
            join(started(lambda: batches.append(next(iterator))))
    np.testing.assert_array_equal(np.concatenate(batches), DATA)


def test_a_hook_may_use_another_loader():
    inner = loader_of(DATA * 10, num_epochs=1)

    def add(batch):
        return batch + sum(part.sum() for part in inner)

    with iter(loader_of(transform=add)) as iterator:
        np.testing.assert_array_equal(next(iterator), np.arange(4) + 10 * DATA.sum())


# Of a process of its own: in one that is forked no kernel is parallel.
TWO_LOADERS = """
import threading
import numpy as np
from loaderx import DataLoader

data = np.random.default_rng(0).integers(0, 2**40, (500, 4096))

def consume(seed, output):
    loader = DataLoader(data % 2**20, batch_size=64, seed=seed, output=output, workers=2)
    with iter(loader) as iterator:
        for step in range(40):
            batch = np.asarray(next(iterator))
            if not np.array_equal(batch, (data % 2**20)[loader.indices(step)]):
                print("wrong batch", seed, step)
    print("done")

threads = [threading.Thread(target=consume, args=(0, "numpy")),
           threading.Thread(target=consume, args=(1, "jax"))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_two_loaders_run_in_two_threads_under_the_layer_that_bears_no_parallel_kernels():
    finished = subprocess.run(
        [sys.executable, "-c", TWO_LOADERS],
        cwd=REPOSITORY,
        env=os.environ | {"NUMBA_THREADING_LAYER": "workqueue"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert without_complaint(finished).stdout == "done\n" * 2


# One iterator in several threads.


def shared_by(threads, loader, steps):
    """Share one iterator among several threads; return the list of (step before, batch) of each."""
    found = [[] for _ in range(threads)]
    failures = []

    def consume(own):
        try:
            while len(own) < steps:
                own.append(next(iterator))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)

    with iter(loader) as iterator:
        join(*[started(consume, own) for own in found])
    if failures:
        raise failures[0]
    return found


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("hook", [None, lambda batch: batch])
def test_several_threads_share_an_iterator_and_each_batch_goes_to_one_of_them(output, hook):
    loader = loader_of(np.arange(4000), num_epochs=2, output=output, transform=hook)
    found = shared_by(5, loader, 10**6)
    firsts = sorted(int(batch[0]) for own in found for batch in own)
    assert firsts == sorted(2 * list(range(0, 4000, 4)))
    for own in found:
        # In the order of the stream, whichever thread gets it.
        epochs = np.diff([int(batch[0]) for batch in own]) < 0
        assert epochs.sum() <= 1


def test_a_state_that_is_set_while_another_thread_takes_batches_is_kept():
    loader = loader_of(np.arange(4 * 10**6))
    with iter(loader) as iterator:
        state = iterator.get_state() | {"position": 4 * 10**5, "step": 10**5}
        ended = threading.Event()

        def consume():
            while not ended.is_set():
                next(iterator)

        consumer = started(consume)
        try:
            for number in range(1, 9):
                target = number * 10**5
                iterator.set_state(state | {"position": 4 * target, "step": target})
                assert iterator.step >= target
                assert int(next(iterator)[0]) >= 4 * target
        finally:
            ended.set()
            join(consumer)


# Ctrl-C.


FIRST_BATCH = """
import os, signal, sys, threading, time
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
data = np.zeros((64, 8, 8, 3), np.uint8)
pressed = threading.Event()
def press():
    os.kill(os.getpid(), signal.SIGINT)
    pressed.set()
threading.Timer(float(sys.argv[1]), press).start()
def make():
    from loaderx import DataLoader, transforms as T
    return DataLoader(data, batch_size=8, transforms=[T.RandomFlip(), T.ToFloat()])
outcome = "not interrupted"
try:
    iterator = iter(make())
    next(iterator)
    pressed.wait()
    time.sleep(1)
except KeyboardInterrupt:
    outcome = "interrupted"
assert next(iter(make())).shape == (8, 8, 8, 3)
print(outcome)
"""


# From the imports of Numba and JAX to the hand-off.
MOMENTS = [0.1 + 0.12 * number for number in range(20)]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(MOMENTS[3::9], id="some"),
        *(
            pytest.param(MOMENTS[first::5], marks=pytest.mark.long, id=f"all, {first} of 5")
            for first in range(5)
        ),
    ],
)
def test_ctrl_c_at_any_moment_of_a_first_batch_leaves_a_process_that_can_continue(moments):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_BATCH, str(moment)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for moment in moments
    ]
    try:
        ended = [
            (*process.communicate(timeout=PATIENCE), process.returncode) for process in running
        ]
    finally:
        for process in running:
            process.kill()
    for output, errors, status in ended:
        # JAX's callback of the garbage collector, `_xla_gc_callback`, may run at any point. Python prints and drops an
        # exception in it, in any program that uses JAX.
        lost = "Exception ignored in: <function _xla_gc_callback" in errors
        assert (status, output) == (0, "not interrupted\n" if lost else "interrupted\n"), errors


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_ctrl_c_while_waiting_is_a_keyboard_interrupt_and_loses_nothing():
    entered, proceed, asking = threading.Event(), threading.Event(), threading.Event()

    def block_at_third(batch):
        if batch[0] == 8:
            entered.set()
            wait_for(proceed)
        return batch

    def press():
        wait_for(entered)
        wait_for(asking)
        time.sleep(0.1)  # until the main thread waits for that batch; before is as good
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with iter(loader_of(transform=block_at_third, prefetch=1)) as iterator:
        batches = [next(iterator), next(iterator)]
        before = iterator.get_state()
        keyboard = started(press)
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                asking.set()
                next(iterator)
            join(keyboard)
            assert iterator.get_state() == before
        finally:
            # In any case: closing the iterator waits for the hook.
            proceed.set()
        batches += itertools.islice(iterator, 8)
    np.testing.assert_array_equal(np.concatenate(batches), DATA)


# An event that is possible at any moment of a call is made to happen at each of them in turn. CPython runs signal
# handlers and lets other threads run at the start of a function, after a call and at the end of a loop's body.
SWITCHES = ("CALL", "JUMP_BACKWARD")
# Called when a reference is dropped: Python itself reports an exception in there, and drops it.
CALLBACKS = ("request_stop",)


def happens_at(number, action):
    """Do `action` at that moment (from 0) of what this thread does in the package from now on; tell whether it came."""
    moments = itertools.count()
    previous = {}
    came = []
    own = threading.get_ident()

    def step(code, frame, opcode):
        """Count the moments before an instruction, or note what a frame does: None if it raises."""
        ours = code.co_filename.startswith(PACKAGE) and code.co_name not in CALLBACKS
        if not ours or threading.get_ident() != own:
            return
        switches = previous.get(id(frame), "").startswith(SWITCHES)
        # A call that raises goes to its handler at once.
        previous[id(frame)] = opcode or ""
        if opcode and switches and next(moments) == number:
            stop_watching()
            came.append(number)
            action()

    def start(code, frame):
        if code.co_filename.startswith(PACKAGE) and threading.get_ident() == own:
            previous[id(frame)] = "CALL"

    watch(start, step)
    return came


# Before Python 3.12 there are trace functions only, which since then miss instructions of functions called once.
if hasattr(sys, "monitoring"):
    TOOL, EVENTS = 4, sys.monitoring.events

    def watch(start, step):
        """Call functions for every function and every instruction of this process."""
        sys.monitoring.use_tool_id(TOOL, "moments")
        for event, callback in {
            EVENTS.PY_START: lambda code, _: start(code, sys._getframe(1)),
            EVENTS.RAISE: lambda code, *_: step(code, sys._getframe(1), None),
            EVENTS.INSTRUCTION: lambda code, offset: step(
                code, sys._getframe(1), dis.opname[code.co_code[offset]]
            ),
        }.items():
            sys.monitoring.register_callback(TOOL, event, callback)
        sys.monitoring.set_events(TOOL, EVENTS.PY_START | EVENTS.RAISE | EVENTS.INSTRUCTION)

    def stop_watching():
        """Stop calling them."""
        if sys.monitoring.get_tool(TOOL):
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.free_tool_id(TOOL)

else:

    def watch(start, step):
        """Call functions for every function and every instruction of this thread."""

        def trace(frame, event, _):
            code = frame.f_code
            if not code.co_filename.startswith(PACKAGE):
                return None
            if event == "call":
                frame.f_trace_opcodes = True
                start(code, frame)
            elif event == "exception":
                step(code, frame, None)
            elif event == "opcode":
                step(code, frame, dis.opname[code.co_code[frame.f_lasti]])
            return trace

        sys.settrace(trace)

    def stop_watching():
        """Stop calling them."""
        sys.settrace(None)


def in_a_thread(test):
    """Run a test in a thread of its own.

    An exception that a trace function raises within an `except` block stays the current one of its thread for ever,
    in CPython 3.11, and would keep alive what other tests count.
    """

    @functools.wraps(test)
    def run(**arguments):
        def catch():
            try:
                test(**arguments)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        errors = []
        join(started(catch), seconds=90)
        if errors:
            raise errors[0]

    return run


def press_ctrl_c():
    raise KeyboardInterrupt


def attempt(call):
    """Return the result of the call, or the exception that it raises."""
    try:
        return call()
    except (KeyboardInterrupt, ClosedError, OSError) as error:
        return error
    finally:
        stop_watching()


class FailsOnce:
    """Hook that fails the first time it sees the batch that begins with row 8."""

    def __init__(self):
        self.whole = False

    def __call__(self, batch):
        if batch[0] == 8 and not self.whole:
            self.whole = True
            raise OSError("once")
        return batch


@pytest.fixture(params=["here", "whole", "in parts", "failing once"])
def open_loader(request, monkeypatch):
    """Open a loader of ten batches.

    They are built by the consumer (after those that were ahead of the first), by a worker, divided among the
    workers, or with a hook that fails once.
    """
    monkeypatch.setattr(scheduler, "INLINE_MAX_SECONDS", 1e9 if request.param == "here" else 0)
    if request.param in ("here", "in parts"):
        monkeypatch.setattr(scheduler, "COPIED_BYTES_PER_PART", 8)
    # Closing out of `next` waits for workers that wait for this thread: not two seconds for each such moment.
    monkeypatch.setattr(shutdown, "join", functools.partial(shutdown.join, seconds=0.1))

    def open_loader(prefetch):
        hook = FailsOnce() if request.param == "failing once" else None
        return loader_of(transform=hook, prefetch=prefetch, num_epochs=1)

    return open_loader


@pytest.mark.parametrize("prefetch", [1, 3])
@in_a_thread
def test_ctrl_c_at_any_moment_of_next_loses_and_repeats_nothing(open_loader, prefetch):
    for number in itertools.count():
        with iter(open_loader(prefetch)) as iterator:
            batches = [next(iterator), next(iterator)]
            came = happens_at(number, press_ctrl_c)
            outcome = attempt(lambda: next(iterator))
            if isinstance(outcome, np.ndarray):
                batches.append(outcome)
            while len(batches) < 10:
                assert iterator.get_state()["step"] == len(batches)
                assert iterator.get_state()["position"] == 4 * len(batches)
                outcome = attempt(lambda: next(iterator))
                if not isinstance(outcome, OSError):
                    batches.append(outcome)
            with pytest.raises(StopIteration):
                next(iterator)
        np.testing.assert_array_equal(np.concatenate(batches), DATA)
        if not came:
            break
    assert number > 10, "the moments of a call were counted"


@in_a_thread
def test_ctrl_c_at_any_moment_of_set_state_leaves_the_old_or_the_new_state():
    loader = loader_of(prefetch=3, num_epochs=1)
    for number in itertools.count():
        with iter(loader) as iterator:
            old = iterator.get_state()
            for _ in range(5):
                next(iterator)
            new = iterator.get_state()
            came = happens_at(number, press_ctrl_c)
            attempt(lambda: iterator.set_state(old))  # noqa: B023
            assert iterator.get_state() in (old, new)
            rest = list(iterator)
            assert len(rest) in (10, 5)
        np.testing.assert_array_equal(np.concatenate(rest), DATA[-4 * len(rest) :])
        if not came:
            break
    assert number > 3, "the moments of a call were counted"


@pytest.mark.parametrize("prefetch", [1, 3])
@in_a_thread
def test_closing_at_any_moment_of_next_gives_the_batch_or_an_error(open_loader, prefetch):
    for number in itertools.count():
        iterator = iter(open_loader(prefetch))
        next(iterator)
        next(iterator)
        came = happens_at(number, iterator.close)
        outcome = attempt(lambda: next(iterator))  # noqa: B023
        if isinstance(outcome, np.ndarray):
            np.testing.assert_array_equal(outcome, DATA[8:12])
        else:
            assert isinstance(outcome, ClosedError | OSError)
        if not came:
            break
        with pytest.raises(ClosedError):
            next(iterator)
    iterator.close()
    assert number > 10, "the moments of a call were counted"


@pytest.mark.parametrize("call", ["next", "set_state"])
@in_a_thread
def test_a_call_out_of_next_is_refused_as_generators_do_or_comes_before_or_after_it(call):
    refused = 0
    for number in itertools.count():
        with iter(loader_of(transform=lambda batch: batch)) as iterator:
            inner = []

            def intrude(iterator=iterator, inner=inner):
                try:
                    if call == "next":
                        inner.append(next(iterator))
                    else:
                        iterator.set_state(iterator.get_state())
                except ValueError as error:
                    inner.append(str(error))

            came = happens_at(number, intrude)
            outer = next(iterator)
            stop_watching()
            batches = [batch for batch in (*inner, outer) if not isinstance(batch, str)]
            assert [int(batch[0]) for batch in batches] == list(range(0, 4 * len(batches), 4))
            if len(batches) == len(inner):
                assert inner == ["this iterator is already executing, in this thread."]
                refused += 1
        if not came:
            break
    assert refused > 10
