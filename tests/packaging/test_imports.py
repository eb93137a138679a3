"""Importing is cheap, the exported names are the promised ones, and imports point one way."""

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import loaderx
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]

# Prints for each statement in turn what it made Python do that a cheap import does not, in a line.
PROBE = """
import json, sys, threading
from numba.core import event
def state():
    found = {f"imported {name}" for name in ("jax", "jaxlib", "array_record", "flax") if name in sys.modules}
    return found | {f"started {thread.name}" for thread in threading.enumerate()[1:]}
for statement in sys.argv[1:]:
    before = state()
    with event.install_recorder("numba:compile") as recorder:
        exec(statement)
    print(json.dumps([*(state() - before), *(["compiled"] if recorder.buffer else [])]))
"""
# A DeviceLoader is JAX through and through.
NAMES = ", ".join(name for name in loaderx.__all__ if name != "DeviceLoader")
CHEAP = ["import loaderx", "import loaderx.cli", f"from loaderx import {NAMES}"]
DEVICE_LOADER = "from loaderx import DeviceLoader"
# Statements, and the traces of each that the probe must see. It sees JAX with the last.
OTHERS = {
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "started Thread-1 (wait)",
    "import numba; numba.njit('i8(i8)')(lambda x: x)": "compiled",
    "import array_record": "imported array_record",
    DEVICE_LOADER: "imported jax",
}


def costs(*statements):
    """Return what each statement costs, after those before it in one process."""
    finished = subprocess.run(
        [sys.executable, "-c", PROBE, *statements],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    return {s: set(json.loads(line)) for s, line in zip(statements, lines, strict=True)}


@pytest.fixture(scope="module")
def costs_of_imports():
    return costs(*CHEAP, *OTHERS)


@pytest.mark.parametrize("statement", CHEAP, ids=["loaderx", "the command line", "every name"])
def test_importing_imports_no_jax_and_compiles_nothing(costs_of_imports, statement):
    assert costs_of_imports[statement] == set()


def test_importing_a_device_loader_imports_jax(costs_of_imports):
    found = costs_of_imports[DEVICE_LOADER]
    assert found == {"imported jax", "imported jaxlib"}


def test_the_probe_sees_what_it_looks_for(costs_of_imports):
    assert [s for s, cost in OTHERS.items() if cost not in costs_of_imports[s]] == []


def test_every_exported_name_exists_and_is_listed_once():
    assert len(loaderx.__all__) == len(set(loaderx.__all__))
    missing = [name for name in loaderx.__all__ if not hasattr(loaderx, name)]
    assert missing == []


def test_a_star_import_gives_exactly_the_exported_names():
    namespace = {}
    exec("from loaderx import *", namespace)
    del namespace["__builtins__"]
    assert set(namespace) == set(loaderx.__all__)


def test_type_checkers_see_the_exported_names():
    tree = ast.parse(Path(loaderx.__file__).with_suffix(".pyi").read_text())
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom)]
    seen = [alias.asname for statement in imports for alias in statement.names]
    assert sorted(seen) == sorted(loaderx.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"loaderx.*'unknown'"):
        _ = loaderx.unknown


def lint_imports(folder):
    """Check the import contracts of the tree in `folder`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_imports_point_one_way():
    finished = lint_imports(REPOSITORY)
    assert finished.returncode == 0, finished.stdout + finished.stderr


# Breaches of contracts: a statement in a file, its contract, and the line that reports it.
BREACHES = [
    (
        "kernels/gathering.py",
        "import loaderx.spec",
        "Imports point one way",
        "loaderx.kernels.gathering -> loaderx.spec",
    ),
    (
        "loaderx/stream/state.py",
        "import loaderx.loader",
        "Imports point one way",
        "loaderx.stream.state -> loaderx.loader",
    ),
    (
        "loaderx/stream/state.py",
        "import loaderx.cli",
        "Imports point one way",
        "loaderx.stream.state -> loaderx.cli",
    ),
    (
        "loaderx/batch/scheduler.py",
        "import loaderx.batch.builder",
        "A batch is planned",
        "loaderx.batch.scheduler -> loaderx.batch.builder",
    ),
    ("loaderx/loader.py", "import jax", "One place imports jax", "loaderx.loader -> jax"),
    (
        "kernels/gathering.py",
        "import zstandard",
        "Kernels know numba and NumPy only",
        "loaderx.kernels.gathering -> zstandard",
    ),
    (
        "kernels/caching/files.py",
        "import loaderx.kernels.compilation",
        "The cache of compiled code",
        "loaderx.kernels.caching.files -> loaderx.kernels.compilation",
    ),
    ("loaderx/surprise.py", "", "Imports point one way", "loaderx.surprise"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Report on a tree with all breaches, by contract: its verdict and the lines below its name."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    for name in ("loaderx", "kernels"):
        shutil.copytree(REPOSITORY / name, folder / name, symlinks=True)
    for file, statement, _, _ in BREACHES:
        with (folder / file).open("a") as source:
            source.write(f"\n{statement}\n")

    finished = lint_imports(folder)

    assert finished.returncode == 1, finished.stdout + finished.stderr
    verdicts, _, details = finished.stdout.partition("\nBroken contracts\n")
    broken = [line for line in verdicts.splitlines() if " BROKEN" in line]
    below, name = {}, None
    for line, following in itertools.pairwise(details.splitlines()):
        if line and set(following) == {"-"}:
            name = line
        elif line.startswith("- "):
            below.setdefault(name, set()).add(re.sub(r" \(l\.\d+\)$", "", line[2:].strip()))
    return broken, below


@pytest.mark.parametrize(("file", "statement", "contract", "breach"), BREACHES)
def test_the_import_contracts_can_be_broken(told, file, statement, contract, breach):
    broken, below = told
    assert any(line.startswith(contract) for line in broken), broken
    (found,) = [lines for name, lines in below.items() if name.startswith(contract)]
    assert breach in found, (file, statement)


def test_nothing_but_a_breach_breaks_a_contract(told):
    assert set().union(*told[1].values()) == {breach for *_, breach in BREACHES}


@pytest.mark.parametrize("statement", ["import kernels", "from kernels import gather"])
def test_the_bare_name_kernels_is_banned(tmp_path, statement):
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251"),
            *("--config", REPOSITORY / "pyproject.toml", "--stdin-filename", "module.py", "-"),
        ],
        input=statement,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 1, finished.stderr
    assert "TID251" in finished.stdout
