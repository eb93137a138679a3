"""Short-time Fourier transforms: frames of a signal to spectra, several frames at once, and back."""

from typing import Any

import numpy as np

from .compilation import jitable
from .fft import transform_lanes

# Transforms at once, each of two real frames: one as real parts, the other as imaginary parts.
LANES = 16
FRAMES = 2 * LANES


@jitable
def mirrored(place: int, length: int) -> int:
    """Return the moment of a signal for a place outside of it, mirrored at its first and last moment."""
    if length == 1:
        return 0
    period = 2 * (length - 1)
    place = place % period
    return min(place, period - place)


@jitable
def _load_frame(x: Any, start: int, reflect: bool, window: Any, lane: int, out: Any) -> None:
    length, size = x.shape[0], window.shape[0]
    begin = min(max(-start, 0), size)
    end = max(min(length - start, size), begin)
    for i in range(begin):
        value = x[mirrored(start + i, length)] if reflect else np.float32(0)
        out[i * LANES + lane] = window[i] * value
    for i in range(begin, end):
        out[i * LANES + lane] = window[i] * x[start + i]
    for i in range(end, size):
        value = x[mirrored(start + i, length)] if reflect else np.float32(0)
        out[i * LANES + lane] = window[i] * value


@jitable
def load_frames(
    x: Any,
    start: Any,
    hop: Any,
    count: Any,
    reflect: Any,
    window: Any,
    factors: Any,
    twiddles: Any,
    memory: Any,
) -> Any:
    """Compute spectra of up to FRAMES frames from `start` on; return the pair of rows of `memory` with them, 0 or 2.

    Outside of x there are zeros, or with `reflect` its mirror image. Frames beyond `count` are zeros.
    """
    for lane in range(FRAMES):
        target = memory[lane // LANES]
        if lane < count:
            _load_frame(x, start + lane * hop, reflect, window, lane % LANES, target)
        else:
            for i in range(window.shape[0]):
                target[i * LANES + lane % LANES] = np.float32(0)
    other = transform_lanes(LANES, factors, twiddles, memory[0], memory[1], memory[2], memory[3])
    return 2 if other else 0


@jitable
def split_spectra(real: Any, imag: Any, size: Any, k: Any, bins: Any) -> None:
    """Compute frequency k of all frames: `bins` is (real, imaginary) of the first LANES frames, then of the others."""
    near, far = k * LANES, (size - k) % size * LANES
    a, b = real[near : near + LANES], real[far : far + LANES]
    c, d = imag[near : near + LANES], imag[far : far + LANES]
    half = np.float32(0.5)
    for lane in range(LANES):
        bins[0, lane] = half * (a[lane] + b[lane])
        bins[1, lane] = half * (c[lane] - d[lane])
        bins[2, lane] = half * (c[lane] + d[lane])
        bins[3, lane] = half * (b[lane] - a[lane])


@jitable
def store_frames(
    count: Any,
    start: Any,
    hop: Any,
    window: Any,
    factors: Any,
    twiddles: Any,
    memory: Any,
    out: Any,
) -> None:
    """Transform spectra to frames, windowed and added to `out` at their beginnings: the inverse of `load_frames`.

    The first pair of rows of `memory` holds the spectra, of two frames at once.
    """
    size, length = window.shape[0], out.shape[0]
    # With real and imaginary parts exchanged, the transform is its inverse.
    other = transform_lanes(LANES, factors, twiddles, memory[1], memory[0], memory[3], memory[2])
    scale = np.float32(1.0 / size)
    for lane in range(count):
        first = start + lane * hop
        source = memory[lane // LANES + (2 if other else 0)]
        for i in range(max(-first, 0), min(size, length - first)):
            out[first + i] += scale * window[i] * source[i * LANES + lane % LANES]
