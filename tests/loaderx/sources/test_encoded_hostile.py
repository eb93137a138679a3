"""Sources of encoded images survive what happens to files: odd names, damage, changes meanwhile, kills and Ctrl-C."""

import io
import os
import random
import signal
import struct
import zlib
from collections import Counter

import numpy as np
import pytest
from PIL import Image

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources.encoded import index
from tests.loaderx.sources.encoded_images import (
    bytes_of,
    encode,
    orientation_exif,
    photograph,
    pictures,
)
from tests.loaderx.sources.tar_files import write_tar

PIXELS = photograph(40, 60)
MASK = (PIXELS[..., 0] // 51).astype(np.uint8)


def loader_of(source, **options):
    """Return a loader of small images."""
    given = {
        "batch_size": 4,
        "num_epochs": 1,
        "transforms": {"image": [T.Resize((8, 8))]},
        "output": "numpy",
    }
    return lx.DataLoader({"image": source}, **given | options)


def folder_of(folder, **files):
    """Write files, whose names have "__" in place of a dot."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def first_pair(folder, image, mask, mode="P", names=("image", "mask")):
    """Return the first batch of an image and its mask."""
    sources = {
        "image": lx.EncodedFiles([folder_of(folder / "i", a__x=image) / "a.x"]),
        "mask": lx.EncodedFiles([folder_of(folder / "m", a__x=mask) / "a.x"], mode),
    }
    data = {name: sources[name] for name in names}
    ops = {names: [T.CenterCrop((40, 60))]}
    return lx.DataLoader(data, batch_size=1, transforms=ops, output="numpy").batch(0)


def test_the_content_of_a_file_counts_and_not_its_suffix(tmp_path):
    folder = folder_of(
        tmp_path / "x", a__png=encode(PIXELS, "JPEG"), b__jpg=encode(PIXELS, "PNG"), c__webp=encode(PIXELS, "GIF"),
    )  # fmt: skip
    (batch,) = loader_of(lx.EncodedFiles(folder), batch_size=3)
    assert batch["image"].shape == (3, 8, 8, 3)


def test_a_file_of_any_name_is_read_and_named(tmp_path):
    (tmp_path / "x").mkdir()
    names = [b"a b.jpg", b"a\nb.jpg", b"\xff\xfe.jpg", b"x" * 251 + b".jpg", "ü".encode() + b".jpg"]
    for name, image in zip(names, pictures(len(names)), strict=True):
        (tmp_path / "x" / os.fsdecode(name)).write_bytes(image)
    with iter(loader_of(lx.EncodedFiles(tmp_path / "x"))) as batches:
        assert sum(len(batch["image"]) for batch in batches) == len(names)
    (tmp_path / "x" / os.fsdecode(names[2])).write_bytes(b"junk")
    with (
        pytest.raises(lx.DataError) as caught,
        iter(loader_of(lx.EncodedFiles(tmp_path / "x"))) as batches,
    ):
        list(batches)
    assert any(os.fsdecode(names[2]) in note for note in caught.value.__notes__)


def bomb(height, width):
    """Return a PNG file of many pixels in few bytes."""

    def chunk(name, content):
        return (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1_000_000), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def test_a_bomb_is_refused_and_can_be_replaced(tmp_path):
    folder = folder_of(tmp_path / "x", a__png=bomb(50_000, 50_000), b__png=encode(PIXELS, "PNG"))
    source = lx.EncodedFiles(folder)
    with pytest.raises(
        lx.DataError, match="50000 x 50000 = 2,500,000,000 pixels, and the limit is 178,956,970"
    ):
        loader_of(source).batch(0)
    loader = loader_of(source, on_error="replace")
    with iter(loader) as batches:
        assert len([*batches]) == 1
        assert batches.stats().replaced == 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1)])
def test_images_of_one_row_or_column_become_samples(kind, size):
    file = encode(photograph(*size), kind)
    from tests.loaderx.encoded_images import encoded

    for op in (T.RandomResizedCrop(8), T.CenterCrop(8), T.LetterBox((8, 8)), T.Resize((8, 8))):
        batch = loader_of(encoded([file]), transforms={"image": [op, T.RandomFlip()]}).batch(0)
        assert batch["image"].shape == (1, 8, 8, 3)


def test_an_image_that_is_deleted_between_epochs_is_an_error_or_replaced(tmp_path):
    folder = folder_of(
        tmp_path / "x", **{f"{k}__jpg": image for k, image in enumerate(pictures(4))}
    )
    source = lx.EncodedFiles(folder)
    loader, replacing = (
        loader_of(source, num_epochs=2, on_error=how) for how in ("raise", "replace")
    )
    whole = loader.batch(0)["image"]
    (folder / "2.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"2\.jpg"):
        loader.batch(1)
    found = replacing.batch(1)["image"]
    assert found.shape == whole.shape


def test_links_are_followed_and_loops_and_dangling_ones_are_named(tmp_path):
    folder = folder_of(tmp_path / "x", a__jpg=pictures(1)[0])
    (folder / "b.jpg").symlink_to("a.jpg")
    assert len(lx.EncodedFiles(folder)) == 2
    (folder / "c.jpg").symlink_to("c.jpg")
    with pytest.raises(OSError, match=r"c\.jpg"):
        loader_of(lx.EncodedFiles(folder)).batch(0)
    (folder / "c.jpg").unlink()
    (folder / "d").symlink_to(".")
    with pytest.raises(lx.DataError, match="twice: a link points to it"):
        lx.EncodedFiles(folder)


@pytest.mark.parametrize("order", [("image", "mask"), ("mask", "image")])
def test_masks_keep_their_values_in_any_order_of_the_fields(tmp_path, order):
    batch = first_pair(tmp_path, encode(PIXELS, "PNG"), encode(MASK, "PNG"), names=order)
    np.testing.assert_array_equal(batch["mask"][0], MASK)
    np.testing.assert_array_equal(batch["image"][0], PIXELS)


def test_masks_of_16_bits_of_a_palette_and_of_1_bit_keep_their_values(tmp_path):
    deep = PIXELS[..., 0].astype(np.uint16) * 200
    batch = first_pair(
        tmp_path, encode(PIXELS, "PNG"), encode(Image.fromarray(deep), "PNG"), "I;16"
    )
    assert batch["mask"].dtype == np.uint16
    np.testing.assert_array_equal(batch["mask"][0], deep)
    palette = Image.fromarray(PIXELS).convert("P")
    (tmp_path / "2").mkdir()
    batch = first_pair(tmp_path / "2", encode(PIXELS, "PNG"), encode(palette, "PNG"))
    np.testing.assert_array_equal(batch["mask"][0], np.asarray(palette))
    (tmp_path / "3").mkdir()
    batch = first_pair(
        tmp_path / "3", encode(PIXELS, "PNG"), encode(Image.fromarray(MASK > 2), "PNG")
    )
    np.testing.assert_array_equal(batch["mask"][0], MASK > 2)


@pytest.mark.parametrize("mode", ["RGB", "LA", "I;16"])
def test_a_mask_whose_pixels_are_no_labels_is_refused(tmp_path, mode):
    mask = (
        Image.fromarray(MASK.astype(np.uint16) * 99)
        if mode == "I;16"
        else Image.fromarray(MASK).convert(mode)
    )
    with pytest.raises(
        lx.DataError,
        match=rf"are of Pillow's mode '{mode}', which does not fit `Encoded\(mode='P'\)`",
    ):
        first_pair(tmp_path, encode(PIXELS, "PNG"), encode(mask, "PNG"))


def test_a_mask_without_exif_data_is_one_of_the_upright_image(tmp_path):
    lying = np.rot90(PIXELS)  # Orientation 6 turns it by 90 degrees clockwise.
    image = encode(lying, "JPEG", exif=orientation_exif(6))
    batch = first_pair(tmp_path, image, encode(MASK, "PNG"))
    np.testing.assert_array_equal(batch["mask"][0], MASK)
    assert np.abs(batch["image"][0].astype(int) - PIXELS).mean() < 25
    (tmp_path / "2").mkdir()
    with pytest.raises(
        lx.DataError, match=r"60 x 40 pixels, and .* is 40 x 60, upright as EXIF data says"
    ):
        first_pair(tmp_path / "2", image, encode(np.rot90(MASK), "PNG"))


KILLED = """
import contextlib, os, sys
from loaderx import TarDataset
from loaderx.sources.encoded import index

replacing = index.replacing

class Killing:
    def __init__(self, file):
        self.file = file
    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        os.kill(os.getpid(), 9)

@contextlib.contextmanager
def killing(path):
    with replacing(path) as file:
        yield Killing(file)

index.replacing = killing
TarDataset(sys.argv[1], {"image": "jpg"})
"""


def test_a_process_that_is_killed_while_it_writes_an_index_leaves_nothing_that_counts(
    forking, tmp_path
):
    path = write_tar(tmp_path / "x.tar", [("a.jpg", pictures(1)[0])])
    for _ in range(3):
        assert forking.run(KILLED, path).returncode == -signal.SIGKILL
        # The file of the process before was removed.
        assert len([*tmp_path.glob(".*.unfinished")]) == 1
        assert not [*tmp_path.glob(f"*{index.SUFFIX}")]
    assert bytes_of(lx.TarDataset(path, {"image": "jpg"})[:]["image"]) == pictures(1)
    assert not [*tmp_path.glob(".*.unfinished")]
    assert len([*tmp_path.glob(f".*{index.SUFFIX}")]) == 1


INTERRUPTED = """
import os, signal, sys, threading
import loaderx as lx
from loaderx.sources.encoded import index, tar

named = tar._named
def slow(shard):
    for number, found in enumerate(named(shard)):
        if number == 100:
            os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.01)
        yield found
