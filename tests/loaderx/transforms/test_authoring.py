"""`@transform`: a plain function becomes an op, its parameters are values and not code, and mistakes are named."""

import functools
import random

import numba
import numpy as np
import pytest
from numpy import random as npr
from numpy.random import rand

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as its users call it
from loaderx.compiler import passes

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@lx.transform
def scale(x, rng, low, high=2.0, flip=False, weights=(1.0, 1.0, 1.0), shift=0):
    """Scale by a random factor."""
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
    """Return the passes of a run, with whether each was compiled or loaded."""
    made = []
    original = passes._compile

    def noted(*arguments):
        found = original(*arguments)
        made.append(found)
        return found

    monkeypatch.setattr(passes, "_compile", noted)
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
    assert scale.__doc__ == "Scale by a random factor."


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


def test_another_value_needs_no_other_code(compilations, empty_cache):
    values = [
        {"low": 1.0, "high": 1.0, "flip": False, "weights": [1.0, 1.0, 1.0], "shift": 0},
        {"low": 3.0, "high": 3.0, "flip": True, "weights": [3.0, 2.0, 1.0], "shift": 7},
        {"low": 0.5, "high": 0.5, "flip": False, "weights": np.arange(3.0)[::-1], "shift": -1},
    ]
    for parameters in values:
        factor = parameters["low"] * np.asarray(parameters["weights"])
        expected = (ROWS * factor + parameters["shift"]) * (-1 if parameters["flip"] else 1)
        np.testing.assert_allclose(run(scale(**parameters)), expected, rtol=1e-6)
    # As it is, and with every index checked.
    assert [cached for _, cached in compilations] == [False, False]
    assert len(list(empty_cache.rglob("*.nbc"))) == 2


def test_an_array_is_copied_when_the_op_is_made():
    weights = np.ones(3)
    op = scale(low=2.0, weights=weights)
    weights[:] = 0
    np.testing.assert_allclose(run(op), ROWS * 2)


def test_a_number_has_the_precision_of_the_sample():
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


def test_the_same_op_may_be_in_several_chains_and_twice_in_one():
    op = repeat(times=2)
    out = lx.pipeline([op, op])(ROWS)
    np.testing.assert_array_equal(out, np.tile(ROWS, 4))
    assert lx.pipeline([op])(ROWS[:, :1]).shape == (2, 2)


# --- mistakes ---------------------------------------------------------------------------------


def refused(*words):
    return pytest.raises(lx.ArgumentError, match=r"[\s\S]*".join(words))


def test_parameters_that_are_missing_or_unknown_are_refused():
    with refused("'scale'", "low, high=2.0", "missing a required (keyword-only )?argument: 'low'"):
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
def test_a_parameter_that_is_not_a_number_is_refused(value):
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


def test_a_function_that_fills_out_must_declare_it():
    def widen(x, out): ...

    with refused("'widen' has an argument `out`", r"@transform\(out=...\)"):
        lx.transform(widen)
    with refused("'clip_to' must accept `", "x, out, rng", "x, most"):

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

    with refused("`out` of transform 'fill' must return a Spec", r"\(3,\)"):
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


# --- mistakes that would compile --------------------------------------------------------------


@numba.njit
def put(values, place):
    values[place] = 1


def one_row_further(x, w):
    x[x.shape[0]] = 1


def far_before(x, w):
    x[-x.shape[0] - 1] = 1


def through_a_view(x, w):
    flat = x.reshape(-1)
    for k in range(flat.shape[0] + 1):
        flat[k] = 0


def in_what_it_calls(x, w):
    put(x, 20)


def of_a_parameter(x, w):
    x[0] = w[w.shape[0]]


BEYOND = [one_row_further, far_before, through_a_view, in_what_it_calls, of_a_parameter]


@pytest.mark.parametrize("function", BEYOND)
@pytest.mark.parametrize("around", ["alone", "in a chain", "in a policy"])
def test_an_index_outside_of_an_array_is_found_at_the_first_sample(function, around):
    op = lx.transform(function)(w=[1.0, 2.0])
    ops = {"alone": [op], "in a chain": [T.Cast("float64"), op, T.ToFloat()]}
    chain = ops.get(around, [T.Maybe(1.0, op)])
    wanted = f"'{function.__name__}' reads or writes outside of an array.*`.py"
    for make in (lx.pipeline(chain), lambda rows: lx.DataLoader(rows, transforms=chain)):
        with pytest.raises(lx.TransformError, match=wanted):
            make(ROWS)


def test_an_index_that_depends_on_draws_is_found_at_one_of_the_first_positions():
    @lx.transform
    def off_by_one(x, rng):
        x[rng.integers(0, x.shape[0] + 1)] = 1

    with pytest.raises(lx.TransformError, match="'off_by_one' reads or writes outside"):
        run(off_by_one)


def test_an_index_outside_of_out_is_found():
    @lx.transform(out=lambda spec: lx.Spec((2,), np.float32))
    def beyond(x, out):
        out[0] = out[1] = out[2] = 1

    with pytest.raises(lx.TransformError, match="'beyond' reads or writes outside"):
        run(beyond)


def test_indices_from_the_end_are_not_outside():
    @lx.transform
    def last_first(x):
        x[0] = x[-1] + x[-x.shape[0]]

    np.testing.assert_array_equal(run(last_first)[:, 0], ROWS[:, 0] + ROWS[:, 2])


def test_exceptions_of_a_transform_belong_to_their_step():
    @lx.transform
    def never(x):
        if x[0] < 10:
            raise ValueError("too small")

    loader = lx.DataLoader(ROWS, transforms=[never])
    with pytest.raises(ValueError, match="too small") as raised:
        loader.batch(0)
    assert "step 0" in "".join(raised.value.__notes__)


