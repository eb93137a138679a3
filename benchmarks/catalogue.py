"""Catalogue: every image op alone, and pipelines, against AlbumentationsX, OpenCV and NumPy by hand, DALI and FFCV."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.environments import interpreter
from benchmarks.harness import (
    Comparison,
    Contestant,
    Peer,
    in_new_process,
    interleave,
    reason,
    status,
)
from benchmarks.images import MEAN, STD
from benchmarks.peers import amounts as of
from benchmarks.peers.loaderx_worker import CHAINS
from benchmarks.rows import Array
from loaderx import transforms as T  # noqa: N812 - as its users write it
from loaderx.compiler.entries import chains
from loaderx.sources.row_addresses import addresses_of_rows
from loaderx.spec import Spec

IMAGES = 64
REPEATS = 7
SECONDS = 0.15  # seconds of work for one figure
FIRST_REPEATS = 3
THREADS = (1, 2)

LOADERX = "loaderx"
ALBUMENTATIONS, BY_HAND, DALI, FFCV = "albumentationsx", "by hand", "DALI", "FFCV"
PEDALBOARD = "pedalboard"
# The environment and the worker of each peer.
PEERS = {
    ALBUMENTATIONS: ("albumentations", "albumentations_worker"),
    BY_HAND: ("albumentations", "by_hand_worker"),
    DALI: ("dali", "dali_catalogue_worker"),
    FFCV: ("ffcv", "ffcv_catalogue_worker"),
}
SOUND_PEERS = {
    PEDALBOARD: ("audio", "pedalboard_worker"),
    BY_HAND: ("audio", "audio_by_hand_worker"),
    DALI: ("dali", "dali_catalogue_worker"),
}
Workers: TypeAlias = Mapping[str, tuple[str, str]]
# The note of a peer without the op.
LACKING = "does not have it"
# If numbers are drawn, mean and standard deviation over all images are compared. This many grey levels are three
# standard deviations of the difference if the brightness of images is drawn.
MOMENTS = 15.0
LARGE = (str(of.LARGE),)


@dataclass(frozen=True)
class Case:
    """Workload that all contestants know by its name."""

    name: str
    transforms: Callable[[], Any]
    # The largest difference of results in grey levels, for this share of the values. None: contestants draw different
    # numbers, so only MOMENTS are compared.
    tolerance: float | None = None
    share: float = 1.0
    # Peers that define the op in another way, and how: they are measured, but their results are not compared.
    differs: Mapping[str, str] = field(default_factory=dict)
    # The arrays of `Data` from which a sample is taken.
    inputs: tuple[str, ...] = (str(of.SIZE),)
    # One grey level, if values are floats.
    level: float = 1 / 255 / min(STD)

    def compare(self, ours: Array, theirs: Array) -> None:
        """Raise if the results of a contestant differ from ours."""
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise ValueError(
                f"gives {theirs.dtype}{list(theirs.shape[1:])}, not {ours.dtype}{list(ours.shape[1:])}"
            )
        level = 1.0 if ours.dtype == np.uint8 else self.level
        if self.tolerance is not None:
            apart = np.abs(ours.astype(np.float32) - theirs.astype(np.float32)) / level
            alike = float(np.mean(apart <= self.tolerance + 1e-3))
            if alike < self.share:
                raise ValueError(
                    f"only {alike:.1%} of its values are within {self.tolerance:g} of ours"
                )
        else:
            for moment in (np.mean, np.std):
                mine, other = (float(moment(x, dtype=np.float64)) for x in (ours, theirs))
                levels = abs(mine - other) / level
                if levels > MOMENTS:
                    raise ValueError(f"its {moment.__name__} is {levels:.0f} levels off ours")


def normalize() -> Any:
    return T.Normalize(MEAN, STD)


def resized_crop(area: tuple[float, float]) -> Any:
    """Crop and resize without antialiasing, which the others do not have."""
    return T.RandomResizedCrop(of.SIZE, scale=area, ratio=of.RATIO, antialias=False)


def antialiased_crop() -> Any:
    return [T.RandomResizedCrop(of.RESIZED, scale=of.AREA, ratio=of.RATIO)]


def median(size: int) -> Any:
    return [T.MedianBlur(size)]


def exactly(value: float) -> tuple[float, float]:
    """Return a range of one number."""
    return value, value


# At the border, where half a pixel is outside, definitions differ a little.
WARPED: dict[str, Any] = {"tolerance": 1, "share": 0.99}
LINEAR_HUE = "turns colours linearly, not along the circle of hues"
OPS = (
    Case("Rotate", lambda: [T.Rotate(exactly(of.DEGREES))], **WARPED),
    Case(
        "Affine",
        lambda: [
            T.Affine(
                degrees=exactly(of.AFFINE_DEGREES),
                translate_x=exactly(of.TRANSLATE),
                translate_y=exactly(of.TRANSLATE),
                scale=exactly(of.AFFINE_SCALE),
                shear_x=exactly(of.SHEAR),
            )
        ],
        differs={ALBUMENTATIONS: "shears after turning"},
        **WARPED,
    ),
    Case(
        "Perspective",
        lambda: [T.Perspective(of.DISTORTION)],
        differs={ALBUMENTATIONS: "corners move outwards"},
    ),
    Case("Rot90", lambda: [T.Rot90()]),
    Case("Transpose", lambda: [T.Transpose(1.0)], tolerance=0),
    Case("RandomScale", lambda: [T.RandomScale(exactly(of.SCALE))], **WARPED),
    Case(
        "ElasticDeform",
        lambda: [T.ElasticDeform(of.ELASTIC, of.SPACING, border="reflect")],
        differs={
            ALBUMENTATIONS: "a field from a grid without splines",
            BY_HAND: "OpenCV's cubic, not B-splines",
        },
    ),
    Case("ColorJitter", lambda: [T.ColorJitter(*[of.JITTER] * 4)]),
    Case(
        "Hue",
        lambda: [T.Hue(exactly(of.HUE))],
        tolerance=4,
        differs={DALI: LINEAR_HUE},
    ),
    Case("Brightness", lambda: [T.Brightness(exactly(of.FACTOR))], tolerance=1),
    Case("Contrast", lambda: [T.Contrast(exactly(of.FACTOR))], tolerance=1),
    Case("Saturation", lambda: [T.Saturation(exactly(of.FACTOR))], tolerance=1),
    Case("Grayscale", lambda: [T.Grayscale()], tolerance=1),
    Case("Gamma", lambda: [T.Gamma(exactly(of.GAMMA))], tolerance=1),
    Case("Solarize", lambda: [T.Solarize(of.THRESHOLD)], tolerance=0),
    Case("Posterize", lambda: [T.Posterize(of.BITS)], tolerance=0),
    Case("Invert", lambda: [T.Invert()], tolerance=0),
    Case(
        "AutoContrast",
        lambda: [T.AutoContrast()],
        tolerance=1,
        differs={ALBUMENTATIONS: "its histogram leaves out white"},
    ),
    Case(
        "Equalize",
        lambda: [T.Equalize()],
        tolerance=1,
        differs={DALI: "OpenCV's formula, not Pillow's"},
    ),
    Case(
        "Sharpness",
        lambda: [T.Sharpness(exactly(of.SHARPNESS))],
        tolerance=1,
        share=0.98,  # Pillow leaves the border unchanged
        differs={ALBUMENTATIONS: "another kernel"},
    ),
    Case("GaussianBlur", lambda: [T.GaussianBlur(of.SIGMA, of.KERNEL)], tolerance=1),
    Case("GaussianNoise", lambda: [T.GaussianNoise(of.NOISE)]),
    Case("SaltPepper", lambda: [T.SaltPepper(of.SALTED)]),
    Case("ChannelShuffle", lambda: [T.ChannelShuffle(1.0)]),
    Case("ChannelDrop", lambda: [T.ChannelDrop(1.0)]),
    Case(
        "CLAHE",
        lambda: [T.CLAHE(of.CLIP, of.TILES)],
        differs=dict.fromkeys(PEERS, "of L in Lab, not of the grey"),
    ),
    Case("GridMask", lambda: [T.GridMask(of.GRID / of.SIZE, 1 - of.GRID_HOLE / of.GRID)]),
    Case(
        "RandomErasing",
        lambda: [T.RandomErasing(1.0, scale=of.ERASED, ratio=of.ERASED_RATIO)],
    ),
    Case("RandomCrop", lambda: [T.RandomCrop(of.CROP)]),
    Case("CenterCrop", lambda: [T.CenterCrop(of.CROP)], tolerance=0),
    Case("Pad", lambda: [T.Pad(of.PADDING)], tolerance=0),
    Case("RandomFlip", lambda: [T.RandomFlip(1.0)], tolerance=0),
    Case("Resize", lambda: [T.Resize(of.RESIZED, antialias=False)], tolerance=1),
    Case("RandomResizedCrop", lambda: [resized_crop(of.AREA)]),
    Case("Normalize", lambda: [normalize()], tolerance=0.01),
    Case("ZoomOut", lambda: [T.ZoomOut(of.SIZE, 1.0, sides=exactly(of.SIDES))]),
    Case("ToFloat", lambda: [T.ToFloat()], tolerance=0.01),
    Case("Cast", lambda: [T.Cast("float32")], tolerance=0),
    Case("LetterBox", lambda: [T.LetterBox(of.BOX)], tolerance=1),
    Case("PadIfNeeded", lambda: [T.PadIfNeeded(of.LARGE, of.LARGE)], tolerance=0),
    Case(
        "Resize antialias",
        lambda: [T.Resize(of.RESIZED)],
        tolerance=1,
        share=0.999,
        differs={ALBUMENTATIONS: "means of areas"},
    ),
    Case("Resize area", lambda: [T.Resize(of.RESIZED, interpolation="area")], tolerance=1),
    Case(
        "Resize bicubic",
        lambda: [T.Resize(of.LARGE, interpolation="bicubic")],
        tolerance=1,
        share=0.999,
        differs={ALBUMENTATIONS: "OpenCV's cubic"},
    ),
    Case(
        "Resize lanczos",
        lambda: [T.Resize(of.LARGE, interpolation="lanczos")],
        tolerance=1,
        share=0.99,
        differs={ALBUMENTATIONS: "OpenCV's, of eight pixels"},
    ),
    Case(
        "RandomResizedCrop antialias",
        antialiased_crop,
        inputs=LARGE,
        differs={ALBUMENTATIONS: "means of areas"},
    ),
    # Ours mixes by triangles, the others by means of areas.
    Case("RandomResizedCrop by area", antialiased_crop, inputs=LARGE),
    Case("FiveCrop", lambda: [T.FiveCrop(of.CROP)], tolerance=0),
    Case("TenCrop", lambda: [T.TenCrop(of.CROP)], tolerance=0),
    Case("Mosaic", lambda: [T.Mosaic(center=of.CENTER)]),
    Case(
        "CopyPaste",
        lambda: {("image", "mask"): [T.CopyPaste(of.PASTED)]},
        inputs=(*LARGE, "objects"),
    ),
    Case(
        "RandomIoUCrop",
        lambda: {("image", "boxes"): [T.RandomIoUCrop(of.CROP, antialias=False)]},
        inputs=(str(of.SIZE), "boxes"),
    ),
    Case(
        "BoxSafeCrop",
        lambda: {("image", "boxes"): [T.BoxSafeCrop(of.CROP, antialias=False)]},
        inputs=(str(of.SIZE), "boxes"),
    ),
    Case(
        "SanitizeBoxes",
        lambda: {("image", "boxes"): [T.SanitizeBoxes(of.LEAST_SIDE)]},
        tolerance=0,
        inputs=(str(of.SIZE), "boxes"),
    ),
    Case("MixUp", lambda: [T.MixUp(1.0)], inputs=("floats",), level=1 / 255),
    Case("CutMix", lambda: [T.CutMix(1.0)], inputs=("floats",), level=1 / 255),
    Case("D4", lambda: [T.D4()]),
    Case("ScaleJitter", lambda: [T.ScaleJitter(of.SIZE, of.JITTER_SCALE)]),
    Case(
        "GridDistortion",
        lambda: [T.GridDistortion(of.CELLS, of.STRETCHED)],
        differs={ALBUMENTATIONS: "cells of whole pixels"},
    ),
    Case(
        "OpticalDistortion",
        lambda: [T.OpticalDistortion(exactly(of.LENS))],
        **WARPED,
        differs={ALBUMENTATIONS: "its centre is half a pixel lower"},
    ),
    Case("CoarseDropout", lambda: [T.CoarseDropout(of.HOLES, of.HOLE, of.HOLE)]),
    Case(
        "RandomBrightnessContrast",
        lambda: [
            T.RandomBrightnessContrast(exactly(of.BRIGHTNESS), exactly(1 + of.BRIGHTNESS)),
        ],
        tolerance=1,
    ),
    Case("RGBShift", lambda: [T.RGBShift(exactly(of.SHIFT / 255))], tolerance=0),
    Case("Sepia", lambda: [T.Sepia()], tolerance=1),
    Case("FancyPCA", lambda: [T.FancyPCA(of.FANCY)]),
    Case("PhotometricDistort", lambda: [T.PhotometricDistort()]),
    Case(
        "MultiplicativeNoise",
        lambda: [T.MultiplicativeNoise(exactly(of.MULTIPLIER))],
        tolerance=1,
    ),
    Case(
        "MultiplicativeNoise of values",
        lambda: [T.MultiplicativeNoise(per_channel=True, elementwise=True)],
    ),
    Case(
        "ShotNoise",
        lambda: [T.ShotNoise(of.PHOTONS)],
        differs={ALBUMENTATIONS: "in linear light"},
    ),
    Case("ISONoise", lambda: [T.ISONoise(of.COLOR_SHIFT, of.INTENSITY)]),
    Case(
        "MotionBlur",
        lambda: [T.MotionBlur(of.LINE, of.SLOPE)],
        tolerance=1,
        differs={ALBUMENTATIONS: "a line of other pixels"},
    ),
    *(
        Case(f"MedianBlur {size}", partial(median, size), tolerance=0, share=0.98)
        for size in of.MEDIANS
    ),
    Case("Defocus", lambda: [T.Defocus(of.DISC)], tolerance=1),
    Case("Downscale", lambda: [T.Downscale(of.DOWNSCALE)], tolerance=0),
    Case(
        "JPEGCompression",
        lambda: [T.JPEGCompression(of.QUALITY)],
        tolerance=6,
        share=0.98,
        differs={ALBUMENTATIONS: "mistakes red for blue"},
    ),
    Case("Fog", lambda: [T.Fog(of.FOG, of.FOG_ALPHA)]),
    Case("Rain", lambda: [T.Rain()]),
    Case("Shadow", lambda: [T.Shadow(of.SHADOW, of.SHADOWS)]),
    Case(
        "AutoAugment", lambda: [T.AutoAugment()], differs={DALI: "magnitudes drawn in another way"}
    ),
    Case("TrivialAugment", lambda: [T.TrivialAugment()], differs={DALI: "other ranges of amounts"}),
    Case("AugMix", lambda: [T.AugMix()]),
)


def recordings(rows: int, moments: int, seed: int, fading: float = 0.0) -> Array:
    """Return sounds with the spectrum of speech and music: the higher, the weaker; `fading` is in moments."""
    random = np.random.default_rng(seed)
    frequencies = np.maximum(np.fft.rfftfreq(moments, 1 / of.SAMPLE_RATE), 50)
    spectra = np.fft.rfft(random.normal(size=(rows, moments))) / frequencies
    sounds = np.fft.irfft(spectra, moments)
    sounds *= np.exp(-np.arange(moments) / fading) if fading else 1.0
    return (0.1 * sounds / sounds.std(axis=1, keepdims=True)).astype(np.float32)


def noises() -> Array:
    return recordings(of.NOISES, of.NOISE_MOMENTS, 1)


def rooms() -> Array:
    return recordings(of.ROOMS, of.ROOM_MOMENTS, 2, fading=of.ROOM_MOMENTS / 8)


def sound_case(name: str, op: Callable[[], Any], inputs: str = "sounds", **options: Any) -> Case:
    """Return a case of sounds, with a thousandth as one level."""
    return Case(name, lambda: [op()], inputs=(inputs,), **{"level": 1e-3, **options})


VOCODERS = {
    PEDALBOARD: "Rubber Band, which sounds better",
    BY_HAND: "ends are padded in another way",
}
SOUNDS = (
    sound_case("Gain", lambda: T.Gain(of.GAIN), tolerance=0.01),
    sound_case("Polarity", lambda: T.Polarity(1.0), tolerance=0),
    sound_case("Reverse", lambda: T.Reverse(1.0), tolerance=0),
    sound_case("MuLaw", lambda: T.MuLaw(of.LEVELS), tolerance=1),
    sound_case("TimeShift", lambda: T.TimeShift(0.5)),
    sound_case("RandomCrop1D", lambda: T.RandomCrop1D(of.RESAMPLED)),
    sound_case("NoiseAtSNR", lambda: T.NoiseAtSNR(of.DECIBELS)),
    sound_case("BackgroundNoise", lambda: T.BackgroundNoise(noises(), of.DECIBELS)),
    sound_case("ImpulseResponse", lambda: T.ImpulseResponse(rooms())),
    sound_case("PeakNormalize", lambda: T.PeakNormalize(of.PEAK), tolerance=0.01),
    sound_case(
        "LoudnessNormalize",
        lambda: T.LoudnessNormalize(of.LOUDNESS, sample_rate=of.SAMPLE_RATE),
        tolerance=1,
    ),
    sound_case("ClippingDistortion", lambda: T.ClippingDistortion(of.PERCENT), tolerance=0.1),
    sound_case(
        "LowPass",
        lambda: T.LowPass(of.CUTOFF, sample_rate=of.SAMPLE_RATE),
        tolerance=0.1,
    ),
    sound_case(
        "HighPass",
        lambda: T.HighPass(of.CUTOFF, sample_rate=of.SAMPLE_RATE),
        tolerance=0.1,
    ),
    sound_case(
        "BandPass",
        lambda: T.BandPass(of.CUTOFF, 1.0, sample_rate=of.SAMPLE_RATE),
        tolerance=0.1,
    ),
    sound_case(
        "Resample",
        lambda: T.Resample(of.RESAMPLED),
        differs={
            DALI: "its first moments are at the same time, and another window",
            BY_HAND: "its first moments are at the same time",
        },
    ),
    sound_case("TimeStretch", lambda: T.TimeStretch(of.TEMPO), differs=VOCODERS),
    sound_case("PitchShift", lambda: T.PitchShift(of.SEMITONES), differs=VOCODERS),
    sound_case(
        "LogMel",
        lambda: T.LogMel(sample_rate=of.SAMPLE_RATE),
        tolerance=0.1,
        share=0.99,
        level=1.0,  # decibels
    ),
    sound_case("TimeMask", lambda: T.TimeMask(of.MASKED), "spectra"),
    sound_case("FreqMask", lambda: T.FreqMask(of.MASKED), "spectra"),
    sound_case("TimeWarp", lambda: T.TimeWarp(of.WARP), "spectra"),
)


def simclr() -> list[Any]:
    return CHAINS["simclr"]


def rand_augment() -> list[Any]:
    return [
        resized_crop(of.AREA),
        T.RandomFlip(),
        T.RandAugment(of.NUMBER, of.MAGNITUDE),
        normalize(),
    ]


def segmentation() -> dict[Any, list[Any]]:
    blur = T.GaussianBlur(of.SEGMENTATION_SIGMA, of.SEGMENTATION_KERNEL)
    return {
        ("image", "mask"): [
            resized_crop(of.SEGMENTATION_AREA),
            T.RandomFlip(),
            T.Rotate(of.SEGMENTATION_DEGREES),
        ],
        "image": [
            T.ColorJitter(*of.SEGMENTATION_JITTER),
            T.Maybe(of.SEGMENTATION_BLURRED, blur),
            normalize(),
        ],
    }


OWN_OPS = {
    ALBUMENTATIONS: "has no RandAugment: SomeOf with the same ops",
    DALI: "other ranges of amounts",
}
PIPELINES = (
    Case("SimCLR", simclr, inputs=LARGE, differs={DALI: LINEAR_HUE}),
    Case("RandAugment", rand_augment, inputs=LARGE, differs=OWN_OPS),
    Case("segmentation", segmentation, inputs=(*LARGE, "masks"), differs={DALI: LINEAR_HUE}),
)


def photographs(size: int, count: int = IMAGES, seed: int = 0) -> Array:
    """Return images with the spectrum of photographs, correlated channels, and objects with edges in front."""
    random = np.random.default_rng(seed)
    down, across = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    amplitude = 1 / np.maximum(np.hypot(down, across), 1 / size) ** 1.2
    rows, columns = np.mgrid[:size, :size] / size
    images = np.empty((count, size, size, 3), np.uint8)
    for image in images:
        phases = np.exp(2j * np.pi * random.random((4, *amplitude.shape)))
        fields = np.fft.irfft2(phases * amplitude, s=(size, size))
        fields /= fields.std(axis=(1, 2), keepdims=True)
        scene = (
            random.uniform(90, 150)
            + 40 * fields[0][..., None]
            + 14 * np.moveaxis(fields[1:], 0, -1)
        )
        for _ in range(6):
            middle, radius = random.random(2), random.uniform(0.04, 0.2, 2)
            inside = ((rows - middle[0]) / radius[0]) ** 2 + (
                (columns - middle[1]) / radius[1]
            ) ** 2 < 1
            scene[inside] = 0.4 * scene[inside] + 0.6 * random.uniform(0, 255, 3)
        image[...] = np.clip(scene, 0, 255)
    return images


def objects(size: int, count: int = IMAGES, seed: int = 1) -> Array:
    """Return masks with six objects each, as large as those of `photographs`."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size] / size
    masks = np.zeros((count, size, size), np.uint8)
    for mask in masks:
        for number in range(1, 7):
            middle, radius = random.random(2), random.uniform(0.04, 0.2, 2)
            down, across = (rows - middle[0]) / radius[0], (columns - middle[1]) / radius[1]
            mask[down**2 + across**2 < 1] = number
    return masks


