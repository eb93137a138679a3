"""`@transform`: a plain function becomes an op, its parameters are values and not code, and mistakes are named."""

import numpy as np
import pytest

import loaderx as lx
from loaderx.compiler.driver import Driver

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@lx.transform
def scale(x, rng, low, high=2.0, flip=False, weights=(1.0, 1.0, 1.0), shift=0):
    """Scaled by a random factor."""
    factor = rng.uniform(low, high)
    for i in range(x.shape[0]):
        value = x[i] * factor * weights[i] + shift
        x[i] = -value if flip else value


@lx.transform
def clip(x, most):
    for i in range(x.shape[0]):
        x[i] = min(x[i], most)


@lx.transform(out=lambda spec, times: lx.Spec((spec.shape[0] * times,), np.float64))
def repeat(x, out, times=2):
    for i in range(out.shape[0]):
        out[i] = x[i % x.shape[0]]


@lx.transform(out=lambda spec, **parameters: lx.Spec((), np.int64))
def total_with_noise(x, out, rng, noise):
    total = rng.integers(0, noise)
    for i in range(x.shape[0]):
        total += np.int64(x[i])
    out[0] = total


@lx.transform
def every_draw(x, rng):
    x[0] = rng.random()
    x[1] = rng.uniform(2.0, 3.0)
    x[2] = rng.integers(5)
    x[3] = rng.integers(10, 20)
    x[4] = rng.normal(1.0, 0.5)
    x[5] = rng.standard_normal()
    x[6] = rng.beta(0.5, 0.5)
    x[7] = rng.exponential(2.0)


def run(op, rows=ROWS, **options):
    return lx.pipeline([op], **options)(rows)


@pytest.fixture
def compilations(monkeypatch):
    """The drivers that are made, with whether each was compiled or loaded."""
    made = []
    original = Driver._compile

    def noted(self):
        compiled = original(self)
        made.append(self)
        return compiled

    monkeypatch.setattr(Driver, "_compile", noted)
    return made


# --- what it does -----------------------------------------------------------------------------


def test_a_transform_changes_its_sample_in_place():
    np.testing.assert_array_equal(run(clip(most=2.5)), np.minimum(ROWS, 2.5), strict=True)


def test_the_function_itself_is_there_to_be_called_and_read():
    sample = ROWS[1].copy()
    clip.py(sample, most=4)
    assert sample.tolist() == [3, 4, 4]
    sample = ROWS[1].copy()
    scale.py(sample, np.random.default_rng(0), low=1.0, weights=np.ones(3))
    factor = np.random.default_rng(0).uniform(1.0, 2.0)
    np.testing.assert_allclose(sample, ROWS[1] * factor, rtol=1e-6)
    assert scale.__name__ == "scale"
    assert scale.__doc__ == "Scaled by a random factor."


def test_a_transform_shows_its_parameters():
    assert repr(clip(most=2)) == "clip(most=2)"
    assert repr(repeat()) == "repeat(times=2)"


def test_rng_has_the_methods_of_a_numpy_generator_in_compiled_code_and_in_python():
    zeros = np.zeros((64, 8))
    ours = run(every_draw, zeros)
    theirs = np.zeros_like(zeros)
    generator = np.random.default_rng(0)
    for row in theirs:
        every_draw.py(row, generator)
    for low, high, column in ((0, 1, 0), (2, 3, 1), (0, 5, 2), (10, 20, 3), (0, 1, 6), (0, 99, 7)):
        for values in (ours[:, column], theirs[:, column]):
            assert low <= values.min() <= values.max() <= high
    for values in (ours, theirs):
        assert set(values[:, 2]) == set(range(5))
        assert len(np.unique(values[:, [0, 1, 4, 5, 6, 7]])) == 64 * 6
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=1.5)


def test_parameters_may_be_numbers_truths_and_arrays():
    plain = {"low": 2.0, "high": 2.0}
    np.testing.assert_allclose(run(scale(**plain)), ROWS * 2)
    np.testing.assert_allclose(run(scale(**plain, flip=True)), -ROWS * 2)
    np.testing.assert_allclose(run(scale(**plain, shift=5)), ROWS * 2 + 5)
    for weights in ([1, 2, 3], np.array([1, 2, 3], ">f8"), np.array([1, 2, 3], np.float16)):
        np.testing.assert_allclose(run(scale(**plain, weights=weights)), ROWS * 2 * [1, 2, 3])
    np.testing.assert_allclose(run(scale(low=np.array(2.0), high=np.float32(2))), ROWS * 2)