def test_an_out_that_is_left_unwritten_in_part_is_refused():
    @lx.transform(out=lambda spec: spec)
    def half(x, out):
        for i in range(x.shape[0] - 1):
            out[i] = x[i]

    @lx.transform(out=lambda spec: spec)
    def whole(x, out):
        out[:] = 0
        out[0] = x[0]

    with pytest.raises(lx.TransformError, match="'half' leaves a part of `out` unwritten"):
        run(half)
    for chain in ([half, T.Cast("float64")], [T.Maybe(0.5, half)], [T.Cast("float64"), half]):
        with pytest.raises(lx.TransformError, match="'half' leaves a part of `out` unwritten"):
            lx.DataLoader(ROWS, transforms=chain)
    assert run(whole)[:, 1:].max() == 0


def test_memory_that_was_never_written_is_noticed():
    @lx.transform
    def accumulates(x, w):
        flat = w.reshape(-1)
        flat[0] += 1
        x[0] = flat[0]

    with pytest.raises(
        lx.TransformError, match=r"read-only|two results|parameter or a global cannot be written"
    ):
        run(accumulates(w=np.zeros((2, 2))))


def test_an_array_parameter_cannot_be_written():
    @lx.transform
    def counts(x, w):
        w[0] += 1
        x[0] = w[0]

    with pytest.raises(
        lx.TransformError, match=r"(?s)'counts'.*parameter or a global cannot be written.*copy"
    ):
        run(counts(w=[0.0, 0.0]))

    @lx.transform
    def doubles(x, w):
        w *= 2
        x[0] = w[0]

    with refused("'doubles' changes its parameter `w`", r"`own = w\.copy\(\)`"):
        doubles(w=[1.0, 2.0])
    assert repr(doubles(w=1.0)) == "doubles(w=1.0)"

    @lx.transform
    def counts_in_a_copy(x, w):
        own = w.copy()
        own[0] += 1
        x[0] = own[0]

    assert run(counts_in_a_copy(w=[5.0, 0.0]))[:, 0].tolist() == [6, 6]


def assigned(x):
    x = x * 2


def looped(x):
    for x in range(3):  # noqa: B007
        pass


def unpacked(x):
    x, y = 1, 2  # noqa: F841


@pytest.mark.parametrize("function", [assigned, looped, unpacked])
def test_a_new_value_for_the_name_of_the_sample_is_refused(function):
    with refused(f"'{function.__name__}' assigns to the name `x`", r"`x\[:\] = ...`", r"`x \*= 2`"):
        lx.transform(function)


def test_a_new_value_for_the_name_of_out_is_refused():
    def doubled(x, out):
        out = x * 2  # noqa: F841

    with refused("'doubled' assigns to the name `out`"):
        lx.transform(out=lambda spec: spec)(doubled)


def test_whole_array_statements_in_place_do_not_rebind_a_name():
    @lx.transform
    def doubled(x):
        x *= 2
        x[:] += 1

    np.testing.assert_array_equal(run(doubled), ROWS * 2 + 1)


@numba.njit
def noisy():
    return np.random.rand()  # noqa: NPY002


@numba.njit
def noisier():
    return noisy() + 1


def by_numpy(x):
    x[0] = np.random.rand()  # noqa: NPY002


def by_its_module(x):
    x[0] = npr.uniform(0, 1)  # noqa: NPY002


def by_its_function(x):
    x[0] = rand()  # noqa: NPY002


def by_python(x):
    x[0] = random.random()


def by_what_it_calls(x):
    x[0] = noisier()


@pytest.mark.parametrize(
    "function", [by_numpy, by_its_module, by_its_function, by_python, by_what_it_calls]
)
def test_draws_of_a_global_generator_are_refused(function):
    with refused(f"'{function.__name__}' uses `", "rng", r"uniform\(low, high\)"):
        lx.transform(function)


def test_draws_of_a_function_that_is_defined_later_are_refused_where_the_op_is_made():
    def early(x):
        x[0] = late()

    op = lx.transform(early)

    @numba.njit
    def late():
        return np.random.rand()  # noqa: NPY002

    with refused("'early' uses `np.random`"):
        op()


def test_a_draw_that_does_not_exist_is_refused_with_all_that_do():
    def counted(x, rng):
        x[0] = rng.poisson(3.0)

    with refused(r"`rng\.poisson`", r"choice\(a\)", r"permutation\(x\)", r"shuffle\(x\)"):
        lx.transform(counted)


class Callable:
    def method(self, x): ...

    def __call__(self, x): ...


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (functools.partial(no_sample, 2), "its arguments as parameters"),
        (Callable().method, "reads of `self` parameters"),
        (Callable(), "Only code in Python"),
        (Callable, "Only code in Python"),
        (max, "Only code in Python"),
        (np.sqrt, "Only code in Python"),
        (lambda x: None, "lambda"),
        (clip, "a transform already"),
        ("clip", "Only code in Python"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_functions_written_with_def_are_accepted(given, hint):
    with refused("`@transform` compiles functions that are written with `def`", hint):
        lx.transform(given)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, np.array([2**64])])
def test_integers_that_compiled_code_has_not_are_refused(value):
    with refused("`most`", "must be"):
        clip(most=value)


def test_a_function_may_have_any_name():
    def op(x):
        x[0] = 7

    for name in ("my op", "3d", "ünï", "class"):
        op.__name__ = name
        assert run(lx.transform(op))[:, 0].tolist() == [7, 7]
