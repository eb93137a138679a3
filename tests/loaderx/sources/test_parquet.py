"""ParquetDataset reads images and numbers of Parquet files in any order, and refuses what is damaged."""

import base64
import itertools
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import warnings

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
from PIL import Image

from loaderx import ArgumentError, DataError, DataLoader, Encoded, ParquetDataset, Spec
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources.encoded import parquet, parquet_pages
from loaderx.sources.encoded.examples import DamagedError
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.sources.encoded.parquet_footer import Chunk
from tests.loaderx.sources.encoded_images import (
    assert_delivers_images,
    bytes_of,
    photograph,
    pictures,
)
from tests.loaderx.sources.parquet_files import (
    column_by_pyarrow,
    hugging_face_images,
    write_parquet,
)
from tests.loaderx.sources.tar_files import LONG_AGO, long_ago
from tests.loaderx.sources.tfrecord_files import varint
from tests.waiting import join, started

COUNT = 11
IMAGES, MASKS = pictures(COUNT), pictures(COUNT, "PNG", 1)
# A value that is there twice is once in a dictionary.
IMAGES[7] = IMAGES[2]
LABELS = np.arange(COUNT) * 1000 - 2000
BOXES = np.arange(COUNT * 4, dtype=np.float32).reshape(COUNT, 4) / 8
ROWS = {"image": IMAGES, "label": LABELS, "mask": MASKS, "box": BOXES}
FIELDS = {
    "image": Encoded("image.bytes"),
    "label": "label",
    "mask": Encoded(mode="P"),
    "box": ("float32", "box", (4,)),
}
CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
# Enough for several blocks and pages. The values differ in length, and one is empty.
RANDOM = np.random.default_rng(0)
LARGE = [RANDOM.bytes(int(size)) for size in RANDOM.integers(0, 20_000, 60)]
LARGE[9] = b""
LARGE[20] = LARGE[40] = RANDOM.bytes(400_000)
LARGE[30] = bytes(300_000)


def columns(rows=range(COUNT), images=IMAGES):
    rows = list(rows)
    return {
        "image": hugging_face_images([images[row] for row in rows]),
        "label": pa.array(LABELS[rows]),
        "mask": pa.array([MASKS[row] for row in rows], pa.binary()),
        "box": pa.array(BOXES[rows].tolist(), pa.list_(pa.float32())),
        "text": pa.array([str(row) for row in rows]),
    }


@pytest.mark.parametrize("group", [1, 3, COUNT])
@pytest.mark.parametrize("compression", CODECS)
def test_columns_are_fields(tmp_path, compression, group):
    path = tmp_path / "x.parquet"
    write_parquet(path, columns(), compression=compression, row_group_size=group)
    source = ParquetDataset(path, FIELDS)
    assert source.spec == {
        "image": EncodedSpec(Encoded("image.bytes")),
        "label": Spec((), np.int64),
        "mask": EncodedSpec(Encoded("mask", mode="P")),
        "box": Spec((4,), np.float32),
    }
    assert_delivers_images(source, ROWS)
    assert source[3]["image"].where == f"{path}, row 3 (row group {3 // group})"
    assert source[3]["image"].decode().shape == (24, 27, 3)
    assert_delivers_images(ParquetDataset(path, FIELDS), ROWS)
    assert column_by_pyarrow(path, "image", "bytes") == IMAGES


def test_a_file_is_scanned_once(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", columns(), row_group_size=4)
    ParquetDataset(path, FIELDS)
    (index,) = tmp_path.glob(".x.parquet.*")
    size = path.stat().st_size
    # What is in the pages is not looked at again, nor is the footer.
    path.write_bytes(bytes(size))
    long_ago(path)
    source = ParquetDataset(path, {**FIELDS, "label": ("int64", "label")})
    assert source.fields["label"][:].tolist() == LABELS.tolist()
    assert source.fields["image"]._rows.where(5) == f"{path}, row 5 (row group 1)"
    long_ago(path, LONG_AGO + 2)
    with pytest.raises(DataError, match=r"x\.parquet is not a Parquet file"):
        ParquetDataset(path, FIELDS)
    assert index.exists()


FORMS = {
    "dictionaries": {},
    "no dictionaries": {"use_dictionary": False},
    "small dictionaries": {"dictionary_pagesize_limit": 200_000, "write_batch_size": 5},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2 without dictionaries": {
        "data_page_version": "2.0",
        "use_dictionary": False,
    },
    "small pages": {"use_dictionary": False, "data_page_size": 1000, "write_batch_size": 3},
    "checksums and a page index": {"write_page_checksum": True, "write_page_index": True},
    "chunks by content": {"use_content_defined_chunking": True, "use_dictionary": False},
    "format 1.0": {"version": "1.0"},
}


