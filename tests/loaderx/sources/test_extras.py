"""Packages of extras are imported when they are needed, and a missing one is named with its installation."""

import subprocess
import sys

import pytest

from loaderx.sources.extras import require

MODULES = ("cifar", "encoded.parquet", "hugging_face", "image_folder", "mnist", "polars", "sqlite")
HEAVY = ("PIL", "datasets", "jax", "pandas", "polars", "pyarrow", "torch")


def test_importing_the_sources_imports_none_of_their_packages():
    program = (
        f"import importlib, sys\n"
        f"for name in {MODULES}: importlib.import_module(f'loaderx.sources.{{name}}')\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        f"import PIL\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.splitlines() == ["[]", "['PIL']"]


def test_a_package_that_is_there_is_given():
    assert require("json.decoder", "extra", "This") is sys.modules["json.decoder"]


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.inner"])
def test_a_missing_package_is_named_with_its_extra(module):
    with pytest.raises(ModuleNotFoundError) as refusal:
        require(module, "extra", "This")
    assert str(refusal.value) == (
        'This needs no_such_package, which is not installed: pip install ".[extra]" in a clone of loaderx'
    )
    assert refusal.value.name == "no_such_package"


def test_the_error_of_a_package_that_misses_another_is_left_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "package_that_needs_more.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_package'$"):
        require("package_that_needs_more", "extra", "This")
