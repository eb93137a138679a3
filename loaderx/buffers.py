"""Buffers: a pool of memory for batches, and the one place that decides when memory is reused.

A batch array is made from a small lease object through `__array_interface__`. So every view of the array, every
jax.Array made from it and every computation on that keeps the lease alive. When the lease is gone nothing can access
the memory any more, and the slab returns to the pool.
"""

import weakref
from collections import OrderedDict, deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

# JAX accepts a NumPy buffer without a copy only if it has this alignment, which is also a cache line.
ALIGNMENT = 64


class Lease:
    """Lease of a slab, for the lifetime of this object."""

    __slots__ = ("__array_interface__", "__weakref__", "_slab", "address")

    def __init__(self, slab: "Slab", shape: tuple[int, ...], typestr: str) -> None:
        # A lease may outlive its pool.
        self._slab = slab
        self.address = slab.address
        self.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (slab.address, False),
            "version": 3,
        }


def leased_address(leased: NDArray[Any]) -> int:
    """Return the address of a leased array, without the microseconds that `array.ctypes` takes."""
    base: Any = leased.base
    while not isinstance(base, Lease):
        base = base.base
    return base.address


class Slab:
    """Slab of aligned memory."""

    __slots__ = ("_memory", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = self._memory.ctypes.data
        self.address = start + -start % ALIGNMENT
        self.nbytes = nbytes


class LeaseRef(weakref.ref[Lease]):
    """Weak reference to a lease that keeps its slab for the next lease; a third of the cost of `weakref.finalize`."""

    __slots__ = ("slab",)

    slab: Slab


class Pool:
    """Pool of slabs of one size. The slabs of the newest `keep` leases are reused; an older lease owns its slab alone.

    So the memory of a batch that a consumer keeps for long is freed with the batch, and other batches continue to share
    a few slabs.
    """

    def __init__(self, nbytes: int, keep: int) -> None:
        self._nbytes = nbytes
        self._keep = keep
        # Leases end in any thread, also inside a garbage collection that interrupts this class: so there is no lock,
        # only atomic operations. The callback of the weak references is the `append` of this deque itself. Python
        # prints and drops an exception in a callback's Python code, such as the KeyboardInterrupt of Ctrl-C, and the
        # consumer's loop would continue.
        self._ended: deque[LeaseRef] = deque()
        # Leases in use, the oldest first. A weak reference calls back only while it is itself referenced.
        self._out: OrderedDict[LeaseRef, None] = OrderedDict()

    def lease(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialised array of this shape, which must fit into a slab."""
        try:
            ended = self._ended.pop()
        except IndexError:
            slab = Slab(self._nbytes)
        else:
            self._out.pop(ended, None)
            slab = ended.slab
        # In `__array_interface__` dtypes of other packages, such as bfloat16, have a size only.
        own = dtype.isbuiltin == 1
        lease = Lease(slab, shape, dtype.str if own else f"|V{dtype.itemsize}")
        ref = LeaseRef(lease, self._ended.append)
        ref.slab = slab
        self._out[ref] = None
        if len(self._out) > self._keep:
            self._out.popitem(last=False)
        array = np.asarray(lease)
        return array if own else array.view(dtype)

    @property
    def free(self) -> int:
        """Number of slabs that are ready for reuse."""
        return len(self._ended)
