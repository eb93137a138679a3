"""How much of each op of the catalogue: the same numbers for all contestants."""

import math

SIZE = 224  # of the images an op is measured on
LARGE = 256  # of the images a pipeline begins with

# Fixed, so that everybody does the same work and results can be compared.
DEGREES = 15.0
AFFINE_DEGREES = 10.0
TRANSLATE = 0.1  # of the width, and of the height
AFFINE_SCALE = 0.9
SHEAR = 5.0
SCALE = 1.25
FACTOR = 1.4  # brightness, contrast, saturation
HUE = 0.1  # of a turn
GAMMA = 0.7
THRESHOLD = 0.5  # of white
BITS = 4
SHARPNESS = 1.8
SIGMA = 1.5
KERNEL = 9
CLIP = 2.0
TILES = 8
CROP = 192
PADDING = 16
RESIZED = 160
SIDES = 2.0  # of the canvas, in sides of the image

# Of what is drawn.
JITTER = 0.4
DISTORTION = 0.2  # how far corners move, as a part of half the image
ELASTIC = 8.0  # how far knots move, in pixels
SPACING = 32  # between knots, in pixels
NOISE = 0.1  # of white
SALTED = 0.05
ERASED = (0.02, 0.33)
ERASED_RATIO = (0.3, 3.3)
GRID = 56  # pixels from one square of a GridMask to the next
GRID_HOLE = 28  # pixels of its side
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)

# Of the pipelines.
SIMCLR_JITTER = (0.8, 0.8, 0.8, 0.2)
SIMCLR_JITTERED = 0.8
SIMCLR_GREY = 0.2
SIMCLR_BLURRED = 0.5
SIMCLR_SIGMA = (0.1, 2.0)
SIMCLR_KERNEL = 23
NUMBER, MAGNITUDE = 2, 9
SEGMENTATION_AREA = (0.25, 1.0)
SEGMENTATION_DEGREES = 10.0
SEGMENTATION_JITTER = (0.4, 0.4, 0.4, 0.1)
SEGMENTATION_SIGMA = (0.1, 2.0)
SEGMENTATION_KERNEL = 9
SEGMENTATION_BLURRED = 0.5


def affine_matrix() -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """The fixed affine map, from the input's (x, y) to the output's: shear, scale and turn about the centre, move.

    As torchvision composes it, but turning counter-clockwise.
    """
    angle, shear = math.radians(-AFFINE_DEGREES), math.tan(math.radians(SHEAR))
    a, c = AFFINE_SCALE * math.cos(angle), AFFINE_SCALE * math.sin(angle)
    b, d = -c - a * shear, a - c * shear
    centre, move = (SIZE - 1) / 2, TRANSLATE * SIZE
    return (
        (a, b, centre + move - a * centre - b * centre),
        (c, d, centre + move - c * centre - d * centre),
    )
