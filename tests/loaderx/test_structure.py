"""Structure of a batch: that of the data set, dict, tuple or one array, with a mask if it is padded."""

import jax
import numpy as np
import pytest

from loaderx import DataLoader, Dataset, NPDataset, Spec
from tests.loaderx.sources.rows import assert_same, for_jax, values

ROWS = 10
IMAGES = values((ROWS, 4, 4), "u1")
LABELS = values((ROWS,), "i8")


class Rows:
    """Python object whose rows have a structure of their own."""

    def __init__(self, structure):
        self.structure = structure

    def __len__(self):
        return ROWS

    def __getitem__(self, number):
        return self.structure(IMAGES[number], LABELS[number])


STRUCTURES = {
    "one array": (IMAGES, IMAGES),
    "one source": (NPDataset(IMAGES), IMAGES),
    "dict": ({"image": IMAGES, "label": NPDataset(LABELS)}, {"image": IMAGES, "label": LABELS}),
    "dict of one": ({"image": IMAGES}, {"image": IMAGES}),
    "tuple": ((IMAGES, NPDataset(LABELS)), (IMAGES, LABELS)),
    "tuple of one": ((IMAGES,), (IMAGES,)),
    "object with dicts": (
        Rows(lambda image, label: {"image": image, "label": label}),
        {"image": IMAGES, "label": LABELS},
    ),
    "object with tuples": (Rows(lambda image, label: (image, label)), (IMAGES, LABELS)),
    "object with arrays": (Rows(lambda image, label: image), IMAGES),
}


def kind_of_arrays(batch):
    return {type(leaf) for leaf in jax.tree.leaves(batch)}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_structure_that_goes_in_comes_out(structure):
    dataset, expected = STRUCTURES[structure]
    loader = DataLoader(dataset, batch_size=4, output="numpy")
    rows = loader.indices(2)
    assert_same(loader.batch(2), jax.tree.map(lambda array: array[rows], expected))
    batch = DataLoader(dataset, batch_size=4).batch(2)
    assert_same(batch, jax.tree.map(lambda array: for_jax(array)[rows], expected))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_padding_adds_a_mask_to_the_structure(structure, output):
    dataset, expected = STRUCTURES[structure]
    loader = DataLoader(dataset, batch_size=4, num_epochs=1, remainder="pad", output=output)
    convert = for_jax if output == "jax" else np.asarray
    with iter(loader) as batches:
        for step, batch in enumerate(batches):
            rows = loader.indices(step)
            padded = jax.tree.map(lambda array, rows=rows: convert(array)[rows], expected)
            mask = np.arange(4) < (2 if step == 2 else 4)
            if isinstance(padded, dict):
                assert_same(batch, {**padded, "mask": mask})
            elif isinstance(padded, tuple):
                assert_same(batch, (*padded, mask))
            else:
                assert_same(batch, (padded, mask))
    assert step == 2


def test_data_and_labels_are_named_so():
    loader = DataLoader(IMAGES, LABELS, batch_size=4, output="numpy")
    rows = loader.indices(0)
    assert_same(loader.batch(0), {"data": IMAGES[rows], "label": LABELS[rows]})
    assert list(DataLoader(dataset=IMAGES, labelset=LABELS).batch(0)) == ["data", "label"]


def test_fields_keep_their_order():
    names = [f"field {number}" for number in (3, 1, 2, 0)]
    batch = DataLoader(dict.fromkeys(names, LABELS), batch_size=4).batch(0)
    assert list(batch) == names


def test_the_hook_gets_the_structure_and_decides_what_comes_out():
    def hook(batch):
        assert kind_of_arrays(batch) == {np.ndarray}
        return batch["image"] * np.uint8(2), {"label": batch["label"], "ones": np.ones(4, "f4")}

    dataset = {"image": IMAGES, "label": LABELS}
    loader = DataLoader(dataset, batch_size=4, output="numpy", transform=hook)
    rows = loader.indices(0)
    expected = (IMAGES[rows] * np.uint8(2), {"label": LABELS[rows], "ones": np.ones(4, "f4")})
    assert_same(loader.batch(0), expected)
    batch = DataLoader(dataset, batch_size=4, transform=hook).batch(0)
    assert_same(batch[0], expected[0])
    assert_same(batch[1], {name: for_jax(array) for name, array in expected[1].items()})


