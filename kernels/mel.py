"""Mel spectrograms: the power of a signal in bands that are as wide as human hearing resolves them."""

from typing import Any

import numpy as np

from .compilation import kernel
from .stft import FRAMES, LANES, load_frames, split_spectra


@kernel
def mel_power(
    x: Any,
    hop: Any,
    before: Any,
    squared: Any,
    window: Any,
    factors: Any,
    twiddles: Any,
    firsts: Any,
    ends: Any,
    weights: Any,
    memory: Any,
    bins: Any,
    powers: Any,
    sums: Any,
    out: Any,
) -> None:
    """Set out[frame, band] to the weighted sum of the magnitudes of the spectrum, or of their squares, over the band.

    Frame 0 begins `before` moments before x, which is mirrored at its ends. Band b has the frequencies from firsts[b]
    to ends[b] and the weights from weights[ends of the bands before] on.
    """
    size, frames = window.shape[0], out.shape[0]
    for first in range(0, frames, FRAMES):
        count = min(frames - first, FRAMES)
        start = first * hop - before
        pair = load_frames(x, start, hop, count, True, window, factors, twiddles, memory)
        for k in range(size // 2 + 1):
            split_spectra(memory[pair], memory[pair + 1], size, k, bins)
            of_bin = powers[k]
            for lane in range(LANES):
                of_bin[lane] = bins[0, lane] * bins[0, lane] + bins[1, lane] * bins[1, lane]
            for lane in range(LANES):
                of_bin[LANES + lane] = bins[2, lane] * bins[2, lane] + bins[3, lane] * bins[3, lane]
            if not squared:
                for lane in range(FRAMES):
                    of_bin[lane] = np.sqrt(of_bin[lane])
        at = 0
        for band in range(out.shape[1]):
            for lane in range(FRAMES):
                sums[lane] = np.float32(0)
            for k in range(firsts[band], ends[band]):
                weight, of_bin = weights[at], powers[k]
                at += 1
                for lane in range(FRAMES):
                    sums[lane] += weight * of_bin[lane]
            for lane in range(count):
                out[first + lane, band] = sums[lane]
