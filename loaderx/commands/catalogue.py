"""Catalogue of `loaderx warm --all`: every built-in op on common kinds of samples, and small loaders."""

import itertools
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.compiler.entries import chains
from loaderx.compiler.program import Program
from loaderx.errors import ArgumentError
from loaderx.loader import DataLoader
from loaderx.sources import Mixture
from loaderx.sources.packing import PackedDataset
from loaderx.sources.records.dataset import ARDataset
from loaderx.sources.records.writer import write_array_record
from loaderx.sources.row_addresses import addresses_of_rows
from loaderx.spec import Spec

Example: TypeAlias = tuple[Mapping[str, Spec], Any]

SIZE = (32, 32)
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.2, 0.2]
# Passes are compiled for a dtype and a number of channels. The most common images come first.
IMAGES = (
    Spec((*SIZE, 3), np.dtype(np.uint8)),
    Spec((*SIZE, 3), np.dtype(np.float32)),
    Spec((*SIZE, 1), np.dtype(np.uint8)),
)
WINDOWS = (
    T.CenterCrop(24),
    T.Pad(4),
    T.RandomCrop(32, pad=4),
    T.RandomFlip(),
    T.RandomResizedCrop(24),
    T.RandomResizedCrop(24, interpolation="nearest"),
    T.Resize(24),
    T.Resize(24, interpolation="nearest"),
    T.Resize(24, interpolation="bicubic"),
    T.LetterBox((24, 40)),
    T.PadIfNeeded(36, 36),
    T.ZoomOut(24),
    T.ZoomOut(24, interpolation="nearest"),
    T.ScaleJitter(24),
)
# These ops need boxes next to an image.
BY_BOXES = (
    T.BoxSafeCrop(24),
    T.BoxSafeCrop(24, interpolation="nearest"),
    T.RandomIoUCrop(24),
    T.RandomIoUCrop(24, interpolation="nearest"),
    T.SanitizeBoxes(),
)
MAPS = (
    T.Affine(20),
    T.Affine(20, interpolation="nearest"),
    T.D4(),
    T.Perspective(),
    T.RandomScale(),
    T.Rot90(),
    T.Rotate(20),
    T.Transpose(),
    T.ElasticDeform(3, 8),
    T.ElasticDeform(3, 8, interpolation="nearest"),
    T.GridDistortion(),
    T.GridDistortion(interpolation="nearest"),
    T.OpticalDistortion(),
    T.OpticalDistortion(interpolation="nearest"),
)
COLOURS = (
    T.Brightness(0.4),
    T.ChannelDrop(),
    T.ChannelShuffle(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.Contrast(0.4),
    T.Grayscale(0.2),
    T.Hue(0.1),
    T.RandomErasing(),
    T.Saturation(0.4),
    T.AutoContrast(),
    T.Equalize(),
    T.Gamma(),
    T.Invert(0.5),
    T.Posterize(),
    T.Solarize(),
    T.FancyPCA(),
    T.PhotometricDistort(),
    T.RGBShift(),
    T.RandomBrightnessContrast(),
    T.Sepia(),
)
FILTERS = (
    T.CLAHE(),
    T.GaussianBlur(),
    T.Sharpness(0.5),
    T.GaussianNoise(),
    T.GridMask(),
    T.SaltPepper(),
    T.ISONoise(),
    T.MultiplicativeNoise(),
    T.ShotNoise(),
    T.CoarseDropout(),
    T.Defocus(),
    T.MedianBlur(),
    T.MotionBlur(),
    T.Downscale(),
    T.JPEGCompression(),
    T.Fog(),
    T.Rain(),
    T.Shadow(),
)
POLICIES = (
    T.RandAugment(),
    T.TrivialAugment(),
    T.AugMix(),
    T.AutoAugment(),
    T.RandomOrder(T.Identity(), T.RandomFlip()),
    T.SomeOf(1, T.Identity(), T.RandomFlip()),
    T.Maybe(0.5, T.RandomFlip()),
    T.OneOf(T.Identity(), T.Sequence(T.Brightness(T.Choice(0.5, 2)))),
)
VALUES = (
    *(T.Normalize(0.5, 0.2, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")),
    *(T.ToFloat(dtype=dtype) for dtype in ("float32", "float16", "bfloat16")),
    T.Normalize(0.5, 0.2, channels_first=True),
    T.ToFloat(channels_first=True),
    T.Cast("float32"),
)
SIGNALS = (
    T.Gain(),
    T.MuLaw(),
    T.NoiseAtSNR(),
    T.Polarity(),
    T.RandomCrop1D(24),
    T.Resample(24, speed=(0.9, 1.1)),
    T.Reverse(),
    T.TimeMask(4),
    T.FreqMask(2),
    T.TimeShift(0.2),
    T.Resample(24, antialias=False),
    T.PeakNormalize(),
    T.LoudnessNormalize(sample_rate=16000),
    T.ClippingDistortion(),
    T.LowPass(sample_rate=16000),
    T.HighPass(sample_rate=16000),
    T.BandPass(sample_rate=16000),
    T.BackgroundNoise(np.ones((1, 8), np.float32)),
    T.ImpulseResponse(np.ones((1, 8), np.float32)),
    T.TimeStretch(n_fft=16),
    T.PitchShift(n_fft=16),
    T.LogMel(sample_rate=16000, n_fft=16, hop=8, n_mels=2),
    T.TimeWarp(4),
    T.PadTo(40),
)
SKELETONS = (
    T.CenterOnJoint(1),
    T.FrameDrop(),
    T.JointDrop(),
    T.JointJitter(),
    T.LeftRightFlip(T.NTU_PAIRS),
    T.SkeletonRotate(),
    T.SkeletonScale(),
    T.SkeletonShear(),
    T.TemporalCrop(),
)
TOKENS = (T.MaskTokens(99, 100), T.PadTo(40), T.SpanCorruption(99))


def examples() -> Iterator[Example]:
    """Yield the fields of a data set and transforms of them, the most common first."""
    for image in IMAGES:
        channels = image.shape[2]
        normalize = T.Normalize(MEAN[:channels], STD[:channels])
        planes = T.Normalize(MEAN[:channels], STD[:channels], channels_first=True)
        for op in (*WINDOWS, *VALUES, *COLOURS, *MAPS, *FILTERS, *POLICIES):
            yield {"data": image}, [op]
        yield {"data": image}, [T.Resize(24, interpolation="area")]
        # A window and the scaling after it are fused into one pass.
        for crop, scaling in itertools.product(WINDOWS, (normalize, planes, T.ToFloat())):
            yield {"data": image}, [crop, scaling]
        yield {"data": image}, [T.Resize(40), T.RandomCrop(32), T.RandomFlip(), normalize]
        yield {"data": image}, [T.RandomFlip(), T.RandomResizedCrop(24), normalize]
        yield {"image": image}, {"image": [T.MultiCrop((24, 16), (1, 1), ops=[normalize])]}
        yield {"image": image}, {"image": [T.FiveCrop(16)]}
        yield {"image": image}, {"image": [T.TenCrop(16)]}
        yield {"image": image}, {"image": [T.Views(2, [T.RandomFlip()])]}
    yield from _companions()
    for dtype in (np.int32, np.int64, np.uint8):
        yield {"data": Spec((), np.dtype(dtype))}, [T.OneHot(10)]
    moments = ((32,), (32, 8))
    for shape, op in itertools.product(moments, SIGNALS):
        signal = Spec(shape, np.dtype(np.float32))
        yield {"data": signal}, [op]
        length = Spec((), np.dtype(np.int32))
        yield {"data": signal, "length": length}, {("data", "length"): [op]}
    skeleton = Spec((3, 32, 25, 2), np.dtype(np.float32))
    for op in SKELETONS:
        yield {"data": skeleton}, [op]
    for op in TOKENS:
        yield {"data": Spec((32,), np.dtype(np.int32))}, [op]


def _companions() -> Iterator[Example]:
    """Yield masks, boxes and keypoints that follow an image."""
    for mask in (Spec(SIZE, np.dtype(np.uint8)), Spec(SIZE, np.dtype(np.int32))):
        fields = {
            "image": IMAGES[0],
            "mask": mask,
            "boxes": Spec((4, 4), np.dtype(np.float32)),
            "keypoints": Spec((4, 2), np.dtype(np.float32)),
        }
        for op in (*WINDOWS, *MAPS, T.RandAugment()):
            yield fields, {tuple(fields): [op]}
            yield fields, {("image", "mask"): [op]}
        for op in BY_BOXES:
            yield fields, {tuple(fields): [op]}


def list_passes() -> None:
    """Ask for the passes of all examples. Samples that an op refuses, such as one channel for Hue, are left out."""
    for fields, transforms in examples():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accept(fields, transforms)


def accept(fields: Mapping[str, Spec], transforms: Any) -> bool:
    """Ask for the passes of an example; return False if its ops refuse such samples."""
    try:
        chains(transforms, {name: (spec, _zeros(spec)) for name, spec in fields.items()}, 0)
    except ArgumentError:
        return False
    return True


def _zeros(spec: Spec) -> Any:
    return lambda: np.zeros(spec.shape, spec.dtype)


def first_batches(everything: bool = True) -> None:
    """Build the first batch of small loaders, which compiles the kernels of all loaders, or of the common ones."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for loader in itertools.islice(loaders(folder), None if everything else 1):
            first_batch(loader)
    run_driver()


def first_batch(loader: DataLoader) -> None:
    """Build the first batch of a loader as an iterator does, and as `loader.batch` does."""
    with iter(loader) as iterator:
        next(iterator)
    loader.batch(0)


def run_driver() -> None:
    """Run a chain without passes, which compiles the driver and nothing else."""
    rows = np.zeros((1, 4), np.uint8)
    program = Program([], Spec((4,), rows.dtype))
    program.run(np.zeros(1, np.int64), addresses_of_rows(rows), np.empty_like(rows))


def loaders(folder: Path) -> Iterator[DataLoader]:
    """Yield small loaders with their files in a folder; each needs kernels that those before it do not need."""
    images, label = np.zeros((64, 8, 8, 3), np.uint8), np.arange(64, dtype=np.int32)
    flip = {"image": [T.RandomFlip()]}

    def loader(data: Any, **named: Any) -> DataLoader:
        return DataLoader(data, **{"batch_size": 32, "workers": 2, "output": "numpy", **named})

    yield loader({"image": images, "label": label})
    yield loader({"image": images, "label": label}, transforms=flip)
    # Values of a row that are not contiguous in memory.
    yield loader({"image": images[:, ::2]})
    # 64 bits are narrowed to 32 for JAX.
    yield loader({"integer": label.astype(np.int64), "float": label / 2}, output="jax")
    yield loader({"image": images}, weights=label + 1.0)
    yield loader(Mixture({"one": (images, 1), "other": (images, 2)}))
    for floats in (images / np.float32(255), np.zeros((64, 32), np.float32)):
        for mix in (T.MixUp(), T.CutMix()):
            one_hot = {"label": [T.OneHot(64)], ("image", "label"): [mix]}
            yield loader({"image": floats, "label": label}, transforms=one_hot)
    for mask, op in itertools.product((np.uint8, np.int32), (T.Mosaic(), T.CopyPaste())):
        fields = {
            "image": images,
            "instances": np.ones((64, 8, 8), mask),
            "boxes": np.ones((64, 2, 4), np.float32),
            "keypoints": np.ones((64, 2, 2), np.float32),
        }
        yield loader(fields, transforms={tuple(fields): [op]})
    yield loader(PackedDataset([np.arange(5, dtype=np.int32)] * 256, 16))
    path = folder / "images.array_record"
    write_array_record(path, images, progress=False)
    yield loader({"image": ARDataset(str(path))})
    yield loader({"image": ARDataset(str(path))}, transforms=flip)
