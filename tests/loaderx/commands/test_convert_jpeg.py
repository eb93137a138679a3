"""`loaderx convert --jpeg` keeps JPEG files without loss, encodes others anew, and never makes a mask JPEG."""

import io
import itertools
import json
import re
import signal
from pathlib import Path

import bagz
import numpy as np
import pytest
from PIL import Image

from loaderx import (
    ARDataset,
    DataLoader,
    Encoded,
    ImageFolder,
    cli,
    write_array_record,
)
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.commands.jpeg_images import JpegOptions, Kind
from loaderx.commands.jpeg_outputs import FieldsOutput
from loaderx.sources.encoded.decoding import read_header
from loaderx.sources.encoded.restarts import has_restart_rows
from tests.loaderx.sources.encoded_images import encode, orientation_exif, photograph
from tests.loaderx.sources.tar_files import write_tar
from tests.loaderx.sources.tfrecord_files import write_tfrecord


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(*arguments):
    return cli.main(["convert", *map(str, arguments)])


def photographs(count=6, **options):
    """Return JPEG files of several sizes."""
    return [
        encode(photograph(60 + 17 * (k % 12), 150 - 9 * (k % 12), seed=k), "JPEG", **options)
        for k in range(count)
    ]


def write_folder(images, suffix="jpg"):
    """Write images as the classes b and a in turn; return them in the order of names."""
    written = {}
    for number, data in enumerate(images):
        path = Path("photos") / "ba"[number % 2] / f"{number:03d}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written[path] = data
    return [written[path] for path in sorted(written)]