def boxes_of(masks: Array) -> Array:
    """Return the boxes around the six objects of masks: left, top, right, bottom; zeros for one that is hidden."""
    boxes = np.zeros((len(masks), 6, 4), np.float32)
    for mask, found in zip(masks, boxes, strict=True):
        for number, box in enumerate(found, 1):
            rows, columns = np.nonzero(mask == number)
            if len(rows):
                box[:] = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    return boxes


class Data:
    """Samples of a run, in memory and in files for the peers, and recordings that ops draw from."""

    def __init__(self, folder: Path) -> None:
        large = photographs(of.LARGE)
        self.samples = {
            str(of.SIZE): photographs(of.SIZE),
            str(of.LARGE): large,
            "masks": (large[..., 0] // 32).astype(np.uint8),
            "objects": objects(of.LARGE),
            "boxes": boxes_of(objects(of.SIZE)),
            "floats": large.astype(np.float32) * np.float32(1 / 255),
            "sounds": recordings(IMAGES, of.MOMENTS, 0),
            "spectra": recordings(IMAGES, of.FRAMES * of.BANDS, 3).reshape(-1, of.FRAMES, of.BANDS),
            "noises": noises(),
            "rooms": rooms(),
        }
        self.folder = folder
        self.files = {name: str(folder / f"{name}.npy") for name in self.samples}
        for name, samples in self.samples.items():
            np.save(self.files[name], samples)


class Compiled:
    """Chains of a case, called in threads that each have their part of a batch, into preallocated arrays."""

    def __init__(self, case: Case, data: Data, stack: ExitStack) -> None:
        transforms = case.transforms()
        columns = [data.samples[name] for name in case.inputs]
        second = "boxes" if "boxes" in case.inputs else "mask"
        given = dict(zip(("image", second), columns, strict=False))
        fields = {
            name: (Spec(rows.shape[1:], rows.dtype), partial(np.array, rows[0]))
            for name, rows in given.items()
        }
        self.rows = given
        self.chains = chains(transforms, fields, 0)
        self.outs = {
            name: np.ones((IMAGES, *chain.output.shape), chain.output.dtype)
            for name, chain in self.chains.items()
        }
        self.pools = {
            threads: stack.enter_context(ThreadPoolExecutor(threads)) for threads in THREADS
        }
        self.position = 0

    def result(self) -> Array:
        """Return the results for all samples; several views of a sample are next to one another."""
        self.run(1, 1)
        if "image" in self.outs:
            return self.outs["image"].copy()
        return np.stack(list(self.outs.values()), axis=1)

    def run(self, threads: int, rounds: int) -> float:
        """Return seconds for `rounds` times all samples; every time other numbers are drawn."""
        first = self.position
        self.position += rounds * IMAGES

        def work(thread: int) -> None:
            part = slice(IMAGES * thread // threads, IMAGES * (thread + 1) // threads)
            places = np.arange(first, first + IMAGES, dtype=np.int64)[part]
            boxes = self.rows["boxes"][part] if "boxes" in self.rows else None
            located = {
                name: addresses_of_rows(rows[part], boxes=boxes) for name, rows in self.rows.items()
            }
            for number in range(rounds):
                batch = first + number * IMAGES
                for name, chain in self.chains.items():
                    self._run(chain, part.start, batch, places, located, self.outs[name][part])
                places += IMAGES

        started = time.perf_counter()
        list(self.pools[threads].map(work, range(threads)))
        return time.perf_counter() - started

    def _run(
        self, chain: Any, place: int, batch: int, places: Any, located: Any, out: Array
    ) -> None:
        """Run a part of a batch. An op that needs the whole batch is the only one of its chain: a second phase."""
        last = len(chain.phases) - 1
        samples = self.rows[chain.origin] if last else None
        field = chain.phases[last].masks
        masks = None if field is None else self.rows[field]
        chain.run(last, place, batch, places, located[chain.origin], samples, out, masks=masks)


class Rivals:
    """Peers, opened at their first request, and again after one ended."""

    def __init__(self, data: Data, stack: ExitStack, peers: Workers) -> None:
        self.data = data
        self.stack = stack
        self.names = list(peers)
        self.workers = peers
        self.open: dict[str, tuple[Peer, list[str]]] = {}
        self.absent: dict[str, str] = {}

    def ask(self, name: str, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a peer; close a peer that fails."""
        peer, _ = self._peer(name)
        try:
            return peer.ask(do, **arguments)
        except Exception:
            del self.open[name]
            peer.close()
            raise

    def having(self, case: str) -> list[str]:
        """Return the peers that have the op."""
        found = []
        for name in self.names:
            try:
                cases = self._peer(name)[1]
            except Exception as error:
                self.absent[name] = reason(error)
            else:
                found += [name] if case in cases else []
        return found

    def result(self, name: str, case: Case) -> Array:
        """Return the results for all samples."""
        file = str(self.data.folder / "result.npy")
        self.ask(name, "result", case=case.name, inputs=case.inputs, file=file)
        return np.load(file)

    def run(self, name: str, case: Case, threads: int, rounds: int) -> float:
        """Return seconds for `rounds` times all samples, by the peer's own clock."""
        asked = {"case": case.name, "inputs": case.inputs, "threads": threads, "rounds": rounds}
        answer = self.ask(name, "run", **asked)
        return float(answer["seconds"])

    def _peer(self, name: str) -> tuple[Peer, list[str]]:
        if name in self.absent:
            raise RuntimeError(self.absent[name])
        if name not in self.open:
            venv, module = self.workers[name]
            peer = self.stack.enter_context(Peer(interpreter(venv), f"benchmarks.peers.{module}"))
            self.open[name] = peer, peer.ask("open", files=self.data.files)["cases"]
        return self.open[name]


@dataclass(frozen=True)
class Row:
    """Row of the table: one case, a comparison per number of threads, and remarks about the peers."""

    case: str
    comparisons: Mapping[int, Comparison]
    notes: Mapping[str, str]

    def fastest(self, threads: int) -> str | None:
        """Return the peer with the highest median."""
        measured = self.comparisons[threads]
        peers = [name for name in measured.samples if name != LOADERX]
        return max(peers, key=measured.median, default=None)

    def ratio(self, threads: int) -> float | None:
        """Return our speed relative to the fastest peer, as the median over the rounds."""
        peer = self.fastest(threads)
        if peer is None:
            return None
        samples = self.comparisons[threads].samples
        pairs = zip(samples[LOADERX], samples[peer], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True)
class Catalogue:
    """Table of all cases."""

    title: str
    peers: list[str]
    rows: list[Row]
    # The ratio to the fastest peer that the summary counts as reached.
    goal: float
    # Cases that loaderx cannot run and peers that cannot be asked, with reasons.
    missing: Mapping[str, str]

    def table(self) -> str:
        width = max((len(row.case) for row in self.rows), default=0)
        names = [LOADERX, *self.peers]
        heads = "".join(f"{name:>16}" for name in names) + f"{'ratio':>8}  {'fastest':<16}"
        lines = [f"{self.title}, samples/s (ratio: loaderx to the fastest peer)"]
        for threads in THREADS:
            lines += ["", f"{f'{threads} thread' + 's' * (threads > 1):{width}}{heads}"]
            for row in self.rows:
                figures = row.comparisons[threads]
                cells = [
                    f"{figures.median(name):,.0f}" if name in figures.samples else "-"
                    for name in names
                ]
                ratio, fastest = row.ratio(threads), row.fastest(threads)
                end = f"{'-':>8}" if ratio is None else f"{ratio:8.2f}  {fastest:<16}"
                lines.append(f"{row.case:{width}}" + "".join(f"{cell:>16}" for cell in cells) + end)
        lines.append("")
        for name in self.peers:
            lacking = [row.case for row in self.rows if row.notes.get(name) == LACKING]
            lines += [f"{name} does not have: {', '.join(lacking)}."] if lacking else []
        lines += [
            f"{row.case}, {name}: {note}"
            for row in self.rows
            for name, note in row.notes.items()
            if note != LACKING
        ]
        lines += [f"{name}: did not run: {why}" for name, why in self.missing.items()]
        lines += [self.summary(threads) for threads in THREADS]
        return "\n".join(lines)

    def summary(self, threads: int) -> str:
        """Say how many cases reach the goal, and which do not."""
        ratios = {row.case: ratio for row in self.rows if (ratio := row.ratio(threads)) is not None}
        if not ratios:
            return f"{threads} thread(s): no peer took part."
        losers = {name: ratio for name, ratio in ratios.items() if ratio < self.goal}
        named = ", ".join(
            f"{name} {ratio:.2f}" for name, ratio in sorted(losers.items(), key=_second)
        )
        worst = min(ratios, key=ratios.__getitem__)
        return (
            f"{threads} thread(s): {len(ratios) - len(losers)} of {len(ratios)} are at least {self.goal:g} times as "
            f"fast as the fastest peer; lowest ratio {ratios[worst]:.2f} ({worst}); below: {named or 'none'}."
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "goal": self.goal,
            "summary": {threads: self.summary(threads) for threads in THREADS},
            "missing": dict(self.missing),
            "cases": {
                row.case: {
                    "notes": dict(row.notes),
                    "threads": {
                        threads: {
                            "fastest": row.fastest(threads),
                            "ratio": row.ratio(threads),
                            **comparison.as_dict(),
                        }
                        for threads, comparison in row.comparisons.items()
                    },
                }
                for row in self.rows
            },
        }


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


TABLES: tuple[tuple[str, tuple[Case, ...], Workers, float], ...] = (
    (f"image ops, uint8 {of.SIZE}x{of.SIZE}x3", OPS, PEERS, 1),
    (
        f"ops on signals, float32 of {of.MOMENTS} moments or {of.FRAMES}x{of.BANDS}",
        SOUNDS,
        SOUND_PEERS,
        1,
    ),
    (f"pipelines, from uint8 {of.LARGE}x{of.LARGE}x3", PIPELINES, PEERS, 3),
)


def run(peers: bool = True, only: Iterable[str] = ()) -> Iterator[Catalogue | Comparison]:
    """Run all tables, one after the other, or those with the named cases."""
    wanted = set(only)
    for title, cases, workers, goal in TABLES:
        chosen = [case for case in cases if not wanted or case.name in wanted]
        if chosen:
            yield measure(title, chosen, workers if peers else {}, goal)
    if not wanted:
        yield compilation()


def measure(
    title: str,
    cases: Iterable[Case],
    peers: Workers,
    goal: float,
    repeats: int = REPEATS,
    seconds: float = SECONDS,
) -> Catalogue:
    """Compare and measure all cases."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderx-"))
        data = Data(Path(folder))
        rivals = Rivals(data, stack, peers)
        for case in cases:
            status(case.name)
            with ExitStack() as threads:
                try:
                    ours = Compiled(case, data, threads)
                    expected = ours.result()
                except Exception as error:
                    missing[case.name] = reason(error)
                else:
                    rows.append(_row(case, ours, expected, rivals, repeats, seconds))
        missing |= rivals.absent
    return Catalogue(title, list(peers), rows, goal, missing)


def _row(
    case: Case, ours: Compiled, expected: Array, rivals: Rivals, repeats: int, seconds: float
) -> Row:
    notes: dict[str, str] = {}
    runs: dict[str, Callable[[int, int], float]] = {LOADERX: ours.run}
    able = rivals.having(case.name)
    for name in rivals.names:
        if name not in able:
            notes |= {} if name in rivals.absent else {name: LACKING}
            continue
        try:
            if name in case.differs:
                notes[name] = f"differs: {case.differs[name]}"
            theirs = rivals.result(name, case)
            if name not in case.differs:
                case.compare(expected, theirs)
        except Exception as error:
            notes[name] = f"left out: {reason(error)}"
        else:
            runs[name] = partial(rivals.run, name, case)
    comparisons = {}
    for threads in THREADS:
        contestants: dict[str, Contestant] = {}
        absent = {}
        for name, work in runs.items():
            try:
                work(threads, 1)
                rounds = max(1, round(seconds / work(threads, 1)))
            except Exception as error:
                absent[name] = reason(error)
            else:
                contestants[name] = partial(_rate, work, threads, rounds)
        comparisons[threads] = interleave(
            f"{case.name}, {threads} thread(s)",
            "images/s",
            contestants,
            reference=LOADERX,
            repeats=repeats,
            absent=absent,
        )
        notes |= {name: f"left out: {why}" for name, why in comparisons[threads].absent.items()}
    return Row(case.name, comparisons, notes)


def _rate(work: Callable[[int, int], float], threads: int, rounds: int) -> float:
    return IMAGES * rounds / work(threads, rounds)


FIRST = """
import json, time
started = time.perf_counter()
import numpy as np
import loaderx
from benchmarks.catalogue import simclr
chain = loaderx.pipeline(simclr())
images = np.zeros((2, {size}, {size}, 3), np.uint8)
imported = time.perf_counter()
chain(images)
print(json.dumps({{"import": imported - started, "compile": time.perf_counter() - imported}}))
"""


def compilation() -> Comparison:
    """Measure the seconds of the first call of the SimCLR chain in a new process, after its imports."""
    script = FIRST.format(size=of.LARGE)

    def first(cache: str, what: str = "compile") -> float:
        variables = {"LOADERX_CACHE_DIR": cache, "NUMBA_CACHE_DIR": cache}
        return float(in_new_process(script, variables=variables)[what])

    def cold() -> float:
        with tempfile.TemporaryDirectory(prefix="loaderx-cache-") as cache:
            return first(cache)

    with tempfile.TemporaryDirectory(prefix="loaderx-cache-") as warm:
        contestants: dict[str, Contestant] = {
            "nothing compiled yet": cold,
            "afterwards": lambda: first(warm),
            "the imports before it": lambda: first(warm, "import"),
        }
        return interleave(
            "first call of the SimCLR chain in a new process",
            "seconds",
            contestants,
            reference="afterwards",
            repeats=FIRST_REPEATS,
        )
