"""Headers of JPEG files are read as they were written, files of some intervals as defined, and no byte outside."""

import io
import random
import re

import numpy as np
import pytest
from numba.core import config
from PIL import Image

from loaderx.kernels import jpeg_markers as kernels
from tests import reference
from tests.kernels.guard_pages import between_guard_pages

# Few in plain Python, where a file takes milliseconds.
DAMAGED = 200 if config.DISABLE_JIT else 5_000
PIXELS = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)


def jpeg(mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def array_of(data):
    """Return bytes as callers give them: read-only, and nothing after them may be touched."""
    array = between_guard_pages(len(data))
    array[:] = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def read(data):
    out, expected = np.full((2, len(kernels.HEADER)), -7, np.int64)
    kernels.read_markers(array_of(data), out)
    reference.read_markers(array_of(data), expected)
    assert out.tolist() == expected.tolist()
    return dict(zip(kernels.HEADER, out.tolist(), strict=True))


def segment(marker, content):
    return bytes([255, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def exif(entries, order="little", offset=8):
    """Return a segment of EXIF data with these entries of (tag, type, count, bytes of the value)."""
    packed = b"".join(
        b"".join(number.to_bytes(size, order) for number, size in ((tag, 2), (kind, 2), (count, 4)))
        + value.ljust(4, b"\0")
        for tag, kind, count, value in entries
    )
    head = {"little": b"II", "big": b"MM"}[order] + (42).to_bytes(2, order)
    head += offset.to_bytes(4, order) + len(entries).to_bytes(2, order)
    return segment(0xE1, b"Exif\0\0" + head + packed)


FRAME = segment(0xC0, bytes([8, 1, 2, 3, 4, 1, 1, 0x11, 0]))
SCAN = segment(0xDA, bytes([1, 1, 0, 0, 63, 0]))


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("RGB", {}, {"frame": 0, "components": 3, "across": 2, "down": 2, "regular": 1, "interval": 0}),
        ("RGB", {"subsampling": 0}, {"frame": 0, "across": 1, "down": 1, "scan_components": 3}),
        ("RGB", {"subsampling": 1}, {"across": 2, "down": 1, "regular": 1}),
        ("RGB", {"progressive": True}, {"frame": 2}),
        ("RGB", {"restart_marker_rows": 1}, {"interval": 5}),
        ("RGB", {"restart_marker_blocks": 7}, {"interval": 7}),
        ("L", {}, {"components": 1, "scan_components": 1}),
        ("CMYK", {}, {"components": 4, "across": 1}),
    ],
)  # fmt: skip
def test_headers_are_read_as_they_were_written(mode, options, expected):
    data = jpeg(mode, **options)
    found = read(data)
    expected = {
        "status": kernels.FINE,
        "height": 90,
        "width": 70,
        "precision": 8,
        "odd": 0,
        **expected,
    }
    assert {name: found[name] for name in expected} == expected
    assert data[found["height_place"] :][:4] == b"\0\x5a\0\x46"
    first = data.index(b"\xff\xda")
    assert found["scan"] == first + 2 + int.from_bytes(data[first + 2 : first + 4], "big")


def test_frames_of_all_kinds_are_told_apart():
    for number in range(16):
        found = read(b"\xff\xd8" + FRAME.replace(b"\xc0", bytes([0xC0 + number])) + SCAN)
        if number in (4, 8, 12):  # tables and extensions, so that there is no frame
            assert found["status"] == kernels.NO_FRAME
        else:
            assert (found["status"], found["frame"]) == (kernels.FINE, number)
            assert (found["height"], found["width"]) == (258, 772)


def test_other_samplings_are_not_regular():
    for second in (0x11, 0x21, 0x12):
        content = bytes([8, 0, 9, 0, 9, 3, 1, 0x21, 0, 2, second, 1, 3, 0x11, 1])
        found = read(b"\xff\xd8" + segment(0xC1, content) + SCAN)
        assert (found["across"], found["down"], found["regular"]) == (2, 1, second == 0x11)


def test_bytes_between_segments_may_be_repeated_markers():
    data = b"\xff\xd8\xff\xff\xff" + FRAME + b"\xff\x01\xff\xd0\xff" + SCAN
    assert read(data)["status"] == kernels.FINE
    assert read(data)["scan"] == len(data)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", kernels.CUT),
        (b"\xff", kernels.CUT),
        (b"\xff\xe0", kernels.CUT),
        (b"\xff\xe0\0", kernels.CUT),
        (b"\xff\xe0\0\3", kernels.CUT),
        (FRAME[:-1], kernels.CUT),
        (FRAME + SCAN[:-1], kernels.CUT),
        (FRAME, kernels.CUT),
        (b"x", kernels.NO_MARKER),
        (FRAME + b"\0" + SCAN, kernels.NO_MARKER),
        (b"\xff\0", kernels.NO_MARKER),
        (b"\xff\xd8", kernels.NO_MARKER),
        (FRAME + b"\xff\xd9", kernels.NO_SCAN),
        (SCAN, kernels.NO_FRAME),
        (FRAME + FRAME + SCAN, kernels.TWO_FRAMES),
        (b"\xff\xe0\0\1", kernels.BAD_LENGTH),
        (segment(0xC0, bytes(3)), kernels.BAD_LENGTH),
        (segment(0xC0, bytes([8, 0, 9, 0, 9, 2, 1, 0x11, 0])), kernels.BAD_LENGTH),
        (segment(0xDD, bytes(3)), kernels.BAD_LENGTH),
        (FRAME + segment(0xDA, b""), kernels.BAD_LENGTH),
        (FRAME + segment(0xDA, bytes([2, 1, 0, 0, 63, 0])), kernels.BAD_LENGTH),
        (segment(0xC0, bytes([8, 0, 0, 0, 9, 1, 1, 0x11, 0])), kernels.NO_SIZE),
        (segment(0xC0, bytes([8, 0, 9, 0, 0, 1, 1, 0x11, 0])), kernels.NO_SIZE),
        (segment(0xC0, bytes([8, 0, 9, 0, 9, 0])), kernels.NO_SIZE),
    ],
)
def test_damage_has_a_status(data, status):
    assert read(b"\xff\xd8" + data)["status"] == status


