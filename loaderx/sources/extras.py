"""Import of an optional package when it is first needed."""

import importlib
from typing import Any


def require(module: str, extra: str, what: str) -> Any:
    """Import a module; if it is not installed, raise an error with the extra that provides it to `what`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # It is installed, and one of its own imports is missing.
        raise ModuleNotFoundError(
            f'{what} needs {package}, which is not installed: pip install ".[{extra}]" in a clone of loaderx',
            name=package,
        ) from error
