"""Mixing of the samples of one batch in pairs: MixUp and CutMix."""

from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .distributions import start_draws
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


@kernel
def mix_up(
    first: int, positions: Any, partners: Any, key: Any, alpha: float, samples: Any, out: Any
) -> None:
    """Write share * sample + (1 - share) * partner, shares from Beta(alpha, alpha); `first` is the place of out[0]."""
    for i in range(out.shape[0]):
        rng = start_draws(fold(key, positions[i]))
        share = np.float32(rng.beta(alpha, alpha))
        rest = np.float32(1) - share
        own, other = samples[first + i], samples[partners[i]]
        for k in range(out.shape[1]):
            out[i, k] = own[k] * share + other[k] * rest


@kernel
def cut_mix(
    first: int,
    positions: Any,
    partners: Any,
    key: Any,
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
        top, bottom, left, right = cut_box(rng, height, width, rng.beta(alpha, alpha))
        own, other = samples[first + i], samples[partners[i]]
        if pasted:
            for k in range(size):
                out[i, k] = own[k]
            for row in range(top, bottom):
                for k in range(row * pitch + left * pixel, row * pitch + right * pixel):
                    out[i, k] = other[k]
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
        begin, end = cut_stretch(rng, length, rng.beta(alpha, alpha))
        own, other = samples[first + i], samples[partners[i]]
        if pasted:
            for k in range(size):
                out[i, k] = own[k]
            for k in range(begin * moment, end * moment):
                out[i, k] = other[k]
        else:
            rest = np.float32((end - begin) / length)
            share = np.float32(1) - rest
            for k in range(size):
                out[i, k] = own[k] * share + other[k] * rest
