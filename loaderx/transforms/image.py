"""Ops that change the values of an image where they are: uint8, or floats from 0 to 1."""

from collections.abc import Callable
from typing import Any

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import Parameter, Transform, image_shape
from .kinds import IMAGE, Kind
from .sample import SampleTransform
from .values import check_numbers, full_scale

# Floats from 0 to 1 may be a little above 1 where something sharpened them.
BRIGHTEST = 1.5


class ImageTransform(SampleTransform):
    """In place on (height, width, channels); behind its own parameters stands `white`, the value of white."""

    in_place = True
    takes_rng = True
    takes_images = True
    colour = False
    # Whether floats outside of 0 to 1 come out as others than they should.
    clips = True

    def __init__(self, **parameters: Parameter) -> None:
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        _, _, channels = image_shape(spec, self.name)
        check_numbers(spec, self.name)
        if len(spec.shape) != 3:
            raise ArgumentError(
                f"{self.name} takes images of shape (height, width, channels), not {spec}."
            )
        if self.colour and channels != 3:
            raise ArgumentError(f"{self.name} takes images of 3 channels, not {spec}.")
        return spec

    def caution(self, spec: Spec, largest: Callable[[], float]) -> str | None:
        if not self.clips or spec.dtype.kind != "f":
            return None
        brightest = largest()
        if brightest <= BRIGHTEST:
            return None
        return (
            f"{self.name} takes floats for images from 0 to 1 and clips what is outside, and values go up to "
            f"{brightest:g} in the first row of the data. Divide them before, or leave them uint8, and put Normalize "
            "after it."
        )

    def for_kind(self, kind: Kind) -> Transform:
        return self if kind == IMAGE else Identity()

    def for_labels(self) -> Transform:
        return Identity()

    def for_points(self, image: Spec) -> Transform:
        return Identity()

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {**self._parameters, "white": full_scale(spec)}


ImageTransform.caution_kind = ImageTransform


def nothing(x: Any) -> None:
    """Leave a sample as it is."""


class Identity(SampleTransform):
    """The sample as it is: one of the choices of a policy, and what a change of colours is to a mask."""

    function = staticmethod(nothing)
    in_place = True
    does_nothing = True
    takes_rng = False

    def __init__(self) -> None:
        """Takes no arguments."""

    def output(self, spec: Spec) -> Spec:
        return spec

    def for_points(self, image: Spec) -> Transform:
        return self

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}
