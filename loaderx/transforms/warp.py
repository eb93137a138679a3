"""Ops that resample an image through a projective map: rotate, affine, perspective."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.kernels import points, warping
from loaderx.spec import Spec

from .arguments import array_at, image_at, value
from .base import image_shape
from .moving import MovingTransform
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class MapTransform(MovingTransform):
    """Projective map of an image that is drawn for every sample: rotate, affine, perspective.

    Its function gives nine float64: the matrix, row by row, from the output's (x, y, 1) to the input's, where whole
    numbers are the centres of pixels.
    """

    function: Callable[..., tuple[float, ...]]
    interpolation: str = "bilinear"
    # A number, or a tuple of one for each channel.
    fill: Any = 0.0

    numbers, number = 9, "float64"
    store, follow = staticmethod(warping.store_matrix), staticmethod(points.map_points)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step, result = group[0], self.output(spec)
        shape, wanted = image_shape(spec, self.name), image_shape(result, self.name)
        wide = wanted[1]
        given = [image_at("x", shape[2], spec.dtype), self.draw(table, step, spec, result)]
        given += [value(self.border), value(warping.fill_pixel(self.fill, shape[2], spec.dtype))]
        given.append(table.workspace(Spec((2, wide), np.float64)))
        given.append(table.workspace(Spec((wide,), np.int32)))
        warp: Any = warping.warp_nearest
        if self.interpolation == "bilinear" and not step.follows:
            warp = warping.warp_bilinear
            given.append(table.workspace(Spec((4, wide), warping.share_dtype(spec.dtype))))
        given.append(array_at("out", Spec(wanted, result.dtype)))
        table.call(step, warp, given, x, out, sizes=shape[:2])
