"""Records of any length become rows of one length: padded, or cut, with a field for the length."""

import numpy as np
import pytest

from loaderx import ARDataset, ArgumentError, DataError, DataLoader, NPDataset, Spec
from loaderx import transforms as T  # noqa: N812 - as its users call it
from tests.loaderx.sources.record_files import (
    DIRECT,
    GROUPS,
    KINDS,
    OPTIONS,
    SLOW,
    damage_record,
    expected_warning,
    write,
)
from tests.loaderx.sources.rows import assert_delivers, assert_same, native, one_pass, values

# Empty, shorter, as long, longer than a row, and much longer than a block.
LENGTHS = [3, 0, 8, 7, 9, 8, 1, 20, 5, 30000, 2, 8, 40]
PAD_TO = 8


def sequences(dtype, lengths=LENGTHS):
    return [values((length, 4), dtype, seed) for seed, length in enumerate(lengths)]


def padded(arrays, pad_value=0, pad_to=PAD_TO):
    """Twin of the reader, in NumPy."""
    data = np.full((len(arrays), pad_to, *arrays[0].shape[1:]), pad_value, arrays[0].dtype)
    for row, array in zip(data, arrays, strict=True):
        row[: len(array)] = array[:pad_to]
    lengths = np.array([min(len(array), pad_to) for array in arrays], np.int32)
    return {"data": native(data), "length": lengths}


def opened(path, dtype, options, **more):
    with expected_warning(options):
        return ARDataset(path, dtype, (None, 4), **{"pad_to": PAD_TO, **more})


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dtype", ["f4", ">f4", "i2", "u1", ">i8"])
@pytest.mark.parametrize("options", [*KINDS, "transposed", "padded", "1000"])
def test_records_are_padded_or_cut_and_counted(tmp_path, options, dtype, mmap):
    arrays = sequences(dtype)
    path = write(tmp_path / "texts.ar", arrays, OPTIONS[options])
    source = opened(path, dtype, OPTIONS[options], mmap=mmap)
    element = np.dtype(dtype).newbyteorder("=")
    assert source.spec == {"data": Spec((PAD_TO, 4), element), "length": Spec((), np.int32)}
    expected = padded(arrays)
    assert_delivers(source, expected)
    for key in (0, 1, -1, 9, slice(2, 11, 3), [9, 9, 1], np.array(LENGTHS) > 8):
        assert_same(source[key], {name: array[key] for name, array in expected.items()})
    with pytest.raises(IndexError):
        source[len(LENGTHS)]


def test_all_records_may_fill_their_rows(tmp_path):
    for lengths in ([8] * 5, [9] * 5, [0, 0, 1]):
        arrays = sequences("f4", lengths)
        for options in ("zstd", "uncompressed"):
            path = write(tmp_path / "texts.ar", arrays, KINDS[options])
            assert_same(opened(path, "f4", KINDS[options])[:], padded(arrays))


def test_one_axis_is_enough(tmp_path):
    tokens = [values((length,), "i4", length) for length in LENGTHS]
    source = ARDataset(write(tmp_path / "tokens.ar", tokens), "i4", (None,), pad_to=8)
    assert_delivers(source, padded(tokens))
    assert "data: int32[8], length: int32" in repr(source)


PADDINGS = [
    ("f4", np.nan),
    ("f4", -np.inf),
    ("f4", 0.1),
    (">f4", 1.5),
    (">f8", np.float64(0.1)),
    ("f2", np.nan),
    ("i4", -1),
    (">i2", -2),
    ("u1", 255),
    ("i8", 2**62 + 1),
    ("u8", 2**64 - 1),
    ("i4", 3.0),
    ("i4", np.int8(-5)),
    ("f4", True),
    ("b1", True),
    ("c8", 1j),
]


@pytest.mark.parametrize("options", ["zstd", "uncompressed", "7", "brotli"])
@pytest.mark.parametrize(("dtype", "value"), PADDINGS)
def test_rows_are_filled_with_any_value_of_their_dtype(tmp_path, dtype, value, options):
    arrays = sequences(dtype)
    path = write(tmp_path / "texts.ar", arrays, KINDS[options])
    source = opened(path, dtype, KINDS[options], pad_value=value)
    assert_same(source[:], padded(arrays, value))
    assert_same(one_pass(source), padded(arrays, value))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", -1),
        ("u1", 256),
        ("i4", 0.5),
        ("i4", np.nan),
        ("i4", np.inf),
        ("i8", 2**63),
        ("i4", 2**40),
        ("f4", 1e300),
        ("f4", "0x"),
        ("f4", None),
        ("f4", [1.0]),
        ("f4", np.zeros(4)),
        ("b1", 2),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path, dtype, value):
    path = write(tmp_path / "texts.ar", sequences(dtype))
    with pytest.raises(ArgumentError, match=r"`pad_value` \(=.*must be a value of"):
        opened(path, dtype, KINDS["uncompressed"], pad_value=value)


@pytest.mark.parametrize("pad_to", [None, 0, -1, 8.0, "8", True])
def test_an_invalid_length_is_refused(tmp_path, pad_to):
    path = write(tmp_path / "texts.ar", sequences("f4"))
    with pytest.raises(ArgumentError, match=r"`pad_to` \(=.*integer of at least 1"):
        opened(path, "f4", "", pad_to=pad_to)


