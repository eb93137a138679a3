"""Settings of all tests: signals, cache folders, and how the workers share the tests."""

import collections
import contextlib
import faulthandler
import gc
import hashlib
import os
import signal
import sys
import zlib
from heapq import nsmallest
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import pytest
from llvmlite import binding

from tests.forking import Forking, Server

# Folder for everything that tests compile, and not the caches of the user. It stays for the next run;
# `make clean` removes it. Numba reads its variable when it is imported, which is after this.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "loaderx"
os.environ["LOADERX_CACHE_DIR"] = str(CACHE / "chains")
os.environ["NUMBA_CACHE_DIR"] = str(CACHE / "kernels")
# So do programs of XLA, half of the time of tests with JAX, for this processor.
PROCESSOR = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
XLA = CACHE / "xla" / hashlib.sha256(PROCESSOR.encode()).hexdigest()[:16]
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(XLA)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Compiled Python files are written also where PYTHONDONTWRITEBYTECODE is set: without them every process that a test
# starts compiles all of the library, a quarter of its time, and every worker all of the tests.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False

# Tests with other frameworks run in an environment that has them: `make test-frameworks`.
collect_ignore = ["frameworks"] if find_spec("torch") is None else []
# So do comparisons with other libraries: `make test-oracles`.
if find_spec("torchvision") is None or find_spec("albumentations") is None:
    collect_ignore.append("oracles")

DEFAULTS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}
GRACE = 60  # seconds for what cleans up
STDERR = pytest.StashKey()
# Variable of the environment: where the server is that forks for all workers.
FORKING = "LOADERX_TESTS_FORKING"
# Variable of the environment: of a test with many cases only so many are run.
CASES = "LOADERX_TESTS_CASES"
# Tests of these share processes that take long to start, or the compilation of ops: functions that ops call are
# compiled in every process that compiles an op, a third of the time. One worker runs all of each, in this order.
# Documents and sheets come after the tests of ops, which compile most of what they use: without that, a minute.
OPS = (
    "tests/loaderx/transforms/",
    "tests/loaderx/compiler/",
    "tests/docs/test_code.py",
    "tests/examples/test_gallery.py",
)
TOGETHER = {"ops": OPS, "distributed": ("tests/distributed/",), "ray": ("tests/loaderx/ray/",)}
# Long series of tests come first: begun as the last, they would leave the other workers without work.
FIRST = (
    *OPS,
    "tests/distributed/",
    "tests/loaderx/ray/",
    "tests/test_plain_python.py",
    "tests/examples/",
)


def heed_signals():
    """Have signals work in this process and its children: by `nohup make test &` some are ignored."""
    for number, handler in DEFAULTS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_configure(config):
    """Prepare for tests that send signals, and for those that hang."""
    heed_signals()
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[STDERR] = os.fdopen(os.dup(2), "w")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        server = Server()
        os.environ[FORKING] = server.path
        config.add_cleanup(server.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """End this process, with the stacks of its threads, if a test does not even end after its timeout.

    That interrupts a test once. The code that then cleans up may wait for ever.
    """
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker else float(item.config.getini("timeout"))
    # It replaces that of the test before: to cancel each would take another half of a millisecond.
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=item.config.stash[STDERR])
    return (yield)


def pytest_unconfigure(config):
    """End this process likewise if threads that tests left keep it alive."""
    if hasattr(config, "workerinput"):
        # A worker is kept until the last one is done, and then ended by the process that started it.
        faulthandler.cancel_dump_traceback_later()
    else:
        faulthandler.dump_traceback_later(GRACE, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(trylast=True)  # when others are deselected
def pytest_collection_modifyitems(config, items):
    """Put long series of tests before all others; keep as many cases of a test as the environment says."""
    items.sort(key=lambda item: place_of(item.nodeid))
    if CASES in os.environ:
        kept, dropped = some_cases(items, int(os.environ[CASES]))
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def place_of(nodeid):
    """Return the place of a test in the order: by the first prefix of `FIRST` that it has."""
    places = (place for place, prefix in enumerate(FIRST) if nodeid.startswith(prefix))
    return next(places, len(FIRST))


def some_cases(items, most):
    """Divide tests into those to run, so many cases of each, and the rest.

    They are drawn: every second or third would have the same value of one of several parameters.
    """
    drawn = collections.defaultdict(list)
    for item in items:
        drawn[item.nodeid.partition("[")[0]].append((zlib.crc32(item.nodeid.encode()), item))
    chosen = {
        item for cases in drawn.values() for _, item in nsmallest(most, cases, key=itemgetter(0))
    }
    return [item for item in items if item in chosen], [
        item for item in items if item not in chosen
    ]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from what is there for good: a million objects, half a second at every `collect`."""
    gc.disable()  # it would look at all of them again and again, a second in all
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def forking():
    """Start programs without the time that imports take."""
    if FORKING in os.environ:
        yield Forking(os.environ[FORKING])
    else:
        with contextlib.closing(Server()) as server:
            yield Forking(server.path)


def scope_of(nodeid):
    """Return what a worker takes at once: a file of tests, or several that share something."""
    for name, prefixes in TOGETHER.items():
        if nodeid.startswith(prefixes):
            return name
    return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share the tests among the workers by `scope_of` where they would be shared by file."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return scope_of(nodeid)

    return Scheduling(config, log)
