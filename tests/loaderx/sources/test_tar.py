"""TarDataset reads the samples of WebDataset shards in any order, and refuses what is damaged."""

import json
import os
import pickle
import random
import subprocess
import tarfile

import numpy as np
import pytest

from loaderx import ArgumentError, DataError, Encoded, Spec, TarDataset
from loaderx.sources.encoded.field import EncodedSpec
from tests.loaderx.sources.encoded_images import (
    assert_delivers_images,
    assert_same_rows,
    bytes_of,
    pictures,
)
from tests.loaderx.sources.tar_files import long_ago, read_tar, write_tar

COUNT = 11
IMAGES = pictures(COUNT)
LABELS = np.arange(COUNT) * 7 - 20
ROWS = {"image": IMAGES, "label": LABELS}
FIELDS = {"image": "jpg", "label": "cls"}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def samples(rows=range(COUNT), name="n{:03}"):
    """Return the members of some rows."""
    for row in rows:
        yield f"{name.format(row)}.jpg", IMAGES[row]
        yield f"{name.format(row)}.cls", b"%d" % LABELS[row]


def header(name, size=0, kind=tarfile.REGTYPE, **more):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "name",
    ["n{:03}", "./train.v2/n{:03}", "a/b c/{}", "ü/{}", "x" * 90 + "/{}", "y" * 99 + "/" + "z" * 80 + "{:08}"],
)  # fmt: skip
def test_the_members_of_one_name_are_a_row(tmp_path, kind, name):
    path = write_tar(tmp_path / "x.tar", samples(name=name), FORMATS[kind])
    source = TarDataset(path, FIELDS)
    assert source.spec == {"image": EncodedSpec(Encoded("jpg")), "label": Spec((), np.int64)}
    assert list(source.keys) == [name.format(row) for row in range(COUNT)] == list(read_tar(path))
    assert_delivers_images(source, ROWS)
    assert source[3]["image"].where == f"{path}, key {name.format(3)!r}"
    assert source[3]["image"].decode().shape == (24, 27, 3)


def test_very_long_names_are_read(tmp_path):
    name = "/".join(["deep" * 20] * 12) + "/{:05}"
    for kind in ("gnu", "pax"):
        path = write_tar(tmp_path / f"{kind}.tar", samples(name=name), FORMATS[kind])
        source = TarDataset(path, FIELDS)
        assert list(source.keys) == list(read_tar(path))
        assert_same_rows(source[:], ROWS)


def test_an_archive_by_gnu_tar_is_read(tmp_path):
    for name, content in samples(name="k{}"):
        (tmp_path / name).write_bytes(content)
    for kind in ("v7", "oldgnu", "gnu", "ustar", "pax"):
        path = tmp_path / f"{kind}.tar"
        command = ["tar", "-cf", path.name, f"--format={kind}", "--exclude=*.tar", "."]
        subprocess.run(command, cwd=tmp_path, check=True)
        source = TarDataset(path, FIELDS, missing="drop")
        expected = read_tar(path)
        rows = {"image": [expected[key]["jpg"] for key in source.keys]}
        assert sorted(source.keys) == sorted(f"./k{row}" for row in range(COUNT))
        assert bytes_of(source[:]["image"]) == rows["image"]


def test_shards_follow_one_another_in_any_form_of_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, rows in enumerate([range(4), range(4, 5), range(5, COUNT)]):
        write_tar(tmp_path / f"t-{number:02}.tar", samples(rows))
    for names in ("t-{00..02}.tar", "t-*.tar", ["t-00.tar", "t-0{1,2}.tar"]):
        source = TarDataset(names, FIELDS)
        assert_same_rows(source[:], ROWS)
        assert source[5]["image"].where == f"{tmp_path / 't-02.tar'}, key 'n005'"
    monkeypatch.chdir("/")
    assert_delivers_images(source, ROWS)
    with pytest.raises(FileNotFoundError, match=r"t-03\.tar"):
        TarDataset(str(tmp_path / "t-{00..03}.tar"), FIELDS)


def test_members_of_a_sample_may_be_in_any_order(tmp_path):
    members = list(samples())
    random.Random(0).shuffle(members)
    path = write_tar(tmp_path / "x.tar", members)
    source = TarDataset(path, FIELDS)
    assert list(source.keys) == list(read_tar(path))
    order = [int(key[1:]) for key in source.keys]
    assert order != sorted(order)
    assert_same_rows(source[np.argsort(order)], ROWS)