@pytest.mark.parametrize(
    ("segments", "odd"),
    [
        (segment(0xE0, b"JFIF\0\1\2" + bytes(7)), 0),
        (segment(0xE0, b"JFIF\0\0\2" + bytes(7)), 1),
        (segment(0xE0, b"JFIF\0\0\2"), 0),
        (segment(0xE0, b"JFXX\0\0\2" + bytes(7)), 0),
        (segment(0xEE, b"Adobe" + bytes(6) + b"\1"), 0),
        (segment(0xEE, b"Adobe" + bytes(6) + b"\2"), 1),
        (segment(0xEE, b"Adobe" + bytes(6)), 0),
        (segment(0xE0, b"JFIF\0\1\2" + bytes(7)) + segment(0xEE, b"Adobe" + bytes(6) + b"\2"), 0),
    ],
)
def test_headers_at_which_libjpeg_warns_are_odd(segments, odd):
    assert read(b"\xff\xd8" + segments + FRAME + SCAN)["odd"] == odd


def orientation_of(*segments):
    return read(b"\xff\xd8" + b"".join(segments) + FRAME + SCAN)["orientation"]


@pytest.mark.parametrize("order", ["little", "big"])
def test_orientations_are_read_in_both_byte_orders(order):
    width = (0x0100, 4, 1, (70).to_bytes(4, order))
    for value in range(1, 9):
        for kind, size in ((3, 2), (4, 4), (8, 2), (9, 4)):
            entry = (0x0112, kind, 1, value.to_bytes(size, order))
            assert orientation_of(exif([entry], order)) == value
            assert orientation_of(exif([width, entry], order)) == value


def test_orientations_that_make_no_sense_are_upright():
    for value in (0, 9, 256, 65535):
        assert orientation_of(exif([(0x0112, 3, 1, value.to_bytes(2, "little"))])) == 1
    assert orientation_of(exif([(0x0112, 2, 1, b"6")])) == 1
    assert orientation_of(exif([(0x0112, 3, 2, b"\6\0\6\0")])) == 1


def test_where_there_is_no_orientation_it_is_0():
    assert orientation_of() == 0
    assert orientation_of(exif([(0x0100, 3, 1, b"\6\0")])) == 0
    assert orientation_of(exif([], offset=10_000)) == 0
    assert orientation_of(exif([], offset=2**32 - 1)) == 0
    for content in (b"", b"II", b"IM*\0\10\0\0\0", b"II+\0\10\0\0\0", b"XX*\0\10\0\0\0\0\0"):
        assert orientation_of(segment(0xE1, b"Exif\0\0" + content)) == 0


def test_the_first_orientation_counts():
    first, second = (exif([(0x0112, 3, 1, bytes([value, 0]))]) for value in (6, 3))
    assert orientation_of(first, second) == 6
    assert orientation_of(exif([]), second) == 3


def test_xmp_data_is_found():
    name = b"http://ns.adobe.com/xap/1.0/\0"
    data = b"\xff\xd8" + segment(0xE1, name + b"some text") + FRAME + SCAN
    found = read(data)
    assert data[found["xmp"] : found["xmp_end"]] == b"some text"
    assert read(b"\xff\xd8" + segment(0xE1, name[:-1]) + FRAME + SCAN)["xmp"] == 0


