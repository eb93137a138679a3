"""TFRecordDataset reads Examples in any order, without TensorFlow, and refuses what is damaged."""

import gzip
import pickle
import random
import struct

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from loaderx import ArgumentError, DataError, Encoded, Spec, TFRecordDataset
from loaderx.sources.encoded.field import EncodedSpec
from tests.loaderx.sources.encoded_images import (
    assert_delivers_images,
    assert_same_rows,
    bytes_of,
    pictures,
)
from tests.loaderx.sources.tar_files import LONG_AGO, long_ago
from tests.loaderx.sources.tfrecord_files import (
    delimited,
    entry,
    example,
    feature,
    framed,
    masked,
    varint,
    write_tfrecord,
)

COUNT = 9
IMAGES, MASKS = pictures(COUNT), pictures(COUNT, "PNG", 1)
LABELS = np.arange(COUNT) * 1000 - 2000
BOXES = np.arange(COUNT * 4, dtype=np.float32).reshape(COUNT, 4) / 8
ROWS = {"image": IMAGES, "label": LABELS, "mask": MASKS, "box": BOXES}
FIELDS = {
    "image": Encoded("image/encoded"),
    "label": ("int64", "image/class/label"),
    "mask": Encoded(mode="P"),
    "box": ("float32", "image/box", (4,)),
}


def features(row):
    return {
        "image/height": 375, "image/encoded": IMAGES[row], "image/format": b"JPEG", "scores": [0.5] * row + [1.0],
        "image/class/label": int(LABELS[row]), "mask": MASKS[row], "image/box": BOXES[row].tolist(),
        "texts": [b"a", b"b"],
    }  # fmt: skip


EXAMPLES = [features(row) for row in range(COUNT)]


def protobuf_example():
    """The class of `tf.train.Example`, made by Google's library from its published definition."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    lists = [("BytesList", "TYPE_BYTES"), ("FloatList", "TYPE_FLOAT"), ("Int64List", "TYPE_INT64")]
    repeated, single = "LABEL_REPEATED", "LABEL_OPTIONAL"

    def add(owner, name, number, kind, label, type_name=None, **more):
        owner.field.add(
            name=name, number=number, type=kind, label=label, type_name=type_name, **more
        )

    for name, kind in lists:
        add(file.message_type.add(name=name), "value", 1, kind, repeated)
    one = file.message_type.add(name="Feature")
    one.oneof_decl.add(name="kind")
    for number, (name, _) in enumerate(lists, start=1):
        add(one, name.lower(), number, "TYPE_MESSAGE", single, f".t.{name}", oneof_index=0)
    many = file.message_type.add(name="Features")
    pair = many.nested_type.add(name="FeatureEntry", options={"map_entry": True})
    add(pair, "key", 1, "TYPE_STRING", single)
    add(pair, "value", 2, "TYPE_MESSAGE", single, ".t.Feature")
    add(many, "feature", 1, "TYPE_MESSAGE", repeated, ".t.Features.FeatureEntry")
    add(file.message_type.add(name="Example"), "features", 1, "TYPE_MESSAGE", single, ".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLE = protobuf_example()


def by_protobuf(row):
    """Return the bytes of an Example by Google's library."""
    made = EXAMPLE()
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        kind = {bytes: "byteslist", float: "floatlist", int: "int64list"}[type(values[0])]
        getattr(made.features.feature[name], kind).value.extend(values)
    return made.SerializeToString()


@pytest.mark.parametrize("verify", ["first", "always", "never"])
@pytest.mark.parametrize("form", ["packed", "unpacked", "protobuf"])
def test_the_features_of_examples_are_fields(tmp_path, form, verify):
    rows = [by_protobuf(row) for row in EXAMPLES] if form == "protobuf" else EXAMPLES
    path = write_tfrecord(tmp_path / "x.tfrecord", rows, form == "packed")
    source = TFRecordDataset(path, FIELDS, verify=verify)
    assert source.spec == {
        "image": EncodedSpec(Encoded("image/encoded")),
        "label": Spec((), np.int64),
        "mask": EncodedSpec(Encoded("mask", mode="P")),
        "box": Spec((4,), np.float32),
    }
    assert_delivers_images(source, ROWS)
    assert source[3]["image"].where == f"{path}, record 3"
    assert source[3]["image"].decode().shape == (24, 27, 3)
    # By the index.
    assert_delivers_images(TFRecordDataset(path, FIELDS, verify=verify), ROWS)


