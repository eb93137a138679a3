"""Ops that resample an image through a map that is not a matrix: elastic fields, grids, lenses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels.warping import fill_pixel, share_dtype
from loaderx.spec import Spec

from .arguments import RNG, array_at, value
from .base import Parameter, Transform, image_shape
from .geometric import Fill, appearance, as_labels, as_values, check_image
from .kinds import VALUES, Kind
from .points import PointsTransform
from .sample import SampleTransform
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class FieldTransform(SampleTransform):
    """Resampling of every pixel by a smooth map, which is drawn for every sample; the size stays.

    All its functions draw the same. After x, out and rng, `bilinear` and `nearest` get what the map needs, channels,
    border and fill colour, the workspaces of the map, and those of a line of pixels. `follow` moves points: it gets x,
    rng, what the map needs, height and width of the image, and the workspaces of the map.
    """

    in_place = False
    takes_rng = True
    spatial = True
    takes_images = True

    bilinear: Callable[..., None]
    nearest: Callable[..., None]
    follow: Callable[..., None]

    interpolation: str
    border: int
    fill: Any
    fill_mask: float | None

    def __init__(
        self, interpolation: str, border: str, fill: Fill, fill_mask: float | None
    ) -> None:
        appearance(self, interpolation, border, fill, fill_mask)
        self.function = self.bilinear if interpolation == "bilinear" else self.nearest

    def of_map(self, image: Spec) -> dict[str, Parameter]:
        """Return the parameters of the map of an image."""
        raise NotImplementedError

    def spaces_of_map(self, image: Spec) -> tuple[Spec, ...]:
        """Return the workspaces of the map of an image."""
        raise NotImplementedError

    def output(self, spec: Spec) -> Spec:
        check_image(self, spec)
        return spec

    def for_kind(self, kind: Kind) -> Transform:
        found: Transform = as_values(self) if kind == VALUES else super().for_kind(kind)
        return found

    def for_labels(self) -> Transform:
        found: FieldTransform = as_labels(self)
        found.function = self.nearest
        return found

    def for_points(self, image: Spec) -> Transform:
        moving: Any = self
        return PointsTransform(moving, image)

    def write_points(
        self, table: "TableBuilder", step: Step, x: int, spec: Spec, image: Spec, result: Spec
    ) -> None:
        """Write the pass that moves boxes or keypoints as the pixels of an image are moved."""
        given = [array_at("x", spec), RNG, *map(value, self._of_points(image))]
        given += [table.workspace(space) for space in self.spaces_of_map(image)]
        table.call(step, self.follow, given, x, x)

    def interpret_points(self, step: Step, image: Spec, result: Spec) -> Call:
        """Return a function that moves boxes or keypoints, in plain Python."""

        def call(x: NDArray[Any], position: int, _: int, turns: tuple[int, ...]) -> NDArray[Any]:
            spaces = [np.zeros(space.shape, space.dtype) for space in self.spaces_of_map(image)]
            self.follow(x, step.draws(position, turns), *self._of_points(image), *spaces)
            return x

        return call

    def _of_points(self, image: Spec) -> tuple[Any, ...]:
        return (*self.of_map(image).values(), *image_shape(image, self.name)[:2])

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        channels = image_shape(spec, self.name)[2]
        fill: Any = fill_pixel(self.fill, channels, spec.dtype)
        return {**self.of_map(spec), "channels": channels, "border": self.border, "fill": fill}

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        width = spec.shape[1]
        line = (Spec((2, width), np.float64), Spec((width,), np.int32))
        found = (*self.spaces_of_map(spec), *line)
        if self.interpolation == "nearest":
            return found
        return (*found, Spec((4, width), share_dtype(spec.dtype)))
