"""Draw contact sheets of all image ops, of policies over them, on one photograph, and of ops on audio.

    python gallery.py folder --signals

`make gallery` draws those in docs/pictures. The amounts are fixed, so that they are visible; usually they are random.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage
from sklearn.datasets import load_sample_image

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users write it

TILE = 132
COLUMNS = 8
GAP = 10
CAPTION = 60
HEADING = 30
SEED = 7
BACKGROUND, INK, FAINT = (255, 255, 255), (20, 20, 20), (110, 110, 110)


@dataclass(frozen=True)
class Tile:
    """Tile of a sheet: the name of an op, its arguments, and its result on the photograph."""

    name: str
    given: str
    image: np.ndarray


@dataclass(frozen=True)
class Op:
    """Op and its arguments as they are written; `before` is applied to the photograph first."""

    make: Any
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    before: tuple[Any, ...] = ()
    # Whether the left half shows the photograph before the op.
    halved: bool = False
    # Whether it needs boxes, which are drawn into its result, or other samples with boxes and masks.
    boxes: bool = False
    mixes: bool = False
    # Whether it makes several views, or mixes the values of two samples.
    views: bool = False
    blends: bool = False

    def tile(self, photograph: np.ndarray, draw: int = 0) -> Tile:
        op = self.make(*self.arguments, **dict(self.options))
        words = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.options)]
        if self.boxes:
            return Tile(self.make.__name__, ", ".join(words), with_boxes(photograph, op))
        if self.mixes:
            return Tile(self.make.__name__, ", ".join(words), with_others(photograph, op))
        if self.views:
            return Tile(self.make.__name__, ", ".join(words), with_views(photograph, op))
        if self.blends:
            return Tile(self.make.__name__, ", ".join(words), blended(photograph, op))
        chain = lx.pipeline([*self.before, op], seed=SEED)
        result = shown(chain(photograph[None], positions=[draw])[0])
        if self.halved:
            half = len(photograph) // 2
            first = lx.pipeline([*self.before], seed=SEED)(photograph[None], positions=[draw])[0]
            result = np.concatenate([first[:, :half], result[:, half:]], axis=1)
            words.append("on the right half")
        return Tile(self.make.__name__, ", ".join(words), result)


def op(
    make: Any,
    *arguments: Any,
    before: tuple[Any, ...] = (),
    halved: bool = False,
    boxes: bool = False,
    mixes: bool = False,
    views: bool = False,
    blends: bool = False,
    **options: Any,
) -> Op:
    return Op(make, arguments, tuple(options.items()), before, halved, boxes, mixes, views, blends)


def with_boxes(photograph: np.ndarray, op: Any) -> np.ndarray:
    """Return the result of an op on the photograph and two boxes, with the remaining boxes drawn into it."""
    boxes = np.array([[0.15, 0.3, 0.45, 0.65], [0.5, 0.45, 0.85, 0.8]], np.float32)
    loader = lx.DataLoader(
        {"image": photograph[None], "boxes": boxes[None]},
        batch_size=1,
        seed=SEED,
        output="numpy",
        shuffle=False,
        kinds={"boxes": T.Boxes("albumentations")},
        transforms={("image", "boxes"): [op]},
    )
    return with_outlines(loader.batch(0))


def with_outlines(batch: Any) -> np.ndarray:
    """Return the first image of a batch, with its boxes drawn into it, which are fractions of its size."""
    picture = Image.fromarray(batch["image"][0])
    pen = ImageDraw.Draw(picture)
    for box in batch["boxes"][0][batch["boxes_valid"][0]] * (picture.size * 2):
        pen.rectangle([box[0], box[1], box[2] - 1, box[3] - 1], outline=(255, 60, 0), width=2)
    return np.asarray(picture)


def flowers(size: int) -> list[np.ndarray]:
    """Return three pictures of flowers."""
    whole = Image.fromarray(load_sample_image("flower.jpg"))
    parts = ((160, 20, 560, 420), (120, 0, 540, 420), (220, 30, 600, 410))
    return [np.asarray(whole.crop(part).resize((size, size))) for part in parts]


def with_views(photograph: np.ndarray, op: Any) -> np.ndarray:
    """Return all views of the photograph in a grid, at the same scale."""
    loader = lx.DataLoader(
        {"image": photograph[None]},
        batch_size=1,
        seed=SEED,
        output="numpy",
        transforms={"image": [op]},
    )
    views = [view[0] for view in loader.batch(0).values()]
    columns = math.ceil(math.sqrt(len(views)))
    cell = len(photograph) // columns
    largest = max(len(view) for view in views)
    sheet = Image.new("RGB", photograph.shape[:2], BACKGROUND)
    for number, view in enumerate(views):
        side = max(1, (cell - 1) * len(view) // largest)
        place = (number % columns * cell, number // columns * cell)
        sheet.paste(Image.fromarray(view).resize((side, side)), place)
    return np.asarray(sheet)


def blended(photograph: np.ndarray, op: Any) -> np.ndarray:
    """Return the photograph mixed with a picture of a flower."""
    loader = lx.DataLoader(
        {"image": np.stack([photograph, *flowers(len(photograph))])},
        batch_size=4,
        seed=SEED,
        output="numpy",
        shuffle=False,
        transforms={"image": [T.ToFloat(), op]},
    )
    levels: np.ndarray = np.round(255 * loader.batch(0)["image"][0])
    return levels.astype(np.uint8)


def with_others(photograph: np.ndarray, op: Any) -> np.ndarray:
    """Return the result of an op on the photograph and three pictures of flowers with masks and boxes."""
    size = len(photograph)
    images = np.stack([photograph, *flowers(size)])
    masks = np.zeros((4, size, size), np.uint8)
    boxes = np.zeros((4, 2, 4), np.float32)
    for place in range(1, 4):
        # Flowers are red and yellow, and the ground around them is dark and green.
        patches = ndimage.label(images[place, ..., 0] > 110)[0]
        largest = np.argsort(np.bincount(patches.reshape(-1))[1:])[::-1] + 1
        for row, patch in enumerate(largest[:2]):
            rows, columns = np.nonzero(patches == patch)
            masks[place][patches == patch] = row + 1
            boxes[place, row] = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    fields = {"image": images, "instances": masks, "boxes": boxes / size}
    loader = lx.DataLoader(
        fields,
        batch_size=4,
        seed=SEED,
        output="numpy",
        shuffle=False,
        kinds={"boxes": T.Boxes("albumentations")},
        transforms={tuple(fields): [op]},
    )
    return with_outlines(loader.batch(0))


def shown(result: np.ndarray) -> np.ndarray:
    """Convert to uint8; normalised values have a mean of 0 and a deviation of 1."""
    if result.dtype == np.uint8:
        return result
    grey: np.ndarray = np.clip(128 + 50 * result, 0, 255)
    return grey.astype(np.uint8)


def families(size: int) -> dict[str, list[Op]]:
    """Return all image ops, for a photograph of `size` pixels."""
    part, small = size * 5 // 8, size * 3 // 4
    return {
        "windows": [
            op(T.RandomCrop, part),
            op(T.CenterCrop, part),
            op(T.Pad, (size - small) // 2, border="reflect", before=(T.Resize(small),)),
            op(T.PadIfNeeded, size, size, border="edge", before=(T.Resize((small, part)),)),
            op(T.LetterBox, (size, part), fill=114),
            op(T.RandomFlip, 1.0),
            op(T.Resize, part),
            op(T.RandomResizedCrop, size, scale=(0.2, 0.3)),
            op(T.RandomIoUCrop, size, overlaps=(0.3,), boxes=True),
            op(T.BoxSafeCrop, size, boxes=True),
            op(T.ZoomOut, size, 1.0, sides=(1.5, 2.0), fill=114),
            op(T.ScaleJitter, size, (0.6, 0.6), fill=114),
        ],
        "several views, several samples": [
            op(T.FiveCrop, part, views=True),
            op(T.TenCrop, part, views=True),
            op(T.Mosaic, mixes=True),
            op(T.CopyPaste, 1.0, mixes=True),
            op(T.MixUp, 5.0, blends=True),
            op(T.CutMix, 5.0, blends=True),
        ],
        "geometric": [
            op(T.Rotate, (25, 25)),
            op(T.Affine, (10, 10), scale=(0.8, 0.8), shear_x=(20, 20), border="edge"),
            op(T.Perspective, 0.6),
            op(T.Rot90, 1),
            op(T.Transpose, 1.0),
            op(T.D4),
            op(T.RandomScale, (0.6, 0.6), border="reflect"),
            op(T.ElasticDeform, size / 48, max(2, size // 6), border="reflect"),
            op(T.GridDistortion, 5, 0.6),
            op(T.OpticalDistortion, (0.8, 0.8)),
        ],
        "colour": [
            op(T.Brightness, (1.5, 1.5)),
            op(T.Contrast, (1.8, 1.8)),
            op(T.Saturation, (0.3, 0.3)),
            op(T.Hue, (0.3, 0.3)),
            op(T.ColorJitter, 0.5, 0.5, 0.5, 0.2),
            op(T.Grayscale),
            op(T.ChannelShuffle, 1.0),
            op(T.ChannelDrop, 1.0),
            op(T.RGBShift, 0.3),
            op(T.FancyPCA, 2.0),
            op(T.Sepia),
            op(T.PhotometricDistort, probability=1.0),
            op(T.RandomBrightnessContrast, (0.2, 0.2), (1.4, 1.4)),
        ],
        "tones": [
            op(T.Gamma, (0.45, 0.45)),
            op(T.Solarize, 0.5),
            op(T.Posterize, 2),
            op(T.Invert),
            op(T.AutoContrast, before=(T.Contrast((0.4, 0.4)),), halved=True),
            op(T.Equalize),
            op(T.CLAHE, 4.0, 4),
            op(T.Normalize, (0.4, 0.4, 0.3), (0.3, 0.25, 0.3)),
        ],
        "filters, noise and holes": [
            op(T.GaussianBlur, 3.0),
            op(T.Sharpness, (6, 6)),
            op(T.GaussianNoise, 0.15),
            op(T.SaltPepper, 0.1),
            op(T.RandomErasing, 1.0, scale=(0.1, 0.2)),
            op(T.GridMask, 0.25),
            op(T.CoarseDropout, 6, fill="noise"),
            op(T.MultiplicativeNoise, (0.5, 1.5), elementwise=True),
            op(T.ShotNoise, 12),
            op(T.ISONoise, 0.05, 0.5),
            op(T.MotionBlur, 9, 30),
            op(T.Defocus, 3),
            op(T.MedianBlur, 5),
            op(T.Downscale, 0.25),
            op(T.JPEGCompression, 5),
        ],
        "weather": [
            op(T.Fog, 0.6),
            op(T.Rain, slant=4),
            op(T.Shadow, 0.6, 2, region=(0, 0, 1, 1)),
        ],
    }


def policies() -> dict[str, list[Op]]:
    """Return several draws of each policy."""
    noisy = T.GaussianNoise(0.2)
    return {
        "RandAugment": [op(T.RandAugment, 2, 15)],
        "TrivialAugment": [op(T.TrivialAugment)],
        "AutoAugment": [op(T.AutoAugment)],
        "AugMix": [op(T.AugMix, 8)],
        "OneOf": [op(T.OneOf, T.Invert(), T.Grayscale(), T.GaussianBlur(3.0))],
        "SomeOf": [op(T.SomeOf, 2, T.Invert(), T.Grayscale(), T.GaussianBlur(3.0), T.Rotate(40))],
        "RandomOrder": [op(T.RandomOrder, T.Rotate((40, 40)), T.GridMask(0.4))],
        "Maybe": [op(T.Maybe, 0.5, T.Rotate(40), noisy)],
    }


RATE = 16000
# Silence to loud, as a colour map: dark blue, violet, orange, yellow.
COLOURS = ((10, 10, 50), (110, 30, 120), (230, 110, 50), (250, 240, 150))


def audio() -> dict[str, list[Op]]:
    """Return ops on waveforms, whose spectrograms are shown, and ops on spectrograms."""
    random = np.random.default_rng(SEED)
    noise = np.cumsum(random.normal(size=(1, RATE)), axis=1).astype(np.float32)
    room = random.normal(size=(1, RATE // 2)) * np.exp(-np.arange(RATE // 2) / 2000)
    spectrogram = (T.LogMel(sample_rate=RATE, top=80.0),)
    return {
        "waveforms": [
            op(T.NoiseAtSNR, 10),
            op(T.BackgroundNoise, np.diff(noise, append=0), 5),
            op(T.ImpulseResponse, room.astype(np.float32)),
            op(T.PitchShift, 5),
            op(T.TimeStretch, 0.75),
            op(T.Resample, RATE, speed=1.3),
            op(T.LowPass, 800, sample_rate=RATE, order=4),
            op(T.HighPass, 1500, sample_rate=RATE, order=4),
            op(T.BandPass, 1500, 0.8, sample_rate=RATE, order=3),
            op(T.ClippingDistortion, 60),
            op(T.TimeShift, (0.3, 0.3)),
            op(T.Reverse, 1.0),
        ],
        "spectrograms": [
            op(T.TimeWarp, 30, before=spectrogram),
            op(T.TimeMask, 15, 2, before=spectrogram, fill=-80),
            op(T.FreqMask, 12, 2, before=spectrogram, fill=-80),
        ],
    }


def waveform() -> np.ndarray:
    """Return a second of sliding tones with overtones, and two clicks."""
    time = np.arange(RATE) / RATE
    pitch = 220 + 120 * np.sin(2 * np.pi * 1.5 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    tones = sum(np.sin(number * phase) / number for number in range(1, 9))
    loud = np.clip(np.sin(2 * np.pi * 2.5 * time), 0, 1)
    result = 0.3 * tones * loud
    result[[5000, 12000]] += 3
    return result.astype(np.float32)


def coloured(spectrogram: np.ndarray, size: int) -> np.ndarray:
    """Return a spectrogram in decibels as an image, low frequencies at the bottom."""
    share = np.clip(1 + (spectrogram - spectrogram.max()) / 80, 0, 1).T[::-1]
    anchors = np.linspace(0, 1, len(COLOURS))
    planes = [np.interp(share, anchors, values) for values in zip(*COLOURS, strict=True)]
    image = Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))
    return np.asarray(image.resize((size, size)))


def sounds(size: int) -> Iterator[tuple[str, list[Tile]]]:
    """Yield spectrograms of a waveform before and after every op."""
    original = waveform()
    mel = T.LogMel(sample_rate=RATE, top=80.0)

    def tile(name: str, given: str, *ops: Any) -> Tile:
        chain = lx.pipeline([*ops] if mel_shaped(ops) else [*ops, mel], seed=SEED)
        return Tile(name, given, coloured(chain(original[None])[0], size))

    first = [tile("original", "1 s at 16 kHz, as LogMel")]
    for family, ops in audio().items():
        tiles = []
        for one in ops:
            made = one.make(*one.arguments, **dict(one.options))
            words = [repr(given) for given in one.arguments if not isinstance(given, np.ndarray)]
            tiles.append(tile(one.make.__name__, ", ".join(words), *one.before, made))
        yield family, first + tiles
        first = []


def mel_shaped(ops: tuple[Any, ...]) -> bool:
    """Return True if a chain makes a spectrogram itself."""
    return any(isinstance(op, T.LogMel) for op in ops)


def photograph(size: int) -> np.ndarray:
    """Return a square part of a photograph that comes with scikit-learn."""
    whole = load_sample_image("china.jpg")
    return np.asarray(Image.fromarray(whole).crop((30, 10, 430, 410)).resize((size, size)))


def catalogue(size: int) -> Iterator[tuple[str, list[Tile]]]:
    """Yield the photograph, and every op, by families."""
    original = photograph(size)
    first = [Tile("original", f"{size} x {size} x 3, uint8", original)]
    for family, ops in families(size).items():
        yield family, first + [one.tile(original) for one in ops]
        first = []


def draws(size: int) -> Iterator[tuple[str, list[Tile]]]:
    """Yield every policy, drawn several times, and the crops of MultiCrop."""
    original = photograph(size)
    for name, (one,) in policies().items():
        # Of the first eight samples of this seed, Maybe leaves all as they are.
        yield name, [one.tile(original, draw) for draw in range(COLUMNS, 2 * COLUMNS)]
    crops = T.MultiCrop((size, size // 2), (2, COLUMNS - 2))
    loader = lx.DataLoader(
        {"image": original[None]},
        batch_size=1,
        output="numpy",
        shuffle=False,
        transforms={"image": [crops]},
    )
    with iter(loader) as batches:
        views = next(batches)
    yield "MultiCrop", [Tile(name, "", rows[0]) for name, rows in views.items()]


def sheet(rows: list[tuple[str, list[Tile]]], size: int) -> Image.Image:
    """Return all tiles, each family on a new line."""
    lines = sum(-(-len(tiles) // COLUMNS) for _, tiles in rows)
    width = GAP + COLUMNS * (size + GAP)
    height = len(rows) * HEADING + lines * (size + CAPTION) + GAP
    page = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(page)
    heading, name, small = (ImageFont.load_default(points) for points in (17, 13, 11))
    top = 0
    for family, tiles in rows:
        pen.text((GAP, top + HEADING // 2), family, INK, heading, anchor="lm")
        top += HEADING
        for place, tile in enumerate(tiles):
            column = place % COLUMNS
            left = GAP + column * (size + GAP)
            # Results of another size are in the middle, in their own size.
            down, across = tile.image.shape[:2]
            corner = left + (size - across) // 2, top + (size - down) // 2
            page.paste(Image.fromarray(tile.image), corner)
            pen.text((left, top + size + 3), tile.name, INK, name)
            words = fitting(tile.given, small, size)
            pen.multiline_text((left, top + size + 19), words, FAINT, small, spacing=1)
            if column == COLUMNS - 1 or place == len(tiles) - 1:
                top += size + CAPTION
    return page


def fitting(words: str, font: Any, width: int) -> str:
    """Return arguments in as many lines as they need."""
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


SHEETS = (("gallery", catalogue), ("policies", draws), ("signals", sounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder for gallery.png and policies.png")
    parser.add_argument("--size", type=int, default=TILE, help="pixels of a tile")
    parser.add_argument("--signals", action="store_true", help="draw signals.png, too")
    options = parser.parse_args()
    for name, rows in SHEETS if options.signals else SHEETS[:2]:
        page = sheet(list(rows(options.size)), options.size)
        # 160 colours make the file less than half as large.
        colours = page.quantize(160, Image.Quantize.MEDIANCUT)
        few = page.quantize(palette=colours, dither=Image.Dither.FLOYDSTEINBERG)
        few.save(options.folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
