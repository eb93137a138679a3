"""Resampling of signals to another length, band-limited or linear."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.pixels import saturate
from loaderx.kernels.resampling import resample_sinc, sinc_table, weights_size
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter, Transform, finite, is_integer
from .signals import MovingSignal, SignalTransform


@jitable
def draw_stretch(rng: Any, length: int, steps: int, speed: Any) -> Any:
    """Return (start, pace): output moment i shows the input from start + i * pace to start + (i + 1) * pace."""
    extent = length * draw_amount(rng, speed)
    spare = length - extent
    return rng.uniform(min(spare, 0.0), max(spare, 0.0)), extent / steps


def resample_linear(x: Any, out: Any, rng: Any, speed: Any, fill: float) -> None:
    """Interpolate between the two moments nearest to a place."""
    length, steps = x.shape[0], out.shape[0]
    source, target = x.reshape(length, -1), out.reshape(steps, -1)
    start, pace = draw_stretch(rng, length, steps, speed)
    for i in range(steps):
        place = start + (i + 0.5) * pace - 0.5
        if -0.5 <= place <= length - 0.5:
            place = min(max(place, 0.0), length - 1.0)
            low = int(place)
            share = np.float32(place - low)
            rest = np.float32(1) - share
            # Exactly on a moment, its neighbour is left out: infinity times 0 would be NaN.
            if share == 0:
                for c in range(source.shape[1]):
                    target[i, c] = source[low, c]
            else:
                high = min(low + 1, length - 1)
                for c in range(source.shape[1]):
                    target[i, c] = source[low, c] * rest + source[high, c] * share
        else:
            for c in range(source.shape[1]):
                target[i, c] = np.float32(fill)


def resample_nearest(x: Any, out: Any, rng: Any, speed: Any, fill: float) -> None:
    """Copy the moment that contains a place."""
    length, steps = x.shape[0], out.shape[0]
    source, target = x.reshape(length, -1), out.reshape(steps, -1)
    start, pace = draw_stretch(rng, length, steps, speed)
    for i in range(steps):
        place = start + (i + 0.5) * pace
        nearest = min(max(int(place), 0), length - 1)
        for c in range(source.shape[1]):
            if 0.0 <= place <= length:
                target[i, c] = source[nearest, c]
            else:
                target[i, c] = saturate(fill, out)


def resample(x: Any, out: Any, rng: Any, speed: Any, fill: float, table: Any, weights: Any) -> None:
    """Resample a drawn stretch, without frequencies above half of the lower sample rate."""
    length, steps = x.shape[0], out.shape[0]
    start, pace = draw_stretch(rng, length, steps, speed)
    resample_sinc(x.reshape(length, -1), start, pace, fill, table, weights, out.reshape(steps, -1))


class Resample(SignalTransform):
    """Resampling to `length` moments, at `speed`, by band-limited interpolation, or linear if not `antialias`.

    Band-limited is a sinc under a Kaiser window, that of `scipy.signal.resample_poly`: frequencies that a lower sample
    rate cannot hold are left out, and do not alias. Linear is
    `torch.nn.functional.interpolate(mode="linear", align_corners=False)`: without smoothing before. The place of a
    moment is its middle, so at a speed of 1 the ends of both signals are the same. Slower than 1, a random stretch of
    the signal is all that fits; faster, the whole signal is at a random place in `fill`. Integers that follow a
    signal have the value of the nearest moment.
    """

    in_place = False

    def __init__(
        self, length: int, *, speed: Amount = 1.0, fill: float = 0.0, antialias: bool = True
    ) -> None:
        if not is_integer(length, 1):
            raise ArgumentError(f"`length` (={length!r}) must be an integer of at least 1.")
        if not isinstance(antialias, bool | np.bool_):
            raise ArgumentError(f"`antialias` (={antialias!r}) must be True or False.")
        self._length, self._antialias = int(length), bool(antialias)
        speeds = amounts("speed", speed, 0)
        if np.min(speeds) == 0:
            raise ArgumentError(f"`speed` (={speed!r}) must be above 0.")
        self._fastest = float(np.max(speeds))
        super().__init__(speed=speeds, fill=finite("fill", fill))

    @property
    def function(self) -> Any:  # type: ignore[override]
        return resample if self._antialias else resample_linear

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        table = {"table": sinc_table()} if self._antialias else {}
        return {**self._parameters, **table}

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        if not self._antialias:
            return ()
        pace = spec.shape[0] * self._fastest / self._length
        return (Spec((weights_size(self._length, pace),), np.float32),)

    def output(self, spec: Spec) -> Spec:
        return Spec((self._length, *super().output(spec).shape[1:]), spec.dtype)

    def for_labels(self) -> Transform:
        return _ResampleNearest(self._length, self._parameters)

    def for_length(self) -> Transform:
        raise ArgumentError(
            f"{self.name} would stretch the padding with the data. Leave the length out of the entry, or cut samples "
            "before, so that all have the same length."
        )


class _ResampleNearest(MovingSignal):
    function = staticmethod(resample_nearest)
    in_place = False

    def __init__(self, length: int, parameters: dict[str, Parameter]) -> None:
        self._length = length
        super().__init__(**parameters)

    @property
    def name(self) -> str:
        return "Resample"

    def output(self, spec: Spec) -> Spec:
        return Spec((self._length, *super().output(spec).shape[1:]), spec.dtype)
