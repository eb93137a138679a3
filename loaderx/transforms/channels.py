"""Channels: which axis of a sample holds the channels of an image, and how many there may be."""

from collections.abc import Collection

from loaderx.display.reprs import ReprFromArguments
from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .base import is_integer

USUAL = (1, 2, 3, 4)


class Channels(ReprFromArguments):
    """Declare that images have one of these numbers of channels; without it ops on images accept 1 to 4.

    Put it before the ops on images of its entry. It changes nothing and takes no time.
    """

    def __init__(self, *numbers: int) -> None:
        if not numbers or not all(is_integer(number, 1) for number in numbers):
            raise ArgumentError(f"Channels accepts integers of at least 1, got {numbers!r}.")
        self.numbers = tuple(int(number) for number in numbers)


def check_channels(spec: Spec, name: str, stated: Collection[int]) -> None:
    """Refuse an image whose last axis is not its channels."""
    if len(spec.shape) != 3 or spec.shape[2] in (*USUAL, *stated):
        return
    hint = f"If these are {spec.shape[2]} channels, put `T.Channels({spec.shape[2]})` before it."
    if spec.shape[0] in USUAL:
        hint = f"Channels first? Transpose to (height, width, channels). {hint}"
    raise ArgumentError(
        f"{name} accepts images of shape (height, width, channels) with 1 to 4 channels, or (height, width), not "
        f"{spec}. {hint}"
    )
