"""`loaderx convert` writes what it read, bit for bit, and resumes where it was stopped."""

import io
import itertools
import json
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loaderx import ARDataset, DataLoader, ImageFolder, cli, write_array_record
from loaderx.commands import conversion, outputs
from loaderx.commands.workspace import Workspace
from tests.loaderx.commands.paused import ROWS, paused_conversion


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(*arguments):
    return cli.main(["convert", *map(str, arguments)])


def numbers(dtype=np.float32, shape=(2000, 30, 7)):
    values = np.random.default_rng(0).integers(0, 100, shape)
    return values.astype(dtype)


def same(first, second):
    assert (first.shape, first.dtype) == (second.shape, second.dtype)
    assert first.tobytes() == second.tobytes()


# Arrays.


@pytest.mark.parametrize(
    "dtype", ["uint8", "int64", "float16", "float64", "complex64", "bool", ">i4"]
)
def test_an_array_comes_back_from_array_record_as_it_was(dtype):
    np.save("x.npy", numbers(dtype))
    assert convert("x.npy", "x.array_record") == 0
    assert convert("x.array_record", "y.npy") == 0
    same(np.load("y.npy"), numbers(np.dtype(dtype).newbyteorder("=")))


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_files_are_those_that_the_library_and_numpy_write(order):
    array = np.asarray(numbers(), order=order)
    np.save("x.npy", array)
    assert convert("x.npy", "x.ar", "--compression", "zstd:5", "--group-size", 3) == 0
    write_array_record("library.ar", array, level=5, group_size=3, progress=False)
    assert Path("x.ar").read_bytes() == Path("library.ar").read_bytes()

    assert convert("x.ar", "y.npy", "--jobs", 3) == 0
    np.save("numpy.npy", numbers())
    assert Path("y.npy").read_bytes() == Path("numpy.npy").read_bytes()


def test_files_that_are_not_compressed_are_written_on_request():
    np.save("x.npy", numbers())
    assert convert("x.npy", "x.ar", "--compression", "none") == 0
    write_array_record("library.ar", numbers(), compression=None, progress=False)
    assert Path("x.ar").read_bytes() == Path("library.ar").read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_npz_file_become_files_of_their_own_whatever_their_lengths(save, capsys):
    arrays = {"x": numbers(), "y": np.arange(77), "f": np.asfortranarray(numbers(">i2"))}
    save("m.npz", **arrays, single=3)
    assert convert("m.npz", "m.ar") == 0
    assert "left out: m.npz, array 'single'" in capsys.readouterr().err
    same(ARDataset("m_x.ar")[:], arrays["x"])
    same(np.load("m_y.npy"), arrays["y"])
    same(ARDataset("m_f.ar")[:], numbers("i2"))

    assert convert("m.npz", "one.npy", "--columns", "f") == 0
    same(np.load("one.npy"), numbers(">i2"))


def test_an_npz_file_is_written_as_numpy_reads_it():
    write_array_record("x.ar", numbers(), progress=False)
    assert convert("x.ar", "x.npz") == 0
    with np.load("x.npz") as loaded:
        same(loaded["data"], numbers())
    assert sorted(file.name for file in Path().iterdir()) == ["x.ar", "x.npz"]


@pytest.mark.parametrize("group", [1, 7])
def test_shards_are_found_by_the_name_that_was_given(group):
    np.save("x.npy", numbers())
    assert convert("x.npy", "x.ar", "--shards", 3, "--group-size", group) == 0
    assert sorted(file.name for file in Path().glob("x.ar*")) == [
        f"x.ar-{k:05d}-of-00003" for k in range(3)
    ]
    same(ARDataset("x.ar")[:], numbers())
    assert convert("x.ar", "y.npy") == 0
    same(np.load("y.npy"), numbers())


