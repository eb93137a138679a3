"""Images of all formats are decoded as by Pillow and simplejpeg, upright, and damaged ones are errors."""

import io
import sys
import threading
import warnings

import numpy as np
import pytest
from PIL import Image, ImageOps

from loaderx import ArgumentError, DataError
from loaderx.kernels import jpeg_markers
from loaderx.sources.encoded import jpeg
from loaderx.sources.encoded.decoding import decode, decoder_description, read_header
from loaderx.sources.encoded.field import MODES, Encoded
from tests.loaderx.sources.encoded_images import (
    BLOCKS,
    by_simplejpeg,
    encode,
    orientation_exif,
    photograph,
    png,
    sampled_jpeg,
)

PIXELS = photograph(37, 52)
COLOUR_MODES = ("RGB", "L", "RGBA")


def decoded(data, mode="RGB", factor=1, **options):
    """Return all pixels, of the size that the header says."""
    encoded = Encoded(mode=mode, **options)
    header = read_header(data, encoded)
    found = decode(data, header, encoded, None, factor)
    assert found.first == 0
    assert found.pixels.flags.c_contiguous
    height, width = -(-header.height // factor), -(-header.width // factor)
    spec = encoded.pixels(height, width)
    assert (found.pixels.shape, found.pixels.dtype) == (spec.shape, spec.dtype)
    return found.pixels


def by_pillow(data, mode=None):
    """Return the upright pixels as Pillow decodes and converts them."""
    with Image.open(io.BytesIO(data)) as image:
        if mode == "L":
            image.draft("L", None)  # grey of JPEG is the brightness in the file
        upright = ImageOps.exif_transpose(image)
        return np.asarray(upright.convert(mode) if mode else upright)


def assert_as_by_pillow(data, *modes):
    for mode in modes:
        np.testing.assert_array_equal(decoded(data, mode), by_pillow(data, mode), mode)


# JPEG


@pytest.mark.parametrize("mode", COLOUR_MODES)
@pytest.mark.parametrize("sampling", BLOCKS)
def test_jpeg_is_decoded_as_by_pillow_and_simplejpeg(sampling, mode):
    data = sampled_jpeg(PIXELS, sampling)
    assert_as_by_pillow(data, mode)
    space = "GRAY" if mode == "L" else mode
    np.testing.assert_array_equal(decoded(data, mode), by_simplejpeg(data, space=space).squeeze())


@pytest.mark.parametrize(
    "options",
    [
        {"progressive": True},
        {"progressive": True, "subsampling": 0},
        {"keep_rgb": True},
        {"optimize": True, "quality": 100},
        {"restart_marker_rows": 1},
    ],
    ids=str,
)
def test_jpeg_of_all_kinds_is_decoded_as_by_pillow(options):
    assert_as_by_pillow(encode(PIXELS, "JPEG", **options), *COLOUR_MODES)


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=str)
def test_cmyk_by_adobe_is_decoded_as_by_pillow(options):
    data = encode(PIXELS, "JPEG", "CMYK", **options)
    assert b"Adobe" in data
    assert_as_by_pillow(data, *COLOUR_MODES)
    # Adobe's values are inverted: dark pixels stay dark.
    assert np.abs(decoded(data).astype(int) - PIXELS).mean() < 20


def patched_frame(data, **changes):
    """Return a JPEG file with other numbers in its frame: marker, precision, sampling."""
    place = data.index(b"\xff\xc0")
    out = bytearray(data)
    for name, value in changes.items():
        out[place + {"marker": 1, "precision": 4, "sampling": 11, "second": 14}[name]] = value
    return bytes(out)


def test_sampling_that_simplejpeg_refuses_is_decoded_by_pillow():
    data = patched_frame(sampled_jpeg(photograph(64, 64), "4:2:2"), second=0x12, sampling=0x41)
    with pytest.raises(ValueError, match="subsampling"):
        by_simplejpeg(data)
    assert_as_by_pillow(data, *COLOUR_MODES)


def test_a_strange_revision_of_jfif_is_not_damage():
    data = bytearray(encode(PIXELS, "JPEG"))
    right = decoded(bytes(data))
    data[data.index(b"JFIF\0") + 5] = 0
    with pytest.raises(ValueError, match="unknown JFIF revision"):
        by_simplejpeg(bytes(data))
    np.testing.assert_array_equal(decoded(bytes(data)), right)


