"""Bad input gets an error that names what was given and what is expected, before any thread starts."""

import io
import json
import os
import threading
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx import ArgumentError, DataError, DataLoader, Dataset, LoaderxError, NPDataset

ROWS = 10
IMAGES = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4)


@contextmanager
def refused(error, *words):
    """Check that it raises this error with all of these words in its message, and that no thread was started."""
    threads = set(threading.enumerate())
    with pytest.raises(error) as refusal:
        yield refusal
    assert refusal.type is error
    for word in words:
        assert word in str(refusal.value)
    assert set(threading.enumerate()) <= threads


def npy(array, version=(1, 0)):
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


# --- files ------------------------------------------------------------------------------------


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with refused(FileNotFoundError, "missing.npy"):
        NPDataset(tmp_path / "missing.npy")
    with refused(FileNotFoundError, "missing.npy"):
        Dataset(tmp_path, "missing.npy", "label.npy")
    np.save(tmp_path / "one.npy", IMAGES)
    with refused(FileNotFoundError, "missing.npy"):
        NPDataset([tmp_path / "one.npy", tmp_path / "missing.npy"])


def test_a_folder_is_not_a_file(tmp_path):
    with refused(DataError, str(tmp_path), "is a folder"):
        NPDataset(tmp_path)


ZIPPED = io.BytesIO()
np.savez(ZIPPED, images=IMAGES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"\x93NUM", ["is not a .npy file"]),
        (b"label,value\n1,2\n", ["is not a .npy file"]),
        (ZIPPED.getvalue(), ["is not a .npy file"]),
        (npy(IMAGES)[:9], ["is not a .npy file"]),
        (npy(IMAGES)[:40], ["is not a .npy file"]),
        (npy(IMAGES)[:-1], ["is truncated", "288 bytes", "287"]),
        (npy(IMAGES)[:128], ["is truncated", "288 bytes", "128"]),
        (npy(IMAGES, (3, 0)).replace(b"\x93NUMPY\x03", b"\x93NUMPY\x04"), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"}", b" "), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"(10, 4)", b"(10, 4 "), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"(10, 4)", b"(-9, 4)"), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"(10, 4)", b"(-9,-4)"), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"'<f4'", b"'<x4'"), ["is not a .npy file"]),
        (npy(IMAGES).replace(b"'<f4'", b"'''''"), ["is not a .npy file"]),
    ],
    ids=[
        "empty", "a part of the magic", "text", "npz", "no header", "a part of the header",
        "one byte short", "no rows", "unknown version", "header not closed", "shape not closed",
        "negative rows", "two negative sizes", "unknown dtype", "quotes",
    ],
)  # fmt: skip
def test_npy_files_that_are_not_whole_are_refused(tmp_path, content, words):
    path = tmp_path / "rows.npy"
    path.write_bytes(content)
    with refused(DataError, str(path), *words):
        NPDataset(path)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "rows.npy"


@settings(deadline=None)  # A file is written every time.
@given(st.integers(0, 127), st.integers(0, 255))
def test_one_damaged_byte_of_a_header_raises_nothing_else(damaged, place, value):
    content = bytearray(npy(IMAGES))
    content[place] = value
    damaged.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about headers of Python 2.
        try:
            NPDataset(damaged)[:]
        except LoaderxError as error:
            assert str(damaged) in str(error)  # noqa: PT017 - that it raises is not required


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        (np.array([{}, None], object), ArgumentError, ["object", "Python objects"]),
        (np.zeros(3, [("x", "f4"), ("y", "i4")]), ArgumentError, ["structured", "['x', 'y']"]),
        (np.zeros((0, 4)), DataError, ["no rows", "(0, 4)"]),
        (np.float32(3), DataError, ["shape ()"]),
    ],
    ids=["objects", "structured", "no rows", "one value"],
)
def test_arrays_without_rows_of_numbers_are_refused(tmp_path, array, error, words):
    path = tmp_path / "rows.npy"
    path.write_bytes(npy(array))
    with refused(error, str(path), *words):
        NPDataset(path)
    with refused(error, "the array", *words):
        NPDataset(np.asarray(array))
    with refused(error, *words):
        DataLoader(np.asarray(array))


