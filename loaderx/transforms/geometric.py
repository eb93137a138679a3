"""Rotate, affine, perspective, quarter turns and zoom: an image looked up where a map says."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.windows import FILL
from loaderx.spec import Spec

from .amounts import Amount, Amounts, amounts, draw_amount, spread
from .base import Parameter, between, finite, image_shape
from .spatial import BORDERS, Border, check_fill
from .values import check_numbers
from .warp import MapTransform

Interpolation = Literal["bilinear", "nearest"]
# Places in an image are counted in 32 bits.
LARGEST = 2**31 - 1


def appearance(op: Any, interpolation: str, border: str, fill: float) -> None:
    """How an op sees pixels between others, and outside."""
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
    op.fill = finite("fill", fill)


def check_image(op: Any, spec: Spec) -> tuple[int, int, int]:
    """The shape of an image that an op can look up pixels of."""
    shape = image_shape(spec, op.name)
    if op.interpolation == "bilinear":
        check_numbers(spec, op.name)
    if op.border == FILL:
        check_fill(op.fill, spec, op.name)
    if spec.size > LARGEST:
        raise ArgumentError(f"{op.name} takes images of at most {LARGEST} values, not {spec}.")
    return shape


class _Warp(MapTransform):
    """A map of an image onto one of the same size."""

    def __init__(
        self, parameters: tuple[Parameter, ...], interpolation: str, border: str, fill: float
    ) -> None:
        appearance(self, interpolation, border, fill)
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        check_image(self, spec)
        return spec

    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters


@jitable
def turn(degrees: float) -> Any:
    """Cosine and sine, exactly for quarter turns."""
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
    """The map that keeps the centre of the image where it is."""
    x, y = (width - 1) * 0.5, (height - 1) * 0.5
    return a, b, x - (a * x + b * y), d, e, y - (d * x + e * y), 0.0, 0.0, 1.0


@jitable
def rotate_map(rng: Any, height: int, width: int, tall: int, wide: int, degrees: Any) -> Any:
    """Counter-clockwise, around the centre."""
    cosine, sine = turn(draw_amount(rng, degrees))
    return around_centre(cosine, -sine, sine, cosine, height, width)


class Rotate(_Warp):
    """Counter-clockwise around the centre, by -degrees to degrees, or a range of them."""

    function = staticmethod(rotate_map)

    def __init__(
        self,
        degrees: Amount,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        super().__init__((spread("degrees", degrees),), interpolation, border, fill)


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
) -> Any:
    """Sheared, scaled and rotated around the centre, then moved: the inverse of torchvision's composition."""
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
    x, y = (width - 1) * 0.5, (height - 1) * 0.5
    c, f = x - (a * (x + across) + b * (y + down)), y - (d * (x + across) + e * (y + down))
    return a, b, c, d, e, f, 0.0, 0.0, 1.0


def _above_zero(name: str, value: Amount) -> Amounts:
    found = amounts(name, value, 0.0)
    if not np.all(found > 0):
        raise ArgumentError(f"`{name}` (={value!r}) must be above 0.")
    return found


# At 90 degrees a shear is infinite.
STEEPEST = 89.0


class Affine(_Warp):
    """Sheared, scaled and rotated around the centre, then moved.

    Degrees are counted counter-clockwise. `translate_x` and `translate_y` are fractions of the width and height, to
    the right and down; `shear_x` and `shear_y` are in degrees. Of all these a number is the range from its negative to
    it; `scale` is a number above 0, or a range.
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
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        given = (
            spread("degrees", degrees),
            spread("translate_x", translate_x),
            spread("translate_y", translate_y),
            _above_zero("scale", scale),
            spread("shear_x", shear_x, STEEPEST),
            spread("shear_y", shear_y, STEEPEST),
        )
        super().__init__(given, interpolation, border, fill)


@jitable
def scale_map(rng: Any, height: int, width: int, tall: int, wide: int, scale: Any) -> Any:
    """Larger or smaller around the centre."""
    factor = draw_amount(rng, scale)
    return around_centre(1.0 / factor, 0.0, 0.0, 1.0 / factor, height, width)


class RandomScale(_Warp):
    """Zoomed around the centre; the size of the image stays, and below 1 `border` is seen around it."""

    function = staticmethod(scale_map)

    def __init__(
        self,
        scale: Amount = (0.8, 1.2),
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        super().__init__((_above_zero("scale", scale),), interpolation, border, fill)


@jitable
def perspective_map(
    rng: Any, height: int, width: int, tall: int, wide: int, distortion: float
) -> Any:
    """From the quadrangle that the corners of the image move to, back to the image."""
    # Of a line of pixels, too, the corners are apart.
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
    """Each corner moves inwards, by up to `distortion` of the way to the centre in x and y."""

    function = staticmethod(perspective_map)

    def __init__(
        self,
        distortion: float = 0.5,
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        given = (between("distortion", distortion, 0, 1),)
        super().__init__(given, interpolation, border, fill)


@jitable
def quarter_map(rng: Any, height: int, width: int, tall: int, wide: int, turns: Any) -> Any:
    """Quarter turns counter-clockwise."""
    number = turns[rng.integers(0, len(turns))] if len(turns) > 1 else turns[0]
    right, bottom = width - 1.0, height - 1.0
    if number == 0:
        return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0
    if number == 1:
        return 0.0, -1.0, right, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0
    if number == 2:
        return -1.0, 0.0, right, 0.0, -1.0, bottom, 0.0, 0.0, 1.0
    return 0.0, 1.0, 0.0, -1.0, 0.0, bottom, 0.0, 0.0, 1.0


class Rot90(MapTransform):
    """A random one of these quarter turns, counter-clockwise as np.rot90.

    Images that are not square need turns that are all even, or all odd: then height and width are exchanged.
    """

    function = staticmethod(quarter_map)
    interpolation = "nearest"

    def __init__(self, turns: int | Sequence[int] = (0, 1, 2, 3)) -> None:
        given: Any = turns
        several = given if isinstance(given, tuple | list | np.ndarray) else (given,)
        if len(several) == 0 or not all(isinstance(turn, int | np.integer) for turn in several):
            raise ArgumentError(f"`turns` (={turns!r}) must be an integer, or some of them.")
        self._turns = np.array([int(turn) % 4 for turn in several], np.int64)

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
    """Rows become columns, or everything stays."""
    if rng.random() < probability:
        return 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0
    return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0


class Transpose(MapTransform):
    """Rows and columns exchanged with `probability`, which must be 0 or 1 for images that are not square."""

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
