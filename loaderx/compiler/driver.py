"""A chain of ops -> one compiled function that takes samples from their rows to their places in the batch.

The function is generated as text and written to a file named by a hash of it and of the code of every op in it, so that
Numba can cache what it compiles: a closure over jitted functions would never be found again.
"""

import hashlib
import importlib.util
import linecache
import re
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.compiler import run_frontend
from numpy.typing import NDArray

from loaderx.errors import TransformError
from loaderx.kernels import pixels, windows
from loaderx.kernels.calls import fetch
from loaderx.kernels.compilation import ForgivingCache, source_hash
from loaderx.kernels.draws import METHODS, start_draws
from loaderx.kernels.memory import copy_bytes, pointer
from loaderx.kernels.random import fold
from loaderx.sources.located import Located
from loaderx.spec import Spec

from . import store
from .draft import ALIGNMENT, Draft, Step
from .fingerprint import fingerprint
from .outline import draft
from .renewal import renewed

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
            error.add_note(
                f"loaderx: in transform {self._text.names[progress[1]]!r}, at sample {progress[0]} of these"
            )
            raise
        if progress[1] < 0:
            located.raise_failure(int(progress[0]), int(progress[1]))

    def _compile(self) -> Any:
        text = self._text
        name = driver_name(text, self.source)
        file = store.write_driver(name, self.source)
        module = _module(name, file, self.source)
        vars(module).update(LIBRARY)
        for known, function in text.functions.items():
            # Compiled anew for every driver: a global it reads may have another value by now.
            checked = known in text.checked
            anew = renewed(function, **CHECKED) if checked else renewed(function)
            option = jit_checked if checked else jit_op
            vars(module)[known] = option(anew) if isinstance(anew, types.FunctionType) else anew
        drive = jit(module.drive)
        if numba.config.DISABLE_JIT:
            return drive
        if file is not None:
            try:
                drive._cache = ForgivingCache(drive.py_func)
            except RuntimeError:
                file = None
        arguments = [numba.typeof(value) for value in text.arguments]
        with store.locked(file):
            try:
                drive.compile((*FIRST, *arguments, numba.uint8[::1]))
            except Exception as error:
                # Not NumbaError alone: what Numba says of `import` and `with` is none.
                path = drive.py_func.__code__.co_filename
                raise TransformError(explain(error, text, path, self.source)) from error
        self.cached = sum(drive.stats.cache_hits.values()) > 0
        if not self.cached:
            store.clean()
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


def driver_name(text: Draft, source: str) -> str:
    """Different whenever anything differs that the compiled code depends on."""
    parts = (
        *(numba.__version__, llvmlite.__version__, sys.version, source_hash()),
        *(fingerprint(*text.functions.values()), source),
    )
    return "driver_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _module(name: str, file: Path | None, source: str) -> types.ModuleType:
    full = f"loaderx.compiler._drivers.{name}"
    if file is not None:
        specification = importlib.util.spec_from_file_location(full, file)
        assert specification is not None
        module = importlib.util.module_from_spec(specification)
        path = str(file)
    else:
        module = types.ModuleType(full)
        path = f"<{name}>"
        linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    sys.modules[full] = module
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
