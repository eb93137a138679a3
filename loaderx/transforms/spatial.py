"""Crop, pad, flip and resize: windows onto an image. Chains of them run as one pass."""

import math
from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.pixels import resize_area
from loaderx.kernels.windows import EDGE, FILL, REFLECT
from loaderx.spec import Spec

from .base import (
    Parameter,
    Transform,
    between,
    finite,
    image_shape,
    is_integer,
    pair,
    positive_range,
)
from .sample import SampleTransform
from .values import check_numbers
from .window import WindowTransform

Border = Literal["fill", "reflect", "edge"]
BORDERS = {"fill": FILL, "reflect": REFLECT, "edge": EDGE}


def _border(name: str, outside: bool) -> int:
    if name not in BORDERS:
        raise ArgumentError(f"`border` (={name!r}) must be one of {', '.join(map(repr, BORDERS))}.")
    return BORDERS[name] if outside else WindowTransform.border


def _resized(spec: Spec, size: tuple[int, int], name: str) -> Spec:
    image_shape(spec, name)
    return Spec((*size, *spec.shape[2:]), spec.dtype)


def check_fill(fill: float, spec: Spec, name: str) -> None:
    """Refuse a colour that pixels of this dtype cannot have."""
    if spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype)
        fits = fill.is_integer() and limits.min <= fill <= limits.max
    elif spec.dtype.kind == "b":
        fits = fill in (0, 1)
    else:
        fits = spec.dtype.kind != "f" or abs(fill) <= float(np.finfo(spec.dtype).max)
    if not fits:
        raise ArgumentError(
            f"{name}: `fill` (={fill!r}) must be a value of {spec.dtype}; the input is {spec}."
        )


@jitable
def crop_window(
    rng: Any, height: int, width: int, tall: int, wide: int, pad_rows: int, pad_columns: int
) -> Any:
    """A window of the output's size anywhere in the padded image."""
    top = rng.integers(0, height + 2 * pad_rows - tall + 1) - pad_rows
    left = rng.integers(0, width + 2 * pad_columns - wide + 1) - pad_columns
    return top, tall, False, left, wide, False


class RandomCrop(WindowTransform):
    """A random part of `size`, from the image with `pad` pixels around it."""

    function = staticmethod(crop_window)

    def __init__(
        self, size: int | tuple[int, int], pad: int | tuple[int, int] = 0, *, border: Border = "fill", fill: float = 0.0
    ) -> None:  # fmt: skip
        self._size = pair("size", size)
        self._pad = pair("pad", pad, least=0)
        self.border = _border(border, any(self._pad))
        self.fill = finite("fill", fill)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        padded = height + 2 * self._pad[0], width + 2 * self._pad[1]
        if self._size[0] > padded[0] or self._size[1] > padded[1]:
            raise ArgumentError(
                f"{self.name}: `size` (={self._size}) must not exceed the image with its padding, "
                f"{padded}; the input is {spec}."
            )
        if self.border == FILL:
            check_fill(self.fill, spec, self.name)
        return _resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._pad


@jitable
def center_window(rng: Any, height: int, width: int, tall: int, wide: int) -> Any:
    """The window of the output's size in the middle."""
    return (height - tall) // 2, tall, False, (width - wide) // 2, wide, False


class CenterCrop(WindowTransform):
    """The part of `size` in the middle."""

    function = staticmethod(center_window)

    def __init__(self, size: int | tuple[int, int]) -> None:
        self._size = pair("size", size)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        if self._size[0] > height or self._size[1] > width:
            raise ArgumentError(
                f"{self.name}: `size` (={self._size}) must not exceed the image; the input is {spec}."
            )
        return _resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return ()


@jitable
def pad_window(rng: Any, height: int, width: int, tall: int, wide: int, top: int, left: int) -> Any:
    """A window larger than the image."""
    return -top, tall, False, -left, wide, False