@pytest.mark.parametrize("group", [13, 60])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", CODECS)
def test_every_form_of_pages_is_read(tmp_path, compression, form, group):
    path = tmp_path / "x.parquet"
    required = pa.schema([pa.field("image", pa.binary(), nullable=False)])
    for table in (
        pa.table({"image": LARGE}),
        pa.table([LARGE], schema=required),
        pa.table({"image": pa.array(LARGE, pa.large_binary())}),
    ):
        write_parquet(path, table, compression=compression, row_group_size=group, **FORMS[form])
        source = ParquetDataset(path, {"image": "image", "same": Encoded("image")})
        rows = np.random.default_rng(1).permutation(60)
        found = source[rows]
        assert bytes_of(found["image"]) == [LARGE[row] for row in rows]
        assert bytes_of(found["same"]) == [LARGE[row] for row in rows]


def test_a_value_of_several_mebibytes_is_read(tmp_path):
    images = [RANDOM.bytes(5_000_000), b"x", bytes(3_000_000), RANDOM.bytes(1_000_000) * 3]
    for compression in CODECS:
        path = write_parquet(tmp_path / "x", {"image": images}, compression=compression)
        long_ago(path, LONG_AGO + CODECS.index(compression))
        assert bytes_of(ParquetDataset(path, {"image": "image"})[:]["image"]) == images


@pytest.mark.parametrize("size", [0, 900, 1100, 100_000])
def test_a_page_header_may_have_statistics_of_any_size(size):
    # As old writers have them: the least and the greatest value, whole.
    def number(value):
        return varint(2 * value)

    page = b"".join(struct.pack("<I", len(image)) + image for image in IMAGES)
    statistics = b"\x18" + varint(size) + bytes(size) + b"\0"
    inside = b"\x15" + number(COUNT) + b"\x15" + number(0) + b"\x15\x06\x15\x06\x1c" + statistics
    header = b"\x15\0" + (b"\x15" + number(len(page))) * 2 + b"\x2c" + inside + b"\0\0"
    content = b"PAR1" + header + page

    def located(content):
        return parquet_pages.locate_values(
            lambda length, offset: content[offset : offset + length],
            Chunk(4, COUNT, 0), 0, parquet_pages.Blocks(), lambda _: None,
        )  # fmt: skip

    first = 4 + len(header)
    found = [page[begin : begin + length] for begin, length in located(content)]
    assert found == IMAGES
    for stop in (5, first - 1, first, len(content) - 1):
        with pytest.raises(DamagedError, match="end"):
            located(content[:stop])


def test_files_follow_one_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, rows in enumerate([range(4), [], range(4, COUNT)]):
        path = tmp_path / f"t-{number:05}-of-00003.parquet"
        # Each is compressed in another way.
        write_parquet(path, columns(rows), row_group_size=2, compression=CODECS[number])
    for names in (
        "t-*.parquet",
        "t-{00000..00002}-of-00003.parquet",
        ["t-00000-of-00003.parquet", "t-00002-of-00003.parquet"],
    ):
        source = ParquetDataset(names, FIELDS)
        assert_delivers_images(source, ROWS)
        assert source[9]["image"].where == (
            f"{tmp_path / 't-00002-of-00003.parquet'}, row 5 (row group 2)"
        )
    (tmp_path / "t-00001-of-00003.parquet").unlink()
    with pytest.raises(DataError, match=r"these of 00003 files are missing: \[1\]"):
        ParquetDataset("t-*", FIELDS)


