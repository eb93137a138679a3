"""Chain: the ops of one field run in their order, compiled ops, Python functions and mixing alike."""

import functools
import math
import warnings

import numpy as np
import pytest
from PIL import Image, ImageFilter

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.compiler.chain import partners_of, steps_to_partners

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)
python = pytest.mark.filterwarnings("ignore:.* is a plain Python function")


@lx.transform
def add_places(x):
    for i in range(x.shape[0]):
        x[i] += i


@lx.transform
def jitter(x, rng, amount, offsets, twice=False):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                change = rng.uniform(-amount, amount) + offsets[c]
                if twice:
                    change += rng.normal(0.0, amount)
                x[i, j, c] += change


@lx.transform
def beyond(x):
    for i in range(x.shape[0] + 1):
        x[i] = 1


def double(x):
    return x * 2


def join_ends(x):
    return np.array([x[0], x[-1]], np.float64)


# --- Python functions -------------------------------------------------------------------------


@python
def test_a_python_function_runs_in_its_place_in_the_chain():
    out = lx.pipeline([add_places, double, add_places])(ROWS)
    places = np.arange(3)
    np.testing.assert_array_equal(out, (ROWS + places) * 2 + places)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(lx.pipeline([double, double])(ROWS), ROWS * 4)


@python
def test_a_python_function_may_change_shape_and_dtype():
    run = lx.pipeline([join_ends, add_places])
    out = run(ROWS)
    np.testing.assert_array_equal(out, ROWS[:, [0, 2]] + [0.0, 1.0], strict=True)
    chain = run.chain(lx.Spec((3,), np.float32), ROWS[0])
    assert chain.output == lx.Spec((2,), np.float64)


@python
def test_a_python_function_gets_a_copy():
    def spoil(x):
        x[:] = -1
        return x

    rows = ROWS.copy()
    assert np.all(lx.pipeline([spoil])(rows) == -1)
    np.testing.assert_array_equal(rows, ROWS)


def test_one_warning_says_what_a_python_function_costs_and_where_it_is_used():
    data = {"a": ROWS, "b": ROWS}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = lx.DataLoader(data, batch_size=4, transforms={("a", "b"): [double]})
        loader.batch(0)
        loader.explain()
    assert len(caught) == 1
    message = str(caught[0].message)
    for word in ("'double'", "once per sample under the GIL", "`@loaderx.transform`"):
        assert word in message
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="'double'") as caught:
        lx.pipeline([double])(ROWS)
    assert [warning.filename for warning in caught] == [__file__]


@python
def test_a_python_function_draws_the_floats_of_python():
    """Pillow compares a radius with a tuple, which NumPy's floats answer with an array."""
    kinds = set()

    def blurred(x, rng):
        kinds.update((type(rng.uniform(0, 2)), type(rng.random()), type(rng.choice([0.5, 1.5]))))
        assert type(rng.integers(5)) is np.int64
        return np.asarray(Image.fromarray(x).filter(ImageFilter.GaussianBlur(rng.normal(2, 0.1))))

    images = np.zeros((4, 8, 8, 3), np.uint8)
    assert lx.pipeline([blurred])(images).shape == images.shape
    assert kinds == {float}


@python
def test_a_python_function_draws_like_any_other_op():
    def noise(x, rng):
        return x + rng.uniform(10.0, 20.0)

    @lx.transform
    def compiled_noise(x, rng):
        change = rng.uniform(10.0, 20.0)
        for i in range(x.shape[0]):
            x[i] = x[i] + change

    run = lx.pipeline([noise])
    np.testing.assert_array_equal(run(ROWS), run(ROWS))
    np.testing.assert_allclose(run(ROWS), lx.pipeline([compiled_noise])(ROWS), rtol=1e-6)
    np.testing.assert_array_equal(run(ROWS[2:], positions=[2, 3]), run(ROWS)[2:])
    assert np.all(run(ROWS) != lx.pipeline([noise], seed=1)(ROWS))


class Adder:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x + self.amount


def add(x, amount=1.0):
    return x + np.float32(amount)


def add_two(amount, x):
    return x + np.float32(amount)


@python
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + np.float32(1), ROWS + 1),
        (lambda x, rng: x + np.float32(rng.integers(1, 2)), ROWS + 1),
        (add, ROWS + 1),
        (functools.partial(add, amount=2.0), ROWS + 2),
        (functools.partial(add_two, 3.0), ROWS + 3),
        (Adder(np.float32(4)), ROWS + 4),
        (np.negative, -ROWS),
        (np.flip, ROWS[:, ::-1]),
    ],
    ids=["lambda", "lambda with rng", "default", "partial", "partial in front", "object", "ufunc", "NumPy"],
)  # fmt: skip
def test_any_callable_will_do(function, expected):
    np.testing.assert_array_equal(lx.pipeline([function])(ROWS), expected, strict=True)


