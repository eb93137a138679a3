"""DALI on the CPU as a contestant of the catalogue, in batches of all images that it need not copy.

The requests are those of per_image.py; a round is a batch.

Run in DALI's environment, as `python -m benchmarks.peers.dali_catalogue_worker`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.auto_aug import augmentations, auto_augment, rand_augment, trivial_augment

from benchmarks.images import MEAN, STD
from benchmarks.peers import amounts as of
from benchmarks.peers.worker import serve, timed

QUEUE = 2  # batches DALI keeps ready
LINEAR, NEAREST = types.INTERP_LINEAR, types.INTERP_NN
VALUES = np.arange(256)
SMALL = round(of.SIZE * of.DOWNSCALE)


def uniform(low: float, high: float, **arguments: Any) -> Any:
    return fn.random.uniform(range=[low, high], **arguments)


def factor(amount: float) -> Any:
    return uniform(1 - amount, 1 + amount)


def table(values: Any) -> Callable[[Any], Any]:
    """Return a function that looks values up in a table."""
    entries = np.clip(np.round(values), 0, 255).tolist()
    keys = VALUES.tolist()
    return lambda image: fn.lookup_table(image, keys=keys, values=entries, dtype=types.UINT8)


def warp(image: Any, matrix: Any) -> Any:
    """Warp by a map from the input to the output."""
    return fn.warp_affine(image, matrix=matrix, inverse_map=False, fill_value=0, interp_type=LINEAR)


def scaled() -> list[float]:
    shift = of.SIZE / 2 * (1 - of.SCALE)
    return [of.SCALE, 0.0, shift, 0.0, of.SCALE, shift]


def affine() -> list[float]:
    """Return the affine map in DALI's coordinates: pixels have their centres at halves."""
    (a, b, x), (c, d, y) = of.affine_matrix()
    return [a, b, x + 0.5 - (a + b) / 2, c, d, y + 0.5 - (c + d) / 2]


def contrast(image: Any, amount: Any) -> Any:
    """Change the contrast about the mean of the grey image."""
    mean = fn.reductions.mean(image, axis_names="HW", keep_dims=True)
    weights = types.Constant(np.array([0.299, 0.587, 0.114], np.float32))
    centre = fn.reductions.sum(mean * weights)
    return fn.contrast(image, contrast=amount, contrast_center=centre)


def homographies() -> list[Any]:
    """Draw the homographies of a batch, which move each corner of an image near its own place."""
    random = np.random.default_rng(0)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float) * of.SIZE
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], float)
    found = []
    for _ in range(64):
        moved = corners + inwards * random.uniform(0, of.DISTORTION * of.SIZE / 2, (4, 2))
        rows, values = [], []
        for (x, y), (u, v) in zip(corners, moved, strict=True):
            rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
            values += [u, v]
        matrix = np.append(np.linalg.solve(np.array(rows), np.array(values)), 1).reshape(3, 3)
        found.append(matrix.astype(np.float32))
    return found


def perspective(image: Any) -> Any:
    """Warp by homographies that were drawn beforehand."""
    matrices = homographies()
    matrix = fn.external_source(source=lambda: matrices, batch=True, no_copy=True)
    return fn.experimental.warp_perspective(
        image, matrix, inverse_map=False, fill_value=0, interp_type=LINEAR
    )


def quarter_turned(image: Any) -> Any:
    """Rotate by quarter turns, for which it has no other op."""
    angle = fn.random.uniform(values=[0.0, 90.0, 180.0, 270.0])
    return fn.rotate(image, angle=angle, keep_size=True, fill_value=0, interp_type=LINEAR)


def dropped(image: Any) -> Any:
    channel = fn.random.uniform(values=[0.0, 1.0, 2.0], shape=[1])
    return fn.erase(image, anchor=channel, shape=[1.0], axis_names="C", fill_value=0)


