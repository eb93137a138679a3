"""Twins of the kernels on markers of JPEG files, in plain Python."""

import re
import struct

from loaderx.kernels import jpeg_markers as kernels

FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
MARKER = re.compile(rb"\xff+([^\0\xff])", re.DOTALL)


class StoppedError(Exception):
    """Raised with a status where the header ends early."""


def read_markers(data, out):
    data, found = data.tobytes(), dict.fromkeys(kernels.HEADER, 0)
    try:
        _read_segments(data, found)
    except StoppedError as stopped:
        (found["status"],) = stopped.args
    out[...] = list(found.values())


def _read_segments(data, found):
    place, jfif = 2, False
    while True:
        found["place"] = place
        marker = re.compile(rb"\xff+([^\xff])", re.DOTALL).match(data, place)
        if marker is None:
            whole = place < len(data) and data[place] != 255
            raise StoppedError(kernels.NO_MARKER if whole else kernels.CUT)
        code, place = marker[1][0], marker.end()
        if code == 0x01 or 0xD0 <= code <= 0xD7:
            continue
        if code in (0x00, 0xD8, 0xD9):
            raise StoppedError(kernels.NO_SCAN if code == 0xD9 else kernels.NO_MARKER)
        if place + 2 > len(data):
            raise StoppedError(kernels.CUT)
        (length,) = struct.unpack_from(">H", data, place)
        if length < 2:
            raise StoppedError(kernels.BAD_LENGTH)
        if place + length > len(data):
            raise StoppedError(kernels.CUT)
        content, end = data[place + 2 : place + length], place + length
        if code in FRAMES:
            frame_before = found["components"] > 0
            # The kernel names the frame also where its segment is damaged.
            found["frame"] = code - 0xC0
            if frame_before:
                raise StoppedError(kernels.TWO_FRAMES)
            _read_frame(content, place, found)
        elif code == 0xDD:
            if length != 4:
                raise StoppedError(kernels.BAD_LENGTH)
            (found["interval"],) = struct.unpack(">H", content)
        elif code == 0xDA:
            if found["components"] == 0:
                raise StoppedError(kernels.NO_FRAME)
            if not content or length != 6 + 2 * content[0]:
                raise StoppedError(kernels.BAD_LENGTH)
            found["scan_components"], found["scan"] = content[0], end
            return
        else:
            jfif = _read_application(code, content, end, jfif, found)
        place = end


def _read_frame(content, place, found):
    if len(content) < 6 or len(content) != 6 + 3 * content[5]:
        raise StoppedError(kernels.BAD_LENGTH)
    precision, height, width, components = struct.unpack_from(">BHHB", content)
    found |= {
        "precision": precision, "height": height, "width": width, "components": components,
        "height_place": place + 3,
    }  # fmt: skip
    if 0 in (height, width, components):
        raise StoppedError(kernels.NO_SIZE)
    samples = content[7::3]
    found["across"], found["down"] = divmod(samples[0], 16) if components > 1 else (1, 1)
    found["regular"] = int(all(one == 0x11 for one in samples[1:]))


def _read_application(code, content, end, jfif, found):
    if code == 0xE0 and content.startswith(b"JFIF\0") and len(content) >= 14:
        found["odd"] |= content[5] != 1
        return True
    if code == 0xEE and content.startswith(b"Adobe") and len(content) >= 12:
        found["odd"] |= not jfif and content[11] > 1
    elif code == 0xE1 and content.startswith(b"Exif\0\0"):
        found["orientation"] = found["orientation"] or _orientation(content[6:])
    elif code == 0xE1 and content.startswith(b"http://ns.adobe.com/xap/1.0/\0"):
        found["xmp"], found["xmp_end"] = end - len(content) + 29, end
    return jfif


def _orientation(exif):
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if len(exif) < 8 or order is None:
        return 0
    number, place = struct.unpack_from(order + "HI", exif, 2)
    if number != 42 or place + 2 > len(exif):
        return 0
    (count,) = struct.unpack_from(order + "H", exif, place)
    entries = [exif[place + 2 + 12 * k : place + 14 + 12 * k] for k in range(count)]
    found = 0
    for entry in entries:
        if len(entry) < 12:
            break
        tag, kind, values = struct.unpack_from(order + "HHI", entry)
        if tag == 0x0112:
            code = {3: "H", 8: "H", 4: "I", 9: "I"}.get(kind) if values == 1 else None
            value = struct.unpack_from(order + code, entry, 8)[0] if code else 0
            found = value if 1 <= value <= 8 else 1
    return found


def count_scans(data, scan, most, out):
    codes = [marker[1][0] for marker in MARKER.finditer(data.tobytes(), scan)]
    out[0] = min(1 + codes.count(0xDA), most + 1)


def splice_intervals(data, scan, intervals, first, stop, height_place, height, out, result):
    data = data.tobytes()
    header = bytearray(data[:scan])
    header[height_place : height_place + 2] = height.to_bytes(2, "big")
    # All that is no marker: pixels, 255 and 0 among them, and 255 before a marker.
    parts, place = [], scan
    for number in range(intervals):
        marker = MARKER.search(data, place)
        if marker is None:
            result[...] = kernels.CUT, number
            return
        code = marker[1][0]
        restarts = 0xD0 <= code <= 0xD7
        if restarts if number == intervals - 1 else code != 0xD0 + number % 8:
            result[...] = kernels.WRONG_RESTART, number
            return
        parts.append(data[place : marker.end() - 2])
        place = marker.end()
    spliced = bytes(header)
    for number in range(first, stop):
        last = number == stop - 1
        spliced += parts[number] + bytes([255, 0xD9 if last else 0xD0 + (number - first) % 8])
    out[: len(spliced)] = list(spliced)
    result[...] = kernels.FINE, len(spliced)
