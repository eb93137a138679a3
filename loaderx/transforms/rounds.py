"""Repeated choices: Rounds, RandomOrder and SomeOf, several of some chains of ops, drawn for every sample."""

from collections.abc import Callable
from collections.abc import Sequence as Several
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import pick
from loaderx.spec import Spec

from .arguments import RNG, Given, array_at, value
from .base import is_integer
from .combinators import Branching, Sequence, as_branches
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


WORD = Spec((1,), np.int64)


@jitable
def draw_order(rng: Any, order: Any) -> None:
    """Draw a random order of the numbers below the length of an array."""
    for k in range(order.shape[0]):
        order[k] = k
    rng.shuffle(order)


@jitable
def draw_left_out(rng: Any, number: int, left_out: Any) -> None:
    """Write 0 for `number` random entries of an array and 1 for the others: selection sampling (Knuth, volume 2)."""
    wanted = number
    for k in range(left_out.shape[0]):
        taken = rng.integers(0, left_out.shape[0] - k) < wanted
        left_out[k] = 0 if taken else 1
        wanted -= 1 if taken else 0


@jitable
def take_number(numbers: Any, place: Any, out: Any) -> None:
    """Take one of some numbers, in memory."""
    out[0] = numbers[place[0]]


class Repeating(Branching):
    """Branches that are chosen several times, one after the other, on a sample that stays in place."""

    def _is_in_place(self) -> bool:
        return True

    def write_turns(
        self, table: "TableBuilder", step: Step, state: int, number: int, here: int, there: int, spec: Spec
    ) -> None:  # fmt: skip
        """Write as many choices as register `number` says, on the sample at `here`.

        A branch that is not in place writes from `here` to `there`, and the two are exchanged.
        """

        with table.loop(number) as turn:
            branches: list[Callable[[], None]] = [
                partial(self.write_branch, table, branch, steps, here, there, spec)
                for branch, steps in zip(self.branches, self._steps(step), strict=True)
            ]
            self.write_turn(table, step, state, turn, branches)

    def write_turn(
        self, table: "TableBuilder", step: Step, state: int, turn: int, branches: list[Callable[[], None]]
    ) -> None:  # fmt: skip
        """Write the choice of one turn, whose number is in register `turn`."""
        self.write_choice(table, state, branches)

    def write_branch(
        self, table: "TableBuilder", branch: Sequence, steps: list[Step], here: int, there: int, spec: Spec
    ) -> None:  # fmt: skip
        """Write a branch on the sample at `here`."""
        if branch.in_place:
            table.chain(steps, here, spec, here)
        else:
            table.chain(steps, here, spec, there)
            table.swap(here, there)


class Rounds(Repeating):
    """Several draws, `number` of them, of one of the branches."""

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


class RandomOrder(Repeating):
    """Random order of all of these ops or lists of ops, one after the other, drawn for every sample."""

    def __init__(self, *ops: Any) -> None:
        super().__init__(as_branches(self.name, ops))

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step, count = group[0], len(self.branches)
        order = table.space(8 * count)
        table.call(step, draw_order, [RNG, self._order(order)], x, x)
        here, there, number = table.register(), table.register(), table.register()
        table.move(x, here)
        table.move(table.place(spec.nbytes), there)
        table.set(number, count)
        self.write_turns(table, step, order, number, here, there, spec)
        table.settle(here, x, spec.nbytes)

    def write_turn(
        self, table: "TableBuilder", step: Step, state: int, turn: int, branches: list[Callable[[], None]]
    ) -> None:  # fmt: skip
        chosen, limit = table.register(), table.register()
        place = table.place_of(chosen)
        given = [self._order(state), array_at("scratch", WORD, offset=table.offset_of(turn))]
        table.call(step, take_number, [*given, array_at("out", WORD)], place, place)
        skips: list[int] = []

        def begin(number: int) -> None:
            if skips:
                table.continue_here(skips.pop())
            table.set(limit, number + 1)
            skips.append(table.skip(chosen, limit))

        self.write_branches(table, branches, begin)
        table.continue_here(skips.pop())

    def _order(self, offset: int) -> Given:
        return array_at("scratch", Spec((len(self.branches),), np.int64), offset=offset)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        branches = self.interpret_branches(step, spec, compiled)

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            order = np.empty(len(branches), np.int64)
            draw_order(step.draws(position, turns), order)
            for turn, number in enumerate(order):
                x = branches[number](x, position, length, (*turns, turn))
            return x

        return call


class SomeOf(Repeating):
    """Random subset of `number` of these ops or lists of ops, drawn for every sample, in the order given."""

    def __init__(self, number: int, *ops: Any) -> None:
        super().__init__(as_branches(self.name, ops))
        count = len(self.branches)
        if not is_integer(number, 0) or number > count:
            raise ArgumentError(
                f"`number` (={number!r}) must be an integer from 0 to {count}, the number of ops."
            )
        self.number = int(number)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step = group[0]
        here, there, limit = table.register(), table.register(), table.register()
        # Registers are counted downwards: the last of these is the first number of the array.
        flags = [table.register() for _ in self.branches]
        numbers = Spec((len(flags),), np.int64)
        left_out = array_at("scratch", numbers, offset=table.offset_of(flags[-1]))
        table.call(step, draw_left_out, [RNG, value(self.number), left_out], x, x)
        table.move(x, here)
        table.move(table.place(spec.nbytes), there)
        table.set(limit, 1)
        # Branches run one after the other, so they share their memory.
        start = most = table.scratch
        for branch, steps, flag in zip(
            self.branches, self._steps(step), reversed(flags), strict=True
        ):
            table.scratch = start
            skip = table.skip(flag, limit)
            self.write_branch(table, branch, steps, here, there, spec)
            table.continue_here(skip)
            most = max(most, table.scratch)
        table.scratch = most
        table.settle(here, x, spec.nbytes)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        branches = self.interpret_branches(step, spec, compiled)

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            left_out = np.empty(len(branches), np.int64)
            draw_left_out(step.draws(position, turns), self.number, left_out)
            for branch, skipped in zip(branches, left_out, strict=True):
                x = x if skipped else branch(x, position, length, turns)
            return x

        return call
