"""Time stretching and pitch shifting of signals by a phase vocoder."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.fft import factors_of, twiddles_of
from loaderx.kernels.pixels import saturate
from loaderx.kernels.resampling import resample_sinc, sinc_table, weights_size
from loaderx.kernels.stft import LANES
from loaderx.kernels.vocoder import stretch
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter, Transform, finite, is_integer
from .signals import MovingSignal, SignalTransform


def hann(length: int) -> NDArray[np.float32]:
    """Return the periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)


class _Vocoded(SignalTransform):
    """Op with a phase vocoder of frames of `n_fft` moments."""

    def __init__(self, n_fft: int, hop: int | None, **parameters: Parameter) -> None:
        if not is_integer(n_fft, 4):
            raise ArgumentError(f"`n_fft` (={n_fft!r}) must be an integer of at least 4.")
        self._size, self._hop = int(n_fft), int(n_fft) // 4
        if hop is not None:
            if not is_integer(hop, 1) or hop > self._size // 2:
                raise ArgumentError(
                    f"`hop` (={hop!r}) must be an integer from 1 to half of `n_fft` (={n_fft})."
                )
            self._hop = int(hop)
        super().__init__(**parameters)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {
            **self._parameters,
            "hop": self._hop,
            "window": hann(self._size),
            "factors": factors_of(self._size),
            "twiddles": twiddles_of(self._size),
        }

    def _vocoder_spaces(self, spec: Spec, longest: int) -> tuple[Spec, ...]:
        bins = self._size // 2 + 1
        return (
            Spec((4, self._size * LANES), np.float32),
            Spec((4, LANES), np.float32),
            Spec((spec.shape[0] // self._hop + 3, 2, bins), np.float32),
            Spec((2, bins), np.float32),
            Spec((longest,), np.float32),
            Spec((longest,), np.float32),
        )


def time_stretch(
    x: Any, out: Any, rng: Any, rate: Any, fill: float, hop: int, window: Any, factors: Any, twiddles: Any,
    memory: Any, bins: Any, spectra: Any, phases: Any, squares: Any, stretched: Any,
) -> None:  # fmt: skip
    """Play a signal faster or slower by a drawn rate."""
    speed = draw_amount(rng, rate)
    length = x.shape[0]
    signal, target = x.reshape(length, -1), out.reshape(length, -1)
    steps = min(round(length / speed), length)
    for c in range(signal.shape[1]):
        if speed == 1.0:
            for t in range(length):
                target[t, c] = signal[t, c]
            continue
        own = stretched[:steps]
        stretch(
            signal[:, c], speed, hop, window, factors, twiddles, memory, bins, spectra, phases, squares, own
        )  # fmt: skip
        for t in range(steps):
            target[t, c] = own[t]
        for t in range(steps, length):
            target[t, c] = np.float32(fill)


def stretch_nearest(x: Any, out: Any, rng: Any, rate: Any, fill: float) -> None:
    """Copy the moment that is heard at each moment."""
    speed = draw_amount(rng, rate)
    length = x.shape[0]
    source, target = x.reshape(length, -1), out.reshape(length, -1)
    steps = min(round(length / speed), length)
    for t in range(length):
        place = min(int((t + 0.5) * speed), length - 1)
        for c in range(source.shape[1]):
            target[t, c] = source[place, c] if t < steps else saturate(fill, out)


class TimeStretch(_Vocoded):
    """Time stretch: `rate` times as fast at the same pitch; cut at the end, or padded with `fill`, to as many moments.

    A phase vocoder as in librosa.effects.time_stretch, with frames of `n_fft` moments, every `hop` of them, a
    quarter of `n_fft` if None. Integers that follow a signal have the value of the nearest moment.
    """

    function = staticmethod(time_stretch)
    in_place = False

    def __init__(
        self,
        rate: Amount = (0.8, 1.25),
        *,
        n_fft: int = 2048,
        hop: int | None = None,
        fill: float = 0.0,
        probability: float = 1.0,
    ) -> None:
        super().__init__(n_fft, hop, rate=amounts("rate", rate, 0.1, 10), fill=finite("fill", fill))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return self._vocoder_spaces(spec, spec.shape[0])

    def for_labels(self) -> Transform:
        return _StretchNearest(**self._parameters)

    def for_length(self) -> Transform:
        raise ArgumentError(
            f"{self.name} would change the lengths of samples by what it draws. Leave the length out of the entry, or "
            "cut samples before, so that all have the same length."
        )


class _StretchNearest(MovingSignal):
    function = staticmethod(stretch_nearest)
    in_place = False

    @property
    def name(self) -> str:
        return "TimeStretch"


@jitable
def pitch_shift(
    x: Any, rng: Any, semitones: Any, table: Any, hop: int, window: Any, factors: Any, twiddles: Any,
    memory: Any, bins: Any, spectra: Any, phases: Any, squares: Any, stretched: Any, weights: Any,
) -> None:  # fmt: skip
    """Stretch a signal, and then play it faster by as much."""
    factor = 2.0 ** (draw_amount(rng, semitones) / 12.0)
    if factor == 1.0:
        return
    length = x.shape[0]
    signal = x.reshape(length, -1)
    steps = max(min(round(length * factor), stretched.shape[0]), 1)
    for c in range(signal.shape[1]):
        own = stretched[:steps]
        stretch(
            signal[:, c], 1.0 / factor, hop, window, factors, twiddles, memory, bins, spectra, phases, squares, own
        )  # fmt: skip
        # Moment i is at i * factor.
        start = 0.5 - 0.5 * factor
        resample_sinc(
            own.reshape(steps, 1), start, factor, 0.0, table, weights, signal[:, c : c + 1]
        )


def pitch_shift_within(
    x: Any, length: int, rng: Any, semitones: Any, table: Any, hop: int, window: Any, factors: Any, twiddles: Any,
    memory: Any, bins: Any, spectra: Any, phases: Any, squares: Any, stretched: Any, weights: Any,
) -> None:  # fmt: skip
    """Shift the pitch of the data alone."""
    if length > 0:
        pitch_shift(
            x[:length], rng, semitones, table, hop, window, factors, twiddles, memory, bins, spectra, phases, squares,
            stretched, weights,
        )  # fmt: skip


class PitchShift(_Vocoded):
    """Pitch shift by `semitones`, twelfths of an octave, lower where they are negative, at the same tempo.

    As librosa.effects.pitch_shift: a phase vocoder as that of TimeStretch, then a band-limited resampling as that of
    Resample.
    """

    function = staticmethod(pitch_shift)
    within = staticmethod(pitch_shift_within)

    def __init__(
        self,
        semitones: Amount = (-4.0, 4.0),
        *,
        n_fft: int = 2048,
        hop: int | None = None,
        probability: float = 1.0,
    ) -> None:
        found = amounts("semitones", semitones, -36, 36)
        self._highest = 2 ** (float(np.max(found)) / 12)
        super().__init__(n_fft, hop, semitones=found, table=sinc_table())
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        longest = math.ceil(spec.shape[0] * self._highest) + 1
        weights = weights_size(spec.shape[0], self._highest)
        return *self._vocoder_spaces(spec, longest), Spec((weights,), np.float32)
