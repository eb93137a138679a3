"""Base of all transforms: the effect on the spec of a sample, the passes, and how other fields follow."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from loaderx.display.reprs import ReprFromArguments
from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .kinds import IMAGE, LABELS, Kind

if TYPE_CHECKING:
    from loaderx.compiler.chain import Chain
    from loaderx.compiler.table import TableBuilder

    from .step import Call, Step

# Parameters of compiled code at run time: another value does not compile again.
Parameter: TypeAlias = int | float | bool | np.float32 | np.ndarray[Any, Any]


class Transform(ReprFromArguments, ABC):
    """Op on one sample: the base class of all ops. Each kind of op is a class in a file of its own."""

    @property
    def name(self) -> str:
        """Name of the op in messages."""
        return type(self).__name__

    @abstractmethod
    def output(self, spec: Spec) -> Spec:
        """Return the spec of the result for samples of `spec`; raise if the op does not accept these."""

    # Whether it moves pixels.
    spatial: bool = False
    # Whether it treats samples as images, of (height, width, channels) or (height, width).
    takes_images: bool = False
    # Whether it works in place.
    in_place: bool = False
    # Whether its results are images with their channels first.
    channels_first: bool = False
    # Whether it changes values only: an image stays an image, and boxes stay where they are.
    keeps_axes: bool = False
    # Whether it is a window onto an image, which others may continue.
    is_window: bool = False
    # Whether a window can be drawn and composed for images whose sizes differ: see the heads of chains.
    of_any_size: bool = True
    # Whether it is value * scale + bias, by `scale_and_bias`.
    is_scaling: bool = False
    # Whether it is compiled code of this library in debug mode, too.
    stays_compiled: bool = False
    # Whether it is a user's function, whose first samples are checked.
    checked: bool = False
    # Whether it is called in Python, sample by sample.
    is_python: bool = False
    # Whether it needs all samples of a batch, and whether it mixes the values of all fields of an entry alike, whatever
    # kind they are of.
    needs_batch: bool = False
    mixes_values: bool = False
    # The ops that it chooses from, or is made of.
    inside: "tuple[Transform, ...]" = ()
    # Whether it leaves every sample as it is.
    does_nothing: bool = False
    # Whether it needs to know how many entries of a sample along its first axis are data, and not padding.
    takes_length: bool = False
    # Whether it is of no use without boxes next to an image, and whether its draws depend on where these are.
    needs_boxes: bool = False
    draws_by_boxes: bool = False
    # With which probability it happens to a sample. Below 1 a chain chooses: see `left_to_chance`. Ops whose compiled
    # code draws whether they happen leave it at 1.
    chance: float = 1.0

    def happens_with(self, probability: float) -> None:
        """Let this op happen to a sample with `probability`: the call of a constructor that has this argument."""
        self.chance = between("probability", probability, 0, 1)

    def add_to(self, chain: "Chain", step: "Step") -> None:
        """Add a step of this op to a chain."""
        chain.add_pass(step)

    def joins(self, group: list["Step"], step: "Step", spec: Spec) -> bool:
        """Return whether this op, a `step` on samples of `spec`, runs in the pass of the steps before it."""
        return False

    @abstractmethod
    def write(
        self, table: "TableBuilder", group: list["Step"], x: int, out: int, spec: Spec
    ) -> None:
        """Write the passes of steps that run together, this op the first, from register `x` to `out`.

        For an op that works in place both are the same register. Samples are of `spec`.
        """

    def interpret(self, step: "Step", spec: Spec, compiled: Any) -> "Call":
        """Return this op as a function of one sample, in plain Python, or `compiled(step, spec)`."""
        call: Call = compiled(step, spec)
        return call

    # Warnings that are given once for all ops of a kind.
    caution_kind: "type[Transform] | None" = None

    def caution(self, spec: Spec, largest: Callable[[], float]) -> str | None:
        """Return what is wrong with the scale of the values of its input, if anything, and look up the `largest`."""
        return None

    def leaves(self, spec: Spec, before: "tuple[Transform, ...]" = ()) -> Iterator["Leaf"]:
        """Yield the ops inside of this one, or itself, each with the spec of its input and the ops `before` it."""
        yield self, spec, before

    def flattened(self, step: "Step") -> list["Step"]:
        """Return the steps that replace this one: others may then run in one pass with them."""
        return [step]

    @property
    def sees_kinds(self) -> bool:
        """Return whether the op treats the kinds of fields next to an image differently."""
        if self.mixes_values:
            return False
        return (
            self.spatial
            or self.takes_images
            or self.keeps_axes
            or any(op.sees_kinds for op in self.inside)
        )

    def for_kind(self, kind: Kind) -> "Transform":
        """Return the op for a field of an entry with an image: for an image, for labels or for values of pixels.

        An op that moves pixels is for all of these fields. An op that changes values only is for images.
        """
        if kind == IMAGE:
            return self
        if self.keeps_axes:
            from .image import Identity

            return Identity()
        return self.for_labels() if kind == LABELS else self

    def for_labels(self) -> "Transform":
        """Return the op that does the same to labels, which must not be mixed."""
        return self

    def for_length(self) -> "Transform":
        """Return the op for samples that end with padding, where a field of the entry gives the length of the data."""
        return self

    def for_points(self, image: Spec) -> "Transform":
        """Return the op that moves boxes and keypoints as this one moves the pixels of an image."""
        raise ArgumentError(f"{self.name} cannot move boxes or keypoints along with an image.")


# An op without others inside, the spec that it gets, and the ops before it since the step that it is a part of began.
Leaf: TypeAlias = tuple[Transform, Spec, tuple[Transform, ...]]


def image_shape(spec: Spec, name: str) -> tuple[int, int, int]:
    """Return (height, width, channels) of an image, where (height, width) is an image of one channel."""
    if len(spec.shape) not in (2, 3) or 0 in spec.shape:
        raise ArgumentError(
            f"{name} accepts images of shape (height, width, channels) or (height, width), not {spec}."
        )
    height, width = spec.shape[:2]
    return height, width, spec.shape[2] if len(spec.shape) == 3 else 1


def is_integer(value: Any, least: int) -> bool:
    """Return whether this is an integer of at least `least`."""
    return isinstance(value, int | np.integer) and least <= int(value) < 1 << 63


def pair(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """Return two integers from one or two."""
    values = (value, value) if isinstance(value, int | np.integer) else value
    several = isinstance(values, tuple | list | np.ndarray)
    if not several or len(values) != 2 or not all(is_integer(entry, least) for entry in values):
        raise ArgumentError(
            f"`{name}` (={value!r}) must be an integer of at least {least}, or two of them."
        )
    return int(values[0]), int(values[1])


def as_number(value: Any) -> float:
    """Return a number, or NaN, which no rule allows, if this is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def between(name: str, value: Any, low: float, high: float) -> float:
    """Return a finite number from low to high."""
    number = as_number(value)
    if not low <= number <= high:
        raise ArgumentError(f"`{name}` (={value!r}) must be from {low} to {high}.")
    return number


def finite(name: str, value: Any) -> float:
    """Return a number that is neither infinity nor NaN."""
    number = as_number(value)
    if not math.isfinite(number):
        raise ArgumentError(f"`{name}` (={value!r}) must be a finite number.")
    return number


def positive_range(name: str, value: Any, high: float = math.inf) -> tuple[float, float]:
    """Return two numbers above 0, the lower one first, at most `high`."""
    several = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
    first, last = map(as_number, value) if several else (math.nan, math.nan)
    if not 0 < first <= last <= high or last == math.inf:
        rule = "0 < low <= high" + ("" if high == math.inf else f" <= {high:g}")
        raise ArgumentError(f"`{name}` (={value!r}) must be two finite numbers with {rule}.")
    return first, last
