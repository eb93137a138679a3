"""A wheel installs the whole library, also where no repository is near."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import loaderx
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
WAYS = ("tree", "sdist")
# Files that the build reads. It gets copies, since a build leaves files in the folder, and modules that were deleted
# since then would stay in the repository's own build folder.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "loaderx", "kernels")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A wheel built from the repository, and one by way of a source distribution."""
    return {way: build_wheel(way, tmp_path_factory.mktemp("wheel")) for way in WAYS}


def build_wheel(way, folder):
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(
                REPOSITORY / name,
                tree / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy(REPOSITORY / name, tree / name)

    # Without isolation the build takes setuptools from this environment and needs no network. To ask first whether it
    # is there takes a process more for every step.
    build = ["build", "--no-isolation", "--skip-dependency-check", "--outdir", str(folder / "dist")]
    # Without --wheel, `build` makes the sdist and then the wheel from the sdist alone.
    selection = ["--wheel"] if way == "tree" else []
    run("-m", *build, *selection, str(tree), cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module", params=WAYS)
def wheel(request, wheels):
    return wheels[request.param]


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """A folder that holds nothing but the installed wheel: either, since they are the same."""
    folder, wheel = tmp_path_factory.mktemp("installed"), wheels["sdist"]
    run(
        *("-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check"),
        *("--target", str(folder), str(wheel)),
        cwd=folder,
    )
    return folder


def run(*arguments, cwd, path=None):
    """Run Python elsewhere: an editable install or the working folder must not supply modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        # PYTHONPATH comes before site-packages, and so before an editable install of loaderx.
        environment["PYTHONPATH"] = str(path)
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.strip()


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_both_wheels_hold_the_same(wheels):
    contents = []
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]


def test_the_wheel_has_one_top_level_package(wheel):
    top_level = {name.partition("/")[0] for name in names(wheel)}
    assert top_level == {"loaderx", f"loaderx-{loaderx.__version__}.dist-info"}


def test_every_module_is_in_the_wheel(wheel):
    expected = {
        f"{prefix}/{file.relative_to(folder).as_posix()}"
        for prefix, folder in [
            ("loaderx", REPOSITORY / "loaderx"),
            ("loaderx/kernels", REPOSITORY / "kernels"),
        ]
        for file in folder.rglob("*.py")
    }
    assert expected == {name for name in names(wheel) if name.endswith(".py")}
    assert "loaderx/kernels/__init__.py" in expected


def test_the_wheel_says_that_it_is_typed(wheel):
    assert "loaderx/py.typed" in names(wheel)


def test_the_licence_is_in_the_wheel(wheel):
    licence = f"loaderx-{loaderx.__version__}.dist-info/licenses/LICENSE"
    assert licence in names(wheel)


@pytest.fixture(scope="module")
def shown(installed, tmp_path_factory):
    """Output of a program that uses the installed wheel: the files it comes from, and batches."""
    program = """
import loaderx.kernels
print(loaderx.kernels.__file__)
import numpy as np, loaderx
loader = loaderx.DataLoader(
    np.arange(10), batch_size=4, shuffle=False, num_epochs=1, output="numpy"
)
print(loaderx.__file__)
print([batch.tolist() for batch in loader])
"""
    return run("-c", program, cwd=tmp_path_factory.mktemp("empty"), path=installed).splitlines()


def test_kernels_import_from_the_installed_wheel(installed, shown):
    assert Path(shown[0]) == installed / "loaderx" / "kernels" / "__init__.py"


def test_the_installed_loader_delivers_batches(installed, shown):
    _, file, batches = shown
    assert Path(file).is_relative_to(installed)
    assert batches == "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]"


def test_the_installed_command_gives_its_version(installed, tmp_path):
    version = run("-m", "loaderx", "--version", cwd=tmp_path, path=installed)
    assert version == f"loaderx {loaderx.__version__}"
    assert (installed / "bin" / "loaderx").exists()
