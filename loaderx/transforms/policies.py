"""RandAugment, TrivialAugment, AugMix: policies over the ops of their papers, or over any others."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError

from .amounts import Choice
from .base import Transform, as_number, between, is_integer
from .blend import Blend
from .colour import Brightness, Contrast, Saturation
from .combinators import as_branches
from .filters import Sharpness
from .geometric import Affine, Rotate
from .image import Identity
from .rounds import Rounds
from .spatial import Border
from .tones import AutoContrast, Equalize, Posterize, Solarize

LEVELS = 31
Interpolation = Literal["bilinear", "nearest"]


def _signed(values: Any) -> Choice:
    return Choice(*(-value for value in values), *values)


def _operations(
    level: Callable[[float, float], Any],
    *,
    shear: float,
    translate: float,
    rotate: float,
    colour: float,
    bits: int,
    look: dict[str, Any],
) -> dict[str, Transform]:
    """The ops of the papers; `level(start, end)` gives the amounts between no effect and the largest."""
    slant = [math.degrees(math.atan(value)) for value in level(0.0, shear)]
    shift = _signed(level(0.0, translate))
    factor = Choice(*(1 + sign * value for sign in (-1, 1) for value in level(0.0, colour)))
    return {
        "Identity": Identity(),
        "ShearX": Affine(shear_x=_signed(slant), **look),
        "ShearY": Affine(shear_y=_signed(slant), **look),
        "TranslateX": Affine(translate_x=shift, **look),
        "TranslateY": Affine(translate_y=shift, **look),
        "Rotate": Rotate(_signed(level(0.0, rotate)), **look),
        "Brightness": Brightness(factor),
        "Color": Saturation(factor),
        "Contrast": Contrast(factor),
        "Sharpness": Sharpness(factor),
        "Posterize": Posterize(Choice(*(round(value) for value in level(8.0, bits)))),
        "Solarize": Solarize(Choice(*level(1.0, 0.0))),
        "AutoContrast": AutoContrast(),
        "Equalize": Equalize(),
    }


def _look(interpolation: str, border: str, fill: float) -> dict[str, Any]:
    return {"interpolation": interpolation, "border": border, "fill": fill}


class RandAugment(Rounds):
    """`number` ops in a row, each drawn from 14 and as strong as `magnitude` of 30 says (Cubuk et al., 2020).

    With `ops` of your own, these are drawn from, and they say themselves how strong they are.
    """

    def __init__(
        self,
        number: int = 2,
        magnitude: float = 9,
        *,
        ops: Any = None,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        share = between("magnitude", magnitude, 0, LEVELS - 1) / (LEVELS - 1)
        if ops is None:
            # A translation by 150 of 331 pixels, as in the paper.
            ops = list(
                _operations(
                    lambda start, end: [start + (end - start) * share],
                    shear=0.3,
                    translate=150 / 331,
                    rotate=30,
                    colour=0.9,
                    bits=4,
                    look=_look(interpolation, border, fill),
                ).values()
            )
        super().__init__(as_branches("RandAugment", [ops]), number)


class TrivialAugment(Rounds):
    """One op drawn from 14, with a strength drawn for every sample (Müller and Hutter, 2021; its wide space)."""

    def __init__(
        self,
        *,
        ops: Any = None,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        if ops is None:
            # A translation by 32 of 224 pixels, as in the paper.
            ops = list(
                _operations(
                    lambda start, end: np.linspace(start, end, LEVELS).tolist(),
                    shear=0.99,
                    translate=32 / 224,
                    rotate=135,
                    colour=0.99,
                    bits=2,
                    look=_look(interpolation, border, fill),
                ).values()
            )
        super().__init__(as_branches("TrivialAugment", [ops]), 1)


class AugMix(Blend):
    """The sample mixed with `width` chains of 1 to `depth` ops each (Hendrycks et al., 2020).

    `severity` from 1 to 10 is how strong an op may be; with `ops` of your own, these are drawn from.
    """

    def __init__(
        self,
        severity: int = 3,
        *,
        width: int = 3,
        depth: int = 3,
        alpha: float = 1.0,
        ops: Any = None,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: float = 0.0,
    ) -> None:
        for name, value in (("severity", severity), ("width", width), ("depth", depth)):
            if not is_integer(value, 1) or (name == "severity" and value > 10):
                rule = "from 1 to 10" if name == "severity" else "of at least 1"
                raise ArgumentError(f"`{name}` (={value!r}) must be an integer {rule}.")
        if not 0 < as_number(alpha) < math.inf:
            raise ArgumentError(f"`alpha` (={alpha!r}) must be a finite number above 0.")
        if ops is None:
            found = _operations(
                lambda start, end: np.linspace(start, end, 10)[:severity].tolist(),
                shear=0.3,
                translate=1 / 3,
                rotate=30,
                colour=0.9,
                bits=4,
                look=_look(interpolation, border, fill),
            )
            # Without those that the benchmarks of corrupted images consist of.
            for name in ("Identity", "Brightness", "Color", "Contrast", "Sharpness"):
                del found[name]
            ops = list(found.values())
        super().__init__(
            as_branches("AugMix", [ops]), int(width), (1, int(depth)), as_number(alpha)
        )
