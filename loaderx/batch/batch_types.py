"""Types for type checkers: the type of a data set decides the type of its batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from numpy.typing import NDArray

if TYPE_CHECKING:
    from jax.sharding import Sharding
    from typing_extensions import TypeVar

    from loaderx.stream.remainder import RemainderName
    from loaderx.transforms.base import Transform
    from loaderx.transforms.boxes import Boxes
    from loaderx.transforms.channels import Channels
    from loaderx.transforms.kinds import Kind

    # With a default, so that `DataLoader` alone is a complete annotation, also with `mypy --strict`.
    Batch_co = TypeVar("Batch_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    # Python 3.13 is the first with defaults.
    Batch_co = TypeVar("Batch_co", covariant=True)

Array: TypeAlias = NDArray[Any]


class CommonOptions(TypedDict, total=False):
    """Keyword arguments of a DataLoader that do not affect the type of its batches."""

    batch_size: int
    shuffle: bool
    seed: int
    num_epochs: int | None
    weights: Any
    kinds: "Mapping[str, Kind | Boxes] | None"
    prefetch: int
    workers: int | None
    sharding: "Sharding | Mapping[str, Sharding] | None"
    on_error: Literal["raise", "replace"]


class HookOptions(CommonOptions, total=False):
    """Keyword arguments of a DataLoader, except `transform`."""

    remainder: "RemainderName | None"
    transforms: Any


class Options(HookOptions, total=False):
    """Keyword arguments of a DataLoader without a `transform`."""

    transform: None


class SingleOptions(CommonOptions, total=False):
    """Keyword arguments of a DataLoader whose batches are arrays: a mask or `Views` would add fields."""

    remainder: Literal["straddle", "keep", "drop"] | None
    transforms: "Sequence[Transform | Channels | Callable[..., Any]] | None"
    transform: None
