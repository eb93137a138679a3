"""Names of sources and ops as users write them, and what can be done about those that are slow."""

import dis
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaderx.compiler.chain import PythonStep
from loaderx.sources import LocatedSource
from loaderx.sources.object import ObjectSource
from loaderx.transforms.combinators import Branching, Sequence

# Classes of the library that a user never writes -> what they are a part of.
PUBLIC_NAMES = {
    "ImageFiles": "ImageFolder",
    "DecodedColumn": "HFDataset",
    "_Decoded": "ARDataset",
    "RecordRows": "ARDataset",
    "LengthRows": "ARDataset",
    "ByteRows": "ARDataset",
    "Windows": "TokenDataset",
    "IDXDataset": "MNIST",
    "RangeRows": "range",
}
# What Numba compiles; code that calls anything else cannot be decorated.
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


def source_name(source: Any) -> str:
    """The class of a source that the user wrote, whatever it is wrapped in."""
    while True:
        if isinstance(source, ObjectSource):
            source = source._rows
        elif hasattr(source, "_source") and type(source).__module__.startswith("loaderx."):
            source = source._source
        else:
            name = type(source).__name__
            return PUBLIC_NAMES.get(name, name)


def source_hint(source: Any, fields: list[str]) -> str:
    """What makes reading rows faster, as a command or a line of Python."""
    name = source_name(source)
    if name == "ImageFolder":
        height, width = source.spec.shape[:2]
        return (
            f"it decodes image files again and again; `loaderx convert FOLDER train.npy --size {height} {width}` does "
            "it once, and prints the line that loads the result"
        )
    if name == "HFDataset":
        return (
            'it decodes each row again and again; `dataset.save_to_disk("saved")` and then `loaderx convert saved '
            "train.npy` do it once, and print the line that loads the result"
        )
    if name == "ARDataset" and isinstance(source, LocatedSource):
        return "`loaderx convert FILE train.npy` stores the records uncompressed, which is the fastest there is"
    if isinstance(source, LocatedSource):
        return (
            "uncompressed rows are the fastest there are: what is left is the memory, or the disk "
            "if the file is larger than the memory"
        )
    keys = [repr(key) for key in source.spec] if isinstance(source.spec, dict) else []
    key = f"[{keys[0]}]" if keys else ""
    return (
        f'it is Python code for each row; `lx.write_array_record("{fields[0]}.ar", (rows[i]{key} for i in '
        f'range(len(rows))))` runs it once, and compiled code reads `lx.ARDataset("{fields[0]}.ar")`'
    )


def op_name(step: Any) -> str:
    """An op by its name, with those that a combinator chooses from."""
    if isinstance(step, PythonStep):
        return step.name
    return _transform_name(step.transform)


def _transform_name(op: Any) -> str:
    if isinstance(op, Branching):
        inside = [one for branch in op.branches for one in branch.ops]
    elif isinstance(op, Sequence):
        inside = list(op.ops)
    else:
        return str(op.name)
    # Policies have dozens.
    names = list(dict.fromkeys(map(_transform_name, inside)))
    more = ", ..." if len(names) > 3 else ""
    return f"{op.name}({', '.join(names[:3])}{more})"


def op_hint(step: Any) -> str:
    """What can be done about an op that runs in Python."""
    if not isinstance(step, PythonStep):
        return "it is Python code because LOADERX_DEBUG is set"
    called = list(_called(step.function, set()))
    foreign = sorted({package for package, _ in called if _is_installed(package)})
    if not foreign:
        return "decorate it with @loaderx.transform to have it compiled"
    words = " ".join(name for _, name in called).lower()
    known = list(dict.fromkeys(op for word, op in EQUIVALENTS.items() if word in words))
    instead = (
        f"T.{known[0]} of `from loaderx import transforms as T` does the like and is compiled"
        if known
        else "an op of `loaderx.transforms` that does the like is compiled"
    )
    return (
        f"it calls {' and '.join(foreign)}, which cannot be compiled; {instead}; work without chance can be done "
        "once, before the rows are written to a file"
    )


def _called(function: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    """The packages and names of all that a function uses, also through functions of the user's own."""
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
    """Whether it is a package that the user did not write, and that Numba does not compile."""
    if package in COMPILED_PACKAGES:
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return package in sys.stdlib_module_names or any(
        file is not None and Path(file).is_relative_to(place) for place in places
    )
