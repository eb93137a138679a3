"""The walk-throughs for contributors work: their files are written, their tests run and pass."""

import os
import subprocess
import sys

import pytest

from tests.docs.markdown import DOCS, ROOT
from tests.docs.overlay import changed, titled

PAGES = sorted((DOCS / "contributing").glob("add-*.md"))


def test_the_walk_throughs_can_be_followed(tmp_path):
    assert len(PAGES) == 3
    finished = subprocess.run(
        [sys.executable, "-m", "tests.docs.overlay", tmp_path, *PAGES],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    tests = sum(
        code.count("\ndef test_") for page in PAGES for _, _, code in titled(page.read_text())
    )
    assert f"{tests + 1} passed" in finished.stdout  # one of them runs for two dtypes


def test_a_change_that_does_not_fit_is_found():
    assert changed("a\nb\nc\n", " a\n-b\n+d") == "a\nd\nc\n"
    for text in ("a\nc\n", "a\nb\na\nb\n"):
        with pytest.raises(AssertionError, match="times"):
            changed(text, " a\n-b\n+d")
