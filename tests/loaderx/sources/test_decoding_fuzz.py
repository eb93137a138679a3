"""Damage to an image leads to an error at worst: hundreds of mutations of each format, and ten thousand in long runs.

An image that is decoded has the pixels that a stock decoder makes of the same bytes, and that decoder has no complaint.
JPEG and WebP have no checksums, so these may be other pixels than before the damage; those of PNG are the same.
"""

import contextlib
import io
import random
from collections import Counter

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from loaderx import DataError
from loaderx.kernels import jpeg_markers
from loaderx.sources.encoded import jpeg
from loaderx.sources.encoded.decoding import decode, read_header
from loaderx.sources.encoded.field import Encoded
from tests.loaderx.sources.encoded_images import (
    by_simplejpeg,
    encode,
    orientation_exif,
    photograph,
    sampled_jpeg,
)

HEIGHT, WIDTH = 80, 60
PIXELS = photograph(HEIGHT, WIDTH)
# Files of which only some rows are decoded, the others whole.
ORIGINALS = {
    "baseline": sampled_jpeg(PIXELS, "4:2:0"),
    "turned": encode(PIXELS, "JPEG", exif=orientation_exif(6)),
    "progressive": encode(PIXELS, "JPEG", progressive=True),
    "cmyk": encode(PIXELS, "JPEG", "CMYK"),
    "png": encode(PIXELS, "PNG"),
    "palette": encode(PIXELS, "PNG", "P", exif=orientation_exif(3)),
    "webp": encode(PIXELS, "WEBP", quality=80),
    "lossless": encode(PIXELS, "WEBP", lossless=True, exif=orientation_exif(8)),
}
WITH_RESTARTS = {
    "4:2:0": sampled_jpeg(PIXELS, "4:2:0", 4),
    "4:4:4": sampled_jpeg(PIXELS, "4:4:4", 8),
    "parts": sampled_jpeg(PIXELS, "4:2:2", 3),
}
# PNG is an error or has the same pixels: stock decoders compare some of its checksums only.
CHECKSUMMED = ("png", "palette")
# No more is decoded: damage to the size must not make this slow.
ENCODED = Encoded(max_pixels=1_000_000)
ORIGINAL_PIXELS = {
    name: decode(ORIGINALS[name], read_header(ORIGINALS[name], ENCODED), ENCODED).pixels
    for name in CHECKSUMMED
}
NUMBERS = [
    pytest.param(range(300), id="few"),
    pytest.param(range(10_000), id="many", marks=pytest.mark.long),
]


def mutation(original, number):
    """Return damaged bytes, and the first place that differs."""
    source = random.Random(number)
    data = bytearray(original)
    # Headers are short, and there is much in them.
    place = source.randrange(len(data) if source.random() < 0.6 else min(len(data), 700))
    size = source.choice([1, 2, 7, 50, 400])
    kind = source.randrange(8)
    if kind < 2:
        data[place] ^= 1 << source.randrange(8)
    elif kind == 2:
        data[place] = source.choice([0, 1, 127, 128, 255, source.randrange(256)])
    elif kind == 3:
        del data[place : place + size]
    elif kind == 4:
        data[place:place] = source.randbytes(size)
    elif kind == 5:
        data[place : place + size] = bytes([source.choice([0, 255])]) * len(
            data[place : place + size]
        )
    elif kind == 6:
        other = source.randrange(len(data))
        data[place : place + size] = data[other : other + size]
    else:
        del data[place:]
    return bytes(data), place


TURNS = [None, *(Image.Transpose[name] for name in (
    "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90",
))]  # fmt: skip


def stock_pixels(data, header):
    """Return the upright pixels as stock decoders make them of these bytes; raise an error if they complain."""
    with Image.open(io.BytesIO(data)) as image:
        if header.markers is not None and header.markers.simple:
            pixels = Image.fromarray(by_simplejpeg(data))
        else:
            pixels = image.convert("RGB")
        try:
            turn = image.getexif().get(0x0112, 1)
        except Exception:  # noqa: BLE001 - Pillow raises almost any exception on damaged EXIF data
            turn = 1
    return np.asarray(pixels.transpose(TURNS[turn - 1]) if turn in range(2, 9) else pixels)


def lenient_pixels(data, header):
    """Return what libjpeg makes of these bytes, whatever it complains about."""
    pixels = np.zeros((header.height, header.width, 3), np.uint8)
    with contextlib.suppress(ValueError):
        simplejpeg.decode_jpeg(data, buffer=pixels.reshape(-1), strict=False)
    return pixels


