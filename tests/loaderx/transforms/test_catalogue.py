"""Every transform is in the table of the page, with its current signature."""

import inspect

from tests.loaderx.transforms.catalogue import PAGE, exported, written


def test_the_table_is_that_of_the_code():
    assert PAGE.read_text() == written(), "run python -m tests.loaderx.transforms.catalogue"


def test_every_op_says_what_it_does():
    for name, value in exported().items():
        assert inspect.getdoc(value), name


def test_the_catalogue_is_complete():
    wanted = """
        Rotate Affine Perspective Rot90 Transpose RandomScale ElasticDeform ColorJitter Hue Gamma Solarize Posterize
        Invert AutoContrast Equalize Sharpness GaussianBlur GaussianNoise SaltPepper ChannelShuffle ChannelDrop CLAHE
        RandAugment TrivialAugment AugMix OneOf Maybe Sequence MultiCrop Views CutMix MixUp GridMask Gain Polarity
        TimeShift RandomCrop1D NoiseAtSNR Reverse TimeMask FreqMask Resample MuLaw SkeletonRotate SkeletonScale
        SkeletonShear JointJitter JointDrop FrameDrop TemporalCrop LeftRightFlip CenterOnJoint MaskTokens
        SpanCorruption PadTo RandomCrop CenterCrop Pad PadIfNeeded LetterBox RandomFlip Resize RandomResizedCrop
        Normalize ToFloat Cast Brightness Contrast Saturation Grayscale RandomErasing OneHot Identity Choice Channels
        AutoAugment RandomOrder SomeOf D4
        CoarseDropout RandomBrightnessContrast RGBShift Sepia FancyPCA PhotometricDistort MultiplicativeNoise ShotNoise
        ISONoise MotionBlur MedianBlur Defocus Downscale JPEGCompression
        Boxes BoxSafeCrop RandomIoUCrop SanitizeBoxes ZoomOut
        GridDistortion OpticalDistortion FiveCrop TenCrop ScaleJitter Fog Rain Shadow
        BackgroundNoise ImpulseResponse PitchShift TimeStretch LowPass HighPass BandPass PeakNormalize LoudnessNormalize
        ClippingDistortion LogMel TimeWarp Mosaic CopyPaste
    """
    assert set(exported()) == set(wanted.split())