def test_columns_are_found_by_their_names_with_dots(tmp_path):
    table = {
        "a.b": pa.array([1, 2]),
        "c": pa.array([{"d": {"e": 3, "bytes": IMAGES[0]}}, {"d": {"e": 4, "bytes": IMAGES[1]}}]),
        "bytes": pa.array(MASKS[:2]),
    }
    path = write_parquet(tmp_path / "x", table)
    fields = {"x": "a.b", "y": "c.d.e", "z": "c.d", "u": Encoded("c.d.bytes"), "bytes": Encoded()}
    expected = {
        "x": np.array([1, 2]), "y": np.array([3, 4]), "z": IMAGES[:2], "u": IMAGES[:2], "bytes": MASKS[:2]
    }  # fmt: skip
    assert_delivers_images(ParquetDataset(path, fields), expected)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"],
)  # fmt: skip
def test_a_name_alone_has_the_dtype_of_the_column(tmp_path, dtype):
    values = np.array([0, 1, 1], dtype)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.tile(values, 2)), 2)
    path = write_parquet(tmp_path / "x", {"x": pa.array(values), "y": lists})
    expected = {"x": values, "y": np.tile(values, 2).reshape(3, 2)}
    assert_delivers_images(ParquetDataset(path, {"x": "x", "y": "y"}), expected)


def test_numbers_have_the_dtype_that_is_asked_for(tmp_path):
    table = {
        "x": [-5, 7],
        "y": [[1, 0, 1], [0, 0, 1]],
        "z": [0.1, 2.5],
        "u": pa.array([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int64(), 2))),
        "s": [{"t": 5}, {"t": 6}],
    }
    path = write_parquet(tmp_path / "x", table, row_group_size=1)
    fields = {
        "a": ("int8", "x"),
        "b": ("float64", "x"),
        "c": ("bool", "y", (3,)),
        "d": ("float32", "z"),
        "e": ("float16", "z"),
        "f": ("int16", "u", (1, 2)),
        "g": ("uint8", "s.t"),
    }
    expected = {
        "a": np.array([-5, 7], np.int8),
        "b": np.array([-5.0, 7.0]),
        "c": np.array([[1, 0, 1], [0, 0, 1]], bool),
        "d": np.array([0.1, 2.5], np.float32),
        "e": np.array([0.1, 2.5], np.float16),
        "f": np.array([[[1, 2]], [[3, 4]]], np.int16),
        "g": np.array([5, 6], np.uint8),
    }
    assert_delivers_images(ParquetDataset(path, fields), expected)


def test_extremes_of_64_bits_are_read(tmp_path):
    numbers = [-(2**63), 2**63 - 1, -1, 0, 2**31, -(2**31) - 1]
    path = write_parquet(tmp_path / "x", {"x": numbers})
    assert ParquetDataset(path, {"x": ("int64", "x")})[:]["x"].tolist() == numbers
    path = write_parquet(tmp_path / "y", {"x": pa.array([2**64 - 1, 0], pa.uint64())})
    assert ParquetDataset(path, {"x": "x"})[:]["x"].tolist() == [2**64 - 1, 0]
    with pytest.raises(DataError, match="18446744073709551615 of the column 'x'"):
        ParquetDataset(path, {"x": ("int64", "x")})


