"""Plain callables among the ops: called once per sample, under the GIL."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.errors import TransformError
from loaderx.kernels.distributions import Draws
from loaderx.spec import Spec

from .advice import advice
from .base import Leaf, Transform
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.chain import Chain
    from loaderx.compiler.table import TableBuilder


class PythonDraws(Draws):
    """Draws for a function that is never compiled: floats are Python's, as those of numpy.random.Generator.

    Pillow's filters, for example, refuse NumPy's floats.
    """

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__(name)
        if not inspect.ismethod(own):
            return own

        def draw(*given: Any, **named: Any) -> Any:
            drawn = own(*given, **named)
            return float(drawn) if isinstance(drawn, np.float64) else drawn

        return draw


class PythonFunction(Transform):
    """Plain callable on one sample, `f(x)` or `f(x, rng)`, that returns the sample."""

    is_python = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._takes_rng = takes_rng(function)

    @property
    def name(self) -> str:
        return name_of(self.function)

    @property
    def advice(self) -> str:
        """Return how to make it faster."""
        return advice(self.function)

    def output(self, spec: Spec) -> Spec:
        raise AssertionError("the result of a Python function is known when it has run")

    def add_to(self, chain: "Chain", step: Step) -> None:
        call = self.interpret(step, chain.output, None)
        sample = chain.sample_so_far()
        answer = self._call(sample, step, 0)
        result = np.asarray(answer)
        if result.dtype.hasobject:
            raise TransformError(
                f"{self.name!r} returned {answer!r}; it must return the sample, as an array."
            )
        chain.add_python(self.name, call, Spec(result.shape, result.dtype))

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        raise AssertionError(
            "a Python function is called between two tables, and never inside of one"
        )

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        return lambda x, position, length, turns: self._call(x, step, position)

    def _call(self, x: Any, step: Step, position: int) -> Any:
        if self._takes_rng:
            return self.function(x, PythonDraws(int(step.draws(position, ()).state)))
        return self.function(x)

    def leaves(self, spec: Spec, before: tuple[Transform, ...] = ()) -> Iterator[Leaf]:
        return iter(())


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a plain callable in messages."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


def takes_rng(function: Callable[..., Any]) -> bool:
    """Return whether a callable needs two arguments: one named rng, or one without a default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = parameters[1] if len(parameters) > 1 else None
    return (
        second is not None
        and second.kind in positional
        and (second.name == "rng" or second.default is inspect.Parameter.empty)
    )
