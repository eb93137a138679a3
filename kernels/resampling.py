"""Band-limited interpolation of a signal, by a sinc under a Kaiser window."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilation import jitable, kernel
from .vectors import dot_of_eights

# As scipy.signal.resample_poly: the number of zeros of the sinc on both sides, under a window of this shape.
ZEROS = 10
BETA = 5.0
# Values of the table between two zeros: with linear interpolation it is within 5e-6.
FINE = 512
# Places between two moments whose weights are kept: with linear interpolation, a result is within 2e-5.
PHASES = 256
# With more taps than these, weights are not kept.
MOST_TAPS = 512


def sinc_table() -> NDArray[np.float32]:
    """Return the windowed sinc from its middle to its end, and a zero after it."""
    distance = np.arange(ZEROS * FINE + 1) / FINE
    window = np.i0(BETA * np.sqrt(1 - (distance / ZEROS) ** 2)) / np.i0(BETA)
    return np.append(np.sinc(distance) * window, [0, 0]).astype(np.float32)


def taps_of(pace: float) -> int:
    """Return the number of moments in one result, if results are `pace` moments apart."""
    return 2 * math.ceil(ZEROS * max(pace, 1.0))


def weights_size(steps: int, pace: float) -> int:
    """Return the number of weights that are kept for `steps` results at up to this pace."""
    taps = taps_of(pace)
    return (PHASES + 1) * taps if steps >= 2 * PHASES and taps <= MOST_TAPS else 1


@jitable
def _sinc(table: Any, distance: Any) -> Any:
    place = abs(distance) * FINE
    low = min(int(place), ZEROS * FINE + 1)
    share = np.float32(place - low)
    return (
        table[low] + (table[low + 1] - table[low]) * share if low <= ZEROS * FINE else np.float32(0)
    )


@jitable
def _keep_weights(table: Any, scale: Any, reach: int, weights: Any) -> None:
    taps = 2 * reach
    for phase in range(PHASES + 1):
        row = weights[phase * taps : (phase + 1) * taps]
        total = np.float32(0)
        for t in range(taps):
            row[t] = _sinc(table, (phase / PHASES - (t - reach + 1)) * scale)
            total += row[t]
        for t in range(taps):
            row[t] /= total


@jitable
def _between(x: Any, first: int, c: int, low: Any, high: Any, share: Any) -> Any:
    """Return the mean of two weighted sums.

    Four sums are calculated at once, because each addition to a single one would wait for the one before it.
    """
    taps = low.shape[0]
    a, b, d, e = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for t in range(0, taps - 1, 2):
        value, other = x[first + t, c], x[first + t + 1, c]
        a += value * low[t]
        b += value * high[t]
        d += other * low[t + 1]
        e += other * high[t + 1]
    return (a + d) * (np.float32(1) - share) + (b + e) * share


@jitable
def _weighted(x: Any, first: int, weights: Any, begin: int, taps: int) -> Any:
    """Return the weighted sum of some moments of one channel."""
    eights = taps // 8
    total = dot_of_eights(x, first, weights, begin, eights)
    for t in range(8 * eights, taps):
        total += x[first + t] * weights[begin + t]
    return total


@kernel
def resample_sinc(
    x: Any, start: Any, pace: Any, fill: Any, table: Any, weights: Any, out: Any
) -> None:
    """Interpolate (time, channels) at start + (i + 0.5) * pace - 0.5, below half of the lower sample rate.

    Weights are normalised over the existing moments, so that a constant signal stays constant up to its ends. Results
    more than half a moment outside of x are `fill`. `weights` is memory of `weights_size`.
    """
    length, channels = x.shape
    flat = x.reshape(-1)
    scale = 1.0 / max(pace, 1.0)
    reach = math.ceil(ZEROS / scale)
    taps = 2 * reach
    kept = weights.shape[0] >= (PHASES + 1) * taps
    if kept:
        _keep_weights(table, scale, reach, weights)
    for i in range(out.shape[0]):
        place = start + (i + 0.5) * pace - 0.5
        if not -0.5 <= place <= length - 0.5:
            for c in range(channels):
                out[i, c] = np.float32(fill)
            continue
        low = math.floor(place)
        first, share = low - reach + 1, place - low
        if share == 0.0 and scale == 1.0:
            # At a moment exactly, the others have no share: infinity times 0 would be NaN.
            for c in range(channels):
                out[i, c] = x[low, c]
        elif kept and first >= 0 and first + taps <= length:
            phase = int(share * PHASES)
            rest = np.float32(share * PHASES - phase)
            if channels == 1:
                sooner = _weighted(flat, first, weights, phase * taps, taps)
                later = _weighted(flat, first, weights, (phase + 1) * taps, taps)
                out[i, 0] = sooner * (np.float32(1) - rest) + later * rest
                continue
            near = weights[phase * taps : (phase + 1) * taps]
            far = weights[(phase + 1) * taps : (phase + 2) * taps]
            for c in range(channels):
                out[i, c] = _between(x, first, c, near, far, rest)
        else:
            for c in range(channels):
                value, total = np.float32(0), np.float32(0)
                for t in range(max(first, 0), min(first + taps, length)):
                    weight = _sinc(table, (place - t) * scale)
                    value += weight * x[t, c]
                    total += weight
                out[i, c] = value / total
