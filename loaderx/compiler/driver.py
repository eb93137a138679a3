"""A chain of ops -> one compiled function that takes samples from their rows to their places in the batch.

The function is generated as text and cached under a hash of it and of the code of every op in it: a closure over jitted
functions would never be found again.
"""

import hashlib
import linecache
import logging
import re
import sys
import threading
import types
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.compiler import run_frontend
from numpy.typing import NDArray

from loaderx.errors import TransformError, annotate
from loaderx.kernels import pixels, windows
from loaderx.kernels.calls import fetch
from loaderx.kernels.code_cache import CodeCache
from loaderx.kernels.compilation import compile_uninterrupted, source_hash
from loaderx.kernels.draws import METHODS, start_draws
from loaderx.kernels.memory import copy_bytes, pointer
from loaderx.kernels.random import fold
from loaderx.sources.located import Located
from loaderx.spec import Spec

from . import store
from .draft import ALIGNMENT, Draft, Step
from .fingerprint import Uncacheable, fingerprint
from .outline import draft
from .renewal import renewed

logger = logging.getLogger("loaderx")
HEADER = "def drive(positions, addresses, lengths, fetcher, worker, scratch, keys, progress, {arguments}out):\n"
BEGIN = """\
    target = out.ctypes.data
    space = scratch.ctypes.data
    for i in range(addresses.shape[0]):
        progress[0] = i
        row = addresses[i]
        if fetcher != 0:
            row = fetch(fetcher, row, {place}, worker)
            if row < 0:
                progress[1] = row
                return
"""
LIBRARY = {
    "np": np,
    "carray": numba.carray,
    "int64": np.int64,
    "boolean": np.bool_,
    "pointer": pointer,
    "copy_bytes": copy_bytes,
    "fetch": fetch,
    "fold": fold,
    "start_draws": start_draws,
    "compose": windows.compose,
    "compose_blended": windows.compose_blended,
    "compose_linear": windows.compose_linear,
    "compose_nearest": windows.compose_nearest,
    "copy_window": windows.copy_window,
    "scale_window": windows.scale_window,
    "blend_window": windows.blend_window,
    "store_values": pixels.store_values,
}


class Driver:
    """The compiled function of a chain."""

    def __init__(self, steps: Sequence[Step], spec: Spec) -> None:
        self._text, self.output = draft(steps, spec)
        self.input = spec
        self._keys = np.array(self._text.keys, np.uint64)
        self._scratch = threading.local()
        text = self._text
        arguments = "".join(f"a{number}, " for number in range(len(text.arguments)))
        begin = BEGIN.format(place=text.space(spec.nbytes))
        self.source = HEADER.format(arguments=arguments) + begin + "\n".join(text.lines) + "\n"
        self.cached = False
        self._drive = self._compile()

    def run(
        self,
        positions: NDArray[np.int64],
        located: Located,
        out: NDArray[Any],
        keys: NDArray[np.uint64] | None = None,
        checking: int = 0,
    ) -> None:
        """Take located samples through the chain into `out`, with the keys of its ops or others.

        With `checking` every index of a user's code is checked, and what it fills holds these bytes before.
        """
        scratch = getattr(self._scratch, "memory", None)
        if scratch is None:
            scratch = self._scratch.memory = aligned(self._text.scratch)
            # Loops over whole blocks pass the end of a sample: in plain Python NumPy would warn of what lies there.
            scratch.fill(0)
        progress = np.zeros(3, np.int64)
        progress[2] = checking
        lengths = located.lengths
        if lengths is None:
            lengths = np.full(len(positions), sys.maxsize) if self._text.takes_lengths else NONE
        try:
            self._drive(
                positions, located.addresses, lengths, located.fetcher, located.worker, scratch,
                self._keys if keys is None else keys, progress,
                *self._text.arguments, out.reshape(-1).view(np.uint8),
            )  # fmt: skip
        except Exception as error:
            name = self._text.names[progress[1]]
            annotate(error, "in transform", f"{name!r}, at sample {progress[0]} of these")
            raise
        if progress[1] < 0:
            located.raise_failure(int(progress[0]), int(progress[1]))

    def _compile(self) -> Any:
        text = self._text
        name, home = driver_name(text, self.source), store.folder()
        module = _module(name or f"{store.PREFIX}{uuid.uuid4().hex}", self.source)
        vars(module).update(LIBRARY)
        module.drive.description = "the transforms " + ", ".join(dict.fromkeys(text.names))
        drive = jit(module.drive)

        def fill() -> None:
            for known, function in text.functions.items():
                # Compiled anew for every driver: a global it reads may have another value by now.
                checked = known in text.checked
                anew = renewed(function, **CHECKED) if checked else renewed(function)
                jit_function = jit_checked if checked else jit_op
                compiled = isinstance(anew, types.FunctionType)
                vars(module)[known] = jit_function(anew) if compiled else anew

        if numba.config.DISABLE_JIT:
            fill()
            return drive
        arguments = [numba.typeof(value) for value in text.arguments]
        signature = (*FIRST, *arguments, numba.uint8[::1])
        with ExitStack() as stack:
            try:
                if name is None or home is None:
                    # What it compiles on its way is not to be interrupted, either.
                    compile_uninterrupted(fill)
                else:
                    drive._cache = CodeCache(lambda: (home,), name, name, on_miss=fill)
                    lock = home / f"{name}.lock"
                    if drive._cache.holds(signature, drive.targetctx):
                        store.mark_used(lock)
                    else:
                        stack.enter_context(store.locked(lock))
                compile_uninterrupted(drive.compile, signature)
            except Exception as error:
                # Not NumbaError alone: what Numba says of `import` and `with` is none.
                path = drive.py_func.__code__.co_filename
                raise TransformError(explain(error, text, path, self.source)) from error
        self.cached = sum(drive.stats.cache_hits.values()) > 0
        if not self.cached and home is not None:
            store.clean(home)
        return drive


