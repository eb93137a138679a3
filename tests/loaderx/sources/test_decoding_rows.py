"""Only the rows that are needed are decoded, and they are those of the whole image, bit for bit."""

import io

import numpy as np
import pytest
from PIL import Image

from loaderx import DataError
from loaderx.sources.encoded.decoding import decode, read_header
from loaderx.sources.encoded.field import Encoded
from tests.loaderx.sources.encoded_images import (
    BLOCKS,
    by_simplejpeg,
    encode,
    orientation_exif,
    photograph,
    sampled_jpeg,
)

SIZES = [(61, 83), (96, 64), (17, 9)]


def blocks_across(sampling, width):
    return -(-width // BLOCKS[sampling][1])


def some_rows(height):
    """Return first rows, last ones, single ones, all, and those around the edges of blocks."""
    edges = sorted({row + more for row in range(0, height, 8) for more in (0, 1)} | {height})
    found = {(0, 1), (height - 1, height), (0, height), (height // 2, height // 2 + 1)}
    found |= {(max(edge - 1, 0), edge) for edge in edges if 0 < edge <= height}
    found |= {(edge, min(edge + 9, height)) for edge in edges if edge < height}
    return sorted(found)


def decoded_rows(data, rows, factor=1, **options):
    """Return the rows that were asked for, and how many were decoded."""
    encoded = Encoded()
    header = read_header(data, encoded)
    decoded = decode(data, header, encoded, rows, factor, **options)
    first, stop = rows
    assert decoded.first <= first
    assert decoded.first + len(decoded.pixels) >= stop
    return decoded.pixels[first - decoded.first : stop - decoded.first], len(decoded.pixels)


def assert_all_rows(data, **options):
    """Assert that any rows of a file are those of the whole image."""
    for factor in read_header(data, Encoded()).factors:
        whole = by_simplejpeg(data, factor)
        for rows in some_rows(len(whole)):
            pixels, _ = decoded_rows(data, rows, factor, **options)
            np.testing.assert_array_equal(pixels, whole[slice(*rows)], f"{rows} by {factor}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sampling", BLOCKS)
def test_rows_between_restart_markers_are_those_of_the_whole_image(sampling, size):
    interval = blocks_across(sampling, size[1])
    assert_all_rows(sampled_jpeg(photograph(*size), sampling, interval))


# Two and three rows of blocks, the whole image, a part of a row, parts that end in other rows, and single blocks.
@pytest.mark.parametrize("share", [(2, 1), (3, 1), (9, 1), (1, 2), (2, 3), (3, 2), (0, 1)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
def test_intervals_need_not_be_rows_of_blocks(sampling, share):
    across = blocks_across(sampling, 96)
    interval = max(across * share[0] // share[1], 1)
    data = sampled_jpeg(photograph(113, 96), sampling, interval)
    assert_all_rows(data)


@pytest.mark.parametrize("sampling", BLOCKS)
def test_rows_without_restart_markers_are_those_of_the_whole_image(sampling):
    assert_all_rows(sampled_jpeg(photograph(61, 83), sampling), stop_early=True)


@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}])
def test_rows_of_progressive_files_are_those_of_the_whole_image(options):
    data = encode(photograph(61, 83), "JPEG", progressive=True, **options)
    assert_all_rows(data, stop_early=True)


def test_fewer_rows_are_decoded_where_the_file_allows_it():
    pixels = photograph(160, 64)
    assert decoded_rows(sampled_jpeg(pixels, "4:2:0", 4), (70, 75))[1] == 5
    assert decoded_rows(sampled_jpeg(pixels, "4:2:0"), (70, 75), stop_early=True)[1] == 5
    assert decoded_rows(sampled_jpeg(pixels, "4:2:0"), (70, 75))[1] == 160


def test_damage_outside_of_the_rows_between_restart_markers_does_no_harm():
    pixels = photograph(160, 64)
    data = sampled_jpeg(pixels, "4:2:0", 4)
    right = by_simplejpeg(data)
    damaged = data[: data.index(b"\xff\xd4") + 20] + data[data.index(b"\xff\xd5") :]
    with pytest.raises(DataError, match="the JPEG file is damaged: Corrupt JPEG data"):
        decoded_rows(damaged, (80, 90))
    for rows in [(0, 79), (97, 160)]:
        np.testing.assert_array_equal(decoded_rows(damaged, rows)[0], right[slice(*rows)])


@pytest.mark.parametrize("marker", range(9))
def test_a_missing_or_wrong_restart_marker_is_an_error_wherever_it_is(marker):
    original = sampled_jpeg(photograph(160, 64), "4:2:0", 4)
    places = [
        place
        for place in range(original.index(b"\xff\xda"), len(original) - 1)
        if original[place] == 255 and 0xD0 <= original[place + 1] <= 0xD7
    ]
    assert len(places) == 9
    place = places[marker]
    another = bytes([0xD0 + (original[place + 1] + 3) % 8])
    damage = {
        1: original[:place] + original[place + 2 :],
        2: original[: place + 1] + another + original[place + 2 :],
        3: original[:place] + original[place : place + 2] + original[place:],
    }
    for kind, damaged in damage.items():
        part = marker + (2 if kind == 3 else 1)
        for rows in [(0, 5), (150, 160)]:
            with pytest.raises(DataError, match=f"a wrong marker ends part {part} of 10 between"):
                decoded_rows(damaged, rows)


def test_a_file_that_ends_too_early_is_an_error_wherever_the_rows_are():
    data = sampled_jpeg(photograph(160, 64), "4:2:0", 4)
    for end in range(data.index(b"\xff\xd7"), len(data) - 1, 50):
        with pytest.raises(DataError, match=r"the file ends in part (8|9|10) of 10 between"):
            decoded_rows(data[:end], (0, 5))


def test_more_restart_markers_than_rows_are_an_error():
    data = sampled_jpeg(photograph(160, 64), "4:2:0", 4)
    with pytest.raises(DataError, match="a wrong marker ends part 10 of 10 between"):
        decoded_rows(data[:-2] + b"\xff\xd1" + data[-50:], (0, 5))


def test_damage_above_the_last_row_is_noticed_when_decoding_stops_early():
    data = sampled_jpeg(photograph(160, 64), "4:2:0")
    scan = data.index(b"\xff\xda") + 14
    # The end of the image, which the decoder does not pass.
    damaged = data[: scan + 200] + b"\xff\xd9" + data[scan + 202 :]
    with pytest.raises(DataError, match="damaged: Corrupt JPEG data: premature end"):
        decoded_rows(damaged, (60, 100), stop_early=True)


def test_damage_below_the_last_row_is_not_looked_for_when_decoding_stops_early():
    data = sampled_jpeg(photograph(160, 64), "4:2:0")
    cut = data[: len(data) * 3 // 4] + b"\xff\xd9"
    with pytest.raises(DataError, match="premature end"):
        decoded_rows(cut, (0, 40))
    pixels, _ = decoded_rows(cut, (0, 40), stop_early=True)
    np.testing.assert_array_equal(pixels, by_simplejpeg(data)[:40])


@pytest.mark.parametrize("size", [(64, 80), (61, 83)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rows_of_turned_images_are_those_of_the_upright_image(orientation, size):
    data = encode(
        photograph(*size), "JPEG", exif=orientation_exif(orientation), restart_marker_rows=1
    )
    encoded = Encoded()
    header = read_header(data, encoded)
    for factor in header.factors:
        whole = decode(data, header, encoded, None, factor).pixels
        for rows in some_rows(len(whole)):
            pixels, _ = decoded_rows(data, rows, factor)
            np.testing.assert_array_equal(pixels, whole[slice(*rows)])
    if orientation in (1, 2, 3, 4):
        assert decoded_rows(data, (20, 30))[1] == 10


def test_the_sampling_of_grey_has_no_meaning():
    data = bytearray(sampled_jpeg(photograph(61, 83), "grey", 11))
    frame = data.index(b"\xff\xc0")
    assert data[frame + 11] == 0x11
    data[frame + 11] = 0x22
    assert_all_rows(bytes(data))


def test_files_with_restart_markers_by_pillow_are_read_alike():
    pixels = photograph(61, 83)
    data = encode(pixels, "JPEG", restart_marker_rows=1)
    np.testing.assert_array_equal(
        decoded_rows(data, (20, 41))[0], np.asarray(Image.open(io.BytesIO(data)))[20:41]
    )
    assert_all_rows(data)
