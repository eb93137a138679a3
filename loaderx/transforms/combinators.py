"""Combinators: Sequence, Maybe and OneOf, chains of ops inside of a chain, drawn for every sample."""

import copy
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.distributions import pick
from loaderx.spec import Spec

from .advice import advice
from .authoring import TransformFactory
from .base import Leaf, Transform, as_number, between
from .kinds import Kind
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class Sequence(Transform):
    """Ops one after the other, where one op is expected: `OneOf(A, Sequence(B, C))`."""

    def __init__(self, *ops: Any) -> None:
        self.ops = as_ops(self.name, ops)
        self.spatial = any(op.spatial for op in self.ops)
        self.takes_images = any(op.takes_images for op in self.ops)
        self.in_place = all(op.in_place for op in self.ops)

    def output(self, spec: Spec) -> Spec:
        for op in self.ops:
            spec = op.output(spec)
        return spec

    @property
    def inside(self) -> tuple[Transform, ...]:  # type: ignore[override]
        return self.ops

    def flattened(self, step: Step) -> list[Step]:
        return [own for each in step.inside(self.ops) for own in each.transform.flattened(each)]

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        raise AssertionError("a sequence is flattened before")

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        return in_sequence(step.inside(self.ops), spec, compiled)

    def leaves(self, spec: Spec, before: tuple[Transform, ...] = ()) -> Iterator[Leaf]:
        for place, op in enumerate(self.ops):
            yield from op.leaves(spec, (*before, *self.ops[:place]))
            spec = op.output(spec)

    @property
    def does_nothing(self) -> bool:  # type: ignore[override]
        return all(op.does_nothing for op in self.ops)

    def for_kind(self, kind: Kind) -> Transform:
        changed = [op.for_kind(kind) for op in self.ops]
        same = all(new is op for new, op in zip(changed, self.ops, strict=True))
        return self if same else self._with(changed)

    def for_labels(self) -> Transform:
        return self._with(op.for_labels() for op in self.ops)

    def for_length(self) -> Transform:
        return self._with(op.for_length() for op in self.ops)

    def for_points(self, image: Spec) -> Transform:
        moved = []
        for op in self.ops:
            moved.append(op.for_points(image))
            image = op.output(image)
        return self._with(moved)

    def _with(self, ops: Any) -> "Sequence":
        changed = copy.copy(self)
        changed.ops = tuple(ops)
        changed.in_place = all(op.in_place for op in changed.ops)
        return changed


def in_sequence(steps: list[Step], spec: Spec, compiled: Any) -> Call:
    """Return steps as one function of a sample, in plain Python."""
    calls = []
    for step in steps:
        calls.append(step.transform.interpret(step, spec, compiled))
        spec = step.transform.output(spec)

    def call(x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]) -> NDArray[Any]:
        for each in calls:
            x = each(x, position, length, turns)
        return x

    return call


class Branching(Transform):
    """Choice between chains of ops, drawn anew for every sample, once or in several rounds."""

    # Whether every branch must give samples like those it gets.
    keeps: bool = True

    def __init__(self, branches: Several[Sequence], weights: Any = None) -> None:
        self.branches = tuple(branches)
        if not self.branches:
            raise ArgumentError(f"{self.name} needs at least one op to choose from.")
        self.shares = _shares(weights, len(self.branches))
        self.spatial = any(branch.spatial for branch in self.branches)
        self.takes_images = any(branch.takes_images for branch in self.branches)
        self.in_place = self._is_in_place()

    @property
    def inside(self) -> tuple[Transform, ...]:  # type: ignore[override]
        return tuple(op for branch in self.branches for op in branch.ops)

    def _is_in_place(self) -> bool:
        return all(branch.in_place for branch in self.branches)

    def output(self, spec: Spec) -> Spec:
        results = [branch.output(spec) for branch in self.branches]
        wanted = spec if self.keeps else results[0]
        for branch, result in zip(self.branches, results, strict=True):
            if result != wanted:
                rule = f"as {wanted}" if self.keeps else f"as {wanted}, like the first"
                raise ArgumentError(
                    f"{self.name}: every branch must give the sample {rule}; {branch.ops} makes {result} of {spec}."
                )
        return wanted

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step = group[0]
        state = table.start_draws(step)
        self.write_choice(
            table,
            state,
            [partial(table.chain, steps, x, spec, out) for steps in self._steps(step)],
        )

    def write_choice(
        self, table: "TableBuilder", state: int, branches: list[Callable[[], Any]]
    ) -> None:
        """Write a draw of one of the branches, and what each of them writes."""
        continues = table.pick(state, self.shares)

        def begin(number: int) -> None:
            continues[number] = table.here

        self.write_branches(table, branches, begin)

    def write_branches(
        self,
        table: "TableBuilder",
        branches: list[Callable[[], Any]],
        begin: Callable[[int], None],
    ) -> None:
        """Write the passes of each of the branches, of which one runs; `begin` gets the position where each begins."""
        ends = []
        # No two branches run for one sample, so they share their memory.
        start = most = table.scratch
        for number, write in enumerate(branches):
            table.scratch = start
            begin(number)
            write()
            ends.append(table.jump())
            most = max(most, table.scratch)
        table.scratch = most
        for end in ends:
            table.continue_here(end)

    def _steps(self, step: Step) -> list[list[Step]]:
        return [step.inside(branch.ops, number) for number, branch in enumerate(self.branches)]

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        branches = self.interpret_branches(step, spec, compiled)

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            chosen = branches[int(pick(step.draws(position, turns), self.shares))]
            return chosen(x, position, length, turns)

        return call

    def interpret_branches(self, step: Step, spec: Spec, compiled: Any) -> list[Call]:
        """Return every branch as a function of a sample, in plain Python."""
        return [in_sequence(steps, spec, compiled) for steps in self._steps(step)]

    def leaves(self, spec: Spec, before: tuple[Transform, ...] = ()) -> Iterator[Leaf]:
        for branch in self.branches:
            yield from branch.leaves(spec, before)

    @property
    def does_nothing(self) -> bool:  # type: ignore[override]
        return all(branch.does_nothing for branch in self.branches)

    def for_kind(self, kind: Kind) -> Transform:
        same = all(branch.for_kind(kind) is branch for branch in self.branches)
        return self if same else self._with(lambda branch: branch.for_kind(kind))

    def for_labels(self) -> Transform:
        return self._with(lambda branch: branch.for_labels())

    def for_length(self) -> Transform:
        return self._with(lambda branch: branch.for_length())

    def for_points(self, image: Spec) -> Transform:
        return self._with(lambda branch: branch.for_points(image))

    def _with(self, change: Callable[[Sequence], Transform]) -> "Branching":
        changed = copy.copy(self)
        changed.branches = tuple(change(branch) for branch in self.branches)  # type: ignore[misc]
        changed.in_place = changed._is_in_place()
        return changed