def pixels_of(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def is_marked(data):
    markers = read_header(data, Encoded()).markers
    return markers is not None and has_restart_rows(markers)


def images_of(path, name="image"):
    return [bytes(image) for image in ARDataset(path)[:][name]]


# What is done with an image.


def done(data, mode="RGB", quality=90, max_side=None, no_masks=False):
    """Return an image as it is stored, and what was done with it."""
    found, kind = JpegOptions(quality, max_side, no_masks)(data, Encoded(mode=mode))
    return bytes(found), kind


def test_jpeg_files_are_kept_without_loss():
    for data in photographs():
        found, kind = done(data, max_side=150)
        assert kind == Kind.MARKED
        assert is_marked(found)
        np.testing.assert_array_equal(pixels_of(found), pixels_of(data))
        assert len(data) < len(found) < len(data) + 200


def test_files_with_markers_are_copied():
    for options in ({"restart_marker_rows": 1}, {"restart_marker_blocks": 1}):
        data = encode(photograph(60, 70), "JPEG", **options)
        assert done(data) == (data, Kind.COPIED)
    data = encode(photograph(60, 70), "JPEG", restart_marker_rows=2)
    assert done(data)[1] == Kind.MARKED


@pytest.mark.parametrize(("height", "width"), [(300, 400), (400, 300), (101, 100), (1000, 101)])
def test_large_images_are_shrunk_with_antialiasing(height, width):
    pixels = photograph(height, width)[..., 0]
    found, kind = done(encode(pixels, "JPEG", quality=95), max_side=100)
    assert kind == Kind.SHRUNK
    assert is_marked(found)
    shrunk = Image.open(io.BytesIO(found))
    assert max(shrunk.size) == 100
    assert abs(shrunk.width / shrunk.height - width / height) < 0.1

    def difference(resampling):
        expected = Image.fromarray(pixels).resize(shrunk.size, resampling)
        return np.abs(np.asarray(shrunk).astype(int) - np.asarray(expected)).mean()

    assert difference(Image.Resampling.LANCZOS) < 4
    assert difference(Image.Resampling.NEAREST) > 6


def test_an_image_of_the_largest_side_is_not_shrunk():
    data = encode(photograph(60, 100), "JPEG")
    assert done(data, max_side=100)[1] == Kind.MARKED
    assert done(data, max_side=99)[1] == Kind.SHRUNK
    assert Image.open(io.BytesIO(done(data, max_side=1)[0])).size == (1, 1)
    assert Image.open(io.BytesIO(done(data, max_side=2)[0])).size == (2, 1)


def test_the_quality_is_of_images_that_are_encoded_anew():
    data = encode(photograph(100, 100), "JPEG", quality=99)
    sizes = [len(done(data, quality=quality, max_side=50)[0]) for quality in (1, 50, 100)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2] / 3
    assert done(data, quality=1)[0] == done(data, quality=100)[0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("max_side", [None, 40])
def test_images_stay_upright(orientation, max_side):
    pixels = np.zeros((60, 90, 3), np.uint8)
    pixels[:30, :45] = 250, 0, 0
    pixels[30:, 45:] = 0, 0, 250
    data = encode(pixels, "JPEG", exif=orientation_exif(orientation), quality=95)
    stored, kind = done(data, max_side=max_side)
    assert kind == (Kind.MARKED if max_side is None else Kind.SHRUNK)
    write_array_record("x.ar", [{"image": data}, {"image": stored}], fields={"image": Encoded()})
    before, after = (image.decode() for image in ARDataset("x.ar")[:]["image"])
    if max_side is None:
        np.testing.assert_array_equal(before, after)
    else:
        expected = np.asarray(Image.fromarray(before).resize(after.shape[1::-1]))
        assert np.abs(expected.astype(int) - after).mean() < 12


def test_progressive_and_cmyk_files_are_encoded_anew():
    pixels = photograph(60, 80)
    for data in (
        encode(pixels, "JPEG", progressive=True, quality=95),
        encode(pixels, "JPEG", "CMYK", quality=95),
    ):
        found, kind = done(data, quality=95)
        assert kind == Kind.REWRITTEN
        assert is_marked(found)
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
        assert np.abs(pixels_of(found) - expected).mean() < 8


def test_colours_of_other_formats_become_jpeg_and_keep_their_profile():
    pixels = photograph(60, 80)
    for kind in ("PNG", "WEBP", "BMP", "TIFF", "PPM"):
        found, what = done(encode(pixels, kind))
        assert what == Kind.CONVERTED
        assert is_marked(found)
        assert np.abs(pixels_of(found).astype(int) - pixels).mean() < 12
    found, _ = done(encode(pixels, "PNG", icc_profile=b"colours"))
    assert Image.open(io.BytesIO(found)).info["icc_profile"] == b"colours"


def kept_files():
    pixels = photograph(60, 80, 4)
    labels = Image.fromarray(pixels[..., 0] // 50)
    palette = labels.convert("P")
    return {
        "alpha": encode(pixels, "PNG"),
        "WebP with alpha": encode(pixels, "WEBP", lossless=True),
        "grey with alpha": encode(Image.fromarray(pixels).convert("LA"), "PNG"),
        "palette": encode(palette, "PNG"),
        "GIF": encode(palette, "GIF"),
        "a transparent colour": encode(pixels[..., :3], "PNG", transparency=(0, 0, 0)),
        "16 bits": encode(pixels[..., 0].astype(np.uint16), "PNG"),
    }


@pytest.mark.parametrize("name", kept_files())
@pytest.mark.parametrize("no_masks", [False, True])
def test_alpha_palettes_and_deep_values_are_kept(name, no_masks):
    data = kept_files()[name]
    assert done(data, max_side=20, no_masks=no_masks) == (data, Kind.KEPT)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "BMP"])
def test_grey_files_may_be_masks_unless_the_mode_says_otherwise(kind):
    for data in (
        encode(photograph(60, 80)[..., 0] // 50, kind),
        encode(Image.fromarray(photograph(60, 80)[..., 0] > 99), kind),
    ):
        if Image.open(io.BytesIO(data)).mode == "P":  # as BMP files may be
            continue
        assert done(data, max_side=20) == (data, Kind.GREY_KEPT)
        found, what = done(data, no_masks=True)
        assert what == Kind.CONVERTED
        assert Image.open(io.BytesIO(found)).mode == "L"
        assert is_marked(found)


@pytest.mark.parametrize("mode", ["P", "I;16", "RGBA"])
def test_fields_of_masks_depth_and_alpha_are_never_encoded_anew(mode):
    grey = photograph(60, 80)[..., 0]
    for data in (encode(grey, "PNG"), encode(grey, "JPEG", progressive=True)):
        if mode == "I;16" and data.startswith(b"\xff"):
            continue
        found, kind = done(data, mode, max_side=20, no_masks=True)
        assert (found, kind) == (data, Kind.KEPT)
    if mode != "I;16":
        data = encode(grey, "JPEG")
        found, kind = done(data, mode, max_side=20)
        assert kind == Kind.MARKED
        np.testing.assert_array_equal(pixels_of(found), pixels_of(data))


# Folders.


def test_a_folder_becomes_records_that_a_loader_reads_bit_for_bit(capsys):
    originals = write_folder(photographs(7))
    assert convert("photos", "train.ar", "--jpeg", 90) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "7 kept without loss" in captured.out
    rows = ARDataset("train.ar")
    assert list(rows.spec) == ["image", "label"]
    assert rows[:]["label"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert rows[:]["label"].dtype == np.int32
    assert json.loads(Path("train_label_classes.json").read_text()) == ["a", "b"]
    for image, data in zip(rows[:]["image"], originals, strict=True):
        np.testing.assert_array_equal(image.decode(), pixels_of(data))
        assert is_marked(image.data)


@pytest.mark.parametrize(
    "op", [T.RandomResizedCrop(32), T.RandomCrop(48), T.RandomResizedCrop(8, scale=(0.01, 0.02))]
)
def test_batches_are_those_of_the_original_files(op):
    write_folder(photographs(12))
    assert convert("photos", "train.ar", "--jpeg", 90) == 0
    before, after = (
        DataLoader(
            source, batch_size=8, seed=3, transforms={"image": [op, T.RandomFlip()]}, output="numpy"
        )
        for source in (ImageFolder("photos"), ARDataset("train.ar"))
    )
    for step in range(6):
        np.testing.assert_array_equal(before.batch(step)["image"], after.batch(step)["image"])
        np.testing.assert_array_equal(before.batch(step)["label"], after.batch(step)["label"])


def test_a_folder_without_classes_has_only_images():
    originals = write_folder(photographs(4))
    assert convert("photos/a", "a.ar", "--jpeg", 90) == 0
    assert list(ARDataset("a.ar").spec) == ["image"]
    for data, original in zip(images_of("a.ar"), originals[:2], strict=True):
        np.testing.assert_array_equal(pixels_of(data), pixels_of(original))


def test_the_printed_program_loads_what_was_written(capsys):
    write_folder(photographs(40))
    assert convert("photos", "it's.ar", "--jpeg", 90, "--shards", 2) == 0
    names = {}
    exec(capsys.readouterr().out.split("to load them:\n\n")[1], names)
    assert names["loader"].batch(0)["image"].shape[1:] == (224, 224, 3)


def test_every_kind_is_counted_with_its_sizes(capsys):
    pixels = photograph(60, 80)
    write_folder(photographs(3))
    others = {
        "4.jpg": encode(pixels, "JPEG", restart_marker_rows=1),
        "5.jpg": encode(pixels, "JPEG", progressive=True),
        "6.png": encode(pixels, "PNG"),
        "7.png": encode(pixels[..., 0], "PNG"),
        "8.png": encode(photograph(60, 80, 4), "PNG"),
        "9.jpg": encode(photograph(300, 200), "JPEG"),
    }
    for name, data in others.items():
        Path("photos/a", name).write_bytes(data)
    assert convert("photos", "x.ar", "--jpeg", 80, "--max-side", 200) == 0
    lines = capsys.readouterr().out.splitlines()
    (whole,) = [line for line in lines if line.startswith("9 images: ")]
    total = sum(file.stat().st_size for file in Path("photos").rglob("*.*"))
    assert f"{total / 1000:.3g} kB became" in whole
    counted = {
        line.split()[1]: int(line.split()[0]) for line in lines if re.match(r"  \d+ [a-z]", line)
    }
    assert counted == {"kept": 3, "copied,": 1, "shrunk": 1, "encoded": 1, "copied:": 1}
    assert sum("encoded anew: files of other formats" in line for line in lines) == 1
    assert sum("may be masks; --mode RGB or L" in line for line in lines) == 1
    for data, name in zip(images_of("x.ar")[1:], others, strict=False):
        assert (data == others[name]) == (name[0] in "478")


def test_the_mode_is_that_of_the_field():
    write_folder(photographs(4))
    assert convert("photos", "x.ar", "--jpeg", 90, "--mode", "L") == 0
    (image, *_) = ARDataset("x.ar")[:]["image"]
    assert image.decode().ndim == 2


# Other containers.


def test_a_tar_file_becomes_records(capsys):
    images = photographs(5)
    entries = [
        (f"{k:03d}.{suffix}", data)
        for k, image in enumerate(images)
        for suffix, data in (("jpg" if k % 2 else "jpeg", image), ("cls", b"%d" % (7 * k)))
    ]
    write_tar(Path("x-000.tar"), entries[:4])
    write_tar(Path("x-001.tar"), entries[4:])
    for columns in ([], ["--columns", "image=jpg;jpeg", "label=cls"]):
        assert convert("x-{000..001}.tar", "x.ar", "--jpeg", 90, "--force", *columns) == 0
        rows = ARDataset("x.ar")[:]
        assert rows["label"].tolist() == [0, 7, 14, 21, 28]
        for data, original in zip(images_of("x.ar"), images, strict=True):
            assert is_marked(data)
            np.testing.assert_array_equal(pixels_of(data), pixels_of(original))
    assert convert("x-000.tar", "y.ar", "--jpeg", 90, "--columns", "photo=jpg;jpeg:L") == 0
    assert list(ARDataset("y.ar").spec) == ["photo"]
    assert ARDataset("y.ar")[0]["photo"].decode().ndim == 2


def test_masks_of_a_tar_file_stay_what_they_are(capsys):
    labels = [photograph(60 + 17 * k, 150 - 9 * k, seed=k)[..., 0] // 50 for k in range(3)]
    entries = [
        entry
        for k, image in enumerate(photographs(3))
        for entry in ((f"{k}.jpg", image), (f"{k}.seg.png", encode(labels[k], "PNG")))
    ]
    write_tar(Path("x.tar"), entries)
    columns = ["--columns", "image=jpg", "mask=seg.png:P"]
    assert convert("x.tar", "x.ar", "--jpeg", 90, "--max-side", 9, *columns) == 2
    assert "would shrink pictures and not 'mask'" in capsys.readouterr().err
    assert convert("x.tar", "x.ar", "--jpeg", 90, *columns) == 0
    masks = [mask.decode() for mask in ARDataset("x.ar")[:]["mask"]]
    for mask, expected in zip(masks, labels, strict=True):
        np.testing.assert_array_equal(mask, expected)
    names = {}
    exec(capsys.readouterr().out.split("to load them:\n\n")[1], names)
    transforms = {("image", "mask"): [T.RandomResizedCrop(16)]}
    batch = DataLoader(ARDataset("x.ar"), batch_size=3, transforms=transforms).batch(0)
    assert set(np.unique(batch["mask"])) <= set(range(6))


def test_a_tfrecord_file_becomes_records(capsys):
    images = photographs(4)
    rows = [
        {"image/encoded": data, "label": k, "box": [0.5, float(k), 1.0, 2.0]}
        for k, data in enumerate(images)
    ]
    write_tfrecord(Path("train-0-of-1"), rows)
    assert convert("train-0-of-1", "x.ar", "--jpeg", 90) == 2
    assert "it has 'box', 'image/encoded', 'label'" in capsys.readouterr().err
    columns = ["--columns", "image=image/encoded", "label", "box"]
    assert convert("train-0-of-1", "x.ar", "--jpeg", 90, *columns) == 0
    rows = ARDataset("x.ar")[:]
    assert rows["label"].tolist() == [0, 1, 2, 3]
    assert rows["box"][:, 1].tolist() == [0, 1, 2, 3]
    assert rows["box"].dtype == np.float32
    for data, original in zip(images_of("x.ar"), images, strict=True):
        np.testing.assert_array_equal(pixels_of(data), pixels_of(original))


def test_records_with_fields_become_records(capsys):
    images = photographs(4)
    fields = {"label": "int64", "image": Encoded(mode="L"), "box": ("float32", (4,))}
    rows = [
        {"label": k, "image": data, "box": np.full(4, k, np.float32)}
        for k, data in enumerate(images)
    ]
    write_array_record("x.ar", rows, fields=fields, progress=False)
    assert convert("x.ar", "y.ar", "--jpeg", 90) == 0
    assert ARDataset("y.ar").spec == ARDataset("x.ar").spec
    found = ARDataset("y.ar")[:]
    np.testing.assert_array_equal(found["box"], ARDataset("x.ar")[:]["box"])
    assert found["label"].tolist() == [0, 1, 2, 3]
    assert all(is_marked(image.data) for image in found["image"])
    assert convert("x.ar", "z.ar", "--jpeg", 90, "--columns", "image") == 0
    assert images_of("z.ar") == images_of("y.ar")
    assert convert("x.ar", "z.ar", "--jpeg", 90, "--columns", "mask", "--force") == 2
    assert "has no field 'mask'; it has 'label', 'image', 'box'" in capsys.readouterr().err
    # Files with these markers are those already.
    assert convert("y.ar", "again.ar", "--jpeg", 90) == 0
    assert Path("again.ar").read_bytes() == Path("y.ar").read_bytes()
    assert convert("x.ar", "x.npy") == 2
    assert "several fields, which only --jpeg converts" in capsys.readouterr().err


def test_records_that_say_nothing_need_columns(capsys):
    images = photographs(3)
    write_array_record("x.ar", images, progress=False)
    assert convert("x.ar", "y.ar", "--jpeg", 90) == 2
    assert "say it, such as --columns image label=int64" in capsys.readouterr().err
    assert convert("x.ar", "y.ar", "--jpeg", 90, "--columns", "image") == 0
    assert all(map(is_marked, images_of("y.ar")))


def test_a_bagz_file_becomes_records():
    images = photographs(3)
    with bagz.Writer("x.bagz") as writer:
        for number, data in enumerate(images):
            writer.write(number.to_bytes(8, "little") + data)
    columns = ["--columns", "label=int64", "image"]
    assert convert("x.bagz", "x.ar", "--jpeg", 90, *columns) == 0
    assert ARDataset("x.ar")[:]["label"].tolist() == [0, 1, 2]
    for data, original in zip(images_of("x.ar"), images, strict=True):
        assert is_marked(data)
        np.testing.assert_array_equal(pixels_of(data), pixels_of(original))


@pytest.mark.parametrize("as_struct", [False, True])
def test_a_parquet_file_becomes_records(as_struct, capsys):
    import pyarrow as pa
    from pyarrow import parquet

    images = photographs(20)
    column = [{"bytes": data, "path": None} for data in images] if as_struct else images
    parquet.write_table(
        pa.table({"image": column, "label": np.arange(20), "text": ["words"] * 20}),
        "x.parquet",
        row_group_size=7,
    )
    assert convert("x.parquet", "x.ar", "--jpeg", 90) == 0
    assert "left out: column 'text'" in capsys.readouterr().err
    assert ARDataset("x.ar")[:]["label"].tolist() == list(range(20))
    for data, original in zip(images_of("x.ar"), images, strict=True):
        assert is_marked(data)
        np.testing.assert_array_equal(pixels_of(data), pixels_of(original))
    assert convert("x.parquet", "y.ar", "--jpeg", 90, "--columns", "label") == 2
    assert "has no encoded images" in capsys.readouterr().err


# Files, jobs, stopping and resuming.


def test_the_file_is_the_one_that_the_library_writes():
    write_folder(photographs(20))
    for group in (1, 3):
        assert convert("photos", "x.ar", "--jpeg", 90, "--group-size", group, "--force") == 0
        rows = ARDataset("x.ar")[:]
        write_array_record(
            "library.ar",
            [{"image": bytes(one), "label": k} for one, k in zip(*rows.values(), strict=True)],
            fields={"image": Encoded(), "label": "int32"},
            compression=None,
            group_size=group,
            progress=False,
        )
        assert Path("x.ar").read_bytes() == Path("library.ar").read_bytes()


def test_the_file_is_the_same_for_any_number_of_jobs():
    write_folder([*photographs(15), *photographs(5, progressive=True)])
    options = ("--jpeg", 90, "--max-side", 100, "--compression", "zstd:3")
    found = []
    for jobs in (1, 2, 7):
        assert convert("photos", f"{jobs}.ar", *options, "--jobs", jobs) == 0
        found.append(Path(f"{jobs}.ar").read_bytes())
    assert found[0] == found[1] == found[2]


@pytest.fixture
def stopped_after(monkeypatch, capsys):
    """Return a function that converts until Ctrl-C arrives in the block with a given number."""

    def stopped_after(blocks, *arguments):
        append, counted = FieldsOutput.append, itertools.count(1)

        def append_and_press(output, encoded):
            append(output, encoded)
            if next(counted) == blocks:
                signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(FieldsOutput, "append", append_and_press)
            assert convert(*arguments) == 130
        assert "the same command resumes there" in capsys.readouterr().err

    return stopped_after


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_conversion_resumes_to_the_same_bytes_and_counts(stopped_after, capsys, shards, blocks):
    write_folder([*photographs(20), *photographs(20, progressive=True)])
    options = ("--jpeg", 90, "--max-side", 130, "--shards", shards)
    assert convert("photos", "whole.ar", *options) == 0
    whole = capsys.readouterr()
    stopped_after(blocks, "photos", "x.ar", *options)
    assert convert("photos", "x.ar", *options) == 0
    resumed = capsys.readouterr()
    assert resumed.err.startswith("resuming after ")

    def counts(text):
        return [line for line in text.splitlines() if re.match(r" +\d+ [a-z]|\d+ images", line)]

    assert counts(whole.out) == counts(resumed.out) != []
    for file in Path().glob("whole.ar*"):
        other = Path(file.name.replace("whole", "x"))
        assert file.read_bytes() == other.read_bytes()
    assert not [file for file in Path().iterdir() if "unfinished" in file.name]


@pytest.mark.parametrize(
    "counts", [[], "x", [["x"] * 3] * len(Kind), [[1.5] * 3] * len(Kind), None]
)
def test_a_journal_with_other_counts_begins_again(stopped_after, capsys, counts):
    write_folder(photographs(30))
    stopped_after(1, "photos", "x.ar", "--jpeg", 90)
    (journal,) = Path().glob(".x.ar.*/journal.json")
    noted = json.loads(journal.read_text())
    noted["progress"][0]["columns"][0][-1]["counts"] = counts
    journal.write_text(json.dumps(noted))
    assert convert("photos", "x.ar", "--jpeg", 90) == 0
    assert "beginning again: the unfinished files are gone" in capsys.readouterr().err


def test_another_quality_begins_again(stopped_after, capsys):
    write_folder(photographs(30))
    stopped_after(1, "photos", "x.ar", "--jpeg", 90, "--max-side", 50)
    assert convert("photos", "x.ar", "--jpeg", 80, "--max-side", 50) == 0
    assert "beginning again: the last run had other options" in capsys.readouterr().err


# Damage and wrong usage.


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "cut at its end": lambda data: data[:-2],
    "empty": lambda data: b"",
    "text": lambda data: b"not an image",
    "other pixels": lambda data: data[:-80] + b"\xff\xd0" * 40,
    "no table": lambda data: data.replace(b"\xff\xdb", b"\xff\xfe"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("max_side", [None, 50])
@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}, {"progressive": True}])
def test_a_damaged_image_is_named_and_nothing_is_left(folder, capsys, damage, max_side, options):
    write_folder(photographs(4, **options))
    broken = Path("photos/b/002.jpg")
    broken.write_bytes(DAMAGES[damage](broken.read_bytes()))
    sides = [] if max_side is None else ["--max-side", max_side]
    assert convert("photos", "x.ar", "--jpeg", 90, *sides) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert str(broken) in line
    assert captured.out == ""
    assert [file.name for file in folder.iterdir()] == ["photos"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x.npy", "--jpeg", 90], "--jpeg writes ArrayRecord files, and x.npy is not one"),
        (["x.ar", "--max-side", 90], "--max-side is for --jpeg"),
        (["x.ar", "--jpeg", 90, "--size", 9, 9], "--size means nothing with --jpeg"),
        (["x.ar", "--jpeg", 90, "--pad-to", 9], "--pad-to means nothing with --jpeg"),
        (["x.ar", "--jpeg", 90, "--dtype", "int8"], "--dtype means nothing with --jpeg"),
        (["x.ar", "--jpeg", 90, "--columns", "image"], "--columns means nothing for photos"),
        (["x.ar", "--jpeg", 90, "--split", "train"], "--split means nothing for photos"),
    ],
)
def test_options_that_contradict_one_another_are_refused_in_one_line(arguments, words, capsys):
    write_folder(photographs(2))
    assert convert("photos", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert [file.name for file in Path().iterdir()] == ["photos"]


@pytest.mark.parametrize(
    "arguments",
    [["--jpeg", 0], ["--jpeg", 101], ["--jpeg", "x"], ["--jpeg", 9, "--max-side", 0], ["--jpeg"]],
)
def test_numbers_outside_of_their_range_are_refused(arguments, capsys):
    write_folder(photographs(2))
    with pytest.raises(SystemExit, match="2"):
        convert("photos", "x.ar", *arguments)
    assert re.search(r"argument --(jpeg|max-side): ", capsys.readouterr().err)


def test_arrays_are_not_images(capsys):
    np.save("x.npy", np.zeros((5, 3)))
    assert convert("x.npy", "x.ar", "--jpeg", 90) == 2
    assert "x.npy has no encoded pictures, which --jpeg needs" in capsys.readouterr().err
    write_array_record("y.ar", np.zeros((5, 3)), progress=False)
    assert convert("y.ar", "x.ar", "--jpeg", 90) == 2
    assert "nothing in the file says" in capsys.readouterr().err


@pytest.mark.parametrize("column", ["=jpg", "image=", ":P", ""])
def test_columns_that_name_nothing_are_refused(column, capsys):
    write_tar(Path("x.tar"), [("0.jpg", photographs(1)[0])])
    assert convert("x.tar", "x.ar", "--jpeg", 90, "--columns", column) == 2
    assert "must be NAME, NAME=WHERE or NAME=WHERE:MODE" in capsys.readouterr().err
