"""Ops that change the values of an image in place: uint8, or floats from 0 to 1."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import Parameter, Transform, image_shape
from .kinds import IMAGE, Kind
from .sample import SampleTransform
from .step import Call, Step
from .values import check_numbers, full_scale

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

# Tolerance: floats from 0 to 1 may be a little above 1 after sharpening.
BRIGHTEST = 1.5


def with_channels(spec: Spec) -> Spec:
    """Return a grey image of (height, width) as one of (height, width, 1), which has the same bytes."""
    return Spec((*spec.shape, 1), spec.dtype) if len(spec.shape) == 2 else spec


def alpha_space(spec: Spec) -> Spec:
    """Return the workspace for the opacity of an image; one value where it has none."""
    return Spec(spec.shape[:2] if spec.shape[2] == 4 else (1, 1), spec.dtype)


class ImageTransform(SampleTransform):
    """In-place op on (height, width, channels) or (height, width); its last parameter is `white`, the value of white.

    The compiled function gets (height, width) as one channel. Of four channels the last is opacity (alpha), which ops
    on colours and noise leave as it is. Blurs blur it, as they mix pixels.
    """

    in_place = True
    takes_rng = True
    takes_images = True
    # The numbers of channels that it accepts; None for any number.
    accepted_channels: tuple[int, ...] | None = None
    # Whether results are wrong for floats outside of 0 to 1.
    clips = True

    def __init__(self, **parameters: Parameter) -> None:
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        _, _, channels = image_shape(spec, self.name)
        check_numbers(spec, self.name)
        accepted = self.accepted_channels
        if accepted is not None and channels not in accepted:
            *most, last = map(str, accepted)
            raise ArgumentError(
                f"{self.name} accepts images of {', '.join(most)} or {last} channels, not {spec}."
            )
        return spec

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        super().write(table, group, x, out, with_channels(spec))

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        image = with_channels(spec)
        call = super().interpret(step, image, compiled)
        if image == spec:
            return call

        def call_grey(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            return call(x.reshape(image.shape), position, length, turns).reshape(spec.shape)

        return call_grey

    def caution(self, spec: Spec, largest: Callable[[], float]) -> str | None:
        if not self.clips or spec.dtype.kind != "f":
            return None
        brightest = largest()
        if brightest <= BRIGHTEST:
            return None
        return (
            f"{self.name} treats floats as images from 0 to 1 and clips values outside, and values go up to "
            f"{brightest:g} in the first row of the data. Divide them before, or keep them uint8, and put Normalize "
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
    """Identity: the sample as it is. It is a choice of policies, and a change of colours for a mask."""

    function = staticmethod(nothing)
    in_place = True
    does_nothing = True
    takes_rng = False

    def __init__(self) -> None:
        """Accept no arguments."""

    def output(self, spec: Spec) -> Spec:
        return spec

    def for_points(self, image: Spec) -> Transform:
        return self

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}
