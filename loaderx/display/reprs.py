"""Repr of an object from the arguments it was made with: `RandomCrop(32, pad=4)`."""

from typing import Any, Self

LONGEST = 1000


class ReprFromArguments:
    """Mixin that keeps the arguments of the constructor for the repr."""

    _written: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __new__(cls, *given: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        # A copy of lists and dicts, which the caller may change.
        made._written = _copied(given), _copied(named)
        return made

    def __repr__(self) -> str:
        given, named = self._written
        shown = [*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())]
        return f"{getattr(self, 'name', type(self).__name__)}({', '.join(shown)})"


def _copied(value: Any) -> Any:
    """Return a copy of lists, tuples and dicts, with the same items; long lists are data, and are not copied."""
    if type(value) in (list, tuple) and len(value) <= LONGEST:
        return type(value)(map(_copied, value))
    return {name: _copied(entry) for name, entry in value.items()} if type(value) is dict else value
