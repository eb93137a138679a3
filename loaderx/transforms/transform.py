"""What a transform is: its effect on the spec of a sample, and which kind of compiled code it becomes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.windows import EDGE
from loaderx.spec import Spec
from loaderx.written import Written

# What compiled code takes at run time: another value needs no other code.
Parameter: TypeAlias = int | float | bool | np.float32 | np.ndarray[Any, Any]


class Transform(Written, ABC):
    """One op on a sample."""

    @property
    def name(self) -> str:
        """How messages call it."""
        return type(self).__name__

    @abstractmethod
    def output(self, spec: Spec) -> Spec:
        """The spec of what comes out for samples of `spec`; raises if these cannot be taken."""

    # Whether it moves pixels.
    spatial: bool = False
    # Whether it takes samples for images, of (height, width, channels) or (height, width).
    takes_images: bool = False

    def for_labels(self) -> "Transform":
        """The op that does the same to labels of pixels, which must not be mixed."""
        return self

    def for_length(self) -> "Transform":
        """The op for samples that end with padding, behind as many entries as a field of their entry says."""
        return self

    def for_points(self, image: Spec) -> "Transform":
        """The op that moves boxes and keypoints as this one moves the pixels of an image."""
        raise ArgumentError(f"{self.name} cannot move boxes or keypoints along with an image.")


class SampleTransform(Transform):
    """A compiled function of one sample: `(x, [length,] [rng,] ...)` in place, or `(x, out, [length,] [rng,] ...)`.

    Behind these come the parameters, then the workspaces.
    """

    function: Callable[..., None]
    in_place: bool
    takes_rng: bool
    # Whether the first samples are taken through it with every index checked: code of a user.
    checked: bool = False
    # Whether it wants to know how many entries of x along its first axis are data, and not padding.
    takes_length: bool = False

    @abstractmethod
    def parameters(self, spec: Spec) -> Mapping[str, Parameter]:
        """The arguments behind x, out and rng, for samples of `spec`."""

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        """The arrays it needs for itself while it works, which hold nothing in particular when it begins."""
        return ()


class WindowTransform(Transform):
    """A window of an image that becomes the whole output: crop, pad, flip, resize, and chains of them in one pass.

    `function(rng, height, width, out_height, out_width, *parameters)` gives (top, height, flipped, left, width,
    flipped). The window may lie partly outside of the image, where `border` says what is seen.
    """

    function: Callable[..., tuple[int, int, bool, int, int, bool]]
    # Of windows that stay inside it is never looked at, and as EDGE it does not stand for a fill colour of their own.
    border: int = EDGE
    fill: float = 0.0
    # None: the window has the size of the output. Otherwise how it is scaled: "bilinear" or "nearest".
    interpolation: str | None = None

    spatial = True
    takes_images = True

    def for_points(self, image: Spec) -> Transform:
        from .points import PointsTransform

        return PointsTransform(self, image)

    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments behind the sizes."""


class MapTransform(Transform):
    """An image seen through a projective map that is drawn for every sample: rotate, affine, perspective.

    `function(rng, height, width, out_height, out_width, *parameters)` gives nine float64: the matrix, row by row, from
    the output's (x, y, 1) to the input's, where whole numbers are the centres of pixels. What lies outside is seen as
    `border` says.
    """

    function: Callable[..., tuple[float, ...]]
    border: int = EDGE
    fill: float = 0.0
    interpolation: str = "bilinear"

    spatial = True
    takes_images = True

    def for_points(self, image: Spec) -> Transform:
        from .points import PointsTransform

        return PointsTransform(self, image)

    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments behind the sizes."""


class ScaleTransform(Transform):
    """value * scale + bias per channel, into a floating dtype: fused into the pass before it where there is one."""

    dtype: np.dtype[Any]
    channels_first: bool

    def for_points(self, image: Spec) -> Transform:
        from .image import Identity

        return Identity()

    @abstractmethod
    def scale_and_bias(self, spec: Spec) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """float32 arrays, one entry per channel."""


def image_shape(spec: Spec, name: str) -> tuple[int, int, int]:
    """(height, width, channels) of an image, where (height, width) is an image of one channel."""
    if len(spec.shape) not in (2, 3) or 0 in spec.shape:
        raise ArgumentError(
            f"{name} takes images of shape (height, width, channels) or (height, width), not {spec}."
        )
    height, width = spec.shape[:2]
    return height, width, spec.shape[2] if len(spec.shape) == 3 else 1


def is_integer(value: Any, least: int) -> bool:
    """Whether this is an integer of at least `least`."""
    return isinstance(value, int | np.integer) and least <= int(value) < 1 << 63


def pair(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """Two integers from one or two."""
    values = (value, value) if isinstance(value, int | np.integer) else value
    several = isinstance(values, tuple | list | np.ndarray)
    if not several or len(values) != 2 or not all(is_integer(entry, least) for entry in values):
        raise ArgumentError(
            f"`{name}` (={value!r}) must be an integer of at least {least}, or two of them."
        )
    return int(values[0]), int(values[1])


def as_number(value: Any) -> float:
    """A number; NaN, which no rule allows, for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def between(name: str, value: Any, low: float, high: float) -> float:
    """A finite number from low to high."""
    number = as_number(value)
    if not low <= number <= high:
        raise ArgumentError(f"`{name}` (={value!r}) must be from {low} to {high}.")
    return number


def finite(name: str, value: Any) -> float:
    """Any number but infinity and NaN."""
    number = as_number(value)
    if not math.isfinite(number):
        raise ArgumentError(f"`{name}` (={value!r}) must be a finite number.")
    return number


def positive_range(name: str, value: Any, high: float = math.inf) -> tuple[float, float]:
    """Two numbers above 0, the lower one first, at most `high`."""
    several = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
    first, last = map(as_number, value) if several else (math.nan, math.nan)
    if not 0 < first <= last <= high or last == math.inf:
        rule = "0 < low <= high" + ("" if high == math.inf else f" <= {high:g}")
        raise ArgumentError(f"`{name}` (={value!r}) must be two finite numbers with {rule}.")
    return first, last
