"""Loudness of a signal: normalised by its peak or its loudness, or clipped."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.biquads import filter_twice
from loaderx.kernels.compilation import jitable
from loaderx.kernels.selection import DIGIT, sortable_keys, value_at_rank
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .audio_filters import positive_rate
from .signals import SignalTransform

# Of ITU-R BS.1770-4: blocks below these, in LUFS and in decibels below the mean of the others, count as silence.
SILENCE, QUIETER = -70.0, -10.0
LOWEST_RATE = 4000
# The bits of infinity.
INFINITE = np.int32(0x7F800000)


@jitable
def largest(flat: Any) -> Any:
    """Return the largest distance from 0, as the bits of a float32; NaN counts as 0.

    Without their sign the bits of floats are in the order of the floats, and of integers several are compared at once:
    4 us for 48000 values, against 22 us.
    """
    bits, most = flat.view(np.int32), np.int32(0)
    for k in range(bits.shape[0]):
        distance = np.int32(bits[k] & np.int32(0x7FFFFFFF))
        most = max(most, distance if distance <= INFINITE else np.int32(0))
    return most


@jitable
def peak_normalize(x: Any, rng: Any, decibels: Any) -> None:
    """Scale a signal so that its largest value is that of a drawn level."""
    flat = x.reshape(-1)
    wanted = 10.0 ** (draw_amount(rng, decibels) / 20.0)
    peak = largest(flat)
    # Not for silence, and not where the result would be infinite or NaN.
    if 0 < peak < INFINITE:
        factor = wanted / np.float64(np.int32(peak).view(np.float32))
        for k in range(flat.shape[0]):
            flat[k] = np.float32(flat[k] * factor)


def peak_normalize_within(x: Any, length: int, rng: Any, decibels: Any) -> None:
    """Scale the data alone."""
    if length > 0:
        peak_normalize(x[:length], rng, decibels)


class PeakNormalize(SignalTransform):
    """Peak normalisation: a factor after which the largest absolute value is at `decibels` above 1, over all channels.

    0 decibels make the largest 1, as audiomentations' Normalize. Silence stays as it is.
    """

    function = staticmethod(peak_normalize)
    within = staticmethod(peak_normalize_within)

    def __init__(self, decibels: Amount = 0.0, *, probability: float = 1.0) -> None:
        super().__init__(decibels=amounts("decibels", decibels, -300, 300))
        self.happens_with(probability)


@jitable
def power_of_blocks(x: Any, step: int, shelf: Any, rumble: Any, weighted: Any, blocks: Any) -> Any:
    """Compute mean squares of blocks of four steps, one from each step on, over all channels; return their number."""
    length, channels = x.shape
    # A signal that is shorter than a block is one block.
    short = length < 4 * step
    steps, size = (1, length) if short else (length // step, step)
    for k in range(steps):
        blocks[k] = 0.0
    for c in range(channels):
        filter_twice(x[:, c], shelf, rumble, weighted)
        for k in range(steps):
            total = 0.0
            for t in range(k * size, (k + 1) * size):
                total += np.float64(weighted[t]) * np.float64(weighted[t])
            blocks[k] += total
    if short:
        blocks[0] /= length
        return 1
    for k in range(steps - 3):
        blocks[k] = (blocks[k] + blocks[k + 1] + blocks[k + 2] + blocks[k + 3]) / (4 * step)
    return steps - 3


@jitable
def mean_above(blocks: Any, count: int, least: Any) -> Any:
    """Return the mean of the blocks above a threshold; 0 if there are none."""
    total, number = 0.0, 0
    for k in range(count):
        if blocks[k] > least:
            total += blocks[k]
            number += 1
    return total / number if number > 0 else 0.0


@jitable
def loudness_normalize(
    x: Any, rng: Any, loudness: Any, step: int, shelf: Any, rumble: Any, weighted: Any, blocks: Any
) -> None:
    """Scale a signal to a drawn loudness."""
    wanted = draw_amount(rng, loudness)
    signal = x.reshape(x.shape[0], -1)
    count = power_of_blocks(signal, step, shelf, rumble, weighted, blocks)
    silence = 10.0 ** ((SILENCE + 0.691) / 10.0)
    loud = mean_above(blocks, count, silence)
    power = mean_above(blocks, count, max(silence, loud * 10.0 ** (QUIETER / 10.0)))
    if 0.0 < power < np.inf:
        factor = math.sqrt(10.0 ** ((wanted + 0.691) / 10.0) / power)
        flat = x.reshape(-1)
        for k in range(flat.shape[0]):
            flat[k] = np.float32(flat[k] * factor)


def loudness_within(
    x: Any, length: int, rng: Any, loudness: Any, step: int, shelf: Any, rumble: Any, weighted: Any, blocks: Any
) -> None:  # fmt: skip
    """Scale the data alone."""
    if length > 0:
        loudness_normalize(
            x[:length], rng, loudness, step, shelf, rumble, weighted[:length], blocks
        )


def k_weighting(sample_rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the two sections of BS.1770's frequency weighting, a shelf and a high pass, at a sample rate.

    By the analogue parameters that Brecht De Man derived from the table of the standard, which is for 48 kHz
    ("Evaluation of implementations of the EBU R128 loudness measurement", 2018); there they give its coefficients.
    """
    tangent = math.tan(math.pi * 1681.9744509555319 / sample_rate)
    quality, high = 0.7071752369554193, 10 ** (3.99984385397 / 20)
    low = high**0.499666774155
    total = 1 + tangent / quality + tangent**2
    shelf = [
        (high + low * tangent / quality + tangent**2) / total,
        2 * (tangent**2 - high) / total,
        (high - low * tangent / quality + tangent**2) / total,
        2 * (tangent**2 - 1) / total,
        (1 - tangent / quality + tangent**2) / total,
    ]
    tangent, quality = math.tan(math.pi * 38.13547087613982 / sample_rate), 0.5003270373253953
    total = 1 + tangent / quality + tangent**2
    after = [2 * (tangent**2 - 1) / total, (1 - tangent / quality + tangent**2) / total]
    return np.array(shelf), np.array([1.0, -2.0, 1.0, *after])


