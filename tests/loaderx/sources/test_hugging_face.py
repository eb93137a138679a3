"""HFDataset reads the columns of a Hugging Face data set in place, and decodes other columns row by row."""

import io
import json
import sys

import datasets
import numpy as np
import pytest
from datasets import Array2D, Array3D, ClassLabel, Features, List, Value
from PIL import Image

from loaderx import ArgumentError, DataError, DataLoader, Spec
from loaderx.sources import AddressableSource, ObjectSource
from loaderx.sources.hugging_face import HFDataset
from tests.loaderx.sources.loading import assert_loads
from tests.loaderx.sources.rows import assert_delivers, assert_same, values

IMAGES = values((7, 8, 5, 3), "u1")
ROWS = {"box": values((7, 4), "f4"), "image": IMAGES, "label": np.array([0, 1, 2, 1, 0, 2, 1])}
FEATURES = Features(
    {
        "box": List(Value("float32"), length=4),
        "image": Array3D((8, 5, 3), "uint8"),
        "label": ClassLabel(3),
    }
)


@pytest.fixture(autouse=True)
def no_bars():
    datasets.disable_progress_bars()


def dataset_of(rows, features=None):
    return datasets.Dataset.from_dict(
        {name: list(column) for name, column in rows.items()}, features=features
    )


def picked(rows, numbers):
    return {name: column[numbers] for name, column in rows.items()}


def assert_in_place(source):
    """Assert that no column is read by Python code."""
    assert all(isinstance(field, AddressableSource) for field in source.fields.values())


def test_the_columns_of_a_data_set_are_fields():
    source = HFDataset(dataset_of(ROWS, FEATURES))
    assert source.spec == {
        "box": Spec((4,), np.float32),
        "image": Spec((8, 5, 3), np.uint8),
        "label": Spec((), np.int64),
    }
    assert_in_place(source)
    assert_loads(source, ROWS)


def test_a_saved_data_set_is_mapped(tmp_path):
    dataset_of(ROWS, FEATURES).save_to_disk(tmp_path / "saved")
    for path in (tmp_path / "saved", str(tmp_path / "saved")):
        source = HFDataset(path)
        assert_in_place(source)
        assert_loads(source, ROWS)


def test_rows_are_read_in_place_from_arrow_memory():
    dataset = dataset_of(ROWS, FEATURES)
    address = dataset.data.column("label").chunk(0).buffers()[1].address
    field = HFDataset(dataset).fields["label"]
    assert field.locate(np.zeros(1, np.int64)).addresses[0] == address


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ],
)
def test_numbers_and_lists_of_any_dtype_are_read_in_place(dtype):
    rows = {
        "list": values((5, 3), dtype),
        "number": values((5,), dtype),
        "open": values((5, 2), dtype),
    }
    features = Features(
        {"list": List(Value(dtype), length=3), "number": Value(dtype), "open": List(Value(dtype))}
    )
    source = HFDataset(dataset_of(rows, features))
    assert_in_place(source)
    assert_delivers(source, rows)


def test_arrays_of_two_axes_and_lists_of_lists_are_read_in_place():
    rows = {"array": values((5, 2, 3), "f4"), "lists": values((5, 3, 2), "i4")}
    features = Features(
        {"array": Array2D((2, 3), "float32"), "lists": List(List(Value("int32"), length=2))}
    )
    source = HFDataset(dataset_of(rows, features))
    assert_in_place(source)
    assert_delivers(source, rows)


def test_the_chunks_of_a_data_set_follow_one_another(tmp_path):
    parts = [dataset_of(picked(ROWS, slice(a, b)), FEATURES) for a, b in [(0, 2), (2, 3), (3, 7)]]
    joined = datasets.concatenate_datasets(parts)
    assert joined.data.column("image").num_chunks == 3
    source = HFDataset(joined)
    assert_in_place(source)
    assert_loads(source, ROWS)
    joined.save_to_disk(tmp_path / "saved", num_shards=3)
    assert_delivers(HFDataset(tmp_path / "saved"), ROWS)


