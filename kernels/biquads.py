"""Cascade of second-order recursive filters (biquads): Butterworth filters, designed and applied.

A section is (b0, b1, b2, a1, a2): y[t] = b0 x[t] + b1 x[t - 1] + b2 x[t - 2] - a1 y[t - 1] - a2 y[t - 2].
"""

import math
from typing import Any

import numpy as np

from .compilation import kernel

LOW_PASS, HIGH_PASS, BAND_PASS = 0, 1, 2


@kernel
def design_butterworth(kind: Any, order: Any, low: Any, high: Any, sections: Any) -> None:
    """Design a Butterworth filter by the bilinear transform, as `scipy.signal.butter`; edges are fractions of the rate.

    A low or a high pass has its edge at `low` and fills (order + 1) // 2 sections, a band pass fills `order` of them.
    """
    edge, upper = math.tan(math.pi * low), math.tan(math.pi * high)
    width, square = upper - edge, edge * upper
    for k in range((order + 1) // 2):
        angle = math.pi * (2 * k + 1) / (2 * order)
        single = 2 * k + 1 == order
        damping = math.sin(angle)
        if kind == BAND_PASS:
            # Each pole of the low pass becomes two. Those of a conjugate pair share sections with their conjugates.
            half = complex(-damping, 0.0 if single else math.cos(angle)) * (0.5 * width)
            root = np.sqrt(half * half - square)
            for which in range(1 if single else 2):
                if single:
                    linear, constant = width, square
                else:
                    pole = half + root if which == 0 else half - root
                    linear = -2.0 * pole.real
                    constant = pole.real * pole.real + pole.imag * pole.imag
                total = 1.0 + linear + constant
                section = sections[2 * k + which]
                section[0], section[1], section[2] = width / total, 0.0, -width / total
                section[3] = 2.0 * (constant - 1.0) / total
                section[4] = (1.0 - linear + constant) / total
        else:
            section = sections[k]
            gain = edge if kind == LOW_PASS else 1.0
            sign = 1.0 if kind == LOW_PASS else -1.0
            if single:
                total = 1.0 + edge
                section[0], section[1], section[2] = gain / total, sign * gain / total, 0.0
                section[3], section[4] = (edge - 1.0) / total, 0.0
            else:
                total = 1.0 + 2.0 * damping * edge + edge * edge
                gain = gain * gain / total
                section[0], section[1], section[2] = gain, 2.0 * sign * gain, gain
                section[3] = 2.0 * (edge * edge - 1.0) / total
                section[4] = (1.0 - 2.0 * damping * edge + edge * edge) / total


@kernel
def filter_twice(x: Any, first: Any, second: Any, out: Any) -> None:
    """Apply one section and then another to one channel; `out` may be x.

    Both run at once. Each waits for its own last value, so two take no longer than one.
    """
    b0, b1, b2, a1, a2 = first[0], first[1], first[2], first[3], first[4]
    c0, c1, c2, d1, d2 = second[0], second[1], second[2], second[3], second[4]
    # Transposed direct form: two sums hold all that a section needs of its past.
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    for t in range(x.shape[0]):
        value = np.float64(x[t])
        middle = b0 * value + one
        one = b1 * value - a1 * middle + two
        two = b2 * value - a2 * middle
        result = c0 * middle + three
        three = c1 * middle - d1 * result + four
        four = c2 * middle - d2 * result
        out[t] = np.float32(result)


@kernel
def filter_channels(x: Any, sections: Any, nothing: Any) -> None:
    """Apply all sections to each channel of (time, channels) in place; `nothing` is the identity section."""
    count = sections.shape[0]
    for c in range(x.shape[1]):
        channel = x[:, c]
        for k in range(0, count, 2):
            filter_twice(
                channel, sections[k], sections[k + 1] if k + 1 < count else nothing, channel
            )