def test_records_that_do_not_say_what_they_are_need_dtype_and_shape(capsys):
    write_array_record("x.ar", [row.tobytes() for row in numbers()], progress=False)
    assert convert("x.ar", "y.npy") == 2
    assert "give --dtype and --shape" in capsys.readouterr().err
    assert convert("x.ar", "y.npy", "--dtype", "float32", "--shape", 30, 7) == 0
    same(np.load("y.npy"), numbers())


def test_records_of_various_lengths_are_padded_on_request(capsys):
    rows = [np.full((n, 2), n, np.int32) for n in (1, 3, 2)]
    write_array_record("x.ar", rows, progress=False)
    assert convert("x.ar", "y.npy") == 2
    assert "any x 2; give --pad-to N" in capsys.readouterr().err
    assert convert("x.ar", "y.npy", "--pad-to", 2) == 0
    same(np.load("y_length.npy"), np.array([1, 2, 2], np.int32))
    same(np.load("y_data.npy")[0], np.array([[1, 1], [0, 0]], np.int32))


def test_bfloat16_goes_to_array_record_and_is_refused_for_npy(capsys):
    import ml_dtypes

    write_array_record("x.ar", numbers(ml_dtypes.bfloat16), progress=False)
    assert convert("x.ar", "y.ar") == 0
    same(ARDataset("y.ar")[:], numbers(ml_dtypes.bfloat16))
    assert convert("x.ar", "y.npy") == 2
    assert "cannot represent bfloat16" in capsys.readouterr().err


def test_written_files_are_listed(capsys):
    np.save("x.npy", numbers())
    assert convert("x.npy", "x.ar") == 0
    captured = capsys.readouterr()
    file, summary, *_ = captured.out.splitlines()
    assert file.startswith("x.ar  ")
    assert summary.startswith("2,000 rows in ")
    assert summary.endswith("data float32[30, 7]")
    assert captured.err == ""


# The program that is printed.


def loaded(output):
    """Return the loaders of the program in the output of a conversion."""
    _, program = output.split("to load them:\n\n")
    names = {}
    exec(program, names)
    return [value for name, value in names.items() if name.startswith("loader")]


def first_of(loader):
    """Return the first row of a loader without shuffling, from its first batch and from its rows."""
    batch, rows = loader.batch(0), loader.indices(0)
    place = int(np.flatnonzero(np.asarray(rows) == 0)[0])
    if not isinstance(batch, dict):
        return np.asarray(batch)[place]
    return {name: np.asarray(values)[place] for name, values in batch.items()}


ODD_NAMES = [
    "plain",
    "it's",
    'a "b"',
    "new\nline",
    "back\\slash",
    "[1]*?",
    "x@3",
    "ünï 文",
    "\udcff",
]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("options", [["npy"], ["ar"], ["ar", "--shards", "2"], ["npz"]])
def test_the_printed_program_loads_what_was_written(name, options, capsys):
    np.save("x.npy", numbers(shape=(20, 3)))
    ending, *rest = options
    assert convert("x.npy", f"{name}.{ending}", *rest) == 0
    (loader,) = loaded(capsys.readouterr().out)
    same(first_of(loader), numbers(shape=(20, 3))[0])


def test_converted_images_have_the_fields_of_the_folder(capsys):
    write_pictures([(20, 30)] * 6)
    fields = DataLoader(ImageFolder("photos", (20, 30))).batch(0).keys()
    for target in ("p.npy", "p.ar", "p.npz"):
        assert convert("photos", target, "--force") == 0
        (loader,) = loaded(capsys.readouterr().out)
        assert loader.batch(0).keys() == fields == {"image", "label"}
        same(first_of(loader)["image"], ImageFolder("photos", (20, 30))[0]["image"])


def test_arrays_of_other_lengths_are_loaded_by_loaders_of_their_own(capsys):
    np.savez("x.npz", a=np.zeros((20, 2), np.int32), b=np.ones(20, np.float32), c=np.arange(3))
    for target in ("y.npy", "y.npz"):
        assert convert("x.npz", target) == 0
        both, alone = loaded(capsys.readouterr().out)
        assert both.batch(0).keys() == {"a", "b"}
        assert alone.batch(0).keys() == {"c"}