@pytest.mark.parametrize("data", [[], [1, 2], [IMAGES], b"rows.npy", 3, None], ids=repr)
def test_data_that_is_neither_path_nor_array_is_refused(data):
    threads = set(threading.enumerate())
    with pytest.raises((ArgumentError, TypeError), match="`data`"):
        NPDataset(data)
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (IMAGES[:, :3], ["float32[4]", "float32[3]"]),
        (IMAGES.astype("f8"), ["float32[4]", "float64[4]"]),
        (IMAGES[:, 0], ["float32[4]", "float32[]"]),
        (IMAGES.astype(">f4"), ["float32[4]", ">f4[4]"]),
        (IMAGES[:0], ["no rows"]),
    ],
)
def test_files_with_other_rows_than_the_first_are_refused(tmp_path, other, words):
    np.save(tmp_path / "first.npy", IMAGES)
    np.save(tmp_path / "other.npy", other)
    with pytest.raises((ArgumentError, DataError)) as refusal:
        NPDataset([tmp_path / "first.npy", tmp_path / "other.npy"])
    assert all(word in str(refusal.value) for word in ["other.npy", *words])


def test_files_of_different_layouts_are_refused_with_the_advice_to_concatenate_them(tmp_path):
    np.save(tmp_path / "straight.npy", IMAGES)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(IMAGES))
    with refused(ArgumentError, "straight.npy", "fortran.npy", "concatenate"):
        NPDataset([tmp_path / "straight.npy", tmp_path / "fortran.npy"])


# --- arguments of the loader ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, ["`batch_size` (=0)", "at least 1"]),
        ({"batch_size": -3}, ["`batch_size` (=-3)", "at least 1"]),
        ({"batch_size": 2.0}, ["`batch_size` (=2.0)", "an integer"]),
        ({"batch_size": True}, ["`batch_size` (=True)", "an integer"]),
        ({"batch_size": "4"}, ["`batch_size` (='4')", "an integer"]),
        ({"batch_size": None}, ["`batch_size` (=None)", "an integer"]),
        (
            {"batch_size": 11, "remainder": "drop"},
            ["`batch_size` (=11)", "10 rows", 'remainder="drop"'],
        ),
        ({"remainder": "wrap"}, ["`remainder` (='wrap')", "'keep'", "'straddle'"]),
        ({"remainder": ""}, ["`remainder` (='')", "'keep'", "'straddle'"]),
        ({"remainder": 0}, ["`remainder` (=0)", "'keep'", "'straddle'"]),
        ({"remainder": ["keep"]}, ["`remainder` (=['keep'])", "'keep'", "'straddle'"]),
        (
            {"output": "tensorflow"},
            ["`output` (='tensorflow')", "'jax', 'numpy', 'torch', 'dlpack'"],
        ),
        ({"output": None}, ["`output` (=None)", "'jax', 'numpy', 'torch', 'dlpack'"]),
        ({"seed": -1}, ["`seed` (=-1)", "from 0 to 2**64 - 1"]),
        ({"seed": 2**64}, [f"`seed` (={2**64})", "from 0 to 2**64 - 1"]),
        ({"seed": 1.5}, ["`seed` (=1.5)", "an integer"]),
        ({"seed": None}, ["`seed` (=None)", "an integer"]),
        ({"shuffle": 1}, ["`shuffle` (=1)", "True or False"]),
        ({"shuffle": "no"}, ["`shuffle` (='no')", "True or False"]),
        ({"num_epochs": 0}, ["`num_epochs` (=0)", "at least 1"]),
        ({"num_epochs": -1}, ["`num_epochs` (=-1)", "at least 1"]),
        ({"num_epochs": 1.0}, ["`num_epochs` (=1.0)", "an integer"]),
        ({"prefetch": 0}, ["`prefetch` (=0)", "at least 1"]),
        ({"prefetch": 1.5}, ["`prefetch` (=1.5)", "an integer"]),
        ({"workers": 0}, ["`workers` (=0)", "at least 1"]),
        ({"workers": "all"}, ["`workers` (='all')", "an integer"]),
        ({"transform": 3}, ["`transform` (=3)", "callable"]),
        ({"transform": ["flip"]}, ["`transform` (=['flip'])", "callable"]),
        ({"sharding": "data", "output": "numpy"}, ["`sharding`", 'output="jax"']),
        ({"sharding": "data"}, ["`sharding` (='data')", "jax.sharding.Sharding"]),
    ],
    ids=repr,
)
def test_an_argument_that_cannot_work_is_refused(options, words):
    with refused(ArgumentError, *words):
        DataLoader(IMAGES, **options)