@pytest.mark.parametrize(
    ("field", "column", "words"),
    [
        ("y", [1], r"x has no column 'y'; it has 'x'"),
        ("x.y", [1], "has no column 'x.y'"),
        (("int8", "x.z"), [{"y": 1}], "has no column 'x.z' for the field 'f'; it has 'x.y'"),
        (Encoded("y"), [1], "has no column 'y'"),
        (("int64", "y"), [1], "has no column 'y'"),
        (Encoded("x"), [1], "the column 'x' of .*x, for the field 'f', is int64, not binary"),
        (Encoded("x"), ["a"], "is string, not binary"),
        (Encoded("x"), [[b"a"]], "is list<.*binary>, not binary"),
        (Encoded("x"), [{"path": "a"}], "is struct<path: string>, not binary"),
        (Encoded("x"), pa.array([b"abc"], pa.binary(3)), r"is fixed_size_binary\[3\], not binary"),
        ("x", ["a"], "the column 'x' of .*x is string, not numbers or images"),
        ("x", pa.array([1], pa.timestamp("s")), r"is timestamp\[.*\], not numbers or images"),
        ("x", [[1, 2]], r'has lists of any length.*such as \("float32", \'x\', \(4,\)\)'),
        (("int64", "x"), [b"a"], r"the column 'x' of the field 'f' of .*x is binary, not int64"),
        (("int64", "x"), [[1]], r"row 0 \(row group 0\): the column 'x' of the field 'f' is a list of 1, not int64"),
        (("int64", "x", (3,)), [1], r"is int64, not int64\[3\]"),
        (("int64", "x", (3,)), [[1, 2, 3], [1, 2]], r"x, row 1 \(row group 0\): .* is a list of 2, not int64\[3\]"),
        (("int64", "x", (2, 1)), [[[1], [2]], [[3], [4, 5]]], r"row 1 \(row group 0\): .* of 2, not int64\[2, 1\]"),
        (("int8", "x"), [1, 200], r"row 1 \(row group 0\): 200 of .* 'f' does not fit into int8"),
        (("uint8", "x", (2,)), [[1, 2], [3, -1]], r"row 1 \(row group 0\): -1 of .* does not fit into uint8"),
        (("int64", "x"), [1.5], "1.5 of .* does not fit into int64"),
        (("bool", "x"), [0, 2], "2 of .* does not fit into bool"),
        (("int64", "x"), [True], "True of .* does not fit into int64"),
        (("int64", "x"), [1, None], r"x, row 1 \(row group 0\): the column 'x' of the field 'f' is null"),
        (("int64", "x", (2,)), [[1, 2], [3, None]], r"x, row 1 \(row group 0\): .* is null"),
        (("int64", "x", (2,)), [[1, 2], None], r"x, row 1 \(row group 0\): .* is null"),
        (("int64", "x.y"), [{"y": 1}, None], r"x, row 1 \(row group 0\): .* is null"),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit_is_named(tmp_path, field, column, words):
    path = write_parquet(tmp_path / "x", {"x": column})
    with pytest.raises((DataError, ArgumentError), match=words):
        ParquetDataset(path, {"f": field})


def test_a_null_image_is_named(tmp_path):
    for number, (form, compression, group) in enumerate(
        itertools.product(FORMS, ("none", "zstd"), (4, COUNT))
    ):
        for row in (0, 6, COUNT - 1):
            images = [*IMAGES[:row], None, *IMAGES[row + 1 :]]
            path = tmp_path / f"{number}-{row}"
            options = {"compression": compression, "row_group_size": group, **FORMS[form]}
            write_parquet(path, columns(images=images), **options)
            where = rf"-{row}, row {row} \(row group {row // group}\): the column 'image.bytes' .* is null"
            with pytest.raises(DataError, match=where):
                ParquetDataset(path, FIELDS)
    paths = pa.array([{"bytes": None, "path": "a.jpg"}])
    path = write_parquet(tmp_path / "paths", {"image": paths.cast(hugging_face_images([]).type)})
    with pytest.raises(DataError, match="or embed images of which only the path is stored"):
        ParquetDataset(path, {"image": Encoded("image")})


def test_files_of_different_columns_are_refused(tmp_path):
    write_parquet(tmp_path / "a", {"image": IMAGES, "label": LABELS})
    write_parquet(tmp_path / "b", {"image": IMAGES, "class": LABELS})
    write_parquet(tmp_path / "c", {"image": IMAGES, "label": LABELS.astype(np.int16)})
    write_parquet(tmp_path / "d", {"image": IMAGES, "label": [str(one) for one in LABELS]})
    fields = {"image": Encoded(), "label": "label"}

    def opened(*names):
        return ParquetDataset([tmp_path / name for name in names], fields)

    with pytest.raises(DataError, match=r"b has no column 'label' .*; it has 'image', 'class'"):
        opened("a", "b")
    with pytest.raises(DataError, match=r"'label' of .*d is string, not int64"):
        opened("a", "d")
    # Numbers that fit are the same in a smaller dtype.
    assert opened("a", "c")[:]["label"].tolist() == [*LABELS, *LABELS]


@pytest.mark.parametrize(
    "fields", [{}, "x", {"x": 1}, {"x": ("int64", 5)}, {"x": ("S5", "x")}, {"x": ("int64", "x", (-1,))}]
)  # fmt: skip
def test_fields_that_mean_nothing_are_refused(tmp_path, fields):
    path = write_parquet(tmp_path / "x", columns())
    with pytest.raises(ArgumentError, match=r"`fields`|field 'x'"):
        ParquetDataset(path, fields)
    for size in (-1, 1.5, True, "1GB", None):
        with pytest.raises(ArgumentError, match="`cache_bytes`"):
            ParquetDataset(path, FIELDS, cache_bytes=size)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"PAR1", b"x" * 100, IMAGES[0], b"PAR1\0\0\0\0PAR1"]
)
def test_other_files_than_parquet_are_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    for fields in (FIELDS, {"image": Encoded()}):
        with pytest.raises(DataError, match="x is not a Parquet file, or it is truncated"):
            ParquetDataset(tmp_path / "x", fields)
    with pytest.raises(DataError, match="is a folder, not a Parquet file"):
        ParquetDataset(tmp_path, FIELDS)
    with pytest.raises(FileNotFoundError, match="no file"):
        ParquetDataset(tmp_path / "none.parquet", FIELDS)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    path = write_parquet(tmp_path / "x", {"image": IMAGES, "lapel": LABELS})
    path.write_bytes(path.read_bytes().replace(b"lapel", b"l\xffpel"))
    with pytest.raises(DataError, match="x is damaged, or cannot be read"):
        ParquetDataset(path, {"image": Encoded()})


