"""Walk-throughs as they are followed: their files laid over the packages of this repository, in one process.

A block with a title, as in `python title="loaderx/sources/raw.py"`, is a new file, and one with `diff title=...` a
change of a file that exists. `python -m tests.docs.overlay FOLDER PAGE...` writes them and runs their tests.
"""

import importlib.machinery
import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks


def titled(text):
    """Return (language, path, code) of the blocks that are files or changes of files."""
    return [(block.language, block.title, block.code) for block in blocks(text) if block.title]


def changed(text, diff):
    """Return a text after a change: lines that begin with a blank or a minus become those with a blank or a plus."""
    old, new = (
        "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in kinds)
        for kinds in ((" ", "-", ""), (" ", "+", ""))
    )
    assert text.count(old) == 1, f"these lines are there {text.count(old)} times:\n{old}"
    return text.replace(old, new)


def write(folder, page):
    """Write the files of a page into a folder; return the tests among them."""
    tests = []
    for language, name, code in titled((ROOT / page).read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if language == "diff":
            before = path if path.exists() else ROOT / name
            path.write_text(changed(before.read_text(encoding="utf-8"), code), encoding="utf-8")
            if path.suffix == ".pyi":
                # It is read from next to its module.
                shutil.copy((ROOT / name).with_suffix(".py"), folder / Path(name).parent)
        else:
            assert not (ROOT / name).exists(), f"{name} exists already"
            path.write_text(f"{code}\n", encoding="utf-8")
        if re.match(r"tests/.*test_\w+\.py", name):
            tests.append(str(path))
    return tests


class Overlay:
    """Finder of modules: those with a file in a folder are imported from there."""

    def __init__(self, folder):
        self._folder = folder

    def find_spec(self, name, path=None, target=None):
        below = name.replace(".", "/")
        for file, places in ((f"{below}.py", None), (f"{below}/__init__.py", [str(ROOT / below)])):
            if (self._folder / file).exists():
                return importlib.util.spec_from_file_location(
                    name, self._folder / file, submodule_search_locations=places
                )
        return None


def main(folder, *pages):
    folder = Path(folder)
    tests = [test for page in pages for test in write(folder, page)]
    sys.meta_path.insert(0, Overlay(folder))
    # As a file of tests of this repository would be run.
    options = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    options += ["--basetemp", str(folder / "temporary"), "-p", "tests.conftest"]
    return pytest.main([*options, "--quiet", *tests])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
