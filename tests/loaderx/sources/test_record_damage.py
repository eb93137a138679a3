"""Damaged, truncated and foreign files give an error that names file and record; never a crash, never wrong bytes."""

import dataclasses
import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from loaderx import ARDataset, DataError, DataLoader
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.sources.records.file import RecordFile
from tests.loaderx.sources.record_files import (
    DIRECT,
    GROUPS,
    KINDS,
    SLOW,
    damage_record,
    flip,
    opened,
    write,
)
from tests.loaderx.sources.rows import assert_same, values

ARRAY = values((30, 700), "f4")
HASHED = r"rows\.ar, record 7: the hash of its chunk's data is wrong"
PIPELINES = {"nothing": None, "compiled": [T.Normalize(0.5, 0.25)], "mixed": [T.MixUp(0.4)]}


def rows_of(path, **options):
    return ARDataset(path, "f4", (700,), **options)


@pytest.fixture(params=["uncompressed", "zstd"])
def damaged(request, tmp_path):
    path = write(tmp_path / "rows.ar", ARRAY, DIRECT[request.param])
    damage_record(path, 7)
    return path


def steps_of(source, transforms=None, **options):
    """Return the result of each of the first steps: an array, or the error."""
    loader = DataLoader(
        source,
        batch_size=5,
        shuffle=False,
        num_epochs=1,
        output="numpy",
        transforms=transforms,
        **options,
    )
    found = []
    for step in range(6):
        iterator = iter(loader)
        iterator.set_state({**iterator.get_state(), "position": 5 * step, "step": step})
        with iterator:
            try:
                found.append(next(iterator))
            except DataError as error:
                found.append(error)
    return found


@pytest.mark.parametrize("verify", ["first", "always"])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_damaged_record_is_named_and_the_others_are_read(damaged, verify, mmap):
    source = rows_of(damaged, verify=verify, mmap=mmap)
    good = np.delete(np.arange(30), 7)
    for _ in range(2):
        for key in (7, -23, [3, 7], slice(5, 9)):
            with pytest.raises(DataError, match=HASHED):
                source[key]
        assert_same(source[good], ARRAY[good])


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("transforms", PIPELINES)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_loader_raises_at_the_step_of_the_damaged_record(damaged, mmap, transforms, workers):
    source = rows_of(damaged, mmap=mmap)
    ops = PIPELINES[transforms]
    found = steps_of(source, ops, workers=workers)
    for step, batch in enumerate(found):
        if step == 1:
            assert isinstance(batch, DataError)
            assert re.search(HASHED, str(batch))
            assert any("step 1" in note for note in batch.__notes__)
        else:
            assert_same(batch, steps_of(ARRAY, ops)[step])


@pytest.mark.parametrize("transforms", PIPELINES)
def test_iteration_delivers_all_rows_before_the_damage(damaged, transforms):
    loader = DataLoader(
        rows_of(damaged),
        batch_size=2,
        shuffle=False,
        output="numpy",
        transforms=PIPELINES[transforms],
        num_epochs=1,
    )
    with iter(loader) as iterator:
        for _ in range(3):
            next(iterator)
        with pytest.raises(DataError, match=HASHED):
            next(iterator)


def test_in_several_files_the_number_is_that_within_its_file(damaged, tmp_path):
    before = write(tmp_path / "before.ar", ARRAY)
    source = rows_of([before, damaged, before])
    for key in (37, [0, 37, 70], slice(None)):
        with pytest.raises(DataError, match=HASHED):
            source[key]
    with pytest.raises(DataError, match=HASHED):
        source.select(range(30, 60))[7]
    with pytest.raises(DataError, match=HASHED):
        (rows_of(before) + rows_of(damaged))[37]
    with pytest.raises(DataError, match=HASHED):
        DataLoader(source, batch_size=90, output="numpy", transforms=PIPELINES["compiled"]).batch(0)
    assert_same(source[[36, 38, 67]], ARRAY[[6, 8, 7]])


@pytest.mark.parametrize("options", ["7", "7 uncompressed"])
@pytest.mark.parametrize("mmap", [True, False])
def test_of_a_damaged_group_all_records_are_lost_and_no_others(tmp_path, options, mmap):
    path = write(tmp_path / "rows.ar", ARRAY, GROUPS[options])
    damage_record(path, 1)  # The second group: records 7 to 13.
    source = rows_of(path, mmap=mmap)
    for number in (7, 10, 13):
        with pytest.raises(DataError, match=r"rows\.ar, record 7: the hash"):
            source[number]
    good = [*range(7), *range(14, 30)]
    assert_same(source[good], ARRAY[good])