def test_members_that_belong_to_no_sample_are_ignored(tmp_path):
    members = [
        header("folder", kind=tarfile.DIRTYPE),
        header("folder/n000.gif", kind=tarfile.SYMTYPE, linkname="x"),
        header("n000.cls2", kind=tarfile.LNKTYPE, linkname="x"),
        header("pipe.jpg", kind=tarfile.FIFOTYPE),
        header("device.jpg", kind=tarfile.CHRTYPE),
        header("old.jpg/", kind=tarfile.AREGTYPE),
        (".hidden.jpg", b"?"), ("a/._n000.jpg", b"?"), ("__MACOSX/n000.jpg", b"?"), ("LICENSE", b"?"),
        *samples(),
        ("n000.seg.png", b"mask"), ("n000.txt", b"text"),
    ]  # fmt: skip
    source = TarDataset(write_tar(tmp_path / "x.tar", members), FIELDS)
    assert_same_rows(source[:], ROWS)
    one = TarDataset(tmp_path / "x.tar", {"mask": Encoded("seg.png", mode="P")}, missing="drop")
    assert bytes_of(one[:]["mask"]) == [b"mask"]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_link_in_place_of_an_image_is_refused_or_its_sample_dropped(tmp_path, kind):
    members = [*samples(), header("n999.jpg", kind=kind, linkname="n000.jpg"), ("n999.cls", b"1")]
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(
        DataError, match=r"x\.tar has a link in place of the file 'n999\.jpg', at \d+"
    ) as caught:
        TarDataset(path, FIELDS)
    assert "--hard-dereference" in str(caught.value)
    assert_same_rows(TarDataset(path, FIELDS, missing="drop")[:], ROWS)


def test_hard_links_of_gnu_tar_are_noticed(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(IMAGES[0])
    (folder / "b.jpg").hardlink_to(folder / "a.jpg")
    for option, words in ((), "has a link"), (("--hard-dereference",), None):
        path = tmp_path / "x.tar"
        subprocess.run(["tar", *option, "-C", folder, "-cf", path, "a.jpg", "b.jpg"], check=True)
        if words is None:
            assert bytes_of(TarDataset(path, {"image": "jpg"})[:]["image"]) == [IMAGES[0]] * 2
            continue
        with pytest.raises(DataError, match=words):
            TarDataset(path, {"image": "jpg"})


def test_a_field_has_one_of_several_extensions(tmp_path):
    names = ["0.jpg", "1.PNG", "2.Jpeg", "3.png"]
    path = write_tar(tmp_path / "x.tar", [(name, IMAGES[k]) for k, name in enumerate(names)])
    source = TarDataset(path, {"image": "jpg;jpeg;png", "again": Encoded("png;JPG;jpeg", mode="L")})
    assert_same_rows(source[:], {"image": IMAGES[:4], "again": IMAGES[:4]})
    with pytest.raises(
        DataError, match=r"x\.tar has no file \.png for the field 'image' of the key '0'"
    ):
        TarDataset(path, {"image": "png"})
    source = TarDataset(path, {"image": "png"}, missing="drop")
    assert list(source.keys) == ["1", "3"]
    assert bytes_of(source[:]["image"]) == [IMAGES[1], IMAGES[3]]


def test_numbers_are_in_text_and_in_json(tmp_path):
    members = []
    for row in range(5):
        content = {"label": row - 2, "box": [0.5, row], "deep": {"list": [{"x": row * 2.5}]}}
        members += [
            (f"{row}.json", json.dumps(content).encode()), (f"{row}.count", b" %d\n" % row),
            (f"{row}.score", b"%f" % (row / 4)),
        ]  # fmt: skip
    path = write_tar(tmp_path / "x.tar", members)
    fields = {
        "label": ("int64", "json:label"),
        "small": ("int8", "json:label"),
        "box": ("float32", "json:box", (2,)),
        "x": ("float64", "json:deep.list.0.x"),
        "count": "count",
        "score": ("float32", "score"),
    }
    rows = np.arange(5)
    expected = {
        "label": rows - 2,
        "small": (rows - 2).astype(np.int8),
        "box": np.stack([np.full(5, 0.5), rows], 1).astype(np.float32),
        "x": rows * 2.5,
        "count": rows,
        "score": (rows / 4).astype(np.float32),
    }
    assert_delivers_images(TarDataset(path, fields), expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (("int64", "cls"), b""), (("int64", "cls"), b"x"), (("int64", "cls"), b"1.5"), (("int8", "cls"), b"200"),
        (("uint8", "cls"), b"-1"), (("int64", "cls"), b"9" * 30), (("int64", "cls"), b"9" * 6000),
        (("float32", "cls"), b"x"), (("int64", "cls"), b"\xff"), (("int64", "cls", (2,)), b"1"),
        (("int64", "cls:a"), b"{"), (("int64", "cls:a"), b"{}"), (("int64", "cls:a"), b'{"a": 1.5}'),
        (("int64", "cls:a"), b'{"a": true}'), (("int64", "cls:a"), b'{"a": null}'), (("int64", "cls:a"), b'{"a": [1]}'),
        (("int64", "cls:a", (2,)), b'{"a": [1]}'), (("int64", "cls:a", (2,)), b'{"a": [[1], 2]}'),
        (("int64", "cls:a.5"), b'{"a": [1]}'), (("int64", "cls:a.b"), b'{"a": 3}'), (("int64", "cls:0"), b"[" * 10000),
    ],
)  # fmt: skip
def test_a_number_that_does_not_fit_is_named(tmp_path, kind, text):
    path = write_tar(tmp_path / "x.tar", [("a/b.jpg", IMAGES[0]), ("a/b.cls", text)])
    with pytest.raises(DataError, match=r"x\.tar, 'a/b\.cls': .* is not .*for the field 'label'"):
        TarDataset(path, {"image": "jpg", "label": kind})


