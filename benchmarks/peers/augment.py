"""Augmentations of one image by OpenCV and NumPy, as people write them where a loader has none.

OpenCV does an op if it has it; functions of one value are tables. The caller turns OpenCV's own threads off
(`cv2.setNumThreads(1)`), because the images are divided among threads or processes.
"""

import math
from collections.abc import Callable

import cv2
import numpy as np

from benchmarks.images import MEAN, PAD, STD
from benchmarks.peers import amounts as of
from benchmarks.rows import Array

VALUES = np.arange(256)
WHOLE = (of.SIZE, of.SIZE)
NORMALIZE = np.column_stack(
    [np.diag(1 / (255 * np.array(STD))), -np.array(MEAN) / np.array(STD)]
).astype(np.float32)

Random = np.random.Generator


def table(values: Array) -> Array:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def brightness(image: Array, factor: float) -> Array:
    return cv2.convertScaleAbs(image, alpha=factor)


def contrast(image: Array, factor: float) -> Array:
    mean = cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0]
    return cv2.LUT(image, table(factor * VALUES + (1 - factor) * mean))


def grayscale(image: Array) -> Array:
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def saturation(image: Array, factor: float) -> Array:
    return cv2.addWeighted(image, factor, grayscale(image), 1 - factor, 0)


def hue(image: Array, amount: float) -> Array:
    """Turn the hue in OpenCV's half degrees, by a table."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    turned = ((VALUES + 180 * amount) % 180).astype(np.uint8)
    hsv[..., 0] = cv2.LUT(hsv[..., 0], turned)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


def jitter(image: Array, random: Random, amounts: tuple[float, float, float, float]) -> Array:
    for step in random.permutation(4):
        if step == 3:
            image = hue(image, random.uniform(-amounts[3], amounts[3]))
        else:
            factor = random.uniform(1 - amounts[step], 1 + amounts[step])
            image = (brightness, contrast, saturation)[step](image, factor)
    return image


def blur(image: Array, sigma: float, size: int) -> Array:
    return cv2.GaussianBlur(image, (size, size), sigma)


def window(random: Random, size: int, area: tuple[float, float]) -> tuple[slice, slice]:
    """Draw the window of RandomResizedCrop, as torchvision does."""
    for _ in range(10):
        target = size * size * random.uniform(*area)
        ratio = math.exp(random.uniform(math.log(of.RATIO[0]), math.log(of.RATIO[1])))
        across, down = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if across <= size and down <= size:
            top, left = random.integers(0, size - down + 1), random.integers(0, size - across + 1)
            return slice(top, top + down), slice(left, left + across)
    return slice(0, size), slice(0, size)


def resized_crop(image: Array, random: Random, area: tuple[float, float] = of.AREA) -> Array:
    return cv2.resize(image[window(random, len(image), area)], WHOLE)


def normalize(image: Array) -> Array:
    """Normalise by an affine map of colours in OpenCV, the fastest way found."""
    return cv2.transform(image.astype(np.float32), NORMALIZE)


def cifar(image: Array, random: Random) -> Array:
    padded = cv2.copyMakeBorder(image, PAD, PAD, PAD, PAD, cv2.BORDER_CONSTANT)
    top, left = random.integers(0, 2 * PAD + 1, 2)
    cropped = padded[top : top + len(image), left : left + len(image)]
    return normalize(cv2.flip(cropped, 1) if random.random() < 0.5 else cropped)


def imagenet(image: Array, random: Random) -> Array:
    resized = resized_crop(image, random)
    return normalize(cv2.flip(resized, 1) if random.random() < 0.5 else resized)


def simclr(image: Array, random: Random) -> Array:
    image = resized_crop(image, random)
    if random.random() < 0.5:
        image = cv2.flip(image, 1)
    if random.random() < of.SIMCLR_JITTERED:
        image = jitter(image, random, of.SIMCLR_JITTER)
    if random.random() < of.SIMCLR_GREY:
        image = grayscale(image)
    if random.random() < of.SIMCLR_BLURRED:
        image = blur(image, random.uniform(*of.SIMCLR_SIGMA), of.SIMCLR_KERNEL)
    return normalize(image)


# The chains of the workloads, for one image.
CHAINS: dict[str, Callable[[Array, Random], Array]] = {
    "cifar": cifar,
    "imagenet": imagenet,
    "simclr": simclr,
}
