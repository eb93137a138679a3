"""Blend: a sample mixed with the results of chains of ops on it."""

from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import ArgumentError
from loaderx.kernels import blending
from loaderx.kernels.distributions import pick
from loaderx.kernels.pixels import store_values
from loaderx.spec import Spec

from .arguments import KEPT_RNG, array_at, value
from .base import Transform
from .combinators import Sequence
from .image import Identity
from .kinds import IMAGE, LABELS, Kind
from .rounds import Repeating
from .step import Call, Step

if TYPE_CHECKING:
    from loaderx.compiler.table import TableBuilder


class Blend(Repeating):
    """Mix of the sample with `width` others that were made of it by `depth` branches each.

    The shares of these come from a Dirichlet distribution, that of the sample itself from a Beta distribution.
    """

    def __init__(
        self, branches: Several[Sequence], width: int, depth: tuple[int, int], alpha: float
    ) -> None:
        super().__init__(branches)
        self.width, self.depth, self.alpha = width, depth, alpha

    @property
    def sees_kinds(self) -> bool:
        """Return True, whatever its ops are: it mixes values."""
        return True

    def for_kind(self, kind: Kind) -> Transform:
        changed = super().for_kind(kind)
        if kind == IMAGE:
            return changed
        if kind == LABELS:
            return self._refuse_moved_copies(changed, "labels")
        # Without it, mixing a sample with itself would round it.
        return Identity() if changed.does_nothing else changed

    def for_labels(self) -> Transform:
        return self._refuse_moved_copies(super().for_labels(), "labels")

    def for_points(self, image: Spec) -> Transform:
        return self._refuse_moved_copies(super().for_points(image), "boxes or keypoints")

    def _refuse_moved_copies(self, changed: Transform, what: str) -> Transform:
        """Refuse ops that move pixels, where a field cannot be mixed: it would have to be in several places at once."""
        if changed.does_nothing:
            return Identity()
        raise ArgumentError(
            f"{self.name} mixes differently moved copies of an image, and {what} next to it cannot be mixed. Give it "
            f"`ops` that change colours only, as in {self.name}(ops=[Posterize(4), Solarize(), Equalize()]), or apply "
            "it to the image alone, in an entry of its own."
        )

    def write(self, table: "TableBuilder", group: list[Step], x: int, out: int, spec: Spec) -> None:
        step = group[0]
        state = table.start_draws(step)
        here, there, number, width = (table.register() for _ in range(4))
        first, second = table.place(spec.nbytes), table.place(spec.nbytes)
        total = table.place(4 * spec.size)
        flat, floats = Spec((spec.size,), spec.dtype), Spec((spec.size,), np.float32)
        shares = Spec((self.width + 1,), np.float32)
        offset = table.space(shares.nbytes)
        given = [KEPT_RNG, value(self.alpha), array_at("scratch", shares, offset=offset)]
        table.call(step, blending.draw_shares, given, x, table.place_of(state))

        def add(sample: int, counter: int) -> None:
            given = [array_at("x", flat), array_at("scratch", shares, offset=offset)]
            given.append(array_at("scratch", Spec((1,), np.int64), offset=table.offset_of(counter)))
            table.call(
                step, blending.add_counted_share, [*given, array_at("out", floats)], sample, total
            )

        table.set(number, -1)
        add(x, number)
        table.set(width, self.width)
        with table.loop(width) as chain:
            table.move(first, here)
            table.move(second, there)
            table.copy(x, here, spec.nbytes)
            table.draw(step, number, state, self.depth[0], self.depth[1] + 1)
            self.write_turns(table, step, state, number, here, there, spec)
            add(here, chain)
        given = [array_at("x", floats), array_at("out", flat)]
        table.call(step, store_values, given, total, x)

    def interpret(self, step: Step, spec: Spec, compiled: Any) -> Call:
        branches = self.interpret_branches(step, spec, compiled)

        def call(
            x: NDArray[Any], position: int, length: int, turns: tuple[int, ...]
        ) -> NDArray[Any]:
            rng = step.draws(position, turns)
            shares = np.empty(self.width + 1, np.float32)
            total = np.empty(spec.size, np.float32)
            blending.draw_shares(rng, self.alpha, shares)
            blending.add_share(x.reshape(-1), shares, 0, total)
            for chain in range(self.width):
                made = x.copy()
                for turn in range(rng.integers(self.depth[0], self.depth[1] + 1)):
                    chosen = branches[pick(rng, self.shares)]
                    made = chosen(made, position, length, (*turns, chain, turn))
                blending.add_share(made.reshape(-1), shares, chain + 1, total)
            result = np.empty_like(x)
            store_values(total, result.reshape(-1))
            return result

        return call
