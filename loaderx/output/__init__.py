"""Output: hand-off of finished host arrays to the consumer, with one file per framework."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loaderx.errors import ArgumentError

from .base import HandOff as HandOff

if TYPE_CHECKING:
    from .jax import Shardings

Output: TypeAlias = Literal["jax", "numpy", "torch", "dlpack"] | Callable[[Any], Any]
OUTPUTS = ("jax", "numpy", "torch", "dlpack")


def hand_off_to(output: Any, shardings: "Shardings" = None) -> HandOff:
    """Return the hand-off of an output: one of the names in `OUTPUTS`, or a function from array to array."""
    if shardings is not None and output != "jax":
        raise ArgumentError(f'`sharding` needs output="jax", not {output!r}.')
    # Imported here: each file imports its framework.
    if output == "jax":
        from .jax import JaxHandOff

        return JaxHandOff(shardings)
    if output == "numpy":
        from .numpy import NumpyHandOff

        return NumpyHandOff()
    if output == "torch":
        from .torch import TorchHandOff

        return TorchHandOff()
    if output == "dlpack":
        from .dlpack import DLPackHandOff

        return DLPackHandOff()
    if callable(output):
        from .function import FunctionHandOff

        return FunctionHandOff(output)
    names = ", ".join(map(repr, OUTPUTS))
    raise ArgumentError(
        f"`output` (={output!r}) must be one of {names}, or a callable from a NumPy array to the value to deliver."
    )
