"""Spotify's pedalboard as a contestant of the catalogue; see per_image.py for the requests.

Its plugins are called one sound after the other, each thread with its own. Its filters are of the first order, so they
are not compared.

Run in its own environment, as `python -m benchmarks.peers.pedalboard_worker`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pedalboard

from benchmarks.peers import amounts as of
from benchmarks.peers.per_image import Maker, Session
from benchmarks.peers.worker import serve
from benchmarks.rows import Array


def plugin(make: Callable[[], Any]) -> Maker:
    def maker() -> Callable[[Array], Array]:
        board = make()
        return lambda x: board.process(x, of.SAMPLE_RATE)

    return maker


def time_stretch(x: Array) -> Array:
    made = pedalboard.time_stretch(x, of.SAMPLE_RATE, stretch_factor=of.TEMPO)[0]
    return np.pad(made, (0, max(len(x) - len(made), 0)))[: len(x)]


MAKERS: dict[str, Maker] = {
    "Gain": plugin(lambda: pedalboard.Gain(of.GAIN)),
    "Polarity": plugin(pedalboard.Invert),
    "PitchShift": plugin(lambda: pedalboard.PitchShift(of.SEMITONES)),
    "TimeStretch": lambda: time_stretch,
}


if __name__ == "__main__":
    serve(Session(MAKERS))
