"""Train on sequences of skeletons from an ArrayRecord file, with augmentation that knows what a joint is.

The skeletons are made up: 3 coordinates x 300 frames x 25 joints x 2 persons, as in NTU RGB+D, of people who wave
with one hand or kick with one foot. Put the path of your own file in place of them.
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

import loaderx as lx
from loaderx.transforms import (
    NTU_PAIRS,
    CenterOnJoint,
    JointJitter,
    LeftRightFlip,
    SkeletonRotate,
    SkeletonScale,
)

Batch = dict[str, jax.Array]

CHANNELS, FRAMES, JOINTS, PERSONS = SHAPE = (3, 300, 25, 2)
SPINE, HANDS, FEET = 1, (7, 11), (15, 19)


def make_skeletons(rows: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return sequences, and whether a foot moves in them; the second person is absent in half of them."""
    random = np.random.default_rng(seed)
    data = random.normal(size=(CHANNELS, 1, JOINTS, 1)) + 0.1 * random.normal(size=(rows, *SHAPE))
    labels = random.integers(0, 2, rows).astype(np.int32)
    for row, label in enumerate(labels):
        wave = np.sin(np.arange(FRAMES) / random.uniform(10, 20) + random.uniform(0, 6))
        data[row, 1, :, random.choice(FEET if label else HANDS), 0] += wave
    data[::2, ..., 1] = 0
    return data.astype(np.float32), labels


class Model(nnx.Module):
    """Dense layer on the movement of each joint of the first person."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.logits = nnx.Linear(CHANNELS * JOINTS, 2, rngs=rngs)

    def __call__(self, skeletons: jax.Array) -> jax.Array:
        movement = skeletons[..., 0].std(axis=2)
        return self.logits(movement.reshape(len(movement), -1))


@nnx.jit
def train_step(model: Model, optimizer: nnx.Optimizer[Model], batch: Batch) -> jax.Array:
    def loss_fn(model: Model) -> jax.Array:
        logits = model(batch["data"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_correct(model: Model, batch: Batch) -> jax.Array:
    return (model(batch["data"]).argmax(axis=1) == batch["label"]).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=160, help="how many sequences are made")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "skeletons.ar"
        data, labels = make_skeletons(options.rows)
        lx.write_array_record(file, data, compression="zstd")
        print(
            f"{data.nbytes / 1e6:.1f} MB of skeletons, {file.stat().st_size / 1e6:.1f} MB in the file"
        )

        dataset = lx.ARDataset(file)  # a file of another writer needs dtype=np.float32, shape=SHAPE
        assert np.array_equal(dataset[-1], data[-1])
        # Sources of the same length are split in the same way.
        train_data, test_data = dataset.split(0.8, seed=0)
        train_labels, test_labels = lx.NPDataset(labels).split(0.8, seed=0)

        centred = CenterOnJoint(SPINE)
        flipped, turned = LeftRightFlip(NTU_PAIRS), SkeletonRotate(15)
        augmented = [centred, flipped, turned, SkeletonScale(0.1), JointJitter(0.01)]
        train = lx.DataLoader(
            train_data, train_labels, batch_size=options.batch_size, transforms={"data": augmented}
        )
        test = lx.DataLoader(
            test_data,
            test_labels,
            batch_size=options.batch_size,
            num_epochs=1,
            shuffle=False,
            transforms={"data": [centred]},
        )

        model = Model(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adamw(3e-2), wrt=nnx.Param)
        with iter(train) as batches:
            for batch in itertools.islice(batches, options.steps):
                loss = train_step(model, optimizer, batch)
                if batches.step in (1, options.steps):
                    print(f"step {batches.step}: loss {loss:.3f}")
        correct = sum(int(count_correct(model, batch)) for batch in test)
        print(f"held out: {correct} of {len(test_labels)} correct")


if __name__ == "__main__":
    main()
