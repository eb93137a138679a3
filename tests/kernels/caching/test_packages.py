"""A package is known by where its files are, and the kernels by their source."""

import sys
from pathlib import Path

import numba
import numpy as np

import loaderx
from loaderx.kernels import gathering
from loaderx.kernels.caching import extensions, packages


def test_the_kernels_are_known_whatever_the_path_to_them():
    assert packages.is_known_module(gathering)
    assert packages.is_known(gathering.copy_rows)
    file = Path(gathering.__file__)
    assert packages.is_known_file(str(file), "loaderx")
    assert packages.is_known_file(str(file.resolve()), "kernels")
    assert not packages.is_known_file(loaderx.__file__, "loaderx")


def test_a_module_with_the_name_of_a_known_package_is_not_known_for_that(tmp_path):
    for name in ("numpy", "statistics", "scipy"):
        assert not packages.is_known_file(str(tmp_path / f"{name}.py"), name)
    assert packages.is_known(np.add)
    assert not packages.is_known(np.frompyfunc(abs, 1, 1))


def test_the_library_itself_counts_as_installed():
    assert Path(loaderx.__file__).resolve().parent in extensions._installed_roots()


def test_a_change_in_any_source_of_kernels_is_another_version(tmp_path, monkeypatch):
    (tmp_path / "caching").mkdir()
    files = [tmp_path / "a.py", tmp_path / "caching" / "b.py"]
    monkeypatch.setattr(packages, "KERNELS", tmp_path)
    found = []
    for contents in (("1", "2"), ("1", "3"), ("4", "3"), ("43", "")):
        for file, content in zip(files, contents, strict=True):
            file.write_text(content)
        packages.source_hash.cache_clear()
        packages.file_hash.cache_clear()
        found.append(packages.versions())
    packages.source_hash.cache_clear()
    packages.file_hash.cache_clear()
    assert len(set(found)) == 4
    assert {numba.__version__, sys.version} < set(found[0])
