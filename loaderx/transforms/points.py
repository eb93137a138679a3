"""Boxes and keypoints of an image: they follow ops that move its pixels."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels import points
from loaderx.spec import Spec

from .base import Parameter, Transform, image_shape
from .boxes import Boxes
from .kinds import BOXES, NUMBERS, Kind
from .sample import SampleTransform
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

    from .moving import MovingTransform

VALID = "_valid"


def check_points(name: str, spec: Spec, kind: Kind) -> None:
    """Refuse a field that cannot be boxes or keypoints."""
    numbers = NUMBERS[kind]
    wide = len(spec.shape) == 2 and spec.shape[1] >= numbers
    if not wide or (kind != BOXES and spec.shape[1] > numbers) or spec.dtype != np.float32:
        rows = (
            "(left, top, right, bottom) and further columns, if any"
            if kind == BOXES
            else "(x, y) in pixels"
        )
        raise ArgumentError(
            f"field {name!r} must be float32[n, {numbers}] to follow an image, {rows}, not {spec}."
        )


class PointsTransform(Transform):
    """Counterpart of an op on an image, `op`, for its boxes or keypoints."""

    in_place = True

    def __init__(self, op: "MovingTransform", image: Spec) -> None:
        self.op = op
        self.image = image
        self.result = op.output(image)

    @property
    def name(self) -> str:
        return self.op.name

    def output(self, spec: Spec) -> Spec:
        return spec

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        self.op.write_points(table, group[0], x, spec, self.image, self.result)

    def for_points(self, image: Spec) -> Transform:
        return self

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        return self.op.interpret_points(step, self.image, self.result)


def open_keypoints(x: Any, out: Any) -> None:
    """Add a number to each keypoint that says whether it is valid, which finite numbers are."""
    points.open_keypoints(x, out)


def close_keypoints(x: Any, out: Any) -> None:
    """Return the keypoints alone."""
    for k in range(out.shape[0]):
        for c in range(2):
            out[k, c] = x[k, c]


def valid_keypoints(x: Any, out: Any) -> None:
    """Write which keypoints are valid."""
    for k in range(out.shape[0]):
        out[k] = x[k, 2] > 0


def open_boxes(x: Any, out: Any, form: int, across: float, down: float) -> None:
    """Convert boxes to the format of ops."""
    points.open_boxes(x, form, across, down, out)


def close_boxes(
    x: Any, out: Any, form: int, across: float, down: float, area: float, visible: float, fills: bool, fill: float
) -> None:  # fmt: skip
    """Convert boxes to the format in which they are delivered."""
    points.close_boxes(x, form, across, down, area, visible, fills, fill, out)


def valid_boxes(x: Any, out: Any, area: float, visible: float) -> None:
    """Write which boxes are valid."""
    points.valid_boxes(x, area, visible, out)


class _Points(SampleTransform):
    in_place = False
    takes_rng = False

    def __init__(self, boxes: Boxes | None, image: Spec) -> None:
        self.boxes = boxes
        self.image = image
        # Whether one function is for boxes and the other for keypoints.
        self.function = self.of_keypoints if boxes is None else self.of_boxes

    of_boxes: Callable[..., None]
    of_keypoints: Callable[..., None]

    def units_of_boxes(self) -> dict[str, Parameter]:
        """Return the format, and how many pixels a unit of it has."""
        assert self.boxes is not None
        across, down = 1.0, 1.0
        if self.boxes.is_normalized:
            height, width, _ = image_shape(self.image, f"`kinds` with {self.boxes!r}")
            across, down = float(width), float(height)
        return {"form": self.boxes.code, "across": across, "down": down}

    def thresholds(self) -> dict[str, Parameter]:
        """Return the area and visibility below which a box is not valid."""
        assert self.boxes is not None
        return {"area": float(self.boxes.min_area), "visible": float(self.boxes.min_visibility)}


class OpenPoints(_Points):
    """Conversion of boxes, or keypoints if these are None, to the format of ops; they lie in an image."""

    of_boxes = staticmethod(open_boxes)
    of_keypoints = staticmethod(open_keypoints)

    def output(self, spec: Spec) -> Spec:
        more = 1 if self.boxes is None else 2
        return Spec((spec.shape[0], spec.shape[1] + more), spec.dtype)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {} if self.boxes is None else self.units_of_boxes()


class ClosePoints(_Points):
    """Conversion of points to the format in which they are delivered, in the resulting image."""

    of_boxes = staticmethod(close_boxes)
    of_keypoints = staticmethod(close_keypoints)

    def output(self, spec: Spec) -> Spec:
        more = 1 if self.boxes is None else 2
        return Spec((spec.shape[0], spec.shape[1] - more), spec.dtype)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        if self.boxes is None:
            return {}
        fill = self.boxes.fill
        return {
            **self.units_of_boxes(),
            **self.thresholds(),
            "fills": fill is not None,
            "fill": float(fill or 0.0),
        }


class ValidPoints(_Points):
    """Field that says which points are valid."""

    of_boxes = staticmethod(valid_boxes)
    of_keypoints = staticmethod(valid_keypoints)

    def output(self, spec: Spec) -> Spec:
        return Spec(spec.shape[:1], np.bool_)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {} if self.boxes is None else self.thresholds()
