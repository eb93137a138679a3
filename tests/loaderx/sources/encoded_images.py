"""Encoded images of every kind, made of pixels as in photographs, and checks of sources that deliver their bytes."""

import io
import pickle
import struct
import zlib

import cv2
import numpy as np
import simplejpeg
from PIL import Image

from loaderx.sources.encoded.source import EncodedImage
from tests.loaderx.sources.rows import values
from tests.waiting import join, started

SAMPLINGS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
# Blocks (MCU) of each sampling: pixels down and across.
BLOCKS = {
    "4:4:4": (8, 8),
    "4:2:2": (8, 16),
    "4:2:0": (16, 16),
    "4:4:0": (16, 8),
    "4:1:1": (8, 32),
    "grey": (8, 8),
}


def photograph(height, width, channels=3, seed=0):
    """Return pixels with details of all sizes, whose colours differ from row to row."""
    random = np.random.default_rng(seed)
    total = np.zeros((height, width, channels))
    for step in (1, 3, 8, 24):
        coarse = random.normal(size=(-(-height // step), -(-width // step), channels))
        total += step * coarse.repeat(step, 0).repeat(step, 1)[:height, :width]
    return np.clip(128 + 5 * total, 0, 255).astype(np.uint8)


def encode(pixels, kind, mode=None, **options):
    """Return a file of this kind, by Pillow."""
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def sampled_jpeg(pixels, sampling, interval=0):
    """Return a JPEG file with this sampling of colours, and a restart marker after every `interval` blocks."""
    options = [cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    if sampling == "grey":
        pixels = pixels[..., 0]
    else:
        pixels = pixels[..., ::-1]
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def by_simplejpeg(data, factor=1, space="RGB"):
    """Return all pixels of a JPEG file, as it is turned, by simplejpeg alone."""
    least = (0, 0)
    if factor > 1:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        least = -(-height // factor), -(-width // factor)
    return simplejpeg.decode_jpeg(data, space, min_height=least[0], min_width=least[1])


def orientation_exif(orientation, order="II", kind=3):
    """Return EXIF data with this orientation, as a number of 16 bits (kind 3) or 32 (kind 4)."""
    name = "little" if order == "II" else "big"

    def number(value, size):
        return value.to_bytes(size, name)

    value = number(orientation, 2) + bytes(2) if kind == 3 else number(orientation, 4)
    entry = number(0x0112, 2) + number(kind, 2) + number(1, 4) + value
    return (
        b"Exif\0\0"
        + order.encode()
        + number(42, 2)
        + number(8, 4)
        + number(1, 2)
        + entry
        + bytes(4)
    )


def png(header, rows, *chunks):
    """Return a PNG file with a header of (width, height, depth, colour type, interlace) and these bytes of rows."""

    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    width, height, depth, colours, interlace = header
    first = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, interlace)
    parts = [chunk(b"IHDR", first), *(chunk(*one) for one in chunks)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [*parts, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    )


def encoded(height, width, kind="JPEG", seed=0, channels=3):
    """Return an image file of smooth pixels."""
    pixels = values((height // 4 + 1, width // 4 + 1, channels), "u1", seed)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    memory = io.BytesIO()
    image.resize((width, height)).save(memory, kind)
    return memory.getvalue()


def pictures(count, kind="JPEG", channels=3):
    """Return images of different sizes and bytes."""
    return [encoded(9 + 5 * k, 30 - k, kind, k, channels) for k in range(count)]


def bytes_of(column):
    """Return the bytes of each encoded image of a column."""
    assert all(isinstance(image, EncodedImage) for image in column)
    return [bytes(image) for image in column]


def assert_same_rows(rows, expected):
    """Assert equal columns: encoded images by their bytes, numbers by dtype and value."""
    assert list(rows) == list(expected)
    for name, column in expected.items():
        if isinstance(column, list):
            assert bytes_of(rows[name]) == column
        else:
            assert rows[name].dtype == column.dtype
            np.testing.assert_array_equal(rows[name], column)


def picked(expected, rows):
    """Return some rows of columns, each a list of images or an array."""
    return {
        name: [column[row] for row in rows] if isinstance(column, list) else column[rows]
        for name, column in expected.items()
    }


def assert_delivers_images(source, expected):
    """Assert that a source has these rows: in any order, from threads, as a part, and as a copy."""
    count = len(next(iter(expected.values())))
    assert len(source) == count
    assert list(source.spec) == list(expected)
    rows = np.random.default_rng(0).integers(0, count, 3 * count)
    copied = pickle.loads(pickle.dumps(source))
    assert copied.spec == source.spec
    for one in (source, copied):
        assert_same_rows(one[:], expected)
        assert_same_rows(one[rows], picked(expected, rows))
    part = source.select(rows[:2]) + source.select([0])
    assert_same_rows(part[:], picked(expected, np.append(rows[:2], 0)))
    found = {}

    def read(number):
        found[number] = copied[rows[number:]]

    threads = [started(read, number) for number in range(4)]
    for thread in threads:
        join(thread)
    for number in range(4):
        assert_same_rows(found[number], picked(expected, rows[number:]))
