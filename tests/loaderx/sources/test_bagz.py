"""BagzDataset reads files of the bagz package, and refuses what is damaged."""

import os
import pickle
import random
import struct

import bagz
import numpy as np
import pytest
import zstandard

from loaderx import ArgumentError, BagzDataset, DataError, Encoded, Spec
from loaderx.sources.encoded import bagz as ours
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.sources.open_files import OpenFiles
from loaderx.sources.records.fields import encode_fields, record_fields
from tests.loaderx.sources.encoded_images import (
    assert_delivers_images,
    assert_same_rows,
    bytes_of,
    pictures,
)

COUNT = 13
IMAGES, MASKS = pictures(COUNT), pictures(COUNT, "PNG", 1)
LABELS = np.arange(COUNT) - 5
BOXES = np.arange(COUNT * 3, dtype=np.float32).reshape(COUNT, 3)
ROWS = {"image": IMAGES, "label": LABELS, "mask": MASKS, "box": BOXES}
FIELDS = {
    "image": Encoded(),
    "label": "int64",
    "mask": Encoded(mode="P"),
    "box": ("float32", (3,)),
}
LAYOUT = record_fields(FIELDS)
RECORDS = [
    encode_fields(LAYOUT, {name: column[row] for name, column in ROWS.items()})
    for row in range(COUNT)
]


def write_bagz(path, records, **options):
    with bagz.Writer(path, bagz.Writer.Options(**options)) as writer:
        for record in records:
            writer.write(record)
    return path


@pytest.mark.parametrize("suffix", [".bag", ".bagz", ""])
@pytest.mark.parametrize("placement", ["TAIL", "SEPARATE"])
def test_records_are_images_and_numbers(tmp_path, suffix, placement):
    placement = getattr(bagz.LimitsPlacement, placement)
    path = write_bagz(tmp_path / f"x{suffix}", RECORDS, limits_placement=placement)
    options = bagz.Reader.Options(limits_placement=placement)
    assert bagz.Reader(path, options).read() == RECORDS
    source = BagzDataset(path, FIELDS)
    assert source.spec == {
        "image": EncodedSpec(Encoded()),
        "label": Spec((), np.int64),
        "mask": EncodedSpec(Encoded(mode="P")),
        "box": Spec((3,), np.float32),
    }
    assert_delivers_images(source, ROWS)
    assert source[3]["image"].where == f"{path}, record 3"
    assert source[3]["image"].decode().shape == (24, 27, 3)
    path = write_bagz(tmp_path / f"y{suffix}", IMAGES, limits_placement=placement)
    assert_delivers_images(BagzDataset(path, {"photo": Encoded(mode="L")}), {"photo": IMAGES})


def test_shards_follow_one_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, rows in enumerate([range(4), range(0), range(4, COUNT)]):
        path = tmp_path / f"t-{number:05}-of-00003.bagz"
        write_bagz(path, [RECORDS[row] for row in rows])
    assert bagz.Reader("t@3.bagz").read() == RECORDS
    for names in (
        "t@3.bagz",
        "t-*.bagz",
        "t-{00000..00002}-of-00003.bagz",
        ["t-00000-of-00003.bagz", path],
    ):
        source = BagzDataset(names, FIELDS)
        assert_same_rows(source[:], ROWS)
        assert source[5]["image"].where == f"{path}, record 1"
    monkeypatch.chdir("/")
    assert_delivers_images(source, ROWS)
    with pytest.raises(FileNotFoundError, match=r"t-00003-of-00004\.bagz|t-00000-of-00004\.bagz"):
        BagzDataset(tmp_path / "t@4.bagz", FIELDS)


def test_the_compression_may_be_another_than_the_name_says(tmp_path):
    path = write_bagz(tmp_path / "x.bag", RECORDS, compression=bagz.CompressionZstd(level=1))
    assert_same_rows(BagzDataset(path, FIELDS, compression="zstd")[:], ROWS)
    path = write_bagz(tmp_path / "x.bagz", RECORDS, compression=bagz.CompressionNone())
    assert_same_rows(BagzDataset(path, FIELDS, compression="none")[:], ROWS)
    with pytest.raises(
        DataError, match=r"x\.bagz, record 2: its zstd frame cannot be decompressed"
    ):
        BagzDataset(path, FIELDS)[2]
    with pytest.raises(ArgumentError, match="`compression`"):
        BagzDataset(path, FIELDS, compression="gzip")


@pytest.mark.parametrize("fields", [None, [], {}, {"x": "jpg"}, {"x": ("int64", (0,))}])
def test_fields_that_mean_nothing_are_refused(tmp_path, fields):
    with pytest.raises(ArgumentError, match="field"):
        BagzDataset(write_bagz(tmp_path / "x.bag", RECORDS), fields)


