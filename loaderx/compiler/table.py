"""Table of passes: the instructions that the driver executes for every sample of a chain.

Nothing is compiled for a chain. Its ops write instructions: which pass to call, with which parameters, source and
target. Each pass is compiled by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels import samples
from loaderx.kernels.distributions import draw_integer
from loaderx.kernels.progress import Work
from loaderx.spec import Spec
from loaderx.transforms.arguments import KEPT_RNG, RNG, Given, array_at, value
from loaderx.transforms.step import BoxesBefore, Step

from .passes import NOT_COMPILED, compiled_pass

ALIGNMENT = 64
WORD = Spec((1,), np.int64)


@dataclass(frozen=True)
class Table:
    """Table: instructions, initial registers, bytes of scratch memory, names of ops, and objects to keep alive."""

    instructions: NDArray[np.int64]
    registers: NDArray[np.int64]
    scratch: int
    names: tuple[str, ...]
    kept: list[Any]


class TableBuilder:
    """Builder of the table of a chain.

    A place is the number of a register that holds an address. `scratch` counts the bytes of scratch memory in use.
    Compilations are part of `work`, for messages.
    """

    def __init__(self, work: Work, *, checking: bool = False) -> None:
        self._work = work
        self.checking = checking
        self.scratch = 0
        # Name of the op of every instruction, for messages.
        self.names: list[str] = []
        self.cached = True
        # True if all passes are compiled, and not only listed.
        self.complete = True
        # True if an op reads the boxes of a sample.
        self.reads_boxes = False
        self._rows: list[list[int]] = []
        # Initial value of each register for a sample: an offset in scratch memory for its address, or nothing.
        self._registers = [samples.UNSET] * samples.FIRST_FREE
        self._depth = 0
        # Arrays whose addresses are in the table, and parameter blocks: kept alive with it.
        self._kept: list[Any] = []

    # Places.

    def space(self, nbytes: int) -> int:
        """Allocate scratch memory; return its offset."""
        start = self.scratch
        self.scratch += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return start

    def register(self) -> int:
        """Allocate a register for a number or an address."""
        self._registers.append(samples.UNSET)
        return len(self._registers) - 1

    def place_at(self, offset: int) -> int:
        """Return a register with the address of scratch memory."""
        self._registers.append(offset)
        return len(self._registers) - 1

    def place(self, nbytes: int) -> int:
        """Allocate scratch memory; return a register with its address."""
        return self.place_at(self.space(nbytes))

    def workspace(self, spec: Spec, *, fixed: bool = False) -> Given:
        """Return an array in scratch memory; with `fixed` its shape is compiled in."""
        return array_at("scratch", spec, fixed=fixed, offset=self.space(spec.nbytes))

    def constant(self, array: NDArray[Any]) -> int:
        """Return a register with the address of an array that never changes."""
        register = self.register()
        self.set(register, self._keep(array))
        return register

    def start_of(self, place: int) -> int:
        """Return the offset of the scratch memory whose address a register holds."""
        return self._registers[place]

    def offset_of(self, register: int) -> int:
        """Return the offset of a register itself: registers precede scratch memory, in descending order."""
        return -8 * (register + 1)

    def place_of(self, register: int) -> int:
        """Return a register with the address of another register."""
        return self.place_at(self.offset_of(register))

    # Instructions.

    @property
    def here(self) -> int:
        """Number of the next instruction."""
        return len(self._rows)

    def _write(self, kind: int, *numbers: int, name: str = "") -> int:
        row = [kind, *numbers]
        self._rows.append(row + [0] * (samples.WIDTH - len(row)))
        self.names.append(name)
        return len(self._rows) - 1

    def call(
        self,
        step: Step,
        function: Callable[..., Any],
        given: Sequence[Given],
        x: int,
        out: int,
        *,
        sizes: tuple[int, int] | None = None,
        store: Any = None,
        checked: bool = False,
    ) -> None:
        """Call the pass of a function with these arguments; `store` writes its result to the address `out`."""
        layout = tuple(each.argument for each in given)
        name = step.transform.name
        found, cached = compiled_pass(
            function, layout, store, checked=checked and self.checking, op=name, work=self._work
        )
        self.cached = self.cached and cached
        self.complete = self.complete and found is not NOT_COMPILED
        block = self._keep(np.concatenate([np.zeros(0, np.int64), *(each.words for each in given)]))
        self._kept += [found, *(each.kept for each in given)]
        of_sample = self._keep(np.array(sizes, np.int64)) if sizes else 0
        draws = any(each is RNG for each in given)
        self._write(
            *(samples.CALL, found.address, x, out, block, of_sample),
            *(_signed(step.key), self._depth, int(draws)),
            name=name,
        )

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copy bytes."""
        self._write(samples.COPY, source, target, nbytes)

    def settle(self, source: int, target: int, nbytes: int) -> None:
        """Copy bytes unless source and target are the same address."""
        self._write(samples.COPY_IF_APART, source, target, nbytes)

    def move(self, source: int, target: int) -> None:
        """Copy a register."""
        self._write(samples.MOVE, target, source)

    def swap(self, one: int, other: int) -> None:
        """Exchange two registers."""
        self._write(samples.SWAP, one, other)

    def set(self, register: int, value: int) -> None:
        """Set a register to a number."""
        self._write(samples.SET, register, value)

    def mark(self, place: int, nbytes: int) -> None:
        """Fill memory with a known byte if a user's code is checked."""
        if self.checking:
            self._write(samples.FILL, place, nbytes)

    def start_draws(self, step: Step) -> int:
        """Begin the draws of a policy; return the register of their state."""
        state = self.register()
        self._write(samples.START, state, _signed(step.key), self._depth)
        return state

    def draw(self, step: Step, register: int, state: int, low: int, high: int) -> None:
        """Draw an integer in [low, high)."""
        given = [KEPT_RNG, value(low), value(high), array_at("x", WORD)]
        self.call(step, draw_integer, given, self.place_of(register), self.place_of(state))

    def pick(self, state: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw one of several branches; return the array for the instructions where they begin, to be filled."""
        begins = np.zeros(len(shares), np.int64)
        held = np.ascontiguousarray(shares, np.float64)
        self._write(samples.PICK, state, self._keep(held), len(held), self._keep(begins))
        return begins

    def jump(self) -> int:
        """Jump; return the instruction, whose target `continue_here` sets."""
        return self._write(samples.JUMP, 0)

    def skip(self, register: int, limit: int) -> int:
        """Jump unless a register is below another; return the instruction, whose target `continue_here` sets."""
        return self._write(samples.WHILE, register, limit, 0)

    def continue_here(self, jump: int) -> None:
        """Set the target of a jump to the next instruction."""
        row = self._rows[jump]
        row[3 if row[0] == samples.WHILE else 1] = self.here

    @contextmanager
    def loop(self, number: int) -> Iterator[int]:
        """Loop: repeat the instructions inside as often as a register says; yield the loop counter."""
        if self._depth == samples.DEEPEST:
            raise ArgumentError(
                f"policies that repeat ops may be nested at most {samples.DEEPEST} deep."
            )
        counter = samples.TURNS + self._depth
        self.set(counter, 0)
        begin = self._write(samples.WHILE, counter, number, 0)
        self._depth += 1
        yield counter
        self._depth -= 1
        self._write(samples.NEXT, counter, begin)
        self._rows[begin][3] = self.here

    # Chains.

    def chain(self, steps: Sequence[Step], x: int, spec: Spec, out: int) -> Spec:
        """Write the steps from the sample in register `x` to `out`; `x` is not changed unless it is `out`."""
        groups = _groups(steps, spec)
        if x == out:
            for group in groups:
                group[0].transform.write(self, group, x, x, spec)
            return spec
        in_place = [group[0].transform.in_place for group in groups]
        copies = not groups or in_place[0]
        moves = [number for number, stays in enumerate(in_place) if not stays]
        if copies:
            # Rows may be in a mapped file that is read-only.
            target = self.place(spec.nbytes) if moves else out
            self.copy(x, target, spec.nbytes)
            x = target
        for number, group in enumerate(groups):
            if in_place[number]:
                group[0].transform.write(self, group, x, x, spec)
                continue
            result = spec
            for step in group:
                result = step.transform.output(result)
            target = out if number == moves[-1] else self.place(result.nbytes)
            group[0].transform.write(self, group, x, target, spec)
            x, spec = target, result
        return spec

    def boxes_before(self, boxes: BoxesBefore) -> tuple[int, Spec]:
        """Write the steps of the boxes before an op; return their place and spec."""
        self.reads_boxes = True
        spec = boxes.spec
        for step in boxes.steps:
            spec = step.transform.output(spec)
        place = self.place(spec.nbytes)
        self.chain(boxes.steps, samples.BOXES_ROW, boxes.spec, place)
        return place, spec

    def close(self) -> "Table":
        """Return the table."""
        return Table(
            np.array(self._rows, np.int64).reshape(-1, samples.WIDTH),
            np.array(self._registers, np.int64),
            self.scratch,
            tuple(self.names),
            self._kept,
        )

    def _keep(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)


def _groups(steps: Sequence[Step], spec: Spec) -> list[list[Step]]:
    """Return the steps in groups that run as one pass."""
    groups: list[list[Step]] = []
    for given in steps:
        for step in given.transform.flattened(given):
            step = replace(step, spec=spec)
            if groups and step.transform.joins(groups[-1], step, spec):
                groups[-1].append(step)
            else:
                groups.append([step])
            spec = step.transform.output(spec)
    return groups


def _signed(key: int) -> int:
    return int(np.uint64(key).astype(np.int64))
