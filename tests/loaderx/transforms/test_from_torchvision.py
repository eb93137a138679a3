"""The page for people who come from torchvision and Albumentations: every op is on it, and its code runs."""

import inspect
import re

import numpy as np

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.docs.markdown import DOCS, program_of
from tests.loaderx.transforms.catalogue import exported
from tests.loaderx.transforms.images import images

PAGE = DOCS / "from-torchvision.md"
# The section whose ops are in the newest files: rows of it may come before their op does.
NEWEST = "Detection, several images, weather and sound"


def sections():
    """The text under each heading."""
    return dict(part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:])


def rows(text):
    """The cells of every row of a table that is about an op."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_op_has_a_row_or_is_listed_as_one_without_counterpart():
    listed = []
    for text in sections().values():
        listed += [re.match(r"`(\w+)", row[0])[1] for row in rows(text)]
        for alone in re.findall(r"^No counterpart: ((?:[`\w\s])+)\.", text, re.MULTILINE):
            listed += re.findall(r"`(\w+)`", alone)
    assert len(listed) == len(set(listed)), "an op has two rows"
    missing = set(exported()) - set(listed)
    assert not missing, f"add rows for {sorted(missing)}"


def test_rows_have_four_cells_and_name_ops_with_arguments_that_exist():
    for heading, text in sections().items():
        for op, *others in rows(text):
            assert len(others) == 3, op
            assert all(others[:2]), f"{op}: what has no counterpart is `none`"
            name = re.match(r"`(\w+)", op)[1]
            if heading != NEWEST:
                assert name in exported(), name
            elif name not in exported():
                continue
            arguments = inspect.signature(exported()[name]).parameters
            assert set(re.findall(r"(\w+)=", op)) <= set(arguments), op


def test_the_code_of_the_page_runs():
    found = {}
    exec(compile(program_of(PAGE.read_text()), str(PAGE), "exec"), found)
    rows = images((40, 50, 3), count=2)
    shapes = {"train": (3, 224, 224), "evaluate": (224, 224, 3), "strong": (40, 50, 3)}
    for name, shape in {**shapes, "padded": (46, 54, 3)}.items():
        assert lx.pipeline(found[name])(rows).shape == (2, *shape)
    padded = lx.pipeline(found["padded"])(np.ones_like(rows))
    assert padded[:, 2:-4, 1:-3].all()
    assert not padded[:, :2].any()
    assert isinstance(found["train"][0], T.RandomResizedCrop)
