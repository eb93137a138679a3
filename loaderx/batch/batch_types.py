"""Types of data sets and batches for type checkers: what a loader accepts decides what its batches are."""

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
    """A source whose rows have fields."""

    @property
    def spec(self) -> dict[str, Spec]:
        """Shape and dtype of each field."""

    def __len__(self) -> int: ...


class ArrayRows(Protocol):
    """A source whose rows are arrays."""

    @property
    def spec(self) -> Spec:
        """Shape and dtype of one row."""

    def __len__(self) -> int: ...


class IndexedRows(Protocol):
    """Any object with rows, but no array: those have no hash."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def __hash__(self) -> int: ...


class DataclassRows(Protocol):
    """A dataclass with rows, which may have no hash."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class BatchedRows(Protocol):
    """Any object that is read many rows at a time."""

    def __len__(self) -> int: ...
    def __getitems__(self, rows: list[int], /) -> Any: ...


class Table(Protocol):
    """A table, whose columns are fields."""

    def __len__(self) -> int: ...
    @property
    def columns(self) -> Any:
        """Names of the columns."""


class Series(Protocol):
    """A column of a table."""

    def to_numpy(self) -> Any:
        """Return an array of its values."""


class Tensor(Protocol):
    """An array of another framework."""

    def numpy(self) -> Any:
        """Return an array of its values."""


@final
class Untyped:
    """No data set has this type, so only what is `Any` matches it."""


# Data sets by the structure of their batches: dicts of arrays, arrays, and what only the data tells. They exclude one
# another: where two overloads match an argument with an `Any` inside, such as NDArray[Any], mypy infers `Any`. Tuples
# of such arrays are the exception, since a tuple is an object with rows, too.
Fields: TypeAlias = Mapping[Any, Any] | FieldRows
Single: TypeAlias = "Array | jax.Array | ArrayRows | range"
Unknown: TypeAlias = (
    Sequence[Any] | IndexedRows | DataclassRows | BatchedRows | Table | Series | Tensor
)
# Anything but None.
Labels: TypeAlias = "Single | Unknown"


class CommonOptions(TypedDict, total=False):
    """Keyword arguments of a DataLoader that say nothing about what its batches are."""

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
    """Keyword arguments of a DataLoader, but for `transform`."""

    remainder: "RemainderName | None"
    transforms: Any


class Options(HookOptions, total=False):
    """Keyword arguments of a DataLoader whose batches are not those of a `transform`."""

    transform: None


class SingleOptions(CommonOptions, total=False):
    """Keyword arguments of a DataLoader whose batches are arrays: a mask or `Views` would add fields."""

    remainder: Literal["straddle", "keep", "drop"] | None
    transforms: "Sequence[Transform | Channels | Callable[..., Any]] | None"
    transform: None
