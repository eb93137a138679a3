"""`loaderx inspect` shows what is in image data sets, and `--verify` lists the images that are damaged."""

import json
import logging
import os
import signal
from pathlib import Path

import bagz
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import loaderx as lx
from loaderx import cli
from loaderx.commands.image_sets import MOST_RECORDS
from loaderx.transforms import Resize
from tests.loaderx.sources.encoded_images import encode, pictures
from tests.loaderx.sources.tar_files import write_tar
from tests.loaderx.sources.tfrecord_files import write_tfrecord

COUNT, DAMAGED = 8, 5


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def described(capsys):
    """Return a function for the only object of --json."""

    def of(*arguments, status=0):
        assert cli.main(["inspect", *map(str, arguments), "--json"]) == status
        (found,) = json.loads(capsys.readouterr().out)
        return found

    return of


def images(damaged=True):
    """Return images, one of which ends early."""
    found = pictures(COUNT)
    if damaged:
        found[DAMAGED] = found[DAMAGED][:-40]
    return found


def write_folder(found):
    for number, image in enumerate(found):
        path = Path("set", ("cat", "dog")[number % 2], f"{number}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    return "set"


def write_flat(found):
    Path("set").mkdir()
    for number, image in enumerate(found):
        Path("set", f"{number}.jpg").write_bytes(image)
    return "set"


def write_shards(found):
    for shard in range(2):
        members = [
            member
            for number in range(shard, COUNT, 2)
            for member in (
                (f"{number}.cls", str(number % 3).encode()),
                (f"{number}.jpg", found[number]),
            )
        ]
        write_tar(Path(f"x-{shard}.tar"), members)
    return "x-{0..1}.tar"


def write_examples(found):
    rows = [
        {"encoded": image, "label": number % 3, "name": b"x"} for number, image in enumerate(found)
    ]
    write_tfrecord(Path("x.tfrecord"), rows)
    return "x.tfrecord"


def write_bagz(found):
    for shard in range(2):
        with bagz.Writer(f"x-0000{shard}-of-00002.bagz") as writer:
            for image in found[shard * 4 : shard * 4 + 4]:
                writer.write(image)
    return "x@2.bagz"


def write_records(found):
    rows = ({"image": image, "label": number % 3} for number, image in enumerate(found))
    fields = {"image": lx.Encoded(), "label": "int64"}
    lx.write_array_record("x.ar", rows, fields=fields, progress=False)
    return "x.ar"


def write_plain_records(found):
    writer = ArrayRecordWriter("x.ar", "group_size:1")
    for image in found:
        writer.write(image)
    writer.close()
    return "x.ar"


# How each is written, the name of its images, and where the damaged one is.
CONTAINERS = {
    "folder": (write_folder, "image", "set/dog/5.jpg"),
    "flat folder": (write_flat, "image", "set/5.jpg"),
    "tar": (write_shards, "jpg", "x-1.tar, key '5'"),
    "TFRecord": (write_examples, "encoded", "x.tfrecord, record 5"),
    "Bagz": (write_bagz, "image", "x-00001-of-00002.bagz, record 1"),
    "ArrayRecord": (write_records, "image", "x.ar, record 5"),
    "plain ArrayRecord": (write_plain_records, "image", "x.ar, record 5"),
}
ALL = pytest.mark.parametrize("name", CONTAINERS)


@ALL
def test_formats_sizes_and_labels_are_shown(described, name):
    write, field, _ = CONTAINERS[name]
    found = described(write(images(False)))
    assert found["rows"] == COUNT
    assert found["fields"][field] == {
        "mode": "RGB",
        "sampled": COUNT,
        "formats": {"JPEG": COUNT},
        "smallest": [9, 30],
        "median": [29, 26],
        "largest": [44, 23],
    }
    labels = [own["labels"] for own in found["fields"].values() if "labels" in own]
    if name in ("tar", "TFRecord", "ArrayRecord"):
        assert labels == [{"0": 3, "1": 3, "2": 2}]
    else:
        assert labels == []
    assert found["classes"] == ({"cat": 4, "dog": 4} if name == "folder" else None)
    files = [file for file in Path.cwd().rglob("*") if file.is_file() and file.name[0] != "."]
    assert found["bytes"] == sum(file.stat().st_size for file in files)
    assert (found["verified"], found["damage"], found["damaged_rows"]) == (None, None, [])


@ALL
def test_an_intact_data_set_is_verified(described, name):
    found = described(CONTAINERS[name][0](images(False)), "--verify")
    assert found["verified"] == f"all {COUNT} rows are intact"
    assert found["damaged_rows"] == []


@ALL
def test_verify_lists_each_damaged_image(described, capsys, name):
    write, field, where = CONTAINERS[name]
    file = write(images())
    found = described(file, "--verify", status=1)
    assert found["verified"] == f"1 of {COUNT} rows is damaged"
    (damage,) = found["damaged_rows"]
    assert damage["field"] == field
    assert damage["where"].endswith(where)
    assert damage["reason"].startswith("the JPEG file is damaged: ")
    assert cli.main(["inspect", "--verify", file]) == 1
    captured = capsys.readouterr()
    assert f"{damage['where']}: {damage['reason']}" in captured.out
    (line,) = captured.err.splitlines()
    assert line.startswith(
        f"loaderx inspect: {file}: 1 of {COUNT} rows is damaged: a loader raises"
    )


def test_the_rows_that_are_listed_are_those_that_a_loader_replaces(described, caplog):
    found = images()
    found[1], found[6] = b"", b"GIF89a and nothing more"
    write_folder(found)
    Path("set/cat/2.jpg").write_bytes(found[2] + b"\0" * 8)
    source = lx.ImageFolder("set")
    loader = lx.DataLoader(
        source,
        batch_size=4,
        num_epochs=1,
        shuffle=False,
        transforms={"image": [Resize((8, 8))]},
        on_error="replace",
        output="numpy",
    )
    with caplog.at_level(logging.WARNING, "loaderx"), iter(loader) as batches:
        list(batches)
        replaced = batches.stats().replaced
    listed = described("set", "--verify", status=1)["damaged_rows"]
    assert replaced == len(listed) == 3
    assert {damage["row"] for damage in listed} == {
        int(record.args[0]) for record in caplog.records
    }
    assert [damage["where"] for damage in listed] == [
        str(source.paths[damage["row"]]) for damage in listed
    ]


def test_without_verify_damaged_headers_of_the_sample_are_counted(described):
    found = images(False)
    found[3] = b"not an image"
    write_flat(found)
    shown = described("set")["fields"]["image"]
    assert shown["formats"] == {"JPEG": COUNT - 1, "damaged": 1}
    assert described("set", "--sample", 4)["fields"]["image"]["sampled"] == 4
    none = described("set", "--sample", 0)["fields"]["image"]
    assert (none["formats"], none["median"]) == ({}, None)


def test_a_file_that_cannot_be_opened_is_listed_and_the_others_are_verified(described, capsys):
    write_shards(images())
    content = Path("x-0.tar").read_bytes()
    Path("x-2.tar").write_bytes(content[:2000])
    Path("x-3.tar").write_bytes(bytes(10240))
    found = described("x-{0..3}.tar", "--verify", status=1)
    (reason,) = found["damaged_files"]
    assert "x-2.tar is truncated" in reason
    assert found["verified"] == (
        f"1 of 4 files cannot be opened; of the others, 1 of {COUNT} rows is damaged"
    )
    assert cli.main(["inspect", "x-{0..3}.tar"]) == 2
    assert "x-2.tar is truncated" in capsys.readouterr().err


def test_a_pair_of_extensions_is_two_fields_and_alternatives_are_one(described):
    jpeg, png = pictures(1)[0], pictures(1, "PNG")[0]
    write_tar(
        Path("x.tar"),
        [("a.jpg", jpeg), ("b.png", png), ("a.seg.png", png), ("b.seg.png", png)],
    )
    found = described("x.tar")
    assert list(found["fields"]) == ["jpg;png", "seg.png"]
    assert found["fields"]["jpg;png"]["formats"] == {"JPEG": 1, "PNG": 1}
    write_tar(Path("y.tar"), [("a.jpg", jpeg), ("a.png", png)])
    assert list(described("y.tar")["fields"]) == ["jpg", "png"]


def test_features_are_found_that_are_images_or_a_number_in_every_record(described):
    rows = [
        {"a": image, "label": k, "count": [k] * (1 + k % 2), "b": b"\xff\xd8\xff", "w": 0.5}
        for k, image in enumerate(images(False))
    ]
    write_tfrecord(Path("x.tfrecord"), rows)
    assert list(described("x.tfrecord")["fields"]) == ["a", "label"]
    # A number that is not in every record is not a field, even where that is seen late.
    late = [{"a": images(False)[0], "label": 1}] * MOST_RECORDS + [{"a": images(False)[0]}]
    write_tfrecord(Path("y.tfrecord"), late)
    assert cli.main(["inspect", "y.tfrecord"]) == 2
    assert list(described("y.tfrecord", "--fields", "a")["fields"]) == ["a"]


def test_fields_may_be_declared(described):
    write_examples(images(False))
    found = described("x.tfrecord", "--fields", "encoded=L", "label=int32")
    assert found["fields"]["encoded"]["mode"] == "L"
    assert found["fields"]["label"]["dtype"] == "int32"
    with bagz.Writer("y.bagz") as writer:
        for number, image in enumerate(images(False)):
            box = np.array([number, 1, 2, 3], "<f4").tobytes()
            writer.write(np.int64(number).tobytes() + box + image)
    found = described("y.bagz", "--fields", "image", "label=int64", "box=float32:4", "--verify")
    assert list(found["fields"]) == ["image", "label", "box"]
    assert found["fields"]["box"]["shape"] == [4]
    assert found["fields"]["label"]["labels"] == {str(number): 1 for number in range(COUNT)}


def test_a_mode_that_images_do_not_have_is_damage(described):
    write_flat(pictures(COUNT))
    found = described("set", "--mode", "P", "--verify", status=1)
    assert len(found["damaged_rows"]) == COUNT
    assert "cannot be of mode 'P'" in found["damaged_rows"][0]["reason"]


def test_the_limit_of_pixels_can_be_set(described):
    write_flat(pictures(COUNT))
    found = described("set", "--max-pixels", 500, "--verify", status=1)
    sizes = [(9 + 5 * k) * (30 - k) for k in range(COUNT)]
    assert len(found["damaged_rows"]) == sum(size > 500 for size in sizes)
    assert "the limit is 500" in found["damaged_rows"][0]["reason"]


def test_names_of_files_are_shown_in_one_line_and_without_codes(capsys):
    write_flat(pictures(1))
    Path("set", "a\nb \x1b[31m c.jpg").write_bytes(b"x")
    Path(os.fsdecode(b"set/\xff.jpg")).write_bytes(b"x")
    assert cli.main(["inspect", "set", "--verify"]) == 1
    out = capsys.readouterr().out
    assert "a\\nb \\x1b[31m c.jpg: the file is not an image" in out
    assert "\\udcff.jpg: the file is not an image" in out


def test_a_file_that_vanishes_is_damage(described, monkeypatch):
    from loaderx.commands import images as module

    write_flat(pictures(COUNT))
    damages = module.damages

    def later(*arguments):
        Path("set/3.jpg").unlink()
        return damages(*arguments)

    monkeypatch.setattr(module, "damages", later)
    (damage,) = described("set", "--verify", status=1)["damaged_rows"]
    assert damage["where"].endswith("set/3.jpg")
    assert damage["reason"] == "No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "--fields", "image"], "--fields: set is a folder"),
        (["x-0.tar", "--fields", "jpg=int99"], "--fields: 'jpg=int99' must be NAME for images"),
        (["x-0.tar", "--fields", "=int64"], "--fields: '=int64' must be"),
        (["x-0.tar", "--fields", "jpg=float32:0"], "--fields: 'jpg=float32:0' must be"),
        (["x-0.tar", "--fields", "webp"], "has no file .webp for the field 'webp'"),
        (["x-0.tar", "--dtype", "u1"], "--dtype and --shape are for ArrayRecord files; x-0.tar is"),
        (["text.tar"], "text.tar: no images were found in it; declare its fields by --fields"),
        (["x.npy", "--fields", "x"], "--fields is for image data sets, and x.npy has no images"),
        (["x.npy", "--mode", "L"], "--mode is for image data sets"),
        (["x.npy", "--max-pixels", "9"], "--max-pixels is for image data sets"),
        (["empty"], "empty is a folder without images"),
        (["x-{0..9}.tar"], "there is no file 'x-2.tar'"),
        (["y@3.bagz"], "there is no file 'y-00000-of-00003.bagz'"),
        (["x.tar.gz"], "x.tar.gz is compressed with gzip"),
    ],
)
def test_arguments_that_cannot_work_are_refused_in_one_line(capsys, arguments, words):
    write_folder(images())
    write_shards(images())
    write_tar(Path("text.tar"), [("a.txt", b"x")])
    Path("x.tar.gz").write_bytes(b"\x1f\x8b" + bytes(1000))
    Path("empty").mkdir()
    np.save("x.npy", np.zeros((3, 2)))
    assert cli.main(["inspect", *arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert words in line
    assert captured.out == ""


def test_records_that_are_not_images_are_described_as_before(capsys):
    lx.write_array_record("x.ar", np.zeros((4, 8, 8, 3), np.uint8), progress=False)
    assert cli.main(["inspect", "x.ar"]) == 0
    assert "8 x 8 x 3, uint8" in capsys.readouterr().out


def test_ctrl_c_while_images_are_decoded_is_one_line_and_exit_code_130(forking):
    write_flat([encode(np.zeros((9, 9, 3), np.uint8), "PNG")] * 200)
    program = f"""
import os, signal, sys, threading
from loaderx.cli import main
from loaderx.sources.encoded.source import EncodedImage
decode = EncodedImage.decode
count = iter(range(1000))
def interrupted(self):
    if next(count) == 50:
        os.kill(os.getpid(), {int(signal.SIGINT)})
    return decode(self)
EncodedImage.decode = interrupted
sys.exit(main())
"""
    finished = forking.run(program, "inspect", "set", "--verify")
    assert finished.returncode == 130
    assert (finished.stdout, finished.stderr) == ("", "loaderx inspect: stopped\n")
