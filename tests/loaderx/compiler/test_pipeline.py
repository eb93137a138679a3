"""Pipeline: a chain as a function of an array, with the same results as in a loader."""

import doctest
import threading
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.compiler import program
from loaderx.kernels import threads

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


def test_without_positions_samples_are_at_the_start_of_a_stream():
    run = lx.pipeline([draw])
    zeros = np.zeros((5, 2))
    out = run(zeros)
    np.testing.assert_array_equal(run(zeros, positions=range(5)), out)
    np.testing.assert_array_equal(run(zeros[:2], positions=[3, 4]), out[3:])
    np.testing.assert_array_equal(run(zeros, positions=[4, 3, 2, 1, 0]), out[::-1])
    assert len(np.unique(out)) == 10
    assert not np.isin(lx.pipeline([draw], seed=1)(zeros), out).any()


def test_one_pipeline_accepts_samples_of_any_shape_and_dtype():
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


def test_one_image_is_recognised_as_one():
    image = IMAGES[0]
    flip, crop = lx.pipeline([T.RandomFlip(1.0)]), lx.pipeline([T.ToFloat(), T.CenterCrop(3)])
    np.testing.assert_array_equal(flip(image), image[:, ::-1], strict=True)
    np.testing.assert_array_equal(flip(image[..., 0]), image[:, ::-1, 0], strict=True)
    np.testing.assert_array_equal(crop(image), crop(IMAGES)[0], strict=True)
    assert lx.pipeline([draw, T.RandomFlip()])(image.astype(np.float32)[..., :1]).shape == (6, 5, 1)
    wide = np.zeros((6, 5, 12), np.uint8)
    assert lx.pipeline([T.Channels(12), T.Resize(3)])(wide).shape == (3, 3, 12)


def test_one_image_draws_as_the_sample_at_its_position():
    run = lx.pipeline([T.RandomCrop(3)])
    many = run(np.repeat(IMAGES[:1], 8, axis=0))
    assert len(np.unique(many.reshape(8, -1), axis=0)) > 2
    np.testing.assert_array_equal(run(IMAGES[0]), many[0])
    for position in (3, 7):
        np.testing.assert_array_equal(run(IMAGES[0], positions=position), many[position])


def test_arrays_that_may_be_one_image_or_several_are_refused_unless_batch_says_which():
    run, first = lx.pipeline([T.RandomFlip(1.0)]), IMAGES[0].transpose(2, 0, 1)
    with pytest.raises(
        lx.ArgumentError, match=r"\(3, 6, 5\).*channels first.*batch=True.*moveaxis"
    ):
        run(first)
    for said in ({"batch": True}, {"positions": [0, 1, 2]}):
        np.testing.assert_array_equal(run(first, **said), first[..., ::-1])
    # Neither 1 nor 10 images are mistaken for channels.
    for greys in (first[:1], IMAGES[..., 0]):
        np.testing.assert_array_equal(run(greys), greys[..., ::-1])


def test_other_chains_expect_several_samples_unless_batch_is_false():
    run, row = lx.pipeline([draw]), np.zeros(4)
    out = run(row, batch=False)
    np.testing.assert_array_equal(out, run(row[None])[0])
    moved = run(row, positions=5, batch=False)
    np.testing.assert_array_equal(moved, run(row[None], positions=[5])[0])
    series = lx.pipeline([T.RandomCrop1D(3)])
    assert series(np.zeros((8, 5), np.float32)).shape == (8, 3)


@pytest.mark.parametrize("op", [T.RandomFlip(), T.Brightness(0.1), T.Maybe(0.5, T.Brightness(0.1))])
@pytest.mark.parametrize(
    ("shape", "hint"),
    [((3, 16, 16), "Channels first"), ((16, 16, 12), r"`T.Channels\(12\)`")],
)
def test_images_whose_last_axis_is_not_channels_are_refused(op, shape, hint):
    samples = np.zeros((6, *shape), np.uint8)
    for make in (lx.pipeline([op]), lambda rows: lx.DataLoader(rows, transforms=[op])):
        with pytest.raises(lx.ArgumentError, match=f"1 to 4 channels.*{hint}"):
            make(samples)
    stated = [T.Channels(shape[2]), op]
    assert lx.pipeline(stated)(samples).shape == samples.shape
    loader = lx.DataLoader({"image": samples}, transforms={"image": stated}, output="numpy")
    assert loader.batch(0)["image"].shape[1:] == shape


