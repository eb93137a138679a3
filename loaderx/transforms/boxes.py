"""Boxes: how the rows of a field of boxes are written, and which boxes are kept."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.points import CXCYWH, XYWH, XYXY

Format: TypeAlias = Literal[
    "xyxy", "xywh", "cxcywh", "pascal_voc", "coco", "yolo", "albumentations"
]

CODES = {"xyxy": XYXY, "xywh": XYWH, "cxcywh": CXCYWH}
# Names of formats in other libraries: the format, and whether it is normalised.
NAMES = {
    "pascal_voc": ("xyxy", False),
    "coco": ("xywh", False),
    "yolo": ("cxcywh", True),
    "albumentations": ("xyxy", True),
}


@dataclass(frozen=True)
class Boxes:
    """Kind of a field whose rows begin with a box: `kinds={"bboxes": Boxes("cxcywh", normalized=True)}`.

    `format` is "xyxy" (left, top, right, bottom), "xywh" (left, top, width, height) or "cxcywh" (centre, width,
    height), in pixels, or in fractions of the width and height of the image if `normalized`. "pascal_voc" and "coco"
    are the first two in pixels, "yolo" and "albumentations" the last and the first normalised. Boxes are delivered in
    the format they are given in; normalised ones as fractions of the resulting image.

    Boxes of less than `min_area` pixels, or of which less than `min_visibility` is left, are not valid after the last
    op, and become zeros. Visible is the share that no op has cut off; scaling changes nothing about it.

    Columns after the first four, such as classes and scores, stay as they are. With `fill` they become that number in
    rows that are not valid.
    """

    format: Format = "xyxy"
    _: KW_ONLY
    normalized: bool | None = None
    min_area: float = 0.0
    min_visibility: float = 0.0
    fill: float | None = None

    def __post_init__(self) -> None:
        if self.format not in (*CODES, *NAMES):
            known = ", ".join(map(repr, (*CODES, *NAMES)))
            raise ArgumentError(f"`format` (={self.format!r}) must be one of {known}.")
        if not (self.normalized is None or isinstance(self.normalized, bool | np.bool_)):
            raise ArgumentError(f"`normalized` (={self.normalized!r}) must be True, False or None.")
        if self.format in NAMES and self.normalized not in (None, NAMES[self.format][1]):
            raise ArgumentError(
                f"`normalized` (={self.normalized!r}) contradicts `format` (={self.format!r}), which is "
                f"{'normalised' if NAMES[self.format][1] else 'in pixels'}."
            )
        if not _is_between(self.min_area, 0, math.inf) or self.min_area == math.inf:
            raise ArgumentError(
                f"`min_area` (={self.min_area!r}) must be a finite number of at least 0."
            )
        if not _is_between(self.min_visibility, 0, 1):
            raise ArgumentError(f"`min_visibility` (={self.min_visibility!r}) must be from 0 to 1.")
        if self.fill is not None and not _is_between(self.fill, -math.inf, math.inf):
            raise ArgumentError(f"`fill` (={self.fill!r}) must be a number or None.")

    @property
    def code(self) -> int:
        """Number of the format in compiled code."""
        return CODES[NAMES.get(self.format, (self.format,))[0]]

    @property
    def is_normalized(self) -> bool:
        """Return whether boxes are in fractions of the image."""
        return NAMES[self.format][1] if self.format in NAMES else bool(self.normalized)


def _is_between(value: Any, low: float, high: float) -> bool:
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and low <= float(value) <= high
    )
