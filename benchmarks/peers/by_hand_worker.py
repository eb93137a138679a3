"""NumPy and OpenCV by hand as a contestant of the catalogue; see per_image.py for the requests.

This is the code of people who want speed: OpenCV if it has the op, PyTorch and Pillow for antialiasing, tables for
functions of one value, NumPy for the rest. Their own threads are off, because the images are divided among threads.

Run by the Python of AlbumentationsX's environment, as `python -m benchmarks.peers.by_hand_worker` in the repository.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image as Pillow
from torch.nn import functional

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
    """Apply a table to each channel."""
    return cv2.LUT(image, np.stack(tables, axis=-1)[None])


def autocontrast(image: Array) -> Array:
    tables = []
    for channel in cv2.split(image):
        low, high, _, _ = cv2.minMaxLoc(channel)
        flat = high <= low
        tables.append(table(VALUES if flat else (VALUES - low) * 255 / (high - low)))
    return by_channel(image, tables)


def equalize(image: Array) -> Array:
    """Equalise as Pillow does."""
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


def pad(image: Array, margin: int) -> Array:
    return cv2.copyMakeBorder(image, margin, margin, margin, margin, cv2.BORDER_CONSTANT)


def zoom_out(image: Array, random: Random) -> Array:
    """Place the image anywhere on a larger canvas, and shrink that to the size of the image."""
    size = int(of.SIZE * of.SIDES)
    canvas = np.zeros((size, size, 3), np.uint8)
    top, left = random.integers(0, size - of.SIZE + 1, 2)
    canvas[top : top + of.SIZE, left : left + of.SIZE] = image
    return cv2.resize(canvas, (of.SIZE, of.SIZE), interpolation=cv2.INTER_AREA)


def torch_resize(image: Array, size: int, mode: str) -> Array:
    """Resize by PyTorch, whose antialiasing is that of Pillow and torchvision, and faster than both."""
    planes = torch.from_numpy(image).permute(2, 0, 1)[None]
    made = functional.interpolate(planes, (size, size), mode=mode, antialias=True)
    return made[0].permute(1, 2, 0).numpy()


def antialiased_crop(image: Array, random: Random) -> Array:
    part = np.ascontiguousarray(image[window(random, len(image), of.AREA)])
    return torch_resize(part, of.RESIZED, "bilinear")


def area_crop(image: Array, random: Random) -> Array:
    """Crop and resize by areas, as FFCV does."""
    part = image[window(random, len(image), of.AREA)]
    return cv2.resize(part, (of.RESIZED, of.RESIZED), interpolation=cv2.INTER_AREA)


def letter_box(image: Array) -> Array:
    tall, wide = of.BOX
    side = min(of.BOX)
    top, left = (tall - side) // 2, (wide - side) // 2
    out = np.zeros((tall, wide, 3), np.uint8)
    out[top : top + side, left : left + side] = cv2.resize(image, (side, side))
    return out


def d4(image: Array, random: Random) -> Array:
    out = rot90(image, random)
    return cv2.flip(out, 1) if random.random() < 0.5 else out


def coarse_dropout(image: Array, random: Random) -> Array:
    out = image.copy()
    for _ in range(random.integers(of.HOLES[0], of.HOLES[1] + 1)):
        down, across = (max(1, int(of.SIZE * side)) for side in random.uniform(*of.HOLE, 2))
        top = random.integers(0, of.SIZE - down + 1)
        left = random.integers(0, of.SIZE - across + 1)
        out[top : top + down, left : left + across] = 0
    return out


def shift_colours(image: Array, shifts: Array) -> Array:
    return by_channel(image, [table(VALUES + shift) for shift in shifts])


DEVIATIONS = np.array([0.2175, 0.0188, 0.0045])
COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


def fancy_pca(image: Array, random: Random) -> Array:
    moves = COMPONENTS @ (random.normal(0, of.FANCY, 3) * DEVIATIONS)
    return shift_colours(image, 255 * moves)


def photometric_distort(image: Array, random: Random) -> Array:
    """Distort as torchvision does, with its defaults."""
    later = random.random() < 0.5
    if random.random() < 0.5:
        image = brightness(image, random.uniform(0.875, 1.125))
    if not later and random.random() < 0.5:
        image = contrast(image, random.uniform(0.5, 1.5))
    if random.random() < 0.5:
        image = saturation(image, random.uniform(0.5, 1.5))
    if random.random() < 0.5:
        image = hue(image, random.uniform(-0.05, 0.05))
    if later and random.random() < 0.5:
        image = contrast(image, random.uniform(0.5, 1.5))
    return shuffle_channels(image, random) if random.random() < 0.5 else image


def multiply_values(image: Array, random: Random) -> Array:
    factors = random.random(image.shape, np.float32)
    factors *= np.float32(0.2)
    factors += np.float32(0.9)
    return cv2.multiply(image, factors, dtype=cv2.CV_8U)


def shot_noise(image: Array, random: Random) -> Array:
    """Draw by tables: below means of 60 the distribution needs one small row for each of 256 values."""
    photons = random.uniform(*of.PHOTONS)
    counts = random.poisson(image * np.float32(photons / 255))
    return cv2.convertScaleAbs(counts.astype(np.float32), alpha=255 / photons)


MOTION, DISC = of.motion_line(), of.disc()


def downscale(image: Array) -> Array:
    size = round(of.SIZE * of.DOWNSCALE)
    small = cv2.resize(image, (size, size), interpolation=cv2.INTER_NEAREST_EXACT)
    return cv2.resize(small, WHOLE, interpolation=cv2.INTER_NEAREST_EXACT)


def jpeg(image: Array) -> Array:
    """Encode and decode; the channels are reversed before and after, because their order decides their weights."""
    blue_first = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", blue_first, (cv2.IMWRITE_JPEG_QUALITY, of.QUALITY))
    decoded = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    assert decoded is not None  # None is for damaged bytes
    return cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


def stretched_axis(random: Random) -> Array:
    cells = 1 + random.uniform(-of.STRETCHED, of.STRETCHED, of.CELLS)
    knots = np.concatenate([[0], np.cumsum(cells)]) * (of.SIZE / cells.sum())
    places = np.arange(of.SIZE) + 0.5
    steps = np.linspace(0, of.SIZE, of.CELLS + 1)
    found = np.interp(places, steps, knots) - 0.5
    return np.clip(found, 0, of.SIZE - 1).astype(np.float32)


def grid_distortion(image: Array, random: Random) -> Array:
    across, down = stretched_axis(random), stretched_axis(random)
    columns, rows = np.meshgrid(across, down)
    return cv2.remap(image, columns, rows, cv2.INTER_LINEAR)


def lens() -> tuple[Array, Array]:
    """Make the maps of Albumentations' camera model once, for a fixed amount."""
    camera = np.array([[of.SIZE, 0, CENTRE[0]], [0, of.SIZE, CENTRE[1]], [0, 0, 1]])
    distortion = np.array([of.LENS, of.LENS, 0, 0, 0])
    return cv2.initUndistortRectifyMap(camera, distortion, None, camera, WHOLE, cv2.CV_32FC1)


