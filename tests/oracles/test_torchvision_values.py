"""Deterministic ops give torchvision's values: exactly, within a level, or within a level on average."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F  # noqa: N812 - as its users call it

from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.oracles.libraries import by_loaderx, by_torchvision, photo

BILINEAR, BICUBIC = v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC
EXACT = v2.InterpolationMode.NEAREST_EXACT
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]
MOVED = {
    "translate_x": (4 / 64, 4 / 64), "translate_y": (-3 / 48, -3 / 48), "scale": 1.2, "shear_x": (10, 10),
    "shear_y": (5, 5),
}  # fmt: skip


def scaled(x):
    return F.to_dtype(x, torch.float32, scale=True)


# Ours, theirs, and how many levels a value may differ.
CASES = {
    "a centre crop": (T.CenterCrop((30, 32)), lambda x: F.center_crop(x, [30, 32]), 0),
    "a larger centre crop": (T.CenterCrop((61, 71)), lambda x: F.center_crop(x, [61, 71]), 0),
    "padding of named sides": (
        T.Pad(left=1, top=2, right=3, bottom=4), lambda x: F.pad(x, [1, 2, 3, 4]), 0),
    "padding of two numbers": (T.Pad((5, 2)), lambda x: F.pad(x, [2, 5]), 0),
    "padding by reflection": (
        T.Pad(3, border="reflect"), lambda x: F.pad(x, [3], padding_mode="reflect"), 0),
    "padding with colours": (T.Pad(2, fill=(1, 2, 3)), lambda x: F.pad(x, [2], fill=[1, 2, 3]), 0),
    "a horizontal flip": (T.RandomFlip(1), F.horizontal_flip, 0),
    "a vertical flip": (T.RandomFlip(1, axis="vertical"), F.vertical_flip, 0),
    "shrinking": (T.Resize((24, 20)), lambda x: F.resize(x, [24, 20]), 1),
    "enlarging": (T.Resize((100, 90)), lambda x: F.resize(x, [100, 90]), 1),
    "shrinking without antialias": (
        T.Resize((24, 20), antialias=False), lambda x: F.resize(x, [24, 20], antialias=False), 1),
    # Ours is within a level of Pillow's; theirs is rounded between rows and columns.
    "bicubic": (
        T.Resize((24, 90), interpolation="bicubic"),
        lambda x: F.resize(x, [24, 90], interpolation=BICUBIC), 2),
    "nearest": (
        T.Resize((24, 90), interpolation="nearest"),
        lambda x: F.resize(x, [24, 90], interpolation=EXACT), 0),
    "the shorter side": (T.Resize(shorter=30), lambda x: F.resize(x, [30]), 1),
    "rotation": (T.Rotate((30, 30)), lambda x: F.rotate(x, 30, interpolation=BILINEAR), 1),
    "rotation to the nearest": (
        T.Rotate((30, 30), interpolation="nearest", fill=9),
        lambda x: F.rotate(x, 30, fill=[9, 9, 9]), 0),
    "an affine map": (
        T.Affine((-20, -20), **MOVED),
        lambda x: F.affine(x, 20, [4, -3], 1.2, [10, 5], interpolation=BILINEAR), 1),
    "an affine map to the nearest": (
        T.Affine((-20, -20), **MOVED, interpolation="nearest"),
        lambda x: F.affine(x, 20, [4, -3], 1.2, [10, 5]), 0),
    "darker": (T.Brightness((0.5, 0.5)), lambda x: F.adjust_brightness(x, 0.5), 1),
    "lighter": (T.Brightness((1.3, 1.3)), lambda x: F.adjust_brightness(x, 1.3), 1),
    "less contrast": (T.Contrast((0.5, 0.5)), lambda x: F.adjust_contrast(x, 0.5), 1),
    "more contrast": (T.Contrast((1.3, 1.3)), lambda x: F.adjust_contrast(x, 1.3), 1),
    "less saturation": (T.Saturation((0.5, 0.5)), lambda x: F.adjust_saturation(x, 0.5), 1),
    "more saturation": (T.Saturation((1.3, 1.3)), lambda x: F.adjust_saturation(x, 1.3), 1),
    "hue backwards": (T.Hue((-0.3, -0.3)), lambda x: F.adjust_hue(x, -0.3), 1),
    "hue": (T.Hue((0.1, 0.1)), lambda x: F.adjust_hue(x, 0.1), 1),
    "a jitter of hue alone": (
        T.ColorJitter(hue=(0.1, 0.1)), v2.ColorJitter(hue=(0.1, 0.1)), 1),
    "smoother": (T.Sharpness((0.5, 0.5)), lambda x: F.adjust_sharpness(x, 0.5), 1),
    "sharper": (T.Sharpness((2, 2)), v2.RandomAdjustSharpness(2, p=1), 1),
    "gamma": (T.Gamma(0.7), lambda x: F.adjust_gamma(x, 0.7), 1),
    "grey": (T.Grayscale(), v2.RandomGrayscale(p=1), 1),
    "solarize": (T.Solarize(128 / 255), v2.RandomSolarize(128, p=1), 0),
    "posterize": (T.Posterize(3), v2.RandomPosterize(3, p=1), 0),
    "invert": (T.Invert(), v2.RandomInvert(p=1), 0),
    "auto contrast": (T.AutoContrast(), v2.RandomAutocontrast(p=1), 1),
    "equalize": (T.Equalize(), v2.RandomEqualize(p=1), 0),
    "a blur": (T.GaussianBlur(1.5, size=7), v2.GaussianBlur(7, 1.5), 1),
    "to float": (T.ToFloat(), scaled, 1e-7),
    "cast": (T.Cast("float32"), v2.ToDtype(torch.float32), 0),
    "normalize": (T.Normalize(MEAN, STD), lambda x: F.normalize(scaled(x), MEAN, STD), 1e-5),
    "identity": (T.Identity(), v2.Identity(), 0),
    "a sequence": (
        T.Sequence(T.Invert(), T.Posterize(3)),
        v2.Compose([v2.RandomInvert(p=1), v2.RandomPosterize(3, p=1)]), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_torchvision(case):
    op, transform, levels = CASES[case]
    ours, theirs = by_loaderx(op, photo()), by_torchvision(transform, photo())
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=0, atol=levels)


@pytest.mark.parametrize(
    "case", ["rotation", "darker", "more contrast", "more saturation", "hue", "a blur", "shrinking"]
)
def test_values_of_floats_are_those_of_torchvision(case):
    op, transform, _ = CASES[case]
    image = photo().astype(np.float32) / 255
    ours, theirs = by_loaderx(op, image), by_torchvision(transform, image)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings(
    "ignore:.*decod.*:DeprecationWarning", "ignore:.*torchcodec.*:DeprecationWarning"
)
@pytest.mark.parametrize("quality", [10, 50, 90])
def test_jpeg_loses_what_it_loses_there(quality):
    image = photo(64, 64)
    ours = by_loaderx(T.JPEGCompression(quality), image).astype(float)
    theirs = by_torchvision(v2.JPEG(quality), image).astype(float)
    assert abs(ours - theirs).mean() < 1
    assert abs(ours - theirs).mean() < 0.5 * abs(image - theirs).mean()


def test_one_number_of_resize_is_a_square_here_and_the_shorter_side_there():
    assert by_loaderx(T.Resize(30), photo()).shape == (30, 30, 3)
    assert by_torchvision(v2.Resize(30), photo()).shape == (30, 40, 3)


def test_an_odd_rest_of_a_centre_crop_is_rounded_otherwise():
    # (64 - 33) / 2 is 15.5: 15 here and in Albumentations, 16 there.
    ours, theirs = by_loaderx(T.CenterCrop((48, 33)), photo()), photo()[:, 16:49]
    np.testing.assert_array_equal(by_torchvision(v2.CenterCrop((48, 33)), photo()), theirs)
    np.testing.assert_array_equal(ours, photo()[:, 15:48])
