"""Checks of sources of images and labels through a loader, and a server for downloads."""

import contextlib
import functools
import http.server
import json

import numpy as np

from loaderx import DataLoader
from loaderx.transforms import RandomFlip, ToFloat
from tests.loaderx.sources.rows import assert_delivers, assert_same
from tests.waiting import join, started


def assert_loads(source, expected, image="image"):
    """Assert that a source has these rows, read in any way; that workers do not matter; and that it resumes exactly."""
    assert_delivers(source, expected)
    length = len(expected[image])
    for key in (
        0,
        -1,
        slice(1, None, 2),
        slice(0, 0),
        [length - 1, 0, 0],
        np.arange(length) % 2 == 0,
    ):
        assert_same(source[key], {name: column[key] for name, column in expected.items()})
    assert {name: (spec.shape, spec.dtype) for name, spec in source.spec.items()} == {
        name: (column.shape[1:], column.dtype) for name, column in expected.items()
    }

    def loader(workers):
        return DataLoader(
            source,
            batch_size=3,
            seed=5,
            workers=workers,
            output="numpy",
            transforms={image: [RandomFlip(0.5), ToFloat()]},
        )

    alone, together = loader(1), loader(3)
    with iter(alone) as one, iter(together) as three:
        batches = [next(one) for _ in range(5)]
        for batch in batches:
            assert_same(next(three), batch)
    raw = expected[image][alone.indices(0)].astype(np.float32) / np.float32(255)
    for sample, original in zip(batches[0][image], raw, strict=True):
        assert any(
            np.allclose(sample, version, rtol=1e-6) for version in (original, original[:, ::-1])
        )
    with iter(together) as first:
        for _ in range(2):
            next(first)
        state = json.dumps(first.get_state())
    with iter(together) as second:
        second.set_state(json.loads(state))
        for batch in batches[2:]:
            assert_same(next(second), batch)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        self.server.asked.append(self.path)


@contextlib.contextmanager
def serving(folder):
    """Serve the files of a folder on the loopback interface; yield the address and the list of requested paths."""
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []
        thread = started(server.serve_forever, 0.01)
        try:
            yield f"http://127.0.0.1:{server.server_port}/", server.asked
        finally:
            server.shutdown()
            join(thread)