def test_labels_come_from_a_sidecar(tmp_path):
    path = write_tar(tmp_path / "x.tar", samples())
    labels = {f"n{row:03}": int(label) for row, label in enumerate(LABELS)}
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    for given in (labels, str(tmp_path / "labels.json"), LABELS):
        assert_delivers_images(TarDataset(path, {"image": "jpg"}, labels=given), ROWS)
    del labels["n004"]
    with pytest.raises(DataError, match=r"`labels` has None for 'n004' \(row 4\)"):
        TarDataset(path, {"image": "jpg"}, labels=labels)
    with pytest.raises(ArgumentError, match="makes a field 'label', and `fields` has one"):
        TarDataset(path, FIELDS, labels=labels)


def test_two_files_for_one_field_are_named(tmp_path):
    path = write_tar(tmp_path / "x.tar", [*samples(range(3)), ("n001.JPG", b"second")])
    with pytest.raises(DataError) as refusal:
        TarDataset(path, FIELDS)
    offset = path.read_bytes().index(b"second")
    for words in ("field 'image' of the key 'n001'", "'n001.jpg' at ", f"'n001.JPG' at {offset}"):
        assert words in str(refusal.value)


def test_a_sample_that_lacks_a_field_is_named_or_dropped(tmp_path):
    members = [member for member in samples() if member[0] not in ("n003.cls", "n007.jpg")]
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(DataError, match=r"no file \.cls for the field 'label' of the key 'n003'"):
        TarDataset(path, FIELDS)
    source = TarDataset(path, FIELDS, missing="drop")
    kept = [row for row in range(COUNT) if row not in (3, 7)]
    assert_same_rows(source[:], {"image": [IMAGES[k] for k in kept], "label": LABELS[kept]})
    with pytest.raises(DataError, match=r"x\.tar has no rows with the fields \['image', 'mask'\]"):
        TarDataset(path, {"image": "jpg", "mask": "png"}, missing="drop")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "`fields` .* must be a dict"),
        (["jpg"], "`fields` .* must be a dict"),
        ({"x": "txt"}, "the extension 'txt'.* Give `Encoded"),
        ({"x": 5}, "field 'x'"),
        ({"x": ("text", "cls")}, "field 'x'"),
        ({"x": ("int64", "cls", (0,))}, "field 'x'"),
        ({"x": ("int64", "cls", 1, 2)}, "field 'x'"),
        ({"x": (None, "cls")}, "field 'x'"),
    ],
)
def test_fields_that_mean_nothing_are_refused(tmp_path, fields, words):
    path = write_tar(tmp_path / "x.tar", samples())
    with pytest.raises(ArgumentError, match=words):
        TarDataset(path, fields)
    with pytest.raises(ArgumentError, match="`missing`"):
        TarDataset(path, FIELDS, missing="skip")


