"""`loaderx inspect` shows the content of a file, and its damage."""

import json
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from loaderx import cli, write_array_record
from loaderx.transforms import Normalize


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shown(capsys):
    """Return a function for the output on a file: the text after each word at the beginning of a line."""

    def of(*arguments, status=0):
        assert cli.main(["inspect", *arguments]) == status
        lines = capsys.readouterr().out.splitlines()
        return {line[:14].strip(): line[14:].strip() for line in lines if line.startswith("  ")}

    return of


@pytest.fixture
def described(capsys):
    """Return the objects of --json."""

    def of(*arguments, status=0):
        assert cli.main(["inspect", *arguments, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return of


def images(rows, dtype=np.uint8):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, [100, 200, 256], (rows, 8, 9, 3))
    return pixels.astype(dtype)


def test_rows_dtype_shape_and_bytes_are_shown(shown):
    np.save("x.npy", images(1200))
    found = shown("x.npy")
    assert found["rows"] == "1,200"
    assert found["a row"] == "8 x 9 x 3, uint8"
    assert found["bytes"] == "259 kB, 216 bytes per row"
    assert found["compression"] == "none"
    assert "C order" in found["format"]


def test_the_line_with_mean_and_deviation_can_be_pasted(shown):
    np.save("x.npy", images(50))
    pasted = shown("x.npy")["values"]
    normalize = eval(pasted, {"Normalize": Normalize})
    assert isinstance(normalize, Normalize)
    assert pasted.endswith("# of all rows")


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("form", ["npy", "npz", "ar"])
def test_normalizing_by_mean_and_deviation_gives_0_and_1(described, dtype, form):
    pixels = images(64, dtype)
    if form == "npy":
        np.save("x.npy", pixels)
    elif form == "npz":
        np.savez_compressed("x.npz", pixels)
    else:
        write_array_record("x.ar", pixels, progress=False)
    (found,) = described(f"x.{form}")
    statistics = found["statistics"]
    assert statistics["rows"] == 64
    white = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 1
    scaled = pixels.astype(np.float64) / white
    np.testing.assert_allclose(statistics["mean"], scaled.mean(axis=(0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(statistics["std"], scaled.std(axis=(0, 1, 2)), rtol=1e-4)


def test_a_sample_is_spread_over_the_file_and_of_the_size_asked_for(described):
    np.save("x.npy", np.arange(10_000, dtype=np.float32))
    (found,) = described("x.npy", "--sample", "100")
    assert found["statistics"]["rows"] == 100
    assert found["statistics"]["mean"][0] == pytest.approx(5000, rel=0.01)
    (found,) = described("x.npy", "--sample", "0")
    assert found["statistics"] is None


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((), 1), ((5,), 5), ((40,), 1), ((8, 8), 1), ((8, 8, 1), 1), ((8, 8, 4), 4), ((3, 8, 8), 1)],
)
def test_the_last_axis_is_that_of_channels_where_it_is_short(described, shape, channels):
    np.save("x.npy", np.random.default_rng(0).random((20, *shape)))
    (found,) = described("x.npy")
    assert len(found["statistics"]["mean"]) == channels


def test_values_far_from_0_keep_their_deviation(described):
    np.save("x.npy", 1e9 + np.random.default_rng(0).random(5000))
    (found,) = described("x.npy", "--sample", "5000")
    assert found["statistics"]["std"][0] == pytest.approx(12**-0.5, rel=0.02)


def test_rows_that_differ_are_counted_alike_however_many_there_are(described):
    values = np.random.default_rng(0).random((60, 160, 160, 2)) + np.arange(60).reshape(-1, 1, 1, 1)
    np.save("x.npy", values)
    (found,) = described("x.npy")
    np.testing.assert_allclose(found["statistics"]["mean"], values.mean(axis=(0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(found["statistics"]["std"], values.std(axis=(0, 1, 2)), rtol=1e-4)


def test_values_that_are_not_finite_are_counted_and_left_out(shown, described):
    np.save("x.npy", np.array([1, np.nan, 3, np.inf]))
    (found,) = described("x.npy")
    assert found["statistics"]["mean"] == [2]
    assert found["statistics"]["not_finite"] == 2
    assert "2 sampled values are NaN or infinite" in shown("x.npy")[""]


def test_a_constant_is_not_offered_to_normalize(shown):
    np.save("x.npy", np.ones((4, 3, 3), np.float32))
    assert shown("x.npy")["values"].startswith("mean 1.0, deviation 0.0")


@pytest.mark.parametrize("form", ["npy", "ar"])
def test_integers_have_a_histogram(described, capsys, form):
    labels = np.repeat(np.array([3, -1, 7], np.int32), [5, 1, 10])
    if form == "npy":
        np.save("y.npy", labels)
    else:
        write_array_record("y.ar", labels, progress=False)
    (found,) = described(f"y.{form}")
    assert found["labels"] == {"-1": 1, "3": 5, "7": 10}
    cli.main(["inspect", f"y.{form}"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["3", "5", "31.2%", "#" * 15] in lines


def test_integers_of_too_many_values_are_not_labels(described, shown):
    np.save("tokens.npy", np.arange(5000))
    assert described("tokens.npy")[0]["labels"] is None
    assert "labels" not in shown("tokens.npy")


def test_a_long_histogram_is_cut_in_text_only(described, capsys):
    np.save("y.npy", np.arange(300) % 100)
    assert len(described("y.npy")[0]["labels"]) == 100
    cli.main(["inspect", "y.npy"])
    assert "and 80 more; most often 0 (3), least often 0 (3)" in capsys.readouterr().out


def test_every_array_of_an_npz_file_is_described(described):
    np.savez_compressed("m.npz", x=images(10), y=np.arange(4), order=np.asfortranarray(images(6)))
    x, y, order = described("m.npz", "--verify")
    assert (x["array"], x["rows"], x["compression"]) == ("x", 10, "deflate")
    assert (y["array"], y["labels"]) == ("y", {"0": 1, "1": 1, "2": 1, "3": 1})
    assert order["chunking"] == "one piece, Fortran order"
    assert x["verified"] == "the checksum of the array is right"
    assert order["statistics"]["mean"] == pytest.approx(
        (images(6) / 255).mean(axis=(0, 1, 2)).tolist(), rel=1e-4
    )


@pytest.mark.parametrize(
    ("options", "codec", "group"),
    [
        ({"compression": "zstd", "level": 5}, "zstd:5", 1),
        ({"compression": None}, "none", 1),
        ({"compression": "zstd", "group_size": 4}, "zstd:3", 4),
    ],
)
def test_codec_and_group_size_of_array_record_files_are_shown(described, options, codec, group):
    write_array_record("x.ar", images(10), progress=False, **options)
    (found,) = described("x.ar")
    assert found["compression"] == codec
    assert found["chunking"] == f"{-(-10 // group)} chunks, group size {group}"
    assert (found["rows"], found["dtype"], found["shape"]) == (10, "uint8", [8, 9, 3])
    assert found["bytes"] == 10 * 216


def test_files_by_other_writers_are_described_as_far_as_they_say_what_they_hold(shown, capsys):
    writer = ArrayRecordWriter("x.ar", "group_size:1,brotli:6")
    for row in images(5, np.float32):
        writer.write(row.tobytes())
    writer.close()
    assert cli.main(["inspect", "x.ar", "--dtype", "float32", "--shape", "8", "9", "3"]) == 0
    captured = capsys.readouterr()
    assert "  compression  brotli:6" in captured.out
    assert "  values       Normalize(mean=[" in captured.out
    (warning,) = captured.err.splitlines()
    assert warning.startswith("loaderx inspect: x.ar: compressed with brotli")
    assert "--dtype and --shape" in shown("x.ar", "--verify")["a row"]


def test_records_of_various_lengths_are_described(described):
    write_array_record("x.ar", [np.ones((n, 2), np.float32) for n in range(1, 6)], progress=False)
    (found,) = described("x.ar", "--verify")
    assert (found["shape"], found["dtype"]) == ([None, 2], "float32")
    assert found["statistics"]["mean"] == [1.0]
    assert found["verified"] == "all 5 records are intact"


def test_files_of_a_set_are_described_as_one(described):
    for number in range(2):
        write_array_record(f"x.ar-0000{number}-of-00002", images(10), progress=False)
    (found,) = described("x.ar", "--verify")
    assert found["rows"] == 20
    assert found["chunking"].endswith("in 2 files")
    assert found["verified"] == "all 20 records are intact"


@pytest.mark.parametrize("group", [1, 8])
def test_verify_names_the_first_damaged_record(shown, capsys, group):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 1000), np.uint8)
    write_array_record("x.ar", pixels, compression=None, group_size=group, progress=False)
    content = bytearray(Path("x.ar").read_bytes())
    for row in (50, 20):
        place = content.index(pixels[row, 100:200].tobytes())
        content[place] ^= 1
    Path("x.ar").write_bytes(content)

    assert cli.main(["inspect", "x.ar", "--verify", "--sample", "0"]) == 1
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    first = 20 // group * group
    assert line.startswith(f"loaderx inspect: x.ar, record {first}: the hash of its chunk's data")
    assert f"{2 * group} of 64 records are damaged" in captured.out
    assert "rows         64" in captured.out


def test_ctrl_c_is_one_line_and_exit_code_130(forking):
    write_array_record("x.ar", images(10), progress=False)
    program = """
import signal, sys
from loaderx.cli import main
from loaderx.sources.records.file import RecordFile
read = RecordFile.read_chunk
def interrupted(self, number):
    if number == 5:
        signal.raise_signal(signal.SIGINT)
    return read(self, number)
RecordFile.read_chunk = interrupted
sys.exit(main())
"""
    finished = forking.run(program, "inspect", "x.ar", "--verify")
    assert finished.returncode == 130
    assert (finished.stdout, finished.stderr) == ("", "loaderx inspect: stopped\n")


def test_an_intact_file_is_verified_and_a_npy_file_has_nothing_to_verify(shown):
    write_array_record("x.ar", images(10), progress=False)
    assert shown("x.ar", "--verify")["verified"] == "all 10 records are intact"
    np.save("x.npy", images(10))
    assert shown("x.npy", "--verify")["verified"] == "nothing: a .npy file has no checksums"


def test_a_damaged_npz_file_is_said_to_be_so(capsys):
    np.savez("x.npz", x=np.arange(10_000))
    content = bytearray(Path("x.npz").read_bytes())
    content[40_000] ^= 1
    Path("x.npz").write_bytes(content)
    assert cli.main(["inspect", "x.npz", "--verify"]) == 1
    assert "x.npz, array 'x': Bad CRC-32" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_does_not_hide_the_others(capsys):
    np.save("x.npy", images(3))
    assert cli.main(["inspect", "missing.npy", "x.npy"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("x.npy\n")
    assert len(captured.err.splitlines()) == 1


def test_a_file_without_rows_is_described(shown):
    np.save("x.npy", np.zeros((0, 4)))
    assert shown("x.npy")["rows"] == "0"
