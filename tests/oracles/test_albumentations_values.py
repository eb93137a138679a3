"""Deterministic ops give Albumentations' values: exactly, within a level, or within some levels that are named."""

import albumentations as A  # noqa: N812 - as its users call it
import cv2
import numpy as np
import pytest

from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.oracles.libraries import by_albumentations, by_loaderx, photo

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
NEAREST = {"upscale": cv2.INTER_NEAREST_EXACT, "downscale": cv2.INTER_NEAREST_EXACT}
STILL = {"allow_shifted": False, "direction_range": (0, 0), "p": 1}


def jitter(brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0)):
    return A.ColorJitter(brightness, contrast, saturation, hue, p=1)


# Ours, theirs, and how many levels a value may differ.
CASES = {
    "padding of two numbers": (T.Pad((5, 2)), A.Pad((2, 5)), 0),
    "padding of named sides": (T.Pad(left=1, top=2, right=3, bottom=4), A.Pad((1, 2, 3, 4)), 0),
    "padding if needed": (T.PadIfNeeded(61, 71), A.PadIfNeeded(61, 71), 0),
    "a centre crop": (T.CenterCrop((31, 33)), A.CenterCrop(31, 33), 0),
    "shrinking without antialias": (T.Resize((24, 20), antialias=False), A.Resize(24, 20), 1),
    "enlarging": (T.Resize((100, 90)), A.Resize(100, 90), 1),
    "by area": (
        T.Resize((24, 32), interpolation="area"), A.Resize(24, 32, interpolation=cv2.INTER_AREA), 1),
    "the shorter side": (T.Resize(shorter=30, antialias=False), A.SmallestMaxSize(30), 1),
    "the longer side": (T.Resize(longer=30, antialias=False), A.LongestMaxSize(30), 1),
    "a letter box": (
        T.LetterBox((40, 40), antialias=False), A.Compose([A.LongestMaxSize(40), A.PadIfNeeded(40, 40)]), 1),
    "a horizontal flip": (T.RandomFlip(1), A.HorizontalFlip(p=1), 0),
    "a vertical flip": (T.RandomFlip(1, axis="vertical"), A.VerticalFlip(p=1), 0),
    "transposed": (T.Transpose(1), A.Transpose(p=1), 0),
    "rotation": (T.Rotate((30, 30)), A.Rotate((30, 30), p=1), 1),
    "rotation with edges": (
        T.Rotate((30, 30), border="edge"), A.Rotate((30, 30), border_mode=cv2.BORDER_REPLICATE, p=1), 1),
    "an affine map": (
        T.Affine((20, 20), translate_x=(4 / 64, 4 / 64), translate_y=(-3 / 48, -3 / 48), scale=1.2),
        A.Affine(rotate=(20, 20), translate_px={"x": 4, "y": -3}, scale=(1.2, 1.2), p=1), 1),
    "a shear": (T.Affine(shear_x=(10, 10)), A.Affine(shear={"x": (10, 10), "y": 0}, p=1), 1),
    "zoom": (T.RandomScale(1.2), A.Affine(scale=(1.2, 1.2), p=1), 1),
    "brightness and contrast": (
        T.RandomBrightnessContrast((0.1, 0.1), (1.2, 1.2)),
        A.RandomBrightnessContrast((0.1, 0.1), (0.2, 0.2), p=1), 1),
    "darkness and less contrast": (
        T.RandomBrightnessContrast((-0.3, -0.3), (0.7, 0.7)),
        A.RandomBrightnessContrast((-0.3, -0.3), (-0.3, -0.3), p=1), 1),
    "a shift of colours": (
        T.RGBShift((20 / 255, 20 / 255)), A.RGBShift((20, 20), (20, 20), (20, 20), p=1), 0),
    "sepia": (T.Sepia(), A.ToSepia(p=1), 1),
    "grey": (T.Grayscale(), A.ToGray(p=1), 1),
    "invert": (T.Invert(), A.InvertImg(p=1), 0),
    "solarize": (T.Solarize(0.5), A.Solarize((0.5, 0.5), p=1), 0),
    "posterize": (T.Posterize(3), A.Posterize(3, p=1), 0),
    "gamma": (T.Gamma(0.8), A.RandomGamma((80, 80), p=1), 1),
    "auto contrast": (T.AutoContrast(), A.AutoContrast(method="pil", p=1), 2),
    "a jitter of brightness": (T.ColorJitter((1.3, 1.3)), jitter(brightness=(1.3, 1.3)), 1),
    "a jitter of contrast": (T.ColorJitter(contrast=(1.3, 1.3)), jitter(contrast=(1.3, 1.3)), 1),
    "a jitter of saturation": (T.ColorJitter(saturation=(1.3, 1.3)), jitter(saturation=(1.3, 1.3)), 1),
    # OpenCV's hue has 180 levels.
    "a jitter of hue": (T.ColorJitter(hue=(0.1, 0.1)), jitter(hue=(0.1, 0.1)), 6),
    "a small median": (T.MedianBlur(3), A.MedianBlur((3, 3), p=1), 0),
    "a median": (T.MedianBlur(5), A.MedianBlur((5, 5), p=1), 0),
    "a blur": (T.GaussianBlur(1.5, size=7), A.GaussianBlur((7, 7), (1.5, 1.5), p=1), 1),
    "motion to the side": (T.MotionBlur(5, 0), A.MotionBlur((5, 5), angle_range=(0, 0), **STILL), 1),
    "motion downwards": (T.MotionBlur(5, 90), A.MotionBlur((5, 5), angle_range=(90, 90), **STILL), 1),
    "defocus": (T.Defocus(3), A.Defocus((3, 3), alias_blur=(0.01, 0.01), p=1), 1),
    "fewer pixels": (T.Downscale(0.3), A.Downscale((0.3, 0.3), interpolation_pair=NEAREST, p=1), 0),
    "a factor": (T.MultiplicativeNoise(1.2), A.MultiplicativeNoise((1.2, 1.2), p=1), 1),
    "to float": (T.ToFloat(), A.ToFloat(), 1e-6),
    "normalize": (T.Normalize(MEAN, STD), A.Normalize(MEAN, STD), 1e-5),
    "identity": (T.Identity(), A.NoOp(), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_albumentations(case):
    op, transform, levels = CASES[case]
    ours, theirs = by_loaderx(op, photo()), by_albumentations(transform, photo())
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=0, atol=levels)


def test_histograms_of_grey_images_are_equalized_in_tiles_as_there():
    grey = photo()[..., 0].copy()
    theirs = by_albumentations(A.CLAHE((4, 4), p=1), grey)
    np.testing.assert_array_equal(by_loaderx(T.CLAHE(4.0), grey), theirs)


def test_jpeg_loses_what_it_loses_there():
    # Albumentations passes its image to OpenCV unchanged, which treats the first channel as blue.
    image = photo(64, 64)
    swapped = A.ImageCompression(quality_range=(50, 50), p=1)
    theirs = by_albumentations(swapped, image[..., ::-1].copy())[..., ::-1].astype(float)
    assert abs(by_loaderx(T.JPEGCompression(50), image) - theirs).mean() < 1
