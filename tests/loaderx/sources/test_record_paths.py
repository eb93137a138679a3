"""Files of a path, a pattern or a list of these, and their order."""

import pathlib
import warnings

import numpy as np
import pytest

from loaderx import ARDataset, ArgumentError, DataError, NPDataset
from loaderx import transforms as T  # noqa: N812 - as its users call it
from tests.loaderx.sources.record_files import DIRECT, GROUPS, KINDS, OPTIONS, SLOW, write
from tests.loaderx.sources.rows import assert_delivers, assert_same, one_pass, values

ARRAY = values((23, 3), "f4")
# Number of rows of each of four files; one has none.
CUTS = [0, 5, 11, 11, 23]


class CountedPath:
    """Path as other libraries have them."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


def write_shards(folder, name="train", options=("group_size:1,zstd",) * 4, array=ARRAY):
    """Write four files, train-00000-of-00004 to train-00003-of-00004."""
    return [
        write(folder / f"{name}-{number:05d}-of-00004", array[start:stop], option)
        for number, (start, stop, option) in enumerate(
            zip(CUTS[:-1], CUTS[1:], options, strict=True)
        )
    ]


def opened(path, **options):
    return ARDataset(path, "f4", (3,), **options)


@pytest.mark.parametrize(
    "name",
    [
        "train@4",
        "train",
        "train*",
        "train-*-of-00004",
        "train-?????-of-00004",
        "tr*n-0000[0-3]-of-*",
        "**/train-*",
    ],
)
@pytest.mark.parametrize("kind", [str, pathlib.Path, CountedPath])
def test_a_set_of_files_goes_by_a_pattern_a_count_or_its_name(tmp_path, name, kind):
    write_shards(tmp_path)
    write(tmp_path / "test-00000-of-00001", ARRAY + 1)
    assert_same(opened(kind(tmp_path / name))[:], ARRAY)


def test_patterns_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    write_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("train@4", "train", "train*"):
        assert_same(opened(name)[:], ARRAY)


@pytest.mark.parametrize("make", [list, tuple])
@pytest.mark.parametrize("kind", [str, pathlib.Path, CountedPath])
def test_a_list_of_files_is_read_in_its_order(tmp_path, make, kind):
    paths = [kind(path) for path in write_shards(tmp_path)]
    assert_delivers(opened(make(paths)), ARRAY)
    backwards = np.concatenate([ARRAY[11:], ARRAY[5:11], ARRAY[:5]])
    assert_delivers(opened(make(paths[::-1])), backwards)
    assert_same(opened(make([paths[0], paths[0]]))[:], ARRAY[[*range(5), *range(5)]])
    # An incomplete set is allowed if each file is named.
    assert_same(opened(make(paths[1:2]))[:], ARRAY[5:11])


def test_a_list_may_have_patterns_in_it(tmp_path):
    write_shards(tmp_path)
    more = write(tmp_path / "more.ar", ARRAY + 1)
    expected = np.concatenate([ARRAY + 1, ARRAY, ARRAY])
    assert_same(opened([more, tmp_path / "train@4", f"{tmp_path}/train-*"])[:], expected)


def test_files_of_a_pattern_follow_by_name(tmp_path):
    parts = [values((2, 3), "f4", seed) for seed in range(3)]
    for name, part in zip(("b.ar", "a.ar", "c.ar"), parts, strict=True):
        write(tmp_path / name, part)
    (tmp_path / "d.ar").mkdir()
    expected = np.concatenate([parts[1], parts[0], parts[2]])
    assert_same(opened(tmp_path / "*.ar")[:], expected)


@pytest.mark.parametrize("name", ["rows@12", "rows", "rows*"])
def test_files_of_a_set_follow_by_number_however_it_is_written(tmp_path, name):
    array = values((12, 3), "f4")
    for number, row in enumerate(array):
        write(tmp_path / f"rows-{number}-of-12", [row])
    assert_same(opened(tmp_path / name)[:], array)


def test_a_set_may_have_an_ending(tmp_path):
    for number in range(2):
        write(tmp_path / f"rows-{number:05d}-of-00002.ar", ARRAY[number::2])
    expected = np.concatenate([ARRAY[::2], ARRAY[1::2]])
    assert_same(opened(tmp_path / "rows-*.ar")[:], expected)
    (tmp_path / "rows-00000-of-00002.ar").unlink()
    with pytest.raises(DataError, match=r"rows: these of 00002 files are missing: \[0\]"):
        opened(tmp_path / "rows-*.ar")


@pytest.mark.parametrize("name", ["a[b]", "what?", "all*", "x@3", "a-00000-of-00002"])
def test_a_file_that_exists_is_not_a_pattern(tmp_path, name):
    assert_same(opened(write(tmp_path / name, ARRAY))[:], ARRAY)


def test_a_folder_with_letters_of_patterns_may_hold_a_set(tmp_path):
    folder = tmp_path / "a[b]*"
    folder.mkdir()
    write_shards(folder)
    assert_same(opened(folder / "train@4")[:], ARRAY)


@pytest.mark.parametrize("name", ["train@4", "train", "train*"])
def test_the_missing_files_of_a_set_are_named(tmp_path, name):
    paths = write_shards(tmp_path)
    paths[1].unlink()
    paths[3].unlink()
    with pytest.raises(DataError, match=r"train: these of 00004 files are missing: \[1, 3\]"):
        opened(tmp_path / name)


def test_of_two_sets_one_must_be_named(tmp_path):
    write_shards(tmp_path)
    write(tmp_path / "train-00000-of-00001", ARRAY + 1)
    for name in ("train", "train*"):
        with pytest.raises(DataError, match=r"train: there are sets of \[1, 4\] files.*train@1"):
            opened(tmp_path / name)
    assert_same(opened(tmp_path / "train@4")[:], ARRAY)
    assert_same(opened(tmp_path / "train@1")[:], ARRAY + 1)


@pytest.mark.parametrize("name", ["none", "train@3", "*.tfrecord", "trai", "none/train*", ""])
def test_a_pattern_that_matches_no_file_is_not_found(tmp_path, monkeypatch, name):
    write_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file"):
        opened(name)


def test_one_missing_file_of_a_list_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.ar"):
        opened([write(tmp_path / "rows.ar", ARRAY), tmp_path / "gone.ar"])


def test_a_folder_is_not_a_file(tmp_path):
    for path in (tmp_path, str(tmp_path), [tmp_path]):
        with pytest.raises(DataError, match="is a folder"):
            opened(path)


@pytest.mark.parametrize(
    "path",
    [None, 5, 5.0, b"rows.ar", {"rows.ar"}, iter(["rows.ar"]), np.array(["rows.ar"]), {"a": 1}],
    ids=lambda thing: type(thing).__name__,
)
def test_values_that_are_not_paths_are_refused(path):
    with pytest.raises(ArgumentError, match=r"`path` .* must be a path, a pattern, or a list"):
        opened(path)


@pytest.mark.parametrize("path", [[None], ["rows.ar", 5], (b"rows.ar",), [["rows.ar"]]], ids=repr)
def test_a_list_with_something_else_in_it_is_refused(path):
    with pytest.raises(ArgumentError, match=r"`path` contains .*, which is not a path"):
        opened(path)


@pytest.mark.parametrize("path", [[], ()])
def test_an_empty_list_is_refused(path):
    with pytest.raises(ArgumentError, match=r"`path` is an empty list"):
        opened(path)


@pytest.mark.parametrize("options", ["zstd", "uncompressed", "7", "brotli"])
def test_files_without_any_records_are_refused(tmp_path, options):
    path = write(tmp_path / "empty.ar", [], OPTIONS[options])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for empty in (path, [path, path]):
            with pytest.raises(DataError, match=r"empty\.ar has no records"):
                opened(empty)


@pytest.mark.parametrize("options", ["zstd", "uncompressed", "7", "7 padded"])
def test_an_empty_file_among_others_adds_nothing(tmp_path, options):
    empty = write(tmp_path / "empty.ar", [], OPTIONS[options])
    rows = write(tmp_path / "rows.ar", ARRAY, OPTIONS[options])
    for mmap in (True, False):
        source = opened([empty, rows, empty, empty, rows, empty], mmap=mmap)
        assert_same(source[:], np.concatenate([ARRAY, ARRAY]))
    assert_delivers(source, np.concatenate([ARRAY, ARRAY]))


# Files of different kinds, and those that only the package reads.

MIXED = {
    "one by one": (DIRECT["zstd"], DIRECT["uncompressed"], DIRECT["zstd"], DIRECT["zstd:19"]),
    "and groups": (DIRECT["zstd"], GROUPS["7"], DIRECT["uncompressed"], GROUPS["1000"]),
    "and brotli": (DIRECT["zstd"], GROUPS["7"], DIRECT["uncompressed"], SLOW["brotli"]),
    "and all": (SLOW["7 snappy"], GROUPS["7"], SLOW["transposed"], DIRECT["uncompressed"]),
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("mixed", MIXED)
def test_files_of_different_kinds_are_one_data_set(tmp_path, mixed, mmap):
    write_shards(tmp_path, options=MIXED[mixed])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = opened(tmp_path / "train@4", mmap=mmap)
    assert_delivers(source, ARRAY)
    rows = [22, 0, 5, 11, 4, 10, 12, 0]
    assert_same(source[rows], ARRAY[rows])
    assert_same(source.select(rows)[:], ARRAY[rows])
    for transforms in ([T.Normalize(0.5, 0.25)], [T.MixUp(0.4)]):
        assert_same(
            one_pass(source, transforms=transforms, batch_size=8),
            one_pass(NPDataset(ARRAY), transforms=transforms, batch_size=8),
        )


@pytest.mark.parametrize("options", SLOW)
def test_files_for_the_package_bring_one_warning_that_says_how_to_rewrite_them(tmp_path, options):
    write_shards(tmp_path, options=(SLOW[options],) * 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = opened(tmp_path / "train@4")
        assert_delivers(source, ARRAY)
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(f"{tmp_path}/train-00000-of-00004")
    assert "`write_array_record`" in message
    assert "'group_size:1,zstd'" in message
    assert warning.filename == __file__


def test_the_warning_counts_the_other_files(tmp_path):
    paths = write_shards(tmp_path, options=(SLOW["brotli"], DIRECT["zstd"], *[SLOW["snappy"]] * 2))
    with pytest.warns(UserWarning, match=f"{paths[0]} and 2 more files: .*brotli") as caught:
        opened(paths)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match=f"^{paths[3]}: "):
        opened([paths[3], paths[1]])


@pytest.mark.parametrize("options", KINDS)
def test_no_warning_without_need(tmp_path, options):
    write_shards(tmp_path, options=(KINDS[options],) * 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened(tmp_path / "train@4")
    assert len(caught) == (options == "brotli")
