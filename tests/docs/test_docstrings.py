"""Docstrings on the site: two columns of arguments become a table, and prose stays as it is."""

import inspect

import griffe
import pytest

import loaderx
from tests.docs.markdown import DOCS, ROOT

CODE = '''
def crop(size, seed):
    """Cut a window out: `pad * 2` stays code.

    size  height and width, each of at least 1,
          in pixels
    seed  one of <0, 2**64> | `None`

    size  looks like an argument here,
    but the second line of the block is not below its text.
    """
'''


@pytest.fixture(scope="module")
def extensions():
    return griffe.load_extensions(str(DOCS / "docstrings.py"))


@pytest.fixture(scope="module")
def parsed(extensions, tmp_path_factory):
    file = tmp_path_factory.mktemp("module") / "module.py"
    module = griffe.visit("module", file, CODE, extensions=extensions)
    return module["crop"].docstring.parse("google")


def test_two_columns_become_arguments(parsed):
    names = [argument.name for argument in parsed[1].value]
    assert (parsed[1].kind.value, names) == ("parameters", ["size", "seed"])
    assert parsed[1].value[0].description == "height and width, each of at least 1,\nin pixels"


def test_characters_of_code_are_not_markdown(parsed):
    assert parsed[1].value[1].description == r"one of \<0, 2\*\*64> \| `None`"


def test_prose_is_left_as_it_is(parsed):
    prose = inspect.cleandoc(CODE.split('"""')[1]).split("\n\n")
    assert [parsed[0].value, parsed[2].value] == [prose[0], prose[2]]


@pytest.fixture(scope="module")
def library(extensions):
    return griffe.load("loaderx", search_paths=[ROOT], extensions=extensions)


@pytest.mark.parametrize(
    ("module", "name"), [("loader", "DataLoader"), ("on_device.loader", "DeviceLoader")]
)
def test_all_arguments_of_a_loader_are_in_the_table(module, name, library):
    sections = library[f"{module}.{name}"].docstring.parse("google")
    shown = [
        argument.name
        for part in sections
        if part.kind.value == "parameters"
        for argument in part.value
    ]
    assert shown == list(inspect.signature(getattr(loaderx, name)).parameters)
