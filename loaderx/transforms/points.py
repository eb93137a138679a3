"""Boxes and keypoints behind an image: they follow what moves its pixels."""

from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import Parameter, Transform
from .kinds import NUMBERS, Kind
from .sample import SampleTransform
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

    from .moving import MovingTransform

VALID = "_valid"


def check_points(name: str, spec: Spec, kind: Kind) -> None:
    """Refuse what cannot be boxes or keypoints."""
    numbers = NUMBERS[kind]
    if len(spec.shape) != 2 or spec.shape[1] != numbers or spec.dtype != np.float32:
        rows = "(left, top, right, bottom)" if numbers == 4 else "(x, y)"
        raise ArgumentError(
            f"field {name!r} must be float32[n, {numbers}] to follow an image, {rows} in pixels, not {spec}."
        )


class PointsTransform(Transform):
    """What `op` does to an image, for its boxes or keypoints."""

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

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        return self.op.interpret_points(step, self.image, self.result)


def open_points(x: Any, out: Any) -> None:
    """Points with a number more, which says whether they are valid: a box needs an area, all need finite numbers."""
    numbers = x.shape[1]
    for k in range(x.shape[0]):
        valid = True
        for c in range(numbers):
            out[k, c] = x[k, c]
            valid = valid and np.isfinite(x[k, c])
        if numbers == 4:
            valid = valid and x[k, 2] > x[k, 0] and x[k, 3] > x[k, 1]
        out[k, numbers] = np.float32(1.0 if valid else 0.0)


def close_points(x: Any, out: Any) -> None:
    """The points alone."""
    for k in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[k, c] = x[k, c]


def valid_points(x: Any, out: Any) -> None:
    """Which points are valid."""
    for k in range(out.shape[0]):
        out[k] = x[k, x.shape[1] - 1] > 0


class _Points(SampleTransform):
    in_place = False
    takes_rng = False

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}


class OpenPoints(_Points):
    """Points as the ops on them take them."""

    function = staticmethod(open_points)

    def output(self, spec: Spec) -> Spec:
        return Spec((spec.shape[0], spec.shape[1] + 1), spec.dtype)


class ClosePoints(_Points):
    """Points as they are delivered."""

    function = staticmethod(close_points)

    def output(self, spec: Spec) -> Spec:
        return Spec((spec.shape[0], spec.shape[1] - 1), spec.dtype)


class ValidPoints(_Points):
    """The field that says which points are valid."""

    function = staticmethod(valid_points)

    def output(self, spec: Spec) -> Spec:
        return Spec(spec.shape[:1], np.bool_)
