"""Train a Flax model from an endless loader, with a pass over the validation rows now and then.

Start from this program: put your own two .npy files in place of the digits.
"""

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from loaderx import DataLoader, Dataset

Batch = dict[str, jax.Array]


def loss_fn(model: nnx.Sequential, batch: Batch) -> tuple[jax.Array, jax.Array]:
    logits = model(batch["data"])
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
    return loss, logits


@nnx.jit
def train_step(
    model: nnx.Sequential,
    optimizer: nnx.Optimizer[nnx.Sequential],
    metrics: nnx.MultiMetric,
    batch: Batch,
) -> None:
    (loss, logits), gradients = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, gradients)


@nnx.jit
def validation_step(model: nnx.Sequential, metrics: nnx.MultiMetric, batch: Batch) -> None:
    loss, logits = loss_fn(model, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])


def report(name: str, step: int, metrics: nnx.MultiMetric) -> None:
    values = metrics.compute()
    print(f"step {step} {name}: loss {values['loss']:.3f}, accuracy {values['accuracy']:.1%}")
    metrics.reset()


def scale(batch: dict[str, Any]) -> dict[str, Any]:
    """Process the finished batch, a dict of NumPy arrays, in the background."""
    return {"data": batch["data"].reshape(-1, 64) / np.float32(16), "label": batch["label"]}


with tempfile.TemporaryDirectory() as folder:
    digits = load_digits()
    np.save(Path(folder) / "data.npy", digits.images.astype(np.uint8))
    np.save(Path(folder) / "label.npy", digits.target.astype(np.int32))

    train, validation = Dataset(folder, "data.npy", "label.npy").split(0.8, seed=0)
    train_loader = DataLoader(train, batch_size=128, transform=scale)
    validation_loader = DataLoader(
        validation, batch_size=128, shuffle=False, num_epochs=1, transform=scale
    )

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(64, 256, rngs=rngs), nnx.relu, nnx.Linear(256, 10, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))

    # Endless: there is no loop over epochs, the training decides when to stop.
    for step, batch in enumerate(train_loader, start=1):
        train_step(model, optimizer, metrics, batch)
        if step % 100 == 0:
            report("training", step, metrics)
            for held_out in validation_loader:
                validation_step(model, metrics, held_out)
            report("validation", step, metrics)
        if step == 500:
            break
