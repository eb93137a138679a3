"""The documentation tells what every source file is for, in the file's own words."""

from tests import layout


def test_the_page_lists_every_file_with_its_first_sentence():
    assert layout.in_page() == layout.layout(), "`python -m tests.layout` writes it anew"


def test_every_file_says_what_it_is_for():
    found = layout.files()
    assert len(found) > 100
    assert all(layout.what_it_is_for(path) for path in found)
