"""State of a stream, as saved in a checkpoint.

A state is a few integers and a description of the data. States of older versions are migrated when they are read.
"""

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loaderx.errors import StateError

from .sampling import check_mixtures

VERSION = 3
# Keys that identify the stream; the others are the place in it.
STREAM = ("data", "rows", "seed", "shuffle")


@dataclass(frozen=True)
class StreamState:
    """Place in a stream: the position of the next sample, and the number of batches before it.

    `rows`, `seed`, `shuffle` and `data`, a description of the fields, identify the stream. `data` is None if it is
    unknown. `decoder` names the decoders of encoded images, if there are any, and their versions.
    """

    position: int
    step: int
    rows: int
    seed: int
    shuffle: bool
    data: str | None
    decoder: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict that JSON can hold."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, given: Any) -> "StreamState":
        """Read a dict that `to_dict` returned, in this version or in one that can be migrated."""
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
                # Without a look at its keys: another version may have other ones.
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
        """Raise if this is not a place in the stream of the state `own`; without `strict`, for mixtures only."""
        check_mixtures(self.data, str(own.data))
        if self.decoder is not None and own.decoder is not None and self.decoder != own.decoder:
            warnings.warn(
                f"the images of `state` were decoded by {self.decoder}, and now are by {own.decoder}: pixels may "
                "differ.",
                stacklevel=3,
            )
        for name in STREAM if strict else ():
            theirs, ours = getattr(self, name), getattr(own, name)
            known = name != "data" or theirs is not None
            if known and theirs != ours:
                raise StateError(
                    f"`state` belongs to another stream: its {name} is {theirs!r}, this loader's is {ours!r}. "
                    "strict=False continues anyway."
                )


def _describe_data(state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Migrate from version 1, which did not describe the data."""
    # No version wrote a state of version 1 that does; the caller refuses an empty dict.
    return 2, {**state, "data": None} if "data" not in state else {}


def _name_decoder(state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Migrate from version 2, which had no encoded images."""
    return 3, {**state, "decoder": None} if "decoder" not in state else {}


# version -> function from the keys of a state to (a later version, its keys).
MIGRATIONS: dict[Any, Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]] = {
    1: _describe_data,
    2: _name_decoder,
}
