"""Random ops draw from torchvision's and Albumentations' distributions: samples of both have the same law."""

import albumentations as A  # noqa: N812 - as its users call it
import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.oracles.libraries import (
    coordinates,
    many_by_albumentations,
    many_by_loaderx,
    many_by_torchvision,
    photo,
)

DRAWS = 1000
BILINEAR = v2.InterpolationMode.BILINEAR
WAYS = {"torchvision": many_by_torchvision, "Albumentations": many_by_albumentations}


def crop_of(out):
    """Return top, left, height and width of the part that was scaled to 2 x 2 pixels."""
    sizes = 2 * (out[:, 1, 0, 0] - out[:, 0, 0, 0]), 2 * (out[:, 0, 1, 1] - out[:, 0, 0, 1])
    places = out[:, 0, 0].T + 0.5 - np.array(sizes) / 4
    return [*places, *sizes]


def map_of(out):
    """Return the six numbers of the map, from the coordinates around the centre."""
    _, height, width, _ = out.shape
    y, x = height // 2, width // 2
    right = (out[:, y, x + 4] - out[:, y, x - 4]) / 8
    down = (out[:, y + 4, x] - out[:, y - 4, x]) / 8
    return [*right.T, *down.T, *out[:, y, x].T]


def turn_of(out):
    """Return the sine of a rotation; OpenCV counts in 32nds of pixels."""
    return [np.round(map_of(out)[0], 1)]


