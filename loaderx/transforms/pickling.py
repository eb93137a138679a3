"""Pickling of functions marked by `@transform`, whose name in their module is no longer a function."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

SUFFIX = ".portable"


def reduced(author: Any, protocol: int) -> str | tuple[Any, ...]:
    """Return what `pickle` finds the factory by: its name, or the function itself if it is pickled by value.

    Programs differ in what `__main__` is. Where processes import it, as those of multiprocessing do, its functions go
    by name. Elsewhere cloudpickle sends their code, but only of functions.
    """
    found = named(author.__module__, author.__qualname__)
    if found is author and (author.__module__ != "__main__" or protocol < 4):
        return str(author.__qualname__)
    if found is author.py or not isinstance(author.py, types.FunctionType):
        return type(author), (author.py, author.out)
    return restored, (type(author), author.portable)


def portable(function: types.FunctionType, out: Any) -> types.FunctionType:
    """Copy a function under a name by which `pickle` finds it: that of an attribute of its factory."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copy, function)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__ + SUFFIX
    # It is sent along with a function that is sent by value.
    copy.__dict__ = {"out": out}
    return copy


def restored(kind: Callable[..., Any], function: Any) -> Any:
    """Return the factory of a portable function."""
    name = function.__qualname__.removesuffix(SUFFIX)
    found = named(function.__module__, name)
    if getattr(found, "portable", None) is function:
        return found
    function.__qualname__ = name
    return kind(function, function.__dict__.pop("out"))


def named(module: str, name: str) -> Any:
    """Return the object of this name in a module, or None."""
    value = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
