"""Contact sheet: samples of a loader as pictures, with their originals, boxes and labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from loaderx.display.html import as_colours, as_pixels, is_image
from loaderx.loader import DataLoader
from loaderx.sources.source import specs_of
from loaderx.spec import Spec
from loaderx.transforms.points import VALID

from .terminal import UsageError

Array = NDArray[Any]

BOXES = "boxes"
# Pixels: limits for the longest side of a picture, and distances.
MIN_SIDE, MAX_SIDE = 112, 192
GAP, MARGIN, LINE = 4, 14, 15
# Aspect ratio of a sheet.
ASPECT_RATIO = 1.4
# Not white, since images may be white.
PAPER, INK, PALE = (232, 232, 236), (20, 20, 20), (110, 110, 110)
BOX_COLOURS = ((255, 59, 48), (52, 199, 89), (10, 132, 255), (255, 204, 0))
# Number of classes in a caption if a label is a vector.
MAX_CLASSES = 2


@dataclass(frozen=True)
class View:
    """Field of images, and its boxes: (sample, box, 4), NaN for padding."""

    name: str
    spec: Spec
    pixels: NDArray[np.uint8]
    boxes: Array | None


@dataclass(frozen=True)
class Samples:
    """Content of the sheet."""

    rows: NDArray[np.int64]
    original: View | None
    views: list[View]
    captions: list[str]


def samples_of(loader: DataLoader, step: int, count: int, field: str | None) -> Samples:
    """Return `count` samples from batch `step` on, or fewer if the loader ends before."""
    batch, rows = _delivered(loader, step, count)
    origins = {each.name: each.origin for each in loader._builder.planner.fields}
    wanted = _choose(batch, origins, field)
    origin = origins.get(wanted[0], wanted[0])
    first = {
        each.name: each.chain is not None and each.chain.channels_first
        for each in loader._builder.planner.fields
    }
    colours = [as_colours(batch[name], channels_first=first.get(name, False)) for name in wanted]
    views = [
        View(name, _spec(batch[name]), pixels, _boxes_of(batch, origins, name, origin))
        for name, pixels in zip(wanted, as_pixels(colours), strict=True)
    ]
    data = _originals(loader, rows)
    original = None
    if origin in data and is_image(_spec(data[origin]), 1):
        (pixels,) = as_pixels([as_colours(data[origin])])
        own = {name: name for name in data}
        boxes = _boxes_of(data, own, origin, origin)
        original = View("original", _spec(data[origin]), pixels, boxes)
    return Samples(rows, original, views, _captions(loader, batch, origins, rows))


def draw(samples: Samples) -> Image.Image:
    """Return the sheet."""
    views = [*([samples.original] if samples.original else []), *samples.views]
    side = max(_side(max(view.pixels.shape[1:3])) for view in views)
    sizes = [_size(view.pixels.shape[1:3], side) for view in views]
    font = _font()
    width = sum(size[0] for size in sizes) + GAP * (len(sizes) - 1)
    height = max(size[1] for size in sizes)
    lines = [_fitting(caption, width, font) for caption in samples.captions]
    cell = (width + MARGIN, height + LINE + MARGIN)
    count = len(samples.rows)
    columns = min(count, max(1, round(math.sqrt(count * ASPECT_RATIO * cell[1] / cell[0]))))
    columns = math.ceil(count / math.ceil(count / columns))
    top = MARGIN + LINE
    sheet = Image.new(
        "RGB",
        (columns * cell[0] + MARGIN, math.ceil(count / columns) * cell[1] + top + GAP),
        PAPER,
    )
    pen = ImageDraw.Draw(sheet)
    for number in range(count):
        left = MARGIN + number % columns * cell[0]
        upper = top + number // columns * cell[1]
        for view, size in zip(views, sizes, strict=True):
            if number < columns:
                title = f"{view.name} ({view.pixels.shape[2]} x {view.pixels.shape[1]})"
                title = _fitting(title, size[0], font)
                pen.text((left, upper - LINE), title, PALE, font)
            picture = _picture(view, number, size)
            sheet.paste(picture, (left, upper))
            left += size[0] + GAP
        left = MARGIN + number % columns * cell[0]
        pen.text((left, upper + height + 1), lines[number], INK, font)
    return sheet


def _delivered(loader: DataLoader, step: int, count: int) -> tuple[dict[str, Array], Array]:
    """Return fields of samples as the loader delivers them, without padding, and their rows."""
    found: list[dict[str, Array]] = []
    rows: list[Array] = []
    while sum(map(len, rows)) < count:
        try:
            span = loader._span(step)
        except IndexError as error:
            if not rows:
                raise UsageError(f"--step (={step}): {error}") from None
            break
        fields = _named(loader.batch(step))
        size = min(span.valid, count - sum(map(len, rows)))
        # The user's function of a batch may add arrays of another length.
        arrays = {name: np.asarray(value) for name, value in fields.items()}
        found.append(
            {
                name: array[:size]
                for name, array in arrays.items()
                if array.ndim and len(array) == span.size
            }
        )
        rows.append(loader.indices(step)[:size])
        step += 1
    names = [name for name in found[0] if all(name in each for each in found)]
    batch = {name: np.concatenate([each[name] for each in found]) for name in names}
    return batch, np.concatenate(rows)


def _named(batch: Any) -> dict[str, Any]:
    if isinstance(batch, dict):
        return {str(name): value for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        names = getattr(batch, "_fields", range(len(batch)))
        return {str(name): value for name, value in zip(names, batch, strict=True)}
    return {"data": batch}


def _choose(batch: dict[str, Array], origins: dict[str, str], field: str | None) -> list[str]:
    """Return the fields to draw: the named one, or those that Views make of it."""
    having = ", ".join(f"{name} {_spec(array)}" for name, array in batch.items())
    having = having or "no arrays of samples"
    if field is not None:
        wanted = [name for name in batch if name == field]
        wanted = wanted or [name for name in batch if origins.get(name) == field]
        if not wanted:
            raise UsageError(f"--field: batches have no field {field!r}; they have {having}.")
        # The same field may also become other arrays, such as the validity of boxes.
        images = [name for name in wanted if is_image(_spec(batch[name]), 1)]
        if not images:
            shown = _spec(batch[wanted[0]])
            raise UsageError(
                f"field {wanted[0]!r} is {shown}, which is not an image: an image is uint8 or float of (height, "
                "width), or with 1 or 3 channels last or first."
            )
        return images
    images = [name for name in batch if is_image(_spec(batch[name]))]
    if not images:
        raise UsageError(f"batches have no image field; they have {having}.")
    preferred = [name for name in images if origins.get(name, name) == "image"] or images
    origin = origins.get(preferred[0], preferred[0])
    return [name for name in preferred if origins.get(name, name) == origin]


def _originals(loader: DataLoader, rows: Array) -> dict[str, Array]:
    """Return the rows of the source, without transforms."""
    data: dict[str, Array] = {}
    for group in loader._builder.planner.groups:
        if all(each.origin in data for each in group.fields):
            continue
        specs = specs_of(group.source.spec)
        out = [np.empty((len(rows), *spec.shape), spec.dtype) for spec in specs]
        group.source.read(rows, out)
        for each, column in zip(group.fields, group.columns, strict=True):
            data[each.origin] = out[column]
    return data


def _boxes_of(
    batch: dict[str, Array], origins: dict[str, str], name: str, origin: str
) -> Array | None:
    """Return the boxes of an image field; those of the view `image_0` are `boxes_0`."""
    view = name.removeprefix(origin)
    found: list[Array] = []
    for field, array in batch.items():
        source = origins.get(field, field)
        if not source.endswith(BOXES) or field != source + view or array.shape[2:] != (4,):
            continue
        boxes = array.astype(np.float64)
        valid = batch.get(field + VALID)
        if valid is not None:
            boxes[~valid.astype(bool)] = np.nan
        found.append(boxes)
    return np.concatenate(found, axis=1) if found else None


def _captions(
    loader: DataLoader, batch: dict[str, Array], origins: dict[str, str], rows: Array
) -> list[str]:
    """Return captions: row numbers, and single numbers or vectors of classes."""
    raw = {each.origin: each.raw for each in loader._builder.planner.fields}
    captions = [f"row {row}" for row in rows]
    for name, array in batch.items():
        classes = array.ndim == 2 and raw.get(origins.get(name, name), _spec(array)).shape == ()
        if name == "mask" or not (array.ndim == 1 or classes):
            continue
        for place, value in enumerate(array):
            shown = _classes(value) if classes else _number(value)
            captions[place] += f" · {name} {shown}"
    return captions


def _classes(value: Array) -> str:
    shares = value.astype(np.float64)
    order = [int(k) for k in np.argsort(-shares, kind="stable")[:MAX_CLASSES] if shares[k] > 0]
    if not order:
        return "none"
    if shares[order[0]] == 1:
        return str(order[0])
    return " + ".join(f"{k}: {shares[k]:.2f}" for k in order)


def _number(value: Any) -> str:
    # NumPy does not count bfloat16 as a float.
    return f"{float(value):.4g}" if value.dtype.kind in "fV" else str(value)


def _picture(view: View, number: int, size: tuple[int, int]) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(view.pixels[number]))
    scale = size[0] / image.width
    # A whole factor shows the pixels themselves; with any other they would have different sizes.
    way = Image.Resampling.NEAREST if scale.is_integer() else Image.Resampling.BICUBIC
    picture = image.resize(size, way)
    if view.boxes is not None:
        pen = ImageDraw.Draw(picture)
        for place, box in enumerate(view.boxes[number]):
            left, top, right, bottom = (float(edge) * scale for edge in box)
            # Skip missing boxes, which are NaN or have no size.
            if right > left and bottom > top:
                colour = BOX_COLOURS[place % len(BOX_COLOURS)]
                edges = (left, top, max(left, right - 1), max(top, bottom - 1))
                pen.rectangle(edges, outline=colour, width=2)
    return picture


def _side(longest: int) -> int:
    """Return the length of a side on the sheet: short ones grow by a whole factor."""
    if longest >= MAX_SIDE:
        return MAX_SIDE
    return longest * max(1, min(math.ceil(MIN_SIDE / longest), MAX_SIDE // longest))


def _size(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return (width, height) on the sheet."""
    height, width = shape
    scale = side / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _font() -> Any:
    try:
        return ImageFont.load_default(11)
    except TypeError:  # Pillow before 10.1 has one size.
        return ImageFont.load_default()


def _fitting(text: str, width: int, font: Any) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


def _spec(array: Array) -> Spec:
    return Spec(array.shape[1:], array.dtype)
