"""Twin of the kernel that inserts restart markers: bits are texts, and codes are looked up in dicts."""

from loaderx.kernels import jpeg_restarts as kernels
from tests.kernels.jpeg_coefficients import codes as codes_of
from tests.kernels.jpeg_coefficients import intervals, value_of


def insert_restarts(
    data, begin, rows, per_row, interval, blocks, tables, decoders, codes, last, out, result
):
    """Write compressed pixels, which must not be damaged, with a restart marker between rows of MCU."""
    content = data.tobytes()
    split = kernels.LENGTHS
    read = [codes_of((row[:split].tolist(), row[split:].tolist())) for row in tables]
    written = [{symbol: code for code, symbol in row.items()} for row in read[kernels.NEW :]]
    parts = iter(intervals(content, begin)[0])
    bits, place, before, left = next(parts), 0, [0, 0, 0], interval
    pixels = bytearray()
    result[:] = 0

    def symbol(row):
        """Return the symbol at the next code of a table, and the code."""
        nonlocal place
        start = place
        while bits[start:place] not in read[row]:
            place += 1
        return read[row][bits[start:place]], bits[start:place]

    for row in range(rows):
        text, after = "", [0, 0, 0]
        for _ in range(per_row):
            if interval and left == 0:
                bits, place, before, left = next(parts), 0, [0, 0, 0], interval
            left -= 1
            for component, dc, ac in blocks.tolist():
                size, _ = symbol(dc)
                place += size
                before[component] += value_of(bits[place - size : place])
                value = before[component] - after[component]
                after[component] = before[component]
                size = abs(value).bit_length()
                result[kernels.USED + dc] |= 1 << size
                text += written[dc][size]
                if size:
                    text += f"{value if value > 0 else value + 2**size - 1:0{size}b}"
                k = 1
                while k < kernels.COEFFICIENTS:
                    found, code = symbol(4 + ac)
                    run, size = divmod(found, 16)
                    text += code + bits[place : place + size]
                    place += size
                    k = kernels.COEFFICIENTS if size == 0 and run < 15 else k + run + 1
        text += "1" * (-len(text) % 8)
        packed = int(text, 2).to_bytes(len(text) // 8, "big")
        pixels += packed.replace(b"\xff", b"\xff\0")
        if row + 1 < rows:
            pixels += bytes([255, kernels.RESTART + row % 8])
    out[: len(pixels)] = list(pixels)
    result[kernels.STATUS], result[kernels.SIZE] = kernels.FINE, len(pixels)
    result[kernels.PLACE] = content.index(b"\xff\xd9", begin) + 1
