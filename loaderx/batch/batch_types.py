"""Types for type checkers: the type of a data set decides the type of its batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict, final

from numpy.typing import NDArray

from loaderx.spec import Spec

if TYPE_CHECKING:
    import jax
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


class FieldRows(Protocol):
    """Source whose rows have fields."""

    @property
    def spec(self) -> dict[str, Spec]:
        """Shape and dtype of each field."""

    def __len__(self) -> int: ...


class ArrayRows(Protocol):
    """Source whose rows are arrays."""

    @property
    def spec(self) -> Spec:
        """Shape and dtype of one row."""

    def __len__(self) -> int: ...


class IndexedRows(Protocol):
    """Object with rows that is hashable, so not an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def __hash__(self) -> int: ...


class DataclassRows(Protocol):
    """Dataclass with rows, which may have no hash."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class BatchedRows(Protocol):
    """Object that is read many rows at a time."""

    def __len__(self) -> int: ...
    def __getitems__(self, rows: list[int], /) -> Any: ...


class Table(Protocol):
    """Table, whose columns are fields."""

    def __len__(self) -> int: ...
    @property
    def columns(self) -> Any:
        """Names of the columns."""


class Series(Protocol):
    """Column of a table."""

    def to_numpy(self) -> Any:
        """Return an array of its values."""


class Tensor(Protocol):
    """Array of another framework."""

    def numpy(self) -> Any:
        """Return an array of its values."""


@final
class Untyped:
    """Type that no data set has, so that only `Any` matches it."""


# Data sets by the structure of their batches: dicts of arrays, arrays, and those whose structure only the data tells.
# They exclude one another: where two overloads match an argument with an `Any` inside, such as NDArray[Any], mypy
# infers `Any`. Tuples of arrays are the exception, since a tuple is an object with rows, too.
Fields: TypeAlias = Mapping[Any, Any] | FieldRows
Single: TypeAlias = "Array | jax.Array | ArrayRows | range"
Unknown: TypeAlias = (
    Sequence[Any] | IndexedRows | DataclassRows | BatchedRows | Table | Series | Tensor
)
# Anything but None.
Labels: TypeAlias = "Single | Unknown"


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
