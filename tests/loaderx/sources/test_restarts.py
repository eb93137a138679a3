"""JPEG files with restart markers after every row of blocks have the same pixels, in the whole and in every window."""

import io

import numpy as np
import pytest
from PIL import Image

from loaderx import Encoded
from loaderx.sources.encoded.decoding import decode, read_header
from loaderx.sources.encoded.restarts import Huffman, has_restart_rows, with_restart_rows
from tests.kernels.jpeg_coefficients import codes, coefficients, header
from tests.loaderx.sources.encoded_images import (
    BLOCKS,
    SAMPLINGS,
    by_simplejpeg,
    encode,
    orientation_exif,
    photograph,
    sampled_jpeg,
)

RGB = Encoded()


def marked(data):
    return with_restart_rows(data, read_header(data, RGB).markers)


def by_pillow(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def outcome(data):
    """Return the pixels of a file as bytes, or None if Pillow cannot decode it."""
    try:
        return by_pillow(data).tobytes()
    except OSError:
        return None


def assert_same_pixels(data):
    """Assert that a file can be marked, and that two libraries decode the same pixels; return it."""
    found = marked(data)
    np.testing.assert_array_equal(by_simplejpeg(data), by_simplejpeg(found))
    np.testing.assert_array_equal(by_pillow(data), by_pillow(found))
    assert has_restart_rows(read_header(found, RGB).markers)
    return found


@pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
@pytest.mark.parametrize("interval", [0, 1, 7])
def test_files_of_every_sampling_keep_their_pixels(sampling, interval):
    for seed, size in enumerate([(1, 1), (7, 300), (33, 17), (128, 64), (91, 205)]):
        assert_same_pixels(sampled_jpeg(photograph(*size, seed=seed), sampling, interval))


@pytest.mark.parametrize("options", [{}, {"quality": 1}, {"quality": 100}, {"subsampling": 0}])
def test_the_file_is_the_one_that_libjpeg_writes_itself(options):
    for size in ((90, 70), (17, 33), (16, 16)):
        pixels = photograph(*size)
        one_row = size == (16, 16) and "subsampling" not in options
        own = encode(pixels, "JPEG", restart_marker_rows=1, **options)
        found = assert_same_pixels(encode(pixels, "JPEG", **options))
        assert header(found).begin == header(own).begin
        assert found == own or one_row


@pytest.mark.parametrize("seed", range(5))
def test_tables_of_the_file_are_extended_where_they_lack_a_category(seed):
    # Brighter from row to row: differences are small, and values at the bottom are large.
    grey = 128 + np.arange(160)[:, None, None] / 160 * [100, 60, -60]
    pixels = (grey + photograph(160, 120, seed=seed) / 64).astype(np.uint8)
    data = encode(pixels, "JPEG", optimize=True, quality=20 + 15 * seed)
    found = assert_same_pixels(data)
    before, after = header(data), header(found)
    assert coefficients(data)[0] == coefficients(found)[0]
    assert before.tables.keys() == after.tables.keys()
    assert found.count(b"\xff\xc4") > data.count(b"\xff\xc4")
    for key, table in before.tables.items():
        # Codes stay, so that nothing else grows.
        assert codes(table).items() <= codes(after.tables[key]).items()


def test_huffman_tables_are_extended_by_longer_codes_or_replaced():
    def lengths(table):
        return [length for length, count in enumerate(table.counts, 1) for _ in range(count)]

    usual = Huffman(bytes([0, 3]) + bytes(14), b"\4\2\0").extended()
    assert sorted(usual.symbols) == list(range(12))
    assert usual.symbols[:3] == b"\4\2\0"
    assert lengths(usual) == [2, 2, 2, *range(3, 12)]
    empty = Huffman(bytes(16), b"").extended()
    assert sorted(empty.symbols) == list(range(12))
    # No room for another code.
    for full in (
        Huffman(bytes([2]) + bytes(15), b"\0\1"),
        Huffman(bytes([1] * 16), bytes(range(200, 216))),
    ):
        replaced = full.extended()
        assert replaced.symbols == bytes(range(12))
        assert sum(2.0**-length for length in lengths(replaced)) < 1
    assert replaced.extended() is replaced


def test_metadata_stays():
    exif = orientation_exif(6)
    data = encode(
        photograph(40, 60), "JPEG", exif=exif, icc_profile=b"colours" * 9, comment=b"words"
    )
    image = Image.open(io.BytesIO(assert_same_pixels(data)))
    assert image.info["exif"] == exif
    assert image.info["icc_profile"] == b"colours" * 9
    assert image.info["comment"] == b"words"
    assert image.getexif()[0x0112] == 6


def test_bytes_after_the_image_are_dropped():
    data = encode(photograph(40, 60), "JPEG")
    assert marked(data + b"a film" * 1000) == marked(data)


def test_files_that_are_not_sequential_are_refused():
    pixels = photograph(40, 60)
    assert marked(encode(pixels, "JPEG", progressive=True)) is None
    assert marked(encode(pixels, "JPEG", "CMYK")) is None
    data = encode(pixels, "JPEG")
    # Other codes, 12 bits, more scans, and a scan of some coefficients.
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    for place, value in ((frame + 1, 0xC9), (frame + 4, 12), (scan + 12, 20)):
        other = bytearray(data)
        other[place] = value
        assert marked(bytes(other)) is None
    assert marked(data[:-2] + data[scan:]) is None


@pytest.mark.parametrize("place", ["tables", "components", "sampling", "pixels"])
def test_damaged_headers_are_refused_or_kept(place):
    data = encode(photograph(40, 60), "JPEG")
    begin, end = {
        "tables": (data.index(b"\xff\xc4") + 4, data.index(b"\xff\xda")),
        "components": (data.index(b"\xff\xda") + 4, header(data).begin),
        "sampling": (data.index(b"\xff\xc0") + 9, data.index(b"\xff\xc4")),
        "pixels": (header(data).begin, len(data)),
    }[place]
    refused = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        other = bytearray(data)
        other[rng.integers(begin, end)] = rng.integers(256)
        try:
            markers = read_header(bytes(other), RGB).markers
        except ValueError:
            continue
        found = with_restart_rows(bytes(other), markers)
        refused += found is None
        if found is not None:
            assert outcome(bytes(other)) == outcome(found)
    assert refused > 10


def test_rows_with_markers_are_told_from_others():
    def has(data):
        return has_restart_rows(read_header(data, RGB).markers)

    pixels = photograph(100, 160)
    assert not has(encode(pixels, "JPEG"))
    assert has(encode(pixels, "JPEG", restart_marker_rows=1))
    assert not has(encode(pixels, "JPEG", restart_marker_rows=2))
    assert has(encode(pixels, "JPEG", restart_marker_blocks=5))
    assert not has(encode(pixels, "JPEG", restart_marker_blocks=3))
    assert has(encode(pixels[:16], "JPEG"))
    assert not has(encode(pixels[:16], "JPEG", progressive=True))


@pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
def test_windows_have_the_pixels_of_the_whole(sampling):
    data = sampled_jpeg(photograph(203, 150, seed=3), sampling)
    file = marked(data)
    whole = decode(data, read_header(data, RGB), RGB).pixels
    head = read_header(file, RGB)
    down, _ = BLOCKS[sampling]
    rng = np.random.default_rng(0)
    for first, stop in [
        (0, 1),
        (202, 203),
        (down, 2 * down),
        *np.sort(rng.integers(0, 203, (20, 2))),
    ]:
        found = decode(file, head, RGB, (int(first), max(int(stop), int(first) + 1)))
        np.testing.assert_array_equal(found.pixels[0], whole[first])
        rows = found.first + np.arange(len(found.pixels))
        np.testing.assert_array_equal(found.pixels, whole[rows])
