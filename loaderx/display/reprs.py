"""What shows itself as it was written: `RandomCrop(32, pad=4)`."""

from typing import Any, Self

LONGEST = 1000


class ReprFromArguments:
    """An object that keeps the arguments it was made with, to show them."""

    _written: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __new__(cls, *given: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        # Without the lists and dicts of the caller, who may change them.
        made._written = _kept(given), _kept(named)
        return made

    def __repr__(self) -> str:
        given, named = self._written
        shown = [*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())]
        return f"{getattr(self, 'name', type(self).__name__)}({', '.join(shown)})"


def _kept(value: Any) -> Any:
    """A copy of lists, tuples and dicts, with the same things in them; long lists are data, and stay what they are."""
    if type(value) in (list, tuple) and len(value) <= LONGEST:
        return type(value)(map(_kept, value))
    return {name: _kept(entry) for name, entry in value.items()} if type(value) is dict else value