def test_rows_without_elements_are_refused(tmp_path):
    path = write(tmp_path / "texts.ar", sequences("f4"))
    with pytest.raises(ArgumentError, match="has no elements"):
        ARDataset(path, "f4", (None, 0), pad_to=8)


def test_records_of_several_files_are_padded_alike(tmp_path):
    arrays = sequences("f4")
    kinds = [DIRECT["zstd"], GROUPS["7"], SLOW["brotli"], DIRECT["uncompressed"]]
    cuts = [0, 4, 5, 9, 13]
    for number, options in enumerate(kinds):
        write(tmp_path / f"a-{number}-of-4", arrays[cuts[number] : cuts[number + 1]], options)
    source = opened(tmp_path / "a@4", "f4", SLOW["brotli"])
    assert_delivers(source, padded(arrays))
    assert_same(source[[12, 3, 7, 4]], {n: a[[12, 3, 7, 4]] for n, a in padded(arrays).items()})


@pytest.mark.parametrize("options", KINDS)
def test_a_record_that_is_not_a_whole_number_of_steps_is_named(tmp_path, options):
    records = [array.tobytes() for array in sequences("f4")]
    records[7] = records[7][:-6]
    path = write(tmp_path / "texts.ar", records, KINDS[options])
    first = write(tmp_path / "first.ar", records[:2])
    source = opened([first, path], "f4", KINDS[options])
    words = (
        r"texts\.ar, record 7: it has 314 bytes, and float32\[8, 4\] needs a multiple of 16 bytes"
    )
    for read in (lambda: source[9], lambda: source[:], lambda: one_pass(source)):
        with pytest.raises(DataError, match=words):
            read()
    # The other records are read.
    assert_same(source[[0, 8, 10]]["length"], np.array([3, 1, 5], np.int32))


def test_with_labels_the_data_keep_their_name_and_bring_a_length(tmp_path):
    arrays = sequences("i4")
    source = opened(write(tmp_path / "texts.ar", arrays), "i4", "")
    labels = np.arange(len(arrays), dtype=np.int32)
    expected = padded(arrays)
    loader = DataLoader({"tokens": source, "label": labels}, batch_size=5, output="numpy")
    assert list(loader.batch(0)) == ["tokens", "length", "label"]
    found = one_pass({"tokens": source, "label": NPDataset(labels)})
    wanted = {"label": labels, "length": expected["length"], "tokens": expected["data"]}
    assert_same(found, wanted)
    loader = DataLoader(source, labels, batch_size=5, output="numpy", seed=2)
    rows = loader.indices(1)
    wanted = {"data": expected["data"], "length": expected["length"], "label": labels}
    assert_same(loader.batch(1), {name: array[rows] for name, array in wanted.items()})
    alone = DataLoader(source, batch_size=5, output="numpy")
    assert list(alone.batch(0)) == ["data", "length"]


def test_a_view_with_labels_keeps_its_names(tmp_path):
    arrays = sequences("i4")
    source = opened(write(tmp_path / "texts.ar", arrays), "i4", "")
    some = padded([arrays[number] for number in (4, 2, 9)])
    found = one_pass({"tokens": source.select([4, 2, 9]), "label": np.arange(3)})
    assert_same(
        found,
        {"label": np.arange(3), "length": some["length"], "tokens": some["data"]},
    )
    twice = padded(arrays + arrays)
    found = one_pass({"tokens": source + source, "label": np.arange(26)})
    assert_same(
        found,
        {"label": np.arange(26), "length": twice["length"], "tokens": twice["data"]},
    )
    for part, other in zip(source.split(0.5), NPDataset(np.arange(13)).split(0.5), strict=True):
        assert_same(part[:], padded([arrays[number] for number in other[:]]))


def test_a_second_length_field_is_refused(tmp_path):
    source = opened(write(tmp_path / "texts.ar", sequences("i4")), "i4", "")
    for data in (
        {"tokens": source, "length": np.arange(13)},
        {"length": np.arange(13), "tokens": source},
        {"tokens": source, "more": source},
    ):
        with pytest.raises(ArgumentError, match=r"brings a field 'length' with it, which exists"):
            DataLoader(data)


@pytest.mark.parametrize("options", KINDS)
def test_padded_rows_are_transformed(tmp_path, options):
    arrays = sequences("f4")
    path = write(tmp_path / "texts.ar", arrays, KINDS[options])
    source = opened(path, "f4", KINDS[options])
    expected = padded(arrays)
    data = {name: NPDataset(array) for name, array in expected.items()}
    for ops in ([T.Normalize(0.5, 0.25)], [T.ToFloat(), T.MixUp(0.4)]):
        assert_same(
            one_pass(source, transforms={"data": ops}, batch_size=5),
            one_pass(data, transforms={"data": ops}, batch_size=5),
        )


@pytest.mark.parametrize("options", ["uncompressed", "zstd"])
def test_a_damaged_record_of_any_length_is_named(tmp_path, options):
    path = write(tmp_path / "texts.ar", sequences("f4"), KINDS[options])
    damage_record(path, 9)
    source = opened(path, "f4", KINDS[options])
    with pytest.raises(DataError, match=r"texts\.ar, record 9: "):
        source[9]
    good = [number for number in range(13) if number != 9]
    expected = padded(sequences("f4"))
    assert_same(source[good], {name: array[good] for name, array in expected.items()})
