"""Code is loaded only from folders that nobody but this user and root can write."""

import os
import warnings

import pytest

from loaderx.kernels.caching import folders


@pytest.fixture(autouse=True)
def warn_again():
    """Reset the warnings that are given once per process."""
    folders._warn.cache_clear()
    yield
    folders._warn.cache_clear()


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


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert not folders.is_private(tmp_path / "file")
    assert not folders.is_private(tmp_path / "nothing")
    assert folders.private_folder(tmp_path / "file") is None
    assert folders.private_folder(tmp_path / "file" / "below") is None
