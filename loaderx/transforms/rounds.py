"""Rounds: several times one of some chains of ops, drawn anew each time."""

from collections.abc import Callable
from collections.abc import Sequence as Several
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.distributions import pick
from loaderx.spec import Spec

from .base import is_integer
from .combinators import Branching, Sequence
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class Repeating(Branching):
    """Branches that are chosen several times, one after the other, on a sample that stays where it is."""

    def _is_in_place(self) -> bool:
        return True

    def write_turns(
        self, table: "TableBuilder", step: Step, state: int, number: int, here: int, there: int, spec: Spec
    ) -> None:  # fmt: skip
        """Write as many choices as register `number` says, on the sample at `here`.

        A branch that is not in place goes from `here` to `there`, which then change their meaning.
        """

        def write(branch: Sequence, steps: list[Step]) -> None:
            if branch.in_place:
                table.chain(steps, here, spec, here)
            else:
                table.chain(steps, here, spec, there)
                table.swap(here, there)

        with table.loop(number):
            branches: list[Callable[[], None]] = [
                partial(write, branch, steps)
                for branch, steps in zip(self.branches, self._steps(step), strict=True)
            ]
            self.write_choice(table, state, branches)


class Rounds(Repeating):
    """`number` times one of the branches."""

    def __init__(self, branches: Several[Sequence], number: int, weights: Any = None) -> None:
        super().__init__(branches, weights)
        if not is_integer(number, 0):
            raise ArgumentError(f"`number` (={number!r}) must be an integer of at least 0.")
        self.number = int(number)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step = group[0]
        state = table.start_draws(step)
        here, there, number = table.register(), table.register(), table.register()
        table.move(x, here)
        table.move(table.place(spec.nbytes), there)
        table.set(number, self.number)
        self.write_turns(table, step, state, number, here, there, spec)
        table.settle(here, x, spec.nbytes)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        branches = self.interpret_branches(step, spec, compiled)

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            rng = step.draws(position, turns)
            for turn in range(self.number):
                x = branches[pick(rng, self.shares)](x, position, length, (*turns, turn))
            return x

        return call
