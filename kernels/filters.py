"""Filters of neighbourhoods of pixels: Gaussian blur, smoothing by 3 x 3 pixels, and histograms of tiles.

A blur reads the image once. Each row is blurred from left to right into one of the lines of a ring. As soon as a row
has all its neighbours there, their sum is written to the image itself. Bytes are calculated in 16 bits, as multiples of
1/128: the sum of two of them still fits, and a share of 65536 is the upper half of a product.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic, overload

from .compilation import jitable, kernel
from .pixels import in_range, precise, saturate, whole
from .vectors import lane_address
from .windows import REFLECT, border

# Bytes that `add_weighted` reads and writes at once: the length of a line is a multiple of it.
BLOCK_BYTES = 128
VECTOR_BYTES = 32

if config.DISABLE_JIT:

    def add_weighted(
        source: Any, before: Any, after: Any, shares: Any, taps: int, start: Any, out: Any
    ) -> None:
        """Set out[k] to `start` plus the sum of source[before + k] + source[after + k], by share, over the taps."""
        total = np.full(out.shape, start)
        for tap in range(taps):
            pair = (
                source[before[tap] : before[tap] + len(out)]
                + source[after[tap] : after[tap] + len(out)]
            )
            if out.dtype == np.uint16:
                total += ((pair.astype(np.uint32) * shares[tap]) >> np.uint32(16)).astype(np.uint16)
            else:
                total += pair * shares[tap]
        out[:] = total

else:
    # Written in LLVM because the compiler keeps sums in memory, not in registers, while it loops over taps, and finds
    # the instruction for the upper half of 16-bit products only where the share was just loaded: 381 us for 13 x 13
    # pixels of a 224 px image with plain loops, 131 us with this.
    @intrinsic
    def add_weighted(typing_context, source, before, after, shares, taps, start, out):
        """Set out[k] to `start` plus the sum of source[before + k] + source[after + k], by share, over the taps."""
        signature = types.void(source, before, after, shares, types.intp, out.dtype, out)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, before, after, shares, taps, start, out = arguments
            kinds = signature.args
            whole = isinstance(kinds[6].dtype, types.Integer)
            element = context.get_data_type(kinds[6].dtype)
            size = kinds[6].dtype.bitwidth // 8
            count = VECTOR_BYTES // size
            lanes = ir.VectorType(element, count)
            wide = ir.VectorType(ir.IntType(32), count)
            index = ir.IntType(64)
            vectors = BLOCK_BYTES // VECTOR_BYTES

            def spread(value: Any) -> Any:
                undefined = ir.Constant(lanes, ir.Undefined)
                first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
                return builder.shuffle_vector(first, undefined, zeros)

            def element_at(kind: Any, array: Any, place: Any) -> Any:
                kind_of_element = context.get_data_type(kind.dtype)
                return builder.load(
                    lane_address(context, builder, kind, array, place, kind_of_element)
                )

            def line_at(place: Any, number: int) -> Any:
                at = builder.add(place, index(number * count))
                loaded = builder.load(lane_address(context, builder, kinds[0], source, at, lanes))
                loaded.align = size
                return loaded

            def weighed(pair: Any, share: Any) -> Any:
                if not whole:
                    return builder.fmul(pair, share)
                product = builder.mul(builder.zext(pair, wide), builder.zext(share, wide))
                return builder.trunc(builder.lshr(product, ir.Constant(wide, [16] * count)), lanes)

            add = builder.add if whole else builder.fadd
            length = context.make_array(kinds[6])(context, builder, out).shape
            length = builder.extract_value(length, 0)
            entry = builder.basic_block
            blocks = builder.append_basic_block("blocks")
            block_body = builder.append_basic_block("block")
            tap_body = builder.append_basic_block("tap")
            stores = builder.append_basic_block("stores")
            done = builder.append_basic_block("done")
            starts = spread(start)
            builder.branch(blocks)

            builder.position_at_end(blocks)
            place = builder.phi(index)
            place.add_incoming(index(0), entry)
            builder.cbranch(builder.icmp_signed("<", place, length), block_body, done)

            builder.position_at_end(block_body)
            builder.branch(tap_body)

            builder.position_at_end(tap_body)
            tap = builder.phi(index)
            tap.add_incoming(index(0), block_body)
            sums = [builder.phi(lanes) for _ in range(vectors)]
            share = spread(element_at(kinds[3], shares, tap))
            first = builder.add(element_at(kinds[1], before, tap), place)
            second = builder.add(element_at(kinds[2], after, tap), place)
            for number, total in enumerate(sums):
                total.add_incoming(starts, block_body)
                pair = add(line_at(first, number), line_at(second, number))
                total.add_incoming(add(total, weighed(pair, share)), tap_body)
            following = builder.add(tap, index(1))
            tap.add_incoming(following, tap_body)
            builder.cbranch(builder.icmp_signed("<", following, taps), tap_body, stores)

            builder.position_at_end(stores)
            for number, total in enumerate(sums):
                at = builder.add(place, index(number * count))
                final = total.incomings[1][0]
                builder.store(
                    final, lane_address(context, builder, kinds[6], out, at, lanes)
                ).align = size
            place.add_incoming(builder.add(place, index(vectors * count)), stores)
            builder.branch(blocks)

            builder.position_at_end(done)
            return context.get_dummy_value()

        return signature, generate


def widened(value: Any, line: Any) -> Any:
    """Return a pixel as lines hold it: a byte as 128ths in 16 bits, any other value as a float."""
    if line.dtype == np.uint16:
        return np.uint16(np.uint16(value) << np.uint16(7))
    return line.dtype.type(value)


@overload(widened)
def _widened(value, line):
    dtype = line.dtype
    if dtype == types.uint16:
        return lambda value, line: np.uint16(np.uint16(value) << np.uint16(7))
    return lambda value, line: dtype(value)


def narrowed(value: Any, image: Any, line: Any) -> Any:
    """Return the rounded pixel of a value of a line."""
    if line.dtype == np.uint16:
        return np.uint8((np.uint16(value) + np.uint16(64)) >> np.uint16(7))
    return saturate(value, image)


@overload(narrowed)
def _narrowed(value, image, line):
    if line.dtype == types.uint16:
        return lambda value, image, line: np.uint8(
            (np.uint16(value) + np.uint16(64)) >> np.uint16(7)
        )
    return lambda value, image, line: saturate(value, image)


def truncation_error(products: Any, line: Any) -> Any:
    """Return the mean truncation error of so many 16-bit products; floats have none."""
    return line.dtype.type(products // 2 if line.dtype == np.uint16 else 0)


@overload(truncation_error)
def _lost(products, line):
    dtype = line.dtype
    if dtype == types.uint16:
        return lambda products, line: np.uint16(products // 2)
    return lambda products, line: dtype(0)


@kernel
def blur(x: Any, shares: Any, before: Any, after: Any, line: Any, sums: Any, ring: Any) -> None:
    """Replace every pixel by the weighted sum of its neighbours, in its row, then in its column; mirrored outside.

    shares[0] is half the share of a pixel itself, shares[1:] are those of its neighbours on one side. `before` and
    `after` are as long. `sums` is a row long and a multiple of BLOCK_BYTES, `ring` has room for 2 * radius + 1 of them,
    and `line` for one and the radius on both sides.
    """
    height, width, channels = x.shape
    length, padded = width * channels, sums.shape[0]
    rows = x.reshape((height, length))
    taps = shares.shape[0]
    radius = taps - 1
    edge, places = radius * channels, 2 * radius + 1
    start = truncation_error(taps, line)
    # Places in the ring, counted without divisions: of the newest row, and of the oldest one that is still needed.
    newest, oldest = places - 1, 0
    for front in range(height + radius):
        newest, oldest = oldest, (oldest + 1 if oldest + 1 < places else 0)
        if front < height:
            inside, row = line[edge : edge + length], rows[front]
            for k in range(length):
                inside[k] = widened(row[k], line)
            for tap in range(1, taps):
                left = border(-tap, width, REFLECT) * channels
                right = border(width - 1 + tap, width, REFLECT) * channels
                for c in range(channels):
                    line[edge - tap * channels + c] = inside[left + c]
                    line[edge + (width - 1 + tap) * channels + c] = inside[right + c]
            for tap in range(taps):
                before[tap], after[tap] = edge - tap * channels, edge + tap * channels
            place = newest * padded
            add_weighted(line, before, after, shares, taps, start, ring[place : place + padded])
        i = front - radius
        if i >= 0:
            # Rows and their mirror images are at most the radius away.
            first = oldest - (i - radius)
            for tap in range(taps):
                above = first + border(i - tap, height, REFLECT)
                below = first + border(i + tap, height, REFLECT)
                before[tap] = (above - places if above >= places else above) * padded
                after[tap] = (below - places if below >= places else below) * padded
            add_weighted(ring, before, after, shares, taps, start, sums)
            row = rows[i]
            for k in range(length):
                row[k] = narrowed(sums[k], x, line)


@kernel
def sharpen(x: Any, factor: Any, white: Any, lines: Any, sums: Any) -> None:
    """Replace x by x * factor + smooth * (1 - factor), where smooth is the mean of 3 x 3 pixels 5 of 13 in the middle.

    Integers are smoothed to integers. Pixels at the border are only clipped to 0 and white. `lines` is two rows long,
    `sums` one.
    """
    height, width, channels = x.shape
    length, inner = width * channels, (width - 2) * channels
    rows = x.reshape((height, length))
    share = precise(factor, x)
    rest = precise(1, x) - share
    four, part = precise(4, x), precise(1 / 13, x)
    if inner <= 0 or height < 3:
        return
    for i in range(height - 1):
        # Rows are overwritten, but the next one needs the original values.
        above, middle, below = lines[(i + 1) % 2], lines[i % 2], rows[i + 1]
        row = rows[i]
        for k in range(length):
            middle[k] = row[k]
        if i == 0:
            for k in range(length):
                row[k] = in_range(row[k], white, x)
            continue
        for k in range(channels):
            row[k] = in_range(row[k], white, x)
            row[length - channels + k] = in_range(row[length - channels + k], white, x)
        for k in range(length):
            sums[k] = precise(above[k], x) + precise(middle[k], x) + precise(below[k], x)
        left, centre, right = sums[:inner], sums[channels:], sums[2 * channels :]
        here, target = middle[channels:], row[channels:]
        for k in range(inner):
            value = precise(here[k], x)
            total = left[k] + centre[k] + right[k] + four * value
            blended = value * share + whole(total * part, x) * rest
            target[k] = clipped(blended, white, x)
    last = rows[height - 1]
    for k in range(length):
        last[k] = in_range(last[k], white, x)


def clipped(value: Any, white: Any, like: Any) -> Any:
    """Return a value as a pixel of the array `like`: from 0 to white, rounded half up if that is an integer.

    The calculation is in the precision of the value. `saturate` calculates in float64 and takes twice as long.
    """
    inside = min(max(value, precise(0, like)), precise(white, like))
    if like.dtype.kind in "iu" and np.iinfo(like.dtype).max < 2**31:
        return like.dtype.type(np.int32(inside + precise(0.5, like)))
    return saturate(inside, like)


@overload(clipped)
def _clipped(value, white, like):
    dtype = like.dtype
    if isinstance(dtype, types.Integer) and dtype.maxval < 2**31:
        return lambda value, white, like: dtype(
            np.int32(min(max(value, precise(0, like)), precise(white, like)) + precise(0.5, like))
        )
    return lambda value, white, like: saturate(
        min(max(value, precise(0, like)), precise(white, like)), like
    )


@jitable
def tile_size(size: Any, tiles: Any, other: Any, other_tiles: Any) -> Any:
    """Return the size of a tile as OpenCV: if a side is not a multiple of its tiles, both sides become larger."""
    if size % tiles == 0 and other % other_tiles == 0:
        return size // tiles
    return (size + tiles - size % tiles) // tiles


@kernel
def tile_curves(grey: Any, clip: Any, counts: Any, curves: Any) -> None:
    """Compute for every tile of bytes the curve that equalises its histogram, with bins up to `clip` times the mean.

    The counts above that limit are distributed over all bins; a `clip` of 0 means no limit. The image is mirrored after
    its end.
    """
    height, width = grey.shape
    down, across = curves.shape[:2]
    tall, wide = tile_size(height, down, width, across), tile_size(width, across, height, down)
    area = tall * wide
    scale = np.float32(255) / np.float32(area)
    limit = max(np.int64(clip * area / 256), 1) if clip > 0 else area
    for tile_row in range(down):
        for tile in range(across):
            for value in range(256):
                counts[value] = 0
            left = tile * wide
            inside = min(max(width - left, 0), wide)
            for i in range(tile_row * tall, (tile_row + 1) * tall):
                row = grey[border(i, height, REFLECT)]
                for j in range(left, left + inside):
                    counts[row[j]] += 1
                for j in range(left + inside, left + wide):
                    counts[row[border(j, width, REFLECT)]] += 1
            above = 0
            for value in range(256):
                if counts[value] > limit:
                    above += counts[value] - limit
                    counts[value] = limit
            everywhere, rest = above // 256, above % 256
            step = max(256 // rest, 1) if rest > 0 else 256
            total = 0
            for value in range(256):
                total += counts[value] + everywhere
                if value % step == 0 and value // step < rest:
                    total += 1
                level = np.rint(np.float32(total) * scale)
                curves[tile_row, tile, value] = min(level, np.float32(255))


@kernel
def apply_curves(grey: Any, curves: Any, low: Any, high: Any, weight: Any, out: Any) -> None:
    """Map every byte through the curves of the four tiles around it, weighted by its distance from their middles."""
    height, width = grey.shape
    down, across = curves.shape[:2]
    tall, wide = tile_size(height, down, width, across), tile_size(width, across, height, down)
    one, half = np.float32(1), np.float32(0.5)
    for j in range(width):
        place = np.float32(j) * (one / np.float32(wide)) - half
        tile = np.floor(place)
        weight[j] = place - tile
        first: Any = np.int64(tile)
        low[j] = 256 * max(first, 0)
        high[j] = 256 * min(first + 1, across - 1)
    for i in range(height):
        place = np.float32(i) * (one / np.float32(tall)) - half
        tile = np.floor(place)
        share = place - tile
        rest = one - share
        upper = curves[max(np.int64(tile), 0)].reshape(-1)
        lower = curves[min(np.int64(tile) + 1, down - 1)].reshape(-1)
        row, target = grey[i], out[i]
        for j in range(width):
            near, far = low[j] + row[j], high[j] + row[j]
            right = weight[j]
            left = one - right
            value = (upper[near] * left + upper[far] * right) * rest + (
                lower[near] * left + lower[far] * right
            ) * share
            target[j] = np.uint8(np.rint(value))
