"""Extensions of Numba (overloads, intrinsics, lowered functions) that are registered outside of known packages.

Numba finds them by the function or type that they extend, so the code that is compiled contains no reference to them.
"""

import functools
import inspect
import site
import sysconfig
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba.core import types as numba_types

from loaderx.kernels import numba_internals as internals

from .packages import file_hash, is_known, is_known_file


@dataclass(frozen=True)
class Extension:
    """Extension of Numba: the function or class that implements it, and the function or attribute it is about."""

    origin: Any
    about: Any
    template: Any

    @property
    def called(self) -> str:
        return f"{self.origin.__module__}.{self.origin.__qualname__}"

    @property
    def file_hash(self) -> str | None:
        """Return the hash of the file of an installed package; None for a file that a user edits."""
        return _hash_of_installed(_file_of(self.origin))

    def concerns(self, names: set[str], values: Container[int]) -> bool:
        """Tell whether code that reads these names, and values of these ids, can use this extension."""
        if self.origin is self.about:  # of `register_jitable`: the called code itself
            return False
        if isinstance(self.about, str):
            return self.about in names
        # If Numba knows a function already, syntax (`a + b`, `x[i]`) and its own code call it, too.
        return self.about is None or id(self.about) in _IMPLEMENTED or id(self.about) in values


def foreign_extensions() -> list[Extension]:
    """List the extensions that no known package registered."""
    for registered, read in _READERS:
        # Only those that are new since the last time: Numba's own are thousands. Two threads may find the same.
        new = registered[_DONE.get(id(registered), 0) :]
        end = _DONE.get(id(registered), 0) + len(new)
        _FOUND.update({found: None for entry in new for found in read(entry)})
        _DONE[id(registered)] = end
    return list(_FOUND)


def forget_compiled_extensions() -> None:
    """Make Numba compile the implementations of users' extensions anew: a global they read may have changed."""
    for extension in foreign_extensions():
        if extension.file_hash is None:
            internals.forget_implementations(extension.template)


def _of_template(template: Any, about: Any = None) -> Iterator[Extension]:
    if about is None:
        about = internals.subject_of(template)
    if inspect.isclass(about) and issubclass(about, numba_types.Type) and is_known(about):
        about = None
    yield from _foreign(internals.origin_of(template), about, template)


def _of_global(entry: Any) -> Iterator[Extension]:
    value, kind = entry
    for template in getattr(kind, "templates", ()):
        yield from _of_template(template, value)


def _of_lowered(entry: Any) -> Iterator[Extension]:
    implementation, about, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, None if isinstance(about, str) else about, None)


def _of_attribute(entry: Any) -> Iterator[Extension]:
    implementation, name, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, name, None)


def _of_conversion(entry: Any) -> Iterator[Extension]:
    implementation, kinds = entry
    if all(_is_builtin(kind) for kind in kinds):
        yield from _foreign(implementation, None, None)


def _is_builtin(kind: Any) -> bool:
    return is_known(kind if inspect.isclass(kind) else type(kind))


def _foreign(origin: Any, about: Any, template: Any) -> Iterator[Extension]:
    for inner in internals.unwrapped(origin):
        file = _file_of(inner)
        if file is None or not is_known_file(file, (inner.__module__ or "").split(".")[0]):
            yield Extension(inner, about, template)
        elif about is not None:
            _IMPLEMENTED[id(about)] = about


def _file_of(origin: Any) -> str | None:
    with suppress(TypeError, OSError):
        return inspect.getfile(origin)
    return None


@functools.cache
def _hash_of_installed(file: str | None) -> str | None:
    if file is None:
        return None
    path = Path(file).resolve()
    if not any(path.is_relative_to(root) for root in _installed_roots()):
        return None
    with suppress(OSError):
        return file_hash(path)
    return None


@functools.cache
def _installed_roots() -> list[Path]:
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    # Through the link `loaderx/kernels`, which `resolve` would follow out of the package.
    library = Path(__file__).absolute().parents[2]
    return [Path(root).resolve() for root in [*roots, str(library)]]


_FOUND: dict[Extension, None] = {}
_DONE: dict[int, int] = {}
# By id, with the function itself, so that no other object can have the same id.
_IMPLEMENTED: dict[int, Any] = {}
_READERS = (
    (internals.TYPED_FUNCTIONS, _of_template),
    (internals.TYPED_ATTRIBUTES, _of_template),
    (internals.TYPED_GLOBALS, _of_global),
    (internals.LOWERED_FUNCTIONS, _of_lowered),
    (internals.LOWERED_GETATTRS, _of_attribute),
    (internals.LOWERED_SETATTRS, _of_attribute),
    (internals.LOWERED_CASTS, _of_conversion),
    (internals.LOWERED_CONSTANTS, _of_conversion),
)