NONE = np.empty(0, np.int64)
jit = numba.njit(nogil=True, error_model="numpy")
# Into the driver, where the shapes are known.
jit_op = numba.njit(nogil=True, error_model="numpy", forceinline=True)
CHECKED = {"boundscheck": True}
jit_checked = numba.njit(nogil=True, error_model="numpy", **CHECKED)
FIRST = (
    *(numba.int64[::1], numba.int64[::1], numba.int64[::1], numba.int64, numba.int64),
    *(numba.uint8[::1], numba.uint64[::1], numba.int64[::1]),
)


def driver_name(text: Draft, source: str) -> str | None:
    """Return a name that is another for anything else that the compiled code depends on; None if that is not known."""
    try:
        code = fingerprint(*text.functions.values())
    except Uncacheable as reason:
        names = ", ".join(dict.fromkeys(text.names))
        logger.info("The compiled code of %s is not cached: %s.", names, reason)
        return None
    versions = (numba.__version__, llvmlite.__version__, sys.version, source_hash())
    parts = repr((*versions, code, source))
    return store.PREFIX + hashlib.sha256(parts.encode()).hexdigest()[:40]


def _module(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(f"loaderx.compiler._drivers.{name}")
    path = f"<{name}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    # Numba looks it up when it loads what is cached.
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), vars(module))
    return module


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Scratch memory that begins at a cache line."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


# How Numba names a line: "During: typing of call at /folder/file.py (12)", "Raised from /folder/file.py (12)".
PLACE = re.compile(r"(?:at|from) (\S.*?) \((\d+)\)")


def explain(error: Exception, text: Draft, path: str, source: str) -> str:
    """What a person can act on, out of what Numba says about the driver at `path`."""
    message = str(error)
    places = [(file, int(line)) for file, line in PLACE.findall(message)]
    calls = [source.splitlines()[line - 1] for file, line in places if file == path]
    functions = {
        name: function
        for name, function in text.functions.items()
        if isinstance(function, types.FunctionType) and name not in text.checked
    }
    guilty = (
        [f for name, f in functions.items() if any(f"{name}(" in call for call in calls)]
        or [f for f in functions.values() if not _readable(f)]
        or list(functions.values())
    )
    names = ", ".join(
        f"{f.__name__!r} ({f.__code__.co_filename}:{f.__code__.co_firstlineno})" for f in guilty
    )
    reason = _reason(message)
    for file, line in places:
        if file != path:
            code = linecache.getline(file, line).strip()
            reason.append(f"in line {line} of {file}" + (f": {code}" if code else ""))
            break
    if "Untyped global name" in message and "<class 'function'>" in message:
        reason.append(
            "What a transform calls must be compiled too: decorate it with `@numba.njit`."
        )
    elif re.search(r"Untyped global name|of type Module\((?!<module '(numpy|math))", message):
        reason.append(
            "Numba knows Python, math and NumPy. A function that needs another library goes into `transforms` as it "
            "is, undecorated, and runs in Python."
        )
    if "readonly array" in message:
        reason.append(
            "An array that is a parameter or a global cannot be written: others read it. Copy it."
        )
    if "DrawsType" in message or " of type Draws" in message:
        reason.append(f"In compiled code `rng` has {', '.join(METHODS)}.")
    return (
        f"Numba cannot compile the transform {names}:\n  " + "\n  ".join(reason) + "\n"
        "Call it on one sample with `.py(sample, np.random.default_rng(0), ...)` to see it run in plain Python."
    )


def _readable(function: types.FunctionType) -> bool:
    """Whether Numba knows all the statements of a function."""
    try:
        run_frontend(function)
    except Exception:  # noqa: BLE001 - whatever it is, it was raised before and is reported
        return False
    return True


def _reason(message: str) -> list[str]:
    """The lines of a message before those about where, how and what else was tried."""
    reason: list[str] = []
    for line in map(str.strip, message.splitlines()):
        if reason and line.startswith(("File", "During:", "There are")):
            break
        if line and not line.startswith(("Failed in", "- Resolution failure", "File", "During:")):
            reason.append(line)
    return reason[:6]