class OneOf(Branching):
    """One of these ops or lists of ops, each as likely as the others, or by `weights`."""

    keeps = False

    def __init__(self, *ops: Any, weights: Any = None) -> None:
        super().__init__(as_branches(self.name, ops), weights)


class Maybe(Branching):
    """With `probability` these ops, one after the other; otherwise the sample as it is."""

    def __init__(self, probability: float, *ops: Any) -> None:
        share = between("probability", probability, 0, 1)
        super().__init__((Sequence(*as_ops(self.name, ops)), Sequence()))
        self.shares = np.array([share, 1.0])


class Chance(Maybe):
    """Op with a `probability` below 1: with it the op, otherwise the sample as it is."""

    def __init__(self, op: Transform) -> None:
        self._op = copy.copy(op)
        self._op.chance = 1.0
        self._probability = op.chance
        super().__init__(op.chance, self._op)

    @property
    def name(self) -> str:
        return self._op.name

    def __repr__(self) -> str:
        return repr(self._op)

    @property
    def inside(self) -> tuple[Transform, ...]:  # type: ignore[override]
        """Return the ops that its op chooses from: it is shown as its op."""
        return self._op.inside

    @property
    def sees_kinds(self) -> bool:
        return self._op.sees_kinds

    def output(self, spec: Spec) -> Spec:
        result = self.branches[0].output(spec)
        if result != spec:
            raise ArgumentError(
                f"{self.name}: `probability` (={self._probability:g}) must be 1 here: the op makes {result} of {spec}, "
                "and a sample that is left as it is would be of another shape or dtype."
            )
        return spec


def left_to_chance(op: Transform) -> Transform:
    """Return an op as a chain runs it: a choice where its `probability` is below 1, and itself otherwise."""
    return Chance(op) if op.chance < 1 else op


def as_branches(name: str, given: Several[Any]) -> list[Sequence]:
    """Return branches from ops and lists of ops, one by one or in a list."""
    ops = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return [op if isinstance(op, Sequence) else Sequence(*as_ops(name, [op])) for op in ops]


def as_ops(name: str, given: Several[Any]) -> tuple[Transform, ...]:
    """Return compiled ops, one by one or in a list."""
    ops = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    found = [op() if isinstance(op, TransformFactory) else op for op in ops]
    for op in found:
        if isinstance(op, Transform) and op.needs_batch:
            raise ArgumentError(
                f"{name}: {op.name} mixes samples of a batch and cannot be left to chance."
            )
        if not isinstance(op, Transform):
            hint = f": {advice(op)}" if callable(op) else ""
            raise ArgumentError(f"{name} accepts compiled transforms, not {op!r}{hint}.")
    return tuple(map(left_to_chance, found))


def _shares(weights: Any, count: int) -> NDArray[np.float64]:
    """Return cumulative probabilities."""
    numbers = np.ones(count)
    if weights is not None:
        several = isinstance(weights, tuple | list | np.ndarray)
        numbers = np.array([as_number(weight) for weight in weights] if several else [np.nan])
    if len(numbers) != count or not np.all(numbers >= 0) or not 0 < numbers.sum() < np.inf:
        raise ArgumentError(
            f"`weights` (={weights!r}) must be {count} finite numbers of at least 0, one for each op, not all 0."
        )
    shares: NDArray[np.float64] = np.cumsum(numbers) / numbers.sum()
    # A branch of weight 0 at the end must not get the error of rounding.
    shares[np.flatnonzero(numbers)[-1] :] = 1.0
    return shares
