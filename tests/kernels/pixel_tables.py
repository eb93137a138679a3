"""Tables of windows, small images, and outputs with guards around them, for the tests of windows and resizing."""

import numpy as np

TABLES = {
    "all of it": [0, 1, 2, 3, 4],
    "a part": [2, 3],
    "one": [4],
    "backwards": [4, 3, 2],
    "fill before": [-1, -1, 0, 1],
    "fill after": [3, 4, -1],
    "fill on both sides": [-1, 1, 2, 3, -1, -1],
    "fill only": [-1, -1],
    "fill in the middle": [1, -1, 2, 3, 4],
    "one after the other twice": [0, 1, 1, 2],
    "mirrored at the edge": [1, 0, 1, 2, 3, 4, 3],
    "gaps": [0, 2, 4],
}


ROWS_AND_CHANNELS = [("a part", 1), ("fill on both sides", 3), ("gaps", 2), ("backwards", 4)]


def image(channels, dtype, height=5, width=5):
    values = np.random.default_rng(channels).uniform(0, 256, (height, width, channels))
    return values.astype(dtype)


def guarded(shape, dtype):
    """Return an array inside of a larger one whose other elements no kernel may write."""
    size = int(np.prod(shape))
    memory = np.full(size + 32, 77, dtype)
    return memory, memory[16 : 16 + size].reshape(shape)


def check_guard(memory, size):
    np.testing.assert_array_equal(memory[:16], np.full(16, 77, memory.dtype))
    np.testing.assert_array_equal(memory[16 + size :], np.full(16, 77, memory.dtype))


def scaling(channels, width):
    repeats = max(width, 4)
    scale = np.linspace(0.5, 2, channels, dtype=np.float32)
    return np.tile(scale, repeats), np.tile(np.linspace(-1, 1, channels, dtype=np.float32), repeats)
