"""The page on troubleshooting lists the environment variables that the code reads: all of them, and no others."""

import ast
import re

import pytest
from numba.core import config

from tests.docs.markdown import DOCS, ROOT

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
OWN, FOREIGN = PAGE.split("## Environment variables")[1].split("These are read by libraries")


def listed(text):
    """Return the variables in the first column of a table."""
    cells = re.findall(r"^\| (`[A-Z].*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def sources():
    """Return all files of code; `rglob` does not follow the link loaderx/kernels."""
    return [path for name in ("loaderx", "kernels") for path in (ROOT / name).rglob("*.py")]


def read_by(text):
    """Return the environment variables that a program reads: by `os`, and as options of Numba."""
    found = set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get" | "pop"),
                args=[ast.Constant(name), *_],
            ):
                found.add(name)
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[ast.Constant(name), *_]):
                found.add(name)
            case ast.Subscript(
                value=ast.Attribute(attr="environ"),
                slice=ast.Constant(name),
                ctx=ast.Load(),
            ):
                found.add(name)
            case ast.Attribute(
                value=ast.Name("config") | ast.Attribute(attr="config"), attr=name
            ) if name.isupper():
                found.add(f"NUMBA_{name.removeprefix('NUMBA_')}")
    return found


def mentions(text):
    """Return how often a program gets at the environment in any way."""
    nodes = list(ast.walk(ast.parse(text)))
    return sum(
        isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
        for node in nodes
    ) + sum(
        isinstance(node, ast.ImportFrom)
        and node.module == "os"
        and any(alias.name in {"environ", "environb", "getenv"} for alias in node.names)
        for node in nodes
    )


# Where the environment is passed on to a process, or set for one, and nothing is read of it.
PASSED_ON = {"loaderx/commands/compile_workers.py": 1, "loaderx/ray/session.py": 1}


def test_the_page_lists_every_variable_that_the_code_reads():
    assert set().union(*(read_by(path.read_text(encoding="utf-8")) for path in sources())) == (
        listed(OWN)
    )


def test_nothing_of_the_environment_is_read_unseen():
    for path in sources():
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        by_os = {variable for variable in read_by(text) if not variable.startswith("NUMBA_")}
        assert mentions(text) == len(by_os) + PASSED_ON.get(name, 0), name


def test_variables_of_numba_exist():
    for name in listed(OWN) | listed(FOREIGN):
        if name.startswith("NUMBA_"):
            assert hasattr(config, name) or hasattr(config, name.removeprefix("NUMBA_")), name


def test_variables_of_jax_exist():
    jax = pytest.importorskip("jax")
    for name in listed(FOREIGN):
        if name.startswith("JAX_"):
            assert hasattr(jax.config, name.lower()), name


EXAMPLE = """
from numba.core import config
import numba
a = os.environ["A"], os.environ.get("B"), os.getenv("C", "0"), os.environ.pop("D", None)
os.environ["SET"] = "1"
if config.DISABLE_JIT or numba.config.NUMBA_NUM_THREADS:
    pass
"""


def test_all_ways_to_read_a_variable_are_seen():
    assert read_by(EXAMPLE) == {"A", "B", "C", "D", "NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS"}
    assert mentions(EXAMPLE) == 5
    assert mentions("from os import environ") == 1
    assert listed("| `A_B` and `C` | `D` |\n| no | `E` |") == {"A_B", "C"}
