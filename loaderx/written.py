"""What shows itself as it was written: `RandomCrop(32, pad=4)`."""

from typing import Any, Self


class Written:
    """An object that keeps the arguments it was made with, to show them."""

    _written: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __new__(cls, *given: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        made._written = given, named
        return made

    def __repr__(self) -> str:
        given, named = self._written
        shown = [*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())]
        return f"{getattr(self, 'name', type(self).__name__)}({', '.join(shown)})"
