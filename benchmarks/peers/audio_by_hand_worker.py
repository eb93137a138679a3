"""NumPy, SciPy, librosa and pyloudnorm by hand as a contestant of the catalogue; see per_image.py for the requests.

Run in the environment of pedalboard, as `python -m benchmarks.peers.audio_by_hand_worker`.
"""

from collections.abc import Callable
from typing import Any

import librosa
import numpy as np
import pyloudnorm
from scipy import fft, signal

from benchmarks.peers import amounts as of
from benchmarks.peers.per_image import Maker, Session
from benchmarks.peers.worker import serve
from benchmarks.rows import Array

Random = np.random.Generator
FACTOR = np.float32(10 ** (of.GAIN / 20))
METER = pyloudnorm.Meter(of.SAMPLE_RATE, filter_class="DeMan")
MEL = librosa.filters.mel(sr=of.SAMPLE_RATE, n_fft=of.N_FFT, n_mels=of.BANDS)


def sections(kind: str, cutoff: Any) -> Array:
    return signal.butter(2, cutoff, kind, fs=of.SAMPLE_RATE, output="sos").astype(np.float32)


LOW, HIGH, BAND = sections("low", of.CUTOFF), sections("high", of.CUTOFF), sections("band", of.BAND)


def filtered(coefficients: Array) -> Callable[[Array], Array]:
    return lambda x: signal.sosfilt(coefficients, x).astype(np.float32)


def mu_law(x: Array) -> Array:
    codes = np.sign(x) * np.log1p((of.LEVELS - 1) * np.minimum(np.abs(x), 1)) / np.log(of.LEVELS)
    return ((codes + 1) / 2 * (of.LEVELS - 1) + 0.5).astype(np.uint8)


def crop(x: Array, random: Random) -> Array:
    start = random.integers(0, len(x) - of.RESAMPLED + 1)
    return x[start : start + of.RESAMPLED]


def power(x: Array) -> Any:
    return np.dot(x, x) / len(x)


def noise_at_snr(x: Array, random: Random) -> Array:
    drawn = random.standard_normal(x.shape, np.float32)
    drawn *= np.float32(np.sqrt(power(x) / 10 ** (of.DECIBELS / 10)))
    drawn += x
    return drawn


def background(recordings: Array, x: Array, random: Random) -> Array:
    row = recordings[random.integers(0, len(recordings))]
    start = random.integers(0, len(row) - len(x) + 1)
    part = row[start : start + len(x)]
    return x + part * np.float32(np.sqrt(power(x) / 10 ** (of.DECIBELS / 10) / power(part)))


def respond(recordings: Array, x: Array, random: Random) -> Array:
    row = recordings[random.integers(0, len(recordings))]
    return signal.oaconvolve(x, row / np.linalg.norm(row))[: len(x)]


def peak_normalize(x: Array) -> Array:
    return x * np.float32(10 ** (of.PEAK / 20) / np.abs(x).max())


def loudness_normalize(x: Array) -> Array:
    return x * np.float32(10 ** ((of.LOUDNESS - METER.integrated_loudness(x)) / 20))


def clip(x: Array) -> Array:
    return np.clip(x, *np.percentile(x, (of.PERCENT / 2, 100 - of.PERCENT / 2))).astype(np.float32)


def time_stretch(x: Array) -> Array:
    made = librosa.effects.time_stretch(x, rate=of.TEMPO, n_fft=of.FRAME)
    return np.pad(made, (0, len(x) - len(made)))


def pitch_shift(x: Array) -> Array:
    return librosa.effects.pitch_shift(
        x, sr=of.SAMPLE_RATE, n_steps=of.SEMITONES, n_fft=of.FRAME, res_type="scipy"
    )


WINDOW = signal.get_window("hann", of.N_FFT).astype(np.float32)


def log_mel(x: Array) -> Array:
    padded = np.pad(x, of.N_FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, of.N_FFT)[:: of.HOP]
    spectrum = fft.rfft(frames * WINDOW, axis=1)
    bands = (spectrum.real**2 + spectrum.imag**2) @ MEL.T
    return np.float32(10) * np.log10(np.maximum(bands, np.float32(1e-10)))


def time_mask(x: Array, random: Random) -> Array:
    width = random.integers(0, of.MASKED + 1)
    start = random.integers(0, len(x) - width + 1)
    out = x.copy()
    out[start : start + width] = 0
    return out


def frequency_mask(x: Array, random: Random) -> Array:
    width = random.integers(0, of.MASKED + 1)
    start = random.integers(0, x.shape[1] - width + 1)
    out = x.copy()
    out[:, start : start + width] = 0
    return out


def scale_rows(x: Array, steps: int) -> Array:
    places = np.clip((np.arange(steps) + 0.5) * len(x) / steps - 0.5, 0, len(x) - 1)
    low = places.astype(int)
    share = (places - low).astype(np.float32)[:, None]
    return x[low] * (1 - share) + x[np.minimum(low + 1, len(x) - 1)] * share


def time_warp(x: Array, random: Random) -> Array:
    centre = random.integers(of.WARP, len(x) - of.WARP)
    place = int(random.integers(centre - of.WARP + 1, centre + of.WARP + 1))
    return np.concatenate([scale_rows(x[:centre], place), scale_rows(x[centre:], len(x) - place)])


def drawn(function: Callable[[Array, Random], Array]) -> Maker:
    """Return a maker for a function that draws: each thread has a generator of its own."""

    def maker() -> Callable[[Array], Array]:
        random = np.random.default_rng()
        return lambda x: function(x, random)

    return maker


def fixed(function: Callable[[Array], Array]) -> Maker:
    return lambda: function


MAKERS: dict[str, Maker] = {
    "Gain": fixed(lambda x: x * FACTOR),
    "Polarity": fixed(np.negative),
    "Reverse": fixed(lambda x: x[::-1]),
    "MuLaw": fixed(mu_law),
    "TimeShift": drawn(lambda x, random: np.roll(x, random.integers(-len(x) // 2, len(x) // 2))),
    "RandomCrop1D": drawn(crop),
    "NoiseAtSNR": drawn(noise_at_snr),
    "PeakNormalize": fixed(peak_normalize),
    "LoudnessNormalize": fixed(loudness_normalize),
    "ClippingDistortion": fixed(clip),
    "LowPass": fixed(filtered(LOW)),
    "HighPass": fixed(filtered(HIGH)),
    "BandPass": fixed(filtered(BAND)),
    "Resample": fixed(lambda x: signal.resample_poly(x, 1, 2)),
    "TimeStretch": fixed(time_stretch),
    "PitchShift": fixed(pitch_shift),
    "LogMel": fixed(log_mel),
    "TimeMask": drawn(time_mask),
    "FreqMask": drawn(frequency_mask),
    "TimeWarp": drawn(time_warp),
}


class Sounds(Session):
    """Session whose ops draw recordings from the files of the run."""

    def open(self, files: dict[str, str]) -> dict[str, Any]:
        """Load all samples."""
        noises, rooms = np.load(files["noises"]), np.load(files["rooms"])
        self.makers = {
            **self.makers,
            "BackgroundNoise": drawn(lambda x, random: background(noises, x, random)),
            "ImpulseResponse": drawn(lambda x, random: respond(rooms, x, random)),
        }
        return super().open(files)


if __name__ == "__main__":
    serve(Sounds(MAKERS))
