"""Windows onto an image: crop, pad, flip and resize. Chains of them run as one pass."""

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.areas import resize_area
from loaderx.kernels.compilation import jitable
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
from .combinators import Sequence
from .image import with_channels
from .kinds import VALUES, Kind
from .sample import SampleTransform
from .step import Call, Step
from .values import check_numbers
from .window import INTERPOLATIONS, WindowTransform, single_or_each

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

Border = Literal["fill", "reflect", "edge"]
Scaling = Literal["bilinear", "bicubic", "lanczos", "nearest"]
# One number, or one for each channel.
Fill: TypeAlias = float | Several[float]
BORDERS = {"fill": FILL, "reflect": REFLECT, "edge": EDGE}


def _border(name: str, outside: bool) -> int:
    if name not in BORDERS:
        raise ArgumentError(f"`border` (={name!r}) must be one of {', '.join(map(repr, BORDERS))}.")
    return BORDERS[name] if outside else WindowTransform.border


def resized(spec: Spec, size: tuple[int, int], name: str) -> Spec:
    """Return the spec of an image with another height and width."""
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


class Filled(Transform):
    """Op that shows a fill colour outside of the image, and another one outside of labels."""

    fills: tuple[float, ...]
    # The fill colour of labels; None: 0, since the colour of an image is not a label.
    fill_mask: float | None = None

    def _set_fill(self, fill: Fill, fill_mask: float | None) -> None:
        self.fills = single_or_each("fill", fill)
        self.fill_mask = None if fill_mask is None else finite("fill_mask", fill_mask)

    def _check_fill(self, spec: Spec) -> None:
        channels = image_shape(spec, self.name)[2]
        if len(self.fills) not in (1, channels):
            raise ArgumentError(
                f"{self.name}: `fill` (={self.fills!r}) must be one number, or one for each of the {channels} "
                f"channels; the input is {spec}."
            )
        for each in self.fills:
            check_fill(each, spec, self.name)

    def for_kind(self, kind: Kind) -> Transform:
        if kind != VALUES or self.fills == (0.0,):
            return super().for_kind(kind)
        values = copy.copy(self)
        values.fills = (0.0,)
        return values

    def for_labels(self) -> Transform:
        labels = copy.copy(self)
        labels.fills = (0.0 if self.fill_mask is None else self.fill_mask,)
        return labels


class FilledWindow(Filled, WindowTransform):
    """Window that may reach outside of the image, where it shows a border or a fill colour."""

    def _paint(self, border: str, outside: bool, fill: Fill, fill_mask: float | None) -> None:
        self.border = _border(border, outside)
        self._set_fill(fill, fill_mask)

    def _check_fill(self, spec: Spec) -> None:
        if self.shown_fill(spec) is not None:
            super()._check_fill(spec)


@jitable
def crop_window(
    rng: Any, height: int, width: int, tall: int, wide: int, pad_rows: int, pad_columns: int
) -> Any:
    """Draw a window of the output's size anywhere in the padded image."""
    top = rng.integers(0, height + 2 * pad_rows - tall + 1) - pad_rows
    left = rng.integers(0, width + 2 * pad_columns - wide + 1) - pad_columns
    return top, tall, False, left, wide, False


class RandomCrop(FilledWindow):
    """Random crop of `size`, from the image with `pad` pixels around it.

    `fill` is one number or one for each channel; labels that follow the image get `fill_mask`, such as 255 for labels
    to be ignored, and 0 without it; values such as depth get 0.
    """

    function = staticmethod(crop_window)

    def __init__(
        self,
        size: int | tuple[int, int],
        pad: int | tuple[int, int] = 0,
        *,
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
    ) -> None:
        self._size = pair("size", size)
        self._pad = pair("pad", pad, least=0)
        self._paint(border, any(self._pad), fill, fill_mask)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        return self._size

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        padded = height + 2 * self._pad[0], width + 2 * self._pad[1]
        if self._size[0] > padded[0] or self._size[1] > padded[1]:
            raise ArgumentError(
                f"{self.name}: `size` (={self._size}) must not exceed the image with its padding, "
                f"{padded}; the input is {spec}."
            )
        self._check_fill(spec)
        return resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._pad


