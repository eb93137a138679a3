"""Step: one op of a chain, with its place there."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.distributions import Draws
from loaderx.kernels.keys import derive_key
from loaderx.kernels.random import BRANCH, fold
from loaderx.spec import Spec

from .base import Transform

# (sample, position, entries of it that are data, turns of the policies around) -> sample
Call: TypeAlias = Callable[[NDArray[Any], int, int, tuple[int, ...]], NDArray[Any]]


@dataclass(frozen=True)
class BoxesBefore:
    """Boxes next to a sample, as they are before a step: their field of the data, its spec, and the steps so far.

    `image` is the spec of the image at that point.
    """

    origin: str
    spec: Spec
    steps: tuple["Step", ...]
    image: Spec

    def after(self, step: "Step") -> "BoxesBefore":
        """Return the boxes as they are after a step on the image, or on points that follow it."""
        moved = Step(step.transform.for_points(self.image), step.key)
        image = step.transform.output(self.image)
        return replace(self, steps=(*self.steps, moved), image=image)


@dataclass(frozen=True)
class Step:
    """One op of a chain, with the key of its draws; a field that `follows`, as labels do, is sampled and never mixed.

    At most `most` entries of its samples along their first axis are data, and not padding. `image` is the spec of
    the image of its entry; for an op on whole batches, which needs it, that of the first field. `spec` is that of its
    own samples, once the steps that run as one pass are known. `boxes` are those next to its samples, if it looks at
    them.
    """

    transform: Transform
    key: int
    follows: bool = False
    most: int = 0
    image: Spec | None = None
    spec: Spec | None = None
    boxes: BoxesBefore | None = None

    def inside(self, ops: tuple[Transform, ...], number: int = 0) -> list["Step"]:
        """Return the steps of branch `number` of this one, with keys of their own."""
        found = []
        boxes = self.boxes
        for place, op in enumerate(ops):
            key = derive_key(self.key, BRANCH, number, place)
            step = Step(op, key, self.follows, self.most, boxes=boxes)
            boxes = None if boxes is None else boxes.after(step)
            found.append(step)
        return found

    def turned_key(self, turns: tuple[int, ...]) -> np.uint64:
        """Return its key inside of policies that are at these turns."""
        key = self.key
        for turn in turns:
            key = fold(np.uint64(key), np.uint64(turn))
        return np.uint64(key)

    def draws(self, position: int, turns: tuple[int, ...]) -> Draws:
        """Return `rng` for a sample, in plain Python."""
        return Draws(fold(self.turned_key(turns), np.uint64(position)))
