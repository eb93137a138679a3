"""Scale and dtype of values: Normalize, ToFloat, Cast."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels import normalization
from loaderx.spec import Spec

from .base import Parameter, Transform, image_shape
from .sample import SampleTransform
from .scale import ScaleTransform, is_half, widened
from .step import Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder

FLOATS = ("float32", "float16", "bfloat16")


def float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return one of the floating dtypes that samples can be delivered in."""
    if str(dtype) == "bfloat16":
        # NumPy has no bfloat16 of its own; this package comes with JAX.
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    found = _dtype(dtype)
    if found is None or found.name not in FLOATS:
        raise ArgumentError(f"`dtype` (={dtype!r}) must be one of {', '.join(FLOATS)}.")
    return found


def _dtype(given: DTypeLike) -> np.dtype[Any] | None:
    """Return the dtype in the order of this machine; None if this is not a dtype."""
    try:
        return np.dtype(given).newbyteorder("=")
    except (TypeError, ValueError, OverflowError):
        return None


def full_scale(spec: Spec) -> float:
    """Return the value of white: the largest one of an integer dtype, 1 of a floating one."""
    return normalization.full_scale(spec.dtype)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether compiled code calculates with this dtype."""
    return dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize in (4, 8))


def check_numbers(spec: Spec, name: str) -> None:
    """Refuse dtypes that compiled code does not calculate with, and empty samples."""
    if not is_number(spec.dtype):
        raise ArgumentError(f"{name} accepts integers, float32 or float64, not {spec}.")
    if spec.size == 0:
        raise ArgumentError(f"{name} accepts samples of at least one value, not {spec}.")


def check_values(spec: Spec, name: str) -> None:
    """Refuse values that cannot be scaled or cast: in half precision, too, numbers can."""
    if not (is_number(spec.dtype) or is_half(spec.dtype)):
        raise ArgumentError(
            f"{name} accepts integers, bool, float16, bfloat16, float32 or float64, not {spec}."
        )
    if spec.size == 0:
        raise ArgumentError(f"{name} accepts samples of at least one value, not {spec}.")


class _Scaled(ScaleTransform):
    def __init__(self, dtype: DTypeLike, channels_first: bool) -> None:
        self.dtype = float_dtype(dtype)
        self.channels_first = self.takes_images = bool(channels_first)

    def output(self, spec: Spec) -> Spec:
        check_values(spec, self.name)
        scale, _ = self.scale_and_bias(spec)
        if not self.channels_first:
            return Spec(spec.shape, self.dtype)
        height, width, channels = image_shape(spec, self.name)
        if len(scale) not in (1, channels):
            raise ArgumentError(
                f"{self.name} with `channels_first` has values for {len(scale)} channels, the image {spec} has "
                f"{channels}."
            )
        return Spec((channels, height, width), self.dtype)


class Normalize(_Scaled):
    """Normalisation per channel, the last axis: (value / white - mean) / std; white is 255 for uint8, 1 for floats."""

    def __init__(
        self,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        dtype: DTypeLike = "float32",
        channels_first: bool = False,
    ) -> None:
        super().__init__(dtype, channels_first)
        try:
            self._mean, self._std = normalization.channel_values(mean, std)
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    @property
    def mean_and_std(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the numbers to subtract, and those to divide by then."""
        return self._mean, self._std

    @property
    def beyond_one(self) -> bool:
        """Return whether these cannot be the mean and the deviation of values from 0 to 1."""
        return bool(np.any(self._mean > 1) or np.any(self._std > 1))

    def caution(self, spec: Spec, largest: Callable[[], float]) -> str | None:
        if spec.dtype.kind not in "iu" or not self.beyond_one:
            return None
        white = full_scale(spec)
        mean, std = (np.round(values / white, 4).tolist() for values in self.mean_and_std)
        return (
            f"{self!r} gets {spec.dtype}, which it divides by {white:g} before: `mean` and `std` must be on the scale "
            f"from 0 to 1, as in Normalize({mean}, {std})."
        )

    def scale_and_bias(self, spec: Spec) -> tuple[NDArray[Any], NDArray[Any]]:
        for name, values in (("mean", self._mean), ("std", self._std)):
            if len(values) > 1 and spec.shape[-1:] != values.shape:
                raise ArgumentError(
                    f"Normalize: `{name}` has {len(values)} entries, the last axis of {spec} does not."
                )
        return normalization.scale_and_bias(self._mean, self._std, full_scale(spec))


class ToFloat(_Scaled):
    """Conversion to floats, value / white: integers from 0 to 1, floats as they are."""

    def __init__(self, *, dtype: DTypeLike = "float32", channels_first: bool = False) -> None:
        super().__init__(dtype, channels_first)

    def scale_and_bias(self, spec: Spec) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array([1 / full_scale(spec)], np.float32), np.zeros(1, np.float32)


def cast_values(x: Any, out: Any) -> None:
    """Write values in another dtype, as NumPy's astype does."""
    source, target = x.reshape(-1), out.reshape(-1)
    for k in range(source.shape[0]):
        target[k] = source[k]


class Cast(SampleTransform):
    """Conversion to another dtype, as `astype`."""

    function = staticmethod(cast_values)
    in_place = False
    keeps_axes = True
    takes_rng = False

    def __init__(self, dtype: DTypeLike) -> None:
        found = _dtype(dtype)
        if found is None or not is_number(found):
            raise ArgumentError(
                f"`dtype` (={dtype!r}) must be an integer dtype, bool, float32 or float64; for float16 and "
                "bfloat16 see ToFloat and Normalize."
            )
        self._dtype = found

    def output(self, spec: Spec) -> Spec:
        check_values(spec, self.name)
        return Spec(spec.shape, self._dtype)

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        x, spec = widened(table, group[0], x, spec)
        super().write(table, group, x, out, spec)

    def for_points(self, image: Spec) -> Transform:
        from .image import Identity

        return Identity()

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {}
