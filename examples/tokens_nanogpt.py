"""Train a small character model on random windows of a file of tokens, stop in the middle, and resume exactly there.

The text is made up of a few words. A file of nanoGPT's prepare.py (train.bin, uint16) is read the same way:
    TokenDataset("train.bin", length=256, stride=1, dtype=np.uint16)
"""

import argparse
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import loaderx as lx
from loaderx.run.iterator import LoaderIterator

Batch = dict[str, jax.Array]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "in", "warm", "rain"]


def write_tokens(path: Path, words: int, seed: int = 0) -> list[str]:
    """Write a text of random words as a raw file of uint16; return it and its characters."""
    text = " ".join(np.random.default_rng(seed).choice(WORDS, words))
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    np.array([numbers[character] for character in text], np.uint16).tofile(path)
    return characters


class CharacterModel(nnx.Module):
    """One block of a transformer: attention of two heads, followed by two dense layers."""

    def __init__(self, characters: int, length: int, width: int, rngs: nnx.Rngs) -> None:
        self.token = nnx.Embed(characters, width, rngs=rngs)
        self.place = nnx.Embed(length, width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, rngs=rngs)
        self.logits = nnx.Linear(4 * width, characters, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.token(tokens) + self.place(jnp.arange(tokens.shape[1]))
        x = x + self.attention(x, mask=nnx.make_causal_mask(tokens))
        return self.logits(nnx.relu(self.hidden(x)))


@nnx.jit
def train_step(
    model: CharacterModel, optimizer: nnx.Optimizer[CharacterModel], batch: Batch
) -> jax.Array:
    def loss_fn(model: CharacterModel) -> jax.Array:
        logits = model(batch["inputs"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return losses.mean()

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, gradients)
    return loss


def train(
    model: CharacterModel,
    optimizer: nnx.Optimizer[CharacterModel],
    batches: LoaderIterator[Batch],
    steps: int,
) -> list[float]:
    """Return the losses of all steps up to `steps`."""
    losses = []
    while batches.step < steps:
        losses.append(float(train_step(model, optimizer, next(batches))))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=20_000, help="number of words in the text")
    parser.add_argument("--length", type=int, default=32, help="tokens in a window")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "train.bin"
        characters = write_tokens(file, options.words)
        # stride=1: every window is a row, so a shuffled loader draws random ones, each once in an epoch.
        dataset = lx.TokenDataset(file, options.length, stride=1, dtype=np.uint16)
        loader = lx.DataLoader(dataset, batch_size=options.batch_size, seed=0)
        print(f"{len(dataset):,} windows of {options.length} tokens, {len(characters)} characters")
        window = dataset[0]
        print("inputs: ", repr("".join(characters[token] for token in window["inputs"])))
        print("targets:", repr("".join(characters[token] for token in window["targets"])))

        model = CharacterModel(len(characters), options.length, 32, nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
        with iter(loader) as batches:
            losses = train(model, optimizer, batches, options.steps // 2)
            # Content of a checkpoint: the weights, and a few numbers for the position in the data.
            weights = jax.tree.map(jnp.copy, nnx.state((model, optimizer)))
            state = json.dumps(batches.get_state())
            straight = train(model, optimizer, batches, options.steps)
        print(f"step 1: loss {losses[0]:.3f}, step {options.steps}: loss {straight[-1]:.3f}")

        nnx.update((model, optimizer), weights)
        with iter(loader) as batches:
            batches.set_state(json.loads(state))
            again = train(model, optimizer, batches, options.steps)
        assert again == straight
        print(f"resumed at step {options.steps // 2}: the same {len(again)} losses again")


if __name__ == "__main__":
    main()
