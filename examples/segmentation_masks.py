"""Images with masks and boxes through crops, flips, rotations and colours: all three stay aligned.

    python segmentation_masks.py --sheet sheet.png

The images are made up: discs and rectangles on a noisy ground, whose masks and boxes are known.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loaderx as lx
from loaderx.transforms import ColorJitter, RandomCrop, RandomFlip, Rotate

Array = NDArray[Any]
Batch = dict[str, Array]

SIZE, SHAPES = 96, 3
GROUND, DISC, RECTANGLE = range(3)
# Grey, reddish and bluish: the mask can be told from the image even after an op on colours.
COLOURS = np.array([[60, 60, 60], [230, 60, 60], [60, 60, 230]])


def make_scenes(rows: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return images, class masks, and boxes (left, top, right, bottom) of the shapes; rows of zeros are padding."""
    random = np.random.default_rng(seed)
    masks = np.full((rows, SIZE, SIZE), GROUND, np.uint8)
    boxes = np.zeros((rows, SHAPES, 4), np.float32)
    down, across = np.mgrid[:SIZE, :SIZE]
    for row in range(rows):
        # Each in a third of its own, so that none covers another.
        for number in range(random.integers(1, SHAPES + 1)):
            x, y = 16 + 32 * number, random.integers(16, SIZE - 16)
            half_width, half_height = random.integers(6, 13, 2)
            kind = random.choice([DISC, RECTANGLE])
            u, v = (across - x) / half_width, (down - y) / half_height
            inside = (u * u + v * v < 1) if kind == DISC else (np.abs(u) < 1) & (np.abs(v) < 1)
            masks[row][inside] = kind
            found_y, found_x = np.nonzero(inside)
            boxes[row, number] = found_x.min(), found_y.min(), found_x.max() + 1, found_y.max() + 1
    images = COLOURS[masks] + random.integers(-20, 21, (rows, SIZE, SIZE, 1))
    return images.astype(np.uint8), masks[..., np.newaxis], boxes


def loader_of(scenes: tuple[Array, Array, Array], batch_size: int) -> lx.DataLoader[Batch]:
    images, masks, boxes = scenes
    return lx.DataLoader(
        {"image": images, "mask": masks, "boxes": boxes},
        batch_size=batch_size,
        seed=0,
        output="numpy",
        transforms={
            # Ops of an entry draw once for all of its fields. Masks are integers: taken from the nearest pixel, never
            # mixed. Boxes are known by their name, and a field "boxes_valid" says which are still in the image.
            ("image", "mask", "boxes"): [RandomCrop(64), RandomFlip(), Rotate(15)],
            "image": [ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)],
        },
    )


def agreement(image: Array, mask: Array) -> float:
    """Return the share of pixels whose colour is that of their class in the mask."""
    red, green, blue = np.moveaxis(image.astype(int), -1, 0)
    classes = np.select([red - green > 40, blue - green > 40], [DISC, RECTANGLE], GROUND)
    return float((classes == mask[..., 0]).mean())


def share_in_boxes(batch: Batch) -> float:
    """Return the share of the pixels of all shapes that are in a valid box."""
    found = total = 0
    for mask, boxes, valid in zip(batch["mask"], batch["boxes"], batch["boxes_valid"], strict=True):
        y, x = np.nonzero(mask[..., 0])
        left, top, right, bottom = boxes[valid].T[..., np.newaxis]
        # The middle of a pixel is half a pixel from its corner.
        inside = (left <= x + 0.5) & (x + 0.5 <= right) & (top <= y + 0.5) & (y + 0.5 <= bottom)
        found, total = found + np.any(inside, axis=0).sum(), total + len(x)
    return found / total


def save_sheet(path: Path, batches: Sequence[Batch]) -> None:
    """Return a sheet of images in one row and masks in the next, with the boxes drawn on both."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (8 * 68, 2 * 68 * len(batches)), "white")
    for line, batch in enumerate(batches):
        for column in range(min(8, len(batch["image"]))):
            mask = COLOURS[batch["mask"][column, ..., 0]].astype(np.uint8)
            boxes = batch["boxes"][column][batch["boxes_valid"][column]]
            for part, pixels in enumerate((batch["image"][column], mask)):
                picture = Image.fromarray(pixels)
                for box in boxes.tolist():
                    ImageDraw.Draw(picture).rectangle(box, outline="yellow")
                sheet.paste(picture, (column * 68 + 2, (2 * line + part) * 68 + 2))
    sheet.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument(
        "--sheet", type=Path, help="draw some samples into this file (needs Pillow)"
    )
    options = parser.parse_args()

    loader = loader_of(make_scenes(options.rows), options.batch_size)
    batch = loader.batch(0)
    print({name: f"{array.dtype}{list(array.shape)}" for name, array in batch.items()})
    right = agreement(batch["image"], batch["mask"])
    wrong = agreement(batch["image"], loader.batch(1)["mask"])
    print(f"the mask is right for {right:.1%} of the pixels, that of other images for {wrong:.1%}")
    print(f"{share_in_boxes(batch):.1%} of the shapes are in their boxes")
    left, boxes = batch["boxes_valid"].sum(), batch["boxes_valid"].size
    print(f"{left} of {boxes} boxes are left, the others are padding or outside of the image")
    if options.sheet is not None:
        save_sheet(options.sheet, [batch, loader.batch(1)])
        print(f"sheet written to {options.sheet}")


if __name__ == "__main__":
    main()
