"""Write a transform of your own: try it in plain Python, test it, and use it in policies and a loader.

    python custom_transform.py
    LOADERX_DEBUG=1 python custom_transform.py

With the variable set, functions like those below run in plain Python also inside a loader, and a wrong index raises.
"""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loaderx as lx
from loaderx.transforms import Maybe, Normalize, OneOf, RandomFlip


@lx.transform
def vignette(x: Any, rng: Any, strength: float) -> None:
    """Darken towards the corners, by up to `strength`; in place, on one sample of (height, width, channels)."""
    height, width, channels = x.shape
    amount = np.float32(rng.uniform(0.0, strength))
    for i in range(height):
        down = (2 * i + 1) / height - 1
        for j in range(width):
            across = (2 * j + 1) / width - 1
            factor = np.float32(1) - amount * np.float32((down * down + across * across) / 2)
            for c in range(channels):
                x[i, j, c] *= factor


def bins_of(_: lx.Spec, bins: int) -> lx.Spec:
    """Return the spec of the result of `histogram` for a sample of any spec."""
    return lx.Spec((bins,), "float32")


@lx.transform(out=bins_of)
def histogram(x: Any, out: Any, bins: int) -> None:
    """Fill `out` with the share of values in each of `bins` parts of 0 to 1; the shape changes, so it has a spec."""
    out[:] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                place = min(max(int(x[i, j, c] * bins), 0), bins - 1)
                out[place] += np.float32(1) / x.size


@lx.transform
def off_by_one(x: Any) -> None:
    """Contain a mistake: making a loader refuses it, and plain Python shows the line."""
    for i in range(x.shape[0]):
        x[i, 0, 0] += x[i + 1, 0, 0]


class Always:
    """Replacement for `rng` that draws the same share of every range, so that the result is known."""

    def __init__(self, share: float) -> None:
        self.share = share

    def uniform(self, low: float, high: float) -> float:
        return low + self.share * (high - low)


@contextlib.contextmanager
def debugging() -> Iterator[None]:
    """Set LOADERX_DEBUG=1 for the pipelines and loaders that are made inside."""
    before = os.environ.get("LOADERX_DEBUG")
    os.environ["LOADERX_DEBUG"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOADERX_DEBUG"]
        else:
            os.environ["LOADERX_DEBUG"] = before


def difference_of_compiled_and_plain(op: Any, images: NDArray[np.float32]) -> float:
    """Return the difference that a test of a transform expects to be tiny: both draw the same numbers."""
    compiled = lx.pipeline([op], seed=1)(images)
    with debugging():
        plain = lx.pipeline([op], seed=1)(images)
    return float(np.abs(compiled - plain).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256)
    options = parser.parse_args()
    images = np.random.default_rng(0).uniform(0.2, 1, (options.images, 16, 16, 3)).astype("float32")

    # Try it. `.py` is the original function: for a debugger, for prints, for a breakpoint inside.
    sample = images[0].copy()
    vignette.py(sample, Always(share=1.0), strength=0.5)
    factors = sample / images[0]
    print(f"plain Python: times {factors[0, 0, 0]:.3f} in a corner, {factors[8, 8, 0]:.3f} inside")

    # Test it.
    for op in (vignette(strength=0.5), histogram(bins=8)):
        difference = difference_of_compiled_and_plain(op, images[:16])
        print(f"{op}: compiled and plain differ by at most {difference:.1e}")
        assert difference < 1e-6
    with debugging():
        try:
            lx.pipeline([off_by_one()])(images[:1])
        except IndexError as error:
            print(f"off_by_one: {error}; {error.__notes__[0]}")

    # Use it, alone or among other ops. Another strength does not compile again.
    dark = vignette(strength=0.8)
    policy = Maybe(0.5, OneOf(dark, [RandomFlip(1.0), vignette(strength=0.2)]))
    changed = np.any(lx.pipeline([policy])(images) != images, axis=(1, 2, 3)).mean()
    print(f"Maybe(0.5, OneOf(...)): {changed:.0%} of the samples are changed")

    fields = {"image": images, "tones": images}
    ops = {"image": [policy, Normalize(0.5, 0.25)], "tones": [histogram(bins=8)]}
    batch = lx.DataLoader(fields, batch_size=32, transforms=ops).batch(0)
    total = batch["tones"][0].sum()
    print(f"a loader: image {batch['image'].shape}, tones {batch['tones'].shape}, sum {total:.3f}")


if __name__ == "__main__":
    main()
