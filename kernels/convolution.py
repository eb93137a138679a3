"""Convolution of a signal with an impulse response, by Fourier transforms."""

import math
from typing import Any

import numpy as np

from .compilation import jitable, kernel
from .fft import transform_lanes


@jitable
def norm_of(x: Any) -> Any:
    """Return the root of the sum of squares."""
    total = 0.0
    for t in range(x.shape[0]):
        total += np.float64(x[t]) * np.float64(x[t])
    return math.sqrt(total)


@kernel
def convolve(x: Any, response: Any, gain: Any, factors: Any, twiddles: Any, memory: Any) -> None:
    """Replace a channel by the beginning of its convolution with a response, times `gain`, in place.

    The rows of `memory` are as long as the transform, which is at least as long as both together less one.
    """
    size = memory.shape[1]
    loudness, strength = norm_of(x), norm_of(response)
    if loudness == 0.0 or strength == 0.0:
        for t in range(x.shape[0]):
            x[t] = np.float32(0)
        return
    # Scaled to the same size: both go through one transform, and the larger one determines the rounding of the other.
    shrink, weaken = np.float32(1.0 / loudness), np.float32(1.0 / strength)
    real, imag = memory[0], memory[1]
    reach = min(response.shape[0], x.shape[0])
    for t in range(size):
        real[t] = x[t] * shrink if t < x.shape[0] else np.float32(0)
        imag[t] = np.float32(response[t]) * weaken if t < reach else np.float32(0)
    first = 2 if transform_lanes(1, factors, twiddles, real, imag, memory[2], memory[3]) else 0
    real, imag = memory[first], memory[first + 1]
    product, other = memory[2 - first], memory[3 - first]
    quarter = np.float32(0.25)
    for k in range(size // 2 + 1):
        far = (size - k) % size
        # The spectra of x and of the response are the even and odd parts of the spectrum of both.
        a, b = real[k] + real[far], imag[k] - imag[far]
        c, d = imag[k] + imag[far], real[far] - real[k]
        u, v = quarter * (a * c - b * d), quarter * (a * d + b * c)
        product[k], other[k] = u, v
        product[far], other[far] = u, -v
    last = transform_lanes(1, factors, twiddles, other, product, imag, real)
    result = real if last else product
    scale = np.float32(gain * loudness * strength / size)
    for t in range(x.shape[0]):
        x[t] = result[t] * scale
