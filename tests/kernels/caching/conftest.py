"""Fixtures for the tests of the cache."""

import os

import pytest

STRANGER = 12345


@pytest.fixture
def give_away(monkeypatch):
    """Return a function that makes a path belong to another user, as far as this process can see."""

    def give(path):
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


@pytest.fixture
def nowhere(tmp_path):
    """Return a path that no user can create, root included."""
    (tmp_path / "file").write_text("not a folder")
    return str(tmp_path / "file" / "folder")