@python
def test_a_function_that_gives_another_shape_later_is_named():
    def keep_some(x):
        return x[x < 9]

    with pytest.raises(lx.TransformError) as refusal:
        lx.pipeline([keep_some])(ROWS)
    for word in ("keep_some", "float32[3]", "float32[0]"):
        assert word in str(refusal.value)

    def whole_or_not(x):
        return x.astype(np.int64) if x[0] < 6 else x

    options = {"batch_size": 2, "shuffle": False, "output": "numpy", "workers": 1}
    loader = lx.DataLoader(ROWS, transforms=[whole_or_not], **options)
    with iter(loader) as iterator:
        np.testing.assert_array_equal(next(iterator), ROWS[:2].astype(np.int64), strict=True)
        with pytest.raises(lx.TransformError, match="whole_or_not returned float32") as refusal:
            next(iterator)
    assert any("rows [2, 3]" in note for note in refusal.value.__notes__)


@python
def test_a_function_that_returns_nothing_is_named_when_the_loader_is_built():
    def forgetful(x):
        x += 1

    with pytest.raises(lx.TransformError, match="'forgetful' returned None"):
        lx.DataLoader(ROWS, transforms=[forgetful])


@python
def test_an_exception_in_a_function_is_its_own_and_says_where_it_came_from():
    def refuse(x):
        if x[0] >= 6:
            raise KeyError("no such row")
        return x

    with pytest.raises(KeyError, match="no such row") as failure:
        lx.pipeline([refuse])(ROWS)
    assert "loaderx: in transform 'refuse', at sample 2 of these" in failure.value.__notes__
    with pytest.raises(KeyError) as failure:
        lx.DataLoader(ROWS[2:], transforms=[add_places, refuse])
    assert "loaderx: op 1 of `transforms` for data" in failure.value.__notes__


# --- nothing to do, and mixing first ----------------------------------------------------------


@pytest.mark.parametrize("transforms", [[], {"data": []}, {}])
def test_a_chain_of_nothing_changes_nothing(transforms):
    loader = lx.DataLoader(ROWS, batch_size=4, shuffle=False, output="numpy", transforms=transforms)
    np.testing.assert_array_equal(loader.batch(0), ROWS, strict=True)
    out = lx.pipeline([])(ROWS)
    np.testing.assert_array_equal(out, ROWS, strict=True)
    assert not np.may_share_memory(out, ROWS)


def test_mixing_may_come_first_and_several_times():
    run = lx.pipeline([T.MixUp(1.0), add_places, T.MixUp(1.0)])
    loader = lx.DataLoader(
        ROWS,
        batch_size=4,
        shuffle=False,
        output="numpy",
        transforms=[T.MixUp(1.0), add_places, T.MixUp(1.0)],
    )
    out = run(ROWS)
    np.testing.assert_array_equal(loader.batch(0), out)
    # Rows are 3k, 3k + 1, 3k + 2: mixing keeps the steps between columns, and adding places doubles them.
    np.testing.assert_allclose(np.diff(out, axis=1), 2, rtol=1e-5)
    assert np.all((out[:, 0] >= 0) & (out[:, 0] <= 9))
    assert not np.allclose(out[:, 0], ROWS[:, 0])


@python
def test_a_python_function_after_mixing_sees_mixed_samples():
    out = lx.pipeline([T.MixUp(1.0), double])(ROWS)
    np.testing.assert_array_equal(out, lx.pipeline([T.MixUp(1.0)])(ROWS) * 2)


def test_partners_are_one_step_around_the_batch_for_any_key_and_never_oneself():
    for key in np.random.default_rng(0).integers(0, 1 << 64, 200, np.uint64):
        (partners,) = partners_of(0, 7, 7, key, 21)
        assert sorted(partners) == list(range(7))
        steps = (partners - np.arange(7)) % 7
        assert len(set(steps)) == 1
        assert steps[0] != 0
        parts = [partners_of(0, 3, 7, key, 21), partners_of(3, 4, 7, key, 21)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1)[0], partners)
    several = {tuple(partners_of(0, 7, 7, np.uint64(5), batch)[0]) for batch in range(100)}
    assert len(several) == 6


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_several_partners_are_different_ones_while_there_are_others(size):
    seen = set()
    for batch in range(1500):
        steps = steps_to_partners(size, np.uint64(5), batch, 3)
        # The first one is that of ops with one partner.
        assert steps[:1] == steps_to_partners(size, np.uint64(5), batch, 1)
        others = [step for step in steps if step]
        assert len(set(others)) == len(others) == min(3, size - 1)
        assert steps == (*others, *[0] * (3 - len(others)))
        partners = partners_of(0, size, size, np.uint64(5), batch, number=3)
        expected = (np.arange(size) + np.array(steps)[:, None]) % size
        np.testing.assert_array_equal(partners, expected)
        seen.add(steps)
    # Every order of every choice.
    assert len(seen) == math.perm(size - 1, min(3, size - 1))


