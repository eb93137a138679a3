"""The one place for jit options, and for where compiled kernels are cached."""

import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import register_jitable

from . import progress
from .code_cache import CodeCache
from .folders import cache_folder, is_private, private_folder
from .uninterrupted import uninterrupted

Function = TypeVar("Function", bound=Callable[..., Any])
progress.install()


@functools.cache
def source_hash() -> str:
    """One hash over the source of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


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
    code = compiled.py_func.__code__
    file = Path(code.co_filename)
    if file.exists():
        version = "".join(map(str, sys.version_info[:2])) + sys.abiflags
        name = f"{file.stem}.{code.co_qualname}-{code.co_firstlineno}.py{version}"
        # Numba itself looks at the function's own file only, and would serve a kernel compiled with the former version
        # of a function it calls from another file.
        stamp = f"{source_hash()} {hashlib.sha256(code.co_code).hexdigest()}"
        compiled._cache = CodeCache(
            functools.partial(_folders, file.parent), name.replace("<", "").replace(">", ""), stamp
        )
    # What a call with arguments of new types ends in.
    compiled._compile_for_args = functools.partial(
        compile_uninterrupted, compiled._compile_for_args
    )
    return compiled  # type: ignore[no-any-return]


def compile_uninterrupted(
    compile_function: Callable[..., Any], *arguments: Any, **named: Any
) -> Any:
    """Compile or load a function where Ctrl-C does not reach it."""
    if global_compiler_lock.is_locked():
        # By this thread, in the middle of another compilation: one more thread would wait for it for ever.
        return compile_function(*arguments, **named)
    return uninterrupted(compile_function, *arguments, **named)


def _folders(sources: Path) -> list[Path]:
    """List the cache folders of kernels: the one named for Numba, that of the sources, or one in the user's cache."""
    apart = f"kernels-{hashlib.sha256(str(sources.absolute()).encode()).hexdigest()[:16]}"
    beside = sources / "__pycache__"
    folders = []
    named = private_folder(Path(config.CACHE_DIR)) if config.CACHE_DIR else None
    if named:
        return [named / apart]
    exists = beside.exists()
    if is_private(beside) or not exists:
        folders.append(beside)
        if os.access(beside if exists else sources, os.W_OK):
            return folders
    own = private_folder(cache_folder())
    return [*folders, own / apart] if own else folders


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