def erased(image: Any) -> Any:
    """Erase a box whose size is drawn as by the others; the ratio follows from the sides."""
    side = uniform(of.ERASED[0] ** 0.5, of.ERASED[1] ** 0.5, shape=[2])
    return fn.erase(
        image,
        anchor=uniform(0.0, 0.5, shape=[2]),
        shape=side,
        axis_names="HW",
        normalized=True,
        fill_value=0,
    )


def normalized(image: Any, **arguments: Any) -> Any:
    return fn.crop_mirror_normalize(
        image,
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        dtype=types.FLOAT,
        output_layout="HWC",
        **arguments,
    )


def resized_crop(image: Any) -> Any:
    """Crop and resize without antialiasing, which the others do not have; it is faster."""
    return fn.random_resized_crop(
        image,
        size=[of.SIZE, of.SIZE],
        random_area=list(of.AREA),
        random_aspect_ratio=list(of.RATIO),
        interp_type=LINEAR,
        antialias=False,
    )


def twisted(image: Any, amounts: tuple[float, float, float, float]) -> Any:
    brightness, contrasted, saturation, hue = amounts
    return fn.color_twist(
        image,
        brightness=factor(brightness),
        contrast=factor(contrasted),
        saturation=factor(saturation),
        hue=uniform(-360 * hue, 360 * hue),
    )


def padded(image: Any, size: tuple[int, int]) -> Any:
    """Pad with black around the middle."""
    return fn.crop(image, crop=list(size), out_of_bounds_policy="pad", fill_values=0)


def holed(image: Any) -> Any:
    """Erase as many holes as there are on average, because DALI has one number per batch."""
    count = round(sum(of.HOLES) / 2)
    return fn.erase(
        image,
        anchor=uniform(0.0, 1 - of.HOLE[1], shape=[2 * count]),
        shape=uniform(*of.HOLE, shape=[2 * count]),
        axis_names="HW",
        normalized=True,
        fill_value=0,
    )


def sepia(image: Any) -> Any:
    """Apply sepia as an op for coordinates, which treats colours alike."""
    flat = fn.reshape(image, shape=[-1, 3], layout="")
    made = fn.coord_transform(flat, M=of.SEPIA.reshape(-1).tolist(), dtype=types.UINT8)
    return fn.reshape(made, shape=[of.SIZE, of.SIZE, 3], layout="HWC")


