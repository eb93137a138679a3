"""Output as PyTorch tensors on the CPU, which share the memory of the batch."""

import importlib
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.uninterrupted import import_uninterrupted

from .base import Array, ArrayHandOff
from .dlpack import DLPackArray, in_dlpack


class TorchHandOff(ArrayHandOff):
    """Hand-off by `torch.from_dlpack`."""

    def __init__(self) -> None:
        try:
            self._torch = import_uninterrupted(lambda: importlib.import_module("torch"))
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ArgumentError(
                '`output` (="torch") needs PyTorch, which is not installed: `pip install torch`.'
            ) from error

    def convert(self, array: Array) -> Any:
        return self._torch.from_dlpack(DLPackArray(array))

    def accepts(self, dtype: np.dtype[Any]) -> bool:
        # PyTorch names its number types like NumPy. Some versions lack some of them.
        return in_dlpack(dtype) and hasattr(self._torch, dtype.name)

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        native = dtype.newbyteorder("=")
        if not self.accepts(native):
            raise ArgumentError(
                f'field {name!r} has dtype {dtype}, which PyTorch does not have; use output="numpy".'
            )
        return native