LENS = lens()


def scale_jitter(image: Array, random: Random) -> Array:
    size = max(1, round(of.SIZE * random.uniform(*of.JITTER_SCALE)))
    image = torch_resize(image, size, "bilinear")
    out = np.zeros((of.SIZE, of.SIZE, 3), np.uint8)
    if size <= of.SIZE:
        out[:size, :size] = image
    else:
        top, left = random.integers(0, size - of.SIZE + 1, 2)
        out[:] = image[top : top + of.SIZE, left : left + of.SIZE]
    return out


def fog(image: Array, random: Random) -> Array:
    """Draw discs one over the other, then blur, as Albumentations does."""
    strength = random.uniform(*of.FOG)
    opacity = of.FOG_ALPHA * strength
    region, largest = (
        max(1, int(of.SIZE // 3 * strength)),
        max(2, int(of.SIZE * 0.1 * strength)),
    )
    smallest, side = max(1, largest // 2), of.SIZE
    out = image.copy()
    for _ in range(10):
        if side <= region:
            break
        for _ in range(int(side * side / (region * region) * strength * 10)):
            place = of.SIZE // 2 - side // 2 + random.integers(0, 2 * (side // 2) + 1, 2)
            radius = int(random.integers(smallest, largest))
            part = tuple(
                slice(max(at - radius, 0), max(min(at + radius + 1, of.SIZE), 0)) for at in place
            )
            corner = tuple(int(at - piece.start) for at, piece in zip(place, part, strict=True))
            if out[part].size:
                over = cv2.circle(out[part].copy(), corner[::-1], radius, (255, 255, 255), -1)
                out[part] = cv2.addWeighted(over, opacity, out[part], 1 - opacity, 0)
        side = int(side * 0.9)
    size = max(3, of.SIZE // 30) | 1
    return cv2.GaussianBlur(out, (size, size), 0)


def rain(image: Array, random: Random) -> Array:
    slant, length = int(random.integers(-10, 11)), of.SIZE // 8
    light = np.zeros_like(image)
    for _ in range(of.SIZE // 3):
        column, row = (
            int(random.integers(0, of.SIZE)),
            int(random.integers(0, of.SIZE - length + 1)),
        )
        cv2.line(light, (column, row), (column + slant, row + length), (200, 200, 200), 1)
    return cv2.convertScaleAbs(cv2.add(image, cv2.blur(light, (7, 7))), alpha=0.7)


def shadow(image: Array, random: Random) -> Array:
    out = image
    for _ in range(random.integers(of.SHADOWS[0], of.SHADOWS[1] + 1)):
        corners = random.uniform((0, 0.5), 1, (5, 2)) * of.SIZE
        mask = np.full(WHOLE, 255, np.uint8)
        cv2.fillPoly(mask, [corners.astype(np.int32)], round(255 * (1 - of.SHADOW)))
        out = cv2.multiply(out, cv2.cvtColor(mask, cv2.COLOR_GRAY2RGB), scale=1 / 255)
    return out


def five_crops(image: Array) -> Array:
    """Return the corners row by row, then the centre."""
    out = np.empty((5, of.CROP, of.CROP, 3), np.uint8)
    for number, (top, left) in enumerate(FIVE):
        out[number] = image[top : top + of.CROP, left : left + of.CROP]
    return out


def ten_crops(image: Array) -> Array:
    """Return the five crops of the image, and those of the mirrored image."""
    out = np.empty((10, of.CROP, of.CROP, 3), np.uint8)
    for half, shown in ((out[:5], image), (out[5:], cv2.flip(image, 1))):
        for number, (top, left) in enumerate(FIVE):
            half[number] = shown[top : top + of.CROP, left : left + of.CROP]
    return out


def mosaic() -> Image:
    """Combine an image with the three before it, around a drawn point."""
    random = np.random.default_rng()
    last: deque[Array] = deque(maxlen=4)

    def function(image: Array) -> Array:
        last.append(image)
        size = len(image)
        row, column = (int(share * size) for share in random.uniform(*of.CENTER, 2))
        out = np.empty_like(image)
        for number in range(4):
            other = last[-1 - number % len(last)]
            rows = slice(0, row) if number < 2 else slice(row, size)
            columns = slice(0, column) if number % 2 == 0 else slice(column, size)
            # Each touches the point with a corner.
            down = size - row if number < 2 else -row
            across = size - column if number % 2 == 0 else -column
            out[rows, columns] = other[
                rows.start + down : rows.stop + down, columns.start + across : columns.stop + across
            ]
        return out

    return function


def moved_boxes(boxes: Array, left: int, top: int, wide: int, tall: int) -> tuple[Array, Array]:
    """Return boxes in a part of the image that is scaled to CROP, and which of them are left."""
    moved = boxes - np.array([left, top, left, top], np.float32)
    moved[:, 0::2] = np.clip(moved[:, 0::2], 0, wide) * (of.CROP / wide)
    moved[:, 1::2] = np.clip(moved[:, 1::2], 0, tall) * (of.CROP / tall)
    valid = np.all(moved[:, 2:] > moved[:, :2], axis=1)
    moved[~valid] = 0
    return moved, valid


def part_by_overlap(boxes: Array, size: int, random: Random) -> tuple[int, int, int, int]:
    """Return the part of torchvision's RandomIoUCrop: left, top, width and height."""
    boxes = boxes[boxes[:, 2] > boxes[:, 0]]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    while len(boxes):
        least = of.OVERLAPS[random.integers(len(of.OVERLAPS))]
        if least >= 1:
            break
        for _ in range(of.TRIALS):
            wide, tall = (int(size * random.uniform(*of.SIDES_OF_PART)) for _ in range(2))
            if not of.RATIO_OF_PART[0] <= wide / tall <= of.RATIO_OF_PART[1]:
                continue
            left, top = int((size - wide) * random.random()), int((size - tall) * random.random())
            corner, end = np.array([left, top]), np.array([left + wide, top + tall])
            within = np.all((middles > corner) & (middles < end), axis=1)
            if not within.any():
                continue
            common = np.minimum(boxes[:, 2:], end) - np.maximum(boxes[:, :2], corner)
            shared = np.prod(np.maximum(common, 0), axis=1)
            if (shared / (areas + wide * tall - shared))[within].max() >= least:
                return left, top, wide, tall
    return 0, 0, size, size


def part_with_all(boxes: Array, size: int, random: Random) -> tuple[int, int, int, int]:
    """Return a part with all boxes in it: left, top, width and height."""
    boxes = boxes[boxes[:, 2] > boxes[:, 0]]
    left, top = (boxes[:, :2].min(axis=0) * random.random(2)).astype(int)
    corner = boxes[:, 2:].max(axis=0)
    right, bottom = np.ceil(corner + (size - corner) * random.random(2)).astype(int)
    return left, top, right - left, bottom - top


def cropped_by(part: Callable[..., tuple[int, int, int, int]]) -> Maker:
    """Return a maker for a crop that is drawn by boxes, and scaled to CROP."""

    def maker() -> Callable[..., tuple[Array, Array, Array]]:
        random = np.random.default_rng()

        def function(image: Array, boxes: Array) -> tuple[Array, Array, Array]:
            left, top, wide, tall = part(boxes, len(image), random)
            shown = image[top : top + tall, left : left + wide]
            return cv2.resize(shown, (of.CROP, of.CROP)), *moved_boxes(boxes, left, top, wide, tall)

        return function

    return maker


def sanitized(image: Array, boxes: Array) -> tuple[Array, Array, Array]:
    sides = boxes[:, 2:] - boxes[:, :2]
    valid = np.all(sides >= of.LEAST_SIDE, axis=1)
    return image, boxes * valid[:, None], valid


def copy_paste() -> Callable[..., tuple[Array, Array]]:
    """Paste objects of the image before into an image; a label is an object."""
    random = np.random.default_rng()
    before: list[tuple[Array, Array]] = []

    def function(image: Array, mask: Array) -> tuple[Array, Array]:
        other, labels = before[0] if before else (image, mask)
        before[:] = [(image, mask)]
        chosen = (random.random(256) < of.PASTED).astype(np.uint8)
        chosen[0] = 0
        pasted = cv2.LUT(labels, chosen)
        result, label = image.copy(), mask.copy()
        cv2.copyTo(other, pasted, result)
        cv2.copyTo(labels, pasted, label)
        return result, label

    return function


def mix_up() -> Image:
    """Mix an image with the one before it."""
    random = np.random.default_rng()
    before: list[Array] = []

    def function(image: Array) -> Array:
        other = before[0] if before else image
        before[:] = [image]
        share = random.beta(1.0, 1.0)
        return cv2.addWeighted(image, share, other, 1 - share, 0)

    return function


def cut_mix() -> Image:
    """Paste a box of the image before, drawn as in the code of the paper."""
    random = np.random.default_rng()
    before: list[Array] = []

    def function(image: Array) -> Array:
        other = before[0] if before else image
        before[:] = [image]
        size = len(image)
        half = int(size * math.sqrt(1 - random.beta(1.0, 1.0))) // 2
        row, column = random.integers(0, size, 2)
        out = image.copy()
        box = np.s_[max(row - half, 0) : row + half, max(column - half, 0) : column + half]
        out[box] = other[box]
        return out

    return function


def drawn(function: Callable[[Array, Random], Array]) -> Maker:
    """Return a maker for a function that draws: each thread has a generator of its own."""

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
FIVE = (*((top, left) for top in (0, SPARE - 1) for left in (0, SPARE - 1)), (MARGIN, MARGIN))
SPREAD = (of.LARGE - of.SIZE) // 2

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
    "Pad": fixed(lambda image: pad(image, of.PADDING)),
    "RandomFlip": fixed(lambda image: cv2.flip(image, 1)),
    "Resize": fixed(lambda image: cv2.resize(image, (of.RESIZED, of.RESIZED))),
    "RandomResizedCrop": drawn(resized_crop),
    "Normalize": fixed(normalize),
    "ZoomOut": drawn(zoom_out),
    "ToFloat": fixed(lambda image: np.multiply(image, np.float32(1 / 255), dtype=np.float32)),
    "Cast": fixed(lambda image: image.astype(np.float32)),
    "LetterBox": fixed(letter_box),
    "PadIfNeeded": fixed(lambda image: pad(image, SPREAD)),
    "Resize antialias": fixed(lambda image: torch_resize(image, of.RESIZED, "bilinear")),
    "Resize area": fixed(
        lambda image: cv2.resize(image, (of.RESIZED, of.RESIZED), interpolation=cv2.INTER_AREA)
    ),
    "Resize bicubic": fixed(lambda image: torch_resize(image, of.LARGE, "bicubic")),
    "Resize lanczos": fixed(
        lambda image: np.asarray(
            Pillow.fromarray(image).resize((of.LARGE, of.LARGE), Pillow.Resampling.LANCZOS)
        )
    ),
    "RandomResizedCrop antialias": drawn(antialiased_crop),
    "RandomResizedCrop by area": drawn(area_crop),
    "FiveCrop": fixed(five_crops),
    "TenCrop": fixed(ten_crops),
    "Mosaic": mosaic,
    "CopyPaste": copy_paste,
    "RandomIoUCrop": cropped_by(part_by_overlap),
    "BoxSafeCrop": cropped_by(part_with_all),
    "SanitizeBoxes": lambda: sanitized,
    "MixUp": mix_up,
    "CutMix": cut_mix,
    "D4": drawn(d4),
    "CoarseDropout": drawn(coarse_dropout),
    "RandomBrightnessContrast": fixed(
        lambda image: cv2.convertScaleAbs(image, alpha=1 + of.BRIGHTNESS, beta=255 * of.BRIGHTNESS)
    ),
    "RGBShift": fixed(
        # The stubs of OpenCV know no scalars.
        lambda image: cv2.add(image, (of.SHIFT, of.SHIFT, of.SHIFT, 0))  # type: ignore[call-overload]
    ),
    "Sepia": fixed(lambda image: cv2.transform(image, of.SEPIA)),
    "FancyPCA": drawn(fancy_pca),
    "PhotometricDistort": drawn(photometric_distort),
    "MultiplicativeNoise": fixed(lambda image: cv2.convertScaleAbs(image, alpha=of.MULTIPLIER)),
    "MultiplicativeNoise of values": drawn(multiply_values),
    "ShotNoise": drawn(shot_noise),
    "MotionBlur": fixed(lambda image: cv2.filter2D(image, -1, MOTION)),
    "MedianBlur 3": fixed(lambda image: cv2.medianBlur(image, 3)),
    "MedianBlur 5": fixed(lambda image: cv2.medianBlur(image, 5)),
    "Defocus": fixed(lambda image: cv2.filter2D(image, -1, DISC)),
    "Downscale": fixed(downscale),
    "JPEGCompression": fixed(jpeg),
    "GridDistortion": drawn(grid_distortion),
    "OpticalDistortion": fixed(lambda image: cv2.remap(image, *LENS, cv2.INTER_LINEAR)),
    "ScaleJitter": drawn(scale_jitter),
    "Fog": drawn(fog),
    "Rain": drawn(rain),
    "Shadow": drawn(shadow),
}


def moved(
    a: float = 1, b: float = 0, x: float = 0, c: float = 0, d: float = 1, y: float = 0
) -> Any:
    """Return an affine map about the centre."""
    centre = CENTRE[0]
    return np.array([[a, b, centre + x - (a + b) * centre], [c, d, centre + y - (c + d) * centre]])


def rand_augment(image: Array, random: Random) -> Array:
    """Apply the ops and ranges of torchvision's RandAugment."""
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
            image = np.bitwise_and(image, np.uint8(256 - (1 << round(4 * part))))
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
    torch.set_num_threads(1)
    serve(Session(MAKERS | PIPELINES))
