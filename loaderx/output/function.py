"""Output by a user's function from a NumPy array to the value to deliver."""

from collections.abc import Callable
from typing import Any

from .base import Array, ArrayHandOff


class FunctionHandOff(ArrayHandOff):
    """Hand-off by a function that is called with every array of a batch, on a worker thread."""

    def __init__(self, function: Callable[[Array], Any]) -> None:
        self._function = function

    def convert(self, array: Array) -> Any:
        return self._function(array)
