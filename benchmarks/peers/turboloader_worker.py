"""TurboLoader over a tar of JPEG files; see worker.py for the requests.

`train_aug` crops, flips, resizes and normalises in one pass of its compiled code, which decodes the window alone. Its
threads are as many as the machine has cores, whatever `num_workers` is.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import turboloader

from benchmarks.images import CROPPED
from benchmarks.peers.worker import Actions, CannotError, Session, serve
from benchmarks.workloads import Batch

AHEAD = 4  # batches, its default


class TurboLoader(Session):
    # Its queue, and the batch that waits for a place there.
    ready = AHEAD + 1

    def open(self) -> None:
        if self.work.kind != "jpeg":
            raise CannotError("TurboLoader is measured with JPEG files only")
        self.label = np.load(self.work.label)
        self.loader = self._loader()

    def epoch(self) -> Iterator[Batch]:
        return self._batches(self._loader())

    def stream(self) -> Iterator[Batch]:
        for epoch in count():
            self.loader.set_epoch(epoch)
            yield from self._batches(self.loader)

    def close(self) -> None:
        self.loader.close()

    def _loader(self) -> Any:
        return turboloader.DataLoader(
            str(self.work.tar),
            batch_size=self.work.batch_size,
            num_workers=self.workers,
            shuffle=True,
            transform=turboloader.ImageNetNormalize(),
            image_size=CROPPED,
            # Channels last, as by the other contestants.
            output_format="numpy",
            antialias=True,
            prefetch_batches=AHEAD,
            train_aug=True,
        )

    def _batches(self, loader: Any) -> Iterator[Batch]:
        # Labels are members that it does not read: they are those of the numbers of the images.
        for images, about in loader:
            yield images, self.label[np.asarray(about["indices"])]


if __name__ == "__main__":
    serve(Actions(TurboLoader))