def test_a_file_without_rows_is_refused(tmp_path):
    path = write_parquet(tmp_path / "x", columns([]))
    with pytest.raises(DataError, match="x has no rows"):
        ParquetDataset(path, FIELDS)
    with pytest.raises(DataError, match="x and 1 more files have no rows"):
        ParquetDataset([path, path], {"image": Encoded("mask")})


def test_a_truncated_file_is_refused(tmp_path):
    content = write_parquet(tmp_path / "x", columns()).read_bytes()
    for size in range(0, len(content), 97):
        (tmp_path / "x").write_bytes(content[:size])
        with pytest.raises(DataError, match="x is not a Parquet file, or it is truncated"):
            ParquetDataset(tmp_path / "x", FIELDS)
        # With an end as it should be, and pages that are missing.
        (tmp_path / "x").write_bytes(content[:4] + content[size:])
        if size > 4:
            with pytest.raises(DataError, match=str(tmp_path / "x")):
                ParquetDataset(tmp_path / "x", FIELDS)


class KeysInClear(pe.KmsClient):
    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("open_footer", [False, True])
@pytest.mark.parametrize("fields", [{"image": Encoded()}, {"label": "label"}])
def test_an_encrypted_file_is_refused(tmp_path, fields, open_footer):
    factory = pe.CryptoFactory(lambda _: KeysInClear())
    chosen = pe.EncryptionConfiguration(
        "f", column_keys={"k": ["image"]}, plaintext_footer=open_footer
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), chosen)
    write_parquet(
        tmp_path / "x", {"image": IMAGES, "label": LABELS}, encryption_properties=properties
    )
    with pytest.raises(DataError, match="x is encrypted"):
        ParquetDataset(tmp_path / "x", fields)


def test_encodings_without_random_access_are_refused(tmp_path):
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        options = {"use_dictionary": False, "column_encoding": {"image": encoding}}
        path = write_parquet(tmp_path / encoding, {"image": IMAGES}, **options)
        with pytest.raises(
            DataError, match=rf"row group 0, column 'image': its encoding is {encoding}.* again"
        ):
            ParquetDataset(path, {"image": Encoded()})


def test_a_wrong_checksum_is_refused(tmp_path):
    path = write_parquet(tmp_path / "x", columns(), write_page_checksum=True, compression="none")
    content = bytearray(path.read_bytes())
    content[content.index(IMAGES[4]) + 300] ^= 4
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"x, row group 0, column 'image.bytes': the checksum of the page at \d+"
    ):
        ParquetDataset(path, FIELDS)


