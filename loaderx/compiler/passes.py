"""Passes, compiled or loaded from the cache: each is compiled once for an installation, for all chains.

The key in the cache is a hash of everything that a pass depends on: the function and its callees, with the values they
read, the layout of its arguments, and the versions of the compiler. A pass whose functions cannot be hashed is compiled
in every process.
"""

import hashlib
import logging
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba

from loaderx.errors import TransformError
from loaderx.kernels import passes
from loaderx.kernels.caching import store
from loaderx.kernels.caching.files import CodeCache
from loaderx.kernels.caching.fingerprint import Uncacheable, fingerprint
from loaderx.kernels.caching.fresh_copy import fresh_copy
from loaderx.kernels.caching.packages import is_known, versions
from loaderx.kernels.compilation import compile_uninterrupted
from loaderx.kernels.numba_internals import (
    compiled,
    holds,
    loaded,
    native_address,
    optimize_twice,
    set_cache,
)
from loaderx.kernels.progress import Work

from .failures import explain_failure

logger = logging.getLogger("loaderx")
# Without the wrappers for calls from Python and C: only the driver calls a pass.
OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# The function is inlined into the pass, where shapes may be constants.
INLINED = {**OPTIONS, "forceinline": True}
# With bounds checks.
CHECKED = {**OPTIONS, "boundscheck": True}


@dataclass(frozen=True, eq=False)
class Pass:
    """Compiled pass: its address, and the code object that must stay alive for it."""

    address: int
    code: Any


# Placeholder of a pass that was only requested: a table with it cannot be run.
NOT_COMPILED = Pass(0, None)


@dataclass(frozen=True, eq=False)
class Request:
    """Request for a pass: the function, the layout of its arguments, how its result is stored, and bounds checks.

    `name` is the key in the cache; it is None if the pass cannot be cached. `op` is the name of the op, and `work` the
    compilation that it is part of, for messages.
    """

    name: str | None
    function: Callable[..., Any]
    layout: passes.Layout
    store_result: Any
    checked: bool
    op: str
    work: Work

    def is_stored(self) -> bool:
        """Return True if the pass is in the cache, in a file that is not damaged."""
        home = store.folder()
        return (
            self.name is not None
            and home is not None
            and holds(_cache(home, self.name), passes.SIGNATURE)
        )

    def fulfil(self) -> tuple[Pass, bool]:
        """Load or compile the pass; return it, and True if it was compiled before."""
        found = _LOADED.get(self.name) if self.name is not None else None
        if found is not None:
            return found, True
        found, cached = _compile(self)
        if self.name is not None:
            _LOADED[self.name] = found
        return found, cached


# Passes of this process by name, for as long as a table refers to them.
_LOADED: "weakref.WeakValueDictionary[str, Pass]" = weakref.WeakValueDictionary()
Answer = Callable[[Request], tuple[Pass, bool]]
_answers: list[Answer] = [Request.fulfil]


@contextmanager
def answering(answer: Answer) -> Iterator[None]:
    """Replace the handler of requests for passes, for example by one that only lists them."""
    _answers.append(answer)
    try:
        yield
    finally:
        _answers.remove(answer)


def compiled_pass(
    function: Callable[..., Any],
    layout: passes.Layout,
    store_result: Any = None,
    *,
    checked: bool = False,
    op: str,
    work: Work,
) -> tuple[Pass, bool]:
    """Return the pass that calls `function` with arguments of `layout`, and True if it was compiled before."""
    if numba.config.DISABLE_JIT:
        entry = passes.entry_of(function, layout, store_result)
        return Pass(passes.plain_address(entry), entry), False
    name = _name(function, layout, store_result, checked, op)
    return _answers[-1](Request(name, function, layout, store_result, checked, op, work))


def _name(
    function: Any, layout: passes.Layout, store_result: Any, checked: bool, op: str
) -> str | None:
    try:
        code = fingerprint(function, *([store_result] if store_result else []))
    except Uncacheable as reason:
        logger.info("The compiled code of %s is not cached: %s.", op, reason)
        return None
    parts = repr((*versions(), code, layout, checked))
    return store.PREFIX + hashlib.sha256(parts.encode()).hexdigest()[:40]


def _cache(home: Path, name: str) -> CodeCache:
    return CodeCache(lambda: (home,), name, name)


def _compile(wanted: Request) -> tuple[Pass, bool]:
    home, name = store.folder(), wanted.name

    def make() -> Any:
        """Return the pass to compile, from a fresh copy: a global that it reads may have changed since."""
        options = CHECKED if wanted.checked else INLINED
        anew = fresh_copy(wanted.function, **({"boundscheck": True} if wanted.checked else {}))
        # A kernel is compiled as a part of the pass, without the wrappers to call it separately.
        anew = getattr(anew, "py_func", anew) if is_known(anew) else anew
        if isinstance(anew, types.FunctionType):
            if not (wanted.function.__module__ or "").startswith("loaderx."):
                optimize_twice(anew)
            anew = numba.njit(**options)(anew)
        entry = passes.entry_of(anew, wanted.layout, wanted.store_result)
        if name is not None:
            # Numba numbers symbols in each process: passes from several processes would have the same symbols.
            entry.__qualname__ = name
        return entry

    with ExitStack() as stack:
        try:
            cache = None
            if name is not None and home is not None:
                cache = _cache(home, name)
                lock = home / f"{name}.lock"
                found = compile_uninterrupted(loaded, cache, passes.SIGNATURE)
                if found is not None:
                    store.mark_used(lock)
                    return Pass(native_address(found), found), True
                stack.enter_context(store.locked(lock))
                # Another process may have compiled it while this one waited for the lock.
                found = compile_uninterrupted(loaded, cache, passes.SIGNATURE)
                if found is not None:
                    return Pass(native_address(found), found), True
            with wanted.work.compiling(cached=cache is not None):
                code = compile_uninterrupted(_compile_now, make, cache)
        except Exception as error:
            # Numba raises other exceptions than NumbaError for `import` and `with`.
            raise TransformError(explain_failure(error, wanted.function)) from error
    if home is not None:
        store.clean(home)
    return Pass(native_address(code), code), False


def _compile_now(make: Callable[[], Any], cache: CodeCache | None) -> Any:
    entry = make()
    entry.announced = True
    dispatcher = numba.njit(**OPTIONS)(entry)
    if cache is not None:
        set_cache(dispatcher, cache)
    return compiled(dispatcher, passes.SIGNATURE)
