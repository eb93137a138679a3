"""Golden digests: the bytes of batches of some hundred chains, which must not change.

`python -m tests.golden [part of a name ...]` rewrites them, which is only right if bytes change on purpose.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from tqdm import tqdm

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it

FILE = Path(__file__).with_suffix(".json")
REFUSED = "refused"
SIZE = (19, 22)

# Ops on images of any kind, or the kinds they accept.
IMAGE_OPS = {
    "CenterCrop": lambda: T.CenterCrop((11, 8)),
    "Pad": lambda: T.Pad((1, 2, 3, 4), fill=1),
    "Pad reflect": lambda: T.Pad(3, border="reflect"),
    "RandomCrop": lambda: T.RandomCrop((16, 16), pad=2),
    "RandomCrop edge": lambda: T.RandomCrop((12, 17), pad=(0, 3), border="edge"),
    "RandomFlip": lambda: T.RandomFlip(),
    "RandomFlip vertical": lambda: T.RandomFlip(0.7, axis="vertical"),
    "RandomResizedCrop": lambda: T.RandomResizedCrop((14, 15)),
    "RandomResizedCrop nearest": lambda: T.RandomResizedCrop(12, interpolation="nearest"),
    "Resize": lambda: T.Resize((25, 13)),
    "Resize nearest": lambda: T.Resize((8, 31), interpolation="nearest"),
    "Resize area": lambda: T.Resize((7, 9), interpolation="area"),
    "Affine": lambda: T.Affine(20, translate_x=0.1, scale=(0.8, 1.2), shear_y=5),
    "Affine reflect": lambda: T.Affine(
        T.Choice(-20, 45), border="reflect", interpolation="nearest"
    ),
    "Perspective": lambda: T.Perspective(0.4, border="edge"),
    "RandomScale": lambda: T.RandomScale((0.5, 1.5), fill=1),
    "Rot90": lambda: T.Rot90((0, 2)),
    "Rotate": lambda: T.Rotate(30),
    "Transpose": lambda: T.Transpose(1),
    "ElasticDeform": lambda: T.ElasticDeform(3, 8),
    "Brightness": lambda: T.Brightness(0.4),
    "ChannelDrop": lambda: T.ChannelDrop(),
    "ChannelShuffle": lambda: T.ChannelShuffle(),
    "ColorJitter": lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "Contrast": lambda: T.Contrast((0.5, 1.5)),
    "Grayscale": lambda: T.Grayscale(0.5),
    "Hue": lambda: T.Hue(0.3),
    "RandomErasing": lambda: T.RandomErasing(0.8, value=1),
    "Saturation": lambda: T.Saturation(0.6),
    "AutoContrast": lambda: T.AutoContrast(),
    "Equalize": lambda: T.Equalize(),
    "Gamma": lambda: T.Gamma(),
    "Invert": lambda: T.Invert(0.5),
    "Posterize": lambda: T.Posterize(3),
    "Solarize": lambda: T.Solarize(0.4),
    "CLAHE": lambda: T.CLAHE(tiles=2),
    "GaussianBlur": lambda: T.GaussianBlur(),
    "GaussianBlur size": lambda: T.GaussianBlur((0.5, 3), size=5),
    "Sharpness": lambda: T.Sharpness(0.9),
    "GaussianNoise": lambda: T.GaussianNoise(),
    "GridMask": lambda: T.GridMask(),
    "SaltPepper": lambda: T.SaltPepper(0.2),
    "Cast": lambda: T.Cast("float32"),
    "Normalize": lambda: T.Normalize(0.45, 0.25),
    "Normalize planes": lambda: T.Normalize(0.4, 0.2, channels_first=True),
    "ToFloat": lambda: T.ToFloat(),
    "ToFloat float16": lambda: T.ToFloat(dtype="float16"),
    "Normalize bfloat16": lambda: T.Normalize(0.5, 0.5, dtype="bfloat16"),
    "Identity": lambda: T.Identity(),
    "RandAugment": lambda: T.RandAugment(3, 12),
    "TrivialAugment": lambda: T.TrivialAugment(border="edge"),
    "AugMix": lambda: T.AugMix(),
    "Maybe": lambda: T.Maybe(0.5, T.RandomFlip(), T.Brightness(0.3)),
    "OneOf": lambda: T.OneOf(
        T.RandomCrop((14, 14)), [T.Rotate(20), T.CenterCrop(14)], T.Resize(14), weights=[1, 2, 3]
    ),
}
# Later image ops, so that the digests of pairs of the ops above do not change.
NEW_DISTORT = {
    "GridDistortion": lambda: T.GridDistortion(3, 0.5),
    "GridDistortion edge": lambda: T.GridDistortion(
        4, (-0.4, 0.2), normalized=False, border="edge"
    ),
    "OpticalDistortion": lambda: T.OpticalDistortion((-0.3, 0.9), fill=1),
    "ScaleJitter": lambda: T.ScaleJitter((16, 20), (0.2, 2.0), fill=1),
    "ScaleJitter nearest": lambda: T.ScaleJitter(12, interpolation="nearest"),
    "LetterBox": lambda: T.LetterBox((24, 16), fill=1),
    "PadIfNeeded": lambda: T.PadIfNeeded(25, 20, border="reflect"),
    "D4": lambda: T.Sequence(T.CenterCrop(16), T.D4()),
    "Resize bicubic": lambda: T.Resize((25, 13), interpolation="bicubic"),
    "Resize lanczos": lambda: T.Resize((9, 30), interpolation="lanczos"),
    "RandomResizedCrop plain": lambda: T.RandomResizedCrop((9, 8), antialias=False),
    "Fog": lambda: T.Fog(),
    "Rain": lambda: T.Rain((0.5, 2), blur=3),
    "Shadow": lambda: T.Shadow((0.3, 0.7), (1, 3), region=(0, 0, 1, 1)),
    "RandomErasing noise": lambda: T.RandomErasing(0.8, value="noise", holes=(1, 3)),
    "CoarseDropout": lambda: T.CoarseDropout(fill=1),
    "CoarseDropout noise": lambda: T.CoarseDropout(3, 4, (2, 6), fill="noise"),
    "RandomBrightnessContrast": lambda: T.RandomBrightnessContrast(),
    "RGBShift": lambda: T.RGBShift(),
    "Sepia": lambda: T.Sepia(0.7),
    "FancyPCA": lambda: T.FancyPCA(),
    "PhotometricDistort": lambda: T.PhotometricDistort(),
    "MultiplicativeNoise": lambda: T.MultiplicativeNoise(),
    "MultiplicativeNoise of values": lambda: T.MultiplicativeNoise(
        (0.5, 1.5), per_channel=True, elementwise=True
    ),
    "ShotNoise": lambda: T.ShotNoise(),
    "ISONoise": lambda: T.ISONoise(),
    "MotionBlur": lambda: T.MotionBlur(),
    "MedianBlur": lambda: T.MedianBlur((3, 5)),
    "Defocus": lambda: T.Defocus((1, 4)),
    "Downscale": lambda: T.Downscale(),
    "JPEGCompression": lambda: T.JPEGCompression(),
    "AutoAugment": lambda: T.AutoAugment("cifar10"),
}
MOVING_DISTORT = list(NEW_DISTORT)[:11]
IMAGES = {
    "uint8": ((*SIZE, 3), np.uint8),
    "float32": ((*SIZE, 3), np.float32),
    "uint16": ((*SIZE, 3), np.uint16),
    "grey": ((*SIZE, 1), np.uint8),
    "four channels": ((*SIZE, 4), np.uint8),
    "one pixel": ((1, 1, 3), np.uint8),
    "large": ((64, 48, 3), np.uint8),
}
SIGNALS = {
    "FreqMask": (lambda: T.FreqMask(3, 2), (30, 8)),
    "Gain": (lambda: T.Gain(), (50,)),
    "MuLaw": (lambda: T.MuLaw(), (50,)),
    "NoiseAtSNR": (lambda: T.NoiseAtSNR(), (50, 2)),
    "Polarity": (lambda: T.Polarity(), (50,)),
    "RandomCrop1D": (lambda: T.RandomCrop1D(20, pad=5), (50, 2)),
    "Resample": (lambda: T.Resample(33, speed=(0.8, 1.2)), (50,)),
    "Reverse": (lambda: T.Reverse(), (50,)),
    "TimeMask": (lambda: T.TimeMask(7), (30, 8)),
    "TimeShift": (lambda: T.TimeShift((-0.3, 0.3)), (50,)),
    "CenterOnJoint": (lambda: T.CenterOnJoint(1), (3, 10, 7, 2)),
    "FrameDrop": (lambda: T.FrameDrop(0.3), (3, 10, 7, 2)),
    "JointDrop": (lambda: T.JointDrop(0.3), (3, 10, 7, 2)),
    "JointJitter": (lambda: T.JointJitter(), (3, 10, 7, 2)),
    "LeftRightFlip": (lambda: T.LeftRightFlip([(0, 1), (2, 3)]), (3, 10, 7, 2)),
    "SkeletonRotate": (lambda: T.SkeletonRotate(), (3, 10, 7, 2)),
    "SkeletonScale": (lambda: T.SkeletonScale(), (3, 10, 7, 2)),
    "SkeletonShear": (lambda: T.SkeletonShear(), (3, 10, 7, 2)),
    "TemporalCrop": (lambda: T.TemporalCrop(length=6), (3, 10, 7, 2)),
}
# Ops that are applied with a probability, on an image with its boxes and masks.
NEW_CONVENTIONS = {
    "Rotate by chance": lambda: T.Rotate(30, probability=0.5),
    "Brightness by chance": lambda: T.Brightness(0.5, probability=0.5),
    "RandAugment by chance": lambda: T.RandAugment(probability=0.5),
}
# Noises and impulse responses of the cases below.
RECORDINGS = np.random.default_rng(7).normal(size=(3, 30)).astype(np.float32)
NEW_AUDIO = {
    "BackgroundNoise": (lambda: T.BackgroundNoise(RECORDINGS), (50, 2)),
    "BandPass": (lambda: T.BandPass(sample_rate=16000, order=3), (50,)),
    "ClippingDistortion": (lambda: T.ClippingDistortion(), (50, 2)),
    "HighPass": (lambda: T.HighPass(sample_rate=16000), (50, 2)),
    "ImpulseResponse": (lambda: T.ImpulseResponse(RECORDINGS), (50, 2)),
    "LogMel": (lambda: T.LogMel(sample_rate=16000, n_fft=20, hop=7, n_mels=5), (50,)),
    "LoudnessNormalize": (lambda: T.LoudnessNormalize(sample_rate=4000), (2500, 2)),
    "LowPass": (lambda: T.LowPass(sample_rate=16000), (50,)),
    "PeakNormalize": (lambda: T.PeakNormalize((-6, 0)), (50, 2)),
    "PitchShift": (lambda: T.PitchShift(n_fft=16), (50, 2)),
    "Resample linear": (lambda: T.Resample(33, speed=(0.8, 1.2), antialias=False), (50,)),
    "Resample long": (lambda: T.Resample(600, speed=(0.8, 1.2)), (700,)),
    "TimeStretch": (lambda: T.TimeStretch(n_fft=16), (50,)),
    "TimeWarp": (lambda: T.TimeWarp(9), (30, 8)),
}
TOKENS = {
    "MaskTokens": lambda: T.MaskTokens(99, 100),
    "PadTo": lambda: T.PadTo(40, 7),
    "SpanCorruption": lambda: T.SpanCorruption(99),
}


# Ops on boxes of an image, and the format of the boxes.
NEW_BOXES = {
    "RandomIoUCrop": (lambda: T.RandomIoUCrop((12, 14)), "boxes"),
    "RandomIoUCrop yolo": (lambda: T.RandomIoUCrop(16, overlaps=(0.1, 0.4)), T.Boxes("yolo")),
    "BoxSafeCrop": (lambda: T.BoxSafeCrop((12, 14)), "boxes"),
    "BoxSafeCrop coco": (lambda: T.BoxSafeCrop(9, 0.4), T.Boxes("coco", min_visibility=0.5)),
    "ZoomOut": (lambda: T.ZoomOut((15, 14), 0.7, fill=3), "boxes"),
    "ZoomOut nearest": (
        lambda: T.ZoomOut(sides=(1.2, 2.0), interpolation="nearest"),
        T.Boxes("albumentations"),
    ),
    "SanitizeBoxes": (lambda: T.SanitizeBoxes(4, 20), T.Boxes("cxcywh", fill=-1)),
}


# Ops that compose an image from several samples of a batch.
NEW_BATCH = {
    "Mosaic": lambda: [T.Mosaic()],
    "Mosaic filled": lambda: [T.Mosaic((30, 47), (0, 1), fill=3, fill_mask=9)],
    "Mosaic by chance": lambda: [T.RandomFlip(), T.Mosaic(center=0.5, probability=0.5)],
    "CopyPaste": lambda: [T.CopyPaste()],
    "CopyPaste by chance": lambda: [T.CopyPaste(0.8, background=(0, 2), probability=0.6)],
    "Mosaic, CopyPaste": lambda: [T.RandomFlip(), T.Mosaic(16), T.CopyPaste(), T.Rot90((0, 2))],
}


@lx.transform
def speckle(x, rng, amount):
    """Transform in place, with draws and a parameter."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if rng.random() < amount:
                for c in range(x.shape[2]):
                    x[i, j, c] = rng.integers(0, 200)


