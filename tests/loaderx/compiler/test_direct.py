"""`pipeline`: a chain as a function of an array, with the same results as in a loader."""

import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 6, 5, 3), np.uint8)
CHAIN = [T.RandomCrop((6, 5), pad=1), T.RandomFlip(), T.Normalize(0.5, 0.25)]


@lx.transform
def draw(x, rng):
    for i in range(x.shape[0]):
        x[i] = rng.random()


def test_it_is_called_on_an_array_of_samples():
    out = lx.pipeline(CHAIN)(IMAGES)
    assert (out.shape, out.dtype) == ((10, 6, 5, 3), np.float32)
    assert type(out) is np.ndarray
    assert lx.pipeline(tuple(CHAIN))(IMAGES[:1]).shape == (1, 6, 5, 3)


@pytest.mark.parametrize("seed", [0, 7])
def test_it_gives_what_a_loader_gives_at_the_same_positions(seed):
    chain = [*CHAIN, T.MixUp(0.4)]
    loader = lx.DataLoader(IMAGES, batch_size=4, seed=seed, transforms=chain, output="numpy")
    run = lx.pipeline(chain, seed=seed)
    for step in (0, 3, 6):
        positions = np.arange(4 * step, 4 * step + 4)
        out = run(IMAGES[loader.indices(step)], positions=positions)
        np.testing.assert_array_equal(loader.batch(step), out, strict=True)


def test_without_positions_samples_stand_at_the_start_of_a_stream():
    run = lx.pipeline([draw])
    zeros = np.zeros((5, 2))
    out = run(zeros)
    np.testing.assert_array_equal(run(zeros, positions=range(5)), out)
    np.testing.assert_array_equal(run(zeros[:2], positions=[3, 4]), out[3:])
    np.testing.assert_array_equal(run(zeros, positions=[4, 3, 2, 1, 0]), out[::-1])
    assert len(np.unique(out)) == 10
    assert not np.isin(lx.pipeline([draw], seed=1)(zeros), out).any()


def test_one_pipeline_takes_samples_of_any_shape_and_dtype():
    run = lx.pipeline([T.RandomFlip(1.0)])
    for samples in (IMAGES, IMAGES[:3, :2], IMAGES[..., 0].astype(np.float32), IMAGES):
        np.testing.assert_array_equal(run(samples), samples[:, :, ::-1], strict=True)


@pytest.mark.parametrize(
    "samples",
    [
        IMAGES.tolist(),
        jnp.asarray(IMAGES, jnp.int32),
        np.asfortranarray(IMAGES),
        np.repeat(IMAGES, 2, axis=1)[:, ::2],
        IMAGES[::-1],
        IMAGES.astype(">i4"),
    ],
    ids=["list", "jax", "fortran", "strided", "reversed", "big-endian"],
)
def test_samples_may_come_in_any_form(samples):
    out = lx.pipeline([T.ToFloat()])(samples)
    values = np.asarray(samples)
    white = np.iinfo(values.dtype).max
    np.testing.assert_allclose(out, values / white, rtol=1e-5)


def test_samples_are_left_as_they_are_and_are_not_kept():
    samples = np.ones((3, 4), np.float32)
    samples.flags.writeable = False
    run = lx.pipeline([draw])
    assert not np.may_share_memory(run(samples), samples)
    assert np.all(samples == 1)
    gone = weakref.ref(samples)
    del samples
    assert gone() is None


@pytest.mark.parametrize("samples", [np.zeros((0, 3)), 3.0, []])
def test_no_samples_are_refused(samples):
    with pytest.raises(lx.ArgumentError, match="`samples`"):
        lx.pipeline([draw])(samples)


def test_samples_that_are_no_numbers_are_refused():
    with pytest.raises(lx.ArgumentError, match="object"):
        lx.pipeline([draw])([None, "a"])


@pytest.mark.parametrize("positions", [[0], [0, 1, 2], [0.0, 1.0], [-1, 0], [[0, 1]], 5])
def test_positions_that_do_not_fit_are_refused(positions):
    with pytest.raises(lx.ArgumentError, match="`positions`"):
        lx.pipeline([draw])(np.zeros((2, 2)), positions=positions)


def test_what_is_no_list_of_transforms_is_refused():
    for transforms in (T.ToFloat(), {"data": [T.ToFloat()]}, None):
        with pytest.raises(lx.ArgumentError, match="list of transforms"):
            lx.pipeline(transforms)
    for seed in (-1, 1 << 64):
        with pytest.raises(lx.ArgumentError, match="`seed`"):
            lx.pipeline([T.ToFloat()], seed=seed)
