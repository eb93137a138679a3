"""JPEG files by hand: a file is read, decoded, cropped, resized, mirrored and normalised by one function.

A window is drawn before its image is decoded, and the image is decoded at a fraction of its size where it is shrunk by
so much anyway, as loaderx does. The rest is OpenCV's, by means of areas where it shrinks, as FFCV does it.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.peers import amounts as of
from benchmarks.peers.augment import WHOLE, normalize
from benchmarks.photographs import files_of
from benchmarks.rows import Array
from benchmarks.workloads import Workload

Random = np.random.Generator
# Decodes bytes to RGB at 1, 1/2, 1/4 or 1/8 of their size.
Decoder = Callable[[bytes, int, int, int], Array]

# A reduced image has at least so many times the pixels of the result on each axis, as in loaderx.
LEAST_SHRINKING = 1.5
# OpenCV has flags for reduced images, which it decodes as BGR.
FLAGS = {
    1: cv2.IMREAD_COLOR_RGB,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


def size_of(data: bytes) -> tuple[int, int]:
    """Return height and width from the header of a JPEG file."""
    place = 2
    while True:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xC2:
            height = int.from_bytes(data[place + 5 : place + 7], "big")
            return height, int.from_bytes(data[place + 7 : place + 9], "big")
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")


def by_opencv(data: bytes, factor: int, height: int, width: int) -> Array:  # noqa: ARG001 - it reads them itself
    image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), FLAGS[factor])
    return image if factor == 1 else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def by_simplejpeg(data: bytes, factor: int, height: int, width: int) -> Array:
    import simplejpeg

    if factor == 1:
        return simplejpeg.decode_jpeg(data, "RGB")
    least = -(-height // factor), -(-width // factor)
    return simplejpeg.decode_jpeg(data, "RGB", min_height=least[0], min_width=least[1])


DECODERS: dict[str, Decoder] = {"opencv": by_opencv, "simplejpeg": by_simplejpeg}


def window(random: Random, height: int, width: int) -> tuple[int, int, int, int]:
    """Draw the window of RandomResizedCrop, as torchvision does: its top, its left, its height and its width."""
    for _ in range(10):
        target = height * width * random.uniform(*of.AREA)
        ratio = math.exp(random.uniform(math.log(of.RATIO[0]), math.log(of.RATIO[1])))
        across, down = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if across <= width and down <= height:
            top, left = random.integers(height - down + 1), random.integers(width - across + 1)
            return int(top), int(left), down, across
    down, across = min(height, round(width / of.RATIO[0])), min(width, round(height * of.RATIO[1]))
    return (height - down) // 2, (width - across) // 2, down, across


def factor_of(down: int, across: int) -> int:
    """Return by how much an image can be reduced before a window of it is resized."""
    shrinking = min(down, across) / of.SIZE / LEAST_SHRINKING
    return max(factor for factor in FLAGS if factor == 1 or factor <= shrinking)


class Files:
    """Files of a workload in memory as paths, with their labels."""

    def __init__(self, work: Workload, decoder: str = "opencv") -> None:
        cv2.setNumThreads(1)
        self.paths = files_of(Path(work.folder))
        self.label: Array = np.load(work.label)
        self.decode = DECODERS[decoder]

    def sample(self, row: int, random: Random) -> Any:
        """Return the sample of one file."""
        data = Path(self.paths[row]).read_bytes()
        height, width = size_of(data)
        top, left, down, across = window(random, height, width)
        factor = factor_of(down, across)
        image = self.decode(data, factor, height, width)
        part = image[
            top // factor : -(-(top + down) // factor),
            left // factor : -(-(left + across) // factor),
        ]
        resized = cv2.resize(part, WHOLE, interpolation=cv2.INTER_AREA)
        return normalize(cv2.flip(resized, 1) if random.random() < 0.5 else resized)

    def samples(self, rows: Array, random: Random) -> list[Array]:
        """Return the samples of several files."""
        return [self.sample(row, random) for row in rows.tolist()]
