"""Fleet: the actors of one loader. They are started, compared, chosen, lost, and their number changes.

No thread of its own tends the fleet: threads that wait for pieces do it in between.
"""

import logging
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loaderx.errors import WorkerError
from loaderx.process import shutdown
from loaderx.stream.remainder import Span

from .actor import Failed, Ready, Refused, Worker
from .pieces import PieceBlocks

logger = logging.getLogger("loaderx")
# Times per row of so many recent pieces are known.
RECENT = 64
# Polling interval of the state of the actors, in seconds.
TEND_SECONDS = 0.05
# Seconds until an actor that could not be reached is asked again.
RETRY_SECONDS = 1.0
# An actor that died so often in a row is not started anew by Ray, so that another one is started in its place.
MOST_DEATHS = 3


@dataclass(eq=False)
class Member:
    """Actor of the fleet.

    `check` is the pending answer to whether it is ready, and `asked` when it was asked for. `abandoned` are pieces that
    it builds and that nobody waits for. `late` is True while it has not answered for much longer than others took.
    """

    actor: Any
    number: int
    ready: bool = False
    refused: bool = False
    check: Any = None
    asked: float = 0.0
    # How often in a row it did not say whether it is ready, since it had died.
    deaths: int = 0
    outstanding: int = 0
    abandoned: list[Any] = field(default_factory=list)
    late: bool = False
    node: str = ""
    pid: int = 0
    # When its last answer came, by the clock of the consumer.
    answered: float = 0.0


