"""Table of `loader.explain()`: input, output, time and way of running of each op."""

import re
import time

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it

IMAGES = np.random.default_rng(0).integers(0, 256, (8, 6, 6, 3), np.uint8)
# Classes that a label of made-up values would not fit to.
LABELS = np.arange(8) % 2 + 5


def brighten(x):
    time.sleep(1e-3)
    return np.minimum(x * np.float32(1.1), 1)


@lx.transform
def halve(x):
    for i in range(x.shape[0]):
        x[i] *= 0.5


def explained():
    with pytest.warns(UserWarning, match="'brighten'"):
        loader = lx.DataLoader(
            {"image": IMAGES, "label": LABELS},
            transforms={
                "image": [T.CenterCrop(4), T.ToFloat(), brighten],
                "label": [T.OneHot(7), halve],
                ("image", "label"): [T.MixUp(0.2)],
            },
        )
    return loader.explain().splitlines()


def test_the_table_has_a_line_for_every_op(empty_cache):
    *lines, advice = explained()

    assert advice.startswith("Python code runs under the GIL")
    assert lines[0].split() == ["field", "op", "in", "out", "bytes/sample", "ns/sample", "how"]
    rows = [re.split(r"\s{2,}", line) for line in lines[2:-2]]
    assert [(*row[:5], row[6]) for row in rows] == [
        ("image", "CenterCrop", "uint8[6, 6, 3]", "uint8[4, 4, 3]", "48", "compiled"),
        ("image", "ToFloat", "uint8[4, 4, 3]", "float32[4, 4, 3]", "192", "compiled"),
        ("image", "brighten", "float32[4, 4, 3]", "float32[4, 4, 3]", "192", "Python"),
        ("image", "MixUp", "float32[4, 4, 3]", "float32[4, 4, 3]", "192", "compiled"),
        ("label", "OneHot", "int64[]", "float32[7]", "28", "compiled"),
        ("label", "halve", "float32[7]", "float32[7]", "28", "compiled"),
        ("label", "MixUp", "float32[7]", "float32[7]", "28", "compiled"),
    ]
    nanoseconds = {row[1]: int(row[5].replace(",", "")) for row in rows}
    assert all(value > 0 for value in nanoseconds.values())
    assert nanoseconds["brighten"] >= 1e6
    # Columns are aligned.
    starts = [line.index("compiled" if "compiled" in line else "Python") for line in lines[2:-2]]
    assert set(starts) == {lines[0].index("how")}

    for line, name in zip(lines[-2:], ("image", "label"), strict=True):
        assert re.fullmatch(
            rf"{name}: the whole chain takes [\d,]+ ns/sample in one thread, compiled now", line
        )
    for line in explained()[-3:-1]:
        assert line.endswith("loaded from the cache")


def test_in_debug_mode_the_table_says_python(monkeypatch):
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    loader = lx.DataLoader(LABELS, transforms=[T.OneHot(7), halve])
    lines = loader.explain().splitlines()
    assert [line.split()[-1] for line in lines[2:-1]] == ["Python", "Python"]
    # Nothing was compiled or loaded.
    assert lines[-1].endswith("in one thread")


def test_explaining_changes_nothing():
    loader = lx.DataLoader(LABELS, batch_size=8, transforms=[T.OneHot(7)], output="numpy")
    before = loader.batch(0)
    loader.explain()
    np.testing.assert_array_equal(loader.batch(0), before)


def test_without_transforms_there_is_nothing_but_the_head():
    assert len(lx.DataLoader(LABELS).explain().splitlines()) == 2
