"""Compilation of kernels: the one place for jit options and for the cache of kernels."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config
from numba.extending import register_jitable

from . import progress
from .caching.files import CodeCache
from .caching.packages import file_hash
from .caching.store import kernel_folders
from .numba_internals import (
    compiler_lock,
    is_compiling,
    known_print,
    link_callees_only,
    set_cache,
    wrap_compilation,
)
from .uninterrupted import uninterrupted

Function = TypeVar("Function", bound=Callable[..., Any])
progress.install()


def kernel(function: Function) -> Function:
    """Compile on first call, without the GIL, cached on disk if a cache folder is writable."""
    return _compiled(function, nogil=True)


def parallel_kernel(function: Function) -> Function:
    """Compile as `kernel`, with `prange` over all cores.

    Under the threading layer `workqueue` only one thread at a time may call it.
    """
    return _compiled(function, nogil=True, parallel=True)


def gil_kernel(function: Function) -> Function:
    """Compile as `kernel`, but keep the GIL, for microseconds of work.

    To get the GIL back takes longer than that while other threads want it.
    """
    return _compiled(function, nogil=False)


def _compiled(function: Function, nogil: bool, parallel: bool = False) -> Function:
    if config.DISABLE_JIT:
        return _interpreted(function)
    compiled = numba.njit(nogil=nogil, parallel=parallel, error_model="numpy")(function)
    code = compiled.py_func.__code__
    file = Path(code.co_filename)
    if file.exists():
        name = f"{file.stem}.{code.co_qualname}-{code.co_firstlineno}"
        folders = functools.partial(kernel_folders, file.parent)
        # A kernel calls only functions in the files of kernels, whose source is part of the versions.
        cache = CodeCache(folders, name.replace("<", "").replace(">", ""), file_hash(file))
        set_cache(compiled, cache)
    wrap_compilation(compiled, compile_uninterrupted)
    return compiled  # type: ignore[no-any-return]


def compile_uninterrupted(
    compile_function: Callable[..., Any], *arguments: Any, **named: Any
) -> Any:
    """Compile or load a function where Ctrl-C does not reach it, one at a time in a process."""
    if is_compiling():
        # A second thread would wait forever for the lock of compilers that this one holds.
        return compile_function(*arguments, **named)
    return uninterrupted(_compile_linked, compile_function, *arguments, **named)


def _compile_linked(compile_function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    with compiler_lock(), known_print(), link_callees_only():
        return compile_function(*arguments, **named)


def _hold_compilers() -> None:
    compiler_lock().__enter__()


def _release_compilers() -> None:
    compiler_lock().__exit__(None, None, None)


# In a child that is forked while another thread compiles, nobody would ever release the lock of that thread.
os.register_at_fork(
    before=_hold_compilers,
    after_in_parent=_release_compilers,
    after_in_child=_release_compilers,
)


def jitable(function: Function) -> Function:
    """Register a function that kernels and plain Python both call."""
    # Python calls the function itself, and C never does.
    registered: Function = register_jitable(no_cfunc_wrapper=True)(function)
    return registered


def _interpreted(function: Function) -> Function:
    """Return the function in plain Python, without warnings.

    As in compiled code, overflow and division by zero are silent.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return call  # type: ignore[return-value]
