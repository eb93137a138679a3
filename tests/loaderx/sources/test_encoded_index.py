"""Indexes of shards are kept, are used while the shard is the same, and are made anew if they are damaged."""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from loaderx import DataError, Encoded, TarDataset
from loaderx.sources.encoded import index
from tests.loaderx.sources.encoded_images import assert_same_rows, pictures
from tests.loaderx.sources.tar_files import LONG_AGO, long_ago, write_tar
from tests.waiting import PATIENCE

COUNT = 5
IMAGES = pictures(COUNT)
FIELDS = {"image": "jpg", "label": "cls"}


def samples(first=0):
    for row in range(COUNT):
        yield f"{row}.jpg", IMAGES[row]
        yield f"{row}.cls", b"%02d" % (first + row)


def rows(first=0):
    return {"image": IMAGES, "label": np.arange(first, first + COUNT)}


@pytest.fixture
def shard(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return write_tar(tmp_path / "data" / "x.tar", samples())


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def indexes(folder):
    return sorted(folder.rglob(f"*{index.SUFFIX}"))


def opened(shard, first=0):
    """Open the shard, and assert that it has the rows that are numbered from here on."""
    source = TarDataset(shard, FIELDS)
    assert_same_rows(source[:], rows(first))
    return source


def test_a_shard_is_scanned_once(shard):
    opened(shard)
    (found,) = indexes(shard.parent)
    assert found.name.startswith(".x.tar.")
    assert names_in(shard.parent) == [found.name, "x.tar"]
    # Other labels in a file that looks the same from outside.
    write_tar(shard, samples(50))
    opened(shard)
    long_ago(shard, LONG_AGO + 1)
    opened(shard, 50)
    assert indexes(shard.parent) == [found]


def test_other_fields_are_another_index(shard):
    opened(shard)
    assert TarDataset(shard, {"label": ("int8", "cls")})[2]["label"].dtype == np.int8
    assert TarDataset(shard, {"label": ("int8", "cls")}, missing="drop")[2]["label"] == 2
    assert len(indexes(shard.parent)) == 3
    # How images are decoded is not in an index.
    assert (
        TarDataset(shard, {**FIELDS, "image": Encoded("jpg", mode="L")})[2]["image"].encoded.mode
        == "L"
    )
    assert len(indexes(shard.parent)) == 3


def test_a_shard_that_changed_is_refused_by_those_who_have_it_open(shard):
    source = opened(shard)
    again = TarDataset(shard, FIELDS)
    write_tar(shard.with_name("y.tar"), samples(50)).rename(shard)
    long_ago(shard, LONG_AGO + 1)
    # The old file is open still.
    assert_same_rows(source[:], rows())
    with pytest.raises(DataError, match=r"x\.tar has changed since it was indexed"):
        again[0]
    opened(shard, 50)


def test_a_failed_scan_leaves_nothing(shard):
    shard.write_bytes(shard.read_bytes()[:2000])
    long_ago(shard)
    with pytest.raises(DataError, match="truncated"):
        TarDataset(shard, FIELDS)
    assert names_in(shard.parent) == ["x.tar"]


def damaged(content):
    """Yield damaged indexes."""
    random_ = random.Random(0)
    yield from (
        b"",
        b"x",
        content[:-1],
        content[: len(content) // 2],
        content + b"x",
        bytes(len(content)),
    )
    for _ in range(100):
        place = random_.randrange(len(content))
        yield (
            content[:place]
            + bytes([content[place] ^ 1 << random_.randrange(8)])
            + content[place + 1 :]
        )


def test_a_damaged_index_is_made_anew(shard):
    opened(shard)
    (found,) = indexes(shard.parent)
    content = found.read_bytes()
    write_tar(shard, samples(50))
    for wrong in damaged(content):
        found.write_bytes(wrong)
        opened(shard, 50)
        fresh = found.read_bytes()
        assert fresh not in (wrong, content)
        opened(shard, 50)
        assert found.read_bytes() == fresh
    found.write_bytes(content)
    opened(shard)


def forged(content, change):
    """Return an index with other content and the right digest."""
    begin = len(index.MAGIC) + index.DIGEST_BYTES
    length = int.from_bytes(content[begin : begin + 8], "little")
    header = json.loads(content[begin + 8 : begin + 8 + length])
    header, data = change(header, bytearray(content[begin + 8 + length :]))
    text = json.dumps(header).encode()
    inside = len(text).to_bytes(8, "little") + text + bytes(data)
    return index.MAGIC + index._digest(inside) + inside


def test_an_index_of_somebody_else_cannot_do_harm(shard):
    opened(shard)
    (found,) = indexes(shard.parent)
    content = found.read_bytes()
    write_tar(shard, samples(50))

    def columns(*values):
        return lambda header, data: ({**header, "columns": list(values)}, data)

    def with_number(byte, value):
        def change(header, data):
            data[byte : byte + 8] = value.to_bytes(8, "little", signed=True)
            return header, data

        return change

    whole = json.loads(content[content.index(b"{") : content.index(b"}") + 1])["columns"]
    image, label, keys, ends = whole
    assert [image[2], label[2], keys[2], ends[2]] == [[COUNT, 2], [COUNT], [5], [COUNT]]
    assert forged(content, columns(*whole)) == content
    places = [*range(0, 80, 8), *range(125, 165, 8)]
    changes = [
        *(with_number(place, value) for place in places for value in (-1, 1 << 40, 2**63 - 1, -(2**63))),
        lambda header, data: ({**header, "stamp": [0, 0]}, data),
        lambda header, data: ({**header, "key": "x"}, data),
        lambda header, data: ([], data),
        lambda header, data: ({}, data),
        lambda header, data: ({**header, "columns": 5}, data),
        lambda header, data: (header, data[:-1]),
        columns(), columns(image), columns(label, keys, ends), columns(image, label, keys), columns(image, keys, ends),
        *(
            columns(["image", *kind], label, keys, ends)
            for kind in [
                ("<i8", [COUNT, 3]), ("O", [COUNT, 2]), ("<i8", [-1, 2]), ("<i8", [2**62, 2]), ("<u8", [COUNT, 2]),
                ("<i8", [2 * COUNT]), ("<i8,<i8", [COUNT]), ("<i8", [1, 2]), ("<i8", []), ("x", [COUNT, 2]),
            ]
        ),
        columns(image, ["label", "<u8", [COUNT]], keys, ends), columns(image, ["label", "<i8", [COUNT, 1]], keys, ends),
        columns(image, label, ["keys", "<i8", [1]], ends), columns(image, label, keys, ["ends", "<i8", [1]]),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        found.write_bytes(forged(content, change))
        assert TarDataset(shard, FIELDS)[0]["label"] == 50, number
    # As the data is unprotected, so are the numbers: this is what the checks above do not refuse.
    found.write_bytes(forged(content, with_number(80, 77)))
    assert TarDataset(shard, FIELDS)[0]["label"] == 77


def test_where_nothing_can_be_written_the_cache_folder_has_the_index(shard, tmp_path, caplog):
    opened(shard)
    (found,) = indexes(shard.parent)
    found.unlink()
    # A folder in its place: this stops root as well.
    (found / "x").mkdir(parents=True)
    opened(shard)
    (other,) = indexes(tmp_path / "cache")
    write_tar(shard, samples(50))
    opened(shard)
    assert not caplog.records
    # Neither there.
    other.unlink()
    (other / "x").mkdir(parents=True)
    opened(shard, 50)
    (record,) = caplog.records
    assert "x.tar cannot be kept, so the file is scanned again next time" in record.getMessage()
    assert "LOADERX_CACHE_DIR" in record.getMessage()
    assert names_in(tmp_path / "cache" / "indexes") == [other.name]


def test_a_user_who_may_not_write_gets_the_rows(shard):
    """As nobody, for whom both folders are read-only."""
    program = (
        "import os, sys\n"
        "from loaderx import TarDataset\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "os.environ['LOADERX_CACHE_DIR'] = '/proc/loaderx'\n"
        "source = TarDataset(sys.argv[1], {'label': 'cls'})\n"
        "print(source[:]['label'].tolist())\n"
    )
    # pytest keeps its folders to itself.
    for folder in shard.parents:
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
    shard.parent.chmod(0o555)
    finished = subprocess.run(
        [sys.executable, "-c", program, shard], capture_output=True, text=True, check=False
    )
    assert finished.stdout == "[0, 1, 2, 3, 4]\n", finished.stderr
    assert "cannot be kept" in finished.stderr
    assert names_in(shard.parent) == ["x.tar"]


def test_two_processes_may_index_at_once(tmp_path):
    for number in range(12):
        write_tar(tmp_path / f"{number:02}.tar", samples(10 * number % 90))
    program = (
        "import sys\n"
        "from loaderx import TarDataset\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read(1)\n"
        "for _ in range(3):\n"
        "    source = TarDataset(sys.argv[1], {'image': 'jpg', 'label': 'cls'})\n"
        "print(source[:]['label'].sum(), sum(map(len, source[:]['image'])))\n"
    )
    pattern = str(tmp_path / "*.tar")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, pattern],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("x")
        process.stdin.flush()
    source = TarDataset(pattern, FIELDS)
    expected = f"{source[:]['label'].sum()} {sum(map(len, source[:]['image']))}\n"
    for process in processes:
        answer, _ = process.communicate(timeout=PATIENCE)
        assert answer == expected
    names = [name for name in names_in(tmp_path) if not name.endswith(".tar")]
    assert len(names) == 12
    assert all(name.endswith(index.SUFFIX) for name in names)


def test_a_name_of_any_length_gets_an_index(tmp_path):
    for name in ("ü" * 125 + ".tar", "x" * 251 + ".tar"):
        path = write_tar(tmp_path / name, samples())
        opened(path)
        (found,) = indexes(tmp_path)
        write_tar(path, samples(50))
        opened(path)
        found.unlink()


def test_an_error_in_one_shard_ends_the_scans_of_the_others(tmp_path):
    for number in range(40):
        write_tar(tmp_path / f"{number:02}.tar", samples())
    (tmp_path / "05.tar").write_bytes(b"x" * 5000)
    with pytest.raises(DataError, match=r"05\.tar is not a tar file"):
        TarDataset(str(tmp_path / "*.tar"), FIELDS)