tar._named = slow
try:
    lx.TarDataset(sys.argv[1], {"image": "jpg"})
except KeyboardInterrupt:
    print("interrupted", [one.name for one in threading.enumerate() if one.name.startswith("loaderx")])
"""


def test_ctrl_c_ends_the_scan_of_a_shard_and_leaves_no_index(forking, tmp_path):
    path = write_tar(tmp_path / "x.tar", [(f"{number}.jpg", b"x") for number in range(20_000)])
    finished = forking.run(INTERRUPTED, path)
    assert (finished.returncode, finished.stderr, finished.stdout) == (0, "", "interrupted []\n")
    assert [one.name for one in tmp_path.iterdir()] == ["x.tar"]


NUMBERS = [
    pytest.param(range(150), id="few"),
    pytest.param(range(10_000), id="many", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]


# A damaged byte may name another compression, which is slower to read.
@pytest.mark.filterwarnings("ignore:.*compressed with brotli or snappy:UserWarning")
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_damaged_file_of_records_is_an_error_that_names_it_or_has_the_same_images(
    tmp_path, compression, numbers
):
    images = pictures(5)
    fields = {"image": lx.Encoded(), "label": "int64", "mask": lx.Encoded(mode="P")}
    rows = [
        {"image": image, "label": number, "mask": image[::-1]}
        for number, image in enumerate(images)
    ]
    path = tmp_path / "x.ar"
    lx.write_array_record(path, rows, fields=fields, compression=compression, progress=False)
    original = path.read_bytes()
    used = np.flatnonzero(np.frombuffer(original, np.uint8))
    counts = Counter()
    for number in numbers:
        source = random.Random(number)
        content = bytearray(original)
        # Between the chunks are zeros.
        places = used if source.random() < 0.8 else range(len(content))
        for _ in range(source.choice([1, 1, 4])):
            content[int(source.choice(places))] = source.randrange(256)
        if source.random() < 0.1:
            # Files have whole blocks.
            del content[source.randrange(len(content) >> 16) << 16 :]
        path.write_bytes(content)
        verify = source.choice(["first", "first", "never"])
        message = ""
        try:
            found = lx.ARDataset(path, mmap=source.random() < 0.5, verify=verify)
            rows = [found[row] for row in range(len(found))]
        except lx.DataError as error:
            message = str(error)
            counts["error"] += 1
        else:
            columns = [(bytes(row["image"]), row["label"], bytes(row["mask"])) for row in rows]
            same = columns == [(image, k, image[::-1]) for k, image in enumerate(images)]
            assert same or verify == "never", number
            counts["same" if same else "not noticed"] += 1
        assert not message or str(path) in message, message
    assert sum(counts.values()) == len(numbers)
    assert min(counts["error"], counts["same"], counts["not noticed"]) > len(numbers) // 100, counts


def test_an_image_of_100_megapixels_becomes_a_sample():
    from tests.loaderx.encoded_images import encoded

    file = io.BytesIO()
    Image.new("RGB", (10_000, 10_000), (9, 99, 199)).save(file, "JPEG")
    batch = loader_of(encoded([file.getvalue()])).batch(0)["image"]
    assert np.abs(batch.astype(int) - (9, 99, 199)).max() <= 2
