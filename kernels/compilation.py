"""The one place for jit options, and for what happens when the cache on disk fails."""

import functools
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def source_hash() -> str:
    """One hash over the source of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class ForgivingIndex(IndexDataCacheFile):
    """The index of a cache; a damaged one is an empty one, and written anew."""

    def _load_index(self) -> Any:
        with suppress(Exception):
            return super()._load_index()
        return {}


class ForgivingCache(FunctionCache):
    """Numba's cache on disk, but a full disk or a damaged file costs a compilation, not the run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # Numba looks at the time stamp of the function's own file only, and would serve a kernel compiled with the
        # former version of a function it calls from another file.
        self._cache_file = ForgivingIndex(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=source_hash(),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # Damaged pickles raise nearly anything: EOFError, UnpicklingError, AttributeError, ...
        with suppress(Exception):
            found = super().load_overload(sig, target_context)
            # Of two processes that save at once each may take the same next free file: then the index of one names the
            # code of the other.
            if found is not None and tuple(found.signature.args) == tuple(sig):
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


def kernel(function: Function) -> Function:
    """Compile on first call, without the GIL, cached on disk where the disk allows."""
    return _compiled(function, nogil=True)


def brief_kernel(function: Function) -> Function:
    """The same for microseconds of work: it keeps the GIL, which takes longer to get back while others want it."""
    return _compiled(function, nogil=False)


def _compiled(function: Function, nogil: bool) -> Function:
    if config.DISABLE_JIT:
        return _interpreted(function)
    compiled = numba.njit(nogil=nogil, error_model="numpy")(function)
    # Raised when neither the folder of the source file nor the user's cache folder can be written.
    with suppress(RuntimeError):
        compiled._cache = ForgivingCache(compiled.py_func)
    return compiled  # type: ignore[no-any-return]


def jitable(function: Function) -> Function:
    """For functions that are called from kernels and from plain Python alike."""
    registered: Function = register_jitable(function)
    return registered


def _interpreted(function: Function) -> Function:
    """The same function in plain Python: as in compiled code, wrapping and dividing by zero are worth no warning."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return call  # type: ignore[return-value]