@pytest.mark.parametrize("compression", CODECS)
def test_a_file_that_changed_is_refused(tmp_path, compression):
    path = write_parquet(tmp_path / "x", columns(), compression=compression)
    source = ParquetDataset(path, FIELDS)
    copied = pickle.dumps(source)
    os.utime(path, (LONG_AGO + 5, LONG_AGO + 5))
    for one in (source, pickle.loads(copied)):
        with pytest.raises(DataError, match=r"x has changed since it was indexed"):
            one[4]


@pytest.mark.parametrize("compression", CODECS)
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, compression):
    path = write_parquet(tmp_path / "x", {"image": LARGE}, compression=compression)
    source = ParquetDataset(path, {"image": "image"}, cache_bytes=1 << 30)
    assert bytes(source[0]["image"]) == LARGE[0]
    os.truncate(path, 1000)
    fresh = [row for row in range(60) if LARGE[row] and row not in (9, 40)]
    if compression in ("none", "snappy"):
        with pytest.raises(DataError, match=r"x, row 59 \(row group 0\).*been cut since"):
            source[59]
    else:
        assert bytes_of(source[fresh]["image"]) == [LARGE[row] for row in fresh]


def test_bytes_that_change_unseen_are_an_error_of_their_row(tmp_path):
    for compression in CODECS[1:]:
        path = tmp_path / compression
        write_parquet(path, {"image": LARGE}, compression=compression, use_dictionary=False)
        source = ParquetDataset(path, {"image": "image"})
        content = path.read_bytes()
        path.write_bytes(content[:4] + b"\xff" * (len(content) - 4))
        long_ago(path)
        with pytest.raises(
            DataError, match=rf"{compression}, row 5 \(row group 0\): \d+ bytes of "
        ):
            source[5]


def pages_in(source):
    """Return the bytes that the cache of a data set holds, counted one by one."""
    cache = source.fields["image"]._rows._cache
    found = sum(page.nbytes + ends.nbytes for page, ends in cache._chunks.values())
    assert found == cache._bytes
    assert not cache._busy
    return found


def zstd_file(tmp_path, rows=64, group=4):
    """Write groups of a page each, of 400 kB."""
    images = [RANDOM.bytes(100_000) for _ in range(rows)]
    path = write_parquet(
        tmp_path / "x", {"image": images}, compression="zstd", row_group_size=group
    )
    return path, images


def test_the_cache_of_pages_is_bounded(tmp_path):
    path, images = zstd_file(tmp_path)
    rows = np.random.default_rng(2).integers(0, 64, 200)
    for most in (0, 399_999, 1_000_000, 1 << 28):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = ParquetDataset(path, {"image": "image"}, cache_bytes=most)
        copied = pickle.loads(pickle.dumps(source))
        for one in (source, copied):
            highest = 0
            for row in rows:
                assert bytes(one[int(row)]["image"]) == images[row]
                highest = max(highest, pages_in(one))
            # A page has the lengths of its values, and the levels.
            assert highest // 400_000 == min(most // 400_100, 16)
            assert highest <= most


def test_a_page_is_decompressed_once_for_all_threads_that_need_it(tmp_path, monkeypatch):
    path, images = zstd_file(tmp_path)
    source = ParquetDataset(path, {"image": "image"})
    made = []
    real = parquet.unpacked_page
    everyone = threading.Barrier(8)

    def counted(*arguments):
        made.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(parquet, "unpacked_page", counted)
    found = {}

    def read(number):
        everyone.wait(10)
        found[number] = bytes_of(source[:]["image"])

    threads = [started(read, number) for number in range(8)]
    for thread in threads:
        join(thread)
    assert list(found.values()) == [images] * 8
    assert len(made) == 16


def test_a_cache_that_is_too_small_for_random_order_is_told(tmp_path):
    path, _ = zstd_file(tmp_path)
    words = r"'image' of .*x is compressed with ZSTD in pages of 0.4 MB, and all 6 MB .* `cache_bytes` \(=1000000\)"
    with pytest.warns(UserWarning, match=words) as told:
        ParquetDataset(path, {"image": "image"}, cache_bytes=1_000_000)
    assert [one.filename for one in told] == [__file__]
    # With others there is no need of it.
    for compression in ("none", "snappy"):
        write_parquet(tmp_path / compression, {"image": LARGE}, compression=compression)
        source = ParquetDataset(tmp_path / compression, {"image": "image"}, cache_bytes=0)
        assert bytes_of(source[:]["image"]) == LARGE
        assert pages_in(source) == 0


