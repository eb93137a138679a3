"""Amounts of each op of the catalogue: the same numbers for all contestants."""

import math

import numpy as np

from benchmarks.rows import Array

SIZE = 224  # pixels of the images on which an op is measured
LARGE = 256  # pixels of the images at the beginning of a pipeline

# Fixed, so that all contestants do the same work and results can be compared.
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
BOX = (256, 320)  # of LetterBox
SHIFT = 20  # of colours, in levels
MULTIPLIER = 1.2
MEDIANS = (3, 5)
LINE = 7  # pixels of MotionBlur
SLOPE = 30.0  # of it, in degrees
DISC = 5  # pixels of the radius of Defocus
DOWNSCALE = 0.25
QUALITY = 75
LENS = 0.3  # of OpticalDistortion

# Amounts of random ops.
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
OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of RandomIoUCrop
SIDES_OF_PART = (0.3, 1.0)  # of it, in sides of the image
RATIO_OF_PART = (0.5, 2.0)
TRIALS = 40
LEAST_SIDE = 10.0  # pixels of boxes that are kept
CELLS = 5  # of GridDistortion, along each side
STRETCHED = 0.3
HOLES = (1, 8)
HOLE = (0.05, 0.2)
BRIGHTNESS = 0.2
FANCY = 0.1
PHOTONS = (12.0, 60.0)
SHOTS = (255 / PHOTONS[1], 255 / PHOTONS[0])  # levels of one photon
COLOR_SHIFT, INTENSITY = (0.01, 0.05), (0.1, 0.5)
CENTER = (0.25, 0.75)  # of Mosaic, in the height and width
PASTED = 0.5  # of the objects of CopyPaste
JITTER_SCALE = (0.5, 2.0)
FOG, FOG_ALPHA = (0.3, 1.0), 0.08
SHADOW, SHADOWS = 0.5, (1, 2)

# Amounts of audio ops.
SAMPLE_RATE = 16000
MOMENTS = 3 * SAMPLE_RATE
NOISES, ROOMS = 16, 16  # recordings
NOISE_MOMENTS, ROOM_MOMENTS = 5 * SAMPLE_RATE, SAMPLE_RATE // 2
FRAMES, BANDS = 300, 80  # of a spectrogram
SEMITONES, TEMPO, FRAME = 2.0, 1.25, 2048
CUTOFF, BAND = 1000.0, (500.0, 1500.0)
LOUDNESS, PEAK, GAIN = -20.0, -1.0, -6.0
PERCENT = 10.0
RESAMPLED = MOMENTS // 2
WARP, MASKED = 40, 30
DECIBELS = 10.0
LEVELS = 256
N_FFT, HOP = 400, 160

# Amounts of the pipelines.
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

SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]], np.float32)


def motion_line() -> Array:
    """Return the weights of MotionBlur: a line of one pixel in every column."""
    weights = np.zeros((LINE, LINE), np.float32)
    middle = LINE // 2
    for step in range(-middle, middle + 1):
        down = -math.tan(math.radians(SLOPE)) * step
        weights[middle + math.floor(down + 0.5), middle + step] = 1 / LINE
    return weights


def disc() -> Array:
    """Return the weights of Defocus."""
    rows, columns = np.mgrid[-DISC : DISC + 1, -DISC : DISC + 1]
    inside = (rows**2 + columns**2 <= DISC**2).astype(np.float32)
    return inside / inside.sum()


def affine_matrix() -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return the affine map of (x, y) from input to output: shear, scale and turn about the centre, move.

    The order is that of torchvision, but it turns counter-clockwise.
    """
    angle, shear = math.radians(-AFFINE_DEGREES), math.tan(math.radians(SHEAR))
    a, c = AFFINE_SCALE * math.cos(angle), AFFINE_SCALE * math.sin(angle)
    b, d = -c - a * shear, a - c * shear
    centre, move = (SIZE - 1) / 2, TRANSLATE * SIZE
    return (
        (a, b, centre + move - a * centre - b * centre),
        (c, d, centre + move - c * centre - d * centre),
    )
