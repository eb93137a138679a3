"""Ops that are one function of a sample: from this library, or a user's."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec

from .arguments import RNG, array_at, length_of, value
from .base import Parameter, Transform
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class FixedSpec(Spec):
    """Spec of a workspace whose shape is compiled in and does not depend on the size of samples."""


class SampleTransform(Transform):
    """Compiled function of one sample: `(x, [length,] [rng,] ...)` in place, or `(x, out, [length,] [rng,] ...)`.

    After these come the parameters, then the workspaces.
    """

    function: Callable[..., None]
    takes_rng: bool

    @abstractmethod
    def parameters(self, spec: Spec) -> Mapping[str, Parameter]:
        """Return the arguments after x, out and rng, for samples of `spec`."""

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        """Return the workspaces: arrays for use during a call, with undefined values at its beginning."""
        return ()

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step, result = group[0], self.output(spec)
        # The natural loops of a user run at memory speed where their bounds are constants: 14 us for 224 x 224 x 3
        # floats, against 58 us.
        fixed = self.checked
        given = [array_at("x", spec, fixed=fixed)]
        if not self.in_place:
            given.append(array_at("out", result, fixed=fixed))
        if self.takes_length:
            given.append(length_of(min(step.most, spec.shape[0])))
        given += [RNG] if self.takes_rng else []
        given += [value(parameter) for parameter in self.parameters(spec).values()]
        given += [
            table.workspace(space, fixed=isinstance(space, FixedSpec))
            for space in self.workspaces(spec)
        ]
        if self.checked and not self.in_place:
            table.mark(out, result.nbytes)
        table.call(step, self.function, given, x, out, checked=self.checked)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        output = self.output(spec)
        # As NumPy scalars: see Draws.
        parameters = [
            given if isinstance(given, np.ndarray | bool) else np.asarray(given)[()]
            for given in self.parameters(spec).values()
        ]

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            x = np.atleast_1d(x)
            out = x if self.in_place else np.empty(output.shape or (1,), output.dtype)
            given: list[Any] = [x] if self.in_place else [x, out]
            if self.takes_length:
                given.append(min(length, step.most, spec.shape[0]))
            given += [step.draws(position, turns)] if self.takes_rng else []
            # Zeros: loops over whole blocks pass the end of a sample, and NumPy would warn of undefined values there.
            spaces = [np.zeros(space.shape, space.dtype) for space in self.workspaces(spec)]
            self.function(*given, *parameters, *spaces)
            return out.reshape(output.shape)

        return call
