"""Base of ops that move pixels by numbers that are drawn for every sample: a window, or a map."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from loaderx.kernels.windows import EDGE
from loaderx.spec import Spec

from .arguments import HEIGHT_OF, RNG, WIDTH_OF, Given, array_at, record_at, value
from .base import Parameter, Transform, image_shape
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class MovingTransform(Transform):
    """Op whose `function(rng, height, width, out_height, out_width, *parameters)` draws how pixels are moved.

    `border` says what is seen outside of the image.
    """

    function: Callable[..., tuple[Any, ...]]
    # Windows that stay inside the image never use it. EDGE means that they have no fill colour of their own.
    border: int = EDGE
    fill: float = 0.0

    # The count and dtype of the drawn numbers, the function that stores them, and the one that moves points by them.
    numbers: int
    number: str
    store: Callable[..., None]
    follow: Callable[..., None]

    spatial = True
    takes_images = True
    stays_compiled = True

    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the arguments after the sizes."""

    def for_points(self, image: Spec) -> Transform:
        from .points import PointsTransform

        return PointsTransform(self, image)

    def draw(self, table: "TableBuilder", step: Step, image: Spec, result: Spec) -> Given:
        """Write the pass that draws the numbers of a sample; return them."""
        sizes, wanted = image_shape(image, self.name)[:2], image_shape(result, self.name)[:2]
        given = [RNG, HEIGHT_OF, WIDTH_OF, *map(value, (*wanted, *self.parameters()))]
        offset = table.space(8 * self.numbers)
        record = table.place_at(offset)
        table.call(step, self.function, given, record, record, sizes=sizes, store=self.store)
        return record_at(offset, self.number, self.numbers)

    def write_points(
        self, table: "TableBuilder", step: Step, x: int, spec: Spec, image: Spec, result: Spec
    ) -> None:
        """Write the passes that move boxes or keypoints as the pixels of an image are moved."""
        drawn = self.draw(table, step, image, result)
        wanted = image_shape(result, self.name)[:2]
        table.call(step, self.follow, [array_at("x", spec), drawn, *map(value, wanted)], x, x)

    def interpret_points(self, step: Step, image: Spec, result: Spec) -> Call:
        """Return a function that moves boxes or keypoints, in plain Python."""
        sizes = (*image_shape(image, self.name)[:2], *image_shape(result, self.name)[:2])
        as_number: Any = int if self.number == "int64" else float

        def call(x: NDArray[Any], position: int, _: int, turns: tuple[int, ...]) -> NDArray[Any]:
            drawn = self.function(step.draws(position, turns), *sizes, *self.parameters())
            self.follow(x, tuple(map(as_number, drawn)), *sizes[2:])
            return x

        return call
