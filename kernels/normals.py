"""Normal numbers for whole arrays."""

from typing import Any

import numpy as np

from .compilation import kernel
from .noise import hash_index, normal_pair


@kernel
def fill_normals(key: Any, out: Any) -> None:
    """Fill an array with normal numbers of mean 0 and deviation 1; those of a pair are half of the array apart."""
    half = (out.shape[0] + 1) // 2
    first_word = np.uint32(key & np.uint64(0xFFFFFFFF))
    second_word = np.uint32(key >> np.uint64(32))
    first, second = out[:half], out[half:]
    for k in range(second.shape[0]):
        first[k], second[k] = normal_pair(hash_index(k, first_word, second_word))
    for k in range(second.shape[0], half):
        first[k], _ = normal_pair(hash_index(k, first_word, second_word))
