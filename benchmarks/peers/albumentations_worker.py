"""AlbumentationsX as a contestant of the catalogue; see per_image.py for the requests.

An op is called by itself, not in a Compose, which takes longer; pipelines are a Compose. OpenCV's own threads are off,
because the images are divided among threads.

Run in its own environment, as `python -m benchmarks.peers.albumentations_worker`.
"""

import os
from collections.abc import Callable
from typing import Any

# Before the import: it sends telemetry otherwise.
os.environ |= {"ALBUMENTATIONS_NO_TELEMETRY": "1", "ALBUMENTATIONS_OFFLINE": "1"}

import albumentations as A  # noqa: N812 - as its users write it
import cv2
import numpy as np

from benchmarks.images import MEAN, STD
from benchmarks.peers import amounts as of
from benchmarks.peers.per_image import Session
from benchmarks.peers.worker import serve


def exactly(value: Any) -> tuple[Any, Any]:
    """Return a range of one number."""
    return value, value


def around(amount: float) -> tuple[float, float]:
    """Return factors from 1 - amount to 1 + amount."""
    return 1 - amount, 1 + amount


def jitter(
    brightness: float, contrast: float, saturation: float, hue: float, p: float = 1.0
) -> A.ColorJitter:
    return A.ColorJitter(around(brightness), around(contrast), around(saturation), (-hue, hue), p=p)


def factor(name: str) -> A.ColorJitter:
    """Return ColorJitter with only one of its factors."""
    others = {f"{part}_range": (1, 1) for part in ("brightness", "contrast", "saturation")}
    return A.ColorJitter(
        **{**others, "hue_range": (0, 0), f"{name}_range": exactly(of.FACTOR)}, p=1
    )