def test_numbers_of_channels_hold_for_all_fields_of_their_entry():
    data = {"image": IMAGES, "scores": np.zeros((10, 6, 5, 21), np.float32)}
    entry = ("image", "scores")
    with pytest.raises(lx.ArgumentError, match=r"T.Channels\(21\)"):
        lx.DataLoader(data, transforms={entry: [T.RandomFlip()]})
    loader = lx.DataLoader(data, transforms={entry: [T.Channels(21), T.RandomFlip()]})
    assert loader.batch(0)["scores"].shape[1:] == (6, 5, 21)
    for numbers in ((), (0,), (2.5,), ("3",)):
        with pytest.raises(lx.ArgumentError, match="Channels accepts integers"):
            T.Channels(*numbers)


def test_colours_are_refused_where_channels_are_first():
    with pytest.raises(lx.ArgumentError, match="an op before it put the channels first"):
        lx.pipeline([T.ToFloat(channels_first=True), T.Brightness(0.1)])(IMAGES[:, :3, :3])


def test_a_pipeline_shows_its_ops():
    chain = [T.Resize(8), T.Resize((8, 9), interpolation="area"), T.Maybe(0.5, T.RandomFlip())]
    assert repr(lx.pipeline(chain, seed=3)) == (
        "pipeline([Resize(8), Resize((8, 9), interpolation='area'), Maybe(0.5, RandomFlip())], seed=3)"
    )


def test_batch_must_be_true_false_or_none():
    with pytest.raises(lx.ArgumentError, match=r"`batch` \(='yes'\) must be True, False or None"):
        lx.pipeline([draw])(np.zeros((2, 2)), batch="yes")


@pytest.mark.parametrize("samples", [np.zeros((0, 3)), 3.0, []])
def test_no_samples_are_refused(samples):
    with pytest.raises(lx.ArgumentError, match="`samples`"):
        lx.pipeline([draw])(samples)


def test_samples_that_are_not_numbers_are_refused():
    with pytest.raises(lx.ArgumentError, match="object"):
        lx.pipeline([draw])([None, "a"])


@pytest.mark.parametrize("positions", [[0], [0, 1, 2], [0.0, 1.0], [-1, 0], [[0, 1]], 5])
def test_positions_that_do_not_fit_are_refused(positions):
    with pytest.raises(lx.ArgumentError, match="`positions`"):
        lx.pipeline([draw])(np.zeros((2, 2)), positions=positions)


def test_transforms_that_are_not_a_list_are_refused():
    for transforms in (T.ToFloat(), {"data": [T.ToFloat()]}, None):
        with pytest.raises(lx.ArgumentError, match="list of transforms"):
            lx.pipeline(transforms)
    for seed in (-1, 1 << 64):
        with pytest.raises(lx.ArgumentError, match="`seed`"):
            lx.pipeline([T.ToFloat()], seed=seed)


# --- Rows, positions, out and threads ---------------------------------------------------------

ROWS = [3, -1, 0, 3, -10]
FLOATS = (IMAGES / 255).astype(np.float32)


def test_the_example_of_the_docstring_holds():
    (found,) = doctest.DocTestFinder(recurse=False).find(lx.pipeline, "pipeline", globs={})
    assert doctest.DocTestRunner().run(found) == (0, 8)


