"""State of a stream: what a checkpoint holds of an iterator.

A state is a few integers, and a description of the data by which it is recognised. States of older versions are
migrated when they are read.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loaderx.errors import StateError

from .sampling import check_mixtures

VERSION = 2
# What belongs to the stream, and not to a place in it.
STREAM = ("data", "rows", "seed", "shuffle")


@dataclass(frozen=True)
class StreamState:
    """Place in a stream: the position of the next sample, and how many batches were taken before it.

    `rows`, `seed`, `shuffle` and `data`, a description of the fields, say of which stream; `data` is None where that
    is not known.
    """

    position: int
    step: int
    rows: int
    seed: int
    shuffle: bool
    data: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict that JSON can hold."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, given: Any) -> "StreamState":
        """Read what `to_dict` of this version, or of one that can be migrated, returned."""
        names = list(cls.__dataclass_fields__)
        refusal = StateError(
            f"`state` (={given!r}) must be what `get_state()` returned: {['version', *names]}."
        )
        if not isinstance(given, Mapping) or "version" not in given:
            raise refusal
        migrated = dict(given)
        version = migrated.pop("version")
        while version != VERSION:
            if not isinstance(version, Hashable) or version not in MIGRATIONS:
                # Not by its keys: a state of another version may have other ones.
                raise StateError(
                    f"`state` is of another version of loaderx: its version is {version!r}, this loader's is "
                    f"{VERSION}."
                )
            version, migrated = MIGRATIONS[version](migrated)
        if migrated.keys() != set(names) or given.get("data", "") is None:
            raise refusal
        state = cls(**migrated)
        numbers = state.position, state.step
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise StateError(
                f"`state` has position {state.position!r} and step {state.step!r}; both must be integers of at least 0."
            )
        return state

    def check_continues(self, own: "StreamState", *, strict: bool) -> None:
        """Raise if this is not a place in the stream of the state `own`; unless `strict`, for mixtures only."""
        check_mixtures(self.data, str(own.data))
        for name in STREAM if strict else ():
            theirs, ours = getattr(self, name), getattr(own, name)
            known = name != "data" or theirs is not None
            if known and theirs != ours:
                raise StateError(
                    f"`state` belongs to another stream: its {name} is {theirs!r}, this loader's is {ours!r}. "
                    "strict=False continues all the same."
                )


def _describe_data(state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Migrate from version 1, which did not describe the data."""
    # One that does is of no version.
    return 2, {**state, "data": None} if "data" not in state else {}


# version -> the function that makes (a later version, its keys) of the keys of a state.
MIGRATIONS: dict[Any, Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]] = {1: _describe_data}
