"""Memory for batches, and the one place that decides when it may be used again.

A batch array is made from a small lease object through `__array_interface__`, so the lease is what every view of the
array, every jax.Array made of it and every computation on that keeps alive. When the lease is gone nothing can see
the memory any more, and the slab goes back to the pool.
"""

import weakref
from collections import OrderedDict, deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

# JAX takes a NumPy buffer without a copy only from here on; it is also the size of a cache line.
ALIGNMENT = 64


class Lease:
    """The right to a slab, for as long as this object lives."""

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
    """Where a leased array begins; NumPy takes microseconds to say it."""
    base: Any = leased.base
    while not isinstance(base, Lease):
        base = base.base
    return base.address


class Slab:
    """Aligned memory."""

    __slots__ = ("_memory", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = self._memory.ctypes.data
        self.address = start + -start % ALIGNMENT
        self.nbytes = nbytes


class LeaseRef(weakref.ref[Lease]):
    """Weak reference to a lease that keeps its slab for the next one; a third of the cost of `weakref.finalize`."""

    __slots__ = ("slab",)

    slab: Slab


class Pool:
    """Slabs of one size. Those of the newest `keep` leases are used again; an older lease owns its slab alone.

    So memory that a consumer keeps for long is freed with it, and batches continue to share a few slabs meanwhile.
    """

    def __init__(self, nbytes: int, keep: int) -> None:
        self._nbytes = nbytes
        self._keep = keep
        # Leases end in whichever thread drops the last reference, also inside a garbage collection that interrupts
        # this very class: so there is no lock, only atomic operations. The callback of the weak references is the
        # `append` of this deque itself: of an exception in Python code there, such as Ctrl-C, Python would only
        # print a line, and the consumer's loop would continue.
        self._ended: deque[LeaseRef] = deque()
        # A weak reference that is not kept has no callback. The oldest is first.
        self._out: OrderedDict[LeaseRef, None] = OrderedDict()

    def lease(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of that shape, which must fit into a slab; its contents are arbitrary."""
        try:
            ended = self._ended.pop()
        except IndexError:
            slab = Slab(self._nbytes)
        else:
            self._out.pop(ended, None)
            slab = ended.slab
        # NumPy knows the dtypes of others, such as bfloat16, by their size only.
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
        """How many slabs wait to be used."""
        return len(self._ended)
