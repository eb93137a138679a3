"""Sequence, Maybe, OneOf: chains of ops inside of a chain, chosen for every sample by chance."""

import copy
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.spec import Spec

from .advice import advice
from .authoring import Author
from .mix import MixTransform
from .transform import Transform, as_number, between, is_integer


@jitable
def pick(rng: Any, shares: Any) -> Any:
    """The number of a branch; shares[k] is the probability of one of the branches up to k."""
    value = rng.random()
    for number in range(len(shares) - 1):
        if value < shares[number]:
            return number
    return len(shares) - 1


class Sequence(Transform):
    """Ops one after the other, where one op is expected: `OneOf(A, Sequence(B, C))`."""

    def __init__(self, *ops: Any) -> None:
        self.ops = as_ops(self.name, ops)
        self.spatial = any(op.spatial for op in self.ops)
        self.takes_images = any(op.takes_images for op in self.ops)

    def output(self, spec: Spec) -> Spec:
        for op in self.ops:
            spec = op.output(spec)
        return spec

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
        return changed


class Branching(Transform):
    """A choice between chains of ops, drawn anew for every sample, once or in several rounds."""

    # Whether every branch must give samples like those it gets.
    keeps: bool = True

    def __init__(self, branches: Several[Sequence], weights: Any = None) -> None:
        self.branches = tuple(branches)
        if not self.branches:
            raise ArgumentError(f"{self.name} needs at least one op to choose from.")
        self.shares = _shares(weights, len(self.branches))
        self.spatial = any(branch.spatial for branch in self.branches)
        self.takes_images = any(branch.takes_images for branch in self.branches)

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

    def for_labels(self) -> Transform:
        return self._with(lambda branch: branch.for_labels())

    def for_length(self) -> Transform:
        return self._with(lambda branch: branch.for_length())

    def for_points(self, image: Spec) -> Transform:
        return self._with(lambda branch: branch.for_points(image))

    def _with(self, change: Callable[[Sequence], Transform]) -> "Branching":
        changed = copy.copy(self)
        changed.branches = tuple(change(branch) for branch in self.branches)  # type: ignore[misc]
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


class Rounds(Branching):
    """`number` times one of the branches."""

    def __init__(self, branches: Several[Sequence], number: int, weights: Any = None) -> None:
        super().__init__(branches, weights)
        if not is_integer(number, 0):
            raise ArgumentError(f"`number` (={number!r}) must be an integer of at least 0.")
        self.number = int(number)


class Blend(Branching):
    """The sample mixed with `width` others that were made of it by `depth` branches each.

    The shares of these come from a Dirichlet distribution, that of the sample itself from a Beta distribution.
    """

    def __init__(
        self, branches: Several[Sequence], width: int, depth: tuple[int, int], alpha: float
    ) -> None:
        super().__init__(branches)
        self.width, self.depth, self.alpha = width, depth, alpha


def leaves(op: Transform, spec: Spec) -> Iterator[tuple[Transform, Spec]]:
    """Yield the ops inside of an op, or the op itself, each with the spec that it gets."""
    if isinstance(op, Sequence):
        for own in op.ops:
            yield from leaves(own, spec)
            spec = own.output(spec)
    elif isinstance(op, Branching):
        for branch in op.branches:
            yield from leaves(branch, spec)
    else:
        yield op, spec


def as_branches(name: str, given: Several[Any]) -> list[Sequence]:
    """Branches from ops and lists of ops, one by one or in a list."""
    ops = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return [op if isinstance(op, Sequence) else Sequence(*as_ops(name, [op])) for op in ops]


def as_ops(name: str, given: Several[Any]) -> tuple[Transform, ...]:
    """Compiled ops, one by one or in a list."""
    ops = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    found = [op() if isinstance(op, Author) else op for op in ops]
    for op in found:
        if isinstance(op, MixTransform):
            raise ArgumentError(
                f"{name}: {op.name} mixes samples of a batch and cannot be left to chance."
            )
        if not isinstance(op, Transform):
            hint = f": {advice(op)}" if callable(op) else ""
            raise ArgumentError(f"{name} takes compiled transforms, not {op!r}{hint}.")
    return tuple(found)


def _shares(weights: Any, count: int) -> NDArray[np.float64]:
    """Cumulative probabilities."""
    numbers = np.ones(count)
    if weights is not None:
        several = isinstance(weights, tuple | list | np.ndarray)
        numbers = np.array([as_number(weight) for weight in weights] if several else [np.nan])
    if len(numbers) != count or not np.all(numbers >= 0) or not 0 < numbers.sum() < np.inf:
        raise ArgumentError(
            f"`weights` (={weights!r}) must be {count} finite numbers of at least 0, one for each op, not all 0."
        )
    shares: NDArray[np.float64] = np.cumsum(numbers) / numbers.sum()
    # A branch of no weight at the end must not get what rounding left.
    shares[np.flatnonzero(numbers)[-1] :] = 1.0
    return shares