def test_an_unknown_argument_is_a_type_error():
    with refused(TypeError, "batchsize"):
        DataLoader(IMAGES, batchsize=3)


@pytest.mark.parametrize("integer", [np.int64(4), np.uint8(4), np.array(4)])
def test_an_integer_of_numpy_is_an_integer(integer):
    loader = DataLoader(IMAGES, batch_size=integer, seed=integer, output="numpy")
    assert loader.batch(integer).shape == (4, 4)


@pytest.mark.parametrize("path", ["rows.npy", Path("rows.npy")])
def test_a_path_is_refused_with_the_advice_to_open_it(path):
    for dataset in (path, {"image": path}, (path, path)):
        with refused(TypeError, "rows.npy", "NPDataset('rows.npy')"):
            DataLoader(dataset)
    with refused(TypeError, "NPDataset('rows.npy')"):
        DataLoader(IMAGES, path)


@pytest.mark.parametrize(
    "dataset",
    [None, 3, {1, 2}, (row for row in IMAGES)],
    ids=lambda dataset: type(dataset).__name__,
)
def test_objects_that_are_not_sources_are_a_type_error(dataset):
    with refused(TypeError, "a source must be", type(dataset).__name__):
        DataLoader(dataset)


@pytest.mark.parametrize(
    ("dataset", "lengths"),
    [
        ({"image": IMAGES, "label": np.arange(9)}, "{'image': 10, 'label': 9}"),
        ((IMAGES, np.arange(9)), "{'0': 10, '1': 9}"),
        ({"image": IMAGES, "label": range(11)}, "{'image': 10, 'label': 11}"),
    ],
    ids=["dict", "tuple", "range"],
)
def test_fields_of_different_lengths_are_refused(dataset, lengths):
    with refused(ArgumentError, "the same number of rows", lengths):
        DataLoader(dataset)


def test_data_and_labels_of_different_lengths_are_refused():
    with refused(ArgumentError, "the same number of rows", "{'data': 10, 'label': 9}"):
        DataLoader(IMAGES, np.arange(9))


@pytest.mark.parametrize("dataset", [{}, ()])
def test_a_data_set_without_fields_is_refused(dataset):
    with refused(ArgumentError, "`dataset` has no fields"):
        DataLoader(dataset)


@pytest.mark.parametrize("dataset", [[], range(0), np.empty((0, 3))], ids=repr)
def test_a_data_set_without_rows_is_refused(dataset):
    with refused(DataError, "no rows"):
        DataLoader(dataset)


def test_a_dict_in_a_dict_is_refused():
    with refused(ArgumentError, "'image'"):
        DataLoader({"image": {"left": IMAGES, "right": IMAGES}})
    with refused(ArgumentError, "'data'"):
        DataLoader({"left": IMAGES}, np.arange(ROWS))


def test_a_record_as_a_field_is_refused(tmp_path):
    np.save(tmp_path / "data.npy", IMAGES)
    dataset = Dataset(tmp_path, "data.npy", "data.npy")
    with refused(ArgumentError, "'data'", "fields of its own", "one by one"):
        DataLoader(dataset, np.arange(ROWS))
    with refused(ArgumentError, "'0'", "fields of its own"):
        DataLoader((dataset, IMAGES))


def test_a_field_named_mask_cannot_be_padded():
    with refused(ArgumentError, 'remainder="pad"', "'mask'"):
        DataLoader({"mask": IMAGES}, remainder="pad")
    with refused(ArgumentError, 'remainder="pad"', "'mask'"):
        DataLoader([{"mask": 1.0}] * 4, remainder="pad")
    assert DataLoader({"mask": IMAGES}, batch_size=4).batch(0)["mask"].shape == (4, 4)


@pytest.mark.parametrize("method", ["batch", "indices"])
def test_a_step_that_is_not_a_step_is_refused(method):
    endless, finite = DataLoader(IMAGES, batch_size=4), DataLoader(IMAGES, num_epochs=2)
    for loader in (endless, finite):
        with refused(ArgumentError, "`step` (=-1)", "negative"):
            getattr(loader, method)(-1)
        with refused(ArgumentError, "`step` (=1.0)", "an integer"):
            getattr(loader, method)(1.0)
        with refused(ArgumentError, "`step` (=True)", "an integer"):
            getattr(loader, method)(True)