def test_a_set_of_files_is_loaded_and_not_an_older_file_of_its_name(capsys):
    np.save("x.npy", np.zeros((20, 2), np.int32))
    assert convert("x.npy", "y.ar") == 0
    np.save("x.npy", np.ones((20, 2), np.int32))
    assert convert("x.npy", "y.ar", "--shards", 2) == 0
    capsys.readouterr()
    assert convert("x.npy", "y.ar", "--shards", 2, "--force") == 0
    (loader,) = loaded(capsys.readouterr().out)
    assert np.all(np.asarray(loader.batch(0)) == 1)


# Pictures.


def write_pictures(sizes, mode="RGB", ending="png"):
    """Write pictures of the classes b and a; return them in the order of names."""
    generator = np.random.default_rng(0)
    written = {}
    for number, size in enumerate(sizes):
        name = Path("photos") / "ba"[number % 2] / f"{number:03d}.{ending}"
        name.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (*size, 3) if mode == "RGB" else size, np.uint8)
        Image.fromarray(pixels).save(name)
        written[name] = np.asarray(Image.open(name))
    return [written[name] for name in sorted(written)]


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_folder_of_pictures_becomes_pixels_labels_and_names(jobs):
    pixels = write_pictures([(20, 30)] * 21, ending="jpg")
    assert convert("photos", "train.npy", "--jobs", jobs) == 0
    same(np.load("train_image.npy"), np.stack(pixels))
    same(np.load("train_label.npy"), np.repeat(np.array([0, 1], np.int32), [10, 11]))
    assert json.loads(Path("train_label_classes.json").read_text()) == ["a", "b"]


def test_pixels_become_array_record_and_labels_stay_npy(capsys):
    pixels = write_pictures([(20, 30)] * 5)
    Path("photos/a/notes.txt").write_text("not a picture")
    assert convert("photos", "train.array_record") == 0
    same(ARDataset("train_image.array_record")[:], np.stack(pixels))
    assert np.load("train_label.npy").tolist() == [0, 0, 1, 1, 1]
    assert "left out: 1 other files" in capsys.readouterr().err


def test_a_folder_without_classes_has_no_labels():
    pixels = write_pictures([(4, 4)] * 4)
    assert convert("photos/a", "a.npy") == 0
    same(np.load("a.npy"), np.stack(pixels[:2]))


def test_pictures_of_various_sizes_are_scaled_and_cropped_in_the_centre(capsys):
    Path("photos/a").mkdir(parents=True)
    # Three stripes. A square in the centre shows only the middle one.
    for number, side in enumerate((10, 16, 64)):
        stripes = np.zeros((side, 3 * side, 3), np.uint8)
        stripes[:, side : 2 * side] = (10, 20, 30)
        Image.fromarray(stripes).save(f"photos/a/{number}.png")
    assert convert("photos", "x.npy") == 2
    message = capsys.readouterr().err
    assert "1.png has 16 x 48 pixels, and the first picture has 10 x 30: give --size" in message
    assert list(Path().glob("x*")) == []

    assert convert("photos", "x.npy", "--size", 8, 8) == 0
    cropped = np.load("x_image.npy")
    assert cropped.shape == (3, 8, 8, 3)
    assert np.all(cropped[:, :, 1:-1] == (10, 20, 30))


def test_grey_pictures_keep_one_channel_and_a_coloured_one_among_them_is_refused(capsys):
    pixels = write_pictures([(6, 5)] * 4, mode="L")
    assert convert("photos", "x.npy") == 0
    same(np.load("x_image.npy"), np.stack(pixels)[..., None])
    Image.new("RGB", (5, 6), "red").save("photos/b/z.png")
    assert convert("photos", "y.npy") == 2
    assert "z.png is in colour (RGB), and the first picture is grey" in capsys.readouterr().err
    assert convert("photos", "y.npy", "--mode", "RGB") == 0
    assert np.load("y_image.npy")[-1, 0, 0].tolist() == [255, 0, 0]


