"""Types for type checkers: the structure of the rows of whatever a user passes as data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, final

from numpy.typing import NDArray

from loaderx.spec import Spec

if TYPE_CHECKING:
    import jax


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
Single: TypeAlias = "NDArray[Any] | jax.Array | ArrayRows | range"
Unknown: TypeAlias = (
    Sequence[Any] | IndexedRows | DataclassRows | BatchedRows | Table | Series | Tensor
)
# Anything but None.
Labels: TypeAlias = "Single | Unknown"
