"""Advice on Python callables among the ops: which can be compiled, and what replaces those that cannot."""

import dis
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Numba compiles calls of these; code that calls anything else cannot be decorated.
COMPILED_PACKAGES = frozenset(
    {"numpy", "math", "builtins", "numba", "loaderx", "operator", "cmath"}
)
# Words in the names of functions of Pillow, SciPy, OpenCV, torchvision -> the op that does the same, the longest first.
EQUIVALENTS = {
    "gaussian": "GaussianBlur",
    "brightness": "Brightness",
    "grayscale": "Grayscale",
    "autocontrast": "AutoContrast",
    "posterize": "Posterize",
    "equalize": "Equalize",
    "solarize": "Solarize",
    "contrast": "Contrast",
    "saturation": "Saturation",
    "resize": "Resize",
    "rotate": "Rotate",
    "affine": "Affine",
    "mirror": "RandomFlip",
    "normalize": "Normalize",
    "invert": "Invert",
    "sharp": "Sharpness",
    "blur": "GaussianBlur",
    "crop": "RandomCrop",
    "flip": "RandomFlip",
    "hue": "Hue",
}


def advice(function: Any) -> str:
    """Return what makes a plain callable faster: compiling it, where that is possible."""
    called = list(_called(function, set()))
    foreign = sorted({package for package, _ in called if _is_installed(package)})
    if not foreign:
        return (
            "if it needs only Python and NumPy, write it as a function that changes `x` in place, and decorate it "
            "with `@loaderx.transform` to have it compiled"
        )
    words = " ".join(name for _, name in called).lower()
    known = list(dict.fromkeys(op for word, op in EQUIVALENTS.items() if word in words))
    instead = (
        f"T.{known[0]} of `from loaderx import transforms as T` does this and is compiled"
        if known
        else "an op of `loaderx.transforms` that does this is compiled"
    )
    return (
        f"it calls {' and '.join(foreign)}, which cannot be compiled; {instead}; work without randomness can be done "
        "once, before the rows are written to a file (`loaderx convert`)"
    )


def _called(function: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    """Return the packages and names that a function uses, also through functions of the user's own."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    package = _package_of(function)
    yield package, getattr(function, "__name__", type(function).__name__)
    if not isinstance(function, types.FunctionType):
        # An object with a method, or something written in C.
        function = inspect.getattr_static(function, "__call__", None)
    if not isinstance(function, types.FunctionType) or _is_installed(package) or function in seen:
        return
    seen.add(function)
    outer = inspect.getclosurevars(function)
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    yield from ((package, name) for name in names)
    for value in [
        *outer.nonlocals.values(),
        *(function.__globals__[name] for name in names if name in function.__globals__),
    ]:
        if callable(value):
            yield from _called(value, seen)
        elif isinstance(value, types.ModuleType):
            yield _package_of(value), ""
    for code in _codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname == "IMPORT_NAME":
                yield str(each.argval).partition(".")[0], ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package_of(value: Any) -> str:
    module = value.__name__ if isinstance(value, types.ModuleType) else None
    module = module or getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0]


def _is_installed(package: str) -> bool:
    """Return whether the user did not write this package and Numba does not compile it."""
    if package in COMPILED_PACKAGES:
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return package in sys.stdlib_module_names or any(
        file is not None and Path(file).is_relative_to(place) for place in places
    )
