"""Demo, `loaderx demo`: train a Flax model from an endless loader and report what the loader cost."""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from tqdm import tqdm

from loaderx import DataLoader, Dataset

SEED = 0
BATCH_SIZE = 128
STEPS = 400
VALIDATE_EVERY = 100
# Not counted in the speed: the first step compiles the model.
COMPILING_STEPS = 1


class Classifier(nnx.Module):
    """Convolutional network with two dense layers: small enough for a laptop, 98 % and more on digits."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.narrow = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.wide = nnx.Conv(16, 32, kernel_size=(3, 3), rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 32, 64, rngs=rngs)
        self.logits = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the logits of the ten digits for images of 8x8 grey values from 0 to 16."""
        x = images[..., None] / 16
        x = nnx.relu(self.wide(nnx.relu(self.narrow(x))))
        x = nnx.max_pool(x, window_shape=(2, 2), strides=(2, 2))
        return self.logits(nnx.relu(self.hidden(x.reshape(len(x), -1))))


def loss(model: Classifier, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the mean cross-entropy of one batch."""
    logits = model(batch["data"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


@nnx.jit
def train_step(
    model: Classifier, optimizer: nnx.Optimizer[Classifier], batch: dict[str, jax.Array]
) -> jax.Array:
    """Update the model in place and return the loss before the update."""
    value, gradients = nnx.value_and_grad(loss)(model, batch)
    optimizer.update(model, gradients)
    return value


@nnx.jit
def count_correct(model: Classifier, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the number of images of one batch that the model classifies correctly."""
    return (model(batch["data"]).argmax(axis=1) == batch["label"]).sum()


def write_digits(folder: Path) -> Dataset:
    """Write scikit-learn's digits as two .npy files, the format of a user's data."""
    digits = load_digits()
    np.save(folder / "data.npy", digits.images.astype(np.uint8))
    np.save(folder / "label.npy", digits.target.astype(np.int32))
    return Dataset(folder, "data.npy", "label.npy")


def run() -> None:
    """Train the model and print accuracy, speed and the share of time spent waiting."""
    with tempfile.TemporaryDirectory(prefix="loaderx-demo-") as folder:
        digits = write_digits(Path(folder))
        train, held_out = digits.split(0.8, seed=SEED)
        print(
            f"digits: {len(digits):,} images of 8x8 written to disk, "
            f"{len(train):,} to train on, {len(held_out):,} held out"
        )
        # Endless, in a new order every epoch; the loop below decides when to stop.
        loader = DataLoader(train, batch_size=BATCH_SIZE, seed=SEED)
        # Finite and in file order: one pass over the rows the model is never trained on.
        validation = DataLoader(held_out, batch_size=BATCH_SIZE, shuffle=False, num_epochs=1)

        model = Classifier(nnx.Rngs(SEED))
        schedule = optax.cosine_decay_schedule(2e-3, decay_steps=STEPS)
        optimizer = nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)

        # disable=None: no bar where the output is not a terminal.
        with iter(loader) as batches, tqdm(total=STEPS, unit="step", disable=None) as progress:
            while batches.step < COMPILING_STEPS:
                train_step(model, optimizer, next(batches)).block_until_ready()
                progress.update()
            waited_before = batches.stats().waiting_seconds
            seconds = 0.0

            started = time.perf_counter()
            while batches.step < STEPS:
                value = train_step(model, optimizer, next(batches))
                progress.update()
                if batches.step % VALIDATE_EVERY == 0:
                    # JAX runs asynchronously: the clock stops only when the step is done.
                    value.block_until_ready()
                    seconds += time.perf_counter() - started
                    correct = sum(int(count_correct(model, batch)) for batch in validation)
                    accuracy = correct / len(held_out)
                    tqdm.write(f"step {batches.step}: held-out accuracy {accuracy:.1%}")
                    started = time.perf_counter()
            waited = batches.stats().waiting_seconds - waited_before

    speed = (STEPS - COMPILING_STEPS) / seconds
    print(f"held-out accuracy  {accuracy:.1%} ({correct} of {len(held_out)} images)")
    print(f"speed              {speed:.0f} steps per second ({speed * BATCH_SIZE:,.0f} images)")
    print(f"waited for data    {waited / seconds:.1%} of the training time")
