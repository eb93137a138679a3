"""Means and medians of neighbourhoods: sums of horizontal runs of pixels, and sorting networks.

A mean of many neighbours is a sum of runs of pixels in a row. The sum of a run is the difference of two sums from the
beginning of the row: a disc of radius 10 has 317 pixels, and 21 runs. A median is found for a block of values at a
time, by exchanges that are the same for all of them: each is a minimum and a maximum of two registers.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

from .compilation import jitable, kernel
from .pixels import precise
from .tones import rounded
from .vectors import lane_address
from .windows import EDGE, REFLECT, border

# With at most this many pixels beyond two for each run, pixels are added one by one: that takes as long as all sums
# from the left.
FEW_PIXELS = 24
# Bytes of values whose neighbours are sorted at a time: a register, or a few.
SORTED_BYTES = 64


def sorted_at_once(itemsize: int) -> int:
    """Return how many values of a size are sorted at a time."""
    return SORTED_BYTES // itemsize


@jitable
def mean_of_pixels(
    x: Any, lines: Any, rows: Any, begins: Any, ends: Any, radius: Any, part: Any, padded: Any, sums: Any
) -> None:  # fmt: skip
    """Replace every pixel by the mean of a few pixels around it; see `mean_of_runs`.

    Pixels are added one by one. That is vector code, and sums from the left are not.
    """
    height, width, channels = x.shape
    length, margin = width * channels, radius * channels
    for i in range(height):
        line, inner = lines[i], padded[i, margin : margin + length]
        for k in range(length):
            inner[k] = line[k]
        for place in range(radius):
            before = border(place - radius, width, REFLECT) * channels
            after = border(width + place, width, REFLECT) * channels
            for c in range(channels):
                padded[i, place * channels + c] = line[before + c]
                padded[i, margin + length + place * channels + c] = line[after + c]
    for i in range(height):
        first = True
        for run in range(rows.shape[0]):
            row = border(i + rows[run], height, REFLECT)
            for column in range(begins[run], ends[run]):
                start = (column + radius) * channels
                shifted = padded[row, start : start + length]
                if first:
                    for k in range(length):
                        sums[k] = shifted[k]
                else:
                    for k in range(length):
                        sums[k] += shifted[k]
                first = False
        line = lines[i]
        for k in range(length):
            line[k] = rounded(precise(sums[k], x) * part, x)


@kernel
def mean_of_runs(
    x: Any, rows: Any, begins: Any, ends: Any, radius: Any, share: Any, totals: Any, sums: Any
) -> None:
    """Replace every pixel by `share` times the sum of the runs of pixels around it; the image is mirrored outside.

    A run is in the row `rows` below the pixel, from the column `begins` to before `ends`, at most `radius` away.
    `totals` has room for an image with `radius` pixels more on both sides and one in front, `sums` for a row.
    """
    height, width, channels = x.shape
    length = width * channels
    lines = x.reshape((height, length))
    part = precise(share, x)
    pixels = 0
    for run in range(rows.shape[0]):
        pixels += ends[run] - begins[run]
    # Sums of integers are the same in any order.
    if totals.itemsize < 8 and pixels <= 2 * rows.shape[0] + FEW_PIXELS:
        mean_of_pixels(x, lines, rows, begins, ends, radius, part, totals, sums)
        return
    for i in range(height):
        line, total = lines[i], totals[i]
        for c in range(channels):
            total[c] = 0
        for place in range(width + 2 * radius):
            column = border(place - radius, width, REFLECT) * channels
            for c in range(channels):
                at = place * channels + c
                total[at + channels] = total[at] + line[column + c]
    for i in range(height):
        for k in range(length):
            sums[k] = 0
        for run in range(rows.shape[0]):
            total = totals[border(i + rows[run], height, REFLECT)]
            first = total[(begins[run] + radius) * channels :]
            last = total[(ends[run] + radius) * channels :]
            for k in range(length):
                sums[k] += last[k] - first[k]
        line = lines[i]
        for k in range(length):
            line[k] = rounded(precise(sums[k], x) * part, x)


def median_network(count: int) -> Any:
    """Return the exchanges of Batcher's network that bring the median of `count` values to the middle."""
    exchanges = []
    # Knuth, "The Art of Computer Programming", volume 3, algorithm 5.2.2M.
    power = 1 << max(count - 1, 1).bit_length() - 1
    p = power
    while p > 0:
        q, r, d = power, 0, p
        while True:
            exchanges += [(i, i + d) for i in range(count - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    needed, kept = {count // 2}, []
    for lower, upper in reversed(exchanges):
        if lower in needed or upper in needed:
            needed |= {lower, upper}
            kept.append((lower, upper))
    return np.array(kept[::-1], np.int64)


def _network(side: int) -> list[tuple[int, int]]:
    return [(int(lower), int(upper)) for lower, upper in median_network(side * side)]


if config.DISABLE_JIT:

    def median_finder(side: int) -> Any:
        """Return the function that finds medians of `side` x `side` values, for a block of them."""
        network = _network(side)

        def find_medians(ring: Any, starts: Any, step: int, out: Any, place: int) -> None:
            count = sorted_at_once(out.itemsize)
            values = [
                ring[start + across * step : start + across * step + count]
                for start in starts
                for across in range(side)
            ]
            for lower, upper in network:
                one, other = values[lower], values[upper]
                values[lower] = np.where(one < other, one, other)
                values[upper] = np.where(one < other, other, one)
            out[place : place + count] = values[len(values) // 2]

        return find_medians

else:

    def median_finder(side: int) -> Any:
        """Return the function that finds medians of `side` x `side` values, for a block of them."""
        network = _network(side)

        @intrinsic
        def find_medians(typing_context, ring, starts, step, out, place):
            """Find medians of rows of neighbours that begin at `starts` in the ring, `step` values apart."""
            if ring.dtype != out.dtype:
                return None
            signature = types.void(ring, starts, types.intp, out, types.intp)

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                ring, starts, step, out, place = arguments
                kinds = signature.args
                element = context.get_data_type(kinds[0].dtype)
                size = context.get_abi_sizeof(element)
                lanes = ir.VectorType(element, sorted_at_once(size))
                listed = context.make_array(kinds[1])(context, builder, starts).data
                values = []
                for down in range(side):
                    start = builder.load(builder.gep(listed, [ir.Constant(step.type, down)]))
                    for across in range(side):
                        at = builder.add(start, builder.mul(step, ir.Constant(step.type, across)))
                        loaded = builder.load(
                            lane_address(context, builder, kinds[0], ring, at, lanes)
                        )
                        loaded.align = size
                        values.append(loaded)
                for lower, upper in network:
                    one, other = values[lower], values[upper]
                    if isinstance(kinds[0].dtype, types.Float):
                        less = builder.fcmp_ordered("<", one, other)
                    elif getattr(kinds[0].dtype, "signed", False):
                        less = builder.icmp_signed("<", one, other)
                    else:
                        less = builder.icmp_unsigned("<", one, other)
                    values[lower] = builder.select(less, one, other)
                    values[upper] = builder.select(less, other, one)
                builder.store(
                    values[len(values) // 2],
                    lane_address(context, builder, kinds[3], out, place, lanes),
                ).align = size
                return context.get_dummy_value()

            return signature, generate

        return find_medians


median_of_9, median_of_25 = median_finder(3), median_finder(5)


@kernel
def median_of_square(x: Any, side: Any, ring: Any, starts: Any, block: Any) -> None:
    """Replace every pixel by the median of the `side` x `side` (3 or 5) pixels around it; the edge is repeated outside.

    `ring` has `side` rows, each with room for whole blocks of a row and for side - 1 pixels more. `starts` has room for
    a number for each of them, `block` for one block of `sorted_at_once`.
    """
    height, width, channels = x.shape
    length, radius = width * channels, side // 2
    lines, held = x.reshape((height, length)), ring.reshape(-1)
    room, at_once = ring.shape[1], block.shape[0]
    for front in range(height + radius):
        if front < height:
            line, begin = lines[front], front % side * room
            inner = held[begin + radius * channels : begin + radius * channels + length]
            for k in range(length):
                inner[k] = line[k]
            for place in range(radius * channels):
                held[begin + place] = line[place % channels]
                held[begin + radius * channels + length + place] = line[
                    length - channels + place % channels
                ]
        i = front - radius
        if i < 0:
            continue
        for down in range(side):
            starts[down] = border(i + down - radius, height, EDGE) % side * room
        line = lines[i]
        for start in range(0, length, at_once):
            whole = length - start >= at_once
            if side == 3:
                median_of_9(held, starts, channels, line if whole else block, start if whole else 0)
            else:
                median_of_25(
                    held, starts, channels, line if whole else block, start if whole else 0
                )
            if not whole:
                for k in range(length - start):
                    line[start + k] = block[k]
            for down in range(side):
                starts[down] += at_once
