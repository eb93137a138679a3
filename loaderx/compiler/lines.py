"""One pass over a sample as lines of its driver: a call with views of memory, whose shapes are constants."""

import math
from typing import Any

import numpy as np

from loaderx.kernels import pixels, points, warping, windows
from loaderx.spec import Spec
from loaderx.transforms.points import PointsTransform
from loaderx.transforms.transform import (
    MapTransform,
    SampleTransform,
    ScaleTransform,
    WindowTransform,
    image_shape,
)

from .draft import HALVES, Draft, Step


def write_call(
    text: Draft, step: Step, spec: Spec, address: str, target: str | None, rng: str
) -> None:
    """Write the call of an op at `address`, or from there to `target`.

    Code of a user is there twice: as it is, and with every index checked, into memory of a known content.
    """
    op = step.transform
    assert isinstance(op, SampleTransform)
    given = [text.array(address, spec.shape, spec.dtype)]
    result = op.output(spec)
    if target is not None:
        given.append(text.array(target, result.shape, result.dtype))
    if op.takes_length:
        text.takes_lengths = True
        given.append(f"min(lengths[i], {min(step.most, spec.shape[0])})")
    given += [rng] if op.takes_rng else []
    given += [text.argument(value) for value in op.parameters(spec).values()]
    given += [
        text.array(text.space(space.nbytes), space.shape, space.dtype)
        for space in op.workspaces(spec)
    ]
    call = f"({', '.join(given)})"
    if not op.checked:
        text.write(f"{text.function(op.function)}{call}")
        return
    with text.block("if progress[2] == 0:"):
        text.write(f"{text.function(op.function)}{call}")
    with text.block("else:"):
        if target is not None:
            memory = text.array(target, (result.nbytes,), "uint8")
            text.write(f"{text.function(fill_bytes)}({memory}, progress[2])")
        text.write(f"{text.function(op.function, checked=True)}{call}")


def fill_bytes(memory: Any, value: int) -> None:
    """One byte everywhere."""
    for k in range(memory.shape[0]):
        memory[k] = value


def write_half(text: Draft, address: str, spec: Spec, target: str, dtype: np.dtype[Any]) -> None:
    """float32 at one address as half precision at another."""
    convert = text.function(getattr(pixels, f"to_{dtype}"))
    source = text.array(address, (spec.size,), "uint32")
    text.write(f"{convert}({source}, {text.array(target, (spec.size,), 'uint16')})")


