"""Ops that are value * scale + bias per channel, into a floating dtype."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from loaderx.kernels import pixels
from loaderx.kernels.passes import HALVES
from loaderx.spec import Spec

from .arguments import array_at, value
from .base import Transform, image_shape
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether this is float16 or bfloat16, which compiled code has as bits only."""
    return str(dtype) in HALVES


def widened(table: "TableBuilder", step: Step, x: int, spec: Spec) -> tuple[int, Spec]:
    """Write the pass that makes float32 of half precision; return the register of the samples then, and their spec."""
    if not is_half(spec.dtype):
        return x, spec
    floats = table.place(4 * spec.size)
    bits = [array_at("x", Spec((spec.size,), spec.dtype))]
    bits.append(array_at("out", Spec((spec.size,), np.uint32)))
    table.call(step, getattr(pixels, f"from_{spec.dtype}"), bits, x, floats)
    return floats, Spec(spec.shape, np.float32)


class ScaleTransform(Transform):
    """value * scale + bias per channel, into a floating dtype: fused into the pass before it where there is one."""

    dtype: np.dtype[Any]
    is_scaling = True
    stays_compiled = True
    keeps_axes = True

    @abstractmethod
    def scale_and_bias(self, spec: Spec) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """float32 arrays, one entry per channel."""

    def for_points(self, image: Spec) -> Transform:
        from .image import Identity

        return Identity()

    def joins(self, group: list[Step], step: Step, spec: Spec) -> bool:
        return (
            group[-1].transform.is_window
            and not (is_half(self.dtype) or is_half(spec.dtype))
            and not self.channels_first
            # (height, width) is one channel to a window, and `width` channels to a scaling.
            and len(self.scale_and_bias(spec)[0]) in (1, image_shape(spec, self.name)[2])
        )

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step, result = group[0], self.output(spec)
        x, spec = widened(table, step, x, spec)
        half = is_half(self.dtype)
        # A pass of its own converts results to half precision.
        floats = table.place(4 * spec.size) if half else out
        scale, bias = self.scale_and_bias(spec)
        if self.channels_first:
            image = image_shape(spec, self.name)
            # One value for all channels is repeated for each.
            scale, bias = np.resize(scale, image[2]), np.resize(bias, image[2])
            kernel: Any = pixels.scale_planes
            shape: tuple[int, ...] = image
            target: tuple[int, ...] = (image[2], *image[:2])
        else:
            # Repeated for a row of the image: the inner loop is then long enough for vector instructions.
            period = math.prod(spec.shape[-2:])
            scale, bias = np.resize(scale, period), np.resize(bias, period)
            kernel = pixels.scale_pixels
            shape = target = (spec.size // period, period)
        given = [array_at("x", Spec(shape, spec.dtype)), value(scale), value(bias)]
        given.append(array_at("out", Spec(target, np.float32)))
        table.call(step, kernel, given, x, floats)
        if half:
            convert = getattr(pixels, f"to_{self.dtype}")
            bits = [array_at("x", Spec((spec.size,), np.uint32))]
            bits.append(array_at("out", Spec((spec.size,), result.dtype)))
            table.call(step, convert, bits, floats, out)
