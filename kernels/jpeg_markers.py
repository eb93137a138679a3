"""Markers of JPEG files: what the header says, and files of some rows made of the intervals between restart markers.

Pixels are decoded by a library. Any bytes may come here, so nothing is read outside of them.
"""

from typing import Any

import numpy as np

from .compilation import gil_kernel, jitable

# The entries of a header, in the order of `HEADER`.
HEADER = (
    "status",  # one of those below
    "place",  # of the error
    "height",
    "width",
    "frame",  # 0 baseline, 1 extended sequential, 2 progressive, others as in ITU-T T.81, table B.1
    "precision",  # bits of a value
    "components",
    "across",  # samples of the first component, the brightness, per sample of the others; 1 without others
    "down",
    "regular",  # whether all other components have one sample
    "interval",  # blocks (MCU) from one restart marker to the next, or 0
    "odd",  # whether libjpeg will warn, although nothing is damaged
    "orientation",  # as EXIF data says, or 0
    "xmp",  # the XMP data, which may say it, too
    "xmp_end",
    "scan_components",
    "height_place",
    "scan",  # the first byte of compressed pixels
)
(
    STATUS, PLACE, HEIGHT, WIDTH, FRAME, PRECISION, COMPONENTS, ACROSS, DOWN, REGULAR, INTERVAL, ODD, ORIENTATION, XMP,
    XMP_END, SCAN_COMPONENTS, HEIGHT_PLACE, SCAN,
) = range(len(HEADER))  # fmt: skip
(
    FINE, CUT, NO_MARKER, BAD_LENGTH, TWO_FRAMES, NO_SIZE, NO_FRAME, NO_SCAN, WRONG_RESTART,
) = range(9)  # fmt: skip
# Second bytes of markers; the first is 255.
TEM, FIRST_FRAME, HUFFMAN, EXTENSION, ARITHMETIC = 0x01, 0xC0, 0xC4, 0xC8, 0xCC
RESTART, BEGIN, END, SCANS, INTERVALS, APP0, APP1, APP14 = (
    0xD0, 0xD8, 0xD9, 0xDA, 0xDD, 0xE0, 0xE1, 0xEE,
)  # fmt: skip
JFIF = np.frombuffer(b"JFIF\0", np.uint8)
EXIF = np.frombuffer(b"Exif\0\0", np.uint8)
ADOBE = np.frombuffer(b"Adobe", np.uint8)
XMP_NAME = np.frombuffer(b"http://ns.adobe.com/xap/1.0/\0", np.uint8)
ORIENTATION_TAG = 0x0112
# Bytes that are searched for a marker at once. [65 KB: 1.5 us; a byte at a time: 25 us]
STRIDE = 64


@jitable
def _number(data: Any, place: int, size: int, little: bool) -> Any:
    """Return the unsigned number of `size` bytes."""
    total = np.int64(0)
    for k in range(size):
        total = total * 256 + np.int64(data[place + (size - 1 - k if little else k)])
    return total


@jitable
def _begins_with(data: Any, place: int, end: int, name: Any) -> Any:
    same = 0
    while place + same < end and same < name.shape[0] and data[place + same] == name[same]:
        same += 1
    return same == name.shape[0]


@jitable
def _orientation(data: Any, begin: int, end: int) -> int:
    """Return the orientation in EXIF data, 1 if it makes no sense, and 0 if there is none."""
    if begin + 8 > end or data[begin] != data[begin + 1]:
        return 0
    little = data[begin] == ord("I")
    if not little and data[begin] != ord("M"):
        return 0
    if _number(data, begin + 2, 2, little) != 42:
        return 0
    entries = begin + _number(data, begin + 4, 4, little)
    if entries + 2 > end:
        return 0
    found = 0
    for k in range(_number(data, entries, 2, little)):
        entry = entries + 2 + 12 * k
        if entry + 12 > end:
            break
        if _number(data, entry, 2, little) == ORIENTATION_TAG:
            kind = _number(data, entry + 2, 2, little)
            value = 0
            if _number(data, entry + 4, 4, little) == 1:
                if kind in (3, 8):  # of 16 bits
                    value = _number(data, entry + 8, 2, little)
                elif kind in (4, 9):  # of 32 bits
                    value = _number(data, entry + 8, 4, little)
            found = value if 1 <= value <= 8 else 1
    return found


@jitable
def _read_frame(data: Any, place: int, length: int, out: Any) -> int:
    """Read the segment that says the size and the components of the image; return a status."""
    if out[COMPONENTS] > 0:
        return TWO_FRAMES
    if length < 8 or length != 8 + 3 * np.int64(data[place + 7]):
        return BAD_LENGTH
    out[PRECISION] = data[place + 2]
    out[HEIGHT] = _number(data, place + 3, 2, False)
    out[WIDTH] = _number(data, place + 5, 2, False)
    out[COMPONENTS] = data[place + 7]
    out[HEIGHT_PLACE] = place + 3
    if out[HEIGHT] == 0 or out[WIDTH] == 0 or out[COMPONENTS] == 0:
        return NO_SIZE
    out[ACROSS] = out[DOWN] = out[REGULAR] = 1
    if out[COMPONENTS] > 1:
        out[ACROSS], out[DOWN] = data[place + 9] >> 4, data[place + 9] & 15
    for component in range(1, out[COMPONENTS]):
        if data[place + 9 + 3 * component] != 0x11:
            out[REGULAR] = 0
    return FINE


