"""Fast Fourier transforms of several arrays at once, with separate real and imaginary parts.

The algorithm is Stockham's in factors of 4, 2, and the remaining primes. Arrays are interleaved as lanes, the last
axis: every inner loop runs over lanes and neighbours at once and is vectorised for any length, which a single array of
a length like 400 does not allow.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilation import jitable, kernel


def factors_of(length: int) -> NDArray[np.int64]:
    """Return the factors of a transform: fours, a two, and odd primes."""
    found, rest, factor = [], length, 4
    while rest > 1:
        while rest % factor:
            factor = {4: 2, 2: 3}.get(factor, factor + 2)
        found.append(factor)
        rest //= factor
    return np.array(found, np.int64)


def twiddles_of(length: int) -> NDArray[np.float32]:
    """Return the twiddle factors of a transform of `length`, as (real, imaginary) rows, stage by stage.

    A stage of factor r and length n has the r roots of unity of r, and r powers of roots of n for each of n / r values.
    """
    angles, rest = [np.zeros(0)], length
    for factor in map(int, factors_of(length)):
        steps = np.arange(rest // factor)[:, None] * np.arange(factor)
        angles += [np.arange(factor) / factor, (steps % rest).reshape(-1) / rest]
        rest //= factor
    turns = -2 * math.pi * np.concatenate(angles)
    return np.stack([np.cos(turns), np.sin(turns)]).astype(np.float32)


def fast_length(least: int) -> int:
    """Return the smallest length of at least `least` that is 2 ** k times 1, 3 or 5."""
    found = 1 << max(least - 1, 0).bit_length()
    for odd in (3, 5):
        part = -(-least // odd)
        found = min(found, odd << max(part - 1, 0).bit_length())
    return found


@jitable
def _stage_of_two(
    real: Any, imag: Any, run: Any, twiddles: Any, at: Any, to: Any, to_imag: Any
) -> None:
    half = real.shape[0] // 2
    for p in range(half // run):
        c, s = twiddles[0, at + 2 * p + 1], twiddles[1, at + 2 * p + 1]
        a, a_imag = real[p * run : (p + 1) * run], imag[p * run : (p + 1) * run]
        b = real[half + p * run : half + (p + 1) * run]
        b_imag = imag[half + p * run : half + (p + 1) * run]
        y, y_imag = to[2 * p * run : (2 * p + 1) * run], to_imag[2 * p * run : (2 * p + 1) * run]
        z = to[(2 * p + 1) * run : (2 * p + 2) * run]
        z_imag = to_imag[(2 * p + 1) * run : (2 * p + 2) * run]
        for q in range(run):
            y[q] = a[q] + b[q]
            y_imag[q] = a_imag[q] + b_imag[q]
            d, d_imag = a[q] - b[q], a_imag[q] - b_imag[q]
            z[q] = d * c - d_imag * s
            z_imag[q] = d * s + d_imag * c


@jitable
def _stage_of_four(
    real: Any, imag: Any, run: Any, twiddles: Any, at: Any, to: Any, to_imag: Any
) -> None:
    quarter = real.shape[0] // 4
    for p in range(quarter // run):
        one = at + 4 * p + 1
        c1, c2, c3 = twiddles[0, one], twiddles[0, one + 1], twiddles[0, one + 2]
        s1, s2, s3 = twiddles[1, one], twiddles[1, one + 1], twiddles[1, one + 2]
        begin = p * run
        a, b = real[begin : begin + run], real[quarter + begin : quarter + begin + run]
        ai, bi = imag[begin : begin + run], imag[quarter + begin : quarter + begin + run]
        begin += 2 * quarter
        c, d = real[begin : begin + run], real[quarter + begin : quarter + begin + run]
        ci, di = imag[begin : begin + run], imag[quarter + begin : quarter + begin + run]
        begin = 4 * p * run
        y0, y1 = to[begin : begin + run], to[begin + run : begin + 2 * run]
        y2, y3 = to[begin + 2 * run : begin + 3 * run], to[begin + 3 * run : begin + 4 * run]
        z0, z1 = to_imag[begin : begin + run], to_imag[begin + run : begin + 2 * run]
        z2, z3 = (
            to_imag[begin + 2 * run : begin + 3 * run],
            to_imag[begin + 3 * run : begin + 4 * run],
        )
        for q in range(run):
            sum_ac, sum_ac_imag = a[q] + c[q], ai[q] + ci[q]
            dif_ac, dif_ac_imag = a[q] - c[q], ai[q] - ci[q]
            sum_bd, sum_bd_imag = b[q] + d[q], bi[q] + di[q]
            dif_bd, dif_bd_imag = b[q] - d[q], bi[q] - di[q]
            y0[q] = sum_ac + sum_bd
            z0[q] = sum_ac_imag + sum_bd_imag
            v, v_imag = dif_ac + dif_bd_imag, dif_ac_imag - dif_bd
            y1[q] = v * c1 - v_imag * s1
            z1[q] = v * s1 + v_imag * c1
            v, v_imag = sum_ac - sum_bd, sum_ac_imag - sum_bd_imag
            y2[q] = v * c2 - v_imag * s2
            z2[q] = v * s2 + v_imag * c2
            v, v_imag = dif_ac - dif_bd_imag, dif_ac_imag + dif_bd
            y3[q] = v * c3 - v_imag * s3
            z3[q] = v * s3 + v_imag * c3


@jitable
def _stage_of_any(
    real: Any, imag: Any, run: Any, factor: int, twiddles: Any, at: Any, to: Any, to_imag: Any
) -> None:
    part, roots = real.shape[0] // factor, at - factor
    for p in range(part // run):
        for k in range(factor):
            begin = (factor * p + k) * run
            y, z = to[begin : begin + run], to_imag[begin : begin + run]
            for q in range(run):
                y[q] = real[p * run + q]
                z[q] = imag[p * run + q]
            for j in range(1, factor):
                c, s = twiddles[0, roots + j * k % factor], twiddles[1, roots + j * k % factor]
                begin = j * part + p * run
                a, ai = real[begin : begin + run], imag[begin : begin + run]
                for q in range(run):
                    y[q] += a[q] * c - ai[q] * s
                    z[q] += a[q] * s + ai[q] * c
            c, s = twiddles[0, at + factor * p + k], twiddles[1, at + factor * p + k]
            for q in range(run):
                v, v_imag = y[q], z[q]
                y[q] = v * c - v_imag * s
                z[q] = v * s + v_imag * c


@kernel
def transform_lanes(
    lanes: Any, factors: Any, twiddles: Any, real: Any, imag: Any, other: Any, other_imag: Any
) -> Any:
    """Transform `lanes` interleaved arrays; return whether the result is in the `other` pair of arrays.

    All arrays are flat, of length * lanes values, and are overwritten. With real and imaginary parts exchanged before
    and after, this is the inverse transform times the length.
    """
    run, at, swapped = np.int64(lanes), np.int64(0), False
    for stage in range(factors.shape[0]):
        factor = factors[stage]
        at += factor
        source, source_imag = (other, other_imag) if swapped else (real, imag)
        target, target_imag = (real, imag) if swapped else (other, other_imag)
        if factor == 4:
            _stage_of_four(source, source_imag, run, twiddles, at, target, target_imag)
        elif factor == 2:
            _stage_of_two(source, source_imag, run, twiddles, at, target, target_imag)
        else:
            _stage_of_any(source, source_imag, run, factor, twiddles, at, target, target_imag)
        at += source.shape[0] // run
        run *= factor
        swapped = not swapped
    return swapped
