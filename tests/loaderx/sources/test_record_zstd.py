"""zstd is found in the zstandard package, and everything works if it cannot be called directly."""

import os
import pathlib
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import zstandard

from loaderx import ARDataset, DataError, NPDataset
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.sources.records import worker, zstd
from tests.loaderx.sources.record_files import (
    OPTIONS,
    assert_reads_as,
    damage_record,
    opened,
    write,
)
from tests.loaderx.sources.rows import assert_same, one_pass, values
from tests.waiting import join, started

COMPRESSED = ["zstd", "zstd:19", "small window", "large window", "7", "1000", "padded", "7 padded"]


@pytest.fixture
def hidden(monkeypatch):
    """Hide the functions of the compiled modules of the package."""
    monkeypatch.setattr(zstd, "libraries", list)
    monkeypatch.setattr(worker, "_threads", threading.local())
    zstd.decompressor.cache_clear()
    assert not zstd.decompressor().native
    yield
    zstd.decompressor.cache_clear()


def test_here_the_library_is_called_directly():
    assert zstd.decompressor().native


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("options", COMPRESSED)
def test_files_are_read_where_zstd_is_hidden(tmp_path, options, mmap):
    for shape, dtype in (((700,), "f4"), ((0,), "u1"), ((70000,), "u1")):
        array = values((12, *shape), dtype)
        path = write(tmp_path / "rows.ar", array, OPTIONS[options])
        source = opened(path, array, OPTIONS[options], mmap=mmap)
        assert_reads_as(source, array)
        assert_same(one_pass(source, workers=3), array)


@pytest.mark.usefixtures("hidden")
def test_transforms_padding_and_bytes_work_where_zstd_is_hidden(tmp_path):
    array = values((40, 30), "f4")
    path = write(tmp_path / "rows.ar", array, OPTIONS["zstd"])
    transforms = [T.Normalize(0.5, 0.25)]
    assert_same(
        one_pass(ARDataset(path, "f4", (30,)), transforms=transforms, workers=3),
        one_pass(NPDataset(array), transforms=transforms),
    )
    assert ARDataset(path)[:] == [row.tobytes() for row in array]
    for pad_to in (29, 30, 31):
        found = ARDataset(path, "f4", (None,), pad_to=pad_to)[:]
        assert_same(found["data"][:, :29], array[:, :29])


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("verify", ["first", "never"])
def test_damage_is_noticed_where_zstd_is_hidden(tmp_path, verify):
    # Text: damage within a frame of noise would give other noise.
    array = values((20, 3), "u1").repeat(3000, axis=1)
    path = write(tmp_path / "rows.ar", array, OPTIONS["zstd"])
    damage_record(path, 7)
    source = ARDataset(path, "u1", (9000,), verify=verify)
    good = np.delete(np.arange(20), 7)
    assert_same(source[good], array[good])
    try:
        row = source[7]
    except DataError as error:
        assert "rows.ar, record 7: " in str(error)  # noqa: PT017 - one of two good ends
    else:
        assert verify == "never"
        assert row.shape == (9000,)


@pytest.mark.parametrize("claimed", [None, 8999, 9001, 1 << 44, 1 << 62])
def test_a_frame_is_believed_no_size_where_zstd_is_hidden(claimed):
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(9000))
    if claimed is not None:
        blocks = frame[zstandard.frame_header_size(frame) :]
        frame = zstandard.FRAME_HEADER + b"\xe0" + claimed.to_bytes(8, "little") + blocks
        assert zstandard.frame_content_size(frame) == claimed
    source = np.frombuffer(frame, np.uint8)
    target = np.full(9100, 1, np.uint8)
    size = zstd.decompress_in_python(0, target.ctypes.data, 9000, source.ctypes.data, len(frame))
    assert size == (9000 if claimed is None else -1)
    assert np.all(target[9000:] == 1)


SCRIPT = """
import sys, zstandard
import numpy as np
from loaderx import ARDataset, DataLoader
from loaderx.sources.records import zstd

array = np.load(sys.argv[1])
for path in sys.argv[2:]:
    source = ARDataset(path, array.dtype, array.shape[1:])
    assert np.array_equal(source[:], array)
    loader = DataLoader(source, batch_size=5, shuffle=False, num_epochs=1, output="numpy", workers=3)
    assert np.array_equal(np.concatenate(list(loader)), array)
print(zstandard.backend, zstd.decompressor().native)
"""


def run_with(package, arguments, **environment):
    """Run the script where `package` is found in place of the installed zstandard."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{os.getcwd()}", **environment},  # noqa: PTH109
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_the_module_for_cffi_the_package_decompresses(tmp_path):
    installed = pathlib.Path(zstandard.__file__).parent
    package = tmp_path / "site" / "zstandard"
    package.mkdir(parents=True)
    for file in installed.iterdir():
        if file.suffix in (".py", ".so") and "_cffi" not in file.name:
            (package / file.name).symlink_to(file)
    array = values((12, 700), "f4")
    np.save(tmp_path / "rows.npy", array)
    paths = [
        write(tmp_path / f"{number}.ar", array, OPTIONS[options])
        for number, options in enumerate(("zstd", "7"))
    ]
    found = run_with(package.parent, [tmp_path / "rows.npy", *paths])
    assert found == ["cext", "False"]


def test_contexts_of_zstd_end_with_their_thread(tmp_path):
    array = values((20, 30), "f4")
    source = ARDataset(write(tmp_path / "rows.ar", array, OPTIONS["zstd"]), "f4", (30,))
    owners = []

    def read():
        assert_same(source[:], array)
        owners.append(weakref.ref(worker.worker(0)))

    for _ in range(5):
        join(started(read))
    assert len(owners) == 5
    # A context ends with its worker, see below.
    assert all(owner() is None for owner in owners)


def test_a_context_is_freed_with_its_owner():
    class Library:
        freed = []  # noqa: RUF012

        class ZSTD_createDCtx:  # noqa: N801
            def __new__(cls):
                return 1234

        class ZSTD_freeDCtx:  # noqa: N801
            def __new__(cls, context):
                Library.freed.append(context)

        ZSTD_decompressDCtx = zstd.Callback(zstd.decompress_in_python)

    class Owner:
        pass

    owner = Owner()
    assert zstd.Decompressor(Library).context(owner) == 1234
    assert Library.freed == []
    del owner
    assert Library.freed == [1234]