def write_scale(
    text: Draft, op: ScaleTransform, address: str, spec: Spec, target: str, result: Spec
) -> None:
    """Values times scale plus bias."""
    scale, bias = op.scale_and_bias(spec)
    if op.channels_first:
        kernel = text.function(pixels.scale_planes)
        image = image_shape(spec, op.name)
        # One for all channels is listed for each.
        scale, bias = np.resize(scale, image[2]), np.resize(bias, image[2])
        source = text.array(address, image, spec.dtype)
        out = text.array(target, result.shape, result.dtype)
    else:
        kernel = text.function(pixels.scale_pixels)
        # Listed for a row of the image: the inner loop is then long enough for vector instructions.
        period = math.prod(spec.shape[-2:])
        scale, bias = np.resize(scale, period), np.resize(bias, period)
        shape = (spec.size // period, period)
        source = text.array(address, shape, spec.dtype)
        out = text.array(target, shape, result.dtype)
    text.write(f"{kernel}({source}, {text.argument(scale)}, {text.argument(bias)}, {out})")


def write_windows(
    text: Draft, group: list[Step], address: str, spec: Spec, target: str, result: Spec
) -> None:
    """The tables of both axes, op by op, then one pass over the pixels."""
    height, width, channels = image_shape(spec, group[0].transform.name)
    source_shape = (height, width, channels)
    identity = text.argument(np.arange(max(height, width), dtype=np.int32))
    tables = [[f"{identity}[:{height}]"], [f"{identity}[:{width}]"]]
    fill, current = 0.0, spec
    for step in group:
        op = step.transform
        if not isinstance(op, WindowTransform):
            break
        rng = text.start_op(step)
        shape = image_shape(op.output(current), op.name)
        given = "".join(f", {text.argument(value)}" for value in op.parameters())
        text.write(
            f"top, tall, upside, left, wide, mirrored = {text.function(op.function)}"
            f"({rng}, {height}, {width}, {shape[0]}, {shape[1]}{given})"
        )
        # As variables: what is compiled for constants is compiled again for each of them.
        windows_of = (
            "int64(top), int64(tall), boolean(upside)",
            "int64(left), int64(wide), boolean(mirrored)",
        )
        for axis in range(2):
            before, window, size = tables[axis], windows_of[axis], shape[axis]
            low = text.table(size, "int32")
            if op.interpolation is None and len(before) == 1:
                text.write(f"compose({before[0]}, {window}, int64({op.border}), {low})")
                tables[axis] = [low]
                continue
            if op.interpolation == "nearest" or (op.interpolation and step.follows):
                text.write(f"compose_nearest({before[0]}, {window}, {low})")
                tables[axis] = [low]
                continue
            high, weight = text.table(size, "int32"), text.table(size, "float32")
            if op.interpolation is None:
                text.write(
                    f"compose_blended({', '.join(before)}, {window}, int64({op.border}), {low}, {high}, {weight})"
                )
            else:
                text.write(f"compose_linear({before[0]}, {window}, {low}, {high}, {weight})")
            tables[axis] = [low, high, weight]
        if op.border == windows.FILL and op.interpolation is None:
            fill = op.fill
        current, (height, width, _) = op.output(current), shape
    last = group[-1].transform
    source = text.array(address, source_shape, spec.dtype)
    pixel = np.full(channels, fill, spec.dtype)
    # Half precision is moved as bits, and never calculated with. A row of it: see `copy_window`.
    pixel = pixel.view(np.uint16) if str(spec.dtype) in HALVES else pixel
    filled = text.argument(np.tile(pixel, width))
    out_shape = (height, width, channels)
    scaled = isinstance(last, ScaleTransform)
    blended = len(tables[0]) == 3
    if isinstance(last, ScaleTransform):
        text.start_op(group[-1])
        scale, bias = last.scale_and_bias(current)
        scale, bias = np.resize(scale, channels), np.resize(bias, channels)
    else:
        scale, bias = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    repeats = max(width, 4)
    scaling = f"{text.argument(np.tile(scale, repeats))}, {text.argument(np.tile(bias, repeats))}"
    rows, columns = ", ".join(tables[0]), ", ".join(tables[1])
    if blended:
        # Room for one pixel more: see `blend_window`.
        length = source_shape[1] * channels + 4
        line = text.array(text.space(length * 4), (length,), "float32")
        whole = spec.dtype.kind in "iub"
        floating = result.dtype == np.float32
        out_address = target if floating else text.space(result.size * 4)
        out = text.array(out_address, out_shape, "float32")
        text.write(
            f"blend_window({source}, {rows}, {columns}, {filled}, {scaling}, {line}, {whole}, {out})"
        )
        if not floating:
            flat = text.array(out_address, (result.size,), "float32")
            text.write(f"store_values({flat}, {text.array(target, (result.size,), result.dtype)})")
    else:
        out = text.array(target, out_shape, result.dtype)
        if scaled:
            text.write(f"scale_window({source}, {rows}, {columns}, {filled}, {scaling}, {out})")
        else:
            text.write(f"copy_window({source}, {rows}, {columns}, {filled}, {out})")


def write_map(text: Draft, step: Step, address: str, spec: Spec, target: str, result: Spec) -> None:
    """An image through a map."""
    op = step.transform
    assert isinstance(op, MapTransform)
    rng = text.start_op(step)
    shape, out_shape = image_shape(spec, op.name), image_shape(result, op.name)
    drawn = "".join(f", {text.argument(value)}" for value in op.parameters())
    text.write(
        f"matrix = {text.function(op.function)}({rng}, {shape[0]}, {shape[1]}, {out_shape[0]}, {out_shape[1]}{drawn})"
    )
    fill = text.argument(warping.fill_pixel(op.fill, shape[2], spec.dtype))
    wide = out_shape[1]
    given = [text.array(address, shape, spec.dtype), "matrix", f"int64({op.border})", fill]
    given.append(text.array(text.space(2 * wide * 8), (2, wide), "float64"))
    given.append(text.array(text.space(wide * 4), (wide,), "int32"))
    warp: Any = warping.warp_nearest
    if op.interpolation == "bilinear" and not step.follows:
        warp = warping.warp_bilinear
        shares = warping.share_dtype(spec.dtype)
        given.append(text.array(text.space(4 * wide * 8), (4, wide), shares))
    given.append(text.array(target, out_shape, result.dtype))
    text.write(f"{text.function(warp)}({', '.join(given)})")


def write_points(text: Draft, op: PointsTransform, rng: str, address: str, spec: Spec) -> None:
    """Boxes or keypoints, moved as their image is."""
    mover = op.op
    height, width, _ = image_shape(op.image, op.name)
    tall, wide, _ = image_shape(op.result, op.name)
    given = "".join(f", {text.argument(value)}" for value in mover.parameters())
    call = f"{text.function(mover.function)}({rng}, {height}, {width}, {tall}, {wide}{given})"
    array = text.array(address, spec.shape, spec.dtype)
    if isinstance(mover, MapTransform):
        text.write(f"matrix = {call}")
        kernel = text.function(points.map_points)
        text.write(f"{kernel}({array}, matrix, int64({tall}), int64({wide}))")
        return
    kernel = text.function(points.window_points)
    text.write(f"top, tall, upside, left, wide, mirrored = {call}")
    text.write(
        f"{kernel}({array}, int64(top), int64(tall), boolean(upside), int64(left), int64(wide), boolean(mirrored), "
        f"int64({tall}), int64({wide}))"
    )
