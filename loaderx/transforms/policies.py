"""RandAugment, TrivialAugment, AutoAugment, AugMix: policies over the ops of their papers, or over any others."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .amounts import Choice
from .base import Transform, as_number, between, is_integer
from .blend import Blend
from .colour import Brightness, Contrast, Saturation
from .combinators import Maybe, Sequence, as_branches
from .filters import Sharpness
from .geometric import Affine, Fill, Interpolation, Rotate, Translate
from .image import Identity
from .rounds import Rounds
from .spatial import Border
from .step import Call, Step
from .tones import AutoContrast, Equalize, Invert, Posterize, Solarize

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

LEVELS = 31
# Translation by up to 150 of 331 pixels, the size of the images in the paper.
FARTHEST = 150 / 331
# The bins of magnitudes that AutoAugment counts in.
BINS = 10

# The sub-policies of AutoAugment, a line each: op, probability and bin, twice (Cubuk et al., 2019, appendix; in the
# order of torchvision's `AutoAugmentPolicy`). Ops that have no strength have no bin.
SUB_POLICIES = {
    "imagenet": """
        Posterize 0.4 8, Rotate 0.6 9
        Solarize 0.6 5, AutoContrast 0.6
        Equalize 0.8, Equalize 0.6
        Posterize 0.6 7, Posterize 0.6 6
        Equalize 0.4, Solarize 0.2 4
        Equalize 0.4, Rotate 0.8 8
        Solarize 0.6 3, Equalize 0.6
        Posterize 0.8 5, Equalize 1.0
        Rotate 0.2 3, Solarize 0.6 8
        Equalize 0.6, Posterize 0.4 6
        Rotate 0.8 8, Color 0.4 0
        Rotate 0.4 9, Equalize 0.6
        Equalize 0.0, Equalize 0.8
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Rotate 0.8 8, Color 1.0 2
        Color 0.8 8, Solarize 0.8 7
        Sharpness 0.4 7, Invert 0.6
        ShearX 0.6 5, Equalize 1.0
        Color 0.4 0, Equalize 0.6
        Equalize 0.4, Solarize 0.2 4
        Solarize 0.6 5, AutoContrast 0.6
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Equalize 0.8, Equalize 0.6
    """,
    "cifar10": """
        Invert 0.1, Contrast 0.2 6
        Rotate 0.7 2, TranslateX 0.3 9
        Sharpness 0.8 1, Sharpness 0.9 3
        ShearY 0.5 8, TranslateY 0.7 9
        AutoContrast 0.5, Equalize 0.9
        ShearY 0.2 7, Posterize 0.3 7
        Color 0.4 3, Brightness 0.6 7
        Sharpness 0.3 9, Brightness 0.7 9
        Equalize 0.6, Equalize 0.5
        Contrast 0.6 7, Sharpness 0.6 5
        Color 0.7 7, TranslateX 0.5 8
        Equalize 0.3, AutoContrast 0.4
        TranslateY 0.4 3, Sharpness 0.2 6
        Brightness 0.9 6, Color 0.2 8
        Solarize 0.5 2, Invert 0.0
        Equalize 0.2, AutoContrast 0.6
        Equalize 0.2, Equalize 0.6
        Color 0.9 9, Equalize 0.6
        AutoContrast 0.8, Solarize 0.2 8
        Brightness 0.1 3, Color 0.7 0
        Solarize 0.4 5, AutoContrast 0.9
        TranslateY 0.9 9, TranslateY 0.7 9
        AutoContrast 0.9, Solarize 0.8 3
        Equalize 0.8, Invert 0.1
        TranslateY 0.7 9, AutoContrast 0.9
    """,
    "svhn": """
        ShearX 0.9 4, Invert 0.2
        ShearY 0.9 8, Invert 0.7
        Equalize 0.6, Solarize 0.6 6
        Invert 0.9, Equalize 0.6
        Equalize 0.6, Rotate 0.9 3
        ShearX 0.9 4, AutoContrast 0.8
        ShearY 0.9 8, Invert 0.4
        ShearY 0.9 5, Solarize 0.2 6
        Invert 0.9, AutoContrast 0.8
        Equalize 0.6, Rotate 0.9 3
        ShearX 0.9 4, Solarize 0.3 3
        ShearY 0.8 8, Invert 0.7
        Equalize 0.9, TranslateY 0.6 6
        Invert 0.9, Equalize 0.6
        Contrast 0.3 3, Rotate 0.8 4
        Invert 0.8, TranslateY 0.0 2
        ShearY 0.7 6, Solarize 0.4 8
        Invert 0.6, Rotate 0.8 4
        ShearY 0.3 7, TranslateX 0.9 3
        ShearX 0.1 6, Invert 0.6
        Solarize 0.7 2, TranslateY 0.6 7
        ShearY 0.8 4, Invert 0.8
        ShearX 0.7 9, TranslateY 0.8 3
        ShearY 0.8 5, AutoContrast 0.7
        ShearX 0.7 2, Invert 0.1
    """,
}


class Colour(Saturation):
    """`Saturation` in policies, which leaves images of one channel as they are, as torchvision does."""

    @property
    def name(self) -> str:
        return "Saturation"

    def output(self, spec: Spec) -> Spec:
        return spec if _is_grey(spec) else super().output(spec)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        if not _is_grey(spec):
            super().write(table, group, x, out, spec)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        if _is_grey(spec):
            return lambda x, position, length, turns: x
        return super().interpret(step, spec, compiled)


def _is_grey(spec: Spec) -> bool:
    return len(spec.shape) == 3 and spec.shape[2] == 1


def _signed(values: Iterable[float]) -> Choice:
    several = list(values)
    return Choice(*(-value for value in several), *several)


def _slant(slope: float) -> float:
    return math.degrees(math.atan(slope))


def _operations(
    shares: list[float],
    look: dict[str, Any],
    *,
    shear: float = 0.3,
    translate: float = FARTHEST,
    unit: Literal["pixels", "size"] = "size",
    rotate: float = 30,
    colour: float = 0.9,
    bits: int = 4,
) -> dict[str, Transform]:
    """Return the ops of torchvision's policies, each drawn from these shares of its largest strength.

    Shears keep the top left corner of the image, rotations its centre; translations are by whole pixels.
    """

    def strengths(largest: float) -> list[float]:
        return [largest * share for share in shares]

    slants = _signed(map(_slant, strengths(shear)))
    shifts = _signed(strengths(translate))
    factor = Choice(*(1 + value for value in _signed(strengths(colour)).values))
    return {
        "Identity": Identity(),
        "ShearX": Affine(shear_x=slants, center=(0, 0), **look),
        "ShearY": Affine(shear_y=slants, center=(0, 0), **look),
        "TranslateX": Translate(right=shifts, unit=unit, **look),
        "TranslateY": Translate(down=shifts, unit=unit, **look),
        "Rotate": Rotate(_signed(strengths(rotate)), **look),
        "Brightness": Brightness(factor),
        "Color": Colour(factor),
        "Contrast": Contrast(factor),
        "Sharpness": Sharpness(factor),
        "Posterize": Posterize(Choice(*(8 - round(value) for value in strengths(8 - bits)))),
        "Solarize": Solarize(Choice(*(1 - share for share in shares))),
        "AutoContrast": AutoContrast(),
        "Equalize": Equalize(),
    }


def _aug_mix_operations(severity: int, look: dict[str, Any]) -> list[Transform]:
    """Return the ops of AugMix, without those that the benchmarks of corrupted images consist of."""
    # Levels of 10 are drawn evenly from 0.1 to `severity`: here, the middle of a cell of a thirtieth, of which 10 are a
    # degree of a rotation and 75 are a bit.
    levels = [(3 + cell + 0.5) / 30 for cell in range(30 * severity - 3)]
    slants = _signed(_slant(0.3 * level / 10) for level in levels)
    # As many pixels as there are in a fraction of the size.
    shifts = _signed(level / 30 for level in levels)
    return [
        AutoContrast(),
        Equalize(),
        Posterize(Choice(*(4 - int(4 * level / 10) for level in levels))),
        Rotate(_signed(int(30 * level / 10) for level in levels), **look),
        Solarize(Choice(*((256 - int(256 * level / 10)) / 255 for level in levels))),
        Affine(shear_x=slants, center=(0, 0), **look),
        Affine(shear_y=slants, center=(0, 0), **look),
        Translate(right=shifts, unit="size", **look),
        Translate(down=shifts, unit="size", **look),
    ]


def _look(interpolation: str, border: str, fill: Fill, fill_mask: float | None) -> dict[str, Any]:
    return {
        "interpolation": interpolation,
        "border": border,
        "fill": fill,
        "fill_mask": fill_mask,
    }


class RandAugment(Rounds):
    """RandAugment: `number` ops in a row, each drawn from 14 and of strength `magnitude` of 30 (Cubuk et al., 2020).

    Ops and strengths are those of torchvision's `RandAugment`: shears around the top left corner, translations by whole
    pixels of up to 150 / 331 of the size. With `ops` of your own, these are drawn from, and they say themselves how
    strong they are.
    """

    def __init__(
        self,
        number: int = 2,
        magnitude: float = 9,
        *,
        ops: Any = None,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        share = between("magnitude", magnitude, 0, LEVELS - 1) / (LEVELS - 1)
        if ops is None:
            look = _look(interpolation, border, fill, fill_mask)
            ops = list(_operations([share], look).values())
        super().__init__(as_branches("RandAugment", [ops]), number)
        self.happens_with(probability)


class TrivialAugment(Rounds):
    """TrivialAugment: one op drawn from 14, its strength drawn per sample (Müller and Hutter, 2021; its wide space).

    Ops and strengths are those of torchvision's `TrivialAugmentWide`: shears around the top left corner, translations
    by up to 32 whole pixels of images of any size, as in the authors' code (automl/trivialaugment, `aug_lib.py`).
    """

    def __init__(
        self,
        *,
        ops: Any = None,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        if ops is None:
            ops = list(
                _operations(
                    [level / (LEVELS - 1) for level in range(LEVELS)],
                    _look(interpolation, border, fill, fill_mask),
                    shear=0.99,
                    translate=32,
                    unit="pixels",
                    rotate=135,
                    colour=0.99,
                    bits=2,
                ).values()
            )
        super().__init__(as_branches("TrivialAugment", [ops]), 1)
        self.happens_with(probability)


class AutoAugment(Rounds):
    """AutoAugment: one of 25 pairs of ops found for "imagenet", "cifar10" or "svhn" (Cubuk et al., 2019).

    Each op of a pair runs with a probability and a strength of its own. Pairs, ops and strengths are those of
    torchvision's `AutoAugment`.
    """

    def __init__(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        *,
        interpolation: Interpolation = "bilinear",
        border: Border = "fill",
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        if policy not in list(SUB_POLICIES):
            raise ArgumentError(
                f"`policy` (={policy!r}) must be one of {', '.join(map(repr, SUB_POLICIES))}."
            )
        look = _look(interpolation, border, fill, fill_mask)
        of_bin = [
            {**_operations([number / (BINS - 1)], look), "Invert": Invert()}
            for number in range(BINS)
        ]

        def op(text: str) -> Transform:
            name, probability, *number = text.split()
            return Maybe(float(probability), of_bin[int(number[0]) if number else 0][name])

        pairs = [line.split(", ") for line in SUB_POLICIES[policy].strip().splitlines()]
        super().__init__([Sequence(*map(op, pair)) for pair in pairs], 1)
        self.happens_with(probability)


class AugMix(Blend):
    """AugMix: the sample mixed with `width` chains of 1 to `depth` ops each (Hendrycks et al., 2020).

    `severity` from 1 to 10 is how strong an op may be; with `ops` of your own, these are drawn from. The ops and their
    strengths are those of the authors' code (google-research/augmix, `augmentations.py`).
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
        fill: Fill = 0.0,
        fill_mask: float | None = None,
        probability: float = 1.0,
    ) -> None:
        for name, value in (("severity", severity), ("width", width), ("depth", depth)):
            if not is_integer(value, 1) or (name == "severity" and value > 10):
                rule = "from 1 to 10" if name == "severity" else "of at least 1"
                raise ArgumentError(f"`{name}` (={value!r}) must be an integer {rule}.")
        if not 0 < as_number(alpha) < math.inf:
            raise ArgumentError(f"`alpha` (={alpha!r}) must be a finite number above 0.")
        if ops is None:
            ops = _aug_mix_operations(int(severity), _look(interpolation, border, fill, fill_mask))
        super().__init__(
            as_branches("AugMix", [ops]), int(width), (1, int(depth)), as_number(alpha)
        )
        self.happens_with(probability)