@pytest.mark.parametrize("method", ["batch", "indices"])
def test_a_step_beyond_the_end_is_an_index_error(method):
    for remainder, steps in [("keep", 6), ("drop", 4), ("pad", 6), ("straddle", 5)]:
        loader = DataLoader(IMAGES, batch_size=4, num_epochs=2, remainder=remainder)
        assert len(loader) == steps
        getattr(loader, method)(steps - 1)
        with refused(IndexError, f"`step` (={steps})", f"the {steps} steps"):
            getattr(loader, method)(steps)


@pytest.mark.parametrize("method", ["batch", "indices"])
def test_a_step_beyond_all_integers_is_an_error_that_names_it(method):
    with pytest.raises((ArgumentError, IndexError), match=r"`step` \(="):
        getattr(DataLoader(IMAGES, batch_size=4), method)(2**62)


# --- rows that are not what row 0 promised ----------------------------------------------------


class Rows:
    """Source whose rows are numbers, but for one."""

    def __init__(self, usual, odd, place=5):
        self.usual, self.odd, self.place = usual, odd, place

    def __len__(self):
        return ROWS

    def __getitem__(self, number):
        return self.odd if number == self.place else self.usual


@pytest.mark.parametrize(
    ("usual", "odd", "words"),
    [
        (np.zeros(3), np.zeros(4), ["float64[4]", "float64[3]"]),
        (np.zeros(3), 0.0, ["float64[]", "float64[3]"]),
        (3, 0.5, ["float64[]", "int64[]"]),
        (np.zeros(3, "f4"), np.zeros(3), ["float64[3]", "float32[3]"]),
        (3, "three", ["<U5[]", "int64[]"]),
        (3, None, ["object[]", "int64[]"]),
        (3, {"a": 3}, ["object[]", "int64[]"]),
        ({"a": 1}, {"b": 1}, ["['b']", "['a']"]),
        ({"a": 1}, {"a": 1, "b": 1}, ["['a', 'b']", "['a']"]),
        ({"a": 1}, 1, ["int", "['a']"]),
        ({"a": np.zeros(3)}, {"a": np.zeros(2)}, ["float64[2]", "float64[3]"]),
        ((1, 2), (1, 2, 3), ["tuple of 2"]),
        ((1, 2), [1, 2], ["tuple of 2"]),
    ],
    ids=str,
)
def test_a_row_unlike_row_0_raises_at_its_step_and_is_named(usual, odd, words):
    loader = DataLoader(Rows(usual, odd), batch_size=2, shuffle=False, output="numpy")
    with iter(loader) as batches:
        next(batches), next(batches)
        with pytest.raises(DataError) as refusal:
            next(batches)
        assert batches.step == 2
    message = str(refusal.value)
    assert all(word in message for word in ["row 5 of Rows", *words])
    assert "step 2" in refusal.value.__notes__[-1]


@pytest.mark.parametrize(
    "row",
    ["text", b"bytes", None, object(), [1, "a"], {"name": "text"}, (1, None)],
    ids=lambda row: str(row).split(" at ")[0],  # the same in every process
)
def test_a_first_row_without_numbers_is_refused(row):
    with refused(DataError, "row 0 of Rows", "numbers"):
        DataLoader(Rows(row, row))


def test_rows_of_different_lengths_in_one_row_are_refused():
    with refused(DataError, "row 0 of Rows is a list", "inhomogeneous", "a tuple or a dict"):
        DataLoader(Rows([[1, 2], [3]], None))


BIG = {
    "too large": ("i8", 2**31),
    "too small": ("i8", -(2**31) - 1),
    "too large without a sign": ("u8", 2**32),
    "too large in the other byte order": (">i8", 2**40),
}
LAYOUTS = {
    "array": lambda array: array,
    "fortran": np.asfortranarray,
    "object": list,
    "view": lambda array: NPDataset(np.concatenate([array[:4], array])).select(range(4, 14)),
    "concatenation": lambda array: NPDataset(array[:3]) + NPDataset(array[3:]),
    "concatenation of layouts": lambda array: (
        NPDataset(array[:3]) + NPDataset(np.asfortranarray(array[3:]))
    ),
}


