"""Mixing of the samples of one batch in pairs: MixUp and CutMix."""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .distributions import start_draws
from .memory import copy_bytes
from .random import fold


@jitable
def cut_box(rng: Any, height: int, width: int, share: float) -> Any:
    """Return (top, bottom, left, right) of a box around a random pixel with `1 - share` of an image, clipped to it.

    As in the code of the paper (Yun et al., "CutMix", 2019), the box reaches half of its truncated side to both sides
    of its middle, so odd sides lose a pixel.
    """
    side = np.sqrt(1.0 - share)
    down, across = int(height * side) // 2, int(width * side) // 2
    row, column = rng.integers(0, height), rng.integers(0, width)
    top, bottom = max(row - down, 0), min(row + down, height)
    left, right = max(column - across, 0), min(column + across, width)
    return top, bottom, left, right


@jitable
def cut_stretch(rng: Any, length: int, share: float) -> Any:
    """Return (begin, end) of a stretch around a random moment with `1 - share` of a time series, clipped to it."""
    extent = int(length * (1.0 - share))
    middle = rng.integers(0, length)
    return max(middle - extent // 2, 0), min(middle + extent - extent // 2, length)


@jitable
def copy_part(source: Any, begin: int, end: int, out: Any) -> None:
    """Copy a part of the values of a sample to the same place, as bytes: loops over floats are slower."""
    if end > begin:
        size = out.itemsize
        copy_bytes(
            out.ctypes.data + begin * size, source.ctypes.data + begin * size, (end - begin) * size
        )


@jitable
def left_alone(rng: Any, probability: float, own: Any, out: Any) -> bool:
    """Draw whether a sample is not mixed; if so, copy it to `out`. Nothing is drawn for a probability of 1."""
    if probability >= 1.0 or rng.random() < probability:
        return False
    copy_part(own, 0, own.shape[0], out)
    return True


@kernel
def mix_up(
    first: int, positions: Any, partners: Any, key: Any, probability: float, alpha: float, samples: Any, out: Any
) -> None:  # fmt: skip
    """Write share * sample + (1 - share) * partner, shares from Beta(alpha, alpha); `first` is the place of out[0]."""
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        own, other = samples[first + i], samples[partners[i]]
        if left_alone(rng, probability, own, out[i]):
            continue
        share = np.float32(rng.beta(alpha, alpha))
        rest = np.float32(1) - share
        for k in range(out.shape[1]):
            out[i, k] = own[k] * share + other[k] * rest


@kernel
def cut_mix(
    first: int,
    positions: Any,
    partners: Any,
    key: Any,
    probability: float,
    alpha: float,
    height: int,
    width: int,
    pasted: bool,
    samples: Any,
    out: Any,
) -> None:
    """Paste a box of the partner into the sample if `pasted`; otherwise mix both by the areas that the box leaves."""
    size = out.shape[1]
    pitch = size // height
    pixel = pitch // width
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        own, other = samples[first + i], samples[partners[i]]
        if left_alone(rng, probability, own, out[i]):
            continue
        top, bottom, left, right = cut_box(rng, height, width, rng.beta(alpha, alpha))
        if pasted:
            copy_part(own, 0, size, out[i])
            for row in range(top, bottom):
                copy_part(other, row * pitch + left * pixel, row * pitch + right * pixel, out[i])
        else:
            rest = np.float32((bottom - top) * (right - left) / (height * width))
            share = np.float32(1) - rest
            for k in range(size):
                out[i, k] = own[k] * share + other[k] * rest


@kernel
def cut_mix_series(
    first: int,
    positions: Any,
    partners: Any,
    key: Any,
    probability: float,
    alpha: float,
    length: int,
    pasted: bool,
    samples: Any,
    out: Any,
) -> None:
    """Paste a stretch of the partner into the sample if `pasted`; otherwise mix both by the time that is left."""
    size = out.shape[1]
    moment = size // length
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        own, other = samples[first + i], samples[partners[i]]
        if left_alone(rng, probability, own, out[i]):
            continue
        begin, end = cut_stretch(rng, length, rng.beta(alpha, alpha))
        if pasted:
            copy_part(own, 0, size, out[i])
            copy_part(other, begin * moment, end * moment, out[i])
        else:
            rest = np.float32((end - begin) / length)
            share = np.float32(1) - rest
            for k in range(size):
                out[i, k] = own[k] * share + other[k] * rest
