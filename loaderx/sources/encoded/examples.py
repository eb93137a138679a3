"""Messages `tf.train.Example` in a file: the places of byte strings, and numbers, without the rest being read."""

import struct
from collections.abc import Iterator
from typing import Any

from .index import Shard

# A feature and its name are small, but for the images, which are not read.
WINDOW = 4096
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
# The kinds of a feature, by the field of the message that holds its list.
BYTES, FLOATS, INTEGERS = 1, 2, 3
KINDS = {BYTES: "byte strings", FLOATS: "floats", INTEGERS: "integers"}
MOST_VARINT = 10

# A field of a message: its number, its wire type, and where its bytes begin and end.
Field = tuple[int, int, int, int]


class DamagedError(Exception):
    """Raised for bytes that are not a message."""


class Messages:
    """Protobuf messages in a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._window = b""
        self._begin = 0

    def at(self, position: int, count: int) -> bytes:
        """Return bytes of the file."""
        start = position - self._begin
        if not 0 <= start <= len(self._window) - count:
            self._window, self._begin, start = (
                self._shard.read(max(WINDOW, count), position),
                position,
                0,
            )
            if len(self._window) < count:
                raise DamagedError("it ends beyond the file")
        return self._window[start : start + count]

    def varint(self, position: int, stop: int) -> tuple[int, int]:
        """Return a varint of at most 64 bits, and the position after it."""
        found = self.at(position, min(MOST_VARINT, stop - position))
        value = 0
        for place, byte in enumerate(found):
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + place + 1
        raise DamagedError("a number does not end")

    def fields(self, position: int, stop: int) -> Iterator[Field]:
        """Yield the fields of the message between two positions."""
        while position < stop:
            tag, begin = self.varint(position, stop)
            kind = tag & 7
            if kind == VARINT:
                _, position = self.varint(begin, stop)
            elif kind == LENGTH:
                length, begin = self.varint(begin, stop)
                position = begin + length
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                position = begin + (8 if kind == EIGHT_BYTES else 4)
            else:
                raise DamagedError(f"a field has the unknown type {kind}")
            if position > stop:
                raise DamagedError("a field ends beyond its message")
            yield tag >> 3, kind, begin, position

    def features(self, begin: int, stop: int) -> dict[bytes, tuple[int, int]]:
        """Return where the message of each feature of an Example is, by name."""
        found: dict[bytes, tuple[int, int]] = {}
        for number, kind, start, end in self.fields(begin, stop):
            if (number, kind) != (1, LENGTH):
                continue
            for entry, wire, first, last in self.fields(start, end):
                if (entry, wire) != (1, LENGTH):
                    continue
                name, place = b"", (last, last)
                for part, form, left, right in self.fields(first, last):
                    if (part, form) == (1, LENGTH):
                        name = self.at(left, right - left)
                    elif (part, form) == (2, LENGTH):
                        place = left, right
                # Of two features of one name the last counts, as in all maps of protobuf.
                found[name] = place
        return found

    def values(self, begin: int, stop: int, most: int) -> tuple[int, list[Any]]:
        """Return the kind of a feature and its values, of which byte strings are (offset, length).

        No more than one after `most` values are read.
        """
        kind, values = 0, list[Any]()
        for number, wire, start, end in self.fields(begin, stop):
            if number not in KINDS or wire != LENGTH:
                continue
            if number != kind:
                # Of several kinds the last counts.
                kind, values = number, []
            for item, form, left, right in self.fields(start, end):
                if item == 1 and len(values) <= most:
                    values += self._items(kind, form, left, right, most)
        return kind, values

    def _items(self, kind: int, form: int, begin: int, stop: int, most: int) -> list[Any]:
        if kind == BYTES and form == LENGTH:
            return [(begin, stop - begin)]
        if kind == FLOATS and form in (LENGTH, FOUR_BYTES):
            count = (stop - begin) // 4
            if (stop - begin) % 4:
                raise DamagedError("floats are not of four bytes each")
            count = min(count, most + 1)
            return list(struct.unpack(f"<{count}f", self.at(begin, 4 * count)))
        if kind == INTEGERS and form in (VARINT, LENGTH):
            values: list[int] = []
            while begin < stop and len(values) <= most:
                value, begin = self.varint(begin, stop)
                values.append(value - (1 << 64) if value >> 63 else value)
            return values
        raise DamagedError(f"{KINDS[kind]} have the wrong type {form}")
