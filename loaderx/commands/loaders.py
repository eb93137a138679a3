"""Import of the loader that a user names on the command line, as `module:name` or `file.py:name`."""

import argparse
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .terminal import FAILED, UsageError, ctrl_c_waits, write_note

if TYPE_CHECKING:
    from loaderx.loader import DataLoader

TARGET_HELP = "module:name or file.py:name of a DataLoader, or of a function that returns one"


class UserCodeError(Exception):
    """Exception of the user's own code while the loader was imported or made."""


def with_loader(
    options: argparse.Namespace, work: "Callable[[DataLoader, argparse.Namespace], int]"
) -> int:
    """Call a function with the named loader; the user's own exceptions are shown with their traceback."""
    # An interrupt during the import of NumPy looks like a damaged installation.
    with ctrl_c_waits() as stop:
        importlib.import_module("loaderx.loader")
    stop.check()
    try:
        loader = find(options.target)
    except UserCodeError as error:
        cause = error.__cause__
        assert cause is not None
        write_note(
            "".join(
                traceback.format_exception(cause.with_traceback(_user_traceback(cause)))
            ).rstrip()
        )
        write_note(f"loaderx {options.command}: {error}")
        return FAILED
    return work(loader, options)


def find(target: str) -> "DataLoader":
    """Import the named object, and call it if it is a function."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(
            f"{target!r} must be module:name or file.py:name, such as train.py:loader."
        )
    module = _module(place)
    if not hasattr(module, name):
        raise UsageError(f"{place} has no {name!r}{_hint(module)}.")
    return _as_loader(getattr(module, name), target, module)


def _as_loader(value: Any, target: str, module: ModuleType) -> "DataLoader":
    from loaderx.loader import DataLoader

    given = "is"
    if inspect.isroutine(value):
        try:
            inspect.signature(value).bind()
        except (TypeError, ValueError):
            raise UsageError(
                f"{target} is a function that needs arguments; name one without, or a DataLoader."
            ) from None
        value = _run_user_code(value, f"calling {target} failed, see above")
        given = "gives"
    if not isinstance(value, DataLoader):
        kind = type(value).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        raise UsageError(
            f"{target} {given} {article} {kind}, not a DataLoader or a function that returns one"
            f"{_hint(module)}."
        )
    return value


def _hint(module: ModuleType) -> str:
    """Return the names of the loaders in a module, for a message."""
    from loaderx.loader import DataLoader

    names = [name for name, value in vars(module).items() if isinstance(value, DataLoader)]
    return f"; its loaders are {', '.join(names)}" if names else ""


def _module(place: str) -> ModuleType:
    failed = f"importing {place} failed, see above"
    if not place.endswith(".py"):
        if not all(part.isidentifier() for part in place.split(".")):
            raise UsageError(
                f"{place!r} is neither the name of a module nor a file that ends in .py."
            )
        # As for `python -m`; a script in bin/ has its own folder there.
        sys.path.insert(0, "")
        try:
            module: ModuleType = _run_user_code(lambda: importlib.import_module(place), failed)
            return module
        except UserCodeError as error:
            missing = getattr(error.__cause__, "name", None)
            if isinstance(error.__cause__, ModuleNotFoundError) and (
                place == missing or place.startswith(f"{missing}.")
            ):
                raise UsageError(f"there is no module {place!r}.") from None
            raise
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"there is no file {place}.")
    # As for `python file.py`, so that it can import its neighbours.
    sys.path.insert(0, str(path.resolve().parent))
    # The file may have the name of an imported module.
    name = path.stem if path.stem not in sys.modules else f"_loaderx_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    sys.modules[name] = own
    execute = spec.loader.exec_module
    _run_user_code(lambda: execute(own), failed)
    return own


def _run_user_code(call: Callable[[], Any], failed: str) -> Any:
    try:
        return call()
    except SystemExit as error:
        raise UsageError(
            f"it ended the program ({error.code}); put what it does as a program under "
            '`if __name__ == "__main__":`.'
        ) from None
    except Exception as error:
        raise UserCodeError(failed) from error


def _user_traceback(error: BaseException) -> Any:
    """Return the traceback from the first line of the user's code on."""
    frame = error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if name != __file__ and "importlib" not in name:
            return frame
        frame = frame.tb_next
    return error.__traceback__
