"""Geometric ops: rotate, affine, perspective, quarter turns and zoom, by a map from the output to the input."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.windows import FILL
from loaderx.spec import Spec

from .amounts import Amount, Amounts, amounts, draw_amount, spread
from .base import Parameter, Transform, as_number, between, finite, image_shape
from .kinds import VALUES, Kind
from .spatial import BORDERS, Border, check_fill
from .values import check_numbers
from .warp import MapTransform

Interpolation = Literal["bilinear", "nearest"]
# One number, or one for each channel.
Fill: TypeAlias = float | Sequence[float]
# Places in an image are counted in 32 bits.
LARGEST = 2**31 - 1


def appearance(
    op: Any, interpolation: str, border: str, fill: Fill, fill_mask: float | None = None
) -> None:
    """Set the interpolation of an op, and the values outside of the image and of masks that follow it."""
    if interpolation not in ("bilinear", "nearest"):
        raise ArgumentError(
            f'`interpolation` (={interpolation!r}) must be "bilinear" or "nearest".'
        )
    if border not in BORDERS:
        raise ArgumentError(
            f"`border` (={border!r}) must be one of {', '.join(map(repr, BORDERS))}."
        )
    op.interpolation = interpolation
    op.border = BORDERS[border]
    given: Any = fill
    if isinstance(given, tuple | list | np.ndarray):
        op.fill = tuple(finite("fill", part) for part in given)
    else:
        op.fill = finite("fill", given)
    op.fill_mask = None if fill_mask is None else finite("fill_mask", fill_mask)


def as_labels(op: Any) -> Any:
    """Return a copy of an op for labels of pixels: the nearest one, and `fill_mask` outside, or 0 without it."""
    found = copy.copy(op)
    found.interpolation = "nearest"
    found.fill = 0.0 if op.fill_mask is None else op.fill_mask
    return found


def as_values(op: Any) -> Any:
    """Return an op for values of pixels, such as depth: outside is 0, since `fill` is a colour of the image."""
    if op.fill == 0:
        return op
    found = copy.copy(op)
    found.fill = 0.0
    return found


def check_image(op: Any, spec: Spec) -> tuple[int, int, int]:
    """Return the shape of an image, or refuse one that the op cannot resample."""
    shape = image_shape(spec, op.name)
    if op.interpolation == "bilinear":
        check_numbers(spec, op.name)
    parts = op.fill if isinstance(op.fill, tuple) else (op.fill,)
    if len(parts) not in (1, shape[2]):
        raise ArgumentError(
            f"{op.name}: `fill` (={op.fill!r}) must be one number, or one for each channel; the input is {spec}."
        )
    if op.border == FILL:
        for part in parts:
            check_fill(part, spec, op.name)
    if spec.size > LARGEST:
        raise ArgumentError(f"{op.name} accepts images of at most {LARGEST} values, not {spec}.")
    return shape


class _Warp(MapTransform):
    """Map of an image onto one of the same size."""

    fill_mask: float | None

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        interpolation: str,
        border: str,
        fill: Fill,
        fill_mask: float | None,
    ) -> None:
        appearance(self, interpolation, border, fill, fill_mask)
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        check_image(self, spec)
        return spec

    def for_kind(self, kind: Kind) -> Transform:
        found: Transform = as_values(self) if kind == VALUES else super().for_kind(kind)
        return found

    def for_labels(self) -> Transform:
        found: Transform = as_labels(self)
        return found

    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters


@jitable
def turn(degrees: float) -> Any:
    """Return cosine and sine, exact for quarter turns."""
    quarters = degrees / 90.0
    if math.floor(quarters) != quarters:
        return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    quarter = quarters % 4.0
    if quarter == 0.0:
        return 1.0, 0.0
    if quarter == 1.0:
        return 0.0, 1.0
    return (-1.0, 0.0) if quarter == 2.0 else (0.0, -1.0)


@jitable
def around_centre(a: float, b: float, d: float, e: float, height: int, width: int) -> Any:
    """Return the map that keeps the centre of the image where it is."""
    x, y = (width - 1) * 0.5, (height - 1) * 0.5
    return a, b, x - (a * x + b * y), d, e, y - (d * x + e * y), 0.0, 0.0, 1.0


@jitable
def rotate_map(rng: Any, height: int, width: int, tall: int, wide: int, degrees: Any) -> Any:
    """Draw a rotation counter-clockwise, around the centre."""
    cosine, sine = turn(draw_amount(rng, degrees))
    return around_centre(cosine, -sine, sine, cosine, height, width)


class Rotate(_Warp):
    """Rotation around the centre, counter-clockwise by -degrees to degrees, or by a range.

    Positive degrees are counter-clockwise as in PIL.Image.rotate, torchvision's `rotate`, and `Affine`. Outside of the
    image is `fill`, a number or one for each channel; outside of a mask that follows it, `fill_mask`.
    """

    function = staticmethod(rotate_map)

    def __init__(
        self,
        degrees: Amount,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        super().__init__((spread("degrees", degrees),), interpolation, border, fill, fill_mask)
        self.happens_with(probability)


@jitable
def affine_map(
    rng: Any,
    height: int,
    width: int,
    tall: int,
    wide: int,
    degrees: Any,
    translate_x: Any,
    translate_y: Any,
    scale: Any,
    shear_x: Any,
    shear_y: Any,
    share: float,
    center_x: float,
    center_y: float,
) -> Any:
    """Return shear, scale and rotation around a centre, then translation: the inverse of torchvision's composition.

    The centre is at `share` of the size from the corner of the image, plus an offset in pixels.
    """
    angle = draw_amount(rng, degrees)
    across = draw_amount(rng, translate_x) * width
    down = draw_amount(rng, translate_y) * height
    factor = draw_amount(rng, scale)
    tangent_x = math.tan(math.radians(draw_amount(rng, shear_x)))
    lean = draw_amount(rng, shear_y)
    # torchvision counts the angle clockwise here, and counter-clockwise where it only rotates.
    cosine, sine = turn(-angle)
    leaning_cosine, leaning_sine = turn(-angle - lean)
    length = math.cos(math.radians(lean))
    forward_a = leaning_cosine / length
    forward_b = -leaning_cosine * tangent_x / length - sine
    forward_d = leaning_sine / length
    forward_e = -leaning_sine * tangent_x / length + cosine
    # Its determinant is 1.
    a, b = forward_e / factor, -forward_b / factor
    d, e = -forward_d / factor, forward_a / factor
    # The corner of the image is half a pixel before the centre of its first pixel, as in Pillow.
    x, y = width * share + center_x - 0.5, height * share + center_y - 0.5
    c, f = x - (a * (x + across) + b * (y + down)), y - (d * (x + across) + e * (y + down))
    return a, b, c, d, e, f, 0.0, 0.0, 1.0


def _above_zero(name: str, value: Amount) -> Amounts:
    found = amounts(name, value, 0.0)
    if not np.all(found > 0):
        raise ArgumentError(f"`{name}` (={value!r}) must be above 0.")
    return found


def _center(center: Any) -> tuple[float, float, float]:
    """Return a place in an image: a share of its size, and pixels to the right and down from there."""
    if isinstance(center, str) and center == "center":
        return 0.5, 0.0, 0.0
    several = isinstance(center, tuple | list | np.ndarray) and len(center) == 2
    place = tuple(map(as_number, center)) if several else ()
    if not place or not all(map(math.isfinite, place)):
        raise ArgumentError(
            f'`center` (={center!r}) must be "center", or two finite numbers (x, y).'
        )
    return 0.0, place[0], place[1]


# At 90 degrees a shear is infinite.
STEEPEST = 89.0


class Affine(_Warp):
    """Affine transform: shear, scale and rotation around `center`, then a translation.

    Positive degrees are counter-clockwise, as of `Rotate`; torchvision's `affine` turns clockwise. `translate_x` and
    `translate_y` are fractions of the width and height, to the right and down; `shear_x` and `shear_y` are in degrees.
    Of all these a number is the range from its negative to it; `scale` is a number above 0, or a range. `center` is
    "center", or (x, y) in pixels from the top left corner of the image. Outside of the image is `fill`, a number or one
    for each channel; outside of a mask that follows it, `fill_mask`.
    """

    function = staticmethod(affine_map)

    def __init__(
        self,
        degrees: Amount = 0.0,
        *,
        translate_x: Amount = 0.0,
        translate_y: Amount = 0.0,
        scale: Amount = 1.0,
        shear_x: Amount = 0.0,
        shear_y: Amount = 0.0,
        center: Literal["center"] | tuple[float, float] = "center",
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        given = (
            spread("degrees", degrees),
            spread("translate_x", translate_x),
            spread("translate_y", translate_y),
            _above_zero("scale", scale),
            spread("shear_x", shear_x, STEEPEST),
            spread("shear_y", shear_y, STEEPEST),
            *_center(center),
        )
        super().__init__(given, interpolation, border, fill, fill_mask)
        self.happens_with(probability)


@jitable
def whole_pixels(distance: float) -> float:
    """Return the whole pixels in a distance, as int() does; a product may lie a rounding error below a whole number."""
    return math.copysign(math.floor(abs(distance) + 1e-9), distance)


@jitable
def translate_map(
    rng: Any, height: int, width: int, tall: int, wide: int, right: Any, down: Any, relative: bool
) -> Any:
    """Draw a translation by whole pixels, or by the whole pixels in fractions of the size."""
    across, below = draw_amount(rng, right), draw_amount(rng, down)
    if relative:
        across, below = across * width, below * height
    return 1.0, 0.0, -whole_pixels(across), 0.0, 1.0, -whole_pixels(below), 0.0, 0.0, 1.0


class Translate(_Warp):
    """Translation to the right and down by whole pixels, as policies do; with unit="size", by fractions of the size."""

    function = staticmethod(translate_map)

    def __init__(
        self,
        right: Amount = 0.0,
        down: Amount = 0.0,
        *,
        unit: Literal["pixels", "size"],
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
    ) -> None:
        given = spread("right", right), spread("down", down), unit == "size"
        super().__init__(given, interpolation, border, fill, fill_mask)


@jitable
def scale_map(rng: Any, height: int, width: int, tall: int, wide: int, scale: Any) -> Any:
    """Draw a zoom around the centre."""
    factor = draw_amount(rng, scale)
    return around_centre(1.0 / factor, 0.0, 0.0, 1.0 / factor, height, width)


class RandomScale(_Warp):
    """Zoom around the centre; the size of the image stays, and below 1 `border` is seen around it.

    Outside of the image is `fill`, a number or one for each channel; outside of a mask that follows it, `fill_mask`.
    """

    function = staticmethod(scale_map)

    def __init__(
        self,
        scale: Amount = (0.8, 1.2),
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        super().__init__((_above_zero("scale", scale),), interpolation, border, fill, fill_mask)
        self.happens_with(probability)


@jitable
def perspective_map(
    rng: Any, height: int, width: int, tall: int, wide: int, distortion: float
) -> Any:
    """Draw a map from the quadrangle of the moved corners back to the image."""
    # A line of pixels has corners that are apart, too.
    right, bottom = max(width - 1.0, 1.0), max(height - 1.0, 1.0)
    most_x, most_y = distortion * right * 0.5, distortion * bottom * 0.5
    x0, y0 = rng.uniform(0.0, most_x), rng.uniform(0.0, most_y)
    x1, y1 = right - rng.uniform(0.0, most_x), rng.uniform(0.0, most_y)
    x2, y2 = right - rng.uniform(0.0, most_x), bottom - rng.uniform(0.0, most_y)
    x3, y3 = rng.uniform(0.0, most_x), bottom - rng.uniform(0.0, most_y)
    # From the unit square to the quadrangle (Heckbert, "Fundamentals of Texture Mapping", 1989).
    sum_x, sum_y = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    area = (x1 - x2) * (y3 - y2) - (x3 - x2) * (y1 - y2)
    g = (sum_x * (y3 - y2) - (x3 - x2) * sum_y) / area
    h = ((x1 - x2) * sum_y - sum_x * (y1 - y2)) / area
    a, b, c = x1 - x0 + g * x1, x3 - x0 + h * x3, x0
    d, e, f = y1 - y0 + g * y1, y3 - y0 + h * y3, y0
    # The inverse, from the adjugate, and from the unit square to the image.
    determinant = a * (e - f * h) - b * (d - f * g) + c * (d * h - e * g)
    return (
        (e - f * h) * right / determinant,
        (c * h - b) * right / determinant,
        (b * f - c * e) * right / determinant,
        (f * g - d) * bottom / determinant,
        (a - c * g) * bottom / determinant,
        (c * d - a * f) * bottom / determinant,
        (d * h - e * g) / determinant,
        (b * g - a * h) / determinant,
        (a * e - b * d) / determinant,
    )


class Perspective(_Warp):
    """Perspective transform: each corner moves inwards, by up to `distortion` of the way to the centre in x and y.

    Outside of the image is `fill`, a number or one for each channel; outside of a mask that follows it, `fill_mask`.
    """

    function = staticmethod(perspective_map)

    def __init__(
        self,
        distortion: float = 0.5,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        given = (between("distortion", distortion, 0, 1),)
        super().__init__(given, interpolation, border, fill, fill_mask)
        self.happens_with(probability)


@jitable
def turn_matrix(number: int, height: int, width: int) -> Any:
    """Return the map of quarter turns counter-clockwise."""
    right, bottom = width - 1.0, height - 1.0
    if number == 0:
        return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0
    if number == 1:
        return 0.0, -1.0, right, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0
    if number == 2:
        return -1.0, 0.0, right, 0.0, -1.0, bottom, 0.0, 0.0, 1.0
    return 0.0, 1.0, 0.0, -1.0, 0.0, bottom, 0.0, 0.0, 1.0


@jitable
def quarter_map(rng: Any, height: int, width: int, tall: int, wide: int, turns: Any) -> Any:
    """Draw quarter turns counter-clockwise."""
    number = turns[rng.integers(0, len(turns))] if len(turns) > 1 else turns[0]
    return turn_matrix(number, height, width)


class Rot90(MapTransform):
    """Random quarter turn out of `turns`, counter-clockwise as np.rot90.

    Images that are not square need turns that are all even, or all odd: then height and width are exchanged.
    """

    function = staticmethod(quarter_map)
    interpolation = "nearest"

    def __init__(
        self, turns: int | Sequence[int] = (0, 1, 2, 3), *, probability: float = 1.0
    ) -> None:
        given: Any = turns
        several = given if isinstance(given, tuple | list | np.ndarray) else (given,)
        if len(several) == 0 or not all(isinstance(turn, int | np.integer) for turn in several):
            raise ArgumentError(f"`turns` (={turns!r}) must be an integer, or some of them.")
        self._turns = np.array([int(turn) % 4 for turn in several], np.int64)
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = check_image(self, spec)
        odd = self._turns % 2 == 1
        if height != width and odd.any() and not odd.all():
            raise ArgumentError(
                f"{self.name}: `turns` (={tuple(self._turns.tolist())}) must be all even or all odd for images that "
                f"are not square; the input is {spec}."
            )
        return Spec((width, height, *spec.shape[2:]), spec.dtype) if odd.all() else spec

    def parameters(self) -> tuple[Parameter, ...]:
        return (self._turns,)


@jitable
def transpose_map(
    rng: Any, height: int, width: int, tall: int, wide: int, probability: float
) -> Any:
    """Draw whether rows and columns are exchanged."""
    if rng.random() < probability:
        return 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0
    return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0


class Transpose(MapTransform):
    """Transposition: rows and columns exchanged with `probability`, 0 or 1 for images that are not square."""

    function = staticmethod(transpose_map)
    interpolation = "nearest"

    def __init__(self, probability: float = 0.5) -> None:
        self._probability = between("probability", probability, 0, 1)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = check_image(self, spec)
        if height != width and 0 < self._probability < 1:
            raise ArgumentError(
                f"{self.name}: `probability` (={self._probability}) must be 0 or 1 for images that are not square; "
                f"the input is {spec}."
            )
        if self._probability < 1:
            return spec
        return Spec((width, height, *spec.shape[2:]), spec.dtype)

    def parameters(self) -> tuple[Parameter, ...]:
        return (self._probability,)


@jitable
def symmetry_map(rng: Any, height: int, width: int, tall: int, wide: int) -> Any:
    """Draw one of four quarter turns, of the image or of its transposition."""
    number = rng.integers(0, 8)
    a, b, c, d, e, f, g, h, w = turn_matrix(number % 4, height, width)
    return (a, b, c, d, e, f, g, h, w) if number < 4 else (d, e, f, a, b, c, g, h, w)


class D4(MapTransform):
    """Random symmetry of the square, one of eight, each as likely: quarter turns, mirrored or not; of square images.

    For images without an up and a down, from above or through a microscope. Masks, boxes and keypoints follow.
    """

    function = staticmethod(symmetry_map)
    interpolation = "nearest"

    def __init__(self, *, probability: float = 1.0) -> None:
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        height, width, _ = check_image(self, spec)
        if height != width:
            raise ArgumentError(f"{self.name} accepts square images, not {spec}.")
        return spec

    def parameters(self) -> tuple[Parameter, ...]:
        return ()
