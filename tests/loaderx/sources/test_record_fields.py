"""ArrayRecord files whose records hold encoded images and numbers."""

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from loaderx import ARDataset, ArgumentError, DataError, Encoded, Spec, write_array_record
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.sources.records.fields import decode_fields, encode_fields, record_fields
from tests.loaderx.sources.encoded_images import (
    assert_delivers_images,
    assert_same_rows,
    bytes_of,
    pictures,
)
from tests.loaderx.sources.record_files import KINDS, damage_record, expected_warning, write
from tests.loaderx.sources.rows import assert_same, values

COUNT = 23
IMAGES, MASKS = pictures(COUNT), pictures(COUNT, "PNG", 1)
ROWS = {
    "image": IMAGES,
    "label": values((COUNT,), "i8"),
    "mask": MASKS,
    "box": values((COUNT, 2, 3), "f4"),
}
FIELDS = {
    "image": Encoded(),
    "label": "int64",
    "mask": Encoded(mode="P"),
    "box": ("float32", (2, 3)),
}
WAYS = [
    {"compression": "uncompressed"},
    {"compression": "zstd"},
    {"compression": "zstd", "group_size": 7},
    {"compression": None, "group_size": 7},
]


def dicts(names=ROWS):
    return [{name: ROWS[name][row] for name in names} for row in range(COUNT)]


def by_hand(row):
    """Return a record as its layout is documented."""
    length = len(IMAGES[row]).to_bytes(4, "little")
    numbers = ROWS["label"][row].tobytes() + ROWS["box"][row].tobytes()
    return numbers + length + IMAGES[row] + MASKS[row]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_file_describes_its_fields(tmp_path, options, mmap):
    path = tmp_path / "x.ar"
    write_array_record(path, dicts(), fields=FIELDS, progress=False, **options)
    source = ARDataset(path, mmap=mmap)
    assert source.spec == {
        "image": EncodedSpec(Encoded()),
        "label": Spec((), np.int64),
        "mask": EncodedSpec(Encoded(mode="P")),
        "box": Spec((2, 3), np.float32),
    }
    assert_delivers_images(source, ROWS)
    # A reader that nobody here wrote.
    records = ArrayRecordReader(str(path)).read_all()
    assert records == [by_hand(row) for row in range(COUNT)]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_another_writer_have_the_fields_that_are_declared(tmp_path, kind):
    path = write(tmp_path / "x.ar", [by_hand(row) for row in range(COUNT)], KINDS[kind])
    with expected_warning(KINDS[kind]):
        source = ARDataset(path, FIELDS)
    assert_same_rows(source[:], ROWS)
    path = write(tmp_path / "y.ar", IMAGES, KINDS[kind])
    with expected_warning(KINDS[kind]):
        source = ARDataset(path, {"image": Encoded()})
    assert bytes_of(source[:]["image"]) == IMAGES
    np.testing.assert_array_equal(source[3]["image"].decode().shape, (9 + 5 * 3, 30 - 3, 3))


def test_some_fields_of_a_file_are_chosen_and_renamed(tmp_path):
    path = tmp_path / "x.ar"
    write_array_record(path, dicts(), fields=FIELDS, progress=False)
    source = ARDataset(path, {"picture": Encoded("image", mode="L"), "label": "int64"})
    assert source.spec["picture"] == EncodedSpec(Encoded("image", mode="L"))
    assert_same_rows(source[:], {"picture": IMAGES, "label": ROWS["label"]})
    for wrong in ({"label": "int32"}, {"picture": Encoded()}, {"label": Encoded()}):
        with pytest.raises(ArgumentError, match=r"is not in the records, whose fields are \{image"):
            ARDataset(path, wrong)


def test_numbers_alone_are_a_record(tmp_path):
    path = tmp_path / "x.ar"
    fields = {name: FIELDS[name] for name in ("label", "box")}
    write_array_record(path, dicts(fields), fields=fields, progress=False)
    assert_same(ARDataset(path)[:], {name: ROWS[name] for name in fields})


def test_records_that_are_encoded_already_are_written_as_they_are(tmp_path):
    path = tmp_path / "x.ar"
    records = [by_hand(row) for row in range(COUNT)]
    write_array_record(path, records, fields=FIELDS, progress=False)
    assert_same_rows(ARDataset(path)[:], ROWS)
    with pytest.raises(DataError, match="record 1 of `data` has 3 bytes, which does not fit"):
        write_array_record(path, [records[0], b"abc"], fields=FIELDS, progress=False)


def test_a_row_becomes_the_same_row_again():
    fields = record_fields(FIELDS)
    for row in dicts():
        assert_same_rows_of_one(decode_fields(fields, encode_fields(fields, row)), row)


