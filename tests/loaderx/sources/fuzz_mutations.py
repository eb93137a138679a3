"""Mutations by number: the damaged file, the kind of damage, and the way it is read."""

import random
from dataclasses import dataclass

from tests.loaderx.sources.fuzz_damage import PLAIN_DAMAGE
from tests.loaderx.sources.fuzz_forgery import WITH_HASHES
from tests.loaderx.sources.fuzz_originals import Original

# Weights: kinds with more possible failures are more frequent.
CLASSES = [*PLAIN_DAMAGE, "flipped", "forged", *WITH_HASHES, "footer"]
LOADER_EVERY = 100


@dataclass(frozen=True)
class Mutation:
    """One damaged file, and the way to read it."""

    kind: str
    original: Original
    content: bytes
    view: str
    verify: str
    mapped: bool
    singly: bool
    loaded: bool

    def __str__(self):
        return (
            f"{self.kind} of {self.original.name} as {self.view}, verify={self.verify!r}, mmap={self.mapped}"
            f"{', one by one' if self.singly else ''}{', by a loader' if self.loaded else ''}"
        )


def mutation(number, seed, originals):
    """Return the mutation of this number."""
    rng = random.Random(f"{seed}/{number}")
    kind, original = rng.choice(CLASSES), rng.choice(originals)
    loaded = number % LOADER_EVERY == LOADER_EVERY - 1
    if loaded:
        original = rng.choice([one for one in originals if one.fixed])
    view = rng.choice(
        ["bytes", "numbers", "pixels", "padded"] if original.fixed else ["bytes", "padded"]
    )
    verify = rng.choice(["first", "first", "first", "always", "never"])
    mapped, singly = rng.random() < 0.6, rng.random() < 0.3
    change = PLAIN_DAMAGE.get(kind) or WITH_HASHES[kind]
    content = change(rng, original, bytearray(original.data))
    view = "pixels" if loaded else view
    return Mutation(kind, original, content, view, verify, mapped, singly, loaded)