def test_a_broken_picture_is_named_and_nothing_is_left(folder, capsys):
    write_pictures([(20, 30)] * 6)
    broken = Path("photos/b/002.png")
    broken.write_bytes(broken.read_bytes()[:200])
    assert convert("photos", "x.ar") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(broken) in line
    assert [file.name for file in folder.iterdir()] == ["photos"]


# Tables.


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


PIXELS = np.random.default_rng(1).integers(0, 256, (700, 6, 5, 3), np.uint8)
MATRICES = np.random.default_rng(2).random((700, 2, 3)).astype(np.float32)
LABELS = np.arange(700) % 3


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return the same data as a folder by `save_to_disk`, and as a Parquet file of uneven row groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

    place = tmp_path_factory.mktemp("tables")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["one", "two", "three"]),
            "matrix": datasets.Array2D((2, 3), "float32"),
            "list": datasets.Sequence(datasets.Value("int16")),
            "flag": datasets.Value("bool"),
            "text": datasets.Value("string"),
        }
    )
    columns = {
        "image": [{"bytes": png(pixels), "path": None} for pixels in PIXELS],
        "label": LABELS.tolist(),
        "matrix": MATRICES.tolist(),
        "list": [[k, -k] for k in range(700)],
        "flag": [k % 2 == 0 for k in range(700)],
        "text": ["words"] * 700,
    }
    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = datasets.Dataset.from_dict(columns, features=features)
        dataset.save_to_disk(place / "saved", num_shards=3)
        splits = {"train": dataset, "test": dataset.select(range(5, 10))}
        datasets.DatasetDict(splits).save_to_disk(place / "splits")
        dataset.to_parquet(place / "table.parquet", batch_size=150)
    return place


@pytest.mark.parametrize("source", ["saved", "table.parquet"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_every_column_of_a_table_becomes_a_file(tables, capsys, source, jobs):
    assert convert(tables / source, "t.npy", "--jobs", jobs) == 0
    same(np.load("t_image.npy"), PIXELS)
    same(np.load("t_label.npy"), LABELS)
    same(np.load("t_matrix.npy"), MATRICES)
    assert np.load("t_list.npy").tolist() == [[k, -k] for k in range(700)]
    assert np.load("t_list.npy").dtype == np.int16
    same(np.load("t_flag.npy"), np.arange(700) % 2 == 0)
    assert json.loads(Path("t_label_classes.json").read_text()) == ["one", "two", "three"]
    assert "left out: column 'text' is of type string" in capsys.readouterr().err
    assert not Path("t_text.npy").exists()


@pytest.mark.parametrize("source", ["saved", "table.parquet"])
def test_only_the_columns_asked_for_are_written(tables, capsys, source):
    assert convert(tables / source, "t.ar", "--columns", "image", "--size", 3, 2) == 0
    assert ARDataset("t.ar").spec.shape == (3, 2, 3)
    assert sorted(file.name for file in Path().iterdir()) == ["t.ar"]
    assert convert(tables / source, "u.npy", "--columns", "matrix", "nothing") == 2
    assert "no column 'nothing'; it has 'image', 'label'" in capsys.readouterr().err
    assert convert(tables / source, "u.npy", "--columns", "text") == 2
    assert "column 'text' is of type string" in capsys.readouterr().err


def test_one_of_several_splits_must_be_chosen(tables, capsys):
    assert convert(tables / "splits", "t.npy", "--columns", "label") == 2
    assert "has the splits train, test; choose one" in capsys.readouterr().err
    assert convert(tables / "splits", "t.npy", "--columns", "label", "--split", "test") == 0
    same(np.load("t.npy"), LABELS[5:10])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [[1, 2], [3, 4], [5]],
            "row 2 has a list of length 1, and the first row has one of length 2",
        ),
        ([[1, 2], None, [5, 6]], "row 1 has no value"),
        ([[1, 2], [3, 4], [5, None]], "row 2 has no value"),
    ],
)
def test_a_row_of_another_shape_is_named(folder, capsys, values, words):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": values}), "t.parquet")
    assert convert("t.parquet", "t.npy") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"t.parquet, column 'x', {words}" in line
    assert [file.name for file in folder.iterdir()] == ["t.parquet"]


