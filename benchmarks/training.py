"""Flax training loop that measures how long it waits for its data."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.workloads import Batch

WIDTHS = (32, 64)


class Network(nnx.Module):
    """Network of two convolutions and a linear map: some ten milliseconds per batch of 256 small images."""

    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        first, second = WIDTHS
        self.first = nnx.Conv(3, first, (3, 3), strides=2, rngs=rngs)
        self.second = nnx.Conv(first, second, (3, 3), strides=2, rngs=rngs)
        self.last = nnx.Linear(second, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = nnx.relu(self.second(nnx.relu(self.first(images))))
        return self.last(hidden.mean(axis=(1, 2)))


def new_network(classes: int) -> Network:
    """Create a network, compiled in one piece: array by array it takes twice as long."""
    network: Network = nnx.jit(lambda: Network(classes, nnx.Rngs(0)))()
    return network


@nnx.jit
def train_step(model: Network, optimizer: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    def loss_of(model: Network) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def train(batches: Iterator[Batch], steps: int, classes: int) -> dict[str, float]:
    """Train for so many steps; return the seconds in all, and those of waiting for a batch on the device."""
    model = new_network(classes)
    optimizer = nnx.Optimizer(model, optax.sgd(0.01), wrt=nnx.Param)
    _step(model, optimizer, batches, classes)  # compiles
    waited = loss = 0.0
    started = time.perf_counter()
    for _ in range(steps):
        loss, wait = _step(model, optimizer, batches, classes)
        waited += wait
    if not jnp.isfinite(loss):
        raise ValueError(f"the loss is {loss}.")
    return {"seconds": time.perf_counter() - started, "waited": waited}


def _step(
    model: Network, optimizer: Any, batches: Iterator[Batch], classes: int
) -> tuple[float, float]:
    asked = time.perf_counter()
    images, labels = jax.block_until_ready(jax.device_put(tuple(next(batches))))
    waited = time.perf_counter() - asked
    # Waits for the step, so that nothing is computed during `next`.
    return float(train_step(model, optimizer, images, labels.reshape(-1) % classes)), waited
