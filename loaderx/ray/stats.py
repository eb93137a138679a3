"""Statistics of an iterator on a cluster, and what they say to do."""

import math
import threading
from dataclasses import dataclass, field
from typing import Any

from loaderx.run.iterator import Stats

# Workers that are busy for a smaller part of the time wait for the transport of what they built.
BUSY_SHARE = 0.7
# A consumer that does not wait for a larger part of the time is the bottleneck.
CONSUMER_SHARE = 0.9
# A consumer that needs a smaller part of the time for itself takes as many batches as there are.
CONSUMING_SHARE = 0.02


@dataclass
class Counters:
    """Counters of one iterator, which several threads increase."""

    hedged: int = 0
    lost: int = 0
    built_here: int = 0
    building_seconds: float = 0.0
    transport_seconds: float = 0.0
    transport_bytes: int = 0
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, **amounts: float) -> None:
        """Increase counters."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


@dataclass(frozen=True)
class RayStats(Stats):
    """Statistics of an iterator on a cluster so far.

    `building_seconds` are those of the workers. A piece is what one worker builds of a batch.
    """

    # Actors that can build now, and the CPUs of each.
    workers: int = 0
    cpus_per_worker: float = 1
    # Pieces that were asked for a second time, since the first answer was late; and that were lost with their worker.
    hedged: int = 0
    lost: int = 0
    # Pieces that this process built, since no worker did.
    built_here: int = 0
    # Time of pieces between a worker and this process, and their bytes.
    transport_seconds: float = 0.0
    transport_bytes: int = 0
    # Seconds until the first batch: of the start of the actors, mostly.
    startup_seconds: float = 0.0
    # True if batches hold float32 or wider numbers.
    wide: bool = False

    @property
    def _seconds(self) -> float:
        """Seconds since the first batch."""
        return self.total_seconds - self.startup_seconds

    @property
    def _consuming(self) -> float:
        """Seconds since the first batch in which the consumer did not wait."""
        return self.total_seconds - self.waiting_seconds

    @property
    def busy_share(self) -> float:
        """Share of the time since the first batch that the workers built."""
        available = self.workers * self._seconds
        return min(1.0, self.building_seconds / available) if available > 0 else 0.0

    @property
    def advice(self) -> str:
        """What would help, in a sentence."""
        if self.batches < 2:
            return "nothing is known before the second batch"
        if self.workers == 0:
            return "no worker is ready, and this process builds the batches: look at `ray status`"
        if self._consuming > CONSUMER_SHARE * self._seconds:
            return "the workers keep up: the consumer is the bottleneck"
        if self.busy_share < BUSY_SHARE:
            return f"the transport is the bottleneck, {self._transport()}: {self._smaller()}"
        if self._consuming < CONSUMING_SHARE * self._seconds:
            each = self.batches / self._seconds / self.workers / self.cpus_per_worker
            return (
                f"the consumer only waits: each more CPU adds about {each:.3g} batches per second"
            )
        have = self.workers * self.cpus_per_worker
        more = math.ceil(self.building_seconds * self.cpus_per_worker / self._consuming - have)
        return f"needs about {max(1, more)} more CPU{'s' if more > 1 else ''}"

    def _transport(self) -> str:
        if not self.transport_seconds:
            return "with batches that are built here"
        rate = self.transport_bytes / self.transport_seconds / 1e9
        return f"{self.bytes / self.batches / 1e6:.3g} MB per batch at {rate:.2g} GB/s"

    def _smaller(self) -> str:
        if self.wide:
            return "deliver uint8 or bfloat16 and normalise on the device"
        return "a local loader may be faster, or fewer and larger batches"