def test_files_follow_one_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, rows in enumerate([range(4), [], range(4, COUNT)]):
        path = tmp_path / f"t-{number:05}-of-00003"
        write_tfrecord(path, [EXAMPLES[row] for row in rows])
    for names in (
        "t-*",
        "t-{00000..00002}-of-00003",
        "t@3",
        ["t-00000-of-00003", "t-00002-of-00003"],
    ):
        source = TFRecordDataset(names, FIELDS)
        assert_same_rows(source[:], ROWS)
        assert source[5]["image"].where == f"{tmp_path / 't-00002-of-00003'}, record 1"
    (tmp_path / "t-00001-of-00003").unlink()
    with pytest.raises(DataError, match=r"these of 00003 files are missing: \[1\]"):
        TFRecordDataset("t-*", FIELDS)


def test_numbers_have_the_dtype_that_is_asked_for(tmp_path):
    path = write_tfrecord(
        tmp_path / "x", [{"x": -5, "y": [1, 0, 1], "z": 0.1}, {"x": 7, "y": [0, 0, 1], "z": 2.5}]
    )
    fields = {
        "a": ("int8", "x"),
        "b": ("float64", "x"),
        "c": ("bool", "y", (3,)),
        "d": ("float64", "z"),
        "e": ("float16", "z"),
    }
    source = TFRecordDataset(path, fields)
    expected = {
        "a": np.array([-5, 7], np.int8),
        "b": np.array([-5.0, 7.0]),
        "c": np.array([[1, 0, 1], [0, 0, 1]], bool),
        "d": np.array([np.float32(0.1), 2.5]),
        "e": np.array([0.1, 2.5], np.float16),
    }
    assert_delivers_images(source, expected)


def test_extremes_of_64_bits_are_read(tmp_path):
    numbers = [-(2**63), 2**63 - 1, -1, 0, 2**31, -(2**31) - 1]
    path = write_tfrecord(tmp_path / "x", [{"x": number} for number in numbers])
    assert TFRecordDataset(path, {"x": ("int64", "x")})[:]["x"].tolist() == numbers


@pytest.mark.parametrize(
    ("field", "row", "words"),
    [
        (
            Encoded("x"),
            {"y": 1, "a": b"x"},
            r"it has no feature 'x' for the field 'f'; it has 'a', 'y'",
        ),
        (Encoded("x"), {}, "it has none"),
        (Encoded("x"), {"x": 1}, "is 1 integers, not 1 byte string"),
        (Encoded("x"), {"x": [b"a", b"b"]}, "is 2 byte strings, not 1 byte string"),
        (("int64", "x"), {"x": b"a"}, r"is 1 byte strings, not int64\[\]"),
        (("int64", "x"), {"x": [1, 2]}, r"is more than 1 integers, not int64\[\]"),
        (("int64", "x", (3,)), {"x": [1, 2]}, r"is 2 integers, not int64\[3\]"),
        (("float32", "x", (3,)), {"x": [1.0] * 4}, r"is more than 3 floats, not float32\[3\]"),
        (("int8", "x"), {"x": 200}, "200 of the field 'f' does not fit into int8"),
        (("uint8", "x"), {"x": -1}, "-1 of the field 'f' does not fit into uint8"),
        (("int64", "x"), {"x": 1.5}, "1.5 of the field 'f' does not fit into int64"),
        (("bool", "x"), {"x": 2}, "2 of the field 'f' does not fit into bool"),
    ],
)
def test_a_record_that_does_not_fit_is_named(tmp_path, field, row, words):
    path = write_tfrecord(tmp_path / "x.tfrecord", [row])
    with pytest.raises(DataError, match=rf"x\.tfrecord, record 0: .*{words}"):
        TFRecordDataset(path, {"f": field})


@pytest.mark.parametrize(
    "fields", [{}, "x", {"x": "x"}, {"x": 1}, {"x": ("int64", 5)}, {"x": ("S5", "x")}, {"x": ("int64", "x", (-1,))}]
)  # fmt: skip
def test_fields_that_mean_nothing_are_refused(tmp_path, fields):
    path = write_tfrecord(tmp_path / "x", EXAMPLES)
    with pytest.raises(ArgumentError, match=r"`fields`|field 'x'"):
        TFRecordDataset(path, fields)
    with pytest.raises(ArgumentError, match="`verify`"):
        TFRecordDataset(path, FIELDS, verify="sometimes")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x" * 100, "x is not a TFRecord file: its first checksum is wrong"),
        (IMAGES[0], "x is not a TFRecord file"),
        (b"abc", "x is truncated: it ends in the header of record 0"),
        (b"", r"x has no rows with the fields \['image'"),
        (gzip.compress(framed([example(EXAMPLES[0])])), "x is compressed with GZIP as a whole"),
        (b"\x78\x9c" + bytes(50), "x is compressed with ZLIB as a whole"),
    ],
)
def test_other_files_than_tfrecord_are_refused(tmp_path, content, words):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=words):
        TFRecordDataset(tmp_path / "x", FIELDS)
    with pytest.raises(DataError, match="is a folder, not a TFRecord file"):
        TFRecordDataset(tmp_path, FIELDS)


