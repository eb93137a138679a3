"""Phase vocoder: time stretching of a signal at the same pitch."""

import math
from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .stft import FRAMES, LANES, load_frames, split_spectra, store_frames

# Two frames go through one transform: the rounding error that one leaves in the other, relative to the largest value
# times the length.
ROUNDING = 5e-7


@jitable
def analyse(
    x: Any, hop: Any, window: Any, factors: Any, twiddles: Any, memory: Any, bins: Any, spectra: Any
) -> None:
    """Compute the spectra of all frames around every `hop`-th moment: spectra[frame] is (real, imaginary) parts."""
    size, frames = window.shape[0], spectra.shape[0]
    for first in range(0, frames, FRAMES):
        count = min(frames - first, FRAMES)
        start = first * hop - size // 2
        pair = load_frames(x, start, hop, count, False, window, factors, twiddles, memory)
        for k in range(size // 2 + 1):
            split_spectra(memory[pair], memory[pair + 1], size, k, bins)
            for lane in range(count):
                row = 2 * (lane // LANES)
                spectra[first + lane, 0, k] = bins[row, lane % LANES]
                spectra[first + lane, 1, k] = bins[row + 1, lane % LANES]


@jitable
def _turn(before: Any, after: Any, least: Any, phases: Any) -> None:
    """Advance phases by the differences between those of two spectra.

    Phases are unit vectors: exp(i (b - a)) is b times the conjugate of a, each divided by its size, without an angle. A
    value below `least` is a rounding error, and has the phase 0 as silence has.
    """
    one, zero = np.float32(1), np.float32(0)
    for k in range(phases.shape[1]):
        a, a_imag, b, b_imag = before[0, k], before[1, k], after[0, k], after[1, k]
        size = np.sqrt(a * a + a_imag * a_imag)
        a, a_imag = (a / size, a_imag / size) if size > least else (one, zero)
        size = np.sqrt(b * b + b_imag * b_imag)
        b, b_imag = (b / size, b_imag / size) if size > least else (one, zero)
        c, s = b * a + b_imag * a_imag, b_imag * a - b * a_imag
        u, v = phases[0, k] * c - phases[1, k] * s, phases[0, k] * s + phases[1, k] * c
        # Rounding must not make it longer or shorter with every frame.
        size = np.sqrt(u * u + v * v)
        phases[0, k], phases[1, k] = u / size, v / size


@jitable
def _place_spectrum(
    before: Any, after: Any, share: Any, phases: Any, lane: int, size: int, memory: Any
) -> None:
    """Interpolate two spectra, and write the result with these phases as one of the two real frames of a lane."""
    rest = np.float32(1) - share
    real, imag, place = memory[0], memory[1], lane % LANES
    for k in range(size // 2 + 1):
        a, a_imag, b, b_imag = before[0, k], before[1, k], after[0, k], after[1, k]
        amount = rest * np.sqrt(a * a + a_imag * a_imag) + share * np.sqrt(b * b + b_imag * b_imag)
        u, v = amount * phases[0, k], amount * phases[1, k]
        near, far = k * LANES + place, (size - k) % size * LANES + place
        if lane < LANES:
            real[near], imag[near] = u, v
            real[far], imag[far] = u, -v
        else:
            # Plus i times the spectrum. If both places are one, the imaginary part is 0.
            real[near] -= v
            imag[near] += u
            if far != near:
                real[far] += v
                imag[far] += u


@kernel
def stretch(
    x: Any,
    rate: Any,
    hop: Any,
    window: Any,
    factors: Any,
    twiddles: Any,
    memory: Any,
    bins: Any,
    spectra: Any,
    phases: Any,
    squares: Any,
    out: Any,
) -> None:
    """Stretch one channel to `rate` times its speed at the same pitch, up to the length of `out`; zeros after its end.

    The algorithm is that of librosa.effects.time_stretch: frames around every `hop`-th moment, and silence after the
    last.
    """
    size = window.shape[0]
    count = x.shape[0] // hop + 1
    # Two frames of silence after the last.
    spectra = spectra[: count + 2]
    analyse(x, hop, window, factors, twiddles, memory, bins, spectra[:count])
    spectra[count:] = np.float32(0)
    peak = np.float32(0)
    for t in range(x.shape[0]):
        peak = max(peak, abs(x[t]))
    least = peak * np.float32(size * ROUNDING)
    for t in range(out.shape[0]):
        out[t] = np.float32(0)
        squares[t] = np.float32(0)
    for k in range(size // 2 + 1):
        a, b = spectra[0, 0, k], spectra[0, 1, k]
        length = np.sqrt(a * a + b * b)
        phases[0, k] = a / length if length > least else np.float32(1)
        phases[1, k] = b / length if length > least else np.float32(0)
    frames = min(math.ceil(count / rate), (out.shape[0] + size // 2 - 1) // hop + 1)
    for first in range(0, frames, FRAMES):
        there = min(frames - first, FRAMES)
        memory[0, :] = np.float32(0)
        memory[1, :] = np.float32(0)
        for lane in range(there):
            place = (first + lane) * rate
            low = min(int(place), count)
            before, after = spectra[low], spectra[low + 1]
            _place_spectrum(before, after, np.float32(place - low), phases, lane, size, memory)
            _turn(before, after, least, phases)
        start = first * hop - size // 2
        store_frames(there, start, hop, window, factors, twiddles, memory, out)
        for lane in range(there):
            begin = start + lane * hop
            for i in range(max(-begin, 0), min(size, out.shape[0] - begin)):
                squares[begin + i] += window[i] * window[i]
    for t in range(out.shape[0]):
        if squares[t] > np.float32(1.2e-38):
            out[t] /= squares[t]
