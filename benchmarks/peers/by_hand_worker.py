"""NumPy and OpenCV by hand as a contestant of the catalogue; see per_image.py for how it is asked.

What people write who want it fast: OpenCV where it has the op, tables for functions of one value, NumPy for the rest.
OpenCV's own threads are off: the threads are over images.

Run by the Python of AlbumentationsX's environment, as `python -m benchmarks.peers.by_hand_worker` in the repository.
"""

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from benchmarks.peers import amounts as of
from benchmarks.peers.augment import (
    VALUES,
    WHOLE,
    Random,
    blur,
    brightness,
    contrast,
    grayscale,
    hue,
    jitter,
    normalize,
    resized_crop,
    saturation,
    simclr,
    table,
    window,
)
from benchmarks.peers.per_image import Maker, Session
from benchmarks.peers.worker import serve
from benchmarks.rows import Array

CENTRE = ((of.SIZE - 1) / 2, (of.SIZE - 1) / 2)
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13

Image = Callable[[Array], Array]


def warp(image: Array, matrix: Any) -> Array:
    return cv2.warpAffine(image, matrix, WHOLE, flags=cv2.INTER_LINEAR)


def perspective(image: Array, random: Random) -> Array:
    last, reach = of.SIZE - 1, of.DISTORTION * of.SIZE / 2
    corners = np.array([[0, 0], [last, 0], [last, last], [0, last]], np.float32)
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], np.float32)
    moved = corners + inwards * random.uniform(0, reach, (4, 2)).astype(np.float32)
    return cv2.warpPerspective(image, cv2.getPerspectiveTransform(corners, moved), WHOLE)


QUARTERS = (cv2.ROTATE_90_COUNTERCLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_CLOCKWISE)


def rot90(image: Array, random: Random) -> Array:
    turns = random.integers(0, 4)
    return image.copy() if turns == 0 else cv2.rotate(image, QUARTERS[turns - 1])


COLUMNS, ROWS = np.meshgrid(
    np.arange(of.SIZE, dtype=np.float32), np.arange(of.SIZE, dtype=np.float32)
)


def elastic(image: Array, random: Random) -> Array:
    knots = of.SIZE // of.SPACING + 1
    moves = random.normal(0, of.ELASTIC, (2, knots, knots)).astype(np.float32)
    across, down = (cv2.resize(move, WHOLE, interpolation=cv2.INTER_CUBIC) for move in moves)
    return cv2.remap(
        image, COLUMNS + across, ROWS + down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )


def by_channel(image: Array, tables: list[Array]) -> Array:
    """A table for each channel."""
    return cv2.LUT(image, np.stack(tables, axis=-1)[None])


def autocontrast(image: Array) -> Array:
    tables = []
    for channel in cv2.split(image):
        low, high, _, _ = cv2.minMaxLoc(channel)
        flat = high <= low
        tables.append(table(VALUES if flat else (VALUES - low) * 255 / (high - low)))
    return by_channel(image, tables)


