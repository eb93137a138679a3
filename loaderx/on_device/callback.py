"""Callback: batches of a DataLoader inside jit and scan, in order, while its threads continue on the host."""

from typing import Any, Generic, Self

import jax
import numpy as np
from jax.experimental import io_callback

from loaderx.batch.batch_types import Batch_co
from loaderx.errors import ArgumentError
from loaderx.output.jax import JaxHandOff
from loaderx.run.iterator import LoaderIterator


class Stream(Generic[Batch_co]):
    """Stream that returns the next batch when a jitted function calls it. Made by `loader.as_callback()`.

    It has a position, like an iterator: a function that was compiled with it gets the next batch at every run.
    """

    def __init__(self, iterator: LoaderIterator, first: Any) -> None:
        self._iterator = iterator
        self._shapes = jax.tree.map(_shape, first)

    def __call__(self) -> Batch_co:
        """Return the next batch, from within jit, scan or while_loop; not under vmap."""
        batch: Batch_co = io_callback(self._next, self._shapes, ordered=True)
        return batch

    def _next(self) -> Any:
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise RuntimeError("the stream of this loader is at its end.") from None
        # A callback that JAX waits for must not call JAX; reading an array on the CPU does not.
        batch = jax.tree.map(np.asarray, batch)
        for shape, array in zip(jax.tree.leaves(self._shapes), jax.tree.leaves(batch), strict=True):
            if shape.shape != array.shape:
                raise RuntimeError(
                    f"a batch has shape {array.shape} where {shape.shape} was compiled for."
                )
        return batch

    @property
    def step(self) -> int:
        """Step of the next batch."""
        return self._iterator.step

    def get_state(self) -> dict[str, Any]:
        """Return the state. Wait for your computations first: they consume batches while they run."""
        return self._iterator.get_state()

    def set_state(self, state: Any, *, strict: bool = True) -> None:
        """Resume where another stream or iterator was."""
        self._iterator.set_state(state, strict=strict)

    def close(self) -> None:
        """Stop the worker threads."""
        self._iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _shape(value: Any) -> Any:
    dtype, hand_off = np.asarray(value).dtype, JaxHandOff()
    if not hand_off.has(dtype) or hand_off.dtype("", dtype) != dtype:
        raise ArgumentError(
            f'a batch has {dtype}, which a compiled program cannot accept; use output="jax" and give numbers only.'
        )
    shape: Any = jax.ShapeDtypeStruct
    return shape(np.shape(value), dtype)


def check_constant(remainder: str, endless: bool) -> None:
    """Refuse streams whose last batch has another shape."""
    if remainder == "keep" or (remainder == "straddle" and not endless):
        raise ArgumentError(
            f"remainder={remainder!r} gives a last batch of another shape, and a compiled program has one; use "
            '"drop" or "pad", or an endless loader.'
        )
