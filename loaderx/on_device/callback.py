"""A DataLoader inside jit and scan: batches come from the host, in order, while its threads go on."""

from typing import Any, Generic, Self

import jax
import numpy as np
from jax.experimental import io_callback

from loaderx.batch.batch_types import Batch_co
from loaderx.errors import ArgumentError
from loaderx.output.jax import JaxHandOff
from loaderx.run.iterator import LoaderIterator


class Stream(Generic[Batch_co]):
    """Called inside a jitted function it gives the next batch. Made by `loader.as_callback()`.

    It has a position, as an iterator has: a function that was compiled with it takes the next batch at every run.
    """

    def __init__(self, iterator: LoaderIterator, first: Any) -> None:
        self._iterator = iterator
        self._shapes = jax.tree.map(_shape, first)

    def __call__(self) -> Batch_co:
        """The next batch, from within jit, scan or while_loop; not under vmap."""
        batch: Batch_co = io_callback(self._next, self._shapes, ordered=True)
        return batch

    def _next(self) -> Any:
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise RuntimeError("the stream of this loader is at its end.") from None
        # JAX must not be called from a callback that it waits for; reading an array on the CPU is no such call.
        batch = jax.tree.map(np.asarray, batch)
        for shape, array in zip(jax.tree.leaves(self._shapes), jax.tree.leaves(batch), strict=True):
            if shape.shape != array.shape:
                raise RuntimeError(
                    f"a batch has shape {array.shape} where {shape.shape} was compiled for."
                )
        return batch

    @property
    def step(self) -> int:
        """The step of the next batch."""
        return self._iterator.step

    def get_state(self) -> dict[str, Any]:
        """What was consumed; wait for your computations first, for they take batches while they run."""
        return self._iterator.get_state()

    def set_state(self, state: Any, *, strict: bool = True) -> None:
        """Go on where another stream or iterator was."""
        self._iterator.set_state(state, strict=strict)

    def close(self) -> None:
        """End the threads."""
        self._iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _shape(value: Any) -> Any:
    dtype, hand_off = np.asarray(value).dtype, JaxHandOff()
    if not hand_off.has(dtype) or hand_off.dtype("", dtype) != dtype:
        raise ArgumentError(
            f'a batch has {dtype}, which a compiled program cannot take; use output="jax" and give numbers only.'
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
