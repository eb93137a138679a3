"""Low-, high- and band-pass filters of signals, by drawn frequencies."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.biquads import (
    BAND_PASS,
    HIGH_PASS,
    LOW_PASS,
    design_butterworth,
    filter_channels,
)
from loaderx.kernels.compilation import jitable
from loaderx.spec import Spec

from .amounts import Amount, Amounts, amounts, draw_amount
from .base import as_number, is_integer
from .signals import SignalTransform

STEEPEST = 12
UNCHANGED = np.array([1.0, 0.0, 0.0, 0.0, 0.0])


def positive_rate(sample_rate: Any) -> float:
    """Return a sample rate, or refuse one that is not above 0."""
    rate = as_number(sample_rate)
    if not 0 < rate < float("inf"):
        raise ArgumentError(f"`sample_rate` (={sample_rate!r}) must be a finite number above 0.")
    return rate


@jitable
def pass_filter(
    x: Any, rng: Any, kind: int, order: int, cutoff: Any, width: Any, rate: float, nothing: Any, sections: Any
) -> None:  # fmt: skip
    """Remove what is below or above a drawn frequency, or outside of a band."""
    low = draw_amount(rng, cutoff) / rate
    high = low
    if kind == BAND_PASS:
        half = 0.5 * low * draw_amount(rng, width)
        low, high = low - half, low + half
    design_butterworth(kind, order, low, high, sections)
    filter_channels(x.reshape(x.shape[0], -1), sections, nothing)


def pass_filter_within(
    x: Any, length: int, rng: Any, kind: int, order: int, cutoff: Any, width: Any, rate: float, nothing: Any,
    sections: Any,
) -> None:  # fmt: skip
    """Filter the data; the padding stays."""
    if length > 0:
        pass_filter(x[:length], rng, kind, order, cutoff, width, rate, nothing, sections)


class _Pass(SignalTransform):
    """Butterworth filter of a drawn frequency, causal and from silence."""

    function = staticmethod(pass_filter)
    within = staticmethod(pass_filter_within)
    kind: int

    def __init__(self, frequency: Amounts, width: Amounts, sample_rate: float, order: int) -> None:
        if not is_integer(order, 1) or order > STEEPEST:
            raise ArgumentError(f"`order` (={order!r}) must be an integer from 1 to {STEEPEST}.")
        self._order = int(order)
        super().__init__(
            kind=self.kind,
            order=self._order,
            cutoff=frequency,
            width=width,
            rate=sample_rate,
            nothing=UNCHANGED,
        )

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        count = self._order if self.kind == BAND_PASS else (self._order + 1) // 2
        return (Spec((count, 5), np.float64),)


def _frequencies(name: str, value: Amount, sample_rate: float) -> Amounts:
    found = amounts(name, value, 0.0)
    if not 0 < np.min(found) <= np.max(found) < sample_rate / 2:
        raise ArgumentError(
            f"`{name}` (={value!r}) must be above 0 and below half of `sample_rate` (={sample_rate:g})."
        )
    return found


class _Cutoff(_Pass):
    def __init__(self, cutoff: Amount, sample_rate: float, order: int) -> None:
        rate = positive_rate(sample_rate)
        super().__init__(_frequencies("cutoff", cutoff, rate), np.ones(1), rate, order)


class LowPass(_Cutoff):
    """Low-pass filter (Butterworth): weaker above `cutoff`, in Hz, by 6 decibels per octave times `order`.

    It is `scipy.signal.butter` and `sosfilt`: causal, from silence, 3 decibels less at the cutoff. 2 is the order of
    torchaudio's lowpass_biquad.
    """

    kind = LOW_PASS

    def __init__(
        self,
        cutoff: Amount = (150.0, 7500.0),
        *,
        sample_rate: float,
        order: int = 2,
        probability: float = 1.0,
    ) -> None:
        super().__init__(cutoff, sample_rate, order)
        self.happens_with(probability)


class HighPass(_Cutoff):
    """High-pass filter (Butterworth): weaker below `cutoff`, in Hz, by 6 decibels per octave times `order`."""

    kind = HIGH_PASS

    def __init__(
        self,
        cutoff: Amount = (20.0, 2400.0),
        *,
        sample_rate: float,
        order: int = 2,
        probability: float = 1.0,
    ) -> None:
        super().__init__(cutoff, sample_rate, order)
        self.happens_with(probability)


class BandPass(_Pass):
    """Band-pass filter: frequencies outside of a band of `bandwidth` times its `center`, in Hz, weaker, as LowPass.

    The band reaches from center * (1 - bandwidth / 2) to center * (1 + bandwidth / 2), as in audiomentations. `order`
    is that of each of its two sides, as in `scipy.signal.butter`.
    """

    kind = BAND_PASS

    def __init__(
        self,
        center: Amount = (200.0, 4000.0),
        bandwidth: Amount = (0.5, 1.5),
        *,
        sample_rate: float,
        order: int = 2,
        probability: float = 1.0,
    ) -> None:
        rate = positive_rate(sample_rate)
        frequencies = _frequencies("center", center, rate)
        widths = amounts("bandwidth", bandwidth, 0.0, 2.0)
        if not 0 < np.min(widths) <= np.max(widths) < 2:
            raise ArgumentError(f"`bandwidth` (={bandwidth!r}) must be above 0 and below 2.")
        top = float(np.max(frequencies) * (1 + np.max(widths) / 2))
        if top >= rate / 2:
            raise ArgumentError(
                f"The band of `center` (={center!r}) and `bandwidth` (={bandwidth!r}) reaches up to {top:g}, and must "
                f"end below half of `sample_rate` (={rate:g})."
            )
        super().__init__(frequencies, widths, rate, order)
        self.happens_with(probability)