SELECTIONS = {
    "contiguous": lambda dataset: dataset.select(range(2, 6)),
    "chosen": lambda dataset: dataset.select([5, 0, 3, 3]),
    "shuffled": lambda dataset: dataset.shuffle(seed=1),
    "filtered": lambda dataset: dataset.filter(lambda row: row["label"] == 1),
    "twice": lambda dataset: dataset.shuffle(seed=1).select(range(1, 6)).select([3, 0, 1]),
    "split": lambda dataset: dataset.train_test_split(0.5, seed=2)["train"],
    "sharded": lambda dataset: dataset.shard(2, 1),
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_selection_and_the_order_of_rows_are_respected(selection):
    rows = {**ROWS, "row": np.arange(7)}
    chosen = SELECTIONS[selection](dataset_of(rows))
    source = HFDataset(chosen)
    assert_in_place(source)
    assert_delivers(source, picked(rows, chosen["row"][:]))


def encoded(pixels):
    """Return an image as a row of a data set."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def test_images_are_decoded_row_by_row_and_labels_read_in_place():
    pixels, labels = IMAGES[:5], np.arange(5)
    dataset = datasets.Dataset.from_dict(
        {"image": list(map(encoded, pixels)), "label": labels},
        features=Features({"image": datasets.Image(), "label": Value("int64")}),
    )
    source = HFDataset(dataset)
    assert isinstance(source.fields["image"], ObjectSource)
    assert isinstance(source.fields["label"], AddressableSource)
    assert_loads(source, {"image": pixels, "label": labels})
    assert_delivers(
        HFDataset(dataset.select([3, 1, 1, 4])),
        {"image": pixels[[3, 1, 1, 4]], "label": labels[[3, 1, 1, 4]]},
    )


def test_an_image_that_is_missing_is_an_error_at_its_step():
    images = [*map(encoded, IMAGES[:3]), None]
    dataset = datasets.Dataset.from_dict(
        {"image": images}, features=Features({"image": datasets.Image()})
    )
    loader = DataLoader(HFDataset(dataset), batch_size=2, shuffle=False, output="numpy")
    with iter(loader) as batches:
        next(batches)
        with pytest.raises(DataError, match="row 3 of column 'image' is a NoneType"):
            next(batches)


def test_columns_are_chosen_and_ordered_by_name():
    dataset = dataset_of({**ROWS, "name": np.array(["text"] * 7)})
    assert list(HFDataset(dataset, ["box", "label"])[:]) == ["box", "label"]


def test_the_columns_of_a_format_are_the_default():
    dataset = dataset_of(ROWS, FEATURES).with_format("numpy", columns=["label"])
    assert_same(HFDataset(dataset)[:], {"label": ROWS["label"]})


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["a", "b"], "column 'x' is text. .* leave it out by `columns`"),
        ([["a"], ["b"]], "column 'x' is text"),
        ([b"a", b"b"], "row 0 of column 'x' is .*, not numbers"),
        ([{"a": 1}, {"a": 2}], "row 0 of column 'x' is a dict, not numbers"),
        ([None, None], "row 0 of column 'x' is a NoneType"),
        ([1, None], "column 'x' has 1 nulls, the first in row 1"),
        ([[1, 2], None], "column 'x' has 1 nulls, the first in row 1"),
        ([[1, 2], [3, None]], "column 'x' has 1 nulls, the first in row 1"),
        ([[1, 2], [3]], "column 'x' has lists of different lengths: 1 in row 1 .* 2 in earlier"),
        ([[[1], [2]], [[3], [4, 5]]], "lists of different lengths: 2 in row 1"),
        ([[], []], "lists of no elements|not numbers"),
    ],
)
def test_columns_that_are_not_numbers_of_one_shape_are_refused(column, words):
    dataset = datasets.Dataset.from_dict({"y": [1, 2], "x": column})
    with pytest.raises(DataError, match=words):
        HFDataset(dataset)


def test_chunks_of_lists_of_different_lengths_are_refused():
    parts = [datasets.Dataset.from_dict({"x": rows}) for rows in ([[1, 2]], [[1, 2, 3]])]
    with pytest.raises(DataError, match=r"different lengths: .*3.* in row 1"):
        HFDataset(datasets.concatenate_datasets(parts))


def test_filtered_nulls_are_gone_when_the_indices_are_flattened():
    dataset = datasets.Dataset.from_dict({"x": [1, None, 3]}).filter(
        lambda row: row["x"] is not None
    )
    with pytest.raises(DataError, match="flatten_indices"):
        HFDataset(dataset)
    assert_delivers(HFDataset(dataset.flatten_indices()), {"x": np.array([1, 3])})


def test_a_dict_of_data_sets_is_refused_with_what_to_do(tmp_path):
    parts = datasets.DatasetDict({"train": dataset_of(ROWS, FEATURES)})
    with pytest.raises(ArgumentError, match=r"data sets \['train'\]; pass one of them"):
        HFDataset(parts)
    parts.save_to_disk(tmp_path / "saved")
    with pytest.raises(ArgumentError, match=r"open one of them, such as HFDataset\('.*train'\)"):
        HFDataset(tmp_path / "saved")
    assert_same(HFDataset(tmp_path / "saved" / "train")[:], ROWS)


def test_a_transform_of_the_data_set_is_refused_and_not_left_out():
    dataset = dataset_of(ROWS, FEATURES).with_transform(lambda batch: batch)
    with pytest.raises(ArgumentError, match=r"set_transform.*reset_format"):
        HFDataset(dataset)


def test_a_stream_is_a_type_error():
    with pytest.raises(TypeError, match="not IterableDataset"):
        HFDataset(dataset_of(ROWS, FEATURES).to_iterable_dataset())


def test_an_empty_data_set_is_refused():
    with pytest.raises(DataError, match="has no rows"):
        HFDataset(dataset_of(ROWS, FEATURES).select([]))


@pytest.mark.parametrize("columns", [[], "label"])
def test_columns_that_are_not_a_list_are_refused(columns):
    with pytest.raises(ArgumentError, match="`columns`"):
        HFDataset(dataset_of(ROWS, FEATURES), columns)


def test_an_unknown_column_is_named_with_those_there_are():
    with pytest.raises(ArgumentError, match=r"names \['size'\], .* \['box', 'image', 'label'\]"):
        HFDataset(dataset_of(ROWS, FEATURES), ["label", "size"])


def test_a_missing_folder_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        HFDataset(tmp_path / "nowhere")


def test_without_datasets_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r'HFDataset needs datasets.*"\.\[huggingface\]"'):
        HFDataset("folder")


def saved_by_an_enemy(folder, rows, feature):
    """Save a data set whose cells name files, and which declares them as images."""
    cells = {"bytes": Value("binary"), "path": Value("string")}
    plain = [cells] if isinstance(rows[0], list) else cells
    dataset = datasets.Dataset.from_dict({"image": rows}, features=Features({"image": plain}))
    dataset.save_to_disk(folder)
    info = json.loads((folder / "dataset_info.json").read_text())
    info["features"] = Features({"image": feature}).to_dict()
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("nested", [False, True])
def test_a_saved_data_set_does_not_make_us_read_other_files(tmp_path, nested):
    secret = tmp_path / "secret.png"
    Image.fromarray(IMAGES[0]).save(secret)
    # As with `..`, the path may be relative.
    inside, outside = encoded(IMAGES[1]), {"bytes": None, "path": str(secret)}
    rows = [[inside], [outside]] if nested else [inside, outside]
    feature = List(datasets.Image()) if nested else datasets.Image()
    folder = saved_by_an_enemy(tmp_path / "enemy", rows, feature)
    with pytest.raises(DataError, match=r"column 'image' holds paths of files, .* and not their"):
        HFDataset(folder)


def test_files_are_read_where_the_caller_loaded_the_data_set(tmp_path):
    Image.fromarray(IMAGES[0]).save(tmp_path / "image.png")
    dataset = datasets.Dataset.from_dict(
        {"image": [str(tmp_path / "image.png")]}, features=Features({"image": datasets.Image()})
    )
    assert_same(HFDataset(dataset)[0]["image"], IMAGES[0])
    # Saved, it holds the image itself.
    dataset.save_to_disk(tmp_path / "saved")
    assert_same(HFDataset(tmp_path / "saved")[0]["image"], IMAGES[0])
