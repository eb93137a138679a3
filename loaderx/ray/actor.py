"""Worker: an actor of Ray that builds pieces of batches, and what it answers."""

import os
import pickle
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loaderx.batch.builder import BatchBuilder
from loaderx.batch.in_progress import BatchInProgress
from loaderx.errors import LoaderxError, annotate
from loaderx.run.worker_pool import BatchTask, WorkerPool
from loaderx.stream.remainder import Span

from .fingerprint import differences, fingerprint
from .pieces import PieceArrays, PieceBlocks, packed
from .worker_setup import WorkerSetup


@dataclass(frozen=True)
class Built:
    """Piece of a batch, or, with a hook, what the hook returned; the seconds it took, and its replaced rows."""

    content: Any
    seconds: float
    replaced: int


@dataclass(frozen=True)
class Failed:
    """Exception of a worker: pickled if that is possible, and as a text."""

    pickled: bytes | None
    text: str
    trace: str
    # True if another machine may have what this one lacked.
    lacks_memory: bool = False

    def error(self) -> BaseException:
        """Return the exception, with a note that shows where on the worker it was raised."""
        error: BaseException = LoaderxError(self.text)
        if self.pickled is not None:
            error = pickle.loads(self.pickled)
        annotate(error, "on a worker of Ray:", f"\n{self.trace}")
        return error


@dataclass(frozen=True)
class Refused:
    """Refusal of a worker that would build other bytes: what differs."""

    text: str


@dataclass(frozen=True)
class Ready:
    """Answer of a worker that is ready: the node it is on, and its process."""

    node: str
    pid: int


class Worker:
    """Worker that holds the loader. An actor that Ray starts anew makes it, and compares it, again."""

    def __init__(self) -> None:
        # Without arguments: Ray could not start an actor anew that lost those in the object store.
        self._builder: BatchBuilder | None = None
        self._refused: Refused | None = None
        self._pool = WorkerPool(1)

    def prepare(self, setup: list[Any]) -> Ready | Refused | Failed:
        """Make the loader, and compare it with that of the consumer.

        The reference to the setup is in a list, so that exceptions of a user's code while it is unpickled come here.
        """
        if self._builder is None and self._refused is None:
            try:
                self._make(setup[0])
            except Exception as error:  # noqa: BLE001 - it is raised in the consumer
                return failure(error)
        return self._refused or Ready(_node(), os.getpid())

    def _make(self, reference: Any) -> None:
        import ray

        setup: WorkerSetup = ray.get(reference)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the consumer has given them
            builder, loader = setup.builder()
        found = differences(setup.fingerprint, fingerprint(loader, builder))
        if found:
            self._refused = Refused(found)
        else:
            self._pool = WorkerPool(setup.threads)
            self._builder = builder

    def build(
        self,
        setup: list[Any],
        step: int,
        span: tuple[int, int, int, int],
        blocks: PieceBlocks,
    ) -> Built | Failed | Refused:
        """Build a piece of a batch."""
        answer = self.prepare(setup)
        if not isinstance(answer, Ready):
            return answer
        assert self._builder is not None
        began = time.perf_counter()
        try:
            task = BatchTask(PieceBuilder(self._builder, blocks), self._pool, step, Span(*span))
            task.start()
            task.wait()
            if task.error is not None:
                raise task.error
            seconds = time.perf_counter() - began
            found = task.batch if self._builder.hook is not None else packed(task.batch)
            return Built(found, seconds, task.replaced)
        except Exception as error:  # noqa: BLE001 - it is raised in the consumer
            return failure(error)


class PieceBuilder:
    """Builder of one piece: of its arrays, or of what the hook returns for it."""

    compiled = False

    def __init__(self, builder: BatchBuilder, blocks: PieceBlocks) -> None:
        self._builder = builder
        self._blocks = blocks

    def begin(self, step: int, span: Span) -> BatchInProgress:
        """Begin a piece."""
        return self._builder.begin(step, span, self._blocks)

    def fill(self, in_progress: BatchInProgress, phase: int, part: int) -> None:
        """Fill one part of it in one phase."""
        self._builder.fill(in_progress, phase, part)

    def finish(self, in_progress: BatchInProgress) -> Any:
        """Return its arrays, or what the hook returns."""
        return content(self._builder, in_progress)


def content(builder: BatchBuilder, in_progress: BatchInProgress) -> Any:
    """Return the arrays of a piece that was filled, or what the hook returns for them."""
    if builder.hook is not None:
        return builder.call_hook(in_progress)
    arrays: PieceArrays = in_progress.arrays
    return arrays


def failure(error: Exception) -> Failed:
    """Return the answer for an exception."""
    try:
        from ray import cloudpickle

        pickled = cloudpickle.dumps(error)  # type: ignore[no-untyped-call]
        # Some exceptions can be pickled, but not unpickled.
        pickle.loads(pickled)
    except Exception:  # noqa: BLE001 - any, of a user's class
        pickled = None
    return Failed(
        pickled,
        f"{type(error).__name__}: {error}",
        "".join(traceback.format_exception(error)).rstrip(),
        lacks_memory=_lacks_memory(error),
    )


def _lacks_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def flat(batch: Any) -> Sequence[Any]:
    """Return the leaves of a batch of any structure."""
    if isinstance(batch, dict):
        return [leaf for value in batch.values() for leaf in flat(value)]
    if isinstance(batch, tuple | list):
        return [leaf for value in batch for leaf in flat(value)]
    return [batch]
