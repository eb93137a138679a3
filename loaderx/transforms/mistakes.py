"""Mistakes in a user's function that compile and do something unexpected, found in its byte code."""

import dis
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

from loaderx.errors import ArgumentError
from loaderx.kernels.distributions import METHODS

UNKNOWN, RNG = object(), object()
STANDARD = sysconfig.get_path("stdlib")


def check_function(function: types.FunctionType, arrays: list[str]) -> None:
    """Refuse a function that rebinds the names of its `arrays`, or draws from anything but `rng`."""
    name = function.__name__
    for rebound in _rebound(function, arrays):
        raise ArgumentError(
            f"transform {name!r} assigns to the name `{rebound}`, which leaves the array as it was. Write "
            f"`{rebound}[:] = ...`, or `{rebound} *= 2`; a view needs another name: `flat = {rebound}.reshape(-1)`."
        )
    check_draws(function)


def check_draws(function: types.FunctionType) -> None:
    """Refuse a function that draws from a global generator, or by methods that `rng` does not have."""
    name = function.__name__
    for path, value in _loaded(function, set()):
        if _is_generator(value):
            raise ArgumentError(
                f"transform {name!r} uses `{path}`, whose draws depend on everything that was drawn before, so no "
                f"batch would be reproducible. Add an argument `rng` after the arrays and draw from that: "
                f"{', '.join(METHODS)}."
            )
        if value is RNG:
            method = path.removeprefix("rng.")
            if method not in {signature.partition("(")[0] for signature in METHODS}:
                raise ArgumentError(
                    f"transform {name!r} uses `rng.{method}`; in compiled code `rng` has {', '.join(METHODS)}."
                )


def check_parameters(function: types.FunctionType, arrays: list[str]) -> None:
    """Refuse a function that changes an array parameter by `*=` and its like, which Numba cannot explain."""
    names = set(_rebound(function, arrays, in_place=True)) - set(_rebound(function, arrays))
    for name in names:
        raise ArgumentError(
            f"transform {function.__name__!r} changes its parameter `{name}`, an array that the next sample reads too. "
            f"Copy it: `own = {name}.copy()`."
        )


def _rebound(
    function: types.FunctionType, names: list[str], *, in_place: bool = False
) -> Iterator[str]:
    """Yield which of these names are assigned to, other than by `*=` and its like, or by these if `in_place`."""
    before: Any = None
    for instruction in dis.get_instructions(function):
        stores = instruction.opname.startswith(("STORE_FAST", "STORE_DEREF"))
        by_these = before is not None and before.opname == "BINARY_OP" and "=" in before.argrepr
        if stores and by_these == in_place:
            several = instruction.argval
            several = several if isinstance(several, tuple) else (several,)
            # STORE_FAST_LOAD_FAST stores the first of two.
            stored = several[:1] if "LOAD" in instruction.opname else several
            yield from (name for name in stored if name in names)
        before = instruction


def _loaded(function: types.FunctionType, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield what a function and the functions that it calls read by name: `np`, `np.random`, `rng.uniform`."""
    if id(function) in seen:
        return
    seen.add(id(function))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    path, value = "", UNKNOWN
    for instruction in dis.get_instructions(function):
        name = instruction.argval
        if instruction.opname == "EXTENDED_ARG":
            continue
        if instruction.opname == "LOAD_GLOBAL":
            path, value = name, function.__globals__.get(name, UNKNOWN)
        elif instruction.opname == "LOAD_DEREF" and name in cells:
            path, value = name, _content(cells[name])
        elif instruction.opname.startswith("LOAD_FAST") and (
            # LOAD_FAST_LOAD_FAST loads two.
            name == "rng" or (isinstance(name, tuple) and name[-1] == "rng")
        ):
            path, value = "rng", UNKNOWN
            continue
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            module = value if isinstance(value, types.ModuleType) else None
            value = RNG if path == "rng" else getattr(module, name, UNKNOWN)
            path = f"{path}.{name}"
        else:
            path, value = "", UNKNOWN
        if value is not UNKNOWN:
            yield path, value
            called = getattr(value, "py_func", value)
            if isinstance(called, types.FunctionType) and not _installed(called):
                yield from _loaded(called, seen)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: defined further down, and not yet
        return UNKNOWN


def _installed(function: types.FunctionType) -> bool:
    """Return whether a function is part of Python, of a package or of this library, and not a user's own."""
    file = function.__code__.co_filename
    packaged = "site-packages" in file or file.startswith(STANDARD)
    return packaged or (function.__module__ or "").split(".")[0] == "loaderx"


def _is_generator(value: Any) -> bool:
    """Return whether this is, or belongs to, `random` or `numpy.random`."""
    owner = getattr(value, "__self__", value)
    homes = [type(owner).__module__, getattr(owner, "__module__", "")]
    homes += [value.__name__] if isinstance(value, types.ModuleType) else []
    return any(
        isinstance(home, str) and (home == "random" or home.startswith("numpy.random"))
        for home in homes
    )
