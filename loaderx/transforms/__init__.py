"""Compiled ops on samples, and `@transform` to write more."""

from .authoring import transform as transform
from .colour import Brightness as Brightness
from .colour import Contrast as Contrast
from .colour import Grayscale as Grayscale
from .colour import RandomErasing as RandomErasing
from .colour import Saturation as Saturation
from .labels import OneHot as OneHot
from .mix import CutMix as CutMix
from .mix import MixUp as MixUp
from .spatial import CenterCrop as CenterCrop
from .spatial import Pad as Pad
from .spatial import RandomCrop as RandomCrop
from .spatial import RandomFlip as RandomFlip
from .spatial import RandomResizedCrop as RandomResizedCrop
from .spatial import Resize as Resize
from .transform import Transform as Transform
from .values import Cast as Cast
from .values import Normalize as Normalize
from .values import ToFloat as ToFloat
