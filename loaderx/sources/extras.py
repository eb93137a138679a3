"""Importing a package that comes with an extra of loaderx, when it is first needed."""

import importlib
from typing import Any


def require(module: str, extra: str, what: str) -> Any:
    """The module; where it is not installed, an error that says how `what` gets it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # It is there, and something that it needs is not.
        raise ModuleNotFoundError(
            f'{what} needs {package}, which is not installed: pip install ".[{extra}]" in a clone of loaderx',
            name=package,
        ) from error