@pytest.mark.filterwarnings("ignore")  # of Pillow, about damage
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", ORIGINALS)
def test_a_damaged_image_is_an_error_or_as_stock_decoders_decode_it(name, numbers):
    counts = Counter()
    for number in numbers:
        data, _ = mutation(ORIGINALS[name], number)
        try:
            header = read_header(data, ENCODED)
            pixels = decode(data, header, ENCODED).pixels
        except DataError as error:
            counts["error"] += 1
            counts["sentences"] += str(error).endswith(".")
            continue
        expected = ORIGINAL_PIXELS[name] if name in CHECKSUMMED else stock_pixels(data, header)
        np.testing.assert_array_equal(pixels, expected, f"mutation {number}")
        counts["decoded"] += 1
    # PNG has checksums, so almost all damage to it is noticed.
    assert counts["error"] > len(numbers) // 20, counts
    assert counts["sentences"] == counts["error"], counts
    assert counts["decoded"] > (0 if name in CHECKSUMMED else len(numbers) // 20), counts


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", WITH_RESTARTS)
def test_rows_of_a_damaged_image_are_an_error_or_right(name, numbers):
    original = WITH_RESTARTS[name]
    right = by_simplejpeg(original)
    scan = jpeg.read_markers(original).scan
    counts = Counter()
    for number in numbers:
        data, place = mutation(original, number)
        first = random.Random(number).randrange(HEIGHT)
        try:
            header = read_header(data, ENCODED)
            rows = min(first, header.height - 1), min(first + 20, header.height)
            found = decode(data, header, ENCODED, rows)
        except DataError:
            counts["error"] += 1
            continue
        if not header.markers.simple:
            counts["by Pillow"] += 1
            continue
        pixels = found.pixels[rows[0] - found.first : rows[1] - found.first]
        try:
            expected = by_simplejpeg(data)
            counts["decoded"] += 1
        except ValueError:
            # Damage elsewhere: in other rows, or in a table of the header that these rows do not need. Where libjpeg
            # notices no damage in these rows, it notices none in the whole file.
            expected = lenient_pixels(data, header)
            if place >= scan and np.array_equal(pixels, right[slice(*rows)]):
                expected = right
                counts["right in spite of damage elsewhere"] += 1
        np.testing.assert_array_equal(pixels, expected[slice(*rows)], f"mutation {number}")
    assert min(counts["error"], counts["decoded"]) > len(numbers) // 20, counts
    assert counts["right in spite of damage elsewhere"] > len(numbers) // 50, counts


@pytest.mark.parametrize("numbers", NUMBERS)
def test_rows_that_decoding_stops_after_are_an_error_or_those_of_a_lenient_decoder(numbers):
    original = ORIGINALS["baseline"]
    counts = Counter()
    for number in numbers:
        data, _ = mutation(original, number)
        try:
            header = read_header(data, ENCODED)
            rows = 0, min(50, header.height)
            found = decode(data, header, ENCODED, rows, stop_early=True)
        except DataError:
            counts["error"] += 1
            continue
        if header.markers.simple:
            expected = lenient_pixels(data, header)
            np.testing.assert_array_equal(
                found.pixels[: rows[1]], expected[: rows[1]], f"mutation {number}"
            )
            counts["decoded"] += 1
    assert min(counts["error"], counts["decoded"]) > len(numbers) // 20, counts


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4", "4:2:2", "grey"])
def test_an_image_that_is_decoded_whole_is_decoded_alike_when_decoding_stops_early(
    sampling, numbers
):
    """A row is decoded whole once by each process: otherwise batches would depend on what it read before."""
    original = sampled_jpeg(PIXELS, sampling)
    counts = Counter()
    for number in numbers:
        data, _ = mutation(original, number)
        try:
            header = read_header(data, ENCODED)
            whole = {
                factor: decode(data, header, ENCODED, factor=factor).pixels
                for factor in header.factors
            }
        except DataError:
            counts["error"] += 1
            continue
        source = random.Random(number)
        for factor, pixels in whole.items():
            first = source.randrange(len(pixels))
            stop = source.randrange(first + 1, len(pixels) + 1)
            found = decode(data, header, ENCODED, (first, stop), factor, stop_early=True)
            rows = found.pixels[first - found.first : stop - found.first]
            np.testing.assert_array_equal(rows, pixels[first:stop], f"mutation {number}")
        counts["decoded"] += 1
    assert min(counts["error"], counts["decoded"]) > len(numbers) // 20, counts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*ORIGINALS, *WITH_RESTARTS])
def test_no_image_is_decoded_from_a_part_of_its_pixels(name):
    original = {**ORIGINALS, **WITH_RESTARTS}[name]
    whole = decode(original, read_header(original, ENCODED), ENCODED).pixels
    for end in range(1, len(original), max(1, len(original) // 100)):
        try:
            pixels = decode(original[:end], read_header(original[:end], ENCODED), ENCODED).pixels
        except DataError:
            continue
        # Of PNG, the last chunk may be missing, which is empty.
        assert end > len(original) - 30
        np.testing.assert_array_equal(pixels, whole)


def test_bytes_at_random_are_an_error():
    for number in range(300):
        content = random.Random(number).randbytes(300)
        for magic in (
            b"\xff\xd8\xff",
            b"\x89PNG\r\n\x1a\n",
            b"RIFF\0\0\0\0WEBPVP8 ",
            b"GIF89a",
            b"BM",
        ):
            data = magic + content
            with pytest.raises(DataError):
                decode(data, read_header(data, ENCODED), ENCODED)


def test_mutations_are_the_same_whenever_they_are_made():
    original = ORIGINALS["baseline"]
    assert mutation(original, 5) == mutation(original, 5)
    assert len({mutation(original, number) for number in range(100)}) == 100


def test_headers_end_before_the_pixels():
    markers = jpeg.read_markers(ORIGINALS["baseline"])
    assert markers.status == jpeg_markers.FINE
    assert ORIGINALS["baseline"][: markers.scan].rindex(b"\xff\xda") == markers.scan - 14