@jitable
def _read_application(data: Any, marker: Any, place: int, end: int, jfif: bool, out: Any) -> bool:
    """Read a segment of an application; return whether a JFIF segment has been read."""
    content = place + 2
    if marker == APP0 and _begins_with(data, content, end, JFIF) and content + 14 <= end:
        if data[content + 5] != 1:  # The version, at which libjpeg warns.
            out[ODD] = 1
        return True
    if marker == APP14 and _begins_with(data, content, end, ADOBE) and content + 12 <= end:
        # With JFIF data libjpeg does not look at it.
        if not jfif and data[content + 11] > 1:
            out[ODD] = 1
    elif marker == APP1 and _begins_with(data, content, end, EXIF):
        if out[ORIENTATION] == 0:
            out[ORIENTATION] = _orientation(data, content + EXIF.shape[0], end)
    elif marker == APP1 and _begins_with(data, content, end, XMP_NAME):
        out[XMP], out[XMP_END] = content + XMP_NAME.shape[0], end
    return jfif


@gil_kernel
def read_markers(data: Any, out: Any) -> None:
    """Read all segments of a JPEG file that precede its pixels; `out` gets the entries of `HEADER`."""
    out[:] = 0
    size = data.shape[0]
    place, jfif = 2, False
    while True:
        out[PLACE] = place
        if place >= size:
            out[STATUS] = CUT
            return
        if data[place] != 255:
            out[STATUS] = NO_MARKER
            return
        while place < size and data[place] == 255:
            place += 1
        if place >= size:
            out[STATUS] = CUT
            return
        marker = np.int64(data[place])
        place += 1
        if marker == TEM or RESTART <= marker < BEGIN:
            continue
        if marker in (0, BEGIN, END):
            out[STATUS] = NO_SCAN if marker == END else NO_MARKER
            return
        if place + 2 > size:
            out[STATUS] = CUT
            return
        length = _number(data, place, 2, False)
        end = place + length
        if length < 2:
            out[STATUS] = BAD_LENGTH
        elif end > size:
            out[STATUS] = CUT
        elif (
            FIRST_FRAME <= marker < RESTART
            and marker != HUFFMAN
            and marker != EXTENSION
            and marker != ARITHMETIC
        ):
            out[STATUS] = _read_frame(data, place, length, out)
            out[FRAME] = marker - FIRST_FRAME
        elif marker == INTERVALS:
            if length == 4:
                out[INTERVAL] = _number(data, place + 2, 2, False)
            else:
                out[STATUS] = BAD_LENGTH
        elif marker == SCANS:
            if out[COMPONENTS] == 0:
                out[STATUS] = NO_FRAME
            elif length < 3 or length != 6 + 2 * np.int64(data[place + 2]):
                out[STATUS] = BAD_LENGTH
            else:
                out[SCAN_COMPONENTS] = data[place + 2]
                out[SCAN] = end
                return
        else:
            jfif = _read_application(data, marker, place, end, jfif, out)
        if out[STATUS] != FINE:
            return
        place = end


@jitable
def _next_marker(data: Any, place: Any) -> Any:
    """Return the place of the second byte of the next marker in compressed pixels; the size if none follows."""
    size = data.shape[0]
    while True:
        # A marker is 255 and another byte than 0, so this passes over a 255 of the pixels, after which there is a 0.
        while place + STRIDE < size:
            # Constant indices into a part are not checked, so that this becomes vector instructions.
            part, some = data[place : place + STRIDE + 1], False
            for k in range(STRIDE):
                some |= (part[k] == 255) & (part[k + 1] != 0)
            if some:
                break
            place += STRIDE
        while place + 1 < size and (data[place] != 255 or data[place + 1] == 0):
            place += 1
        if place + 1 >= size:
            return size
        # Any number of 255 may precede a marker, or a 0, which makes them pixels.
        while place < size and data[place] == 255:
            place += 1
        if place >= size or data[place] != 0:
            return place
        place += 1


@jitable
def _copy(data: Any, begin: int, end: int, target: int, out: Any) -> None:
    source, copy = data[begin:end], out[target : target + end - begin]
    for k in range(source.shape[0]):
        copy[k] = source[k]


@gil_kernel
def count_scans(data: Any, scan: int, most: int, out: Any) -> None:
    """Count the scans of a file, of which the first begins at `scan`; stop above `most`."""
    out[0], place = 1, scan
    while out[0] <= most:
        place = _next_marker(data, place)
        if place >= data.shape[0]:
            return
        if data[place] == SCANS:
            out[0] += 1
        place += 1


@gil_kernel
def splice_intervals(
    data: Any,
    scan: int,
    intervals: int,
    first: int,
    stop: int,
    height_place: int,
    height: int,
    out: Any,
    result: Any,
) -> None:
    """Write a file of this height with the intervals between restart markers from `first` to `stop`.

    All `intervals` must be there, with the right markers after them. `out` has room for two bytes more than `data`.
    `result` gets a status, and the size of the file or the number of the interval with the wrong marker.
    """
    size = data.shape[0]
    _copy(data, 0, scan, 0, out)
    out[height_place], out[height_place + 1] = height >> 8, height & 255
    begin = target = scan
    for number in range(intervals):
        end = _next_marker(data, begin)
        if end >= size:
            result[0], result[1] = CUT, number
            return
        marker = np.int64(data[end])
        is_restart = RESTART <= marker < RESTART + 8
        if is_restart if number == intervals - 1 else marker != RESTART + number % 8:
            result[0], result[1] = WRONG_RESTART, number
            return
        if first <= number < stop:
            _copy(data, begin, end - 1, target, out)
            target += end - 1 - begin
            out[target] = 255
            out[target + 1] = END if number == stop - 1 else RESTART + (number - first) % 8
            target += 2
        begin = end + 1
    result[0], result[1] = FINE, target