@jitable
def center_window(rng: Any, height: int, width: int, tall: int, wide: int) -> Any:
    """Return the window of the output's size in the middle; of an odd margin, more is below and to the right."""
    top = (height - tall) // 2 if height >= tall else -((tall - height) // 2)
    left = (width - wide) // 2 if width >= wide else -((wide - width) // 2)
    return top, tall, False, left, wide, False


class _Centered(FilledWindow):
    function = staticmethod(center_window)

    def reaches_outside(self, spec: Spec) -> bool:
        size = self._result(spec)
        return size[0] > spec.shape[0] or size[1] > spec.shape[1]

    @abstractmethod
    def _result(self, spec: Spec) -> tuple[int, int]:
        """Return the height and width of the result."""

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        self._check_fill(spec)
        return resized(spec, self._result(spec), self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return ()


class CenterCrop(_Centered):
    """Centre crop of `size`, padded on both sides where the image is smaller.

    Padding is as `border` says, and `fill` and `fill_mask` are those of RandomCrop.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
    ) -> None:
        self._size = pair("size", size)
        self._paint(border, True, fill, fill_mask)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        return self._size

    def _result(self, spec: Spec) -> tuple[int, int]:
        return self._size


class PadIfNeeded(_Centered):
    """Padding on both sides to at least `height` and `width`; a larger image stays as it is.

    Padding is as `border` says, and `fill` and `fill_mask` are those of RandomCrop.
    """

    def __init__(
        self,
        height: int,
        width: int,
        *,
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
    ) -> None:
        for name, given in (("height", height), ("width", width)):
            if not is_integer(given, 1):
                raise ArgumentError(f"`{name}` (={given!r}) must be an integer of at least 1.")
        self._least = int(height), int(width)
        self._paint(border, True, fill, fill_mask)

    def _result(self, spec: Spec) -> tuple[int, int]:
        return max(spec.shape[0], self._least[0]), max(spec.shape[1], self._least[1])


@jitable
def pad_window(rng: Any, height: int, width: int, tall: int, wide: int, top: int, left: int) -> Any:
    """Return a window larger than the image."""
    return -top, tall, False, -left, wide, False


class Pad(FilledWindow):
    """Padding by `amount` pixels on every side: one number, (vertical, horizontal), or (top, bottom, left, right).

    torchvision's order is (left, top, right, bottom); sides can be named instead: `Pad(left=1, right=2)`. `fill` and
    `fill_mask` are those of RandomCrop.
    """

    function = staticmethod(pad_window)

    def __init__(
        self,
        amount: int | tuple[int, ...] | None = None,
        *,
        top: int = 0,
        bottom: int = 0,
        left: int = 0,
        right: int = 0,
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
    ) -> None:
        named = {"top": top, "bottom": bottom, "left": left, "right": right}
        for name, side in named.items():
            if not is_integer(side, 0):
                raise ArgumentError(f"`{name}` (={side!r}) must be an integer of at least 0.")
        if amount is not None and any(named.values()):
            raise ArgumentError(
                f"`amount` (={amount!r}) is for all sides: give it, or some of `top`, `bottom`, `left` and `right`."
            )
        given: Any = tuple(named.values()) if amount is None else amount
        several = isinstance(given, tuple | list | np.ndarray)
        sides = tuple(given) if several else (given,) * 4
        if len(sides) == 2:
            sides = (sides[0], sides[0], sides[1], sides[1])
        if len(sides) != 4 or not all(is_integer(side, 0) for side in sides):
            raise ArgumentError(
                f"`amount` (={amount!r}) must be one, two or four integers of at least 0."
            )
        self._sides = tuple(int(side) for side in sides)
        self._paint(border, any(self._sides), fill, fill_mask)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = image_shape(spec, self.name)
        top, bottom, left, right = self._sides
        self._check_fill(spec)
        return resized(spec, (height + top + bottom, width + left + right), self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._sides[0], self._sides[2]


@jitable
def flip_window(
    rng: Any, height: int, width: int, tall: int, wide: int, probability: float, vertical: bool
) -> Any:
    """Return the whole image, mirrored or not."""
    flipped = rng.random() < probability
    return 0, height, flipped and vertical, 0, width, flipped and not vertical


class RandomFlip(WindowTransform):
    """Mirroring with `probability`, left to right, or upside down with axis="vertical"."""

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
    """Return the whole image."""
    return 0, height, False, 0, width, False


@dataclass(frozen=True)
class _Size:
    """Size of a result: fixed, or by a rule from that of the image."""

    rule: str
    size: tuple[int, int]

    def of(self, spec: Spec) -> tuple[int, int]:
        """Return the size of the result for images of `spec`."""
        if self.rule == "size":
            return self.size
        height, width = spec.shape[:2]
        if self.rule == "fits":
            tall, wide = self.size
            # The axis that fills its side first decides, so that both sides fit.
            if tall * width <= wide * height:
                return tall, max(1, round(tall * width / height))
            return max(1, round(wide * height / width)), wide
        side = self.size[0]
        if (height <= width) == (self.rule == "shorter"):
            return side, max(1, int(side * width / height))
        return max(1, int(side * height / width)), side


class _ResizeWindow(WindowTransform):
    function = staticmethod(whole_window)

    def __init__(self, size: _Size, interpolation: str, antialias: bool) -> None:
        self._size = size
        self.interpolation = interpolation
        self.antialias = antialias

    @property
    def name(self) -> str:
        return "LetterBox" if self._size.rule == "fits" else "Resize"

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        return self._size.size if self._size.rule == "size" else None

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        if self.interpolation != "nearest":
            check_numbers(spec, self.name)
        return resized(spec, self._size.of(spec), self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return ()


class _ResizeArea(SampleTransform):
    spatial = True
    takes_images = True
    function = staticmethod(resize_area)
    in_place = False
    takes_rng = False

    def __init__(self, size: _Size) -> None:
        self._size = size

    @property
    def name(self) -> str:
        return "Resize"

    def output(self, spec: Spec) -> Spec:
        image_shape(spec, self.name)
        check_numbers(spec, self.name)
        return resized(spec, self._size.of(spec), self.name)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        super().write(table, group, x, out, with_channels(spec))

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        call, shape = (
            super().interpret(step, with_channels(spec), compiled),
            self.output(spec).shape,
        )

        def call_grey(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            return call(x.reshape(with_channels(spec).shape), position, length, turns).reshape(
                shape
            )

        return call_grey

    def for_labels(self) -> Transform:
        return _ResizeWindow(self._size, "nearest", True)

    def for_points(self, image: Spec) -> Transform:
        return self.for_labels().for_points(image)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        # Of (height, width, channels), also for an image of (height, width): see `write`.
        return area_spaces(spec, self.output(spec).shape[1])


def area_spaces(spec: Spec, wide: int) -> tuple[Spec, ...]:
    """Return what `resize_area` needs for results of up to `wide` columns."""
    _, width, channels = spec.shape
    row = width * channels
    return (
        Spec((row,), np.float32 if spec.dtype == np.uint8 else np.float64),
        Spec((row + 4,), np.float64),
        Spec((wide * channels + 4,), np.float64),
        Spec((wide,), np.int64),
        Spec((wide,), np.int64),
        Spec((width + wide,), np.int32),
        Spec((width + wide,), np.float64),
    )


def check_interpolation(name: str, allowed: tuple[str, ...]) -> str:
    """Return the name of an interpolation, or refuse one that is not allowed."""
    if name not in allowed:
        *first, last = (f'"{each}"' for each in allowed)
        raise ArgumentError(f"`interpolation` (={name!r}) must be {', '.join(first)} or {last}.")
    return name


def check_antialias(value: Any) -> bool:
    """Return whether images are antialiased, or refuse a value that is not a boolean."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"`antialias` (={value!r}) must be True or False.")
    return bool(value)


def Resize(  # noqa: N802 - a transform like the others to its users
    size: int | tuple[int, int] | None = None,
    *,
    shorter: int | None = None,
    longer: int | None = None,
    interpolation: Literal["bilinear", "bicubic", "lanczos", "nearest", "area"] = "bilinear",
    antialias: bool = True,
) -> Transform:
    """Resizing to `size`: (height, width), or one integer for a square. `shorter=` or `longer=` keep the aspect ratio.

    With `shorter=256` the shorter side becomes 256 and the other 256 * long / short, rounded down, as torchvision does
    with one integer; with `longer=256` the longer side does. "bilinear", "bicubic" and "lanczos" are the filters of
    Pillow. With `antialias` they become wider where the image shrinks, so that every pixel has its share; without it
    "bilinear" mixes the four nearest pixels, as OpenCV does, and the others the nearest 16 or 36. "nearest" chooses the
    nearest pixel; "area" is the mean of the area that a pixel covers, for shrinking.
    """
    check_interpolation(interpolation, (*INTERPOLATIONS, "area"))
    sides = {"size": size, "shorter": shorter, "longer": longer}
    given = {name: side for name, side in sides.items() if side is not None}
    if len(given) > 1:
        shown = ", ".join(f"`{name}` (={side!r})" for name, side in given.items())
        raise ArgumentError(f"Resize accepts one of `size`, `shorter` and `longer`, got {shown}.")
    rule = next(iter(given), "size")
    if rule != "size" and not is_integer(given[rule], 1):
        raise ArgumentError(f"`{rule}` (={given[rule]!r}) must be an integer of at least 1.")
    wanted = _Size(rule, pair(rule, given.get(rule)))
    antialias = check_antialias(antialias)
    made: Transform = (
        _ResizeArea(wanted)
        if interpolation == "area"
        else _ResizeWindow(wanted, interpolation, antialias)
    )
    options: dict[str, Any] = {} if rule == "size" else given
    if interpolation != "bilinear":
        options = {**options, "interpolation": interpolation}
    if not antialias:
        options = {**options, "antialias": False}
    made._written = (size,) if rule == "size" else (), options
    return made


class _Box(CenterCrop):
    @property
    def name(self) -> str:
        return "LetterBox"


class LetterBox(Sequence):
    """Letterboxing: scaled to fit into `size` with its aspect ratio kept, in the middle of it; the rest is `fill`.

    `size` is (height, width), or one integer for a square. `fill` and `fill_mask` are those of RandomCrop; YOLO pads
    with 114. `interpolation` and `antialias` are those of Resize.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        both = pair("size", size)
        check_interpolation(interpolation, INTERPOLATIONS)
        super().__init__(
            _ResizeWindow(_Size("fits", both), interpolation, check_antialias(antialias)),
            _Box(both, fill=fill, fill_mask=fill_mask),
        )


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
    """Draw a part of random area and ratio; after ten that do not fit, the largest of a fitting ratio in the middle."""
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
    """Random part, of an area and an aspect ratio within `scale` and `ratio`, scaled to `size`.

    `interpolation` and `antialias` are those of Resize; pixels outside of the part have no share in it.
    """

    function = staticmethod(random_resized_window)

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Scaling = "bilinear",
        antialias: bool = True,
    ) -> None:
        self._size = pair("size", size)
        self._ranges = (*positive_range("scale", scale, 1), *positive_range("ratio", ratio))
        self.interpolation = check_interpolation(interpolation, INTERPOLATIONS)
        self.antialias = check_antialias(antialias)

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        return self._size

    def output(self, spec: Spec) -> Spec:
        if self.interpolation != "nearest":
            check_numbers(spec, self.name)
        return resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._ranges
