"""Fixtures for the tests of all commands."""

import contextlib

import pytest

from tests.loaderx.commands.forking import Forking


@pytest.fixture(scope="session")
def forking():
    """Start programs without the time that imports take."""
    with contextlib.closing(Forking()) as forking:
        yield forking