def test_a_file_for_the_package_is_checked_by_the_package(tmp_path):
    path = write(tmp_path / "rows.ar", ARRAY, SLOW["brotli"])
    flip(path, path.stat().st_size // 3)
    source = opened(path, ARRAY, SLOW["brotli"])
    with pytest.raises(DataError, match=r"rows\.ar, one of the records .*hash mismatch"):
        source[:]


def test_a_damaged_first_record_is_named_at_the_latest_when_it_is_read(tmp_path):
    path = write(tmp_path / "rows.ar", ARRAY)
    damage_record(path, 0)
    with pytest.raises(DataError, match=r"rows\.ar, record 0: the hash"):
        rows_of(path)[0]


def test_without_verification_damage_gives_bytes_or_an_error(damaged):
    for mmap in (True, False):
        source = rows_of(damaged, verify="never", mmap=mmap)
        good = np.delete(np.arange(30), 7)
        assert_same(source[good], ARRAY[good])
        try:
            row = source[7]
        except DataError as error:
            assert "rows.ar, record 7: " in str(error)  # noqa: PT017 - one of two good ends
        else:
            assert (row != ARRAY[7]).sum() == 1


@pytest.mark.parametrize(("verify", "notices"), [("first", False), ("always", True)])
@pytest.mark.parametrize("kind", ["uncompressed", "7 uncompressed"])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_record_is_verified_once_or_always(tmp_path, verify, notices, kind, mmap, monkeypatch):
    # Otherwise the group would be cached, and not read again.
    monkeypatch.setattr("loaderx.sources.records.reader.CACHE_BYTES", 0)
    path = write(tmp_path / "rows.ar", ARRAY, KINDS[kind])
    source = rows_of(path, verify=verify, mmap=mmap)
    never = rows_of(path, verify="never", mmap=mmap)
    assert_same(source[10], ARRAY[10])
    place = path.read_bytes().index(ARRAY[10].tobytes()[:64])
    flip(path, place + 2)
    assert (never[10] != ARRAY[10]).sum() == 1
    if notices:
        with pytest.raises(DataError, match="the hash of its chunk's data is wrong"):
            source[10]
    else:
        assert (source[10] != ARRAY[10]).sum() == 1
    # A part that was not read before is always verified.
    with pytest.raises(DataError, match="the hash of its chunk's data is wrong"):
        rows_of(path, verify=verify, mmap=mmap)[10]


def test_a_damaged_record_is_verified_again_each_time(damaged):
    source = rows_of(damaged, verify="first")
    for _ in range(3):
        with pytest.raises(DataError, match=HASHED):
            source[7]


def test_a_damaged_header_is_named(tmp_path):
    path = write(tmp_path / "rows.ar", ARRAY)
    flip(path, int(RecordFile(path, 0, False).offsets[7]) + 9)
    with pytest.raises(DataError, match=r"record 7: the hash of its chunk's header is wrong"):
        rows_of(path)[7]


@pytest.mark.parametrize("forged", ["options", "size"])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_footer_is_not_trusted_about_the_chunks(tmp_path, monkeypatch, forged, mmap):
    """Hashes do not protect against someone who can compute them."""
    array = np.tile(values((30, 1), "u1"), (1, 3000))
    path = write(
        tmp_path / "rows.ar", array, DIRECT["zstd" if forged == "options" else "uncompressed"]
    )
    read_metadata, read_index = RecordFile._read_metadata, RecordFile._read_index

    def forged_metadata(*arguments):
        return dataclasses.replace(read_metadata(*arguments), options="group_size:1,uncompressed")

    def forged_index(self, *arguments):
        read_index(self, *arguments)
        self.sizes = self.sizes + 1

    if forged == "options":
        monkeypatch.setattr(RecordFile, "_read_metadata", forged_metadata)
        source = ARDataset(path, "u1", (3000,), mmap=mmap)
        for _ in range(3):
            assert_same(source[:], array)
    else:
        monkeypatch.setattr(RecordFile, "_read_index", forged_index)
        source = ARDataset(path, "u1", (3001,), mmap=mmap)
        for number in (0, 1, 29, 0):
            with pytest.raises(DataError, match=f"record {number}: "):
                source[number]


# Files that shrink.

SHRINK = """
import os, shutil, sys, threading, time
from pathlib import Path
from loaderx import ARDataset, DataError, DataLoader, transforms

whole, path, mmap = sys.argv[1], sys.argv[2], sys.argv[3] == "True"

def wait_until_idle():
    # The batches ahead are ready once no other thread runs or waits for the disk, for a quarter of a second.
    tasks, idle = Path("/proc/self/task"), 0
    while idle < 5:
        time.sleep(0.05)
        others = [task for task in tasks.iterdir() if int(task.name) != threading.get_native_id()]
        states = {task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in others}
        idle = idle + 1 if states <= {"S"} else 0

for ops in ("brackets", None, [transforms.Normalize(0.5, 0.25)]):
    shutil.copy(whole, path)
    source = ARDataset(path, "f4", (700,), mmap=mmap)
    steps = 0
    try:
        if ops == "brackets":
            os.truncate(path, 65536)
            source[250]
        loader = DataLoader(
            source,
            batch_size=50,
            shuffle=False,
            num_epochs=1,
            output="numpy",
            prefetch=1,
            workers=1,
            transforms=ops,
        )
        with iter(loader) as iterator:
            next(iterator)
            # A thread that reads now would fault.
            wait_until_idle() if sys.platform == "linux" else time.sleep(0.5)
            os.truncate(path, 65536)
            steps = 1
            for _ in iterator:
                steps += 1
    except DataError as error:
        print(steps, error)
"""


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_shrinks_while_it_is_open_raises_and_does_not_end_the_process(
    forking, tmp_path, mmap
):
    whole = write(tmp_path / "whole.ar", np.tile(ARRAY, (10, 1)))
    path = tmp_path / "rows.ar"
    done = forking.run(SHRINK, whole, path, mmap, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    found = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert len(found) == 3
    for _, message in found:
        assert message.startswith(f"{path} shrank from {whole.stat().st_size} to ")
        assert ("open it with mmap=False" in message) == mmap
    # Batches that were ready before are delivered: one for `prefetch`, one for the worker.
    assert [int(steps) in (2, 3) for steps, _ in found] == [False, True, True]


def test_a_group_file_that_shrinks_raises(tmp_path):
    array = np.tile(ARRAY, (10, 1))
    for mmap in (True, False):
        path = write(tmp_path / "rows.ar", array, GROUPS["7 uncompressed"])
        source = rows_of(path, mmap=mmap)
        os.truncate(path, 65536)
        with pytest.raises(DataError, match=r"rows\.ar shrank"):
            source[250]


# Files of other formats.


def npy():
    file = io.BytesIO()
    np.save(file, np.zeros(40000))
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", bytes(200000))
    return file.getvalue()


RANDOM = np.random.default_rng(0).bytes(4 * 65536)
FOREIGN = {
    "empty": b"",
    "a byte": b"x",
    "one block of zeros": bytes(65536),
    "two blocks of zeros": bytes(2 * 65536),
    "ones": b"\xff" * (3 * 65536),
    "random": RANDOM,
    "random of an odd length": RANDOM[:-1000],
    "npy": npy(),
    "npy of whole blocks": npy().ljust(5 * 65536, b"\0"),
    "zip": zipped(),
    "zip of whole blocks": zipped().ljust(4 * 65536, b"\0"),
    "text": b"hello world\n" * 20000,
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("what", FOREIGN)
def test_a_file_of_another_kind_is_named(tmp_path, what, mmap):
    path = tmp_path / "foreign.ar"
    path.write_bytes(FOREIGN[what])
    for arguments in ((), ("f4", (700,))):
        with pytest.raises(DataError, match=rf"{path} is .*not an ArrayRecord file"):
            ARDataset(path, *arguments, mmap=mmap)


@pytest.mark.parametrize("options", [*KINDS])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_cut_anywhere_is_named(tmp_path, options, mmap):
    whole = write(tmp_path / "whole.ar", values((40, 8000), "u1"), KINDS[options]).read_bytes()
    path = tmp_path / "cut.ar"
    for size in {*range(0, len(whole), 4096), 64, len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=rf"{path} is "):
            ARDataset(path, "u1", (8000,), mmap=mmap)


@pytest.mark.parametrize("options", ["uncompressed", "zstd", "7"])
def test_a_file_with_blocks_before_after_or_inside_it_is_named_or_read(tmp_path, options):
    array = values((40, 8000), "u1")
    whole = write(tmp_path / "whole.ar", array, KINDS[options]).read_bytes()
    path = tmp_path / "other.ar"
    errors = 0
    for place in range(0, len(whole) + 1, 65536):
        for inserted in (bytes(65536), whole[:65536]):
            path.write_bytes(whole[:place] + inserted + whole[place:])
            try:
                assert_same(ARDataset(path, "u1", (8000,))[:], array)
            except DataError as error:
                assert str(path) in str(error)  # noqa: PT017 - one of two good ends
                errors += 1
    assert errors > 10


@pytest.mark.parametrize("options", ["uncompressed", "zstd", "7", "7 uncompressed"])
def test_every_flipped_byte_gives_the_right_rows_or_names_the_file(tmp_path, options):
    array = values((12, 300), "u1")
    path = write(tmp_path / "rows.ar", array, KINDS[options])
    whole = path.read_bytes()
    places = np.random.default_rng(1).permutation(6000)[:120].tolist()
    # The footer is after the first block or after the records, the postscript in the last block.
    places += np.random.default_rng(2).integers(len(whole) - 65536, len(whole) - 65000, 30).tolist()
    errors = 0
    for place in places:
        path.write_bytes(whole)
        flip(path, place)
        try:
            assert_same(ARDataset(path, "u1", (300,))[:], array)
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017 - one of two good ends
            errors += 1
    assert errors > 20