@pytest.mark.parametrize("suffix", [".bag", ".bagz"])
def test_a_record_that_is_too_short_is_named(tmp_path, suffix):
    path = write_bagz(tmp_path / f"x{suffix}", [*RECORDS, b"123", b""])
    source = BagzDataset(path, FIELDS)
    for row, size in ((COUNT, 3), (COUNT + 1, 0)):
        for name in ("image", "label", "mask", "box"):
            with pytest.raises(
                DataError, match=rf"record {row}: it has {size} bytes, and .* needs"
            ):
                source.fields[name][row]
    assert_same_rows(source[:COUNT], ROWS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no records"),
        (b"abc", "is truncated, or not a Bagz file"),
        (b"\xff" * 100, "is truncated, or not a Bagz file"),
        (IMAGES[0], "is truncated, or not a Bagz file"),
        (b"abcdef" + struct.pack("<2Q", 8, 6), "limits of its records contradict one another"),
        (b"abcdef" + struct.pack("<2Q", 2**63 + 3, 6), "contradict"),
        (b"abcdefg" + struct.pack("<2Q", 2, 6), "its limits have 17 bytes"),
    ],
)
def test_other_files_than_bagz_are_refused(tmp_path, content, words):
    (tmp_path / "x.bag").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.bag.*{words}"):
        BagzDataset(tmp_path / "x.bag", {"image": Encoded()})
    with pytest.raises(DataError, match="is a folder, not a Bagz file"):
        BagzDataset(tmp_path, {"image": Encoded()})


def test_limits_of_another_file_are_refused(tmp_path):
    separate = bagz.LimitsPlacement.SEPARATE
    path = write_bagz(tmp_path / "x.bag", RECORDS, limits_placement=separate)
    write_bagz(tmp_path / "y.bag", RECORDS[1:], limits_placement=separate)
    (tmp_path / "limits.y.bag").replace(tmp_path / "limits.x.bag")
    with pytest.raises(DataError, match=r"x\.bag is not a Bagz file, or it is damaged"):
        BagzDataset(path, FIELDS)


def test_a_frame_that_claims_too_much_is_refused(tmp_path):
    bomb = zstandard.ZstdCompressor().compress(b"x")
    # A header with a content size of eight bytes: one terabyte.
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    path = write_bagz(tmp_path / "x.bag", [bomb, frame, unknown, bomb + b"more"])
    source = BagzDataset(path, {"image": Encoded()}, compression="zstd")
    assert bytes(source[0]["image"]) == b"x"
    for row, words in (
        (1, f"claims {1 << 40} bytes"),
        (2, "claims -1 bytes"),
        (3, "cannot be decompressed"),
    ):
        with pytest.raises(DataError, match=rf"x\.bag, record {row}: .*{words}"):
            source[row]


def test_a_file_that_was_cut_or_replaced_is_refused(tmp_path):
    path = write_bagz(tmp_path / "x.bag", RECORDS)
    source = BagzDataset(path, FIELDS)
    pickled = pickle.dumps(source)
    assert IMAGES[3] not in pickled
    source[0]
    os.truncate(path, len(b"".join(RECORDS[:8])) + 10)
    assert bytes_of(source[:8]["image"]) == IMAGES[:8]
    with pytest.raises(DataError, match=r"x\.bag, record 8: the file ends after 10 of its"):
        source[8]
    write_bagz(path, RECORDS[::-1])
    with pytest.raises(DataError, match=r"x\.bag has changed since a data set of it was pickled"):
        pickle.loads(pickled)


def fuzz(tmp_path, count, seed):
    """Read damaged files: each is refused with its name, or has the records that the package reads."""
    contents = {
        suffix: write_bagz(tmp_path / f"whole{suffix}", RECORDS).read_bytes()
        for suffix in (".bag", ".bagz")
    }
    outcomes = {"refused": 0, "same": 0, "unnamed": 0}
    for number in range(count):
        random_ = random.Random(f"{seed}/{number}")
        suffix = random_.choice([*contents])
        content = bytearray(contents[suffix])
        if random_.random() < 0.2:
            content = content[random_.randrange(100) : random_.randrange(len(content))]
        else:
            limits = len(content) - 8 * COUNT
            for _ in range(random_.choice([1, 1, 5])):
                place = random_.choice(
                    [random_.randrange(limits, len(content)), random_.randrange(limits)]
                )
                content[place] = random_.choice(
                    [0, 0xFF, content[place] ^ 1, random_.randrange(256)]
                )
        path = tmp_path / f"x{suffix}"
        path.write_bytes(content)
        rows = []
        try:
            reader = ours.BagzReader(path, suffix == ".bagz", OpenFiles())
            rows = [record.tobytes() for record in reader.records(range(len(reader)))]
            if rows:
                BagzDataset(path, FIELDS)[:]
        except DataError as error:
            outcomes["refused" if str(path) in str(error) else "unnamed"] += 1
            if not rows:
                continue
        assert rows == bagz.Reader(path).read(), number
        outcomes["same"] += 1
    return outcomes


def test_damaged_files_are_refused_or_read_as_the_package_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 400, 0)
    assert min(outcomes["refused"], outcomes["same"]) > 30, outcomes
    assert not outcomes["unnamed"]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_damaged_files_are_refused_or_read_as_the_package_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 10_000, 1)
    assert min(outcomes["refused"], outcomes["same"]) > 1000, outcomes
    assert not outcomes["unnamed"]