def assert_same_rows_of_one(row, expected):
    assert {name: np.asarray(value).tobytes() for name, value in row.items()} == {
        name: value if isinstance(value, bytes) else value.tobytes()
        for name, value in expected.items()
    }
    assert row["box"].shape == (2, 3)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"label": 2**31}, "field 'label' is 2147483648"),
        ({"label": 1.5}, "field 'label' is 1.5"),
        ({"label": [1]}, "field 'label' is"),
        ({"label": "7"}, "field 'label' is '7'"),
        ({"label": None}, "field 'label' is None"),
        ({"box": np.zeros(3)}, "field 'box' is"),
        ({"extra": 1}, "a row has the fields"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, row, words):
    fields = {"label": "int32", "box": ("float32", (2,)), "image": Encoded()}
    good = {"label": 3, "box": np.ones(2), "image": b"x"}
    with pytest.raises(ArgumentError, match=words) as refusal:
        write_array_record(
            tmp_path / "x.ar", [good, {**good, **row}], fields=fields, progress=False
        )
    assert "record 1 of `data`" in str(refusal.value)
    rows = [good, {**good, "image": "x"}]
    with pytest.raises(TypeError, match="record 1 of `data`: field 'image' is a str"):
        write_array_record(tmp_path / "x.ar", rows, fields=fields, progress=False)


@pytest.mark.parametrize(
    "fields",
    [{}, {"x": "image"}, {"x": None}, {"x": ("int64", (0,))}, {"x": ("f4", "y")}, {"x": object}],
)
def test_fields_that_cannot_be_stored_are_refused(tmp_path, fields):
    path = write(tmp_path / "x.ar", [b"12345678"])
    with pytest.raises(ArgumentError, match="field"):
        ARDataset(path, fields)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_record_that_is_too_short_is_named(tmp_path, options):
    options = {**options, "progress": False}
    records = [by_hand(row) for row in range(COUNT)]
    write_array_record(tmp_path / "x.ar", [*records, b"123"], **options)
    with pytest.raises(DataError, match=rf"x\.ar, record {COUNT}: it has 3 bytes, and .* needs"):
        ARDataset(tmp_path / "x.ar", FIELDS)[:]["label"]
    # The length of the first image is more than the record has.
    wrong = by_hand(0)[:32] + b"\xff\xff\xff\x7f" + by_hand(0)[36:]
    write_array_record(tmp_path / "y.ar", [*records, wrong], **options)
    source = ARDataset(tmp_path / "y.ar", FIELDS)
    with pytest.raises(DataError, match=rf"y\.ar, record {COUNT}: 'image' has 2147483647 bytes"):
        source[COUNT]


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "x.ar"
    write_array_record(path, dicts(), fields=FIELDS, compression=None, progress=False)
    damage_record(path, 5)
    source = ARDataset(path)
    for name in ("image", "label"):
        with pytest.raises(DataError, match=r"x\.ar, record 5: the hash of its chunk's data"):
            source.rows.fields[name][5]
    assert_same_rows(source[:5], {name: column[:5] for name, column in ROWS.items()})


@pytest.mark.parametrize(
    "noted",
    [
        {}, [], [{}], [[]], [1], [{"name": "x"}], [{"name": 1, "encoded": "RGB"}], [{"name": "x", "encoded": []}],
        [{"name": "x", "encoded": "BGR"}], [{"name": "x", "dtype": "<i4", "shape": [None]}],
        [{"name": "x", "dtype": "<i4", "shape": [0]}], [{"name": "x", "dtype": "object", "shape": []}],
        [{"name": "x", "dtype": "O", "shape": []}], [{"name": "x", "dtype": "<i4", "shape": [2**40]}],
        [{"name": "x", "encoded": "L"}, {"name": "x", "encoded": "L"}], [{"name": "x", "dtype": "<M8[ns", "shape": []}],
    ],
)  # fmt: skip
def test_a_file_with_an_invalid_description_is_refused(tmp_path, monkeypatch, noted):
    from loaderx.sources.records.fields import RecordFields

    monkeypatch.setattr(RecordFields, "as_json", lambda fields: noted)
    path = tmp_path / "x.ar"
    write_array_record(path, IMAGES, fields={"image": Encoded()}, progress=False)
    with pytest.raises(
        DataError, match=r"x\.ar describes the fields of its records by .* not valid"
    ):
        ARDataset(path)


def test_files_of_different_fields_are_not_one_data_set(tmp_path):
    for name in ("a", "b"):
        fields = {name: Encoded()}
        write_array_record(tmp_path / name, IMAGES, fields=fields, progress=False)
    with pytest.raises(DataError, match="records of different kinds"):
        ARDataset([tmp_path / "a", tmp_path / "b"])


def test_fields_are_given_without_a_dtype_and_a_shape(tmp_path):
    path = tmp_path / "x.ar"
    with pytest.raises(ArgumentError, match="`fields` describes the records; leave"):
        write_array_record(path, IMAGES, fields={"image": Encoded()}, dtype="u1", shape=(3,))
    with pytest.raises(ArgumentError, match="`fields` are for records of bytes"):
        write_array_record(path, values((3, 4), "u1"), fields={"image": Encoded()})
    write_array_record(path, IMAGES, fields={"image": Encoded()}, progress=False)
    for more in ({"shape": (3,)}, {"pad_to": 3}):
        with pytest.raises(ArgumentError, match="need no `shape` and no `pad_to`"):
            ARDataset(path, {"image": Encoded()}, **more)