def test_a_truncated_file_is_refused_unless_it_ends_after_a_record(tmp_path):
    content = framed([example(EXAMPLES[row]) for row in range(2)])
    first = len(framed([example(EXAMPLES[0])]))
    for size in {*range(1, len(content), 61), first - 1, first + 1, len(content) - 1}:
        (tmp_path / "x").write_bytes(content[:size])
        with pytest.raises(
            DataError, match=r"x is truncated: (record \d has|it ends in the header)"
        ):
            TFRecordDataset(tmp_path / "x", FIELDS)
    (tmp_path / "x").write_bytes(content[:first])
    assert len(TFRecordDataset(tmp_path / "x", FIELDS)) == 1


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_a_wrong_checksum_is_an_error_of_its_row(tmp_path):
    path = write_tfrecord(tmp_path / "x", EXAMPLES)
    flip(path, path.read_bytes().index(IMAGES[4]) + 300)
    for verify in ("first", "always"):
        source = TFRecordDataset(path, FIELDS, verify=verify)
        for name in ("image", "mask"):
            with pytest.raises(DataError, match=r"x, record 4: the checksum of its data is wrong"):
                source.fields[name][4]
        assert bytes_of(source[5:]["image"]) == IMAGES[5:]
    assert len(bytes_of(TFRecordDataset(path, FIELDS, verify="never")[:]["image"])) == COUNT


def test_checksums_are_compared_once_or_always(tmp_path):
    path = write_tfrecord(tmp_path / "x", EXAMPLES)
    sources = {
        verify: TFRecordDataset(path, FIELDS, verify=verify) for verify in ("first", "always")
    }
    for source in sources.values():
        assert bytes_of(source[:]["image"]) == IMAGES
    place = path.read_bytes().index(IMAGES[4]) + 300
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\x00\x01\x02")
    sources["first"][4]
    with pytest.raises(DataError, match="checksum"):
        sources["always"][4]
    long_ago(path)
    with pytest.raises(DataError, match="checksum"):
        pickle.loads(pickle.dumps(sources["first"]))[4]
    long_ago(path, LONG_AGO + 5)
    with pytest.raises(DataError, match="has changed since it was indexed"):
        pickle.loads(pickle.dumps(sources["first"]))[4]


def test_the_checksum_of_a_length_is_always_compared(tmp_path):
    path = write_tfrecord(tmp_path / "x", EXAMPLES)
    second = len(framed([example(EXAMPLES[0])]))
    for place in (*range(8, 12), *range(2)):
        flip(path, second + place)
        with pytest.raises(
            DataError, match=rf"x, record 1: the checksum of its length is wrong, at {second}"
        ):
            TFRecordDataset(path, FIELDS, verify="never")
        flip(path, second + place)


def all_but(name, *more):
    """Return an Example without one of its features, and more of its message."""
    kept = {key: value for key, value in EXAMPLES[0].items() if key != name}
    return b"".join([example(kept), *more])


def another(name, message):
    """Return the message of an Example with a feature of this message."""
    return delimited(1, entry(name, message))


THREE, FOURTH = struct.pack("<3f", *BOXES[0][:3]), struct.pack("<f", BOXES[0][3])
ODD = {
    "fields that nobody knows": all_but(
        "", delimited(7, b"abc"), b"\x41", bytes(8), b"\x45", bytes(4), b"\x48\x01"
    ),
    "features in two parts": all_but("mask", example({"mask": MASKS[0]})),
    "a feature that is there twice": another("mask", feature(b"other")) + all_but(""),
    "a value before its name": all_but(
        "mask", delimited(1, delimited(1, delimited(2, feature(MASKS[0])) + delimited(1, b"mask")))
    ),
    "two kinds": all_but("mask", another("mask", feature(5) + feature(MASKS[0]))),
    "a number of ten bytes": all_but(
        "image/class/label", another("image/class/label", delimited(3, b"\x08" + varint(-2000)))
    ),
    "a list in parts": all_but(
        "image/box", another("image/box", delimited(2, delimited(1, THREE) + b"\x0d" + FOURTH))
    ),
}


@pytest.mark.parametrize("form", ODD)
def test_every_way_to_write_a_message_is_read(tmp_path, form):
    # Google's library reads the same from it.
    parsed = EXAMPLE.FromString(ODD[form]).features.feature
    assert parsed["mask"].byteslist.value[:] == [MASKS[0]]
    assert parsed["image/class/label"].int64list.value[:] == [-2000]
    source = TFRecordDataset(write_tfrecord(tmp_path / "x", [ODD[form]]), FIELDS)
    assert_same_rows(source[:], {name: column[:1] for name, column in ROWS.items()})


