"""Output by DLPack: objects that any framework imports without a copy.

A `DLPackArray` is a host array with `__dlpack__` and `__dlpack_device__`. NumPy makes the capsules and manages their
lifetime, also after the end of the interpreter. It does not support the number types of ml_dtypes: bfloat16 is exported
as uint16 bits, and the type is corrected in the capsule.
"""

import ctypes
from typing import Any

import numpy as np

from loaderx.errors import ArgumentError

from .base import Array, ArrayHandOff

# Kinds of dtypes that DLPack has: bool, integers, floats, complex numbers.
KINDS = "biufc"
# Number type that NumPy cannot export, and its code in DLPack.
BFLOAT16, BFLOAT16_CODE = "bfloat16", 4
# Offsets in bytes: of `DLTensor` in the struct of a capsule, by the capsule's name, and of the type code in `DLTensor`.
TENSOR_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}
CODE_OFFSET = 20

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.argtypes, _name_of.restype = [ctypes.py_object], ctypes.c_char_p
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class DLPackArray:
    """Host array for any importer: `torch.from_dlpack(x)`, `jax.dlpack.from_dlpack(x)`, `np.asarray(x)`.

    Importers share its memory, which is reused for another batch only when the last of them is gone.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its axes."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __dlpack__(self, **options: Any) -> Any:
        array = self._array
        if array.dtype.name != BFLOAT16:
            return array.__dlpack__(**options)
        capsule = array.view(np.uint16).__dlpack__(**options)
        name = _name_of(capsule)
        code = _pointer_of(capsule, name) + TENSOR_OFFSETS[name] + CODE_OFFSET
        ctypes.c_uint8.from_address(code).value = BFLOAT16_CODE
        return capsule

    def __repr__(self) -> str:
        return f"DLPackArray(shape={self.shape}, dtype={self.dtype})"


def in_dlpack(dtype: np.dtype[Any]) -> bool:
    """Return True if DLPack has a dtype and it can be exported."""
    if dtype.name == BFLOAT16:
        return True
    # For NumPy longdouble is a float, too; types of other packages are not built in.
    own = np.dtype(dtype.type).isbuiltin == 1
    return own and dtype.isnative and dtype.kind in KINDS and dtype.char not in "gG"


class DLPackHandOff(ArrayHandOff):
    """Hand-off of `DLPackArray`s."""

    def convert(self, array: Array) -> Any:
        return DLPackArray(array)

    def accepts(self, dtype: np.dtype[Any]) -> bool:
        return in_dlpack(dtype)

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        native = dtype.newbyteorder("=")
        if not in_dlpack(native):
            raise ArgumentError(
                f'field {name!r} has dtype {dtype}, which DLPack does not have; use output="numpy".'
            )
        return native