def test_the_hook_sees_the_mask():
    seen = []
    options = {"batch_size": 8, "num_epochs": 1, "remainder": "pad", "workers": 1}
    with iter(DataLoader({"image": IMAGES}, transform=seen.append, **options)) as batches:
        assert list(batches) == [None, None]
    assert [batch["mask"].sum() for batch in seen] == [8, 2]


def test_the_hook_sees_the_dtypes_that_are_delivered():
    seen = {}

    def hook(batch):
        seen.update({name: Spec(array.shape[1:], array.dtype) for name, array in batch.items()})
        return batch

    dataset = {"image": IMAGES, "label": LABELS}
    DataLoader(dataset, batch_size=4, transform=hook).batch(0)
    assert seen == {"image": Spec((4, 4), np.uint8), "label": Spec((), np.int32)}
    DataLoader(dataset, batch_size=4, transform=hook, output="numpy").batch(0)
    assert seen == {"image": Spec((4, 4), np.uint8), "label": Spec((), np.int64)}


def test_the_program_that_trains_on_two_files_runs_as_written(tmp_path, monkeypatch):
    images, labels = values((1000, 8, 8), "u1"), values((1000,), "i4")
    np.save(tmp_path / "train_data.npy", images)
    np.save(tmp_path / "train_label.npy", labels)
    monkeypatch.chdir(tmp_path)
    program = """
import numpy as np
from loaderx import NPDataset, DataLoader
loader = DataLoader(NPDataset("train_data.npy"), NPDataset("train_label.npy"))
for i, batch in enumerate(loader):      # endless
    if i >= 256: break                  # batch["data"], batch["label"] are jax.Arrays
"""
    names = {}
    exec(program, names)
    assert names["i"] == 256
    batch, rows = names["batch"], names["loader"].indices(256)
    assert all(isinstance(field, jax.Array) for field in batch.values())
    assert_same(batch, {"data": images[rows], "label": labels[rows]})


def test_the_program_that_validates_on_a_folder_runs_as_written(tmp_path, monkeypatch):
    images, labels = values((1000, 8, 8), "u1"), values((1000,), "i4")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "data.npy", images)
    np.save(tmp_path / "folder" / "label.npy", labels)
    monkeypatch.chdir(tmp_path)

    def fn(batch):
        assert kind_of_arrays(batch) == {np.ndarray}
        return {"data": batch["data"] / np.float32(255), "label": batch["label"]}

    program = """
from loaderx import Dataset, DataLoader
val = DataLoader(dataset=Dataset("folder", "data.npy", "label.npy"), batch_size=256, num_epochs=1, transform=fn)
"""
    names = {"fn": fn}
    exec(program, names)
    assert len(names["val"]) == 4
    with iter(names["val"]) as iterator:
        batches = list(iterator)
    assert [len(batch["label"]) for batch in batches] == [256, 256, 256, 232]
    rows = np.concatenate([names["val"].indices(step) for step in range(4)])
    assert sorted(rows) == list(range(1000))
    delivered = jax.tree.map(lambda *parts: np.concatenate(parts), *batches)
    assert_same(delivered, {"data": images[rows] / np.float32(255), "label": labels[rows]})


def test_a_folder_is_delivered_as_the_dict_that_it_is(tmp_path):
    np.save(tmp_path / "data.npy", IMAGES)
    np.save(tmp_path / "label.npy", LABELS)
    batch = DataLoader(Dataset(tmp_path, "data.npy", "label.npy"), batch_size=4).batch(0)
    assert list(batch) == ["data", "label"]