@pytest.mark.parametrize("big", BIG)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_integer_that_does_not_fit_into_32_bits_raises_at_its_step(layout, big):
    dtype, value = BIG[big]
    array = np.zeros((ROWS, 3), dtype)
    array[5, 1] = value
    loader = DataLoader(LAYOUTS[layout](array), batch_size=2, shuffle=False)
    with iter(loader) as batches:
        next(batches), next(batches)
        with pytest.raises(DataError) as refusal:
            next(batches)
    native = array.dtype.newbyteorder("=")
    for word in ["row 5, element 1", str(native), "32", "jax_enable_x64", 'output="numpy"']:
        assert word in str(refusal.value)
    assert "step 2, rows [" in refusal.value.__notes__[-1]
    whole = DataLoader(LAYOUTS[layout](array), batch_size=ROWS, shuffle=False, output="numpy")
    np.testing.assert_array_equal(whole.batch(0), array)


def test_integers_at_the_limits_of_32_bits_fit():
    signed = np.array([-(2**31), 2**31 - 1])
    unsigned = np.array([0, 2**32 - 1], np.uint64)
    batch = DataLoader((signed, unsigned), batch_size=2, shuffle=False).batch(0)
    np.testing.assert_array_equal(batch[0], signed)
    np.testing.assert_array_equal(batch[1], unsigned)


# --- exceptions of the user's own code --------------------------------------------------------


class OwnError(Exception):
    """Exception that loaderx cannot know."""


def failing_hook(batch):
    if 5 in batch:
        raise OwnError("in the hook")
    return batch


class FailingRows(Rows):
    """Source that raises at one row."""

    def __init__(self, error):
        super().__init__(1.0, None)
        self.error = error

    def __getitem__(self, number):
        if number == self.place:
            raise self.error
        return super().__getitem__(number)


class FailingMany(FailingRows):
    """Source that reads many rows at once and raises at one of them."""

    def __getitems__(self, numbers):
        return [self[number] for number in numbers]


