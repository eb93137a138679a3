"""Batches have the bytes that they had in every version before."""

import json
import warnings

import pytest

from tests import golden

EXPECTED = json.loads(golden.FILE.read_text())


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return golden.cases(tmp_path_factory.mktemp("files"))


@pytest.mark.long  # they compile some hundred chains
@pytest.mark.parametrize("name", EXPECTED)
def test_the_bytes_are_those_of_before(cases, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values on another scale, and of Python code
        assert golden.digest(cases[name]) == EXPECTED[name]


def test_every_chain_has_its_digest(cases):
    assert cases.keys() == EXPECTED.keys()
    accepted = [name for name, digest in EXPECTED.items() if digest != golden.REFUSED]
    assert len(accepted) > 300