# Stopping, resuming, and not destroying anything.


def unfinished(target):
    return Workspace(Path(target)).path


def leftovers():
    return sorted(file.name for file in Path().iterdir() if "unfinished" in file.name)


def rows_noted(journal):
    """Return the number of rows of the first table in a journal."""
    try:
        progress = json.loads(journal.read_text())["progress"]
    except FileNotFoundError:
        return 0
    return progress[0]["rows"] if progress else 0


@pytest.mark.parametrize("shards", [1, 2])
def test_a_conversion_resumes_after_ctrl_c_and_the_file_is_the_same(
    forking, folder, capsys, shards
):
    np.save("x.npy", ROWS)
    options = ("--shards", shards)
    growing = unfinished("x.ar") / ("x.ar" if shards == 1 else "x.ar-00000-of-00002")
    with paused_conversion(forking, "x.npy", "x.ar", *options) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert line.startswith("loaderx convert: stopped after ")
    assert line.endswith("of 4,000 rows; the same command resumes there")
    assert out == ""
    assert {file.name for file in folder.iterdir()} == {"x.npy", growing.parent.name}
    kept = {file.name for file in growing.parent.iterdir()}
    assert kept == {growing.name, f"{growing.name}.index", "journal.json", "lock"}

    assert convert("x.npy", "x.ar", *options) == 0
    assert capsys.readouterr().err.startswith("resuming after ")
    same(ARDataset("x.ar")[:], ROWS)
    if shards == 1:
        write_array_record("library.ar", ROWS, progress=False)
        assert Path("x.ar").read_bytes() == Path("library.ar").read_bytes()
    assert leftovers() == []


def test_a_conversion_resumes_after_its_process_was_killed(forking, folder, capsys):
    np.save("x.npy", ROWS)
    with paused_conversion(forking, "x.npy", "x.ar") as process:
        process.kill()
    assert rows_noted(unfinished("x.ar") / "journal.json") > 0
    assert not Path("x.ar").exists()

    assert convert("x.npy", "x.ar") == 0
    assert capsys.readouterr().err.startswith("resuming after ")
    same(ARDataset("x.ar")[:], ROWS)
    assert sorted(file.name for file in folder.iterdir()) == ["x.ar", "x.npy"]


