"""Normalisation, (value / white - mean) / std along the last axis: one multiplication and one addition per value."""

from typing import Any

import numpy as np
from numba import carray, prange
from numpy.typing import ArrayLike, NDArray

from .compilation import kernel, parallel_kernel
from .memory import pointer
from .pixels import to_bfloat16, to_float16

# Values per line of repeated scales and biases: long enough for vector instructions, and few enough for the cache.
LINE = 1024


def full_scale(dtype: np.dtype[Any]) -> float:
    """Return the value of white: the largest value of an integer dtype, 1 for any other dtype."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def channel_values(
    mean: ArrayLike, std: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means and deviations as one-dimensional arrays; raise if float32 cannot hold the result."""
    means, deviations = numbers("mean", mean), numbers("std", std)
    if not np.all(np.isfinite(means)):
        raise ValueError(f"`mean` (={mean!r}) must be finite.")
    if not np.all(deviations > 0) or not np.all(np.isfinite(deviations)):
        raise ValueError(f"`std` (={std!r}) must be finite and above 0.")
    with np.errstate(all="ignore"):
        extremes = np.max(np.abs(means)) / deviations, 1 / deviations
    if np.any(np.asarray(extremes) > np.finfo(np.float32).max):
        raise ValueError(f"`std` (={std!r}) is too small: float32 cannot hold the result.")
    return means, deviations


def numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a number, or one per channel, as a one-dimensional array."""
    try:
        found = np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or found.size == 0:
        raise ValueError(f"`{name}` (={values!r}) must be a number, or one number per channel.")
    return found


def scale_and_bias(
    mean: NDArray[np.float64], std: NDArray[np.float64], white: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return for each channel the factor of its values, and the number that is added after that."""
    count = max(len(mean), len(std))
    scale = np.resize(1 / (std * white), count)
    bias = np.resize(-mean / std, count)
    return scale.astype(np.float32), bias.astype(np.float32)


@kernel
def normalize_values(address: Any, like: Any, scale: Any, bias: Any, out: Any) -> None:
    """Write value * scale + bias for the values at an address, of the dtype of `like`; `scale` and `bias` repeat."""
    count, period = out.shape[0], scale.shape[0]
    x = carray(pointer(address), (count,), like.dtype)
    for begin in range(0, count, period):
        end = min(begin + period, count)
        line, target = x[begin:end], out[begin:end]
        for k in range(line.shape[0]):
            target[k] = np.float32(line[k]) * scale[k] + bias[k]


@kernel
def normalize_in_place(scale: Any, bias: Any, out: Any) -> None:
    """Replace the values of `out` by value * scale + bias.

    This is a separate function, because in one with two arrays the compiler must assume that their vectors overlap.
    """
    count, period = out.shape[0], scale.shape[0]
    for begin in range(0, count, period):
        target = out[begin : min(begin + period, count)]
        for k in range(target.shape[0]):
            target[k] = target[k] * scale[k] + bias[k]


@kernel
def normalize_halves(
    address: Any, like: Any, scale: Any, bias: Any, brain: Any, floats: Any, bits: Any, out: Any
) -> None:
    """Write value * scale + bias as the bits of bfloat16 if `brain`, else of float16.

    `floats` is a line of scratch memory, `bits` its bits.
    """
    count, period = out.shape[0], scale.shape[0]
    x = carray(pointer(address), (count,), like.dtype)
    for begin in range(0, count, period):
        end = min(begin + period, count)
        line = x[begin:end]
        for k in range(line.shape[0]):
            floats[k] = np.float32(line[k]) * scale[k] + bias[k]
        if brain:
            to_bfloat16(bits[: end - begin], out[begin:end])
        else:
            to_float16(bits[: end - begin], out[begin:end])


@parallel_kernel
def normalize_values_in_parts(
    parts: Any, address: Any, like: Any, scale: Any, bias: Any, out: Any
) -> None:
    """Run `normalize_values` for all parts at once: those from parts[p] to parts[p + 1], at multiples of a line."""
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)  # Numba counts in unsigned integers, whose differences are floats
        begin, end = parts[part], parts[part + 1]
        normalize_values(address + begin * like.itemsize, like, scale, bias, out[begin:end])


@parallel_kernel
def normalize_in_place_in_parts(parts: Any, scale: Any, bias: Any, out: Any) -> None:
    """Run `normalize_in_place` for all parts at once."""
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)
        normalize_in_place(scale, bias, out[parts[part] : parts[part + 1]])


@parallel_kernel
def normalize_halves_in_parts(
    parts: Any,
    address: Any,
    like: Any,
    scale: Any,
    bias: Any,
    brain: Any,
    floats: Any,
    bits: Any,
    out: Any,
) -> None:
    """Run `normalize_halves` for all parts at once, each with a line of memory of its own."""
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)
        begin, end = parts[part], parts[part + 1]
        normalize_halves(
            address + begin * like.itemsize, like, scale, bias, brain, floats[part], bits[part], out[begin:end]
        )  # fmt: skip
