"""The same image, or the same draws, through loaderx, torchvision and Albumentations."""

import os

# Albumentations asks the network for a newer release when it is imported.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

import albumentations as A  # noqa: N812 - as its users call it
import cv2
import numpy as np
import torch

import loaderx as lx


def photo(height=48, width=64, seed=3):
    """Return a picture with smooth parts, edges, noise, black and white."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(-60, 315, (6, 8, 3)).astype(np.float32)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    smooth[height // 3 : height // 2, width // 4 :] += 40
    return np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)


def coordinates(height, width):
    """Return an image whose values are the row and the column of each pixel."""
    return np.stack(np.mgrid[:height, :width], -1).astype(np.float32)


def as_tensor(image):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, 0)))


def as_image(tensor):
    return np.moveaxis(tensor.numpy(), 0, -1)


def by_loaderx(ops, image):
    """Return one image after these ops."""
    return many_by_loaderx(ops, image, 1)[0]


def by_torchvision(transform, image):
    """Return an image after a transform or a function of torchvision."""
    return as_image(transform(as_tensor(image)))


def by_albumentations(transform, image):
    """Return an image after a transform of Albumentations."""
    return transform(image=image)["image"]


def many_by_loaderx(ops, image, count):
    """Return the results of ops on the same image, with other draws every time."""
    ops = ops if isinstance(ops, list) else [ops]
    return lx.pipeline(ops, seed=1)(np.repeat(image[None], count, 0))


def many_by_torchvision(transform, image, count):
    torch.manual_seed(2)
    tensor = as_tensor(image)
    return np.stack([as_image(transform(tensor)) for _ in range(count)])


def many_by_albumentations(transform, image, count):
    chain = A.Compose([transform], seed=3)
    return np.stack([chain(image=image)["image"] for _ in range(count)])
