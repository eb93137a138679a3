"""Recordings for augmentation: background noise and impulse responses, rows of a second array or file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.convolution import convolve, norm_of
from loaderx.kernels.fft import factors_of, fast_length, twiddles_of
from loaderx.spec import Spec

from .amounts import Amount, amounts, draw_amount
from .base import Parameter
from .signals import SignalTransform, power_of, powers_of

DTYPES = ("float32", "float64", "int16")


class _Recorded(SignalTransform):
    """Op with recordings of shape (rows, time) or (rows, time, channels); compiled code reads them in place.

    Recordings are held as given: a mapped file stays mapped, and a source is pickled by its path.
    """

    argument: str

    def __init__(self, recordings: Any, **parameters: Parameter) -> None:
        self._recordings = recordings
        name, array = self.argument, self._array()
        if array is None or array.ndim not in (2, 3) or array.size == 0:
            kind = type(recordings).__name__
            what = kind if array is None else f"{kind} {array.dtype}{list(array.shape)}"
            raise ArgumentError(
                f"`{name}` must be an array of shape (rows, time) or (rows, time, channels), or an NPDataset of one "
                f"array or file with such rows; got {what}."
            )
        if str(array.dtype) not in DTYPES:
            raise ArgumentError(
                f"`{name}` must be an array of {', '.join(DTYPES)}, not {array.dtype}{list(array.shape)}."
            )
        if not array.flags.c_contiguous:
            raise ArgumentError(
                f"`{name}` must be a C-contiguous array, not {array.dtype}{list(array.shape)}, which is strided. "
                f"Copy it: np.ascontiguousarray({name})."
            )
        super().__init__(**parameters)

    def _array(self) -> NDArray[Any] | None:
        given = self._recordings
        found = given if isinstance(given, np.ndarray) else getattr(given, "array", None)
        return np.asarray(found) if isinstance(found, np.ndarray) else None

    def rows(self) -> NDArray[Any]:
        """Return the recordings as (rows, time, channels), read-only: one layout for arrays and mapped files."""
        array = self._array()
        assert array is not None
        rows = array.reshape(*array.shape[:2], -1)
        rows.flags.writeable = False
        return rows

    def output(self, spec: Spec) -> Spec:
        super().output(spec)
        channels = spec.shape[1] if len(spec.shape) == 2 else 1
        own = self.rows().shape[2]
        if own not in (1, channels):
            raise ArgumentError(
                f"{self.name}: `{self.argument}` have {own} channels; they must have one, or as many as the signal "
                f"{spec}."
            )
        return spec


@jitable
def copy_around(row: Any, start: int, out: Any) -> None:
    """Copy values from moment `start` on, and from the beginning again after the last."""
    values, size = row.reshape(-1), out.shape[0]
    place, done = start * row.shape[1], 0
    while done < size:
        count = min(values.shape[0] - place, size - done)
        source, target = values[place : place + count], out[done : done + count]
        for k in range(count):
            target[k] = np.float32(source[k])
        place, done = 0, done + count


@jitable
def background_noise(x: Any, rng: Any, noises: Any, decibels: Any, noise: Any) -> None:
    """Add a stretch of a recording, weaker than the signal by a drawn ratio."""
    signal = x.reshape(x.shape[0], -1)
    moments, channels = signal.shape
    row = noises[rng.integers(0, noises.shape[0])]
    length, own = row.shape
    start = rng.integers(0, length - moments + 1) if length >= moments else rng.integers(0, length)
    ratio = 10.0 ** (draw_amount(rng, decibels) / 10.0)
    part, flat = noise[: moments * own], x.reshape(-1)
    copy_around(row, start, part)
    if own == channels:
        power, loudness = powers_of(flat, part)
    else:
        power, loudness = power_of(flat), power_of(part)
    if not loudness > 0.0:
        return
    factor = np.float32(np.sqrt(power / ratio / loudness))
    if own == channels:
        for k in range(flat.shape[0]):
            flat[k] += factor * part[k]
        return
    for t in range(moments):
        for c in range(channels):
            signal[t, c] += factor * part[t]


def background_within(
    x: Any, length: int, rng: Any, noises: Any, decibels: Any, noise: Any
) -> None:
    """Add noise to the data, and none to the padding."""
    if length > 0:
        background_noise(x[:length], rng, noises, decibels, noise)


class BackgroundNoise(_Recorded):
    """Background noise: a random stretch of a random row of `noises`, `decibels` weaker in power than the signal.

    `noises` is an array of shape (rows, time) or (rows, time, channels), mapped or in memory, or an NPDataset of one;
    nothing of it is copied. Rows shorter than the signal are repeated. The power is the mean of squares over the
    stretch and over all channels; noise of one channel is added to all. It is audiomentations' AddBackgroundNoise.
    """

    function = staticmethod(background_noise)
    within = staticmethod(background_within)
    argument = "noises"

    def __init__(
        self, noises: Any, decibels: Amount = (3.0, 30.0), *, probability: float = 1.0
    ) -> None:
        super().__init__(noises, decibels=amounts("decibels", decibels, -300, 300))
        self.happens_with(probability)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {"noises": self.rows(), **self._parameters}

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (Spec((spec.shape[0] * self.rows().shape[2],), np.float32),)


@jitable
def impulse_response(
    x: Any, rng: Any, responses: Any, normalize: bool, factors: Any, twiddles: Any, memory: Any
) -> None:
    """Convolve a signal with a recording."""
    signal = x.reshape(x.shape[0], -1)
    row = responses[rng.integers(0, responses.shape[0])]
    channels = row.shape[1]
    unit = 1.0 / 32768.0 if row.itemsize == 2 else 1.0
    gain = unit
    if normalize:
        total = norm_of(row.reshape(-1)) / np.sqrt(channels)
        gain = 1.0 / total if total > 0.0 else 0.0
    for c in range(signal.shape[1]):
        own = row[:, c if channels > 1 else 0]
        convolve(signal[:, c], own, gain, factors, twiddles, memory)


def response_within(
    x: Any, length: int, rng: Any, responses: Any, normalize: bool, factors: Any, twiddles: Any, memory: Any
) -> None:  # fmt: skip
    """Convolve the data, and cut the result where the padding begins."""
    if length > 0:
        impulse_response(x[:length], rng, responses, normalize, factors, twiddles, memory)


class ImpulseResponse(_Recorded):
    """Convolution with a random row of `responses`, as recorded in that row's room; as many moments as before.

    `responses` is an array of shape (rows, time) or (rows, time, channels), as the noises of BackgroundNoise; one
    channel is for all. With `normalize` a response is divided by the root of its energy, which keeps white noise as
    loud as it was. The result begins with the signal: the part of a response before its peak delays it, and the part
    after the last moment is cut.
    """

    function = staticmethod(impulse_response)
    within = staticmethod(response_within)
    argument = "responses"

    def __init__(self, responses: Any, *, normalize: bool = True, probability: float = 1.0) -> None:
        if not isinstance(normalize, bool | np.bool_):
            raise ArgumentError(f"`normalize` (={normalize!r}) must be True or False.")
        super().__init__(responses, normalize=bool(normalize))
        self.happens_with(probability)

    def _size(self, spec: Spec) -> int:
        length = spec.shape[0]
        return fast_length(length + min(self.rows().shape[1], length) - 1)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        size = self._size(spec)
        return {
            "responses": self.rows(),
            **self._parameters,
            "factors": factors_of(size),
            "twiddles": twiddles_of(size),
        }

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return (Spec((4, self._size(spec)), np.float32),)