def equalize(image: Array) -> Array:
    """As Pillow does."""
    tables = []
    for channel in range(3):
        counts = (
            cv2.calcHist([image], [channel], None, [256], [0, 256]).reshape(-1).astype(np.int64)
        )
        used = counts[counts > 0]
        step = (used.sum() - used[-1]) // 255
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        same = len(used) <= 1 or step == 0
        tables.append(table(VALUES) if same else table((before + step // 2) // step))
    return by_channel(image, tables)


def sharpness(image: Array, factor: float) -> Array:
    return cv2.addWeighted(image, factor, cv2.filter2D(image, -1, SMOOTH), 1 - factor, 0)


def noise(image: Array, random: Random) -> Array:
    drawn = random.standard_normal(image.shape, np.float32)
    drawn *= np.float32(255 * of.NOISE)
    return cv2.add(image, drawn, dtype=cv2.CV_8U)


def salt_pepper(image: Array, random: Random) -> Array:
    drawn = random.random(image.shape[:2], np.float32)
    out = image.copy()
    out[drawn < of.SALTED / 2] = 0
    out[drawn > 1 - of.SALTED / 2] = 255
    return out


def shuffle_channels(image: Array, random: Random) -> Array:
    order = random.permutation(3)
    out = np.empty_like(image)
    pairs = [place for pair in zip(order, range(3), strict=True) for place in pair]
    cv2.mixChannels([image], [out], pairs)
    return out


def drop_channel(image: Array, random: Random) -> Array:
    out = image.copy()
    out[..., random.integers(0, 3)] = 0
    return out


def clahe() -> Image:
    op = cv2.createCLAHE(of.CLIP, (of.TILES, of.TILES))

    def function(image: Array) -> Array:
        lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
        lab[..., 0] = op.apply(lab[..., 0])
        return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)

    return function


def grid_mask(image: Array, random: Random) -> Array:
    top, left = random.integers(0, of.GRID, 2)
    out = image.copy()
    for row in range(top - of.GRID, of.SIZE, of.GRID):
        for column in range(left - of.GRID, of.SIZE, of.GRID):
            rows = slice(max(row, 0), max(row + of.GRID_HOLE, 0))
            out[rows, max(column, 0) : max(column + of.GRID_HOLE, 0)] = 0
    return out


def erase(image: Array, random: Random) -> Array:
    out = image.copy()
    for _ in range(10):
        area = of.SIZE * of.SIZE * random.uniform(*of.ERASED)
        ratio = math.exp(random.uniform(math.log(of.ERASED_RATIO[0]), math.log(of.ERASED_RATIO[1])))
        down, across = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if down < of.SIZE and across < of.SIZE:
            top, left = (
                random.integers(0, of.SIZE - down + 1),
                random.integers(0, of.SIZE - across + 1),
            )
            out[top : top + down, left : left + across] = 0
            break
    return out


def crop(image: Array, top: int, left: int) -> Array:
    return image[top : top + of.CROP, left : left + of.CROP].copy()


def zoom_out(image: Array, random: Random) -> Array:
    """The image anywhere on a larger canvas, which becomes as large as the image."""
    size = int(of.SIZE * of.SIDES)
    canvas = np.zeros((size, size, 3), np.uint8)
    top, left = random.integers(0, size - of.SIZE + 1, 2)
    canvas[top : top + of.SIZE, left : left + of.SIZE] = image
    return cv2.resize(canvas, (of.SIZE, of.SIZE), interpolation=cv2.INTER_AREA)


def drawn(function: Callable[[Array, Random], Array]) -> Maker:
    """Of a function that draws: each thread has numbers of its own."""

    def maker() -> Image:
        random = np.random.default_rng()
        return lambda image: function(image, random)

    return maker


def fixed(function: Image) -> Maker:
    return lambda: function


def tabled(values: Array) -> Maker:
    return lambda: lambda image: cv2.LUT(image, values)


TURN = cv2.getRotationMatrix2D(CENTRE, of.DEGREES, 1.0)
ZOOM = cv2.getRotationMatrix2D(CENTRE, 0.0, of.SCALE)
AFFINE = np.array(of.affine_matrix())
MARGIN = (of.SIZE - of.CROP) // 2
SPARE = of.SIZE - of.CROP + 1

MAKERS: dict[str, Maker] = {
    "Rotate": fixed(lambda image: warp(image, TURN)),
    "Affine": fixed(lambda image: warp(image, AFFINE)),
    "Perspective": drawn(perspective),
    "Rot90": drawn(rot90),
    "Transpose": fixed(cv2.transpose),
    "RandomScale": fixed(lambda image: warp(image, ZOOM)),
    "ElasticDeform": drawn(elastic),
    "ColorJitter": drawn(lambda image, random: jitter(image, random, (of.JITTER,) * 4)),
    "Hue": fixed(lambda image: hue(image, of.HUE)),
    "Brightness": fixed(lambda image: brightness(image, of.FACTOR)),
    "Contrast": fixed(lambda image: contrast(image, of.FACTOR)),
    "Saturation": fixed(lambda image: saturation(image, of.FACTOR)),
    "Grayscale": fixed(grayscale),
    "Gamma": tabled(table(255 * (VALUES / 255) ** of.GAMMA)),
    "Solarize": tabled(table(np.where(VALUES >= 255 * of.THRESHOLD, 255 - VALUES, VALUES))),
    "Posterize": fixed(lambda image: image & np.uint8(256 - (1 << (8 - of.BITS)))),
    "Invert": fixed(cv2.bitwise_not),
    "AutoContrast": fixed(autocontrast),
    "Equalize": fixed(equalize),
    "Sharpness": fixed(lambda image: sharpness(image, of.SHARPNESS)),
    "GaussianBlur": fixed(lambda image: blur(image, of.SIGMA, of.KERNEL)),
    "GaussianNoise": drawn(noise),
    "SaltPepper": drawn(salt_pepper),
    "ChannelShuffle": drawn(shuffle_channels),
    "ChannelDrop": drawn(drop_channel),
    "CLAHE": clahe,
    "GridMask": drawn(grid_mask),
    "RandomErasing": drawn(erase),
    "RandomCrop": drawn(lambda image, random: crop(image, *random.integers(0, SPARE, 2))),
    "CenterCrop": fixed(lambda image: crop(image, MARGIN, MARGIN)),
    "Pad": fixed(lambda image: cv2.copyMakeBorder(image, *[of.PADDING] * 4, cv2.BORDER_CONSTANT)),
    "RandomFlip": fixed(lambda image: cv2.flip(image, 1)),
    "Resize": fixed(lambda image: cv2.resize(image, (of.RESIZED, of.RESIZED))),
    "RandomResizedCrop": drawn(resized_crop),
    "Normalize": fixed(normalize),
    "ZoomOut": drawn(zoom_out),
}


def moved(
    a: float = 1, b: float = 0, x: float = 0, c: float = 0, d: float = 1, y: float = 0
) -> Any:
    """An affine map about the centre."""
    centre = CENTRE[0]
    return np.array([[a, b, centre + x - (a + b) * centre], [c, d, centre + y - (c + d) * centre]])


def rand_augment(image: Array, random: Random) -> Array:
    """The ops and ranges of torchvision's RandAugment."""
    image = resized_crop(image, random)
    if random.random() < 0.5:
        image = cv2.flip(image, 1)
    part = of.MAGNITUDE / 30
    for choice in random.integers(0, 14, of.NUMBER):
        sign = 1 if random.random() < 0.5 else -1
        shear, shift = sign * 0.3 * part, sign * 0.45 * part * of.SIZE
        factor = 1 + sign * 0.9 * part
        if choice == 1:
            image = warp(image, moved(b=shear))
        elif choice == 2:
            image = warp(image, moved(c=shear))
        elif choice == 3:
            image = warp(image, moved(x=shift))
        elif choice == 4:
            image = warp(image, moved(y=shift))
        elif choice == 5:
            image = warp(image, cv2.getRotationMatrix2D(CENTRE, sign * 30 * part, 1.0))
        elif choice == 6:
            image = brightness(image, factor)
        elif choice == 7:
            image = saturation(image, factor)
        elif choice == 8:
            image = contrast(image, factor)
        elif choice == 9:
            image = sharpness(image, factor)
        elif choice == 10:
            image = image & np.uint8(256 - (1 << round(4 * part)))
        elif choice == 11:
            image = cv2.LUT(
                image, table(np.where(255 * (1 - part) <= VALUES, 255 - VALUES, VALUES))
            )
        elif choice == 12:
            image = autocontrast(image)
        elif choice == 13:
            image = equalize(image)
    return normalize(image)


def segmentation() -> Callable[..., tuple[Array, Array]]:
    random = np.random.default_rng()

    def function(image: Array, mask: Array) -> tuple[Array, Array]:
        part = window(random, len(image), of.SEGMENTATION_AREA)
        image = cv2.resize(image[part], WHOLE)
        mask = cv2.resize(mask[part], WHOLE, interpolation=cv2.INTER_NEAREST)
        if random.random() < 0.5:
            image, mask = cv2.flip(image, 1), cv2.flip(mask, 1)
        degrees = random.uniform(-of.SEGMENTATION_DEGREES, of.SEGMENTATION_DEGREES)
        matrix = cv2.getRotationMatrix2D(CENTRE, degrees, 1.0)
        image = warp(image, matrix)
        mask = cv2.warpAffine(mask, matrix, WHOLE, flags=cv2.INTER_NEAREST)
        image = jitter(image, random, of.SEGMENTATION_JITTER)
        if random.random() < of.SEGMENTATION_BLURRED:
            image = blur(image, random.uniform(*of.SEGMENTATION_SIGMA), of.SEGMENTATION_KERNEL)
        return normalize(image), mask

    return function


PIPELINES: dict[str, Maker] = {
    "SimCLR": drawn(simclr),
    "RandAugment": drawn(rand_augment),
    "segmentation": segmentation,
}


if __name__ == "__main__":
    cv2.setNumThreads(1)
    serve(Session(MAKERS | PIPELINES))