class LoudnessNormalize(SignalTransform):
    """Loudness normalisation to `loudness`, the integrated loudness in LUFS of ITU-R BS.1770-4.

    It is the mean power after a frequency weighting, of blocks of 0.4 seconds, without silent blocks. All channels
    weigh the same, which holds for up to three. A signal shorter than 0.4 seconds is one block; silence stays as it
    is. Values may come out above 1.
    """

    function = staticmethod(loudness_normalize)
    within = staticmethod(loudness_within)

    def __init__(
        self, loudness: Amount = (-31.0, -13.0), *, sample_rate: float, probability: float = 1.0
    ) -> None:
        rate = positive_rate(sample_rate)
        if rate < LOWEST_RATE:
            raise ArgumentError(
                f"`sample_rate` (={sample_rate!r}) must be at least {LOWEST_RATE}: the weighting of BS.1770 reaches up "
                "to 1682 Hz."
            )
        self._step = max(round(rate / 10), 1)
        shelf, rumble = k_weighting(rate)
        super().__init__(
            loudness=amounts("loudness", loudness, -300, 100),
            step=self._step,
            shelf=shelf,
            rumble=rumble,
        )
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        steps = max(spec.shape[0] // self._step, 1)
        return Spec((spec.shape[0],), np.float32), Spec((steps,), np.float64)


@jitable
def quantile(keys: Any, share: Any, counts: Any, found: Any) -> Any:
    """Return the quantile of a share, linear between two values."""
    place = share * (keys.shape[0] - 1)
    low = int(place)
    value_at_rank(keys, low, counts, found)
    below = np.float64(found[0])
    if place == low:
        return below
    value_at_rank(keys, low + 1, counts, found)
    return below + (np.float64(found[0]) - below) * (place - low)


@jitable
def clip_extremes(x: Any, rng: Any, percent: Any, keys: Any, counts: Any, found: Any) -> None:
    """Clip values to the quantiles that leave half of a drawn share below and half above."""
    share = draw_amount(rng, percent) / 200.0
    if share > 0.0:
        flat = x.reshape(-1)
        own = keys[: flat.shape[0]]
        sortable_keys(flat, own)
        least = np.float32(quantile(own, share, counts, found))
        most = np.float32(quantile(own, 1.0 - share, counts, found))
        for k in range(flat.shape[0]):
            flat[k] = min(max(flat[k], least), most)


def clip_within(
    x: Any, length: int, rng: Any, percent: Any, keys: Any, counts: Any, found: Any
) -> None:
    """Clip the data alone."""
    if length > 0:
        clip_extremes(x[:length], rng, percent, keys, counts, found)


class ClippingDistortion(SignalTransform):
    """Clipping of the most extreme `percent` of all values, half of them at either end, to the nearest of the others.

    As audiomentations' ClippingDistortion: between np.percentile(x, percent / 2) and np.percentile(x, 100 - percent /
    2), over all channels.
    """

    function = staticmethod(clip_extremes)
    within = staticmethod(clip_within)

    def __init__(self, percent: Amount = (0.0, 40.0), *, probability: float = 1.0) -> None:
        super().__init__(percent=amounts("percent", percent, 0, 100))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (
            Spec((spec.size,), np.uint32),
            Spec((1 << DIGIT,), np.int64),
            Spec((1,), np.float32),
        )