@pytest.mark.parametrize(
    "samples",
    [FLOATS, FLOATS[::-1], FLOATS[:, ::-1], FLOATS.astype(">f4"), np.asfortranarray(FLOATS)],
    ids=["plain", "reversed", "reversed columns", "big-endian", "fortran"],
)
@pytest.mark.parametrize(
    "chain",
    [
        [],
        [T.RandomFlip(), T.ToFloat()],
        [T.MixUp(0.4)],
        [T.ToFloat(), T.MixUp(0.4), T.RandomFlip()],
    ],
    ids=["nothing", "compiled", "mixed", "mixed between"],
)
def test_rows_are_those_of_numpy(samples, chain):
    run = lx.pipeline(chain, seed=2)
    expected = run(samples[ROWS], batch=True)
    np.testing.assert_array_equal(run(samples, rows=ROWS), expected, strict=True)
    out = np.empty_like(expected)
    assert run(samples, rows=np.array(ROWS, np.int16), out=out) is out
    np.testing.assert_array_equal(out, expected)
    moved = run(samples[ROWS], positions=[9, 8, 7, 6, 5])
    np.testing.assert_array_equal(run(samples, rows=ROWS, positions=[9, 8, 7, 6, 5]), moved)


@pytest.mark.parametrize("count", [None, 1, 2])
def test_rows_at_positions_into_an_array_are_the_bytes_of_a_loader(tmp_path, count):
    images = np.random.default_rng(1).integers(0, 256, (300, 40, 40, 3), np.uint8)
    np.save(tmp_path / "images.npy", images)
    chain = [T.RandomResizedCrop(32), T.RandomFlip(), T.Normalize(0.5, 0.25), T.MixUp(0.2)]
    loader = lx.DataLoader(
        lx.NPDataset(tmp_path / "images.npy"),
        batch_size=64,
        seed=5,
        transforms=chain,
        output="numpy",
    )
    augment = lx.pipeline(chain, seed=5)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    batch = np.empty((64, 32, 32, 3), np.float32)
    for step in (0, 4, 11):
        positions = np.arange(64 * step, 64 * (step + 1))
        rows = loader.indices(step)
        augment(mapped, rows=rows, positions=positions, out=batch, threads=count)
        np.testing.assert_array_equal(batch, loader.batch(step))


def test_python_functions_accept_rows_too():
    def double(x):
        return x * 2

    with pytest.warns(UserWarning, match="plain Python function"):
        out = lx.pipeline([double])(np.arange(10.0), rows=ROWS, batch=True)
    np.testing.assert_array_equal(out, np.arange(10.0)[ROWS] * 2)


def test_one_sample_is_written_to_its_array():
    run, out = lx.pipeline(CHAIN), np.zeros((6, 5, 3), np.float32)
    assert run(IMAGES[2], out=out) is out
    np.testing.assert_array_equal(out, run(IMAGES[2]))
    with pytest.raises(lx.ArgumentError, match=r"`out` has the shape \(1, 6, 5, 3\)"):
        run(IMAGES[2], out=out[None])


def bad_outs():
    """Return arrays that cannot hold ten results, and the messages about them."""
    good = np.zeros((10, 6, 5, 3), np.float32)
    read_only = good.copy()
    read_only.flags.writeable = False
    shared = np.zeros(good.nbytes, np.uint8)
    return {
        "a list": (IMAGES, good.tolist(), r"`out` \(a list\) must be a NumPy array"),
        "shape": (IMAGES, good[:9], r"`out` has the shape \(9, 6, 5, 3\), and must have"),
        "dtype": (IMAGES, good.astype(float), "`out` has the dtype float64, and must have"),
        "order": (IMAGES, np.asfortranarray(good), "`out` has the strides .* C-contiguous"),
        "read-only": (IMAGES, read_only, "`out` is read-only"),
        "overlap": (
            shared[-IMAGES.nbytes :].reshape(IMAGES.shape),
            shared.view(np.float32).reshape(good.shape),
            "`out` overlaps the memory of `samples`",
        ),
    }


@pytest.mark.parametrize("kind", bad_outs())
def test_an_out_that_cannot_hold_the_result_is_refused(kind):
    samples, out, error = bad_outs()[kind]
    with pytest.raises(lx.ArgumentError, match=error):
        lx.pipeline(CHAIN)(samples, out=out)


