"""Ops on the device: random ones have the same effect on every sample as on the host."""

import jax.numpy as jnp
import numpy as np
import pytest

from loaderx import ArgumentError, DataLoader, DeviceLoader
from loaderx import transforms as host
from loaderx.on_device import transforms as device

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 12, 10, 3), np.uint8)
STEPS = 8


def assert_same_stream(
    data, host_ops, device_ops, *, remainder="straddle", shuffle=False, compare=np.array_equal
):
    """Check that both loaders give the same batches for more than two epochs."""
    # Random draws depend on the position in the stream, not on its row; without a shuffle it compiles sooner.
    options = {"batch_size": 8, "seed": 2**63 + 1, "remainder": remainder, "shuffle": shuffle}
    expected = DataLoader(data, transforms=host_ops, **options)
    loader = DeviceLoader(data, transforms=device_ops, **options)
    state = loader.init()
    for step in range(STEPS):
        batch, state = loader.next(state)
        for name, array in expected.batch(step).items():
            assert batch[name].dtype == array.dtype
            assert batch[name].shape == array.shape
            assert compare(np.asarray(batch[name]), np.asarray(array)), (step, name)


def one_field(*pairs):
    """Return ops of the host for the field image, and those of the device."""
    hosts, devices = zip(*pairs, strict=True)
    return {"image": list(hosts)}, list(devices)


@pytest.mark.parametrize("remainder", ["straddle", "drop", "pad"])
def test_a_random_crop_is_that_of_the_host(remainder):
    pair = host.RandomCrop((12, 10), pad=4), device.RandomCrop((12, 10), pad=4)
    assert_same_stream({"image": IMAGES}, *one_field(pair), remainder=remainder, shuffle=True)


@pytest.mark.parametrize(
    ("images", "size", "pad"),
    [(IMAGES, 5, 0), (IMAGES[..., 0], (3, 10), 2), (IMAGES.astype(np.float32), (12, 1), 0)],
)
def test_a_random_crop_may_have_any_size(images, size, pad):
    pair = host.RandomCrop(size, pad=pad), device.RandomCrop(size, pad=pad)
    assert_same_stream({"image": images}, *one_field(pair))


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_a_random_flip_is_that_of_the_host(probability):
    pair = host.RandomFlip(probability), device.RandomFlip(probability)
    assert_same_stream({"image": IMAGES}, *one_field(pair))


def test_a_flip_changes_about_as_many_images_as_asked():
    data = {"image": np.arange(1000 * 2, dtype=np.int32).reshape(1000, 1, 2)}
    loader = DeviceLoader(data, batch_size=1000, transforms=[device.RandomFlip(0.3)])
    batch, _ = loader.next(loader.init())
    flipped = np.mean(batch["image"][:, 0, 0] > batch["image"][:, 0, 1])
    assert 0.25 < flipped < 0.35


def test_a_chain_is_that_of_the_host_also_with_the_same_op_twice():
    pairs = [
        (host.RandomCrop((12, 10), pad=2), device.RandomCrop((12, 10), pad=2)),
        (host.RandomFlip(), device.RandomFlip()),
        (host.RandomCrop((8, 8)), device.RandomCrop((8, 8))),
        (host.RandomFlip(), device.RandomFlip()),
    ]
    assert_same_stream({"image": IMAGES, "label": np.arange(30)}, *one_field(*pairs))


def test_several_fields_are_changed_alike():
    data = {"image": IMAGES, "mask": IMAGES[..., :1]}
    fields = ("image", "mask")
    assert_same_stream(
        data,
        {fields: [host.RandomCrop((12, 10), pad=4), host.RandomFlip()]},
        [device.RandomCrop((12, 10), 4, fields=fields), device.RandomFlip(fields=fields)],
    )


def test_a_field_may_be_given_by_its_name_alone():
    assert device.RandomFlip(fields="photo").fields == ("photo",)
    assert_same_stream(
        {"photo": IMAGES}, {"photo": [host.RandomFlip()]}, [device.RandomFlip(fields="photo")]
    )


def close(found, expected):
    """Check that values agree within one unit in the last place of the largest value."""
    return np.allclose(found, expected, rtol=0, atol=2.0**-23 * np.abs(expected).max())