BROKEN = {
    "an endless number": b"\xff" * 12,
    "a length beyond the record": b"\x0a\x7f",
    "a length of 64 bits": b"\x0a" + varint(-1),
    "a group": b"\x0b",
    "an unknown type": b"\x0f",
    "half a number": b"\x08",
    "four bytes that are three": b"\x0dabc",
    "floats of three bytes": delimited(1, entry("image/box", delimited(2, delimited(1, b"abc")))),
    "a float of a wrong type": delimited(1, entry("image/box", delimited(2, b"\x08\x01"))),
}


@pytest.mark.parametrize("form", BROKEN)
def test_a_message_that_is_damaged_is_named(tmp_path, form):
    path = write_tfrecord(tmp_path / "x", [EXAMPLES[0], example(EXAMPLES[0]) + BROKEN[form]])
    with pytest.raises(DataError, match=r"x, record 1: "):
        TFRecordDataset(path, FIELDS)


def mutated(random_, content, records):
    """Return a damaged file, or one of damaged records with right checksums."""
    kind = random_.randrange(4)
    if kind == 0:
        return content[: random_.randrange(len(content))]
    if kind == 1:
        changed = bytearray(content)
        for _ in range(random_.choice([1, 1, 20])):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        return bytes(changed)
    changed = [bytearray(record) for record in records]
    chosen = random_.choice(changed)
    for _ in range(random_.choice([1, 1, 3])):
        place = random_.choice(
            [random_.randrange(40), random_.randrange(len(chosen)), -random_.randrange(1, 200)]
        )
        chosen[place] = random_.choice(
            [0, 1, 8, 0x0A, 0x12, 0x7F, 0x80, 0xFF, random_.randrange(256)]
        )
    if kind == 2:
        del chosen[random_.randrange(len(chosen)) :]
    return framed(map(bytes, changed))


def parsed_rows(content):
    """Return the rows of records as Google's library reads them, None for those that it refuses."""
    place = 0
    while place < len(content):
        (length,) = struct.unpack("<Q", content[place : place + 8])
        record = content[place + 12 : place + 12 + length]
        place += length + 16
        try:
            found = EXAMPLE.FromString(record).features.feature
        except message.DecodeError:
            yield None
            continue
        yield {
            "image": found["image/encoded"].byteslist.value[:],
            "label": found["image/class/label"].int64list.value[:],
            "mask": found["mask"].byteslist.value[:],
            "box": found["image/box"].floatlist.value[:],
        }


def fuzz(tmp_path, count, seed):
    """Read damaged files: each is refused with its name, or has the rows that Google's library finds."""
    records = [example(row) for row in EXAMPLES[:3]]
    content = framed(records)
    outcomes = {"refused": 0, "same": 0, "unnamed": 0}
    path = tmp_path / "x.tfrecord"
    for number in range(count):
        random_ = random.Random(f"{seed}/{number}")
        damaged = mutated(random_, content, records)
        path.write_bytes(damaged)
        try:
            rows = TFRecordDataset(path, FIELDS)[:]
        except DataError as error:
            outcomes["refused" if str(path) in str(error) else "unnamed"] += 1
            continue
        for place, expected in enumerate(parsed_rows(damaged)):
            row = {
                "image": [bytes(rows["image"][place])],
                "label": [rows["label"][place]],
                "mask": [bytes(rows["mask"][place])],
                "box": rows["box"][place].tolist(),
            }
            if expected is not None:
                np.testing.assert_equal(row.pop("box"), expected.pop("box"))
                assert row == expected, number
        outcomes["same"] += 1
    return outcomes


def test_damaged_files_are_refused_or_read_as_protobuf_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 300, 0)
    assert min(outcomes["refused"], outcomes["same"]) > 30, outcomes
    assert not outcomes["unnamed"]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_damaged_files_are_refused_or_read_as_protobuf_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 10_000, 1)
    assert min(outcomes["refused"], outcomes["same"]) > 1000, outcomes
    assert not outcomes["unnamed"]


def test_a_message_that_is_larger_than_a_window_is_read(tmp_path):
    row = {f"feature {k}": bytes(50) for k in range(300)} | EXAMPLES[0]
    source = TFRecordDataset(write_tfrecord(tmp_path / "x", [row]), FIELDS)
    assert_same_rows(source[:], {name: column[:1] for name, column in ROWS.items()})
    assert masked(b"") == struct.pack("<I", 0xA282EAD8)
