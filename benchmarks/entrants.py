"""Who runs a chain: a loaderx loader in this process, or a peer in an environment of its own."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import loaderx as lx
from benchmarks.harness import Peer, environment
from benchmarks.images import epoch_summary
from benchmarks.peers.worker import timed

THREADS = 2
PREFETCH = 2
# Longer than a loader in this process takes to fill its stock of batches after its turn.
PAUSE = 0.3


class Entrant(Protocol):
    """A loader with a chain."""

    def summary(self) -> dict[str, Any]: ...
    def rate(self) -> float: ...


class Loader:
    """A DataLoader that stays open, as it does in a training loop."""

    def __init__(
        self,
        fields: dict[str, Path],
        transforms: Sequence[Any],
        batch_size: int,
        batches: int,
        stack: ExitStack,
    ) -> None:
        self.image = fields["image"]
        self.open = partial(
            lx.DataLoader,
            {name: lx.NPDataset(str(path)) for name, path in fields.items()},
            batch_size=batch_size,
            transforms={"image": list(transforms)},
            prefetch=PREFETCH,
            workers=THREADS,
            output="numpy",
        )
        self.loader = self.open()
        self.iterator = stack.enter_context(iter(self.loader))
        self.batches = batches

    def summary(self) -> dict[str, Any]:
        """One epoch, summarised."""
        batches = ((batch["image"], batch["label"]) for batch in self.open(num_epochs=1))
        return epoch_summary(batches, self.image)

    def rate(self) -> float:
        """Images per second."""
        sizes = (len(batch["image"]) for batch in self.iterator)
        answer = timed(sizes, self.batches, PREFETCH + 1)
        return answer["images"] / answer["seconds"]


class Remote:
    """A peer, asked for an `amount` of epochs or batches per measurement."""

    def __init__(
        self, venv: str, module: str, amount: dict[str, int], stack: ExitStack, **arguments: object
    ) -> None:
        self.peer = stack.enter_context(Peer(environment(venv), f"benchmarks.peers.{module}"))
        self.peer.ask("open", **arguments)
        self.amount = amount

    def summary(self) -> dict[str, Any]:
        """One epoch, summarised in its own process."""
        return self.peer.ask("summary")

    def rate(self) -> float:
        """Images per second, by the clock of its own process."""
        answer = self.peer.ask("run", **self.amount)
        return float(answer["images"] / answer["seconds"])
