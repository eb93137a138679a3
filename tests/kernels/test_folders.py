"""Code is loaded only from folders and files that nobody but this user and root can write."""

import os
import warnings

import pytest

from loaderx.kernels import code_cache, folders

STRANGER = 12345


@pytest.fixture(autouse=True)
def warn_again():
    """Each test hears what is said once per process."""
    folders._warn.cache_clear()
    yield
    folders._warn.cache_clear()


@pytest.fixture
def give_away(monkeypatch):
    """Make a path belong to somebody else, as far as this process can see."""

    def give(path):
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


def test_a_folder_that_is_made_is_for_this_user_only(tmp_path):
    before = os.umask(0)
    try:
        folder = folders.private_folder(tmp_path / "new" / "cache")
    finally:
        os.umask(before)
    assert folder == tmp_path / "new" / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500, 0o711])
def test_a_folder_that_others_cannot_write_is_used(tmp_path, mode):
    tmp_path.chmod(mode)
    assert folders.private_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777, 0o720])
def test_in_a_folder_that_others_may_write_a_private_one_is_used(tmp_path, mode):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(UserWarning, match=r"must not be able to write to it") as caught:
        inner = folders.private_folder(folder)
    assert inner == folder / f"loaderx-{os.geteuid()}"
    assert inner.stat().st_mode & 0o777 == 0o700
    message = str(caught[0].message)
    for word in (str(folder), f"mode {mode:o}", f"{inner} is used instead", f"chmod go-w {folder}"):
        assert word in message
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        assert folders.private_folder(folder) == inner


def test_a_private_folder_that_others_may_write_is_not_used_either(tmp_path):
    tmp_path.chmod(0o777)
    inner = tmp_path / f"loaderx-{os.geteuid()}"
    inner.mkdir()
    inner.chmod(0o777)
    with pytest.warns(UserWarning, match="For now nothing is cached"):
        assert folders.private_folder(tmp_path) is None


def test_the_folder_of_somebody_else_is_not_used(tmp_path, give_away):
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    give_away(folder)
    assert not folders.is_private(folder)
    with pytest.warns(UserWarning, match=f"must belong to this user \\({os.geteuid()}\\)"):
        assert folders.private_folder(folder) != folder


def test_a_link_leads_where_its_owner_wants(tmp_path, give_away):
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir(mode=0o700)
    link.symlink_to(target)
    assert folders.is_private(link)
    target.chmod(0o770)
    assert not folders.is_private(link)
    target.chmod(0o700)
    give_away(link)
    assert not folders.is_private(link)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert not folders.is_private(tmp_path / "file")
    assert not folders.is_private(tmp_path / "nothing")
    assert folders.private_folder(tmp_path / "file") is None
    assert folders.private_folder(tmp_path / "file" / "below") is None


# --- files ------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "cache" / "code.nbc"
    code_cache.write_verified(file, b"key", b"some code")
    return file


def test_what_is_written_is_read_under_the_same_key_only(written):
    assert code_cache.read_verified(written, b"key") == b"some code"
    assert code_cache.read_verified(written, b"ke") is None
    assert code_cache.read_verified(written, b"keys") is None
    assert code_cache.read_verified(written.with_name("other"), b"key") is None
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
            assert code_cache.read_verified(written, b"key") is None
    for size in range(len(whole)):
        written.write_bytes(whole[:size])
        assert code_cache.read_verified(written, b"key") is None
    written.write_bytes(whole + b"\0")
    assert code_cache.read_verified(written, b"key") is None
    written.write_bytes(whole)
    assert code_cache.read_verified(written, b"key") == b"some code"


def test_a_file_that_others_may_have_written_is_not_read(written, give_away):
    for mode in (0o664, 0o646, 0o666):
        written.chmod(mode)
        assert code_cache.read_verified(written, b"key") is None
    written.chmod(0o644)
    written.parent.chmod(0o770)
    assert code_cache.read_verified(written, b"key") is None
    with pytest.raises(PermissionError):
        code_cache.write_verified(written, b"key", b"other code")
    written.parent.chmod(0o700)
    assert code_cache.read_verified(written, b"key") == b"some code"
    give_away(written)
    assert code_cache.read_verified(written, b"key") is None


def test_what_is_no_file_is_not_waited_for(written):
    written.unlink()
    os.mkfifo(written)
    assert code_cache.read_verified(written, b"key") is None
    written.unlink()
    written.mkdir()
    assert code_cache.read_verified(written, b"key") is None


def test_nothing_is_left_of_what_cannot_be_written(written):
    written.unlink()
    written.mkdir()
    with pytest.raises(OSError, match=r"code\.nbc"):
        code_cache.write_verified(written, b"key", b"some code")
    assert [path.name for path in written.parent.iterdir()] == ["code.nbc"]
