"""A file of compiled code is complete, verified and private, or it is ignored."""

import os
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import config, types

from loaderx.kernels.caching import files, packages
from loaderx.kernels.caching.files import read_verified, write_verified
from loaderx.kernels.numba_internals import holds, set_cache

compiled_only = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="numba may not compile")


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "cache" / "code.nbc"
    write_verified(file, b"key", b"some code")
    return file


def test_code_is_read_under_the_key_it_was_written_with_only(written):
    assert read_verified(written, b"key") == b"some code"
    assert read_verified(written, b"ke") is None
    assert read_verified(written, b"keys") is None
    assert read_verified(written.with_name("other"), b"key") is None
    assert written.parent.stat().st_mode & 0o777 == 0o700
    assert written.stat().st_mode & 0o022 == 0
    assert [path.name for path in written.parent.iterdir()] == ["code.nbc"]


def test_no_other_bytes_pass(written):
    whole = written.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            written.write_bytes(content)
            assert read_verified(written, b"key") is None
    for size in range(len(whole)):
        written.write_bytes(whole[:size])
        assert read_verified(written, b"key") is None
    written.write_bytes(whole + b"\0")
    assert read_verified(written, b"key") is None
    written.write_bytes(whole)
    assert read_verified(written, b"key") == b"some code"


def test_a_file_that_others_may_have_written_is_not_read(written, give_away):
    for mode in (0o664, 0o646, 0o666):
        written.chmod(mode)
        assert read_verified(written, b"key") is None
    written.chmod(0o644)
    written.parent.chmod(0o770)
    assert read_verified(written, b"key") is None
    with pytest.raises(PermissionError):
        write_verified(written, b"key", b"other code")
    written.parent.chmod(0o700)
    assert read_verified(written, b"key") == b"some code"
    give_away(written)
    assert read_verified(written, b"key") is None


def test_a_pipe_is_not_waited_for_and_a_folder_is_not_read(written):
    written.unlink()
    os.mkfifo(written)
    assert read_verified(written, b"key") is None
    written.unlink()
    written.mkdir()
    assert read_verified(written, b"key") is None


def test_a_file_that_cannot_be_written_leaves_nothing(written):
    written.unlink()
    written.mkdir()
    with pytest.raises(OSError, match=r"code\.nbc"):
        write_verified(written, b"key", b"some code")
    assert [path.name for path in written.parent.iterdir()] == ["code.nbc"]


# --- of functions -----------------------------------------------------------------------------


def twice(value):
    return 2 * value


def loaded(folder, stamp="stamp", name="twice", value=21):
    """Call a function, and tell whether its code came from the folder."""
    function = numba.njit(twice)
    set_cache(function, files.CodeCache(lambda: [folder], name, stamp))
    assert function(value) == 2 * value
    return sum(function.stats.cache_hits.values()) == 1


@compiled_only
def test_code_is_loaded_only_if_all_that_it_depends_on_is_equal(tmp_path, monkeypatch):
    assert not loaded(tmp_path)
    assert loaded(tmp_path)
    assert not loaded(tmp_path, stamp="another")
    assert not loaded(tmp_path, name="another")
    assert not loaded(tmp_path, value=1.5)
    for part in range(len(packages.versions())):
        with monkeypatch.context() as patch:
            versions = list(packages.versions())
            versions[part] += "1"
            patch.setattr(files, "versions", lambda versions=tuple(versions): versions)
            assert not loaded(tmp_path)
            assert loaded(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "processor_of", lambda codegen: "another")
        assert not loaded(tmp_path)
    assert loaded(tmp_path)


@compiled_only
def test_the_first_folder_that_has_it_or_can_be_written_is_used(tmp_path, nowhere):
    function = numba.njit(twice)
    cache = files.CodeCache(lambda: [Path(nowhere), tmp_path / "second"], "twice", "stamp")
    set_cache(function, cache)
    assert function(21) == 42
    assert len(list((tmp_path / "second").iterdir())) == 1
    assert loaded(tmp_path / "second")
    cache.flush()
    assert list((tmp_path / "second").iterdir()) == []


@compiled_only
def test_code_with_addresses_of_this_process_is_not_stored(tmp_path):
    large = np.arange(10**6, dtype=np.float64)
    function = numba.njit(lambda place: large[place])
    set_cache(function, files.CodeCache(lambda: [tmp_path], "large", "stamp"))
    assert function(7) == 7.0
    assert list(tmp_path.iterdir()) == []


@compiled_only
def test_a_cache_holds_what_is_whole(tmp_path):
    cache = files.CodeCache(lambda: [tmp_path], "twice", "stamp")
    assert not holds(cache, (types.int64,))
    assert not loaded(tmp_path)
    assert holds(cache, (types.int64,))
    assert not holds(cache, (types.float64,))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert not holds(cache, (types.int64,))


def test_unfinished_files_of_a_dead_process_are_removed_and_no_others(written):
    folder = written.parent
    names = ["a.1.nbc.12-ab.tmp", "b.2.nbc.12-cd.tmp", "a.1.nbc.123-ab.tmp", "a.1.nbc.tmp"]
    for name in names:
        (folder / name).touch()
    files.remove_unfinished(folder, 12)
    assert {path.name for path in folder.iterdir()} == {written.name, *names[2:]}
    files.remove_unfinished(folder / "missing", 12)