def test_another_value_needs_no_other_code(compilations, tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERX_CACHE_DIR", str(tmp_path))
    values = [
        {"low": 1.0, "high": 1.0, "flip": False, "weights": [1.0, 1.0, 1.0], "shift": 0},
        {"low": 3.0, "high": 3.0, "flip": True, "weights": [3.0, 2.0, 1.0], "shift": 7},
        {"low": 0.5, "high": 0.5, "flip": False, "weights": np.arange(3.0)[::-1], "shift": -1},
    ]
    for parameters in values:
        factor = parameters["low"] * np.asarray(parameters["weights"])
        expected = (ROWS * factor + parameters["shift"]) * (-1 if parameters["flip"] else 1)
        np.testing.assert_allclose(run(scale(**parameters)), expected, rtol=1e-6)
    assert [driver.cached for driver in compilations] == [False, True, True]
    assert len(list(tmp_path.rglob("*.nbc"))) == 1


def test_an_array_is_taken_as_it_is_when_the_op_is_made():
    weights = np.ones(3)
    op = scale(low=2.0, weights=weights)
    weights[:] = 0
    np.testing.assert_allclose(run(op), ROWS * 2)


def test_a_number_takes_the_precision_of_the_sample():
    @lx.transform
    def add(x, amount):
        for i in range(x.shape[0]):
            x[i] = x[i] + amount - x[i]

    amount = 0.1
    singles, doubles = np.full((1, 1), 1.0, np.float32), np.full((1, 1), 1.0)
    sample = singles[0].copy()
    add.py(sample, amount)
    assert run(add(amount=amount), singles)[0, 0] == sample[0]
    sample = doubles[0].copy()
    add.py(sample, amount)
    assert run(add(amount=amount), doubles)[0, 0] == sample[0]


def test_a_transform_may_give_another_shape_and_dtype():
    out = run(repeat(times=3))
    np.testing.assert_array_equal(out, np.tile(ROWS, 3).astype(np.float64), strict=True)
    loader = lx.DataLoader(ROWS, batch_size=2, transforms=[repeat, clip(most=3)], output="numpy")
    assert "float64[6]" in repr(loader)
    assert loader.batch(0).max() == 3


def test_a_transform_may_give_a_single_number():
    out = run(total_with_noise(noise=1))
    assert (out.shape, out.dtype) == ((2,), np.int64)
    assert out.tolist() == [3, 12]
    noisy = run(total_with_noise(noise=1000)) - [3, 12]
    assert 0 <= noisy.min() <= noisy.max() < 1000
    assert noisy[0] != noisy[1]


def test_the_same_op_may_stand_in_several_chains_and_twice_in_one():
    op = repeat(times=2)
    out = lx.pipeline([op, op])(ROWS)
    np.testing.assert_array_equal(out, np.tile(ROWS, 4))
    assert lx.pipeline([op])(ROWS[:, :1]).shape == (2, 2)


# --- mistakes ---------------------------------------------------------------------------------


def refused(*words):
    return pytest.raises(lx.ArgumentError, match=r"[\s\S]*".join(words))


def test_parameters_that_are_missing_or_unknown_are_refused():
    with refused("'scale'", "low, high=2.0", "missing a required argument: 'low'"):
        scale()
    with refused("'clip'", "most", "unexpected keyword argument 'least'"):
        clip(most=1, least=0)
    with refused("'scale'", "low", "'low'"):
        lx.DataLoader(ROWS, transforms=[scale])


def test_parameters_are_given_by_keyword():
    with refused("'clip'", "by keyword", "most", r"`\.py`"):
        clip(3.0)
    with refused("'clip'", r"`\.py`"):
        clip(ROWS[0], most=3.0)


@pytest.mark.parametrize("value", ["high", None, [1, "a"], {"a": 1}, object()])
def test_a_parameter_that_is_no_number_is_refused(value):
    with refused("`most`", "a number, a boolean or an array"):
        clip(most=value)


def no_sample(rng, amount): ...
def no_arguments(): ...
def other_name(image, rng): ...
def late_rng(x, amount, rng): ...
def several(x, *amounts): ...
def anything(x, **amounts): ...


@pytest.mark.parametrize(
    "function", [no_sample, no_arguments, other_name, late_rng, several, anything]
)
def test_a_function_of_another_form_is_refused(function):
    with refused(f"'{function.__name__}'", "must"):
        lx.transform(function)


def test_a_function_that_takes_out_must_say_what_it_is():
    def widen(x, out): ...

    with refused("'widen' takes `out`", r"@transform\(out=...\)"):
        lx.transform(widen)
    with refused("'clip_to' must take `", "x, out, rng", "x, most"):

        @lx.transform(out=lambda spec, **parameters: spec)
        def clip_to(x, most): ...

    with refused("`out`", "function from the input spec"):
        lx.transform(out=lx.Spec((3,), np.float32))(widen)


def test_a_function_whose_result_would_be_lost_is_refused():
    def doubled(x):
        return x * 2

    def generated(x):
        yield x

    for function in (doubled, generated):
        with refused(f"'{function.__name__}'", "in place"):
            lx.transform(function)

    @lx.transform
    def returns_early(x):
        if x[0] > 1:
            return
        x[0] = 1

    assert run(returns_early)[:, 0].tolist() == [1, 3]


def test_an_out_that_gives_no_spec_is_refused():
    def fill(x, out, size): ...

    with refused("`out` of transform 'fill' must give a Spec", r"\(3,\)"):
        run(lx.transform(out=lambda spec, size: (size,))(fill)(size=3))
    with refused("`out` of transform 'fill'", "size", "unexpected keyword argument"):
        run(lx.transform(out=lambda spec: spec)(fill)(size=3))
    with refused("'fill'", "float16"):
        run(lx.transform(out=lambda spec, size: lx.Spec((size,), np.float16))(fill)(size=3))


def test_samples_that_compiled_code_does_not_calculate_with_are_refused():
    for rows in (
        ROWS.astype(np.float16),
        np.array([["a"], ["b"]]),
        np.array([["2020-01-01"]], "M8[D]"),
    ):
        with refused("'clip'", "does not calculate with"):
            run(clip(most=1), rows)
