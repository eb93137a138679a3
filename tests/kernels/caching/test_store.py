"""Folders of compiled code have one process at a time that compiles, and a bound on their size."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from numba.core import config

from loaderx.kernels.caching import store
from tests.kernels.caching.lock_holder import holder
from tests.waiting import join


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_passes_lie_where_the_user_says_or_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path / "own"))
    assert store.folder() == tmp_path / "own"
    monkeypatch.delenv("LOADERX_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "darwin":
        assert store.folder() == tmp_path / "Library" / "Caches" / "loaderx"
        return
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert store.folder() == tmp_path / ".cache" / "loaderx"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.folder() == tmp_path / "xdg" / "loaderx"


def test_where_nothing_can_be_written_there_is_no_folder_and_nothing_to_lock_or_clean(
    nowhere, monkeypatch
):
    monkeypatch.setenv("LOADERX_CACHE_DIR", nowhere)
    assert store.folder() is None
    with store.locked(Path(nowhere) / "pass_1.lock"):
        pass
    store.clean(Path(nowhere), most_bytes=0)


def test_one_at_a_time_holds_the_lock_of_a_pass(tmp_path):
    entered = threading.Event()

    def enter():
        with store.locked(tmp_path / "pass_1.lock"):
            entered.set()

    waiting = threading.Thread(target=enter)
    with store.locked(tmp_path / "pass_1.lock"):
        waiting.start()
        with store.locked(tmp_path / "pass_2.lock"):
            assert not entered.wait(0.2)
    join(waiting)
    assert entered.is_set()


def test_the_lock_is_given_back_after_an_error(tmp_path):
    file = tmp_path / "pass_1.lock"
    with pytest.raises(KeyError), store.locked(file):
        raise KeyError
    with store.locked(file):
        pass


def test_a_stopped_process_is_waited_for_only_so_long(forking, tmp_path, monkeypatch, caplog):
    file = tmp_path / "pass_1.lock"
    monkeypatch.setattr(store, "WAIT_SECONDS", 1.5)
    caplog.set_level(logging.INFO, "loaderx")
    with holder(forking, file, "print('ready', flush=True); time.sleep(100)") as process:
        process.send_signal(signal.SIGSTOP)
        with store.locked(file):
            process.send_signal(signal.SIGCONT)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    waiting, leaving = caplog.records
    assert f"waiting for process {process.pid}, which compiles the same" in waiting.message
    assert f"Process {process.pid} holds the lock {file} for more than 1.5 s" in leaving.message


# A child that was forked meanwhile outlives the lock.
FORK = """child = os.fork()
    if child == 0:
        time.sleep(100)
    Path(sys.argv[1] + ".child").write_text(str(child))
print('ready', flush=True)
time.sleep(100)"""


@pytest.mark.parametrize(
    "end", ["print('ready', flush=True); os.kill(os.getpid(), 9)", FORK], ids=["killed", "forked"]
)
def test_a_process_that_is_done_blocks_nobody(forking, tmp_path, caplog, end):
    file = tmp_path / "pass_1.lock"
    with holder(forking, file, end):
        with store.locked(file):
            pass
        for child in tmp_path.glob("*.child"):
            os.kill(int(child.read_text()), signal.SIGKILL)
    assert caplog.records == []


def filled(cache, names):
    """Write passes of 1000 bytes with their other files, the first of which was not used for longest."""
    cache.mkdir(exist_ok=True)
    for age, name in enumerate(names):
        for file, size in ((f"{name}.lock", 0), (f"{name}.1.nbc", 400), (f"{name}.2.nbc", 600)):
            (cache / file).write_bytes(bytes(size))
            os.utime(cache / file, (1000 + age, 1000 + age))


def files_of(cache, name):
    return sorted(path.name for path in cache.rglob(f"{name}.*"))


def test_cleaning_removes_what_was_not_used_for_longest_with_all_that_belongs_to_it(cache):
    filled(cache, ["pass_c", "pass_a", "pass_b"])
    assert len(files_of(cache, "pass_c")) == 3
    store.clean(cache, most_bytes=2500)
    assert files_of(cache, "pass_c") == []
    assert len(files_of(cache, "pass_a")) == len(files_of(cache, "pass_b")) == 3
    store.mark_used(cache / "pass_a.lock")
    store.clean(cache, most_bytes=1100)
    assert files_of(cache, "pass_b") == []
    assert len(files_of(cache, "pass_a")) == 3


def test_cleaning_leaves_alone_small_caches_and_files_that_are_not_ours(cache):
    filled(cache, ["pass_a", "pass_b"])
    (cache / "notes.py").write_text("mine")
    (cache / "pass_folder").mkdir()
    store.clean(cache, most_bytes=2000)
    assert len(files_of(cache, "pass_*")) == 6
    store.clean(cache, most_bytes=0)
    assert files_of(cache, "pass_*") == []
    assert (cache / "notes.py").exists()
    assert (cache / "pass_folder").exists()


def test_kernels_lie_next_to_their_sources_or_in_the_folder_named_for_numba(
    tmp_path, monkeypatch, cache
):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    sources = tmp_path / "sources"
    sources.mkdir()
    assert store.kernel_folders(sources) == [sources / "__pycache__"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    pycache, own = store.kernel_folders(sources)
    assert pycache == sources / "__pycache__"
    assert own.parent == cache
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "named"))
    assert [folder.parent for folder in store.kernel_folders(sources)] == [tmp_path / "named"]


def test_without_a_home_nothing_is_stored_there(tmp_path, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(store, "cache_folder", no_home)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert store.folder() is None
    assert store.kernel_folders(tmp_path) == [tmp_path / "__pycache__"]


def test_a_lock_is_seen_without_being_waited_for(tmp_path):
    file = tmp_path / "pass_1.lock"
    assert not store.is_locked(file)
    assert not file.exists()
    with store.locked(file):
        assert store.is_locked(file)
    assert not store.is_locked(file)