OPS: dict[str, Callable[[Any], Any]] = {
    "Rotate": lambda image: fn.rotate(
        image, angle=of.DEGREES, keep_size=True, fill_value=0, interp_type=LINEAR
    ),
    "Affine": lambda image: warp(image, affine()),
    "Perspective": perspective,
    "Rot90": quarter_turned,
    "Transpose": lambda image: fn.transpose(image, perm=[1, 0, 2]),
    "RandomScale": lambda image: warp(image, scaled()),
    "ColorJitter": lambda image: twisted(image, (of.JITTER,) * 4),
    "Hue": lambda image: fn.hue(image, hue=360 * of.HUE),
    "Brightness": lambda image: fn.brightness(image, brightness=of.FACTOR),
    "Contrast": lambda image: contrast(image, of.FACTOR),
    "Saturation": lambda image: fn.saturation(image, saturation=of.FACTOR),
    "Grayscale": lambda image: fn.color_space_conversion(
        fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY),
        image_type=types.GRAY,
        output_type=types.RGB,
    ),
    "Gamma": table(255 * (VALUES / 255) ** of.GAMMA),
    "Solarize": table(np.where(VALUES >= 255 * of.THRESHOLD, 255 - VALUES, VALUES)),
    "Posterize": lambda image: image & types.Constant(256 - (1 << (8 - of.BITS)), types.UINT8),
    "Invert": lambda image: types.Constant(255, types.UINT8) - image,
    "AutoContrast": augmentations.auto_contrast,
    "Equalize": fn.equalize,
    "Sharpness": lambda image: fn.filter(
        image, types.Constant(augmentations.sharpness_kernel(of.SHARPNESS - 1))
    ),
    "GaussianBlur": lambda image: fn.gaussian_blur(image, sigma=of.SIGMA, window_size=of.KERNEL),
    "GaussianNoise": lambda image: fn.noise.gaussian(image, stddev=255 * of.NOISE),
    "SaltPepper": lambda image: fn.noise.salt_and_pepper(image, prob=of.SALTED),
    "ChannelDrop": dropped,
    "CLAHE": lambda image: fn.clahe(
        image, tiles_x=of.TILES, tiles_y=of.TILES, clip_limit=of.CLIP, luma_only=True
    ),
    "GridMask": lambda image: fn.grid_mask(
        image,
        tile=of.GRID,
        ratio=of.GRID_HOLE / of.GRID,
        shift_x=uniform(0.0, float(of.GRID)),
        shift_y=uniform(0.0, float(of.GRID)),
    ),
    "RandomErasing": erased,
    "RandomCrop": lambda image: fn.crop(
        image, crop=[of.CROP, of.CROP], crop_pos_x=uniform(0.0, 1.0), crop_pos_y=uniform(0.0, 1.0)
    ),
    "CenterCrop": lambda image: fn.crop(image, crop=[of.CROP, of.CROP]),
    "Pad": lambda image: fn.slice(
        image,
        start=[-of.PADDING, -of.PADDING],
        shape=[of.SIZE + 2 * of.PADDING] * 2,
        axes=[0, 1],
        out_of_bounds_policy="pad",
        fill_values=0,
    ),
    "RandomFlip": lambda image: fn.flip(image, horizontal=1),
    "Resize": lambda image: fn.resize(
        image, size=[of.RESIZED, of.RESIZED], interp_type=LINEAR, antialias=False
    ),
    "RandomResizedCrop": resized_crop,
    "Normalize": normalized,
    "ToFloat": lambda image: fn.cast(image, dtype=types.FLOAT) * (1 / 255),
    "Cast": lambda image: fn.cast(image, dtype=types.FLOAT),
    "LetterBox": lambda image: padded(
        fn.resize(image, size=list(of.BOX), mode="not_larger", interp_type=LINEAR), of.BOX
    ),
    "PadIfNeeded": lambda image: padded(image, (of.LARGE, of.LARGE)),
    "Resize antialias": lambda image: fn.resize(
        image, size=[of.RESIZED, of.RESIZED], interp_type=LINEAR, antialias=True
    ),
    "Resize bicubic": lambda image: fn.resize(
        image, size=[of.LARGE, of.LARGE], interp_type=types.INTERP_CUBIC, antialias=True
    ),
    "Resize lanczos": lambda image: fn.resize(
        image, size=[of.LARGE, of.LARGE], interp_type=types.INTERP_LANCZOS3, antialias=True
    ),
    "RandomResizedCrop antialias": lambda image: fn.random_resized_crop(
        image,
        size=[of.RESIZED, of.RESIZED],
        random_area=list(of.AREA),
        random_aspect_ratio=list(of.RATIO),
        interp_type=LINEAR,
        antialias=True,
    ),
    "CoarseDropout": holed,
    "RandomBrightnessContrast": lambda image: fn.brightness_contrast(
        image, contrast=1 + of.BRIGHTNESS, contrast_center=0.0, brightness_shift=of.BRIGHTNESS
    ),
    "RGBShift": lambda image: fn.brightness(image, brightness_shift=of.SHIFT / 255),
    "Sepia": sepia,
    "MultiplicativeNoise": lambda image: fn.brightness(image, brightness=of.MULTIPLIER),
    "ShotNoise": lambda image: fn.noise.shot(image, factor=uniform(*of.SHOTS)),
    "MotionBlur": lambda image: fn.filter(image, types.Constant(of.motion_line())),
    "Defocus": lambda image: fn.filter(image, types.Constant(of.disc())),
    "Downscale": lambda image: fn.resize(
        fn.resize(image, size=[SMALL, SMALL], interp_type=NEAREST),
        size=[of.SIZE, of.SIZE],
        interp_type=NEAREST,
    ),
    "JPEGCompression": lambda image: fn.jpeg_compression_distortion(image, quality=of.QUALITY),
}