@pytest.mark.parametrize("rows", [[], [0.0], [[0]], 3, "a", [True]])
def test_rows_that_are_not_integers_are_refused(rows):
    with pytest.raises(lx.ArgumentError, match="`rows`"):
        lx.pipeline(CHAIN)(IMAGES, rows=rows)


@pytest.mark.parametrize(("rows", "error"), [([10], r"`rows\[0\]` \(=10\)"), ([0, -11], r"\[1\]")])
def test_rows_outside_are_refused(rows, error):
    with pytest.raises(IndexError, match=error + ".* is outside of `samples`, which are 10"):
        lx.pipeline(CHAIN)(IMAGES, rows=rows)


def test_rows_of_one_sample_are_refused():
    with pytest.raises(lx.ArgumentError, match="`rows` are several samples"):
        lx.pipeline(CHAIN)(IMAGES, rows=[0], batch=False)


@pytest.mark.parametrize("positions", [[0], [0, 1, 2], 5, [-1, 0], [0.5, 1]])
def test_as_many_positions_as_rows_are_needed(positions):
    with pytest.raises(lx.ArgumentError, match=r"`positions` .* must be 2 integers"):
        lx.pipeline(CHAIN)(IMAGES, rows=[0, 1], positions=positions)


@pytest.fixture(params=["regions", "own threads"])
def in_parts(request, monkeypatch):
    """Run chains in up to four parts, in each of the two ways; list the parts."""
    process = threads.ProcessThreads(forked=True)
    process._regions = request.param == "regions"
    monkeypatch.setattr(threads, "_current", [process])
    monkeypatch.setattr(threads, "_run_region", lambda region, bounds: region(bounds))
    monkeypatch.setattr(threads.config, "NUMBA_NUM_THREADS", 4)
    monkeypatch.setattr(program, "BYTES_PER_THREAD", 1)
    monkeypatch.setattr(threads, "POOL_FACTOR", 1)
    counts = []
    run = process.run

    def listed(size, count, region, part):
        counts.append(count)
        run(size, count, region, part)

    monkeypatch.setattr(process, "run", listed)
    return counts


def test_the_result_is_the_same_for_any_number_of_threads(in_parts):
    chain = [
        *CHAIN[:2],
        T.RandAugment(2, ops=[T.Invert(0.5), T.RandomFlip(), T.Rotate(9)]),
        draw_pixel,
    ]
    run = lx.pipeline(chain, seed=1)
    expected = run(IMAGES, rows=ROWS, threads=1)
    for count in (2, 3, 4, 100):
        np.testing.assert_array_equal(run(IMAGES, rows=ROWS, threads=count), expected)
    assert in_parts == [2, 3, 4, 4]


@lx.transform
def draw_pixel(x, rng):
    for i in range(x.shape[0]):
        x[i, 0, 0] = rng.integers(0, 256)


@lx.transform
def picky(x, rng):
    if rng.random() < 0.5:
        raise ValueError("not this one")


def test_a_transform_raises_the_same_in_several_threads_as_in_one(in_parts):
    run = lx.pipeline([T.Identity(), picky], seed=3)
    messages = []
    for count in (1, 2, 4):
        with pytest.raises(ValueError, match="not this one") as raised:
            run(IMAGES, threads=count)
        messages.append(raised.value.__notes__)
    assert messages[0] == messages[1] == messages[2]
    assert "'picky', at sample" in messages[0][0]
    assert in_parts == [2, 4]


def test_threads_of_numba_are_the_default(in_parts, monkeypatch):
    monkeypatch.setattr(threads, "num_threads", lambda: 3)
    lx.pipeline(CHAIN)(IMAGES)
    assert in_parts == [3]


def test_a_loader_counts_as_one_thread_where_it_transforms(in_parts):
    lx.DataLoader(IMAGES, transforms=CHAIN, output="numpy").batch(0)
    assert in_parts == []


def test_small_arrays_stay_in_one_thread():
    # Which, and not how many: those of tests before this one may end meanwhile.
    before = set(threading.enumerate())
    run = lx.pipeline(CHAIN)
    run(IMAGES[0])
    assert set(threading.enumerate()) <= before
