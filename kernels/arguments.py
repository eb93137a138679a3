"""Checks of the arguments of public functions: each returns the text of an error message, or None."""

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def out_problem(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], others: Mapping[str, NDArray[Any]]
) -> str | None:
    """Say why `out` cannot hold a result of this shape and dtype, made of `others`; return None if it can."""
    if not isinstance(out, np.ndarray):
        return f"`out` (a {type(out).__name__}) must be a NumPy array."
    if out.shape != shape:
        return f"`out` has the shape {out.shape}, and must have the shape {shape}."
    if out.dtype != dtype:
        return f"`out` has the dtype {out.dtype}, and must have the dtype {dtype}."
    flags = out.flags
    if not flags.c_contiguous:
        return f"`out` has the strides {out.strides}, and must be C-contiguous."
    if not flags.aligned:
        return f"`out` begins at the address {out.ctypes.data}, and must be aligned."
    if not flags.writeable:
        return "`out` is read-only, and must be writable."
    for name, other in others.items():
        if np.may_share_memory(out, other):
            return f"`out` overlaps the memory of `{name}`, and must have memory of its own."
    return None


def threads_problem(threads: Any) -> str | None:
    """Say why `threads` is not a number of threads; return None if it is."""
    if threads is None:
        return None
    try:
        if not isinstance(threads, bool) and operator.index(threads) >= 1:
            return None
    except TypeError:
        pass
    return f"`threads` (={threads!r}) must be an integer of at least 1, or None for those of Numba."


def integers_in(numbers: Any) -> NDArray[np.int64] | None:
    """Return a new one-dimensional array of integers; None if `numbers` is anything else."""
    found = np.asarray(numbers)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size > 0):
        return None
    if found.dtype == np.uint64 and found.size > 0 and found.max() > np.iinfo(np.int64).max:
        return None
    return found.astype(np.int64)