@pytest.mark.parametrize(
    "changes", [{"precision": 12}, {"marker": 0xC3}], ids=["12 bits", "lossless"]
)
def test_jpeg_that_no_library_decodes_is_an_error(changes):
    data = patched_frame(encode(PIXELS, "JPEG"), **changes)
    with pytest.raises(DataError, match="the JPEG file is damaged: "):
        decoded(data)


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("size", [(37, 52), (64, 8), (8, 65), (9, 9)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4", "grey"])
def test_jpeg_is_reduced_exactly_by_a_factor(sampling, size, factor):
    data = sampled_jpeg(photograph(*size), sampling)
    found = decoded(data, factor=factor)
    assert found.shape == (-(-size[0] // factor), -(-size[1] // factor), 3)
    np.testing.assert_array_equal(found, by_simplejpeg(data, factor))
    height, width = (side // factor for side in size)
    squares = by_simplejpeg(data)[: height * factor, : width * factor].astype(float)
    means = squares.reshape(height, factor, width, factor, 3).mean((1, 3))
    assert np.abs(found[:height, :width] - means).mean() < 6


@pytest.mark.parametrize("size", [(7, 100), (100, 7), (1, 1)])
def test_jpeg_narrower_than_a_block_has_no_factors(size):
    header = read_header(encode(photograph(*size), "JPEG"), Encoded())
    assert header.factors == (1,)


def test_factors_are_those_of_the_header():
    data, encoded = encode(PIXELS, "PNG"), Encoded()
    header = read_header(data, encoded)
    assert header.factors == (1,)
    with pytest.raises(ArgumentError, match=r"`factor` \(=2\) must be one of \(1,\)"):
        decode(data, header, encoded, factor=2)


@pytest.mark.parametrize("rows", [(-1, 3), (3, 3), (0, 38)])
def test_rows_are_those_of_the_image(rows):
    data, encoded = encode(PIXELS, "PNG"), Encoded()
    with pytest.raises(ArgumentError, match=r"must be rows \(first, stop\) of 37"):
        decode(data, read_header(data, encoded), encoded, rows)


# Other formats


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}), ("WEBP", {"lossless": True}), ("WEBP", {"quality": 80}), ("BMP", {}), ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}), ("PPM", {}), ("GIF", {}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("own", ["RGB", "L", "RGBA", "LA", "P", "1"])
def test_other_formats_are_decoded_as_by_pillow(kind, options, own):
    if (kind, own) in {("BMP", "LA"), ("PPM", "LA"), ("PPM", "P")}:
        with pytest.raises(OSError, match="cannot write mode"):
            encode(PIXELS, kind, own, **options)
        return
    alpha = Image.fromarray(photograph(37, 52, 4)).convert(own)
    data = encode(alpha, kind, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of transparent palettes
        expected = {mode: by_pillow(data, mode) for mode in COLOUR_MODES}
    for mode in COLOUR_MODES:
        np.testing.assert_array_equal(decoded(data, mode), expected[mode])


def test_the_format_is_told_by_the_bytes():
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        data = encode(PIXELS, kind)
        np.testing.assert_array_equal(decoded(memoryview(data)), by_pillow(data, "RGB"))


def test_memory_of_any_kind_is_decoded_alike():
    for kind in ("PNG", "JPEG", "WEBP"):
        data = encode(PIXELS, kind)
        within = memoryview(bytearray(b"123" + data + b"45"))[3:-2]
        for buffer in (memoryview(data), within):
            np.testing.assert_array_equal(decoded(buffer), decoded(data))


def test_the_first_frame_of_an_animation_is_decoded():
    frames = [Image.fromarray(photograph(20, 30, seed=seed)) for seed in range(3)]
    for kind, options in {"GIF": {}, "WEBP": {"lossless": True}, "PNG": {}}.items():
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert_as_by_pillow(data, "RGB")


def test_interlaced_png_is_decoded():
    rows = b"".join(b"\0" + bytes(range(start, start + 3)) for start in (0, 30))
    # Of 1 x 2 pixels, in the first and the fifth of seven passes.
    data = png((1, 2, 8, 2, 1), rows)
    np.testing.assert_array_equal(decoded(data), [[[0, 1, 2]], [[30, 31, 32]]])


def test_palettes_may_be_transparent():
    data = png(
        (3, 1, 8, 3, 0), b"\0\0\1\2", (b"PLTE", bytes(range(9))), (b"tRNS", bytes([255, 7, 0]))
    )
    assert decoded(data, "RGBA").tolist() == [[[0, 1, 2, 255], [3, 4, 5, 7], [6, 7, 8, 0]]]
    assert decoded(data).tolist() == [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]
    assert decoded(data, "P").tolist() == [[0, 1, 2]]


def test_images_without_alpha_are_opaque_and_alpha_is_dropped():
    pixels = photograph(5, 6, 4)
    np.testing.assert_array_equal(decoded(encode(pixels, "PNG")), pixels[..., :3])
    opaque = decoded(encode(pixels[..., :3], "PNG"), "RGBA")
    np.testing.assert_array_equal(opaque[..., :3], pixels[..., :3])
    assert (opaque[..., 3] == 255).all()


# Values as they are


LABELS = np.arange(256, dtype=np.uint8).reshape(16, 16)


def test_labels_of_a_palette_and_of_grey_are_as_they_are():
    palette = Image.fromarray(LABELS).convert("P")
    palette.putpalette(photograph(16, 16).tobytes())
    for data in (encode(palette, "PNG"), encode(LABELS, "PNG"), encode(palette, "GIF")):
        np.testing.assert_array_equal(decoded(data, "P"), LABELS)
    jpeg_labels = encode(LABELS, "JPEG", quality=100)
    np.testing.assert_array_equal(decoded(jpeg_labels, "P"), by_pillow(jpeg_labels))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_labels_of_a_small_palette_are_its_indices(depth):
    labels = LABELS % (1 << depth)
    image = Image.fromarray(labels).convert("P")
    image.putpalette(photograph(1, 1 << depth).tobytes())
    data = encode(image, "PNG", bits=depth)
    assert data[24] == depth
    np.testing.assert_array_equal(decoded(data, "P"), labels)


def test_labels_of_one_bit_are_0_and_1():
    data = encode(LABELS % 2 * 255, "PNG", "1")
    np.testing.assert_array_equal(decoded(data, "P"), LABELS % 2)
    np.testing.assert_array_equal(decoded(data, "L"), LABELS % 2 * 255)


def test_sixteen_bits_are_as_they_are_or_their_upper_eight():
    values = np.arange(0, 1 << 16, 257, dtype=np.uint16).reshape(16, 16)[::-1] ^ 0x5A
    for kind in ("PNG", "TIFF"):
        data = encode(Image.fromarray(values), kind)
        np.testing.assert_array_equal(decoded(data, "I;16"), values)
        np.testing.assert_array_equal(decoded(data, "L"), values >> 8)
        np.testing.assert_array_equal(decoded(data), (values >> 8)[..., None].repeat(3, -1))
        assert (decoded(data, "RGBA")[..., 3] == 255).all()
    np.testing.assert_array_equal(decoded(encode(LABELS, "PNG"), "I;16"), LABELS)
    grey = encode(LABELS, "JPEG")
    np.testing.assert_array_equal(decoded(grey, "I;16"), by_pillow(grey))


def test_a_transparent_value_of_sixteen_bits_is_transparent():
    data = png((3, 1, 16, 0, 0), b"\0\1\2\3\4\5\6", (b"tRNS", b"\3\4"))
    assert decoded(data, "RGBA").tolist() == [[[1, 1, 1, 255], [3, 3, 3, 0], [5, 5, 5, 255]]]


def test_colours_of_sixteen_bits_are_their_upper_eight():
    data = png((1, 1, 16, 2, 0), b"\0" + bytes([200, 1, 100, 255, 7, 128]))
    assert decoded(data).tolist() == [[[200, 100, 7]]]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("mode", ["P", "I;16"])
def test_colours_are_not_labels(kind, mode):
    with pytest.raises(DataError, match=f"mode.*{mode}"):
        decoded(encode(PIXELS, kind), mode)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_values_that_fit_nowhere_are_not_clipped(dtype, mode):
    data = encode(Image.fromarray(np.arange(6, dtype=dtype).reshape(2, 3) * 1000), "TIFF")
    with pytest.raises(DataError, match=r"are of Pillow's mode '[IF]', which does not fit"):
        decoded(data, mode)


# Orientation


@pytest.mark.parametrize("mode", COLOUR_MODES)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_come_out_upright(kind, orientation, mode):
    if kind == "TIFF":
        data = encode(PIXELS, kind, tiffinfo={0x0112: orientation})
    else:
        data = encode(PIXELS, kind, exif=orientation_exif(orientation))
    assert_as_by_pillow(data, mode)
    if orientation in (5, 6, 7, 8):
        assert decoded(data).shape == (52, 37, 3)


@pytest.mark.parametrize("size", [(32, 48), (37, 48), (32, 52)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images_are_reduced_from_the_edge_they_begin_at(orientation, size):
    data = encode(photograph(*size), "JPEG", exif=orientation_exif(orientation), subsampling=0)
    encoded = Encoded()
    header = read_header(data, encoded)
    for factor in header.factors:
        found = decode(data, header, encoded, None, factor).pixels
        assert found.shape[:2] == (-(-header.height // factor), -(-header.width // factor))
        reduced = Image.fromarray(by_simplejpeg(data, factor))
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        reduced.save(file, "PNG", exif=exif)
        np.testing.assert_array_equal(found, by_pillow(file.getvalue()))
        # Row and column 0 are made of `factor` rows and columns, whatever is at the other edge.
        height, width = size
        if factor > 1 and (height % factor, width % factor) != (0, 0):
            assert not (orientation in (3, 4, 6, 7) and height % factor)
            assert not (orientation in (2, 3, 7, 8) and width % factor)
    if size == (32, 48) or orientation == 1:
        assert header.factors == (1, 2, 4, 8)


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("kind", [3, 4])
def test_exif_data_of_both_byte_orders_and_widths_is_read(order, kind):
    data = encode(PIXELS, "JPEG", exif=orientation_exif(6, order, kind))
    assert read_header(data, Encoded()).orientation == 6
    assert_as_by_pillow(data, "RGB")


@pytest.mark.parametrize(
    "text", [b'tiff:Orientation="6"', b"<tiff:Orientation>6</tiff:Orientation>"]
)
def test_the_orientation_may_be_in_xmp_data(text):
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/">' + text + b"</x:xmpmeta>"
    files = [encode(PIXELS, "JPEG", xmp=xmp), encode(PIXELS, "WEBP", xmp=xmp, lossless=True)]
    content = b"XML:com.adobe.xmp\0\0\0\0\0" + xmp
    rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
    files.append(png((52, 37, 8, 2, 0), rows, (b"iTXt", content)))
    for data in files:
        assert read_header(data, Encoded()).orientation == 6
        assert_as_by_pillow(data, "RGB")


def test_exif_data_that_follows_the_pixels_is_read():
    data = encode(PIXELS, "PNG", exif=orientation_exif(8))
    begin = data.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(data[begin : begin + 4], "big")
    late = data[:begin] + data[end:-12] + data[begin:end] + data[-12:]
    assert_as_by_pillow(late, "RGB")
    assert decoded(late).shape == (52, 37, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_exif_data_leaves_an_image_as_it_is(kind):
    for exif in (b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0" + bytes(40)):
        data = encode(PIXELS, kind, exif=exif)
        assert decoded(data).shape == PIXELS.shape


# Bad input


@pytest.mark.parametrize("data", [b"", memoryview(b"")])
def test_no_bytes_are_an_error(data):
    with pytest.raises(DataError, match="the file of the image is empty: it has 0 bytes"):
        read_header(data, Encoded())


@pytest.mark.parametrize("data", [b"x", b"not an image, but a text", b"RIFF1234WAVE", bytes(1000)])
def test_files_that_are_not_images_are_an_error(data):
    with pytest.raises(
        DataError, match=r"not an image of a known format \(JPEG, PNG, .*begins with b"
    ):
        read_header(data, Encoded())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_header_that_ends_too_early_is_an_error(kind):
    data = encode(PIXELS, kind)
    for end in range(1, 30):
        with pytest.raises(DataError):
            decoded(data[:end])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_truncated_file_is_an_error_and_not_grey_pixels(kind):
    data = encode(PIXELS, kind)
    for end in (len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(DataError, match=f"the {kind} file is damaged: .+"):
            decoded(data[:end])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_images_of_one_pixel(kind):
    data = encode(np.full((1, 1, 3), 128, np.uint8), kind)
    assert decoded(data).shape == (1, 1, 3)
    assert_as_by_pillow(data, *COLOUR_MODES)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_hundred_megapixels_are_decoded(kind):
    data = encode(Image.new("L", (10_000, 10_000), 77), kind)
    assert len(data) < 2_000_000
    pixels = decoded(data, "L")
    assert pixels.shape == (10_000, 10_000)
    assert (pixels == 77).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_images_above_the_limit_are_refused_by_their_header(kind):
    data = encode(PIXELS, kind)
    read_header(data, Encoded(max_pixels=37 * 52))
    with pytest.raises(DataError) as refusal:
        read_header(data, Encoded(max_pixels=37 * 52 - 1))
    assert str(refusal.value) == (
        "the image has 37 x 52 = 1,924 pixels, and the limit is 1,923. If that is intended, raise the limit: "
        "Encoded(max_pixels=1924)."
    )


def test_a_decompression_bomb_is_refused():
    bomb = png((60_000, 60_000, 8, 2, 0), bytes(100))
    with pytest.raises(
        DataError, match="60000 x 60000 = 3,600,000,000 pixels, and the limit is 178,956,970"
    ):
        read_header(bomb, Encoded())
    data = bytearray(encode(PIXELS, "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"
    with pytest.raises(DataError, match="65500 x 65500 = 4,290,250,000 pixels"):
        read_header(bytes(data), Encoded())


def test_a_file_of_thousands_of_scans_is_refused():
    data = encode(PIXELS, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    scans = data[last:-2] * 200
    with pytest.raises(DataError, match="has more than 100 scans"):
        decoded(data[:last] + scans + b"\xff\xd9")
    assert decoded(data).shape == PIXELS.shape


def test_sizes_that_differ_between_header_and_pixels_are_an_error():
    data = bytearray(encode(PIXELS, "PNG"))
    data[20:24] = (38).to_bytes(4, "big")
    with pytest.raises(DataError, match="the PNG file is damaged"):
        decoded(bytes(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_header_of_another_image_is_an_error(kind):
    encoded, data = Encoded(), encode(PIXELS, kind)
    for size in [(36, 52), (38, 52), (37, 51), (37, 53), (52, 37)]:
        header = read_header(encode(photograph(*size), kind), encoded)
        with pytest.raises(DataError, match=r"of another size than its header|too small to decode"):
            decode(data, header, encoded)


# Libraries


def test_the_description_names_libraries_and_versions():
    description = decoder_description()
    assert description.startswith("simplejpeg ")
    assert "Pillow " in description
    assert "libjpeg_turbo " in description


@pytest.fixture
def no_simplejpeg(monkeypatch):
    jpeg.library.cache_clear()
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    yield
    jpeg.library.cache_clear()


def test_jpeg_is_decoded_by_pillow_where_simplejpeg_is_not_installed(no_simplejpeg):
    assert jpeg.library() is None
    assert decoder_description().startswith("Pillow ")
    for sampling in BLOCKS:
        data = sampled_jpeg(PIXELS, sampling, 2)
        assert_as_by_pillow(data, *COLOUR_MODES)
        for factor in (2, 4, 8):
            np.testing.assert_array_equal(decoded(data, factor=factor), by_simplejpeg(data, factor))
        encoded = Encoded()
        whole = decode(data, read_header(data, encoded), encoded, (10, 20))
        assert (whole.first, len(whole.pixels)) == (0, 37)


def test_a_missing_pillow_is_named_with_its_extra(monkeypatch):
    data, encoded = encode(PIXELS, "PNG"), Encoded()
    header = read_header(data, encoded)
    monkeypatch.setitem(sys.modules, "PIL.PngImagePlugin", None)
    message = r'decoding of PNG images needs PIL.*pip install "\.\[images\]"'
    with pytest.raises(ModuleNotFoundError, match=message):
        decode(data, header, encoded)


def test_headers_are_named_as_the_kernel_writes_them():
    assert jpeg.Markers._fields == jpeg_markers.HEADER


def test_threads_decode_at_once():
    files = [sampled_jpeg(photograph(96, 64, seed=seed), "4:2:0", 4) for seed in range(4)]
    expected = [by_simplejpeg(data)[20:60] for data in files]
    encoded, wrong = Encoded(), []

    def work(number):
        data = files[number]
        header = read_header(data, encoded)
        for _ in range(100):
            found = decode(data, header, encoded, (20, 60))
            if not np.array_equal(found.pixels[20 - found.first :][:40], expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_every_mode_has_pixels():
    for mode in MODES:
        assert decoded(encode(LABELS, "PNG"), mode).shape[:2] == (16, 16)
