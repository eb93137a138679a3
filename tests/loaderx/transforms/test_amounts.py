"""Meaning of one number: the table of the page is right, and names every argument that has an amount."""

import inspect
import re
import typing

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from tests.loaderx.transforms.catalogue import PAGE, exported

# Numbers to try where a quarter is not valid.
NUMBERS = {"bits": 3, "size": 5, "radius": 3, "quality": 50, "holes": 2}
AT_A_RATE = ("LowPass", "HighPass", "BandPass", "LoudnessNormalize")
REQUIRED = {
    "Resample": {"length": 7},
    "RandomCrop": {"size": 3},
    "BackgroundNoise": {"noises": np.ones((2, 9), np.float32)},
    **{name: {"sample_rate": 16000} for name in AT_A_RATE},
}


def rows():
    """Yield (op, argument, meaning of one number) of every row of the table."""
    text = PAGE.read_text().split("\n## One number\n")[1].split("\n## ")[0]
    for line in text.splitlines():
        if line.startswith("| `"):
            ops, arguments, meaning, _ = line.strip("| ").split(" | ", 3)
            for op in re.findall(r"`(\w+)`", ops):
                for argument in re.findall(r"`(\w+)`", arguments):
                    yield op, argument, meaning


def state(value):
    """Return everything that an op consists of, except for its arguments as written."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: state(entry) for name, entry in value.items() if name != "_written"}
    if isinstance(value, list | tuple):
        return [state(entry) for entry in value]
    return state(vars(value)) if isinstance(value, T.Transform) else value


def made(op, argument, value):
    """Return the state of an op with this argument."""
    return state(getattr(T, op)(**{**REQUIRED.get(op, {}), argument: value}))


@pytest.mark.parametrize(("op", "argument", "meaning"), list(rows()))
def test_one_number_means_what_the_table_says(op, argument, meaning):
    number = NUMBERS.get(argument, 0.25)
    if meaning.startswith("at most"):
        with pytest.raises(lx.ArgumentError, match=f"`{argument}`"):
            made(op, argument, (0, number))
        return
    if op == "Pad" or argument == "pad":
        number = 1
    ranges = {
        "around 1": (1 - number, 1 + number),
        "around 0": (-number, number),
        # A choice of one is not drawn; Mosaic accepts no Choice.
        "the value": (number, number)
        if argument in NUMBERS or op == "Mosaic"
        else T.Choice(number),
        "a square": (number, number),
        "all four": (number, number),
    }
    kind = re.match("|".join(ranges), meaning)
    assert kind is not None, f"{op}: one number is {meaning!r}, which is not in {list(ranges)}"
    wanted = ranges[kind[0]]
    if op == "SkeletonRotate":
        wanted = (wanted,) * 3  # one for each axis
    assert made(op, argument, number) == made(op, argument, wanted)


def test_the_table_has_every_argument_that_accepts_an_amount():
    found = set()
    for name, value in exported().items():
        for argument in inspect.signature(value).parameters.values():
            if T.Choice in typing.get_args(argument.annotation):
                found.add((name, argument.name))
    missing = found - {(op, argument) for op, argument, _ in rows()}
    assert not missing, f"add rows for {sorted(missing)} to the table under `## One number`"
