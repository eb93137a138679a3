"""Trials of the soak test: each starts processes and raises if a promise is broken."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.soak import stream

ROOT = Path(__file__).parents[2]
# A process that takes longer has hung: the slowest compiles everything again on a busy machine.
PATIENCE = 300
# Ctrl-C in JAX's own callback of the garbage collector is printed and lost, in any program that uses JAX.
LOST_BY_JAX = re.compile(
    r"Exception ignored in: <function _xla_gc_callback.*?KeyboardInterrupt: *\n\s*", re.DOTALL
)
CRASHES = (
    "terminate called",
    "FATAL",
    "Fatal Python error",
    "Segmentation fault",
    "exception not rethrown",
    "Exception ignored",
    "duplicate registration",
    "AssertionError",
)


def environment(cache: Path) -> dict[str, str]:
    """Return the environment of a process with caches of its own."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONFAULTHANDLER": "1",
        "LOADERX_CACHE_DIR": str(cache / "loaderx"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
    }


def start(program: list[str], cache: Path, **options) -> subprocess.Popen:
    """Start a Python process."""
    return subprocess.Popen(
        [sys.executable, *program],
        env=environment(cache),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def end(process: subprocess.Popen, allowed: tuple[int, ...] = (0,)) -> tuple[str, str]:
    """Return the output of a process, once it ended in an allowed way."""
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        # The stacks of its threads, by `faulthandler`.
        process.send_signal(signal.SIGABRT)
        output, errors = process.communicate(timeout=PATIENCE)
        command = " ".join(map(str, process.args[1:]))
        raise AssertionError(f"hung: {command}\n{output}\n{errors}") from None
    finally:
        # Also where the timeout of a test comes first.
        process.kill()
    errors = LOST_BY_JAX.sub("", errors)
    words = [word for word in CRASHES if word in errors]
    ended = process.returncode in allowed and not words
    assert ended, f"status {process.returncode}, {words}\n{output}\n{errors}"
    return output, errors


def walk(rng: random.Random, home: Path, configuration: dict, ways: list[str], cache: Path):
    """Start a process that obtains the batches of a configuration in several ways."""
    data = home / "data"
    data.mkdir(exist_ok=True)
    arguments = {
        "configuration": configuration,
        "folder": str(data),
        "ways": ways,
        "seed": rng.randrange(1 << 30),
    }
    return start(["-m", "tests.soak.stream", json.dumps(arguments)], cache)


def digests(output: str) -> list[str]:
    return json.loads(output.splitlines()[-1])["digests"]


def shared(home: Path) -> Path:
    return home / "cache"


def configurations(rng: random.Random, home: Path) -> str:
    """Check the same batches in all ways, in two processes."""
    configuration = stream.random_configuration(rng)
    ways = rng.sample(list(stream.WAYS), 4)
    first = walk(rng, home, configuration, ways[:2], shared(home))
    second = walk(rng, home, configuration, ways[2:], shared(home))
    one, other = (end(process)[0] for process in (first, second))
    assert digests(one) == digests(other), configuration
    return ", ".join(sorted(ways))


MAKE = """
import sys, threading, gc, warnings
import numpy as np
from loaderx import DataLoader, transforms as T
data = np.zeros(({rows}, 32, 32, 3), np.uint8)
def make():
    return DataLoader(data, batch_size={size}, transforms={chain}, output={output!r})
"""
# Way a program ends -> (its last lines, its exit status).
EXITS = {
    "plain end": ("batch = next(iter(make()))", 0),
    "iterator kept": ("it = iter(make()); batch = next(it)", 0),
    "exception": ("it = iter(make()); next(it); raise LookupError('on purpose')", 1),
    "sys.exit": ("it = iter(make()); next(it); sys.exit(3)", 3),
    "break in a function": (
        "def train():\n    for batch in make():\n        break\ntrain()",
        0,
    ),
    "generator half-way": (
        "def batches():\n    yield from make()\ng = batches(); next(g); next(g)",
        0,
    ),
    "in a cycle": (
        "gc.disable()\nclass A: pass\na = A(); a.me = a; a.it = iter(make()); next(a.it); del a",
        0,
    ),
    "in a thread": (
        (
            "def run():\n    it = iter(make())\n    for _ in range(3): next(it)\n"
            "t = threading.Thread(target=run); t.start(); t.join()"
        ),
        0,
    ),
    # A user's daemon thread that keeps and drops arrays of JAX aborts with or without a loader.
    "in a running daemon thread": (
        (
            "def run():\n    for batch in DataLoader(data, output='numpy'): pass\n"
            "threading.Thread(target=run, daemon=True).start()\nnext(iter(make()))"
        ),
        0,
    ),
    "queued by a daemon thread": (
        (
            "import queue\nq = queue.Queue(2)\ndef run():\n    for batch in make(): q.put(batch)\n"
            "threading.Thread(target=run, daemon=True).start()\nq.get(); q.get()\nimport time; time.sleep(0.2)"
        ),
        0,
    ),
    "several": ("its = [iter(make()) for _ in range(4)]; [next(it) for it in its]", 0),
    "with": ("with iter(make()) as it:\n    next(it)", 0),
    "closed": ("it = iter(make()); next(it); it.close()", 0),
    "batch by number": ("batch = make().batch(3)", 0),
    "exit handler": (
        (
            "import atexit\ndef last():\n    try: next(it)\n    except RuntimeError: pass\n"
            "atexit.register(last); it = iter(make()); next(it)"
        ),
        0,
    ),
    "long Python code": (
        (
            "import time\ndef slow(batch):\n    time.sleep(5)\n    return batch\n"
            "loader = DataLoader(data, transform=slow)\nit = iter(loader); next(it)"
        ),
        0,
    ),
    "pytest": (None, 0),
    "interrupted cell": (None, 0),
}


def exits(rng: random.Random, home: Path) -> str:
    """End a program: it keeps its own exit status and prints nothing else."""
    way = rng.choice(list(EXITS))
    run_to_the_end(way, rng, home)
    return way


def run_to_the_end(
    way: str, rng: random.Random, home: Path, start: Callable[..., Any] = start
) -> None:
    """Run a program that ends in one of these ways, with a random loader."""
    body, status = EXITS[way]
    text = MAKE.format(
        rows=rng.choice([10, 1000, 5000]),
        size=rng.choice([1, 64, 256, 1000]),
        chain=rng.choice(["None", "None", "[T.RandomFlip(), T.ToFloat()]"]),
        output=rng.choice(["jax", "jax", "numpy"]),
    )
    if way == "interrupted cell":
        text += (
            "import os, signal\nfrom IPython.core.interactiveshell import InteractiveShell\n"
            "shell = InteractiveShell.instance()\nshell.user_ns['make'] = make\n"
            # CPython 3.11 cannot format an exception while another thread parses, as it does to compile.
            "next(iter(make()))\n"
            # The cell itself begins to count: an interruption before it is lost in IPython.
            "shell.user_ns['press'] = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))\n"
            "shell.run_cell('press.start()\\nfor batch in make(): pass')\n"
        )
    elif way != "pytest":
        text += body + "\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "test_program.py"
        program.write_text(
            text + "def test_it():\n    batch = next(iter(make()))\n" if way == "pytest" else text
        )
        runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if way == "pytest" else []
        output, errors = end(start([*runner, str(program)], shared(home)), (status,))
    silent = not errors or status == 1
    assert silent, f"{way}: {output}\n{errors}"


def kills(rng: random.Random, home: Path) -> str:
    """Kill a process at any moment: nothing is left that harms the next one."""
    configuration = stream.random_configuration(rng)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        cold = rng.random() < 0.5
        cache = Path(folder) if cold else shared(home)
        first = walk(rng, home, configuration, ["iterated"], cache)
        time.sleep(rng.random() * (8 if cold else 3))
        first.kill()
        first.communicate()
        second = walk(rng, home, configuration, ["by number"], cache)
        third = walk(rng, home, configuration, ["iterated"], shared(home))
        assert digests(end(second)[0]) == digests(end(third)[0]), configuration
    return "cold" if cold else "warm"


def interrupts(rng: random.Random, home: Path) -> str:
    """Interrupt by Ctrl-C at any moment: the process ends soon, and as Ctrl-C does."""
    configuration = stream.random_configuration(rng)
    process = walk(rng, home, configuration, rng.sample(["iterated", "resumed"], 2), shared(home))
    assert process.stdout.readline() == f"{stream.BEGAN}\n"
    time.sleep(rng.random() * 3)
    process.send_signal(signal.SIGINT)
    _, errors = end(process, (0, 1, 130, -signal.SIGINT))
    if process.returncode == 1:
        assert "KeyboardInterrupt" in errors, errors
    return {0: "too late", 1: "KeyboardInterrupt"}.get(process.returncode, "ended by the signal")


def stops(rng: random.Random, home: Path) -> str:
    """Stop a process, perhaps while it compiles: no other process is blocked, and it resumes later."""
    configuration = stream.random_configuration(rng)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        first = walk(rng, home, configuration, ["iterated"], Path(folder))
        time.sleep(rng.random() * 8)
        first.send_signal(signal.SIGSTOP)
        try:
            second = walk(rng, home, configuration, ["by number"], Path(folder))
            one = digests(end(second)[0])
        finally:
            first.send_signal(signal.SIGCONT)
        assert digests(end(first)[0]) == one, configuration
    return "continued"


def damage(rng: random.Random, home: Path) -> str:
    """Flip bits in the caches: it costs a compilation, not a crash and not a byte."""
    configuration = stream.random_configuration(rng)
    right = digests(end(walk(rng, home, configuration, ["iterated"], shared(home)))[0])
    with tempfile.TemporaryDirectory(dir=home) as folder:
        cache = Path(folder) / "cache"
        shutil.copytree(shared(home), cache, ignore_dangling_symlinks=True)
        files = [file for file in cache.rglob("*") if file.is_file() and file.stat().st_size]
        for file in files:
            content = bytearray(file.read_bytes())
            for _ in range(rng.choice([0, 1, 3])):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(content)
        found = digests(end(walk(rng, home, configuration, ["iterated"], cache))[0])
    assert found == right, configuration
    return "right"


def conversions(rng: random.Random, home: Path) -> str:
    """Kill or interrupt a conversion: the next one completes it and removes all temporary files."""
    with tempfile.TemporaryDirectory(dir=home) as folder:
        here = Path(folder) / "here"
        here.mkdir()
        data = np.random.default_rng(rng.randrange(100)).integers(0, 9, (40_000, 32, 32), np.uint8)
        source, target = here / "a.npy", here / rng.choice(["b.npy", "b.ar"])
        if target.suffix == ".npy":
            source = source.with_suffix(".npz")
            np.savez(source, a=data)
        else:
            np.save(source, data)
        command = ["-m", "loaderx", "convert", str(source), str(target)]
        ended = 0
        for _ in range(rng.choice([1, 2])):
            process = start(command, shared(home))
            time.sleep(rng.random() * 3)
            number = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
            process.send_signal(number)
            process.communicate(timeout=PATIENCE)
            ended += process.returncode != 0
        if target.exists():
            target.unlink()
        end(start(command, shared(home)))
        check = (
            "import sys, numpy as np, loaderx\n"
            "opened = np.load(sys.argv[1]) if sys.argv[1].endswith('.npy') else loaderx.ARDataset(sys.argv[1])\n"
            "print(int(np.asarray(opened[:]).astype(np.int64).sum()), len(opened))\n"
        )
        output, _ = end(start(["-c", check, str(target)], shared(home)))
        assert output.split() == [str(int(data.astype(np.int64).sum())), str(len(data))], output
        left = {file.name for file in here.iterdir()} - {source.name, target.name}
        assert not left, f"not removed: {left}"
    return f"{ended} ended early"


TRIALS = {
    "configurations": configurations,
    "exits": exits,
    "kills": kills,
    "interrupts": interrupts,
    "stops": stops,
    "damage": damage,
    "conversions": conversions,
}
# Trials, with their relative frequencies.
SHARES = {
    "configurations": 8,
    "exits": 10,
    "kills": 2,
    "interrupts": 4,
    "stops": 1,
    "damage": 1,
    "conversions": 1,
}
