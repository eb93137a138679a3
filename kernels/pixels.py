"""Conversions of pixel values: scaling to floats, half precision, rounding to integers, planes."""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from .compilation import jitable, kernel
from .numba_internals import as_dtype


@kernel
def scale_pixels(x: Any, scale: Any, bias: Any, out: Any) -> None:
    """Write value * scale + bias; scale and bias are listed for one row of x."""
    # Two plain indices. With a sum as index Numba checks for every element whether it is below 0, which costs the loop
    # its vector instructions.
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[i, k] = np.float32(x[i, k]) * scale[k] + bias[k]


@kernel
def scale_planes(x: Any, scale: Any, bias: Any, out: Any) -> None:
    """Write value * scale + bias of a channel, from (height, width, channels) to (channels, height, width)."""
    for c in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                out[c, i, j] = np.float32(x[i, j, c]) * scale[c] + bias[c]


@kernel
def to_bfloat16(x: Any, out: Any) -> None:
    """Convert float32 bits to the nearest bfloat16 bits, ties to even; NaN stays NaN."""
    for k in range(x.shape[0]):
        bits = x[k]
        rounded = (
            bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        ) >> np.uint32(16)
        quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
        nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        out[k] = np.uint16(quiet if nan else rounded)


@kernel
def to_float16(x: Any, out: Any) -> None:
    """Convert float32 bits to the nearest float16 bits, ties to even, with subnormals, infinities and NaN."""
    for k in range(x.shape[0]):
        bits = np.uint32(x[k])
        sign = np.uint32((bits >> np.uint32(16)) & np.uint32(0x8000))
        size = np.uint32(bits & np.uint32(0x7FFFFFFF))
        if size >= np.uint32(0x47800000):
            # Too large, infinite or NaN. 65520 rounds up to infinity below.
            half = np.uint32(0x7E00 if size > np.uint32(0x7F800000) else 0x7C00)
        elif size < np.uint32(0x38800000):
            # Subnormal: in units of 2^-24.
            shift = np.uint32(126) - (size >> np.uint32(23))
            if shift > np.uint32(24):
                half = np.uint32(0)
            else:
                mantissa = np.uint32((size & np.uint32(0x7FFFFF)) | np.uint32(0x800000))
                half = np.uint32(mantissa >> shift)
                rest = np.uint32(mantissa & np.uint32((np.uint32(1) << shift) - np.uint32(1)))
                middle = np.uint32(np.uint32(1) << np.uint32(shift - np.uint32(1)))
                if rest > middle or (rest == middle and (half & np.uint32(1)) != 0):
                    half = np.uint32(half + np.uint32(1))
        else:
            half = np.uint32(
                (
                    size
                    - np.uint32(0x38000000)
                    + np.uint32(0xFFF)
                    + ((size >> np.uint32(13)) & np.uint32(1))
                )
                >> np.uint32(13)
            )
        out[k] = np.uint16(sign | half)


@kernel
def from_bfloat16(x: Any, out: Any) -> None:
    """Convert bfloat16 bits to the float32 bits of the same number."""
    for k in range(x.shape[0]):
        out[k] = np.uint32(x[k]) << np.uint32(16)


@kernel
def from_float16(x: Any, out: Any) -> None:
    """Convert float16 bits to the float32 bits of the same number, with subnormals, infinities and NaN."""
    for k in range(x.shape[0]):
        bits = np.uint32(x[k])
        sign = np.uint32((bits & np.uint32(0x8000)) << np.uint32(16))
        size = np.uint32(bits & np.uint32(0x7FFF))
        # The two formats have different exponent biases; the exponents of infinity and NaN are the largest of both.
        infinite = size >= np.uint32(0x7C00)
        shift = np.uint32(0x70000000) if infinite else np.uint32(0x38000000)
        normal = np.uint32((size << np.uint32(13)) + shift)
        # Calculated for all numbers, so that the loop is vector code. Subnormals are in units of 2^-24.
        subnormal = np.float32(np.float32(np.int32(size)) * np.float32(2.0**-24))
        number = subnormal.view(np.uint32) if size < np.uint32(0x400) else normal
        out[k] = np.uint32(sign | number)


