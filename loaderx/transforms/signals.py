"""Waveforms, sensor series and spectrograms: float32 samples of shape (time,) or (time, channels)."""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import next_bits
from loaderx.kernels.normals import fill_normals
from loaderx.kernels.pixels import saturate
from loaderx.kernels.vectors import squares_by_fours
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount, spread
from .base import Parameter, Transform, between, finite, is_integer
from .image import Identity
from .sample import SampleTransform
from .values import check_numbers


class SignalTransform(SampleTransform):
    """Op on the values of a signal; labels that follow it stay as they are.

    With its length in the same entry, `within` is called: `(x, [out,] length, rng, ...)`.
    """

    in_place = True
    takes_rng = True
    within: Callable[..., None] | None = None

    def __init__(self, **parameters: Parameter) -> None:
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        if len(spec.shape) not in (1, 2) or 0 in spec.shape or spec.dtype != np.float32:
            raise ArgumentError(
                f"{self.name} accepts float32 samples of shape (time,) or (time, channels), not {spec}; ToFloat makes "
                "float32 of integers and of other floats."
            )
        return spec

    def for_labels(self) -> Transform:
        return Identity()

    def for_length(self) -> Transform:
        if self.within is None:
            return self
        changed = copy.copy(self)
        changed.function, changed.takes_length = self.within, True
        return changed

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return self._parameters


class MovingSignal(SignalTransform):
    """Op that moves values in time; labels of moments, and any other field of the same length, move alike."""

    def output(self, spec: Spec) -> Spec:
        if len(spec.shape) not in (1, 2):
            raise ArgumentError(
                f"{self.name} accepts samples of shape (time,) or (time, channels), not {spec}."
            )
        check_numbers(spec, self.name)
        return spec

    def for_labels(self) -> Transform:
        return self


@jitable
def copy_values(source: Any, target: Any) -> None:
    """Copy all of `target` from the beginning of `source`."""
    for k in range(target.shape[0]):
        target[k] = source[k]


@jitable
def fill_values(target: Any, value: Any) -> None:
    """Fill with one value."""
    for k in range(target.shape[0]):
        target[k] = value


@jitable
def copy_stretch(x: Any, start: int, fill: float, out: Any) -> None:
    """Copy as many moments of x as `out` has, from `start`, which may lie outside, where `fill` is seen."""
    length, steps = x.shape[0], out.shape[0]
    source, target = x.reshape(-1), out.reshape(-1)
    channels = source.shape[0] // length
    before = min(max(-start, 0), steps)
    first = min(max(start, 0), length)
    count = max(min(start + steps, length) - first, 0)
    begin, end = before * channels, (before + count) * channels
    fill_values(target[:begin], saturate(fill, out))
    copy_values(source[first * channels : (first + count) * channels], target[begin:end])
    fill_values(target[end:], saturate(fill, out))


def gain(x: Any, rng: Any, decibels: Any) -> None:
    """Multiply by a drawn factor."""
    factor = np.float32(10.0 ** (draw_amount(rng, decibels) / 20.0))
    flat = x.reshape(-1)
    for k in range(flat.shape[0]):
        flat[k] *= factor


class Gain(SignalTransform):
    """Gain in `decibels`, a number, a range or a Choice: values times 10 ** (decibels / 20)."""

    function = staticmethod(gain)

    def __init__(self, decibels: Amount = (-6.0, 6.0), *, probability: float = 1.0) -> None:
        super().__init__(decibels=amounts("decibels", decibels, -700, 700))
        self.happens_with(probability)


def polarity(x: Any, rng: Any, probability: float) -> None:
    """Multiply by -1, or not."""
    if rng.random() < probability:
        flat = x.reshape(-1)
        for k in range(flat.shape[0]):
            flat[k] = -flat[k]


class Polarity(SignalTransform):
    """Polarity inversion: all values times -1, with `probability`."""

    function = staticmethod(polarity)

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))