def centre_of(out):
    return [*out[:, out.shape[1] // 2, out.shape[2] // 2].T]


def means_of(out):
    """Return the mean of every channel."""
    return [*out.reshape(len(out), -1, out.shape[-1]).mean(1, dtype=float).T]


def spreads_of(out):
    return [out.reshape(len(out), -1).mean(1), out.reshape(len(out), -1).std(1)]


def hole_of(out):
    """Return height and width of the rows and columns that are 0, or 0 if there are none."""
    zero = out[..., 0] == 0
    return [zero.any(2).sum(1), zero.any(1).sum(1)]


def peak_of(out):
    return [out.reshape(len(out), -1).max(1)]


def shares_of(out):
    """Return the shares of black and of white pixels."""
    return [(out[..., 0] == 0).mean((1, 2)), (out[..., 0] == 255).mean((1, 2))]


PLACES, SQUARE = coordinates(40, 60), coordinates(81, 81)
COLOURS = photo(8, 8).astype(np.float32) / 255
GREY = np.full((24, 24, 3), 128, np.uint8)
LIGHT = np.full((32, 32, 3), 255, np.uint8)
POINT = np.zeros((31, 31, 1), np.float32)
POINT[15, 15] = 1
# Ours, theirs, the image, and what is measured.
TORCHVISION = {
    "resized crops": (
        T.RandomResizedCrop(2, antialias=False), v2.RandomResizedCrop(2, antialias=False), PLACES, crop_of),
    "small resized crops": (
        T.RandomResizedCrop(2, scale=(0.05, 0.2), ratio=(1, 2), antialias=False),
        v2.RandomResizedCrop(2, scale=(0.05, 0.2), ratio=(1, 2), antialias=False), PLACES, crop_of),
    "crops": (T.RandomCrop((20, 30)), v2.RandomCrop((20, 30)), PLACES, centre_of),
    "crops of padded images": (T.RandomCrop(30, pad=4), v2.RandomCrop(30, padding=4), PLACES, centre_of),
    "flips": (T.RandomFlip(), v2.RandomHorizontalFlip(), PLACES, lambda out: [out[:, 0, 0, 1]]),
    "vertical flips": (
        T.RandomFlip(0.3, axis="vertical"), v2.RandomVerticalFlip(0.3), PLACES, lambda out: [out[:, 0, 0, 0]]),
    "rotations": (T.Rotate(30), v2.RandomRotation(30, interpolation=BILINEAR), SQUARE, map_of),
    "a range of rotations": (
        T.Rotate((10, 50)), v2.RandomRotation((10, 50), interpolation=BILINEAR), SQUARE, map_of),
    "affine maps": (
        T.Affine(20, translate_x=0.1, translate_y=0.2, scale=(0.8, 1.2), shear_x=10),
        v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 10, interpolation=BILINEAR), SQUARE, map_of),
    "perspectives": (T.Perspective(0.5), v2.RandomPerspective(0.5, p=1), SQUARE, centre_of),
    "perspectives by chance": (
        T.Perspective(0.3, probability=0.5), v2.RandomPerspective(0.3, p=0.5), SQUARE, centre_of),
    "brightness": (T.ColorJitter(0.4), v2.ColorJitter(0.4), COLOURS, means_of),
    "contrast": (T.Contrast(0.8), v2.ColorJitter(contrast=0.8), COLOURS, spreads_of),
    "saturation": (T.Saturation((0, 2)), v2.ColorJitter(saturation=(0, 2)), COLOURS, means_of),
    "hue": (T.Hue(0.2), v2.ColorJitter(hue=0.2), COLOURS, means_of),
    "a jitter of colours": (
        T.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ColorJitter(0.4, 0.4, 0.4, 0.1), COLOURS, means_of),
    "photometric distortion": (T.PhotometricDistort(), v2.RandomPhotometricDistort(), COLOURS, means_of),
    "grey by chance": (T.Grayscale(0.2), v2.RandomGrayscale(0.2), COLOURS, means_of),
    "inverted by chance": (T.Invert(0.3), v2.RandomInvert(0.3), COLOURS, means_of),
    "solarized by chance": (
        T.Solarize(0.5, probability=0.4), v2.RandomSolarize(0.5, p=0.4), COLOURS, means_of),
    "channels in another order": (
        T.ChannelShuffle(), v2.RandomChannelPermutation(), COLOURS, means_of),
    "erased rectangles": (T.RandomErasing(), v2.RandomErasing(), LIGHT, hole_of),
    "erased rectangles always": (T.RandomErasing(1), v2.RandomErasing(1), LIGHT, hole_of),
    "noise": (T.GaussianNoise(0.2), v2.GaussianNoise(sigma=0.2), COLOURS, spreads_of),
    "blurs": (T.GaussianBlur((0.5, 2), size=11), v2.GaussianBlur(11, (0.5, 2)), POINT, peak_of),
    "ops by chance": (
        T.Maybe(0.3, T.Invert()), v2.RandomApply([v2.RandomInvert(1)], p=0.3), COLOURS, means_of),
    "one of some": (
        T.OneOf(T.Invert(), T.Grayscale(), weights=[1, 3]),
        v2.RandomChoice([v2.RandomInvert(1), v2.RandomGrayscale(1)], p=[1, 3]), COLOURS, means_of),
    "ops in any order": (
        T.RandomOrder(T.Solarize(0.3), T.Brightness((0.5, 0.5))),
        v2.RandomOrder([v2.RandomSolarize(0.3, p=1), v2.ColorJitter((0.5, 0.5))]), COLOURS, means_of),
}  # fmt: skip
ALBUMENTATIONS = {
    "quarter turns": (T.Rot90(), A.RandomRotate90(), SQUARE, lambda out: [*out[:, 0, 0].T]),
    "symmetries": (T.D4(), A.D4(), SQUARE, lambda out: [*out[:, 0, 0].T, *out[:, 0, -1].T]),
    "transposed": (T.Transpose(), A.Transpose(), SQUARE, lambda out: [out[:, 0, -1, 0]]),
    "rotations": (T.Rotate(30), A.Rotate(30, p=1), SQUARE, turn_of),
    "rotations by chance": (T.Rotate(30, probability=0.5), A.Rotate(30, p=0.5), SQUARE, turn_of),
    "resized crops": (T.RandomResizedCrop(2, antialias=False), A.RandomResizedCrop((2, 2)), PLACES, crop_of),
    "crops": (T.RandomCrop((20, 30)), A.RandomCrop(20, 30), PLACES, centre_of),
    "brightness and contrast": (
        T.RandomBrightnessContrast(), A.RandomBrightnessContrast(p=1), photo(), spreads_of),
    "shifts of colours": (T.RGBShift(), A.RGBShift(p=1), photo(), means_of),
    "gamma": (T.Gamma((0.8, 1.2)), A.RandomGamma((80, 120), p=1), COLOURS, means_of),
    "a jitter of colours": (
        T.ColorJitter(0.2, 0.2, 0.2, 0), A.ColorJitter(0.2, 0.2, 0.2, 0, p=1), COLOURS, means_of),
    "factors": (T.MultiplicativeNoise(), A.MultiplicativeNoise(p=1), COLOURS * 0.5, means_of),
    "a factor for each channel": (
        T.MultiplicativeNoise(per_channel=True), A.MultiplicativeNoise(per_channel=True, p=1), COLOURS * 0.5, means_of),
    "noise": (T.GaussianNoise((0.1, 0.2)), A.GaussNoise((0.1, 0.2), p=1), GREY, spreads_of),
    "salt and pepper": (
        T.SaltPepper((0.1, 0.3), (0.4, 0.6)), A.SaltAndPepper((0.1, 0.3), (0.4, 0.6), p=1), GREY, shares_of),
    "one hole": (
        T.CoarseDropout(1, (4, 12), (6, 10)), A.CoarseDropout((1, 1), (4, 12), (6, 10), p=1), LIGHT, hole_of),
    "a dropped channel": (
        T.ChannelDrop(0.5), A.ChannelDropout(p=0.5), GREY, means_of),
    "defocus": (
        T.Defocus((1, 7)), A.Defocus((1, 7), alias_blur=(0.01, 0.01), p=1), POINT, peak_of),
    "medians": (T.MedianBlur((3, 5)), A.MedianBlur((3, 5), p=1), photo(16, 16), spreads_of),
    "ops by chance": (T.Maybe(0.3, T.Invert()), A.InvertImg(p=0.3), COLOURS, means_of),
    "some of them": (
        T.SomeOf(2, T.Invert(), T.Posterize(2), T.Solarize(0.5)),
        A.SomeOf([A.InvertImg(p=1), A.Posterize(2, p=1), A.Solarize((0.5, 0.5), p=1)], n=2, p=1), photo(), spreads_of),
}  # fmt: skip
CASES = [
    *(("torchvision", case, *given) for case, given in TORCHVISION.items()),
    *(("Albumentations", case, *given) for case, given in ALBUMENTATIONS.items()),
]


@pytest.mark.parametrize(
    ("library", "op", "transform", "image", "measure"),
    [(library, *given) for library, _, *given in CASES],
    ids=[f"{library}: {case}" for library, case, *_ in CASES],
)
def test_draws_are_of_the_same_law(library, op, transform, image, measure):
    ours = measure(many_by_loaderx(op, image, DRAWS))
    theirs = measure(WAYS[library](transform, image, DRAWS))
    for mine, other in zip(ours, theirs, strict=True):
        # Rounding errors do not count as a difference.
        mine, other = np.round(mine, 3), np.round(other, 3)
        law = stats.ks_2samp(mine, other, method="asymp")
        assert law.pvalue > 1e-4, (mine.mean(), other.mean())
        error = np.hypot(mine.std(), other.std()) / np.sqrt(DRAWS)
        assert abs(mine.mean() - other.mean()) < 6 * error + 1e-3


@pytest.mark.parametrize(("op", "transform"), [(T.MixUp, v2.MixUp), (T.CutMix, v2.CutMix)])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_shares_of_mixed_samples_are_of_the_same_law(op, transform, alpha):
    images = np.repeat(np.arange(2, dtype=np.float32), 20 * 20 * 3).reshape(2, 20, 20, 3)
    loader = lx.DataLoader(
        {"image": images}, transforms={"image": [op(alpha)]}, batch_size=2, shuffle=False, output="numpy",
    )  # fmt: skip
    ours = np.concatenate([loader.batch(step)["image"].mean((1, 2, 3))[1:] for step in range(600)])
    torch.manual_seed(0)
    mixing = transform(alpha=alpha, num_classes=2)
    batch, labels = torch.from_numpy(np.moveaxis(images, -1, 1)), torch.tensor([0, 1])
    theirs = np.array([mixing(batch, labels)[0][1].mean() for _ in range(600)])
    law = stats.ks_2samp(np.round(ours, 4), np.round(theirs, 4), method="asymp")
    assert law.pvalue > 1e-4
