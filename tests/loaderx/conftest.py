"""Compiled passes stay in memory: loading them anew for every test took a tenth of the time of all tests."""

import pytest

from loaderx.compiler import passes


@pytest.fixture(scope="session", autouse=True)
def passes_stay_loaded():
    """Keep passes that no chain uses any more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "_LOADED", dict(passes._LOADED))
        yield


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """Return an empty folder for compiled passes; none is in memory."""
    monkeypatch.setattr(passes, "_LOADED", {})
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path))
    return tmp_path
