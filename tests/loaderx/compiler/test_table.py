"""Tables: ops are compiled once, for all orders, sizes, parameters and policies."""

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.compiler import passes

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 24, 20, 3), dtype=np.uint8)
CROP, NORMALIZE = T.RandomResizedCrop(12), T.Normalize([0.5] * 3, [0.25] * 3)
FLIP, JITTER, BLUR = T.RandomFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.GaussianBlur()
WHOLE = [CROP, FLIP, JITTER, BLUR, NORMALIZE]


@pytest.fixture
def compilations(monkeypatch):
    """Return the functions that are compiled or loaded from now on."""
    made = []
    original = passes._compile

    def noted(wanted):
        made.append(wanted.function.__name__)
        return original(wanted)

    monkeypatch.setattr(passes, "_compile", noted)
    monkeypatch.setattr(passes, "_LOADED", {})
    return made


CHANGES = {
    "two ops exchanged": [CROP, FLIP, BLUR, JITTER, NORMALIZE],
    "Maybe around two ops": [CROP, FLIP, T.Maybe(0.5, JITTER, BLUR), NORMALIZE],
    "another size": [T.RandomResizedCrop((9, 15)), *WHOLE[1:]],
    "other parameters": [T.RandomResizedCrop(12, scale=(0.5, 1)), FLIP, T.ColorJitter(0.1), BLUR, NORMALIZE],
    "a policy of its ops": [CROP, FLIP, T.RandAugment(2, ops=[JITTER, BLUR, FLIP]), NORMALIZE],
}  # fmt: skip


@pytest.mark.parametrize("ops", CHANGES.values(), ids=CHANGES)
def test_another_chain_of_the_same_ops_compiles_nothing(compilations, ops):
    before = lx.pipeline(WHOLE)
    before(IMAGES)
    kept = lx.pipeline([T.OneOf(FLIP, JITTER), BLUR, T.Maybe(0.5, FLIP), NORMALIZE])
    kept(IMAGES)
    compilations.clear()
    lx.pipeline(ops)(IMAGES)
    # A flip that another policy may follow is stored as bytes, and not scaled at once.
    assert set(compilations) <= {"copy_window"}


def test_policies_are_nested_as_deep_as_there_are_counters():
    op = T.Invert(0.5)
    for _ in range(16):
        op = T.RandAugment(1, ops=[op])
    assert lx.pipeline([op])(IMAGES).shape == IMAGES.shape
    with pytest.raises(lx.ArgumentError, match="may be nested at most 16 deep"):
        lx.pipeline([T.RandAugment(1, ops=[op])])(IMAGES)


def test_images_of_another_size_need_no_other_code(compilations):
    run = lx.pipeline(WHOLE)
    run(IMAGES)
    compilations.clear()
    for shape in ((31, 17), (12, 12), (1, 1)):
        run(np.zeros((2, *shape, 3), np.uint8))
    assert compilations == []


def test_an_op_is_compiled_for_a_dtype_and_a_number_of_channels(compilations):
    run = lx.pipeline([T.Brightness(0.5)])
    run(IMAGES)
    for images in (IMAGES[..., :1], IMAGES.astype(np.float32) / 255):
        compilations.clear()
        run(images)
        assert compilations == ["brightness"]


def test_a_users_transform_is_compiled_for_a_shape(compilations):
    @lx.transform
    def lift(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for c in range(x.shape[2]):
                    x[i, j, c] += 1

    run = lx.pipeline([lift])
    assert np.all(run(IMAGES) == IMAGES + np.uint8(1))
    # As it is, and with every index checked.
    assert compilations == ["lift", "lift"]
    run(IMAGES)
    assert compilations == ["lift", "lift"]
    run(IMAGES[:, :5])
    assert compilations == ["lift"] * 4
