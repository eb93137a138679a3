"""Structures of Thrift's compact protocol, in which Parquet files describe themselves."""

from typing import Any

from .examples import DamagedError

MOST_DEPTH = 16
TRUE, FALSE, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
# Bits of the size in the first byte of a list; all of them are set if the size follows.
SHORT = 15
MOST_BITS = 64

Fields = dict[int, Any]


class TruncatedError(DamagedError):
    """Raised for bytes that end early."""


def read_struct(data: bytes, place: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """Return the fields of a structure by their numbers, and the place after it."""
    if depth > MOST_DEPTH:
        raise DamagedError("structures are nested too deep")
    fields: Fields = {}
    number = 0
    while True:
        byte = _byte(data, place)
        place += 1
        if byte == 0:
            return fields, place
        if byte >> 4:
            number += byte >> 4
        else:
            number, place = _zigzag(data, place)
        fields[number], place = _value(data, place, byte & 15, depth)


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and the place after it."""
    value = 0
    for shift in range(0, MOST_BITS, 7):
        byte = _byte(data, place)
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
    raise DamagedError("a number does not end")


def integer(fields: Fields, number: int, least: int = 0, most: int = (1 << 31) - 1) -> int:
    """Return a field that is an integer between two."""
    value = fields.get(number)
    if type(value) is not int or not least <= value <= most:
        raise DamagedError(f"field {number} of a header is {value!r}")
    return value


def structure(fields: Fields, number: int) -> Fields:
    """Return a field that is a structure."""
    inside = fields.get(number)
    if not isinstance(inside, dict):
        raise DamagedError(f"field {number} of a header is not a structure")
    return inside


def structures(fields: Fields, number: int) -> list[Fields]:
    """Return a field that is a list of structures."""
    inside = fields.get(number)
    if not isinstance(inside, list) or not all(isinstance(one, dict) for one in inside):
        raise DamagedError(f"field {number} of a header is not a list of structures")
    return inside


def _value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, place
    if kind in INTEGERS:
        return _zigzag(data, place)
    if kind == STRUCT:
        return read_struct(data, place, depth + 1)
    if kind in LISTS:
        return _list(data, place, depth + 1)
    if kind == BINARY:
        length, place = read_varint(data, place)
    elif kind in (BYTE, DOUBLE):
        length = 1 if kind == BYTE else 8
    else:
        raise DamagedError(f"a header has a value of the type {kind}")
    if place + length > len(data):
        raise TruncatedError("a value in a header ends early")
    return data[place : place + length], place + length


def _list(data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
    if depth > MOST_DEPTH:
        raise DamagedError("lists are nested too deep")
    first = _byte(data, place)
    size, kind, place = first >> 4, first & 15, place + 1
    if size == SHORT:
        size, place = read_varint(data, place)
    values = []
    for _ in range(size):
        if kind in (TRUE, FALSE):
            value, place = _byte(data, place) == TRUE, place + 1
        else:
            value, place = _value(data, place, kind, depth)
        values.append(value)
    return values, place


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    value, place = read_varint(data, place)
    return value >> 1 ^ -(value & 1), place


def _byte(data: bytes, place: int) -> int:
    if place >= len(data):
        raise TruncatedError("a number ends early")
    return data[place]
