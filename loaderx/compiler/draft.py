"""The text of a driver while it is being written, and the steps it is written for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loaderx.transforms.transform import Transform

ALIGNMENT = 64
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Step:
    """One op of a chain, with the key of its draws; a field that `follows` an image is sampled, never mixed.

    At `most` so many entries of its samples along their first axis are data, and not padding.
    """

    transform: Transform
    key: int
    follows: bool = False
    most: int = 0


@dataclass
class Draft:
    """The text of a driver while it is being written."""

    lines: list[str] = field(default_factory=list)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    # Names of those that are compiled with a check of every index.
    checked: set[str] = field(default_factory=set)
    arguments: list[Any] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    scratch: int = 0
    takes_lengths: bool = False
    # The loops of policies that are being written, by the names of their counters.
    turns: list[str] = field(default_factory=list)
    _depth: int = 2
    _variables: int = 0

    def write(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def variable(self, name: str) -> str:
        """A name that no other line has."""
        self._variables += 1
        return f"{name}_{self._variables}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines under a condition or a loop."""
        self.write(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("pass")
        self._depth -= 1

    def function(self, function: Callable[..., Any], *, checked: bool = False) -> str:
        for name, known in self.functions.items():
            if known is function and (name in self.checked) == checked:
                return name
        name = getattr(function, "__name__", "op")
        # A name that a user gave may be no name in a program.
        name = f"{name if name.isidentifier() else 'op'}_{len(self.functions)}"
        self.functions[name] = function
        if checked:
            self.checked.add(name)
        return name

    def argument(self, value: Any) -> str:
        self.arguments.append(value)
        return f"a{len(self.arguments) - 1}"

    def space(self, nbytes: int) -> str:
        start = self.scratch
        self.scratch += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return f"space + {start}"

    def array(self, address: str, shape: tuple[int, ...], dtype: np.dtype[Any] | str) -> str:
        """A view of memory, with its shape as a constant."""
        return f"carray(pointer({address}), {shape or (1,)}, np.{_name(dtype)})"

    def table(self, size: int, dtype: str) -> str:
        name = self.variable("table")
        self.write(f"{name} = {self.array(self.space(size * 4), (size,), dtype)}")
        return name

    def start_op(self, step: Step) -> str:
        """Note which op runs, for messages, and give the expression of its rng."""
        number = len(self.names)
        self.names.append(step.transform.name)
        self.keys.append(step.key)
        self.write(f"progress[1] = {number}")
        key = f"keys[{number}]"
        for turn in self.turns:
            key = f"fold({key}, {turn})"
        return f"start_draws(fold({key}, positions[i]))"


def _name(dtype: np.dtype[Any] | str) -> str:
    name = str(np.dtype(dtype)) if not isinstance(dtype, str) else dtype
    return {"bool": "bool_", **dict.fromkeys(HALVES, "uint16")}.get(name, name)
