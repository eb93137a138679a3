"""Train with checkpoints, and resume from the last one when started again, with the same result.

    python checkpoint_resume.py checkpoints --steps 100

Stop it at any moment, even by kill -9, and start it again: the weights at the end are the same, bit for bit.
"""

import argparse
import hashlib
from pathlib import Path

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from sklearn.datasets import load_digits

from loaderx import DataLoader
from loaderx.checkpoint import IteratorRestore, IteratorSave
from loaderx.transforms import Brightness, Normalize

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", type=Path, help="folder of the checkpoints")
parser.add_argument("--steps", type=int, default=100, help="number of steps in all")
parser.add_argument(
    "--save-every", type=int, default=10, help="number of steps from one checkpoint to the next"
)
options = parser.parse_args()

Batch = dict[str, jax.Array]
Optimizer = nnx.Optimizer[nnx.Sequential]


@nnx.jit
def train_step(model: nnx.Sequential, optimizer: Optimizer, batch: Batch) -> jax.Array:
    def loss_fn(model: nnx.Sequential) -> jax.Array:
        logits = model(batch["image"].reshape(-1, 64))
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, gradients)
    return loss


def digest(model: nnx.Sequential, optimizer: Optimizer) -> str:
    """Return a digest that changes with every bit."""
    leaves = jax.tree.leaves(nnx.state((model, optimizer)))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()[:16]


digits = load_digits()
fields = {
    "image": digits.images[..., np.newaxis].astype(np.float32) / 16,
    "label": digits.target.astype(np.int32),
}
loader = DataLoader(
    fields, batch_size=64, seed=0, transforms={"image": [Brightness(0.2), Normalize(0.5, 0.5)]}
)

rngs = nnx.Rngs(0)
model = nnx.Sequential(nnx.Linear(64, 128, rngs=rngs), nnx.relu, nnx.Linear(128, 10, rngs=rngs))
optimizer = nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)

with iter(loader) as batches, ocp.CheckpointManager(options.folder.absolute()) as manager:
    latest = manager.latest_step()
    if latest is not None:
        weights = ocp.args.StandardRestore(nnx.state((model, optimizer)))
        items = ocp.args.Composite(train=weights, data=IteratorRestore(batches))
        nnx.update((model, optimizer), manager.restore(latest, args=items).train)
        print(f"restored step {latest}: weights {digest(model, optimizer)}", flush=True)

    while batches.step < options.steps:
        loss = train_step(model, optimizer, next(batches))
        print(f"step {batches.step}: loss {loss:.4f}", flush=True)
        if batches.step % options.save_every == 0:
            # Orbax writes in the background, and saves either all items or none.
            weights = ocp.args.StandardSave(nnx.state((model, optimizer)))
            items = ocp.args.Composite(train=weights, data=IteratorSave(batches))
            manager.save(batches.step, args=items)
            print(f"saving step {batches.step}: weights {digest(model, optimizer)}", flush=True)

print(f"weights after step {options.steps}: {digest(model, optimizer)}")