@pytest.fixture
def stopped_after(monkeypatch, capsys):
    """Return a function that converts until Ctrl-C arrives in the block with a given number, and returns the output."""

    def stopped_after(blocks, *arguments, kind=outputs.NpyOutput):
        append, counted = kind.append, itertools.count(1)

        def append_and_press(output, encoded):
            append(output, encoded)
            if next(counted) == blocks:
                signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(kind, "append", append_and_press)
            assert convert(*arguments) == 130
        said = capsys.readouterr().err
        assert "stopped" in said
        return said

    return stopped_after


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Return an archive of compressed arrays, and these arrays."""
    arrays = {"a": numbers(shape=(900, 30, 7)), "b": numbers(np.float64), "c": np.arange(5)}
    path = tmp_path_factory.mktemp("archive") / "x.npz"
    np.savez_compressed(path, **arrays)
    return path, arrays


@pytest.mark.parametrize("blocks", [1, 2, 5])
@pytest.mark.parametrize("target", ["y.npy", "y.npz"])
def test_arrays_of_an_npz_file_resume_after_ctrl_c_too(archive, stopped_after, blocks, target):
    path, arrays = archive
    stopped_after(blocks, path, target)
    assert convert(path, target) == 0
    for name, array in arrays.items():
        same(np.load(target)[name] if target == "y.npz" else np.load(f"y_{name}.npy"), array)
    assert leftovers() == []


@pytest.mark.parametrize("source", ["saved", "table.parquet"])
@pytest.mark.parametrize("blocks", [1, 4])
def test_a_table_resumes_after_ctrl_c_too(tables, stopped_after, source, blocks, monkeypatch):
    monkeypatch.setattr(conversion, "BLOCK_BYTES", 40_000)
    arguments = (tables / source, "t.npy", "--columns", "image", "matrix")
    said = stopped_after(blocks, *arguments)
    assert "of 700 rows; the same command resumes there" in said
    assert convert(*arguments) == 0
    same(np.load("t_image.npy"), PIXELS)
    same(np.load("t_matrix.npy"), MATRICES)


def test_a_source_that_changed_is_converted_from_its_beginning(stopped_after, capsys):
    np.save("x.npy", numbers())
    stopped_after(1, "x.npy", "y.npy")
    np.save("x.npy", numbers() + 1)
    assert convert("x.npy", "y.npy") == 0
    assert "beginning again: the source has changed" in capsys.readouterr().err
    same(np.load("y.npy"), numbers() + 1)


def test_other_options_begin_again_and_leave_nothing_of_the_last_run(folder, stopped_after, capsys):
    np.save("x.npy", numbers())
    stopped_after(1, "x.npy", "y.ar", "--shards", 2, kind=outputs.RecordOutput)
    assert convert("x.npy", "y.ar") == 0
    assert "beginning again: the last run had other options" in capsys.readouterr().err
    assert sorted(file.name for file in folder.iterdir()) == ["x.npy", "y.ar"]
    same(ARDataset("y.ar")[:], numbers())


def test_an_unfinished_file_that_was_cut_begins_again(stopped_after, capsys):
    np.save("x.npy", numbers())
    stopped_after(1, "x.npy", "y.npy")
    (unfinished("y.npy") / "y.npy").write_bytes(b"short")
    assert convert("x.npy", "y.npy") == 0
    assert "beginning again: the unfinished files are gone" in capsys.readouterr().err
    same(np.load("y.npy"), numbers())


def test_a_file_that_exists_stays_until_the_new_one_is_complete(stopped_after):
    np.save("x.npy", numbers())
    np.save("y.npy", np.arange(3))
    assert convert("x.npy", "y.npy") == 2
    stopped_after(1, "x.npy", "y.npy", "--force")
    same(np.load("y.npy"), np.arange(3))
    assert convert("x.npy", "y.npy", "--force") == 0
    same(np.load("y.npy"), numbers())


def test_a_full_disk_is_one_line_and_the_rows_so_far_are_kept(forking):
    np.save("x.npy", numbers(np.float64))
    program = """
import resource, signal, sys
from loaderx.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
sys.exit(main())
"""
    finished = forking.run(program, "convert", "x.npy", "y.npy")
    assert finished.returncode == 2
    rows = rows_noted(unfinished("y.npy") / "journal.json")
    assert rows > 0
    assert finished.stderr == (
        f"loaderx convert: y.npy: File too large; {rows:,} of 2,000 rows are kept, and the same command resumes there\n"
    )
    assert not Path("y.npy").exists()
    assert convert("x.npy", "y.npy") == 0
    same(np.load("y.npy"), numbers(np.float64))


def test_memory_does_not_grow_with_the_file(forking):
    program = """
import resource, sys
from loaderx.cli import main
status = main()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""

    def most_memory(rows):
        np.savez_compressed("x.npz", np.zeros((rows, 1 << 20), np.uint8))
        finished = forking.run(program, "convert", "x.npz", "y.npy", "--force")
        assert finished.returncode == 0, finished.stderr
        unit = 1 if sys.platform == "darwin" else 1024
        return int(finished.stderr.split()[-1]) * unit

    assert most_memory(120) - most_memory(10) < 60e6
