"""Coefficients of sequential JPEG files, read by plain Python as ITU-T T.81 defines them."""

from dataclasses import dataclass, field


@dataclass
class Sequential:
    """Header of a file with one scan: tables are (counts, symbols) by class and number."""

    tables: dict = field(default_factory=dict)
    components: list = field(default_factory=list)  # (name, across, down)
    height: int = 0
    width: int = 0
    interval: int = 0
    scan: list = field(default_factory=list)  # (name, DC table, AC table)
    begin: int = 0

    @property
    def sides(self):
        """Samples of each component per MCU, across and down."""
        if len(self.scan) == 1:
            return [(1, 1)]
        return [(across, down) for _, across, down in self.components]

    @property
    def blocks(self):
        """Component, DC table and AC table of each block of an MCU."""
        return [
            (component, dc, ac)
            for component, ((across, down), (_, dc, ac)) in enumerate(
                zip(self.sides, self.scan, strict=True)
            )
            for _ in range(across * down)
        ]

    @property
    def per_row(self):
        return -(-self.width // (8 * max(across for across, _ in self.sides)))

    @property
    def rows(self):
        return -(-self.height // (8 * max(down for _, down in self.sides)))


def header(data):
    """Return the header of a file with one scan."""
    found, place = Sequential(), 2
    while True:
        assert data[place] == 255
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        content = data[place + 4 : place + 2 + length]
        place += 2 + length
        if marker == 0xC4:
            while content:
                end = 17 + sum(content[1:17])
                found.tables[divmod(content[0], 16)] = content[1:17], content[17:end]
                content = content[end:]
        elif marker in (0xC0, 0xC1):
            found.height = int.from_bytes(content[1:3], "big")
            found.width = int.from_bytes(content[3:5], "big")
            found.components = [
                (content[k], content[k + 1] >> 4, content[k + 1] & 15)
                for k in range(6, len(content), 3)
            ]
        elif marker == 0xDD:
            found.interval = int.from_bytes(content, "big")
        elif marker == 0xDA:
            found.scan = [
                (content[k], content[k + 1] >> 4, content[k + 1] & 15)
                for k in range(1, 1 + 2 * content[0], 2)
            ]
            found.begin = place
            return found


def codes(table):
    """Return the symbol of each code, which is a text of bits."""
    counts, symbols = table
    found, code, index = {}, 0, 0
    for length, count in enumerate(counts, 1):
        for _ in range(count):
            found[f"{code:0{length}b}"] = symbols[index]
            code, index = code + 1, index + 1
        code <<= 1
    return found


def intervals(data, begin):
    """Return the bits between the markers of compressed pixels, and these markers."""
    parts, markers, part = [], [], bytearray()
    place = begin
    while True:
        byte = data[place]
        place += 1
        if byte == 255:
            while data[place] == 255:
                place += 1
            follows = data[place]
            place += 1
            if follows:
                parts.append("".join(f"{one:08b}" for one in part))
                markers.append(follows)
                part = bytearray()
                if not 0xD0 <= follows <= 0xD7:
                    return parts, markers
                continue
        part.append(byte)


def value_of(bits):
    """Return the number of some bits, of which those that begin with 0 are negative."""
    if not bits:
        return 0
    return int(bits, 2) - (0 if bits[0] == "1" else 2 ** len(bits) - 1)


def coefficients(data):
    """Return the coefficients of each block in the order of the file, and the markers of the scan."""
    head = header(data)
    tables = {key: codes(table) for key, table in head.tables.items()}
    parts, markers = intervals(data, head.begin)
    left = head.rows * head.per_row
    found = []
    for bits in parts:
        place, last = 0, [0] * len(head.scan)

        def symbol(table, bits=bits):
            nonlocal place
            for length in range(1, 17):
                if bits[place : place + length] in table:
                    place += length
                    return table[bits[place - length : place]]
            raise ValueError("no code")

        def number(size, bits=bits):
            nonlocal place
            place += size
            return value_of(bits[place - size : place])

        for _ in range(min(head.interval or left, left)):
            left -= 1
            for component, dc, ac in head.blocks:
                last[component] += number(symbol(tables[0, dc]))
                block = [last[component]]
                while len(block) < 64:
                    run, size = divmod(symbol(tables[1, ac]), 16)
                    if size == 0 and run < 15:
                        break
                    block += [0] * run + [number(size)]
                # libjpeg ignores what follows the last coefficient, too.
                found.append(tuple((block + [0] * 64)[:64]))
        assert place <= len(bits) < place + 8
    assert left == 0
    return found, markers