@pytest.mark.parametrize(
    ("command", "name"),
    [("gzip", "gzip"), ("bzip2", "bzip2"), ("xz", "xz")],
)
def test_compressed_archives_are_refused_with_advice(tmp_path, command, name):
    path = write_tar(tmp_path / "x.tar", samples())
    subprocess.run([command, path], check=True)
    (compressed,) = tmp_path.glob("x.tar.*")
    with pytest.raises(DataError, match=f"compressed with {name}, .* Decompress it"):
        TarDataset(compressed, FIELDS)


def test_sparse_files_are_refused(tmp_path):
    with (tmp_path / "0.jpg").open("wb") as file:
        file.seek(1 << 22)
        file.write(b"end")
    for kind in ("gnu", "pax"):
        command = ["tar", "-cSf", f"{kind}.tar", f"--format={kind}", "0.jpg"]
        subprocess.run(command, cwd=tmp_path, check=True)
        with pytest.raises(DataError, match="has a sparse file"):
            TarDataset(tmp_path / f"{kind}.tar", {"image": "jpg"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a tar file: it has 0 bytes"),
        (b"x" * 100, "not a tar file: it has 100 bytes"),
        (b"x" * 5000, "not a tar file: it does not begin with a header"),
        (IMAGES[0], "not a tar file"),
        (bytes(10240), "has no rows"),
    ],
)
def test_other_files_than_archives_are_refused(tmp_path, content, words):
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.tar.* {words}|x\.tar {words}"):
        TarDataset(tmp_path / "x.tar", FIELDS)
    with pytest.raises(DataError, match="is a folder, not a tar file"):
        TarDataset(tmp_path, FIELDS)


def test_a_truncated_archive_is_refused_wherever_it_ends(tmp_path):
    path = write_tar(tmp_path / "x.tar", [*samples(range(2), "k" * 150 + "{}")])
    content = path.read_bytes()
    with tarfile.open(path) as archive:
        end = archive.getmembers()[-1].offset_data + 512
    for size in {*range(0, end, 256), *range(1, end, 333), end}:
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"x\.tar is (truncated|not a tar file)"):
            TarDataset(path, FIELDS)
    path.write_bytes(content[: end + 512])
    assert len(TarDataset(path, FIELDS)) == 2


def test_archives_joined_by_cat_are_refused(tmp_path):
    content = write_tar(tmp_path / "a.tar", samples(range(2))).read_bytes()
    (tmp_path / "x.tar").write_bytes(content + content)
    with pytest.raises(DataError, match=rf"data after the end of its archive, at {len(content)}"):
        TarDataset(tmp_path / "x.tar", FIELDS)


def test_an_image_of_another_size_than_its_header_says_is_not_read(tmp_path):
    """A file that was cut after it was opened raises for the rows that are gone, and not for others."""
    path = write_tar(tmp_path / "x.tar", samples())
    source = TarDataset(path, FIELDS)
    source[0]
    os.truncate(path, path.read_bytes().index(IMAGES[8]) + 100)
    assert bytes_of(source[:8]["image"]) == IMAGES[:8]
    with pytest.raises(
        DataError, match=r"x\.tar, key 'n008': the file ends after 100 of these bytes"
    ):
        source[8]
    with pytest.raises(DataError, match=r"x\.tar has changed since it was indexed"):
        TarDataset.__getitem__(copied(source), 0)


def copied(source):
    return pickle.loads(pickle.dumps(source))