@pytest.mark.parametrize(
    "images", [IMAGES, IMAGES.astype(np.uint16) * 257, IMAGES / np.float32(255)]
)
def test_normalize_is_that_of_the_host(images):
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
    pair = host.Normalize(mean, std), device.Normalize(mean, std)
    assert_same_stream({"image": images}, *one_field(pair), compare=close)


def test_normalize_warns_of_a_mean_on_the_scale_of_bytes():
    op = device.Normalize([123.7] * 3, [58.4] * 3)
    loader = DeviceLoader({"image": IMAGES}, batch_size=4, transforms=[op])
    with pytest.warns(UserWarning, match=r"divides by 255 before.*from 0 to 1"):
        loader.next(loader.init())


def mixed(alpha, rows=2000):
    """Return the shares that were drawn, from images that are 0 and 1 by turns."""
    numbers = np.arange(rows, dtype=np.float32)
    data = {
        "image": np.broadcast_to((numbers % 2)[:, None, None], (rows, 2, 2)),
        "label": np.eye(2, dtype=np.float32)[np.arange(rows) % 2],
    }
    op = device.MixUp(alpha)
    loader = DeviceLoader(data, batch_size=rows, shuffle=False, transforms=[op])
    batch, state = loader.next(loader.init())
    following, _ = loader.next(state)
    return data, batch, following


@pytest.mark.parametrize("alpha", [0.2, pytest.param(4.0, marks=pytest.mark.long)])
def test_mixup_draws_shares_from_a_beta_distribution(alpha):
    data, batch, following = mixed(alpha)
    image = np.asarray(batch["image"])
    assert image.shape == data["image"].shape
    assert np.all(image == image[:, :1, :1]), "a sample has one share"
    share = np.where(np.arange(len(image)) % 2 == 1, image[:, 0, 0], 1 - image[:, 0, 0])
    assert abs(share.mean() - 0.5) < 0.04
    assert abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 0.015
    assert np.allclose(batch["label"][:, 1], image[:, 0, 0], atol=1e-6), "labels are mixed alike"
    assert np.allclose(batch["label"].sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(following["image"], image), "another epoch draws others"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: device.RandomFlip(1.5), r"`probability` \(=1.5\) must be from 0 to 1"),
        (lambda: device.RandomCrop(0), r"`size` \(=0\) must be at least 1"),
        (lambda: device.RandomCrop(3, pad=-1), r"`pad` \(=-1\) at least 0"),
        (lambda: device.MixUp(0), r"`alpha` \(=0\) must be a finite number above 0"),
        (lambda: device.MixUp(np.inf), r"`alpha` \(=inf\)"),
        (lambda: device.Normalize(0, 0), r"`std` \(=0\) must be above 0"),
        (lambda: device.Normalize(np.nan, 1), r"`mean` \(=nan\)"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("op", "data", "message"),
    [
        (
            device.RandomCrop(20, pad=3),
            IMAGES,
            r"\(20, 20\)\) is larger than 'image' of \(12, 10\)",
        ),
        (device.RandomCrop(2), np.zeros((4, 2)), r"'image' must hold images"),
        (device.RandomFlip(), np.zeros((4, 2)), r"'image' must hold images"),
        (device.RandomFlip(), np.zeros((4, 3, 16, 16)), r"1 to 4 channels, .* Channels first\?"),
        (
            device.RandomCrop(8),
            np.zeros((4, 16, 16, 5)),
            r"1 to 4 channels, not of \(16, 16, 5\)",
        ),
        (device.MixUp(fields="image"), IMAGES, r"MixUp mixes floats, not 'image' of uint8"),
    ],
)
def test_fields_that_do_not_suit_an_op_are_refused(op, data, message):
    loader = DeviceLoader({"image": data}, batch_size=2, transforms=[op])
    with pytest.raises(ArgumentError, match=message):
        loader.next(loader.init())


def test_an_op_is_not_a_function_of_its_own():
    with pytest.raises(TypeError, match="RandomFlip is for `transforms` of a DeviceLoader"):
        device.RandomFlip()({"image": jnp.zeros((2, 2, 2))}, None)