class Fleet:
    """Fleet of actors. Any number of iterators of a loader share it."""

    def __init__(self, ray: Any, setup: Any, workers: int, cpus: float) -> None:
        self._ray = ray
        # In the object store: every node gets one copy of the data in it.
        self._setup = ray.put(setup)
        self.workers = workers
        self.cpus = cpus
        self._generation = shutdown.process.generation
        self._lock = threading.Lock()
        self._tending = threading.Lock()
        self._tended = 0.0
        self._members: list[Member] = []
        # Actors that leave as soon as they have built what they were asked for.
        self._leaving: list[Member] = []
        self._started = 0
        self._refusals: dict[int, str] = {}
        self._reported: set[str] = set()
        self._failure: Failed | None = None
        self._seconds_per_row: deque[float] = deque(maxlen=RECENT)
        self.closed = False
        self.began = time.monotonic()
        self.store_bytes = _store_bytes(ray)
        # True if others held the CPUs when the actors were asked for: they may hold them for ever.
        self.crowded = float(ray.available_resources().get("CPU", 0)) < cpus
        self._options = {
            "num_cpus": cpus,
            "max_restarts": -1,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        with self._lock:
            self._adjust()

    # --- state ---

    @property
    def usable(self) -> bool:
        """True if Ray can be asked: not after its shutdown, nor in a forked process."""
        return (
            not self.closed
            and self._generation == shutdown.process.generation
            and not shutdown.process.exiting
            and bool(self._ray.is_initialized())
        )

    @property
    def ready(self) -> int:
        """Number of actors that can build."""
        return sum(member.ready for member in tuple(self._members))

    @property
    def members(self) -> Sequence[Member]:
        """Actors that take part, whether they are ready or not."""
        return tuple(self._members)

    @property
    def seconds_per_row(self) -> float | None:
        """Median seconds per row of recent pieces, with their way here; None while none is known."""
        recent = tuple(self._seconds_per_row)
        return statistics.median(recent) if recent else None

    def record(self, seconds: float, rows: int) -> None:
        """Record how long a piece took."""
        self._seconds_per_row.append(seconds / max(1, rows))

    def check_refusals(self) -> None:
        """Raise if no actor is left because all differ, or because none could make the loader."""
        with self._lock:
            others = any(not member.refused for member in self._members)
            refusals, failed = list(self._refusals.values()), self._failure
        if others or not (refusals or failed):
            return
        if failed is not None:
            raise failed.error()
        raise WorkerError(
            "the workers of the Ray cluster would build other batches than this process. On the first one "
            f"{refusals[0]}. Install the same versions and the same code everywhere."
        )

    @property
    def refusals(self) -> Sequence[str]:
        """What differs on the actors that were refused."""
        return tuple(self._refusals.values())

    def news(self) -> list[str]:
        """Return the differences of actors that were refused, each once."""
        with self._lock:
            found = [text for text in self._refusals.values() if text not in self._reported]
            self._reported.update(found)
        return list(dict.fromkeys(found))

    # --- actors ---

    def resize(self, workers: int) -> None:
        """Change the number of actors. Those that are too many build what they were asked for, and leave."""
        with self._lock:
            self.workers = workers
            if self.usable:
                self._adjust()

    def _adjust(self) -> None:
        """Start or dismiss actors until their number is right. The lock is held."""
        present = [member for member in self._members if not member.refused]
        while len(present) < self.workers - self._refused():
            member = self._start()
            present.append(member)
            self._members.append(member)
        # Those that are not ready go first.
        present.sort(key=lambda member: (member.ready, -member.number))
        for member in present[: max(0, len(present) - self.workers)]:
            self._members.remove(member)
            self._leaving.append(member)

    def _refused(self) -> int:
        """Return how many actors were refused: others in their place would be, too."""
        return sum(member.refused for member in self._members)

    def _start(self) -> Member:
        # Only now: the class is sent to the cluster by name, so that workers run the code that they have installed.
        made = self._ray.remote(Worker).options(**self._options).remote()
        self._started += 1
        member = Member(made, self._started - 1)
        self._ask(member)
        return member

    def _ask(self, member: Member) -> None:
        member.asked = time.monotonic()
        member.check = member.actor.prepare.remote([self._setup])

    def tend(self) -> None:
        """Look which actors are ready now, ask those again that were lost, and replace dead ones. Never blocks."""
        now = time.monotonic()
        if now - self._tended < TEND_SECONDS or not self._tending.acquire(blocking=False):
            return
        try:
            self._tended = now
            if self.usable:
                self._tend(now)
        except Exception as error:  # noqa: BLE001 - Ray was shut down, or lost its processes on this machine
            logger.info("the workers of Ray cannot be asked: %s", error)
        finally:
            self._tending.release()

    def _tend(self, now: float) -> None:
        with self._lock:
            everyone = [*self._members, *self._leaving]
        checks = {member.check: member for member in everyone if member.check is not None}
        for ref in self._done(list(checks)):
            self._learn(checks[ref], ref, now)
        for member in everyone:
            for ref in self._done(member.abandoned):
                with self._lock:
                    member.abandoned.remove(ref)
                    member.outstanding -= 1
                    member.answered = now
                    if member.late and member.check is None:
                        # It was late, or it has died: to fetch what nobody needs would take longer than to ask.
                        self._ask(member)
        with self._lock:
            for member in [m for m in self._members if not m.ready and m.check is None]:
                if not member.refused and now - member.asked >= RETRY_SECONDS:
                    self._renew(member)
            self._leaving = [m for m in self._leaving if m.outstanding]

    def _done(self, refs: list[Any]) -> list[Any]:
        """Return those of some pending answers that have arrived at their node."""
        if not refs:
            return []
        done: list[Any] = self._ray.wait(
            list(refs), num_returns=len(refs), timeout=0, fetch_local=False
        )[0]
        return done

    def _learn(self, member: Member, ref: Any, now: float) -> None:
        """Take the answer of an actor that was asked whether it is ready."""
        try:
            answer = self._ray.get(ref, timeout=10)
        except Exception as error:  # noqa: BLE001 - an actor that is lost, in any way
            logger.info("a worker of Ray does not answer: %s", error)
            answer, member.ready = None, False
            member.deaths += isinstance(error, self._ray.exceptions.ActorDiedError)
        else:
            member.deaths = 0
        with self._lock:
            member.check = None
            if isinstance(answer, Ready):
                member.ready, member.node, member.pid = True, answer.node, answer.pid
                member.answered, member.late = now, False
            elif isinstance(answer, Refused | Failed):
                self._refuse(member, answer)

    def _refuse(self, member: Member, answer: Refused | Failed) -> None:
        member.ready, member.refused = False, True
        if isinstance(answer, Refused):
            self._refusals[member.number] = answer.text
        else:
            self._failure = answer
            self._refusals[member.number] = f"making the loader raises {answer.text}"
        # It holds no CPU any more.
        with suppress(Exception):
            self._ray.kill(member.actor)

    def _renew(self, member: Member) -> None:
        """Ask an actor that was lost whether Ray has started it anew, or start another one in its place."""
        with suppress(Exception):  # Ray may be gone by now
            if member.deaths < MOST_DEATHS:
                self._ask(member)
            else:
                new = self._start()
                member.actor, member.check, member.asked = new.actor, new.check, new.asked
                member.deaths = 0

    # --- pieces ---

    def choose(self, excluded: Sequence[Member] = ()) -> Member | None:
        """Reserve the ready actor with the fewest pieces; None if there is none."""
        with self._lock:
            found = [member for member in self._members if member.ready and member not in excluded]
            if not found:
                return None
            best = min(found, key=lambda member: (member.late, member.outstanding, member.number))
            best.outstanding += 1
            return best

    def submit(self, member: Member, step: int, span: Span, blocks: PieceBlocks) -> Any:
        """Ask an actor that `choose` returned for a piece; return the pending answer."""
        try:
            return member.actor.build.remote([self._setup], step, tuple(span), blocks)
        except BaseException:
            self.lost(member)
            raise

    def answered(self, member: Member, now: float) -> float:
        """Note that an actor answered; return when its answer before that came."""
        with self._lock:
            member.outstanding -= 1
            before, member.answered = member.answered, now
            member.late = False
        return before

    def lost(self, member: Member) -> None:
        """Note that an actor did not build a piece that it was asked for."""
        with self._lock:
            member.outstanding -= 1
            member.ready = False
            # It may have been started anew at once, so it is asked at the next opportunity.
            member.asked = time.monotonic() - RETRY_SECONDS / 2

    def refuse(self, member: Member, answer: Refused) -> None:
        """Note that an actor that Ray started anew now differs."""
        with self._lock:
            member.outstanding -= 1
            self._refuse(member, answer)

    def abandon(self, member: Member, ref: Any) -> None:
        """Give up a piece that nobody needs any more. The actor counts as busy until it is done with it."""
        with suppress(Exception):
            self._ray.cancel(ref)
        with self._lock:
            member.abandoned.append(ref)

    def close(self) -> None:
        """Dismiss all actors."""
        with self._lock:
            usable, self.closed = self.usable, True
            everyone = [*self._members, *self._leaving]
            self._members, self._leaving = [], []
        if usable:
            for member in everyone:
                with suppress(Exception):
                    self._ray.kill(member.actor)


def _store_bytes(ray: Any) -> int:
    """Return the size of the smallest object store of the cluster."""
    sizes = [
        int(node["Resources"].get("object_store_memory", 0))
        for node in ray.nodes()
        if node["Alive"]
    ]
    return min((size for size in sizes if size), default=1 << 30)