def functions_in(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_in_a_hook_arrives_with_its_traceback_step_and_rows(output, workers):
    loader = DataLoader(
        np.arange(ROWS, dtype="i4"), batch_size=2, shuffle=False, transform=failing_hook,
        output=output, workers=workers,
    )  # fmt: skip
    with iter(loader) as batches:
        next(batches), next(batches)
        with pytest.raises(OwnError, match="in the hook") as failure:
            next(batches)
        assert batches.step == 2
    assert "failing_hook" in functions_in(failure.value)
    assert failure.value.__notes__ == ["loaderx: while building step 2, rows [4, 5]"]
    with pytest.raises(OwnError) as failure:
        loader.batch(2)
    assert failure.value.__notes__ == ["loaderx: while building step 2, rows [4, 5]"]


@pytest.mark.parametrize("kind", [FailingRows, FailingMany])
@pytest.mark.parametrize("error", [OwnError, IndexError, KeyError, OSError])
def test_an_exception_in_a_source_arrives_with_its_traceback_step_and_rows(kind, error):
    source = kind(error("in the source"))
    loader = DataLoader(source, batch_size=2, shuffle=False, workers=1)
    with iter(loader) as batches:
        next(batches), next(batches)
        with pytest.raises(error, match="in the source") as failure:
            next(batches)
        assert batches.step == 2
    assert failure.value is source.error
    assert "__getitem__" in functions_in(failure.value)
    assert "loaderx: while building step 2, rows [4, 5]" in failure.value.__notes__
    if kind is FailingRows:
        assert f"loaderx: while reading row 5 of {kind.__name__}" in failure.value.__notes__


def test_an_exception_in_one_field_of_several_arrives_too():
    loader = DataLoader(
        {"image": IMAGES, "broken": FailingRows(OwnError())}, batch_size=2, shuffle=False
    )
    assert loader.batch(1)["broken"].shape == (2,)
    with pytest.raises(OwnError):
        loader.batch(2)


def test_an_exception_in_row_0_is_raised_when_the_loader_is_made():
    source = FailingRows(OwnError("in the source"))
    source.place = 0
    with refused(OwnError, "in the source") as failure:
        DataLoader(source)
    assert failure.value.__notes__ == ["loaderx: while reading row 0 of FailingRows"]


def test_only_some_of_many_rows_are_listed():
    def hook(batch):
        raise OwnError

    loader = DataLoader(np.arange(1000), batch_size=1000, shuffle=False, transform=hook)
    with pytest.raises(OwnError) as failure:
        loader.batch(0)
    (note,) = failure.value.__notes__
    assert "rows [0, 1, 2, " in note
    assert "1000 rows" in note
    assert len(note) < 200


def test_the_step_that_failed_is_tried_again_and_none_is_left_out():
    failures = [OwnError(), OwnError()]

    def hook(batch):
        if 5 in batch and failures:
            raise failures.pop()
        return batch

    loader = DataLoader(
        np.arange(ROWS), batch_size=2, shuffle=False, num_epochs=1, output="numpy", transform=hook
    )
    delivered = []
    with iter(loader) as batches:
        while True:
            try:
                delivered.append(next(batches))
            except OwnError:
                assert batches.step == 2
            except StopIteration:
                break
    np.testing.assert_array_equal(np.concatenate(delivered), np.arange(ROWS))


def stopping_hook(batch):
    if 5 in batch:
        raise StopIteration("in the hook")
    return batch


class StoppingRows(Rows):
    """Source that raises StopIteration, as `next` of a file that ended would."""

    def __init__(self):
        super().__init__(1.0, None)

    def __getitem__(self, number):
        return next(iter([])) if number == self.place else super().__getitem__(number)


class StoppingMany(StoppingRows):
    """Same for many rows at once."""

    def __getitems__(self, numbers):
        return [self[number] for number in numbers]


@pytest.mark.parametrize(
    ("dataset", "hook"),
    [(np.arange(ROWS), stopping_hook), (StoppingRows(), None), (StoppingMany(), None)],
    ids=["hook", "source", "source of many rows"],
)
def test_stop_iteration_of_a_user_never_ends_the_loop(dataset, hook):
    options = {"batch_size": 2, "shuffle": False, "num_epochs": 1, "output": "numpy"}
    loader = DataLoader(dataset, transform=hook, **options)
    with iter(loader) as batches:
        next(batches), next(batches)
        with pytest.raises(RuntimeError, match="StopIteration") as failure:
            next(batches)
        assert isinstance(failure.value.__cause__, StopIteration)
    with pytest.raises(RuntimeError, match="StopIteration"):
        loader.batch(2)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(map(loader.batch, range(5)))


# --- files that shrink ------------------------------------------------------------------------

# Touching a page of a mapping that the file no longer has is a SIGBUS: so in a process of their own.
SHRINKING = {
    "next": """
        loader = DataLoader(NPDataset("0.npy"), batch_size=64, output="numpy")
        loader.batch(0)
        shrink("0.npy")
        next(iter(loader))
    """,
    "batch": """
        loader = DataLoader({"x": NPDataset("1.npy")}, batch_size=64, output="numpy")
        shrink("1.npy")
        loader.batch(3)
    """,
    "several files": """
        source = NPDataset(["0.npy", "1.npy", "2.npy"])
        loader = DataLoader(source, batch_size=64, output="numpy")
        shrink("1.npy")
        loader.batch(0)
    """,
    "views": """
        source = (NPDataset("0.npy") + NPDataset("1.npy")).split(0.9)[0].select(range(0, 700))
        loader = DataLoader(source, batch_size=64, output="numpy")
        shrink("1.npy")
        loader.batch(0)
    """,
    "brackets": """
        source = NPDataset("0.npy")
        shrink("0.npy")
        source[-1]
    """,
}


# Runs them in turn, each in a folder of its own, and reports the outcome of each.
IN_TURN = """
import json, os, sys, textwrap
import numpy as np
from loaderx import DataError, DataLoader, NPDataset

def shrink(path):
    global shrunken
    shrunken = path
    os.truncate(path, 4096)

for case, body in json.loads(sys.argv[1]).items():
    os.mkdir(case)
    os.chdir(case)
    for number in range(3):
        np.save(f"{number}.npy", np.ones((500, 1024), np.float32))
    said = "no error"
    try:
        exec(textwrap.dedent(body))
    except DataError as error:
        said = str(error)
        if f"{shrunken} shrank from 2048128 to 4096 bytes" in said:
            said = "right"
    print(f"{case}: {said}", flush=True)
    os.chdir("..")
"""


@pytest.fixture(scope="module")
def shrunken(forking, tmp_path_factory):
    """Return the process that ran all cases."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[2])}
    folder = tmp_path_factory.mktemp("shrinking")
    return forking.run(IN_TURN, json.dumps(SHRINKING), cwd=folder, env=os.environ | paths)


@pytest.mark.parametrize("case", SHRINKING)
def test_a_file_that_shrinks_is_an_error_that_names_it(shrunken, case):
    assert f"{case}: right\n" in shrunken.stdout, (shrunken.stdout, shrunken.stderr)


def test_no_file_that_shrinks_ends_the_process(shrunken):
    assert shrunken.returncode == 0, (shrunken.stdout, shrunken.stderr)