@jitable
def time_shift(x: Any, out: Any, rng: Any, amount: Any, wrap: bool, fill: float) -> None:
    """Shift a signal by a fraction of its length."""
    length = x.shape[0]
    shift = round(draw_amount(rng, amount) * length)
    if wrap:
        source, target = x.reshape(-1), out.reshape(-1)
        size = source.shape[0]
        cut = (shift % length) * (size // length)
        copy_values(source, target[cut:])
        copy_values(source[size - cut :], target[:cut])
    else:
        copy_stretch(x, -shift, fill, out)


def time_shift_within(
    x: Any, out: Any, length: int, rng: Any, amount: Any, wrap: bool, fill: float
) -> None:
    """Shift the data by a fraction of its length; the padding stays."""
    copy_values(x.reshape(-1), out.reshape(-1))
    if length > 0:
        time_shift(x[:length], out[:length], rng, amount, wrap, fill)


class TimeShift(MovingSignal):
    """Time shift by `amount` of the length, earlier where it is negative, rounded to whole moments.

    A number is the range from its negative to it. With border="wrap", moments that leave at one end come in at the
    other. With border="fill" that end is `fill`.
    """

    function = staticmethod(time_shift)
    within = staticmethod(time_shift_within)
    in_place = False

    def __init__(
        self,
        amount: Amount,
        *,
        border: Literal["wrap", "fill"] = "wrap",
        fill: float = 0.0,
        probability: float = 1.0,
    ) -> None:
        if border not in ("wrap", "fill"):
            raise ArgumentError(f'`border` (={border!r}) must be "wrap" or "fill".')
        super().__init__(
            amount=spread("amount", amount, 1), wrap=border == "wrap", fill=finite("fill", fill)
        )
        self.happens_with(probability)


def random_crop(x: Any, out: Any, rng: Any, pad: int, fill: float) -> None:
    """Copy a random stretch of the padded signal."""
    start = rng.integers(-pad, x.shape[0] + pad - out.shape[0] + 1)
    copy_stretch(x, start, fill, out)


def crop_within(x: Any, out: Any, length: int, rng: Any, pad: int, fill: float) -> None:
    """Copy a random stretch of the data, and all of it where it is shorter."""
    start = rng.integers(0, max(length - out.shape[0], 0) + 1)
    copy_stretch(x, start, fill, out)


class RandomCrop1D(MovingSignal):
    """Random crop of `length` moments, from the signal with `pad` moments of `fill` at both ends."""

    function = staticmethod(random_crop)
    within = staticmethod(crop_within)
    in_place = False

    def __init__(self, length: int, pad: int = 0, *, fill: float = 0.0) -> None:
        if not is_integer(length, 1):
            raise ArgumentError(f"`length` (={length!r}) must be an integer of at least 1.")
        if not is_integer(pad, 0):
            raise ArgumentError(f"`pad` (={pad!r}) must be an integer of at least 0.")
        self._length, self._pad = int(length), int(pad)
        super().__init__(pad=self._pad, fill=finite("fill", fill))

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        if self._length > spec.shape[0] + 2 * self._pad:
            raise ArgumentError(
                f"{self.name}: `length` (={self._length}) must not exceed the signal with its padding, "
                f"{spec.shape[0] + 2 * self._pad}; the input is {spec}."
            )
        return Spec((self._length, *spec.shape[1:]), spec.dtype)

    def for_length(self) -> Transform:
        if self._pad:
            raise ArgumentError(
                f"{self.name}: `pad` (={self._pad}) must be 0 where a field says the length of samples, which begin "
                "with their data."
            )
        return super().for_length()


@jitable
def reverse(x: Any, out: Any, rng: Any, probability: float) -> None:
    """Copy a signal, reversed or not."""
    length = x.shape[0]
    source, target = x.reshape(-1), out.reshape(-1)
    if rng.random() >= probability:
        copy_values(source, target)
    elif source.shape[0] == length:
        # An index without sign: otherwise it is checked for each moment whether it is below 0, which takes six times
        # as long.
        for i in range(length):
            target[np.uint64(length - 1 - i)] = source[i]
    else:
        moments, reversed_moments = x.reshape(length, -1), out.reshape(length, -1)
        for i in range(length):
            for c in range(moments.shape[1]):
                reversed_moments[length - 1 - i, c] = moments[i, c]


def reverse_within(x: Any, out: Any, length: int, rng: Any, probability: float) -> None:
    """Copy a signal, its data reversed or not; the padding stays at the end."""
    data = x.size // x.shape[0] * length
    copy_values(x.reshape(-1)[data:], out.reshape(-1)[data:])
    if length > 0:
        reverse(x[:length], out[:length], rng, probability)


class Reverse(MovingSignal):
    """Reversal in time, the last moment first, with `probability`."""

    function = staticmethod(reverse)
    within = staticmethod(reverse_within)
    in_place = False

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))