def test_a_row_of_snappy_pages_is_read_without_the_rest_of_its_page(tmp_path, monkeypatch):
    images = [RANDOM.bytes(50_000) for _ in range(100)]
    path = write_parquet(tmp_path / "x", {"image": images}, compression="snappy")
    source = ParquetDataset(path, {"image": "image"})
    sizes = []
    real = parquet.unpacked_page

    def measured(codec, data, size):
        sizes.append(size)
        return real(codec, data, size)

    monkeypatch.setattr(parquet, "unpacked_page", measured)
    assert bytes_of(source[:]["image"]) == images
    assert max(sizes) <= 50_000 + 2 * (parquet_pages.BLOCK_BYTES + (1 << 16))


def saved_by_hugging_face(path, count=24):
    """Write images and labels as `datasets` does; return their pixels."""
    pixels = [photograph(40 + row, 60 - row, seed=row) for row in range(count)]
    data = datasets.Dataset.from_dict(
        {
            "image": [Image.fromarray(one) for one in pixels],
            "label": [row % 3 for row in range(count)],
        },
        features=datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
        ),
    )
    data.to_parquet(path, batch_size=7)
    return pixels


@pytest.mark.parametrize("name", ["image", "image.bytes"])
def test_images_of_hugging_face_are_read(tmp_path, name):
    pixels = saved_by_hugging_face(tmp_path / "x.parquet")
    source = ParquetDataset(tmp_path / "x.parquet", {"image": Encoded(name), "label": "label"})
    found = source[:]
    assert found["label"].tolist() == [row % 3 for row in range(24)]
    for image, expected in zip(found["image"], pixels, strict=True):
        np.testing.assert_array_equal(image.decode(), expected)


def test_files_of_polars_are_read(tmp_path):
    for compression in ("zstd", "snappy", "uncompressed", "lz4", "gzip"):
        path = tmp_path / compression
        frame = pl.DataFrame({"image": LARGE, "label": range(60), "box": [[1.5, 2.0]] * 60})
        frame.write_parquet(path, compression=compression, row_group_size=17)
        fields = {"image": "image", "label": "label", "box": ("float64", "box", (2,))}
        expected = {"image": LARGE, "label": np.arange(60), "box": np.tile([1.5, 2.0], (60, 1))}
        assert_delivers_images(ParquetDataset(path, fields), expected)


def loader(path, **options):
    source = ParquetDataset(path, {"image": Encoded("image.bytes"), "label": "label"})
    ops = {"image": [T.RandomResizedCrop(24), T.RandomFlip(), T.ToFloat()]}
    return DataLoader(
        source, **{"batch_size": 5, "seed": 3, "transforms": ops, "output": "numpy", **options}
    )


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_batches_are_the_same_for_any_workers_and_after_a_resume(tmp_path, compression):
    images = [IMAGES[row % COUNT] for row in range(30)]
    path = write_parquet(
        tmp_path / "x",
        {"image": hugging_face_images(images), "label": np.arange(30)},
        compression=compression,
        row_group_size=7,
    )
    with iter(loader(path, workers=1)) as alone:
        batches = [next(alone) for _ in range(9)]
    assert batches[0]["image"].shape == (5, 24, 24, 3)
    for workers in (2, 4):
        with iter(loader(path, workers=workers)) as together:
            assert all(same(next(together), batch) for batch in batches[:4])
            state = json.dumps(together.get_state())
        with iter(loader(path, workers=workers)) as resumed:
            resumed.set_state(json.loads(state))
            assert all(same(next(resumed), batch) for batch in batches[4:])
    assert same(pickle.loads(pickle.dumps(loader(path))).batch(6), batches[6])


