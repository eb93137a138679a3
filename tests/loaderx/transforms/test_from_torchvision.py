"""Page for users of torchvision and Albumentations: every op is on it."""

import inspect
import re

from tests.docs.markdown import DOCS
from tests.loaderx.transforms.catalogue import exported

PAGE = DOCS / "from-torchvision.md"
# The section whose ops are in the newest files: rows of it may come before their op does.
NEWEST = "Detection, several images, weather and sound"


def sections():
    """Return the text under each heading."""
    return dict(part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:])


def rows(text):
    """Return the cells of every row of a table that is about an op."""
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
            assert all(others[:2]), f"{op}: an op without a counterpart has `none`"
            name = re.match(r"`(\w+)", op)[1]
            if heading != NEWEST:
                assert name in exported(), name
            elif name not in exported():
                continue
            arguments = inspect.signature(exported()[name]).parameters
            assert set(re.findall(r"(\w+)=", op)) <= set(arguments), op