@jitable
def power_of(flat: Any) -> Any:
    """Return the mean of the squares."""
    size = flat.shape[0]
    # Four sums: each addition to a single one would wait for the one before it.
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for k in range(size // 4):
        a, b = np.float64(flat[4 * k]), np.float64(flat[4 * k + 1])
        c, d = np.float64(flat[4 * k + 2]), np.float64(flat[4 * k + 3])
        first += a * a
        second += b * b
        third += c * c
        fourth += d * d
    for k in range(size - size % 4, size):
        first += np.float64(flat[k]) * np.float64(flat[k])
    return ((first + second) + (third + fourth)) / size


@jitable
def powers_of(x: Any, y: Any) -> Any:
    """Return `power_of` of two arrays of one size, in the time of one: each waits for its own additions."""
    size = x.shape[0]
    first, second, third, fourth, fifth, sixth, seventh, eighth = squares_by_fours(x, y, size // 4)
    for k in range(size - size % 4, size):
        first += np.float64(x[k]) * np.float64(x[k])
        fifth += np.float64(y[k]) * np.float64(y[k])
    return (
        ((first + second) + (third + fourth)) / size,
        ((fifth + sixth) + (seventh + eighth)) / size,
    )


@jitable
def noise_at_snr(x: Any, rng: Any, decibels: Any, noise: Any) -> None:
    """Add white noise, weaker than the signal by a drawn ratio."""
    ratio = 10.0 ** (draw_amount(rng, decibels) / 10.0)
    flat = x.reshape(-1)
    deviation = np.float32(math.sqrt(power_of(flat) / ratio))
    if deviation > 0:
        fill_normals(next_bits(rng), noise)
        for k in range(flat.shape[0]):
            flat[k] += deviation * noise[k]


def noise_within(x: Any, length: int, rng: Any, decibels: Any, noise: Any) -> None:
    """Add noise to the data, and none to the padding."""
    if length > 0:
        noise_at_snr(x[:length], rng, decibels, noise)


class NoiseAtSNR(SignalTransform):
    """White Gaussian noise: the signal has `decibels` more power than the noise is expected to have.

    The power of a signal is the mean of its squares over all channels. One that is 0 everywhere stays so.
    """

    function = staticmethod(noise_at_snr)
    within = staticmethod(noise_within)

    def __init__(self, decibels: Amount = (10.0, 30.0), *, probability: float = 1.0) -> None:
        super().__init__(decibels=amounts("decibels", decibels, -300, 300))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (Spec((spec.size,), np.float32),)


def time_mask(x: Any, rng: Any, width: int, masks: int, fill: float) -> None:
    """Fill stretches of time."""
    time_mask_within(x, x.shape[0], rng, width, masks, fill)


@jitable
def time_mask_within(x: Any, length: int, rng: Any, width: int, masks: int, fill: float) -> None:
    """Fill stretches of the data."""
    flat = x.reshape(-1)
    channels = flat.shape[0] // x.shape[0]
    for _ in range(masks):
        count = min(rng.integers(0, width + 1), length)
        start = rng.integers(0, length - count + 1)
        fill_values(flat[start * channels : (start + count) * channels], np.float32(fill))


def freq_mask(x: Any, rng: Any, width: int, masks: int, fill: float) -> None:
    """Fill bands of frequencies."""
    for _ in range(masks):
        count = rng.integers(0, width + 1)
        start = rng.integers(0, x.shape[1] - count + 1)
        for i in range(x.shape[0]):
            fill_values(x[i, start : start + count], np.float32(fill))


class _Mask(SignalTransform):
    axis: int

    def __init__(
        self, width: int, masks: int = 1, *, fill: float = 0.0, probability: float = 1.0
    ) -> None:
        if not is_integer(width, 0):
            raise ArgumentError(f"`width` (={width!r}) must be an integer of at least 0.")
        if not is_integer(masks, 1):
            raise ArgumentError(f"`masks` (={masks!r}) must be an integer of at least 1.")
        self._width = int(width)
        super().__init__(width=self._width, masks=int(masks), fill=finite("fill", fill))
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        if len(spec.shape) <= self.axis:
            raise ArgumentError(
                f"{self.name} accepts spectrograms of shape (time, frequency), not {spec}."
            )
        if self._width > spec.shape[self.axis]:
            raise ArgumentError(
                f"{self.name}: `width` (={self._width}) must not exceed axis {self.axis} of the input, which is {spec}."
            )
        return spec


class TimeMask(_Mask):
    """Time masking: `masks` stretches become `fill`, each of 0 to `width` moments (SpecAugment, Park et al., 2019)."""

    function = staticmethod(time_mask)
    within = staticmethod(time_mask_within)
    axis = 0


class FreqMask(_Mask):
    """Frequency masking: `masks` bands of a (time, frequency) sample become `fill`, each 0 to `width` wide."""

    function = staticmethod(freq_mask)
    axis = 1


def mu_law(x: Any, out: Any, top: int) -> None:
    """Write codes from 0 to `top`, finer near 0."""
    source, target = x.reshape(-1), out.reshape(-1)
    for k in range(source.shape[0]):
        target[k] = companded(source[k], top)


@jitable
def companded(value: Any, top: int) -> int:
    """Return the code of a value."""
    clipped = min(max(np.float64(value), -1.0), 1.0)
    size = math.log(1.0 + top * abs(clipped)) * (1.0 / math.log(1.0 + top))
    return int(((size if clipped > 0 else -size) + 1.0) * 0.5 * top + 0.5)


# Positive values whose float32 has the same upper bits have one code or two, if these are the exponent and seven more:
# they differ by less than 1 %, and the smallest step between 256 codes is 4 %.
SHARED_BITS, LARGEST = 16, 0x3F800000
# Values below 2 ** -14 have one code.
FIRST_CELL, LAST_CELL = (127 - 14) << 7, LARGEST >> SHARED_BITS
CELLS = LAST_CELL - FIRST_CELL + 1


@functools.cache
def mu_law_cells(top: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return the bits at which the second code of each cell begins, and both codes; negative values come last."""
    limits = np.full(2 * CELLS, LARGEST + 1, np.uint32)
    codes = np.empty(4 * CELLS, np.uint8)
    firsts = np.arange(FIRST_CELL, LAST_CELL + 1, dtype=np.uint32) << SHARED_BITS
    firsts[0] = 0
    for begin, sign in ((0, 1.0), (CELLS, -1.0)):

        def code_of(bits: Any, sign: float = sign) -> int:
            return companded(sign * float(np.uint32(bits).view(np.float32)), top)

        found = [companded(sign * value, top) for value in firsts.view(np.float32).tolist()]
        for k in range(CELLS):
            cell = begin + k
            code, after = found[k], found[min(k + 1, CELLS - 1)]
            codes[2 * cell], codes[2 * cell + 1] = code, after
            if code != after:
                low, high = int(firsts[k]), int(firsts[k + 1])
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if code_of(middle) == code else (low, middle)
                limits[cell] = high
    return limits, codes


def mu_law_by_cells(x: Any, out: Any, limits: Any, codes: Any) -> None:
    """Write codes of one byte, looked up."""
    source, target = x.reshape(-1).view(np.uint32), out.reshape(-1)
    for k in range(source.shape[0]):
        word = np.int64(source[k])
        bits: Any = min(word & 0x7FFFFFFF, LARGEST)
        cell = max((bits >> SHARED_BITS) - FIRST_CELL, 0) + (word >> 31) * CELLS
        target[k] = codes[2 * cell + (bits >= limits[cell])]


class MuLaw(SignalTransform):
    """Mu-law companding: values from -1 to 1 as codes from 0 to levels - 1, those outside as the nearest.

    The codes are torchaudio's MuLawEncoding: uint8 up to 256 `levels`, int32 beyond.
    """

    in_place = False
    takes_rng = False

    def __init__(self, levels: int = 256) -> None:
        if not is_integer(levels, 2) or levels > 65536:
            raise ArgumentError(f"`levels` (={levels!r}) must be an integer from 2 to 65536.")
        self._dtype = np.uint8 if levels <= 256 else np.int32
        top = int(levels) - 1
        if levels > 256:
            self.function = mu_law
            super().__init__(top=top)
        else:
            # The logarithm of every value took five times as long.
            self.function = mu_law_by_cells
            limits, codes = mu_law_cells(top)
            super().__init__(limits=limits, codes=codes)

    def output(self, spec: Spec) -> Spec:
        return Spec(super().output(spec).shape, self._dtype)