@lx.transform(out=lambda spec, weights: lx.Spec((spec.shape[0], len(weights)), np.float32))
def project(x, out, weights):
    """Transform into another shape and dtype, with an array as a parameter."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            total = 0.0
            for j in range(x.shape[1]):
                for c in range(x.shape[2]):
                    total += x[i, j, c] * weights[k]
            out[i, k] = total


def values(shape, dtype, rows=6, seed=1):
    """Return rows that are the same on every machine."""
    numbers = np.random.default_rng(seed).integers(0, 1 << 16, (rows, *shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return (numbers / 65535).astype(dtype)
    return (numbers >> (16 - 8 * min(dtype.itemsize, 2))).astype(dtype)


def boxes(rows=6):
    """Return three boxes per row in an image of SIZE, one of them without an area."""
    corners = np.random.default_rng(2).uniform(0, 18, (rows, 3, 4)).astype(np.float32)
    corners[..., 2:] = np.maximum(corners[..., 2:], corners[..., :2] + 1)
    corners[:, 2, 2] = corners[:, 2, 0]
    return corners


def photographs():
    return values((*SIZE, 3), np.uint8)


def together(op):
    """Apply an op to an image with its masks, boxes and keypoints."""
    data = {
        "image": photographs(),
        "mask": values(SIZE, np.uint8, seed=3) % 5,
        "boxes": boxes(),
        "keypoints": boxes()[..., :2],
    }
    return data, {("image", "mask", "boxes", "keypoints"): [op]}


def boxed(op):
    """Apply an op between others to an image with its masks and points, and a class for every box."""
    data, _ = together(None)
    data["boxes"] = np.concatenate([data["boxes"], values((3, 1), np.float32)], axis=2)
    return data, {("image", "mask", "boxes", "keypoints"): [T.RandomFlip(), op, T.Rot90((0, 2))]}


def numbered(ops):
    """Apply ops to an image with its masks, boxes and keypoints, one mask of which has the numbers of boxes."""
    data, _ = together(None)
    blocks = values((4, 5), np.uint8, seed=5) % 5
    data["instances"] = blocks.repeat(5, 1).repeat(5, 2)[:, : SIZE[0], : SIZE[1]]
    return data, {tuple(data): ops}


def files(folder):
    """Return the sources that read files, and those that change the order of rows."""
    images = photographs()
    np.save(folder / "a.npy", images)
    np.save(folder / "b.npy", images[::-1])
    lx.write_array_record(folder / "a.ar", images, progress=False)
    lx.write_array_record(folder / "b.ar", images, progress=False, compression=None, group_size=2)
    objects = [{"image": image, "label": number} for number, image in enumerate(images)]
    return {
        "npy": lx.NPDataset(folder / "a.npy"),
        "two npy": lx.NPDataset([folder / "a.npy", folder / "b.npy"]),
        "records": lx.ARDataset(folder / "a.ar"),
        "records in groups": lx.ARDataset(folder / "b.ar"),
        "fortran": np.asfortranarray(images),
        "swapped": images.astype(">u2"),
        "strided": images[:, ::2, ::-1],
        "select": lx.NPDataset(images).select([5, 0, 0, 3, 2]),
        "split": lx.NPDataset(images).split(0.7, seed=3)[0],
        "sum": lx.NPDataset(images) + lx.NPDataset(images[:2]),
        "object": objects,
        "mixture": lx.Mixture({"a": (images, 0.6), "b": (images[:3], 0.4)}),
    }


def cases(folder):
    """Return name -> (dataset, transforms, further arguments)."""
    found = {}
    names, kinds = list(IMAGE_OPS), list(IMAGES)
    for number, (name, op) in enumerate(IMAGE_OPS.items()):
        # All ops on the usual images, and each of the other kinds of images with some of the ops.
        others = [kinds[2 + (number + offset) % (len(kinds) - 2)] for offset in range(2)]
        for kind in (*kinds[:2], *others):
            found[f"{name}, {kind}"] = values(*IMAGES[kind]), [op], {}
        second = names[(number + 17) % len(names)]
        found[f"{name} + {second}"] = photographs(), [op, IMAGE_OPS[second]], {}
    for number, (name, op) in enumerate(NEW_DISTORT.items()):
        for kind in (*kinds[:2], kinds[2 + number % (len(kinds) - 2)]):
            found[f"{name}, {kind}"] = values(*IMAGES[kind]), [op], {}
        if name in MOVING_DISTORT:
            found[f"{name}, together"] = lambda op=op: together(op()), None, {}
    for crops in (T.FiveCrop((11, 8)), T.TenCrop(9, [T.Brightness(0.3)])):
        name = type(crops).__name__
        found[name] = {"image": photographs()}, {"image": [crops]}, {}
    for name, (op, shape) in (SIGNALS | NEW_AUDIO).items():
        signal = values(shape, np.float32) * 2 - 1
        found[name] = signal, [op], {}
    for name, op in TOKENS.items():
        found[name] = values((30,), np.uint8).astype(np.int32) % 90, [op], {}
    spatial = (*names[:20], "RandAugment", "Maybe", "Brightness", "ColorJitter", "Invert")
    for name in spatial:
        found[f"{name}, together"] = lambda name=name: together(IMAGE_OPS[name]()), None, {}
    chain = [lambda: T.RandomCrop(16, pad=2), lambda: T.RandomFlip(), lambda: T.Normalize(0.5, 0.2)]
    jittered = [
        lambda: T.RandomResizedCrop(12),
        lambda: T.ColorJitter(0.3, 0.3),
        lambda: T.ToFloat(),
    ]
    for name, source in files(folder).items():
        data = {"image": source} if name not in ("object", "mixture") else source
        ops = [op() for op in (chain if name != "swapped" else jittered[:1])]
        entry = "data" if name == "mixture" else "image"
        found[f"source {name}"] = data, {entry: ops}, {}
    labelled = {"image": photographs(), "label": np.arange(6)}
    mixed = {("image", "label"): [T.MixUp(0.4)]}
    found["MixUp"] = labelled, {"image": [T.ToFloat()], "label": [T.OneHot(6)], **mixed}, {}
    cut = {"image": [T.ToFloat()], "label": [T.OneHot(6)], ("image", "label"): [T.CutMix()]}
    found["CutMix"] = labelled, cut, {}
    found["MixUp between"] = (
        photographs(),
        [*chain, lambda: T.MixUp(1.0), lambda: T.RandomFlip()],
        {},
    )
    views = [T.RandomFlip(), T.Views(2, [op() for op in jittered])]
    found["Views"] = {"image": photographs()}, {"image": views}, {}
    found["MultiCrop"] = {"image": photographs()}, {"image": T.MultiCrop((14, 8), (2, 3))}, {}
    found["authored"] = photographs(), [lambda: speckle(amount=0.2)], {}
    own = [*chain[:2], lambda: speckle(amount=0.2), lambda: T.ToFloat()]
    found["authored in a chain"] = photographs(), own, {}
    found["authored with out"] = photographs(), [lambda: project(weights=[0.5, 1, 2])], {}
    policy = [lambda: T.OneOf(speckle(amount=0.4), T.Invert())]
    found["authored in a policy"] = photographs(), policy, {}
    found["python"] = photographs(), [*chain[:1], lambda: np.negative, lambda: T.RandomFlip()], {}
    long = (
        "RandomResizedCrop",
        "RandomFlip",
        "ColorJitter",
        "Grayscale",
        "GaussianBlur",
        "Solarize",
        "Normalize",
    )
    found["long"] = photographs(), [IMAGE_OPS[name] for name in long], {}
    nested = [lambda: T.OneOf(T.RandAugment(2), T.Maybe(0.5, T.AugMix(), T.Rotate(9)))]
    found["nested"] = photographs(), nested, {}
    for remainder in ("keep", "drop", "pad"):
        found[f"remainder {remainder}"] = photographs(), chain, {"remainder": remainder}
    for name, (op, kind) in NEW_BOXES.items():
        found[f"{name}, new boxes"] = lambda op=op: boxed(op()), None, {"kinds": {"boxes": kind}}
    found["weights"] = photographs(), chain, {"weights": [1, 2, 3, 4, 5, 6]}
    found["in order"] = photographs(), chain, {"shuffle": False}
    for name, op in NEW_CONVENTIONS.items():
        found[f"{name}, together"] = lambda op=op: together(op()), None, {}
    found["TimeShift by chance"] = (
        values((50,), np.float32),
        [lambda: T.TimeShift(0.3, probability=0.5)],
        {},
    )
    for name, ops in NEW_BATCH.items():
        found[f"{name}, numbered"] = lambda ops=ops: numbered(ops()), None, {}
    found["Mosaic, float32 of one channel"] = values((*SIZE, 1), np.float32), [T.Mosaic], {}
    found["Mosaic, rows"] = lambda: together(T.Mosaic(rows=5)), None, {}
    labels = {"image": photographs(), "mask": values(SIZE, np.uint8, seed=3) % 5}
    pasted = {("image", "mask"): [T.CopyPaste()]}
    found["CopyPaste, labels"] = labels, pasted, {"kinds": {"mask": "labels"}}
    found["CopyPaste, remainder keep"] = labels, pasted, {"remainder": "keep", "num_epochs": 1001}
    found["halves"] = values((*SIZE, 3), np.float16), chain, {}
    return found


def digest(case):
    """Return the digest of three batches."""
    data, ops, options = case
    if callable(data):
        data, ops = data()
    try:
        if isinstance(ops, list):
            ops = [op() for op in ops]
        loader = lx.DataLoader(
            data, batch_size=4, seed=11, transforms=ops, output="numpy", **options
        )
        batches = [loader.batch(step) for step in (0, 1, 1000)]
    except lx.LoaderxError:
        return REFUSED
    found = hashlib.sha256()
    for batch in batches:
        if not isinstance(batch, dict):
            batch = dict(enumerate(batch if isinstance(batch, tuple) else (batch,)))
        for name, array in sorted(batch.items()):
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()[:24]


def main():
    only = sys.argv[1:]
    known = json.loads(FILE.read_text()) if only else {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = {
            name: case
            for name, case in cases(Path(folder)).items()
            if not only or any(part in name for part in only)
        }
        for name in tqdm(chosen):
            known[name] = digest(chosen[name])
    FILE.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