def test_no_byte_outside_of_a_header_is_read():
    source = random.Random(0)
    original = jpeg(exif=exif([(0x0112, 3, 1, b"\6\0")])[4:], restart_marker_rows=1)[:800]
    for end in range(2, 400, 400 // min(DAMAGED, 400)):
        read(original[:end])
    statuses = set()
    for _ in range(DAMAGED):
        data = bytearray(original)
        for _ in range(source.choice([1, 3, 30])):
            data[source.randrange(2, 700)] = source.choice([0, 1, 255, source.randrange(256)])
        statuses.add(read(bytes(data[: source.randrange(2, 800)]))["status"])
    assert {kernels.FINE, kernels.CUT, kernels.NO_MARKER} <= statuses


# Intervals between restart markers


def splice(data, *arguments, function=kernels.splice_intervals):
    out, result = between_guard_pages(len(data) + 2), np.empty(2, np.int64)
    function(array_of(data), *arguments, out, result)
    status, size = result.tolist()
    return (status, size), out[:size].tobytes() if status == kernels.FINE else b""


def assert_spliced(data, *arguments):
    found = splice(data, *arguments)
    assert found == splice(data, *arguments, function=reference.splice_intervals)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_intervals_are_spliced_as_defined(seed):
    source = random.Random(seed)
    intervals = source.choice([2, 3, 9, 30])
    parts = []
    for number in range(intervals):
        part = source.randbytes(source.choice([1, 10, 63, 64, 65, 300]))
        part = re.sub(rb"\xff", b"\xff\0", part)
        # Bytes of pixels and before markers that look like markers.
        part += source.choice([b"", b"\xff\xff\0", b"\xff\0\xff\0", b"\xff", b"\xff\xff"])
        end = 0xD0 + number % 8 if number < intervals - 1 else 0xD9
        parts.append(part + bytes([255, end]))
    header = source.randbytes(40)
    data = header + b"".join(parts)
    for first in range(0, intervals, max(1, intervals // 4)):
        for stop in {first + 1, (first + intervals + 1) // 2, intervals}:
            if first < stop:
                (status, size), out = assert_spliced(
                    data, 40, intervals, first, stop, 5, source.randrange(65536)
                )
                assert status == kernels.FINE
                assert size == len(out) <= len(data) + 2
    # More and fewer than there are.
    assert assert_spliced(data, 40, intervals + 1, 0, 1, 5, 9)[0] == (
        kernels.WRONG_RESTART, intervals - 1,
    )  # fmt: skip
    assert assert_spliced(data, 40, intervals - 1, 0, 1, 5, 9)[0][0] == kernels.WRONG_RESTART
    assert assert_spliced(data[:-1], 40, intervals, 0, 1, 5, 9)[0] == (kernels.CUT, intervals - 1)


def test_no_byte_outside_is_touched_whatever_the_bytes():
    source = random.Random(0)
    outcomes = set()
    for _ in range(DAMAGED):
        alphabet = source.choice(
            [[255, 0, 0xD0], [255, 0xD0, 0xD1, 0xD9, 7], list(range(256)), [255]]
        )
        data = bytes(20) + bytes(source.choices(alphabet, k=source.randrange(0, 200)))
        intervals = source.randrange(1, 5)
        first = source.randrange(intervals)
        stop = source.randrange(first + 1, intervals + 1)
        outcomes.add(assert_spliced(data, 20, intervals, first, stop, 3, 1)[0][0])
    assert outcomes == {kernels.FINE, kernels.CUT, kernels.WRONG_RESTART}


def test_spliced_files_are_images_of_these_rows():
    data = jpeg(restart_marker_rows=1, subsampling=0)
    found = read(data)
    _, spliced = splice(data, found["scan"], 12, 2, 5, found["height_place"], 24)
    whole, part = (np.asarray(Image.open(io.BytesIO(file))) for file in (data, spliced))
    np.testing.assert_array_equal(part, whole[16:40])


def test_scans_are_counted_up_to_a_limit():
    data = jpeg(progressive=True)
    scan, out = read(data)["scan"], np.empty(1, np.int64)
    scans = data.count(b"\xff\xda")
    assert scans > 5
    for most, expected in ((100, scans), (5, 6), (scans, scans), (1, 2)):
        for count_scans in (kernels.count_scans, reference.count_scans):
            count_scans(array_of(data), scan, most, out)
            assert out[0] == expected
    kernels.count_scans(array_of(data[:scan]), scan, 100, out)
    assert out[0] == 1
