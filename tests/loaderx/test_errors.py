"""Exceptions of loaderx are caught as a LoaderxError, or as the built-in that they derive from."""

import pickle

import numpy as np
import pytest

import loaderx
from loaderx import errors

KINDS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and value is not errors.LoaderxError
}


@pytest.mark.parametrize(
    ("name", "built_in"),
    [
        ("ArgumentError", ValueError),
        ("DataError", ValueError),
        ("StateError", ValueError),
        ("ClosedError", RuntimeError),
    ],
)
def test_an_error_is_a_loaderx_error_and_a_built_in_one(name, built_in):
    assert getattr(loaderx, name).__bases__ == (loaderx.LoaderxError, built_in)


@pytest.mark.parametrize("name", KINDS)
def test_every_error_is_exported(name):
    assert name in loaderx.__all__
    assert getattr(loaderx, name) is KINDS[name]


def test_the_tree_in_the_documentation_is_the_tree():
    drawn = {
        words[1]: words[2].strip("()")
        for words in map(str.split, errors.__doc__.splitlines())
        if words and words[0] in ("├──", "└──")
    }
    assert errors.__doc__.splitlines()[2] == "LoaderxError"
    for kind in KINDS.values():
        assert kind.__bases__[0] is errors.LoaderxError
    assert drawn == {name: kind.__bases__[1].__name__ for name, kind in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
def test_an_error_survives_its_way_from_another_process(name):
    error = pickle.loads(pickle.dumps(KINDS[name]("`step` (=-1) must not be negative.")))
    assert type(error) is KINDS[name]
    assert str(error) == "`step` (=-1) must not be negative."


def test_an_exception_that_is_raised_again_has_the_notes_of_the_last_time_only():
    broken = OSError("the disk is gone")
    broken.add_note("by the user")

    class Rows:
        def __len__(self):
            return 8

        def __getitem__(self, row):
            if row == 0:
                return np.zeros(2)
            raise broken

    loader = loaderx.DataLoader(Rows(), batch_size=2, shuffle=False, output="numpy", workers=1)
    for step in (1, 2, 1, 3):
        with pytest.raises(OSError, match="the disk is gone"):
            loader.batch(step)
        assert broken.__notes__ == [
            "by the user",
            f"loaderx: while reading row {2 * step} of Rows",
            f"loaderx: while building step {step}, rows [{2 * step}, {2 * step + 1}]",
        ]
