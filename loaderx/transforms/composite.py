"""Base of ops that compose an image of several samples of a batch; the fields next to the image follow."""

import copy
from abc import abstractmethod

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import Transform
from .mix import BatchTransform, Mixing, Objects
from .step import Step


class CompositeTransform(BatchTransform):
    """Op that composes an image of several samples of a batch."""

    spatial = True
    takes_images = True
    # Whether it needs a mask that tells objects apart.
    needs_mask = False

    objects: Objects | None = None
    # Whether its samples are masks whose values are numbers of boxes.
    counts = False

    def among(self, objects: Objects | None) -> "CompositeTransform":
        """Return the op for an entry whose objects a mask tells apart."""
        changed = copy.copy(self)
        changed.objects = objects
        return changed

    def for_instances(self) -> "CompositeTransform":
        """Return the op for that mask, if its values are numbers of boxes."""
        changed = copy.copy(self)
        changed.counts = True
        return changed

    def for_points(self, image: Spec) -> Transform:
        return _CompositePoints(self, image)

    @abstractmethod
    def points_output(self, spec: Spec) -> Spec:
        """Return the spec of the result for boxes or keypoints of `spec`."""

    @abstractmethod
    def mixing_of_points(self, spec: Spec, image: Spec) -> Mixing:
        """Return how boxes or keypoints of `spec` that lie in an image are mixed."""

    def check_numbers_fit(self, spec: Spec, rows: int) -> None:
        """Refuse a mask whose dtype cannot hold the numbers of this many boxes."""
        if rows > np.iinfo(spec.dtype).max:
            raise ArgumentError(
                f"{self.name} makes {rows} boxes, and masks of {spec} cannot have their numbers. Give fewer rows of "
                "boxes, or a mask of a wider dtype."
            )


class _CompositePoints(BatchTransform):
    def __init__(self, op: CompositeTransform, image: Spec) -> None:
        self._op = op
        self._image = image

    @property
    def name(self) -> str:
        return self._op.name

    def output(self, spec: Spec) -> Spec:
        return self._op.points_output(spec)

    def mixing(self, spec: Spec, step: Step) -> Mixing:
        return self._op.mixing_of_points(spec, self._image)
