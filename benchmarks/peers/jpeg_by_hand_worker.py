"""JPEG files by hand, in threads that fill preallocated arrays; see worker.py for the requests.

`variant` names the decoder, "opencv" or "simplejpeg", which both release the GIL.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np

from benchmarks.images import CROPPED
from benchmarks.peers.jpeg_files import Files
from benchmarks.peers.worker import Actions, Session, batches_per_epoch, numpy_epochs, serve
from benchmarks.rows import Array
from benchmarks.workloads import Batch

PART = 8  # samples of a task
AHEAD = 2  # batches that are begun before they are asked for
OUTS = AHEAD + 2


class JpegByHand(Session):
    ready = AHEAD

    def open(self) -> None:
        self.files = Files(self.work, self.variant)
        self.pool = ThreadPoolExecutor(self.workers)
        shape = self.work.batch_size, CROPPED, CROPPED, 3
        self.outs = [np.zeros(shape, np.float32) for _ in range(OUTS)]

    def epoch(self) -> Iterator[Batch]:
        return self._batches(islice(numpy_epochs(self.work), batches_per_epoch(self.work)))

    def stream(self) -> Iterator[Batch]:
        return self._batches(numpy_epochs(self.work))

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def _batches(self, numbers: Iterator[Array]) -> Iterator[Batch]:
        begun: deque[tuple[list[Future[None]], Array, Array]] = deque()
        for number, rows in enumerate(numbers):
            out = self.outs[number % OUTS][: len(rows)]
            parts = [slice(start, start + PART) for start in range(0, len(rows), PART)]
            tasks = [self.pool.submit(self._fill, out[part], rows[part]) for part in parts]
            begun.append((tasks, out, rows))
            if len(begun) > AHEAD:
                yield self._finished(*begun.popleft())
        while begun:
            yield self._finished(*begun.popleft())

    def _finished(self, tasks: list[Future[None]], out: Array, rows: Array) -> Batch:
        for task in tasks:
            task.result()
        return out, self.files.label[rows]

    def _fill(self, out: Array, rows: Array) -> None:
        # A generator per task: one is not safe in several threads.
        random = np.random.default_rng()
        for place, row in enumerate(rows.tolist()):
            out[place] = self.files.sample(row, random)


if __name__ == "__main__":
    serve(Actions(JpegByHand))
