"""FiveCrop and TenCrop: the corners and the centre of an image as views of it."""

from collections.abc import Sequence
from typing import Any, Literal

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.spec import Spec

from .base import Parameter, image_shape, pair
from .spatial import CenterCrop, RandomFlip, resized
from .views import Views
from .window import WindowTransform

# Left upper, right upper, left lower and right lower corner, as (is lower, is right).
CORNERS = ((False, False), (False, True), (True, False), (True, True))


@jitable
def corner_window(
    rng: Any, height: int, width: int, tall: int, wide: int, lower: bool, right: bool
) -> Any:
    """Return the window of the output's size in a corner."""
    top = height - tall if lower else 0
    left = width - wide if right else 0
    return top, tall, False, left, wide, False


def check_size(size: tuple[int, int], spec: Spec, name: str) -> None:
    """Refuse images that are smaller than the crops."""
    height, width, _ = image_shape(spec, name)
    if size[0] > height or size[1] > width:
        raise ArgumentError(
            f"{name}: `size` (={size}) must not exceed the image, ({height}, {width}); the input is {spec}."
        )


class _Corner(WindowTransform):
    function = staticmethod(corner_window)

    def __init__(self, size: tuple[int, int], lower: bool, right: bool, name: str) -> None:
        self._size = size
        self._corner = lower, right
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def output(self, spec: Spec) -> Spec:
        check_size(self._size, spec, self.name)
        return resized(spec, self._size, self.name)

    def parameters(self) -> tuple[Parameter, ...]:
        return self._corner


def corners_and_centre(size: Any, name: str) -> list[Any]:
    """Return the five crops in the order of torchvision: corners row by row, then the centre."""
    both = pair("size", size)
    return [*(_Corner(both, *corner, name) for corner in CORNERS), CenterCrop(both)]


class FiveCrop(Views):
    """Views of the four corners and the centre of an image, `size` each; every one goes through `ops`.

    torchvision returns a tuple; here, as with MultiCrop, `image` becomes the fields `image_0` to `image_4`, in its
    order: left upper, right upper, left lower, right lower, centre. np.stack over them gives one array. Masks, boxes
    and keypoints follow.
    """

    def __init__(self, size: int | tuple[int, int], ops: Sequence[Any] = ()) -> None:
        super().__init__([[crop, *ops] for crop in corners_and_centre(size, "FiveCrop")])


class TenCrop(Views):
    """Views of FiveCrop, and those of the mirrored image: `image_0` to `image_9`; every one goes through `ops`.

    The mirrored image is left to right, or upside down with axis="vertical" (torchvision's vertical_flip=True). Its
    views are in the order of FiveCrop.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        ops: Sequence[Any] = (),
        *,
        axis: Literal["horizontal", "vertical"] = "horizontal",
    ) -> None:
        crops = corners_and_centre(size, "TenCrop")
        flip = RandomFlip(1.0, axis=axis)
        super().__init__([[crop, *ops] for crop in crops] + [[flip, crop, *ops] for crop in crops])