def log_mel(sound: Any) -> Any:
    """Compute a log mel spectrogram; DALI's frames are columns, and are transposed to rows as those of the others."""
    spectrum = fn.spectrogram(
        sound, nfft=of.N_FFT, window_length=of.N_FFT, window_step=of.HOP, power=2
    )
    bands = fn.mel_filter_bank(
        spectrum, sample_rate=float(of.SAMPLE_RATE), nfilter=of.BANDS, freq_high=of.SAMPLE_RATE / 2
    )
    levels = fn.to_decibels(bands, multiplier=10.0, reference=1.0, cutoff_db=-100.0)
    return fn.transpose(levels, perm=[1, 0])


SOUNDS: dict[str, Callable[[Any], Any]] = {
    "LogMel": log_mel,
    "Resample": lambda sound: fn.audio_resample(sound, out_length=of.RESAMPLED),
    "Gain": lambda sound: sound * np.float32(10 ** (of.GAIN / 20)),
}


@pipeline_def
def op_pipeline(case: str, source: Any) -> Any:
    """Return a pipeline of one op."""
    if case in SOUNDS:
        return SOUNDS[case](fn.external_source(source=source, batch=True, no_copy=True))
    return OPS[case](given(source))


def given(source: Any) -> Any:
    return fn.external_source(source=source, batch=True, layout="HWC", no_copy=True)


@pipeline_def(enable_conditionals=True)
def simclr_pipeline(source: Any) -> Any:
    """Return the SimCLR pipeline; turning to grey is a saturation of 0, and so part of the same pass."""
    image = given(source)
    image = resized_crop(image)
    brightness, contrasted, saturation, hue = of.SIMCLR_JITTER
    jittered = fn.random.coin_flip(probability=of.SIMCLR_JITTERED)
    coloured = fn.random.coin_flip(probability=1 - of.SIMCLR_GREY)
    image = fn.color_twist(
        image,
        brightness=1 + jittered * uniform(-brightness, brightness),
        contrast=1 + jittered * uniform(-contrasted, contrasted),
        saturation=coloured * (1 + jittered * uniform(-saturation, saturation)),
        hue=jittered * uniform(-360 * hue, 360 * hue),
    )
    if fn.random.coin_flip(probability=of.SIMCLR_BLURRED, dtype=types.BOOL):
        sigma = uniform(*of.SIMCLR_SIGMA)
        blurred = fn.gaussian_blur(image, sigma=sigma, window_size=of.SIMCLR_KERNEL)
    else:
        blurred = image
    return normalized(blurred, mirror=fn.random.coin_flip())


@pipeline_def(enable_conditionals=True)
def rand_augment_pipeline(source: Any) -> Any:
    """Return a pipeline with DALI's own RandAugment."""
    image = given(source)
    image = resized_crop(image)
    image = rand_augment.rand_augment(
        image, n=of.NUMBER, m=of.MAGNITUDE, shape=[of.SIZE, of.SIZE], fill_value=0
    )
    return normalized(image, mirror=fn.random.coin_flip())