def saturate(value: Any, like: Any) -> Any:
    """Return a number in the dtype of the array `like`: rounded and clipped if that is an integer or a boolean."""
    dtype = like.dtype
    if dtype.kind == "f":
        return dtype.type(value)
    rounded = np.floor(np.float64(value) + 0.5)
    if dtype.kind == "b":
        return dtype.type(rounded > 0)
    limits = np.iinfo(dtype)
    return dtype.type(max(limits.min, min(int(rounded), limits.max)))


@overload(saturate)
def _saturate(value, like):
    dtype = like.dtype
    if isinstance(dtype, types.Boolean):
        return lambda value, like: np.floor(np.float64(value) + 0.5) > 0
    if not isinstance(dtype, types.Integer):
        return lambda value, like: dtype(value)
    low, high = dtype.minval, dtype.maxval
    if high < 1 << 53:
        return lambda value, like: dtype(min(max(np.floor(np.float64(value) + 0.5), low), high))
    # As a float the upper limit is one more, and does not fit.
    above = float(high)

    def saturate_wide(value, like):
        rounded = np.floor(np.float64(value) + 0.5)
        if rounded >= above:
            return dtype(high)
        return dtype(max(rounded, float(low)))

    return saturate_wide


def precise(value: Any, like: Any) -> Any:
    """Return a number as a float that holds every value of the array `like` exactly: float32 if that is enough."""
    return np.float32(value) if _fits_float32(like.dtype) else np.float64(value)


@overload(precise)
def _precise(value, like):
    if _fits_float32(as_dtype(like.dtype)):
        return lambda value, like: np.float32(value)
    return lambda value, like: np.float64(value)


def _fits_float32(dtype: Any) -> bool:
    return bool(np.can_cast(dtype, np.float32))


def whole(value: Any, like: Any) -> Any:
    """Return the value, rounded if pixels are integers."""
    return value if like.dtype.kind == "f" else np.floor(value + precise(0.5, like))


@overload(whole)
def _whole(value, like):
    if isinstance(like.dtype, types.Float):
        return lambda value, like: value
    return lambda value, like: np.floor(value + precise(0.5, like))


def in_range(value: Any, white: Any, like: Any) -> Any:
    """Return a number clipped to 0 and white if the array `like` has floats; integers are returned unchanged."""
    if like.dtype.kind == "f":
        return min(max(value, precise(0, like)), precise(white, like))
    return value


@overload(in_range)
def _in_range(value, white, like):
    if isinstance(like.dtype, types.Float):
        return lambda value, white, like: min(max(value, precise(0, like)), precise(white, like))
    return lambda value, white, like: value


def stored(value: Any, like: Any) -> Any:
    """Return a float32 in the dtype of the array `like`."""
    return saturate(value, like)


@overload(stored)
def _stored(value, like):
    dtype = like.dtype
    if isinstance(dtype, types.Integer) and dtype.maxval < 1 << 16:
        # As `saturate`, without float64, which takes twice as long; the fractional part is exact.
        low, high = np.float32(dtype.minval), np.float32(dtype.maxval)
        half, one = np.float32(0.5), np.float32(1)

        def store_small(value, like):
            below = np.floor(value)
            nearest = below + one if value - below >= half else below
            return dtype(np.int32(min(max(nearest, low), high)))

        return store_small
    return lambda value, like: saturate(value, like)


@kernel
def store_values(x: Any, out: Any) -> None:
    """Write floats in the dtype of `out`, rounded and clipped if that is an integer."""
    for k in range(x.shape[0]):
        out[k] = stored(x[k], out)


@jitable
def luminance(red: Any, green: Any, blue: Any) -> Any:
    """Return the luminance of a colour, by ITU-R BT.601."""
    return np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