def test_damaged_images_are_replaced_or_named(tmp_path):
    images = [*IMAGES]
    images[3], images[8] = b"no image", IMAGES[8][:-300]
    path = write_parquet(tmp_path / "x", columns(images=images), row_group_size=4)
    with pytest.raises(DataError) as failure:
        loader(path, shuffle=False).batch(0)
    assert f"{path}, row 3 (row group 0) (row 3)" in str(failure.value.__notes__)
    made = loader(path, shuffle=False, on_error="replace", num_epochs=1)
    with iter(made) as batches:
        labels = np.concatenate([batch["label"] for batch in batches])
        assert batches.stats().replaced == 2
    assert (labels != LABELS).tolist() == [row in (3, 8) for row in range(COUNT)]


PROGRAM = """
import multiprocessing, os, sys
import loaderx as lx
from loaderx import transforms as T

path, = sys.argv[1:]
def rows(source):
    return [bytes(image) for image in source[:]["image"]]

if __name__ == "__main__":
    source = lx.ParquetDataset(path, {"image": lx.Encoded("image.bytes"), "label": "label"})
    here = rows(source)
    child = os.fork()
    if child == 0:
        os._exit(0 if rows(source) == here else 1)
    assert os.waitpid(child, 0)[1] == 0
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(rows, (source,)) == here
    loader = lx.DataLoader(source, batch_size=4, transforms={"image": [T.RandomResizedCrop(16)]}, output="numpy")
    batches = iter(loader)
    print(next(batches)["image"].shape)
"""


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_a_program_forks_spawns_and_ends_in_the_middle_of_an_epoch(tmp_path, compression):
    path = write_parquet(tmp_path / "x", columns(), compression=compression)
    (tmp_path / "program.py").write_text(PROGRAM)
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "program.py", path],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == "(4, 16, 16, 3)\n"


def damaged(random_, content):
    """Return a damaged file."""
    changed = bytearray(content)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    first, last = random_.choice([(0, len(content)), (4, 300), (footer, len(content))])
    for _ in range(random_.choice([1, 1, 5])):
        place = random_.randrange(first, min(last, len(changed)))
        changed[place] = random_.choice([0, 1, 0x15, 0x7F, 0x80, 0xFF, random_.randrange(256)])
    if random_.random() < 0.1:
        begin = random_.randrange(len(changed))
        del changed[begin : begin + random_.randrange(1, 50)]
    return bytes(changed)


def rows_by_pyarrow(path, *otherwise):
    """Return the images and the labels that pyarrow reads, or what is given if it refuses the file."""
    try:
        return column_by_pyarrow(path, "image", "bytes"), column_by_pyarrow(path, "label")
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return otherwise


def fuzz(tmp_path, count, seed):
    """Read damaged files: each is refused with its name, or has the rows that pyarrow reads."""
    outcomes = {"refused": 0, "read": 0, "unnamed": 0, "other": 0}
    forms = list(itertools.product(CODECS, FORMS))
    path = tmp_path / "x.parquet"
    for number in range(count):
        random_ = random.Random(f"{seed}/{number}")
        compression, form = random_.choice(forms)
        write_parquet(
            path, columns(range(6)), compression=compression, row_group_size=4, **FORMS[form]
        )
        path.write_bytes(damaged(random_, path.read_bytes()))
        fields = {"image": Encoded("image.bytes"), "label": ("int64", "label")}
        try:
            rows = ParquetDataset(path, fields)[:]
            found = bytes_of(rows["image"]), rows["label"].tolist()
            outcomes["read" if found == rows_by_pyarrow(path, *found) else "other"] += 1
        except DataError as error:
            outcomes["refused" if str(path) in str(error) else "unnamed"] += 1
    return outcomes


def test_damaged_files_are_refused_or_read(tmp_path):
    outcomes = fuzz(tmp_path, 300, 0)
    assert min(outcomes["refused"], outcomes["read"]) > 30, outcomes
    assert not outcomes["unnamed"] + outcomes["other"], outcomes


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_damaged_files_are_refused_or_read(tmp_path):
    outcomes = fuzz(tmp_path, 10_000, 1)
    assert min(outcomes["refused"], outcomes["read"]) > 1000, outcomes
    assert not outcomes["unnamed"] + outcomes["other"], outcomes
