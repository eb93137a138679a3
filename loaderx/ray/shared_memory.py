"""Shared memory of Ray's object store: views of it that are counted for as long as they live.

The store has a fixed size. A consumer that keeps many batches would fill it, and nothing could be built any more. So
only so many bytes are shared, and what is beyond them is copied.
"""

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


class SharedView:
    """Holder of an array of the store. Every view of it, and every jax.Array made from one, keeps it alive."""

    __slots__ = ("__array_interface__", "__weakref__", "_array")

    def __init__(self, array: NDArray[Any], typestr: str) -> None:
        self._array = array
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": typestr,
            # Read-only: another attempt of the same step may be given the same memory.
            "data": (array.ctypes.data, True),
            "version": 3,
        }


class SharedMemory:
    """Account of the bytes of the store that batches share, up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._nbytes = 0
        # References to the views in use, and to those that have ended since the last call: see `buffers.Pool`.
        self._views: dict[weakref.ref[SharedView], int] = {}
        self._ended: deque[weakref.ref[SharedView]] = deque()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that are shared now."""
        with self._lock:
            return self._count()

    def _count(self) -> int:
        while self._ended:
            self._nbytes -= self._views.pop(self._ended.popleft())
        return self._nbytes

    def share(self, array: NDArray[Any]) -> NDArray[Any] | None:
        """Return a view of an array of the store; None if too much of the store is in use."""
        if not array.flags.c_contiguous:
            return None
        own = array.dtype.isbuiltin == 1
        with self._lock:
            if self._count() + array.nbytes > self._most:
                return None
            # In `__array_interface__` dtypes of other packages, such as bfloat16, have a size only.
            view = SharedView(array, array.dtype.str if own else f"|V{array.dtype.itemsize}")
            self._views[weakref.ref(view, self._ended.append)] = array.nbytes
            self._nbytes += array.nbytes
        shared = np.asarray(view)
        return shared if own else shared.view(array.dtype)
