"""Spectrograms: log-mel spectrograms of waveforms, and the time warp of SpecAugment."""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.fft import factors_of, twiddles_of
from loaderx.kernels.mel import mel_power
from loaderx.kernels.stft import FRAMES, LANES
from loaderx.spec import Spec

from .audio_filters import positive_rate
from .base import Parameter, Transform, as_number, between, is_integer
from .signals import MovingSignal, SignalTransform, copy_values
from .stretching import hann

# Slaney's scale: linear up to 1000 Hz, which is 15 mel, then 27 mel for each factor of 6.4.
LINEAR, KNEE = 200.0 / 3, 1000.0
STEP = math.log(6.4) / 27


def mel_of(hertz: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Return frequencies on the mel scale."""
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + hertz / 700.0)
    curved = KNEE / LINEAR + np.log(np.maximum(hertz, KNEE) / KNEE) / STEP
    return np.where(hertz < KNEE, hertz / LINEAR, curved)


def hertz_of(mels: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Return frequencies of the mel scale in Hz."""
    if scale == "htk":
        return 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    knee = KNEE / LINEAR
    return np.where(
        mels < knee, mels * LINEAR, KNEE * np.exp(STEP * (np.maximum(mels, knee) - knee))
    )


def mel_filters(
    sample_rate: float, n_fft: int, n_mels: int, f_min: float, f_max: float, scale: str, norm: str | None
) -> NDArray[np.float64]:  # fmt: skip
    """Return the triangles of the bands as (bands, frequencies), as librosa.filters.mel."""
    ends = mel_of(np.array([f_min, f_max]), scale)
    edges = hertz_of(np.linspace(ends[0], ends[1], n_mels + 2), scale)
    bins = np.arange(n_fft // 2 + 1) * sample_rate / n_fft
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    filters = np.maximum(0.0, np.minimum(rising, falling))
    if norm == "slaney":
        filters *= 2.0 / (edges[2:] - edges[:-2])[:, None]
    return filters


@jitable
def log_mel(
    x: Any, out: Any, hop: int, before: int, squared: bool, window: Any, factors: Any, twiddles: Any, firsts: Any,
    ends: Any, weights: Any, factor: float, floor: float, top: float, memory: Any, bins: Any, powers: Any, sums: Any,
) -> None:  # fmt: skip
    """Compute the power of bands, on a logarithmic scale."""
    mel_power(
        x.reshape(-1), hop, before, squared, window, factors, twiddles, firsts, ends, weights, memory, bins, powers,
        sums, out,
    )  # fmt: skip
    if factor == 0.0:
        return
    flat = out.reshape(-1)
    times, least = np.float32(factor), np.float32(floor)
    highest = np.float32(-np.inf)
    for k in range(flat.shape[0]):
        value = times * np.log(max(flat[k], least))
        flat[k] = value
        highest = max(highest, value)
    if top > 0.0:
        lowest = highest - np.float32(top)
        for k in range(flat.shape[0]):
            flat[k] = max(flat[k], lowest)


LOGARITHMS = {"decibels": 10 / math.log(10), "natural": 1.0, "log10": 1 / math.log(10), None: 0.0}


class LogMel(SignalTransform):
    """Log-mel spectrogram of a waveform: (time,) becomes (frames, n_mels), which TimeMask and FreqMask accept.

    Frames of `n_fft` moments, every `hop` of them, under a Hann window of `window` moments, `n_fft` if None. With
    `center` frame i is around moment i * hop, and the signal is mirrored at its ends; otherwise it begins there.
    `power` is 2 for power and 1 for magnitude. `mel_scale` is "slaney" or "htk", and `norm` "slaney" for bands of the
    same area or None for bands of the same height. `log` is "decibels", "natural", "log10" or None, of values of at
    least `floor`; values more than `top` below the largest, on that scale, are raised to there. These are the
    definitions of librosa and torchaudio.
    """

    function = staticmethod(log_mel)
    in_place = False
    takes_rng = False

    def __init__(
        self,
        *,
        sample_rate: float,
        n_fft: int = 400,
        hop: int = 160,
        n_mels: int = 80,
        window: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        power: int = 2,
        mel_scale: Literal["slaney", "htk"] = "slaney",
        norm: Literal["slaney"] | None = "slaney",
        log: Literal["decibels", "natural", "log10"] | None = "decibels",
        floor: float = 1e-10,
        top: float | None = None,
        center: bool = True,
    ) -> None:
        rate = positive_rate(sample_rate)
        for name, value, least in (("n_fft", n_fft, 2), ("hop", hop, 1), ("n_mels", n_mels, 1)):
            if not is_integer(value, least):
                raise ArgumentError(
                    f"`{name}` (={value!r}) must be an integer of at least {least}."
                )
        width = n_fft if window is None else window
        if not is_integer(width, 1) or width > n_fft:
            raise ArgumentError(
                f"`window` (={window!r}) must be an integer from 1 to `n_fft` (={n_fft}), or None."
            )
        lowest = between("f_min", f_min, 0, rate / 2)
        highest = rate / 2 if f_max is None else between("f_max", f_max, 0, rate / 2)
        if lowest >= highest:
            raise ArgumentError(f"`f_min` (={f_min!r}) must be below `f_max` (={highest:g}).")
        if power not in (1, 2):
            raise ArgumentError(f"`power` (={power!r}) must be 1 or 2.")
        if mel_scale not in ("slaney", "htk"):
            raise ArgumentError(f'`mel_scale` (={mel_scale!r}) must be "slaney" or "htk".')
        if norm not in ("slaney", None):
            raise ArgumentError(f'`norm` (={norm!r}) must be "slaney" or None.')
        if log not in LOGARITHMS:
            raise ArgumentError(f'`log` (={log!r}) must be "decibels", "natural", "log10" or None.')
        if not 0 < as_number(floor) < math.inf:
            raise ArgumentError(f"`floor` (={floor!r}) must be a finite number above 0.")
        if top is not None and not 0 < as_number(top) < math.inf:
            raise ArgumentError(f"`top` (={top!r}) must be a finite number above 0, or None.")
        if not isinstance(center, bool | np.bool_):
            raise ArgumentError(f"`center` (={center!r}) must be True or False.")
        self._size, self._hop, self._bands, self._center = int(n_fft), int(hop), int(n_mels), center
        filters = mel_filters(rate, self._size, self._bands, lowest, highest, mel_scale, norm)
        inside = filters > 0
        firsts = np.where(inside.any(axis=1), inside.argmax(axis=1), 0)
        counts = inside.sum(axis=1)
        before = (self._size - int(width)) // 2
        padded = np.zeros(self._size, np.float32)
        padded[before : before + int(width)] = hann(int(width))
        super().__init__(
            hop=self._hop,
            before=self._size // 2 if center else 0,
            squared=power == 2,
            window=padded,
            factors=factors_of(self._size),
            twiddles=twiddles_of(self._size),
            firsts=firsts.astype(np.int64),
            ends=(firsts + counts).astype(np.int64),
            weights=np.append(filters[inside], 0.0).astype(np.float32),
            # Decibels of magnitudes are twice those of powers.
            factor=LOGARITHMS[log] * (2.0 if log == "decibels" and power == 1 else 1.0),
            floor=float(floor),
            top=0.0 if top is None else float(top),
        )

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        moments = spec.shape[0]
        if spec.size != moments:
            raise ArgumentError(
                f"{self.name} accepts waveforms of one channel, (time,), not {spec}."
            )
        least = self._size // 2 + 1 if self._center else self._size
        if moments < least:
            raise ArgumentError(
                f"{self.name} with `n_fft` (={self._size}) accepts at least {least} moments, and the input is {spec}."
            )
        frames = 1 + (moments if self._center else moments - self._size) // self._hop
        return Spec((frames, self._bands), np.float32)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (
            Spec((4, self._size * LANES), np.float32),
            Spec((4, LANES), np.float32),
            Spec((self._size // 2 + 1, FRAMES), np.float32),
            Spec((FRAMES,), np.float32),
        )

    def for_length(self) -> Transform:
        raise ArgumentError(
            f"{self.name} makes frames of moments, and the length would still count moments. Leave the length out of "
            f"the entry: a sample of `length` moments has 1 + length // {self._hop} frames."
        )


@jitable
def draw_warp(rng: Any, length: int, width: int) -> Any:
    """Return (center, place): the pinned time, and where it goes; (0, 0) where there is no room for it."""
    if width == 0 or length <= 2 * width:
        return 0, 0
    center = rng.integers(width, length - width)
    return center, rng.integers(center - width + 1, center + width + 1)


@jitable
def scale_part(x: Any, out: Any) -> None:
    """Scale rows of x to as many rows as `out` has, linear between the middles of two."""
    length, steps = x.shape[0], out.shape[0]
    last = length - 1
    for i in range(steps):
        place = min(max((i + 0.5) * length / steps - 0.5, 0.0), last)
        low = int(place)
        share = np.float32(place - low)
        near, far, target = x[low], x[min(low + 1, last)], out[i]
        if share == 0:
            copy_values(near, target)
        else:
            rest = np.float32(1) - share
            for c in range(target.shape[0]):
                target[c] = near[c] * rest + far[c] * share


@jitable
def scale_part_nearest(x: Any, out: Any) -> None:
    """Scale rows of x to as many rows as `out` has, each the row that contains its place."""
    length, steps = x.shape[0], out.shape[0]
    for i in range(steps):
        copy_values(x[min(int((i + 0.5) * length / steps), length - 1)], out[i])


@jitable
def time_warp_within(x: Any, out: Any, length: int, rng: Any, width: int, nearest: bool) -> None:
    """Warp the data; the padding stays."""
    moments = x.shape[0]
    source, target = x.reshape(moments, -1), out.reshape(moments, -1)
    center, place = draw_warp(rng, length, width)
    copy_values(x.reshape(-1), out.reshape(-1))
    if center != place:
        if nearest:
            scale_part_nearest(source[:center], target[:place])
            scale_part_nearest(source[center:length], target[place:length])
        else:
            scale_part(source[:center], target[:place])
            scale_part(source[center:length], target[place:length])


def time_warp(x: Any, out: Any, rng: Any, width: int, nearest: bool) -> None:
    """Move one moment, and scale the parts before and after it."""
    time_warp_within(x, out, x.shape[0], rng, width, nearest)


class TimeWarp(SignalTransform):
    """Time warp: a random moment moved by up to `width` moments, and both sides of it scaled (SpecAugment).

    Linear in time on both sides, as in ESPnet. The moment is at least `width` away from both ends; a sample of at
    most 2 * width moments stays as it is. Integers that follow a signal have the value of the nearest moment.
    """

    function = staticmethod(time_warp)
    within = staticmethod(time_warp_within)
    in_place = False

    def __init__(self, width: int = 80, *, probability: float = 1.0) -> None:
        if not is_integer(width, 0):
            raise ArgumentError(f"`width` (={width!r}) must be an integer of at least 0.")
        super().__init__(width=int(width), nearest=False)
        self.happens_with(probability)

    def for_labels(self) -> Transform:
        parameters: dict[str, Parameter] = {**self._parameters, "nearest": True}
        return _WarpNearest(**parameters)


class _WarpNearest(MovingSignal):
    function = staticmethod(time_warp)
    within = staticmethod(time_warp_within)
    in_place = False

    @property
    def name(self) -> str:
        return "TimeWarp"
