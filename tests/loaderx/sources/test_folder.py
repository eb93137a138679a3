"""Dataset opens two .npy files of one folder as the fields of a row."""

import numpy as np
import pytest

from loaderx import ArgumentError, DataLoader, Dataset, Spec
from tests.loaderx.sources.rows import assert_delivers, assert_same, values


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "images.npy", values((10, 4, 4), "u1"))
    np.save(tmp_path / "classes.npy", values((10,), "i8"))
    return tmp_path


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_two_files_of_a_folder_are_data_and_label(folder, kind):
    dataset = Dataset(kind(folder), "images.npy", "classes.npy")
    assert dataset.spec == {"data": Spec((4, 4), np.uint8), "label": Spec((), np.int64)}
    assert_delivers(dataset, {"data": values((10, 4, 4), "u1"), "label": values((10,), "i8")})


def test_a_dataset_is_split_with_its_labels(folder):
    train, validation = Dataset(folder, "images.npy", "classes.npy").split(0.7, seed=1)
    images, classes = values((10, 4, 4), "u1"), values((10,), "i8")
    seen = []
    for part in (train, validation):
        for row in range(len(part)):
            number = int(np.flatnonzero(classes == part[row]["label"])[0])
            assert_same(part[row], {"data": images[number], "label": classes[number]})
            seen.append(number)
    assert sorted(seen) == list(range(10))


def test_datasets_are_added_and_selected_field_by_field(folder):
    dataset = Dataset(folder, "images.npy", "classes.npy")
    both = (dataset + dataset).select(range(5, 15))
    images, classes = values((10, 4, 4), "u1"), values((10,), "i8")
    order = [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    assert_delivers(both, {"data": images[order], "label": classes[order]})


def test_the_fields_of_a_dataset_stay_on_the_compiled_path(folder):
    from loaderx.sources import AddressableSource

    dataset = Dataset(folder, "images.npy", "classes.npy")
    for view in (dataset, dataset.select([1, 2]), dataset.split(0.5)[0], dataset + dataset):
        assert all(isinstance(field, AddressableSource) for field in view.fields.values())


def test_a_dataset_is_delivered_as_a_dict(folder):
    loader = DataLoader(dataset=Dataset(folder, "images.npy", "classes.npy"), batch_size=4)
    batch = loader.batch(0)
    assert list(batch) == ["data", "label"]
    assert batch["data"].shape == (4, 4, 4)
    assert batch["label"].shape == (4,)


def test_files_of_different_lengths_are_refused(folder):
    np.save(folder / "classes.npy", values((9,), "i8"))
    with pytest.raises(ArgumentError, match=r"'data': 10, 'label': 9"):
        Dataset(folder, "images.npy", "classes.npy")