def checksummed(block):
    """Return a header with the right checksum."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def mutated(random, content, headers):
    """Return a damaged archive."""
    content = bytearray(content)
    kind = random.randrange(6)
    place = random.choice(headers)
    if kind == 0:
        return bytes(content[: random.randrange(len(content))])
    if kind == 1:
        for _ in range(random.choice([1, 1, 1, 20])):
            content[random.randrange(len(content))] = random.randrange(256)
        return bytes(content)
    if kind == 2:
        start, count = random.randrange(len(content)), random.choice([1, 511, 512, 1024])
        del content[start : start + count]
        return bytes(content)
    fields = [(0, 100), (124, 136), (156, 157), (156, 157), (257, 265), (345, 500)]
    # tarfile reads the prefix of a name also where GNU tar has something else.
    begin, end = random.choice(fields if content[place + 262] == 0 else fields[:-1])
    for _ in range(random.choice([1, 1, 3])):
        value = random.choice(
            [0, 32, 48, 49, 55, 0x80, 0xFF, random.randrange(256), *b"LKxXgSMV0157./"]
        )
        content[place + random.randrange(begin, end)] = value
    if kind == 3:
        # A pax header, a long name, or a file.
        start = place + 512 + random.randrange(64)
        content[start : start + 1] = random.choice([b"9", b"=", b"\n", b" ", b"\0", b"\xff"])
    content[place : place + 512] = checksummed(content[place : place + 512])
    return bytes(content)


def fuzz(tmp_path, count, seed):
    """Read damaged archives: each is refused with its name, or has the rows that tarfile finds."""
    contents = []
    for kind in FORMATS.values():
        names = ["n{:03}", "d/{}", "ü" * 20 + "{}"] + ["x" * 120 + "/{}"] * (
            kind != tarfile.USTAR_FORMAT
        )
        members = [
            one for k, name in enumerate(names) for one in samples(range(2 * k, 2 * k + 2), name)
        ]
        path = write_tar(tmp_path / "whole.tar", members, kind)
        content = path.read_bytes()
        headers = [
            place for place in range(0, len(content), 512)
            if content[place + 257 : place + 262] == b"ustar"
        ]  # fmt: skip
        assert len(headers) >= len(members)
        contents.append((content, headers))
    outcomes = {"refused": 0, "same": 0, "unnamed": 0}
    path = tmp_path / "x.tar"
    for number in range(count):
        random_ = random.Random(f"{seed}/{number}")
        path.write_bytes(mutated(random_, *random_.choice(contents)))
        try:
            source = TarDataset(path, FIELDS, missing=random_.choice(["raise", "drop"]))
            rows = source[:]
        except DataError as error:
            outcomes["refused" if str(path) in str(error) else "unnamed"] += 1
            continue
        expected = read_tar(path)
        for key, image, label in zip(source.keys, rows["image"], rows["label"], strict=True):
            assert (bytes(image), label) == (expected[key]["jpg"], int(expected[key]["cls"])), (
                number
            )
        whole = [key for key, files in expected.items() if files.keys() >= {"jpg", "cls"}]
        assert [key for key in whole if "__MACOSX" not in key] == list(source.keys), number
        outcomes["same"] += 1
    return outcomes


def test_damaged_archives_are_refused_or_read_as_tarfile_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 300, 0)
    assert min(outcomes["refused"], outcomes["same"]) > 30, outcomes
    assert not outcomes["unnamed"]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_damaged_archives_are_refused_or_read_as_tarfile_reads_them(tmp_path):
    outcomes = fuzz(tmp_path, 10_000, 1)
    assert min(outcomes["refused"], outcomes["same"]) > 1000, outcomes
    assert not outcomes["unnamed"]


def test_sizes_of_more_than_33_bits_are_read(tmp_path):
    """A size in base 256, or in a pax header, is of a file that is longer than these tests can write."""
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        # By hand: from Python 3.13 on, `addfile` wants the bytes, too.
        content = header("0.jpg", 1 << 40).tobuf(kind) + bytes(tarfile.RECORDSIZE)
        (tmp_path / "x.tar").write_bytes(content)
        with pytest.raises(DataError, match=r"truncated: '0\.jpg' has 1099511627776 bytes at"):
            TarDataset(tmp_path / "x.tar", {"image": "jpg"})


def test_a_tick_of_the_clock_is_not_a_reason_to_trust_an_index(tmp_path):
    """Two files of one size, written one right after the other, may have one time of modification."""
    path = tmp_path / "x.tar"
    for row in (0, 1):
        write_tar(path, [("0.cls", b"%d" % row)])
        long_ago(path, None)
        assert TarDataset(path, {"label": "cls"})[0]["label"] == row
        assert [file.name for file in tmp_path.iterdir()] == ["x.tar"]
