"""Transforms of batches in pure JAX. Random draws of a sample depend on seed, position and op, as on the host."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loaderx.compiler.cautions import warn
from loaderx.display.reprs import ReprFromArguments
from loaderx.errors import ArgumentError
from loaderx.transforms.channels import USUAL

from .uint64 import Pair, draw, fold, high_word

Batch = dict[str, Any]


@dataclass(frozen=True)
class Samples:
    """Random numbers of an op: one key, and the positions of the samples in the stream."""

    key: Pair
    positions: Pair

    @functools.cached_property
    def states(self) -> Pair:
        """Key of every sample; cached, since XLA does not eliminate the repeated computation."""
        return fold(self.key, self.positions)

    def bits(self, number: int) -> Pair:
        """Draw 64 bits for every sample: draw `number` of the op."""
        return draw(self.states, number)

    def below(self, number: int, count: int) -> Any:
        """Draw an integer in [0, count) for every sample.

        The same as on the host, except in `count` of 2^32 cases, in which the host draws again.
        """
        return high_word(self.bits(number)[1], np.uint32(count))

    def less(self, number: int, probability: float) -> Any:
        """Draw for every sample whether a uniform number is below a probability, exactly as on the host."""
        # random() < p on the host compares 53 bits: (bits >> 11) * 2^-53 < p.
        limit = int(np.ceil(probability * 2.0**53))
        low, high = self.bits(number)
        low, high = low >> 11 | high << 21, high >> 11
        top, bottom = np.uint32(limit >> 32), np.uint32(limit & 0xFFFFFFFF)
        return (high < top) | ((high == top) & (low < bottom))

    def uniform(self, number: int) -> Any:
        """Draw a float32 in [0, 1) for every sample."""
        return (self.bits(number)[1] >> 8).astype(jnp.float32) * np.float32(2.0**-24)

    def jax_keys(self) -> jax.Array:
        """Return a key of jax.random for every sample."""
        words = jnp.stack(self.states, axis=-1)
        keys: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
        return keys


class DeviceTransform(ReprFromArguments, ABC):
    """Transform of some fields, with random numbers for each sample."""

    fields: tuple[str, ...]

    @abstractmethod
    def apply(self, batch: Batch, samples: Samples) -> Batch:
        """Return the transformed batch."""

    def __call__(self, batch: Batch, key: Any) -> Batch:  # noqa: ARG002
        """Raise: as a plain function it lacks the positions of its samples."""
        raise TypeError(f"{type(self).__name__} is for `transforms` of a DeviceLoader.")


class Normalize(DeviceTransform):
    """Normalization to float32: (pixel / 255 - mean) / std for integers, (value - mean) / std for floats."""

    def __init__(self, mean: Any, std: Any, field: str = "image") -> None:
        self._mean, self._std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        if not np.all((self._std > 0) & np.isfinite(self._std)) or not np.all(
            np.isfinite(self._mean)
        ):
            raise ArgumentError(
                f"`std` (={std!r}) must be above 0, and it and `mean` (={mean!r}) finite."
            )
        self.fields = (field,)

    def apply(self, batch: Batch, samples: Samples) -> Batch:  # noqa: ARG002
        (field,) = self.fields
        x = batch[field]
        largest = np.iinfo(x.dtype).max if jnp.issubdtype(x.dtype, jnp.integer) else 1
        if largest > 1 and max(np.max(self._mean), np.max(self._std)) > 1:
            warn(
                f"{self!r} gets {x.dtype}, which it divides by {largest} before: `mean` and `std` must be on the "
                "scale from 0 to 1."
            )
        scale = (1 / (self._std * largest)).astype(np.float32)
        bias = (-self._mean / self._std).astype(np.float32)
        return {**batch, field: x.astype(jnp.float32) * scale + bias}


class RandomFlip(DeviceTransform):
    """Random horizontal flip, identical for all of `fields`."""

    def __init__(self, probability: float = 0.5, fields: str | Sequence[str] = ("image",)) -> None:
        if not 0 <= probability <= 1:
            raise ArgumentError(f"`probability` (={probability!r}) must be from 0 to 1.")
        self._probability, self.fields = probability, _names(fields)

    def apply(self, batch: Batch, samples: Samples) -> Batch:
        flipped = samples.less(0, self._probability)
        changed = {}
        for name in self.fields:
            x = _images(name, batch[name])
            changed[name] = jnp.where(_along(flipped, x), jnp.flip(x, axis=2), x)
        return {**batch, **changed}


class RandomCrop(DeviceTransform):
    """Random crop of `size` of the padded image, identical for all of `fields`."""

    def __init__(
        self, size: int | tuple[int, int], pad: int = 0, fields: str | Sequence[str] = ("image",)
    ) -> None:
        self._size = (size, size) if isinstance(size, int) else tuple(size)
        if min(self._size) < 1 or pad < 0:
            raise ArgumentError(
                f"`size` (={size!r}) must be at least 1, and `pad` (={pad!r}) at least 0."
            )
        self._pad, self.fields = pad, _names(fields)

    def apply(self, batch: Batch, samples: Samples) -> Batch:
        changed = {}
        for name in self.fields:
            x = _images(name, batch[name])
            room = [x.shape[1 + axis] + 2 * self._pad - self._size[axis] for axis in range(2)]
            if min(room) < 0:
                raise ArgumentError(
                    f"`size` (={self._size}) is larger than {name!r} of {x.shape[1:3]} with pad={self._pad}."
                )
            top, left = (samples.below(axis, room[axis] + 1).astype(jnp.int32) for axis in range(2))
            padding = [(0, 0), (self._pad, self._pad), (self._pad, self._pad)]
            wide = jnp.pad(x, padding + [(0, 0)] * (x.ndim - 3))
            sizes = (*self._size, *x.shape[3:])

            def window(image: Any, top: Any, left: Any, sizes: Any = sizes) -> Any:
                return jax.lax.dynamic_slice(image, (top, left, *[0] * (len(sizes) - 2)), sizes)

            changed[name] = jax.vmap(window)(wide, top, left)
        return {**batch, **changed}


class MixUp(DeviceTransform):
    """MixUp: share * sample + (1 - share) * the next sample of the batch, the share drawn from Beta(alpha, alpha)."""

    def __init__(
        self, alpha: float = 1.0, fields: str | Sequence[str] = ("image", "label")
    ) -> None:
        if not 0 < alpha < np.inf:
            raise ArgumentError(f"`alpha` (={alpha!r}) must be a finite number above 0.")
        self._alpha, self.fields = alpha, _names(fields)

    def apply(self, batch: Batch, samples: Samples) -> Batch:
        def share_of(key: Any) -> Any:
            return jax.random.beta(key, self._alpha, self._alpha, dtype=jnp.float32)

        share = jax.vmap(share_of)(samples.jax_keys())
        changed = {}
        for name in self.fields:
            x = batch[name]
            if not jnp.issubdtype(x.dtype, jnp.floating):
                raise ArgumentError(f"MixUp mixes floats, not {name!r} of {x.dtype}.")
            own = _along(share, x)
            changed[name] = own * x + (1 - own) * jnp.roll(x, -1, axis=0)
        return {**batch, **changed}


def _names(fields: str | Sequence[str]) -> tuple[str, ...]:
    return (fields,) if isinstance(fields, str) else tuple(fields)


def _images(name: str, x: Any) -> Any:
    if x.ndim not in (3, 4):
        raise ArgumentError(
            f"{name!r} must hold images of (height, width) or (height, width, channels), not of {x.shape[1:]}."
        )
    if x.ndim == 4 and x.shape[3] not in USUAL:
        hint = (
            " Channels first? Transpose to (height, width, channels)."
            if x.shape[1] in USUAL
            else ""
        )
        raise ArgumentError(
            f"{name!r} must hold images of (height, width, channels) with 1 to 4 channels, not of {x.shape[1:]}.{hint}"
        )
    return x


def _along(values: Any, x: Any) -> Any:
    """Reshape one value per sample so that it broadcasts over the elements of the sample."""
    return values.reshape(values.shape + (1,) * (x.ndim - 1))