NEAREST: Any = {"upscale": cv2.INTER_NEAREST_EXACT, "downscale": cv2.INTER_NEAREST_EXACT}
OPS: dict[str, Callable[[], Any]] = {
    "Rotate": lambda: A.Rotate(exactly(of.DEGREES), p=1),
    "Affine": lambda: A.Affine(
        scale=exactly(of.AFFINE_SCALE),
        translate_percent={"x": exactly(of.TRANSLATE), "y": exactly(of.TRANSLATE)},
        rotate=exactly(of.AFFINE_DEGREES),
        shear={"x": exactly(of.SHEAR), "y": exactly(0.0)},
        p=1,
    ),
    "Perspective": lambda: A.Perspective(exactly(of.DISTORTION / 2), p=1),
    "Rot90": lambda: A.RandomRotate90(p=1),
    "Transpose": lambda: A.Transpose(p=1),
    "RandomScale": lambda: A.Affine(scale=exactly(of.SCALE), p=1),
    "ElasticDeform": lambda: A.ElasticTransform(
        exactly(of.ELASTIC / of.SIZE),
        (of.SIZE // of.SPACING, of.SIZE // of.SPACING),
        border_mode=cv2.BORDER_REFLECT_101,
        p=1,
    ),
    "ColorJitter": lambda: jitter(*[of.JITTER] * 4),
    "Hue": lambda: A.HueSaturationValue(exactly(180 * of.HUE), exactly(0), exactly(0), p=1),
    "Brightness": lambda: factor("brightness"),
    "Contrast": lambda: factor("contrast"),
    "Saturation": lambda: factor("saturation"),
    "Grayscale": lambda: A.ToGray(p=1),
    "Gamma": lambda: A.RandomGamma(exactly(100 * of.GAMMA), p=1),
    "Solarize": lambda: A.Solarize(exactly(of.THRESHOLD), p=1),
    "Posterize": lambda: A.Posterize(exactly(of.BITS), p=1),
    "Invert": lambda: A.InvertImg(p=1),
    "AutoContrast": lambda: A.AutoContrast(method="pil", p=1),
    "Equalize": lambda: A.Equalize(mode="pil", p=1),
    "Sharpness": lambda: A.Sharpen(exactly(of.SHARPNESS - 1), exactly(1.0), p=1),
    "GaussianBlur": lambda: A.GaussianBlur(exactly(of.KERNEL), exactly(of.SIGMA), p=1),
    "GaussianNoise": lambda: A.GaussNoise(exactly(of.NOISE), per_channel=True, p=1),
    "SaltPepper": lambda: A.SaltAndPepper(exactly(of.SALTED), exactly(0.5), p=1),
    "ChannelShuffle": lambda: A.ChannelShuffle(p=1),
    "ChannelDrop": lambda: A.ChannelDropout(exactly(1), p=1),
    "CLAHE": lambda: A.CLAHE(exactly(of.CLIP), (of.TILES, of.TILES), p=1),
    "GridMask": lambda: A.GridDropout(
        of.GRID_HOLE / of.GRID, unit_size_range=exactly(of.GRID), p=1
    ),
    "RandomErasing": lambda: A.Erasing(of.ERASED, of.ERASED_RATIO, p=1),
    "RandomCrop": lambda: A.RandomCrop(of.CROP, of.CROP),
    "CenterCrop": lambda: A.CenterCrop(of.CROP, of.CROP),
    "Pad": lambda: A.Pad(of.PADDING),
    "RandomFlip": lambda: A.HorizontalFlip(p=1),
    "Resize": lambda: A.Resize(of.RESIZED, of.RESIZED),
    "RandomResizedCrop": lambda: A.RandomResizedCrop((of.SIZE, of.SIZE), of.AREA, of.RATIO),
    "Normalize": lambda: A.Normalize(MEAN, STD),
    "ToFloat": A.ToFloat,
    "LetterBox": lambda: A.LetterBox(of.BOX),
    "PadIfNeeded": lambda: A.PadIfNeeded(of.LARGE, of.LARGE),
    "Resize bicubic": lambda: A.Resize(of.LARGE, of.LARGE, interpolation=cv2.INTER_CUBIC),
    "Resize lanczos": lambda: A.Resize(of.LARGE, of.LARGE, interpolation=cv2.INTER_LANCZOS4),
    "Resize area": lambda: A.Resize(of.RESIZED, of.RESIZED, interpolation=cv2.INTER_AREA),
    "Resize antialias": lambda: A.Resize(of.RESIZED, of.RESIZED, area_for_downscale="image"),
    "RandomResizedCrop antialias": lambda: A.RandomResizedCrop(
        (of.RESIZED, of.RESIZED), of.AREA, of.RATIO, area_for_downscale="image"
    ),
    "D4": lambda: A.D4(p=1),
    "CoarseDropout": lambda: A.CoarseDropout(of.HOLES, of.HOLE, of.HOLE, p=1),
    "RandomBrightnessContrast": lambda: A.RandomBrightnessContrast(
        exactly(of.BRIGHTNESS), exactly(of.BRIGHTNESS), brightness_by_max=True, p=1
    ),
    "RGBShift": lambda: A.RGBShift(*[exactly(of.SHIFT)] * 3, p=1),
    "Sepia": lambda: A.ToSepia(p=1),
    "FancyPCA": lambda: A.FancyPCA(of.FANCY, p=1),
    "PhotometricDistort": lambda: A.PhotoMetricDistort(p=1),
    "MultiplicativeNoise": lambda: A.MultiplicativeNoise(exactly(of.MULTIPLIER), p=1),
    "MultiplicativeNoise of values": lambda: A.MultiplicativeNoise(
        per_channel=True, elementwise=True, p=1
    ),
    "ShotNoise": lambda: A.ShotNoise(p=1),
    "ISONoise": lambda: A.ISONoise(of.COLOR_SHIFT, of.INTENSITY, p=1),
    "MotionBlur": lambda: A.MotionBlur(
        exactly(of.LINE),
        allow_shifted=False,
        angle_range=exactly(of.SLOPE),
        direction_range=exactly(0.0),
        p=1,
    ),
    "MedianBlur 3": lambda: A.MedianBlur(exactly(3), p=1),
    "MedianBlur 5": lambda: A.MedianBlur(exactly(5), p=1),
    "Defocus": lambda: A.Defocus(exactly(of.DISC), exactly(0.01), p=1),
    "Downscale": lambda: A.Downscale(exactly(of.DOWNSCALE), NEAREST, p=1),
    "JPEGCompression": lambda: A.ImageCompression(quality_range=exactly(of.QUALITY), p=1),
    "GridDistortion": lambda: A.GridDistortion(
        of.CELLS, (-of.STRETCHED, of.STRETCHED), border_mode=cv2.BORDER_CONSTANT, p=1
    ),
    "OpticalDistortion": lambda: A.OpticalDistortion(exactly(of.LENS), p=1),
    "Fog": lambda: A.RandomFog(of.FOG_ALPHA, of.FOG, p=1),
    "Rain": lambda: A.RandomRain(p=1),
    "Shadow": lambda: A.RandomShadow(
        num_shadows_range=of.SHADOWS, shadow_intensity_range=exactly(of.SHADOW), p=1
    ),
}


def simclr() -> list[Any]:
    return [
        A.RandomResizedCrop((of.SIZE, of.SIZE), of.AREA, of.RATIO),
        A.HorizontalFlip(),
        jitter(*of.SIMCLR_JITTER, p=of.SIMCLR_JITTERED),
        A.ToGray(p=of.SIMCLR_GREY),
        A.GaussianBlur(exactly(of.SIMCLR_KERNEL), of.SIMCLR_SIGMA, p=of.SIMCLR_BLURRED),
        A.Normalize(MEAN, STD),
    ]


def rand_augment() -> list[Any]:
    """Return a substitute of RandAugment, which it lacks: two of its ops, at that magnitude of 30."""
    part = of.MAGNITUDE / 30
    both = (-part, part)

    def factors(name: str) -> Any:
        others = {f"{other}_range": (1, 1) for other in ("brightness", "contrast", "saturation")}
        return A.ColorJitter(
            **{**others, "hue_range": (0, 0), f"{name}_range": around(0.9 * part)}, p=1
        )

    ops = [
        A.NoOp(p=1),
        A.Affine(shear={"x": (-17 * part, 17 * part), "y": (0, 0)}, p=1),
        A.Affine(shear={"x": (0, 0), "y": (-17 * part, 17 * part)}, p=1),
        A.Affine(translate_percent={"x": (0.45 * both[0], 0.45 * both[1]), "y": (0, 0)}, p=1),
        A.Affine(translate_percent={"x": (0, 0), "y": (0.45 * both[0], 0.45 * both[1])}, p=1),
        A.Rotate((-30 * part, 30 * part), p=1),
        factors("brightness"),
        factors("saturation"),
        factors("contrast"),
        A.Sharpen((0, 0.9 * part), exactly(1.0), p=1),
        A.Posterize(exactly(round(8 - 4 * part)), p=1),
        A.Solarize(exactly(1 - part), p=1),
        A.AutoContrast(method="pil", p=1),
        A.Equalize(mode="pil", p=1),
    ]
    return [
        A.RandomResizedCrop((of.SIZE, of.SIZE), of.AREA, of.RATIO),
        A.HorizontalFlip(),
        A.SomeOf(ops, n=of.NUMBER, replace=True),
        A.Normalize(MEAN, STD),
    ]


def segmentation() -> list[Any]:
    return [
        A.RandomResizedCrop((of.SIZE, of.SIZE), of.SEGMENTATION_AREA, of.RATIO),
        A.HorizontalFlip(),
        A.Rotate((-of.SEGMENTATION_DEGREES, of.SEGMENTATION_DEGREES), p=1),
        jitter(*of.SEGMENTATION_JITTER),
        A.GaussianBlur(
            exactly(of.SEGMENTATION_KERNEL), of.SEGMENTATION_SIGMA, p=of.SEGMENTATION_BLURRED
        ),
        A.Normalize(MEAN, STD),
    ]


def alone(make: Callable[[], Any]) -> Callable[[], Callable[..., Any]]:
    def maker() -> Callable[..., Any]:
        op = make()
        return lambda image: op(image=image)["image"]

    return maker


def composed(make: Callable[[], list[Any]]) -> Callable[[], Callable[..., Any]]:
    def maker() -> Callable[..., Any]:
        chain = A.Compose(make())

        def function(image: Any, mask: Any = None) -> Any:
            if mask is None:
                return chain(image=image)["image"]
            both = chain(image=image, mask=mask)
            return both["image"], both["mask"]

        return function

    return maker


def box_safe_crop() -> Callable[..., Any]:
    """Return a function of an image and its boxes; those of zeros, which stand for none, are left out before it."""
    chain = A.Compose(
        [A.RandomSizedBBoxSafeCrop(of.CROP, of.CROP)], bbox_params=A.BboxParams("pascal_voc")
    )

    def function(image: Any, boxes: Any) -> Any:
        both = chain(image=image, bboxes=boxes[boxes[:, 2] > boxes[:, 0]])
        moved, valid = np.zeros_like(boxes), np.zeros(len(boxes), bool)
        kept = np.asarray(both["bboxes"], np.float32)[:, :4]
        moved[: len(kept)], valid[: len(kept)] = kept, True
        return both["image"], moved, valid

    return function


if __name__ == "__main__":
    cv2.setNumThreads(1)
    chains = {"SimCLR": simclr, "RandAugment": rand_augment, "segmentation": segmentation}
    serve(
        Session(
            {name: alone(make) for name, make in OPS.items()}
            | {name: composed(make) for name, make in chains.items()}
            | {"BoxSafeCrop": box_safe_crop}
        )
    )