def test_a_batch_of_one_sample_is_mixed_with_itself():
    np.testing.assert_allclose(lx.pipeline([T.MixUp(1.0)])(ROWS[:1]), ROWS[:1], rtol=1e-6)


# --- LOADERX_DEBUG=1 --------------------------------------------------------------------------

FLOATS = (IMAGES / 255).astype(np.float32)
DEBUGGED = {
    "Brightness": ([T.Brightness(0.4)], IMAGES),
    "Contrast": ([T.Contrast(0.4)], FLOATS),
    "Saturation": ([T.Saturation(0.4)], IMAGES),
    "Grayscale": ([T.Grayscale(0.7)], FLOATS),
    "RandomErasing": ([T.RandomErasing(0.8, value=0.5)], FLOATS),
    "Resize": ([T.Resize((3, 4), interpolation="area")], IMAGES),
    "Cast": ([T.Cast("int16")], FLOATS * 100),
    "OneHot": ([T.OneHot(5, smoothing=0.1)], np.arange(5)),
    "authored": ([jitter(amount=0.1, offsets=[0.0, 0.5, 1.0], twice=True)], FLOATS),
    "authored, integers": ([jitter(amount=9.0, offsets=[0.0, 0.5, 1.0])], IMAGES // 2 + 50),
}


@pytest.mark.parametrize("chain", DEBUGGED)
def test_debug_mode_gives_the_same_bytes(chain, monkeypatch):
    transforms, samples = DEBUGGED[chain]
    compiled = lx.pipeline(transforms)(samples)
    assert compiled.shape != samples.shape or np.any(compiled != samples)
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    np.testing.assert_array_equal(lx.pipeline(transforms)(samples), compiled, strict=True)


@pytest.mark.parametrize("chain", ["Contrast", "Grayscale"])
def test_debug_mode_does_not_read_what_lies_in_new_memory(chain, monkeypatch):
    transforms, samples = DEBUGGED[chain]
    compiled = lx.pipeline(transforms)(samples)
    empty = np.empty

    def signalling(shape, dtype=float):
        made = empty(shape, dtype)
        if made.dtype == np.float32:
            made.view(np.uint32)[...] = 0x7FA00000  # a NaN that arithmetic warns of
        return made

    monkeypatch.setenv("LOADERX_DEBUG", "1")
    monkeypatch.setattr(np, "empty", signalling)
    np.testing.assert_array_equal(lx.pipeline(transforms)(samples), compiled, strict=True)


def test_debug_mode_goes_together_with_windows_and_mixing(monkeypatch):
    def loader():
        return lx.DataLoader(
            {"image": IMAGES, "label": np.arange(5)},
            batch_size=5,
            output="numpy",
            transforms={
                "image": [T.RandomFlip(), T.Brightness(0.4), T.ToFloat()],
                "label": [T.OneHot(5)],
                ("image", "label"): [T.CutMix(1.0)],
            },
        ).batch(3)

    compiled = loader()
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    for name, array in loader().items():
        np.testing.assert_array_equal(array, compiled[name], strict=True)


def test_debug_mode_catches_a_write_beyond_the_end(monkeypatch):
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    loader = lx.DataLoader(ROWS, batch_size=2, output="numpy", transforms=[beyond])
    with iter(loader) as iterator:
        with pytest.raises(IndexError, match="out of bounds") as failure:
            next(iterator)
        assert iterator.step == 0
    notes = "\n".join(failure.value.__notes__)
    assert "in transform 'beyond', at sample 0" in notes
    assert "step 0, rows" in notes
    # The line of the user's own function.
    assert failure.traceback[-1].path.samefile(__file__)


def test_debug_mode_does_not_compile_what_it_runs_in_python(monkeypatch, empty_cache):
    monkeypatch.setenv("LOADERX_DEBUG", "1")
    lx.pipeline([add_places])(ROWS)
    assert list(empty_cache.iterdir()) == []
