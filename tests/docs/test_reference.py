"""The API reference is complete: every public name has an entry, and every command its section."""

import ast
import re

import loaderx
from loaderx import kernels
from loaderx.commands import COMMANDS
from tests.docs import command_line
from tests.docs.markdown import DOCS, ROOT

ENTRIES = [
    entry
    for page in (DOCS / "reference").glob("*.md")
    for entry in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


def exported(file):
    """Return the names that a file exports by `import ... as` the same name."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names if alias.asname == alias.name}


def defined(file):
    """Return the public classes and functions that a file defines."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"}


def public_names():
    """Return all public names with their modules."""
    on_device = defined("loaderx/on_device/transforms.py") - {"Samples"}  # of ops, not of users
    names = {
        "loaderx": set(loaderx.__all__) - {"kernels", "transforms"},
        "loaderx.transforms": exported("loaderx/transforms/__init__.py"),
        "loaderx.kernels": set(kernels.__all__),
        "loaderx.checkpoint": defined("loaderx/checkpoint.py"),
        "loaderx.ray": exported("loaderx/ray/__init__.py"),
        "loaderx.on_device.transforms": on_device,
    }
    assert all(names.values())
    return {f"{module}.{name}" for module, found in names.items() for name in found}


def test_every_public_name_has_one_entry():
    assert sorted(public_names() - set(ENTRIES)) == []
    assert len(ENTRIES) == len(set(ENTRIES))


def test_every_command_has_its_section_with_the_arguments_of_today():
    text = command_line.PAGE.read_text(encoding="utf-8")
    assert text == command_line.written(), "run python -m tests.docs.command_line"
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## loaderx {name}" for name in COMMANDS
    ]
