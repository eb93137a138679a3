"""A chain of ops -> the text of the loop that takes a sample through it.

Ops that only say which window of an image they show are composed, so that crop, flip, resize and the scaling behind
them are one pass over the pixels. Arrays are views of memory with their shapes as constants: the natural loops of a
transform then run at memory speed (14 us for 224 x 224 x 3 floats, against 58 us with shapes known at run time only).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loaderx.kernels import pixels, windows
from loaderx.spec import Spec
from loaderx.transforms.transform import (
    SampleTransform,
    ScaleTransform,
    Transform,
    WindowTransform,
    image_shape,
)

ALIGNMENT = 64
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Step:
    """One op of a chain, with the key of its draws; a field that `follows` an image is sampled, never mixed."""

    transform: Transform
    key: int
    follows: bool = False


@dataclass
class Draft:
    """The text of a driver while it is being written."""

    lines: list[str] = field(default_factory=list)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    arguments: list[Any] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    scratch: int = 0

    def write(self, line: str) -> None:
        self.lines.append(f"        {line}")

    def function(self, function: Callable[..., Any]) -> str:
        for name, known in self.functions.items():
            if known is function:
                return name
        name = f"{getattr(function, '__name__', 'op').strip('<>')}_{len(self.functions)}"
        self.functions[name] = function
        return name

    def argument(self, value: Any) -> str:
        self.arguments.append(value)
        return f"a{len(self.arguments) - 1}"

    def space(self, nbytes: int) -> str:
        start = self.scratch
        self.scratch += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return f"space + {start}"

    def array(self, address: str, shape: tuple[int, ...], dtype: np.dtype[Any] | str) -> str:
        """A view of memory, with its shape as a constant."""
        return f"carray(pointer({address}), {shape or (1,)}, np.{_name(dtype)})"

    def table(self, size: int, dtype: str) -> str:
        name = f"t{self.scratch}"
        self.write(f"{name} = {self.array(self.space(size * 4), (size,), dtype)}")
        return name

    def start_op(self, step: Step) -> str:
        """Note which op runs, for messages, and give the expression of its rng."""
        number = len(self.names)
        self.names.append(step.transform.name)
        self.keys.append(step.key)
        self.write(f"progress[1] = {number}")
        return f"start_draws(fold(keys[{number}], positions[i]))"


def _name(dtype: np.dtype[Any] | str) -> str:
    name = str(np.dtype(dtype)) if not isinstance(dtype, str) else dtype
    return {"bool": "bool_", **dict.fromkeys(HALVES, "uint16")}.get(name, name)


def passes(steps: Sequence[Step], spec: Spec) -> list[list[Step]]:
    """Which steps run as one pass: windows in a row, and a scaling that follows them."""
    groups: list[list[Step]] = []
    mixed = False
    # The colour that the windows so far may show; one pass has one.
    fill: float | None = None
    for step in steps:
        op = step.transform
        last = groups[-1][-1].transform if groups else None
        joins = False
        if isinstance(op, WindowTransform):
            blends = op.interpolation == "bilinear" and not step.follows
            shown = op.fill if op.interpolation is None and op.border == windows.FILL else None
            joins = isinstance(last, WindowTransform) and not (
                (op.interpolation is not None and mixed)
                or (blends and fill is not None)
                or (shown is not None and fill is not None and shown != fill)
            )
            mixed = blends or (joins and mixed)
            fill = shown if shown is not None else fill if joins else None
        elif isinstance(op, ScaleTransform):
            joins = (
                isinstance(last, WindowTransform)
                and str(op.dtype) not in HALVES
                and not op.channels_first
                # (height, width) is one channel to a window, and `width` channels to a scaling.
                and len(op.scale_and_bias(spec)[0]) in (1, image_shape(spec, op.name)[2])
            )
        if joins:
            groups[-1].append(step)
        else:
            groups.append([step])
        spec = op.output(spec)
    return groups


def draft(steps: Sequence[Step], spec: Spec) -> tuple[Draft, Spec]:
    """The body of the loop over samples, and the spec of what it writes."""
    text = Draft()
    # Steps that run as one pass, the word "copy", or the dtype of a conversion to half precision.
    groups: list[Any] = []
    for group in passes(steps, spec):
        groups.append(group)
        op = group[-1].transform
        if isinstance(op, ScaleTransform) and str(op.dtype) in HALVES:
            groups.append(op.dtype)
    if not groups or _in_place(groups[0]):
        # Rows lie in a mapped file that nobody may write to.
        groups.insert(0, "copy")
    transfers = [number for number, group in enumerate(groups) if not _in_place(group)]
    address, current = "row", spec
    for number, group in enumerate(groups):
        if _in_place(group):
            _write_in_place(text, group[0], address, current)
            continue
        result = _result(group, current)
        final = number == transfers[-1]
        target = f"target + i * {result.nbytes}" if final else text.space(result.nbytes)
        if group == "copy":
            text.write(f"copy_bytes({target}, {address}, {current.nbytes})")
        elif isinstance(group, np.dtype):
            _write_half(text, address, current, target, group)
        else:
            _write_transfer(text, group, address, current, target, result)
        address, current = target, result
    return text, current


def _in_place(group: Any) -> bool:
    return (
        isinstance(group, list)
        and isinstance(group[0].transform, SampleTransform)
        and group[0].transform.in_place
    )


def _result(group: Any, spec: Spec) -> Spec:
    if group == "copy":
        return spec
    if isinstance(group, np.dtype):
        return Spec(spec.shape, group)
    for step in group:
        spec = step.transform.output(spec)
    # What is calculated becomes half precision in a pass of its own; what is only moved is that already.
    calculated = isinstance(group[-1].transform, ScaleTransform) and str(spec.dtype) in HALVES
    return Spec(spec.shape, np.float32) if calculated else spec


def _write_in_place(text: Draft, step: Step, address: str, spec: Spec) -> None:
    op = step.transform
    assert isinstance(op, SampleTransform)
    rng = text.start_op(step)
    given = [text.array(address, spec.shape, spec.dtype)]
    given += [rng] if op.takes_rng else []
    given += [text.argument(value) for value in op.parameters(spec).values()]
    text.write(f"{text.function(op.function)}({', '.join(given)})")


def _write_half(text: Draft, address: str, spec: Spec, target: str, dtype: np.dtype[Any]) -> None:
    convert = text.function(getattr(pixels, f"to_{dtype}"))
    source = text.array(address, (spec.size,), "uint32")
    text.write(f"{convert}({source}, {text.array(target, (spec.size,), 'uint16')})")


def _write_transfer(
    text: Draft, group: list[Step], address: str, spec: Spec, target: str, result: Spec
) -> None:
    op = group[0].transform
    if isinstance(op, WindowTransform):
        _write_windows(text, group, address, spec, target, result)
    elif isinstance(op, ScaleTransform):
        text.start_op(group[0])
        _write_scale(text, op, address, spec, target, result)
    else:
        assert isinstance(op, SampleTransform)
        rng = text.start_op(group[0])
        given = [text.array(address, spec.shape, spec.dtype)]
        given.append(text.array(target, result.shape, result.dtype))
        given += [rng] if op.takes_rng else []
        given += [text.argument(value) for value in op.parameters(spec).values()]
        text.write(f"{text.function(op.function)}({', '.join(given)})")


def _write_scale(
    text: Draft, op: ScaleTransform, address: str, spec: Spec, target: str, result: Spec
) -> None:
    scale, bias = op.scale_and_bias(spec)
    if op.channels_first:
        kernel = text.function(pixels.scale_planes)
        source = text.array(address, image_shape(spec, op.name), spec.dtype)
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


def _write_windows(
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
    # Half precision is moved as bits, and never calculated with.
    filled = text.argument(pixel.view(np.uint16) if str(spec.dtype) in HALVES else pixel)
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
