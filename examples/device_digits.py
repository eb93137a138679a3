"""Train a Flax model on data on the device: an epoch is one compiled program, and it is compiled once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from loaderx import DeviceLoader
from loaderx.on_device import transforms
from loaderx.on_device.loader import DeviceState

Batch = dict[str, jax.Array]

EPOCHS = 10


def add_noise(batch: Batch, key: jax.Array) -> Batch:
    """Transform a batch with a key, which is different at every step."""
    noise = 0.1 * jax.random.normal(key, batch["image"].shape)
    return {**batch, "image": batch["image"] + noise}


digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
images = (digits.images[order] / 16).astype("float32")
labels = digits.target[order].astype("int32")
held_out = {"image": jnp.asarray(images[1500:]), "label": jnp.asarray(labels[1500:])}

loader = DeviceLoader(
    {"image": images[:1500], "label": labels[:1500]},
    batch_size=64,
    seed=0,
    transforms=[transforms.Normalize(mean=0.3, std=0.4), add_noise],
)

rngs = nnx.Rngs(0)
model = nnx.Sequential(nnx.Linear(64, 256, rngs=rngs), nnx.relu, nnx.Linear(256, 10, rngs=rngs))
optimizer = nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)
# Only the arrays change from step to step, in a tree as lax.scan requires it; the structure of both is fixed.
structure, parameters = nnx.split((model, optimizer))


def loss_fn(model: nnx.Sequential, batch: Batch) -> jax.Array:
    logits = model(batch["image"].reshape(-1, 64))
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return losses.mean()


def update(parameters: Any, batch: Batch) -> tuple[Any, jax.Array]:
    model, optimizer = nnx.merge(structure, parameters)
    loss, gradients = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, gradients)
    return nnx.state((model, optimizer)), loss


def log(epoch: jax.Array, loss: jax.Array) -> None:
    """Print on the host while the compiled program runs."""
    print(f"  from within: epoch {epoch} ended with a loss of {loss:.3f}")


@jax.jit
def train_epoch(
    parameters: Any, state: DeviceState, data: Batch
) -> tuple[Any, DeviceState, jax.Array]:
    epoch = state.epoch
    parameters, state, losses = loader.scan_epoch(update, parameters, state, data=data)
    jax.debug.callback(log, epoch, losses[-1])
    return parameters, state, losses.mean()


@jax.jit
def accuracy(parameters: Any, data: Batch) -> jax.Array:
    model, _ = nnx.merge(structure, parameters)
    images = (data["image"] - 0.3) / 0.4
    return jnp.mean(model(images.reshape(-1, 64)).argmax(axis=1) == data["label"])


state = loader.init()
for epoch in range(EPOCHS):
    parameters, state, loss = train_epoch(parameters, state, loader.data)
    share = accuracy(parameters, held_out)
    print(f"epoch {epoch}: loss {loss:.3f}, held-out accuracy {share:.1%}")
jax.effects_barrier()
programs = train_epoch._cache_size()  # type: ignore[attr-defined]  # JAX does not declare it
print(f"compiled {programs} time(s) for {EPOCHS} epochs")