class Pad(WindowTransform):
    """`amount` pixels more on every side: one number, (vertical, horizontal), or (top, bottom, left, right)."""

    function = staticmethod(pad_window)

    def __init__(
        self, amount: int | tuple[int, ...], *, border: Border = "fill", fill: float = 0.0
    ) -> None:
        given: Any = amount
        several = isinstance(given, tuple | list | np.ndarray)
        sides = tuple(given) if several else (given,) * 4
        if len(sides) == 2:
            sides = (sides[0], sides[0], sides[1], sides[1])
        if len(sides) != 4 or not all(is_integer(side, 0) for side in sides):
            raise ArgumentError(
                f"`amount` (={amount!r}) must be one, two or four integers of at least 0."
            )
        self._sides = tuple(int(side) for side in sides)
        self.border = _border(border, any(self._sides))
        self.fill = finite("fill", fill)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        top, bottom, left, right = self._sides
        if self.border == FILL:
            check_fill(self.fill, spec, self.name)
        return _resized(spec, (height + top + bottom, width + left + right), self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._sides[0], self._sides[2]


@jitable
def flip_window(
    rng: Any, height: int, width: int, tall: int, wide: int, probability: float, vertical: bool
) -> Any:
    """The whole image, mirrored or not."""
    flipped = rng.random() < probability
    return 0, height, flipped and vertical, 0, width, flipped and not vertical


class RandomFlip(WindowTransform):
    """Mirrored with `probability`, left to right, or upside down with axis="vertical"."""

    function = staticmethod(flip_window)

    def __init__(
        self, probability: float = 0.5, *, axis: Literal["horizontal", "vertical"] = "horizontal"
    ) -> None:
        self._probability = between("probability", probability, 0, 1)
        if axis not in ("horizontal", "vertical"):
            raise ArgumentError(f'`axis` (={axis!r}) must be "horizontal" or "vertical".')
        self._vertical = axis == "vertical"

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        return spec

    def parameters(self) -> tuple[Parameter, ...]:
        return self._probability, self._vertical


@jitable
def whole_window(rng: Any, height: int, width: int, tall: int, wide: int) -> Any:
    """The whole image."""
    return 0, height, False, 0, width, False


class _ResizeWindow(WindowTransform):
    function = staticmethod(whole_window)

    def __init__(self, size: tuple[int, int], interpolation: str) -> None:
        self._size = size
        self.interpolation = interpolation

    @property
    def name(self) -> str:
        return "Resize"

    def output(self, spec: Spec) -> Spec:
        if self.interpolation == "bilinear":
            check_numbers(spec, self.name)
        return _resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return ()


class _ResizeArea(SampleTransform):
    spatial = True
    takes_images = True
    function = staticmethod(resize_area)
    in_place = False
    takes_rng = False

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = size

    @property
    def name(self) -> str:
        return "Resize"

    def output(self, spec: Spec) -> Spec:
        if len(spec.shape) != 3:
            raise ArgumentError(
                f'{self.name} with interpolation="area" takes images of shape (height, width, channels), not {spec}.'
            )
        check_numbers(spec, self.name)
        return _resized(spec, self._size, self.name)

    def for_labels(self) -> Transform:
        return _ResizeWindow(self._size, "nearest")

    def for_points(self, image: Spec) -> Transform:
        return self.for_labels().for_points(image)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}


def Resize(  # noqa: N802 - a transform like the others to its users
    size: int | tuple[int, int],
    *,
    interpolation: Literal["bilinear", "nearest", "area"] = "bilinear",
) -> Transform:
    """Scaled to `size`.

    "bilinear" mixes the four nearest pixels, as OpenCV does, without smoothing before; "nearest" takes the nearest;
    "area" takes the mean of the area that a pixel covers, for shrinking.
    """
    if interpolation not in ("bilinear", "nearest", "area"):
        raise ArgumentError(
            f'`interpolation` (={interpolation!r}) must be "bilinear", "nearest" or "area".'
        )
    both = pair("size", size)
    made = _ResizeArea(both) if interpolation == "area" else _ResizeWindow(both, interpolation)
    made._written = (size,), {} if interpolation == "bilinear" else {"interpolation": interpolation}
    return made


@jitable
def random_resized_window(
    rng: Any,
    height: int,
    width: int,
    tall: int,
    wide: int,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
) -> Any:
    """A part of random area and ratio; after ten that do not fit, the largest of a fitting ratio in the middle."""
    area = height * width
    for _ in range(10):
        target = area * rng.uniform(scale_low, scale_high)
        aspect = math.exp(rng.uniform(math.log(ratio_low), math.log(ratio_high)))
        across = round(math.sqrt(target * aspect))
        down = round(math.sqrt(target / aspect))
        if 0 < across <= width and 0 < down <= height:
            top = rng.integers(0, height - down + 1)
            left = rng.integers(0, width - across + 1)
            return top, down, False, left, across, False
    across, down = width, height
    if width / height < ratio_low:
        down = min(height, max(1, round(width / ratio_low)))
    elif width / height > ratio_high:
        across = min(width, max(1, round(height * ratio_high)))
    return (height - down) // 2, down, False, (width - across) // 2, across, False


class RandomResizedCrop(WindowTransform):
    """A random part, of an area and an aspect ratio within `scale` and `ratio`, scaled to `size`."""

    function = staticmethod(random_resized_window)

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
    ) -> None:
        self._size = pair("size", size)
        self._ranges = (*positive_range("scale", scale, 1), *positive_range("ratio", ratio))
        if interpolation not in ("bilinear", "nearest"):
            raise ArgumentError(
                f'`interpolation` (={interpolation!r}) must be "bilinear" or "nearest".'
            )
        self.interpolation = interpolation

    def output(self, spec: Spec) -> Spec:
        if self.interpolation == "bilinear":
            check_numbers(spec, self.name)
        return _resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._ranges