@pipeline_def(enable_conditionals=True)
def segmentation_pipeline(source: Any) -> Any:
    """Return a pipeline with the same draws for image and mask."""
    image, mask = fn.external_source(
        source=source, num_outputs=2, batch=True, layout=["HWC", "HWC"], no_copy=True
    )
    start, shape = fn.random_crop_generator(
        image.shape()[:2],
        random_area=list(of.SEGMENTATION_AREA),
        random_aspect_ratio=list(of.RATIO),
    )
    part: dict[str, Any] = {
        "roi_start": fn.cast(start, dtype=types.FLOAT),
        "roi_end": fn.cast(start + shape, dtype=types.FLOAT),
        "size": [of.SIZE, of.SIZE],
        "antialias": False,
    }
    image = fn.resize(image, interp_type=LINEAR, **part)
    mask = fn.resize(mask, interp_type=NEAREST, **part)
    angle = uniform(-of.SEGMENTATION_DEGREES, of.SEGMENTATION_DEGREES)
    image = fn.rotate(image, angle=angle, keep_size=True, fill_value=0, interp_type=LINEAR)
    mask = fn.rotate(mask, angle=angle, keep_size=True, fill_value=0, interp_type=NEAREST)
    image = twisted(image, of.SEGMENTATION_JITTER)
    if fn.random.coin_flip(probability=of.SEGMENTATION_BLURRED, dtype=types.BOOL):
        sigma = uniform(*of.SEGMENTATION_SIGMA)
        blurred = fn.gaussian_blur(image, sigma=sigma, window_size=of.SEGMENTATION_KERNEL)
    else:
        blurred = image
    mirror = fn.random.coin_flip()
    return normalized(blurred, mirror=mirror), fn.flip(mask, horizontal=mirror)


@pipeline_def(enable_conditionals=True)
def auto_augment_pipeline(source: Any) -> Any:
    """Return a pipeline with DALI's own AutoAugment."""
    return auto_augment.auto_augment_image_net(
        given(source), shape=[of.SIZE, of.SIZE], fill_value=0
    )


@pipeline_def(enable_conditionals=True)
def trivial_augment_pipeline(source: Any) -> Any:
    """Return a pipeline with DALI's own TrivialAugment."""
    return trivial_augment.trivial_augment_wide(
        given(source), shape=[of.SIZE, of.SIZE], fill_value=0
    )


CHAINS = {
    "AutoAugment": auto_augment_pipeline,
    "TrivialAugment": trivial_augment_pipeline,
    "SimCLR": simclr_pipeline,
    "RandAugment": rand_augment_pipeline,
    "segmentation": segmentation_pipeline,
}


class Session:
    """Pipelines of one benchmark run."""

    def open(self, files: dict[str, str]) -> dict[str, Any]:
        """Load all samples."""
        self.samples = {name: np.load(file) for name, file in files.items()}
        self.samples["masks"] = self.samples["masks"][..., None]
        self.pipelines: dict[tuple[str, int], Any] = {}
        return {"cases": [*OPS, *SOUNDS, *CHAINS]}

    def result(self, case: str, inputs: list[str], file: str) -> dict[str, Any]:
        """Save the results of all samples."""
        out = self._pipeline(case, inputs, 1).run()[0]
        np.save(file, np.stack([np.array(out.at(place)) for place in range(len(out))]))
        return {}

    def run(self, case: str, inputs: list[str], threads: int, rounds: int) -> dict[str, float]:
        """Time `rounds` batches."""
        pipeline = self._pipeline(case, inputs, threads)

        def sizes() -> Iterator[int]:
            while True:
                yield len(pipeline.run()[0])

        return timed(sizes(), rounds, QUEUE + 1)

    def _pipeline(self, case: str, inputs: list[str], threads: int) -> Any:
        # One at a time: threads of others would wait for the same cores.
        if (case, threads) not in self.pipelines:
            self.pipelines.clear()
            columns = [list(self.samples[name]) for name in inputs]
            batch = columns[0] if len(columns) == 1 else tuple(columns)

            def source() -> Any:
                return batch

            make: Any = CHAINS.get(case)
            options = {
                "batch_size": len(columns[0]),
                "num_threads": threads,
                "device_id": None,
                "prefetch_queue_depth": QUEUE,
            }
            self.pipelines[case, threads] = (
                make(source, **options) if make else op_pipeline(case, source, **options)
            )
            self.pipelines[case, threads].build()
        return self.pipelines[case, threads]


if __name__ == "__main__":
    serve(Session())
