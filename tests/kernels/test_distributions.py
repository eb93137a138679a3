"""`rng` draws what NumPy's Generator draws, from a stream of its own: the same in compiled code and in plain Python."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config
from scipy import stats

from loaderx.kernels.compilation import jitable, kernel
from loaderx.kernels.distributions import METHODS as LISTED
from loaderx.kernels.distributions import ZIGGURAT_END, Draws, start_draws
from loaderx.kernels.random import fold
from tests import reference

# A draw costs 10 us in plain Python.
SAMPLES = 1000 if config.DISABLE_JIT else 20_000
NEIGHBOURS = 6000 if config.DISABLE_JIT else 20_000
ARRANGED = 1200 if config.DISABLE_JIT else 2000
COMPARED = 50 if config.DISABLE_JIT else 300
double_words = st.integers(0, 2**64 - 1)


@jitable
def draw(rng, method, first, second):
    """Draw by one source for compiled code, plain Python and NumPy.

    Methods are numbers instead of names, so that one compilation serves all.
    """
    if method == 0:
        return rng.random()
    if method == 1:
        return rng.uniform(first, second)
    if method == 2:
        return rng.uniform(high=second, low=first)
    if method == 3:
        return rng.uniform()
    if method == 4:
        return float(rng.integers(int(first)))
    if method == 5:
        return float(rng.integers(int(first), int(second)))
    if method == 6:
        return float(rng.integers(high=int(second), low=int(first)))
    if method == 7:
        return rng.standard_normal()
    if method == 8:
        return rng.normal(first, second)
    if method == 9:
        return rng.normal(scale=second, loc=first)
    if method == 10:
        return rng.normal()
    if method == 11:
        return rng.standard_exponential()
    if method == 12:
        return rng.exponential(second)
    if method == 13:
        return rng.exponential(scale=second)
    if method == 14:
        return rng.exponential()
    if method == 15:
        return rng.standard_gamma(first)
    if method == 16:
        return rng.standard_gamma(shape=first)
    if method == 17:
        return rng.beta(first, second)
    return rng.beta(b=second, a=first)


METHODS = {
    "random": 0,
    "uniform": 1,
    "uniform by name": 2,
    "uniform by default": 3,
    "integers below": 4,
    "integers": 5,
    "integers by name": 6,
    "standard_normal": 7,
    "normal": 8,
    "normal by name": 9,
    "normal by default": 10,
    "standard_exponential": 11,
    "exponential": 12,
    "exponential by name": 13,
    "exponential by default": 14,
    "standard_gamma": 15,
    "standard_gamma by name": 16,
    "beta": 17,
    "beta by name": 18,
}


@kernel
def fill(keys, method, first, second, out):
    for i in range(out.shape[0]):
        rng = start_draws(keys[i])
        for j in range(out.shape[1]):
            out[i, j] = draw(rng, method, first, second)


def compiled(method, first=0.0, second=1.0, state=1, count=SAMPLES):
    """Return the first draws of one sample, by compiled code."""
    out = np.empty((1, count))
    fill(np.array([state], np.uint64), METHODS[method], float(first), float(second), out)
    return out[0]


def drawn(rng, method, first=0.0, second=1.0, count=SAMPLES):
    """Return the first draws of any generator, one by one."""
    return np.array([draw(rng, METHODS[method], first, second) for _ in range(count)])


CASES = [
    ("random", 0, 1),
    ("uniform", -3, 5),
    ("uniform by name", 10, 10.5),
    ("uniform by default", 0, 1),
    ("integers below", 7, 0),
    ("integers", -3, 12),
    ("integers by name", 2, 5),
    ("standard_normal", 0, 1),
    ("normal", 5, 0.25),
    ("normal by name", -1, 3),
    ("normal by default", 0, 1),
    ("standard_exponential", 0, 1),
    ("exponential", 0, 2.5),
    ("exponential by name", 0, 1e-3),
    ("exponential by default", 0, 1),
    ("standard_gamma", 0.2, 0),
    ("standard_gamma", 1, 0),
    ("standard_gamma by name", 2 / 3, 0),
    ("standard_gamma", 50, 0),
    ("beta", 0.2, 0.2),
    ("beta", 1, 1),
    ("beta", 2 / 3, 2 / 3),
    ("beta", 0.1, 0.9),
    ("beta", 0.5, 3),
    ("beta by name", 20, 4),
    ("beta", 1e-3, 1e-3),
]
continuous = [case for case in CASES if "integers" not in case[0]]


@pytest.mark.parametrize(("method", "first", "second"), CASES)
def test_compiled_draws_are_those_of_plain_python(method, first, second):
    plain = drawn(Draws(7), method, first, second, count=COMPARED)
    np.testing.assert_array_equal(compiled(method, first, second, state=7, count=COMPARED), plain)


@settings(deadline=None)  # the first example waits for the compiler
@given(state=double_words)
def test_every_key_begins_a_stream_that_plain_python_has_too(state):
    for method in ("integers", "normal", "beta"):
        plain = drawn(Draws(state), method, 2.0, 3.0, count=3)
        np.testing.assert_array_equal(compiled(method, 2, 3, state=state, count=3), plain)


@pytest.mark.parametrize(("method", "first", "second"), continuous)
def test_draws_are_distributed_as_those_of_numpy(method, first, second):
    ours = compiled(method, first, second)
    numpys = drawn(np.random.default_rng(1), method, first, second)
    assert not np.isnan(ours).any()
    assert stats.ks_2samp(ours, numpys).pvalue > 0.001


DISTRIBUTIONS = {
    "uniform": lambda low, high: stats.uniform(low, high - low),
    "normal": lambda loc, scale: stats.norm(loc, scale),
    "exponential": lambda _, scale: stats.expon(scale=scale),
    "standard_gamma": lambda shape, _: stats.gamma(shape),
    "beta": stats.beta,
}


@pytest.mark.parametrize(
    ("method", "first", "second"),
    # The last one is 0 or 1 for nearly all of the float64 draws, so the distribution is not continuous any more.
    [case for case in continuous[:-1] if case[0] in DISTRIBUTIONS],
)
def test_draws_have_the_distribution_of_their_name(method, first, second):
    distribution = DISTRIBUTIONS[method](first, second)
    assert stats.kstest(compiled(method, first, second, state=2), distribution.cdf).pvalue > 0.001


def test_the_comparison_tells_neighbouring_parameters_apart():
    wrong = {"normal": (0, 1.1), "standard_gamma": (2.2, 0), "beta": (0.25, 0.2)}
    right = {"normal": (0, 1.0), "standard_gamma": (2.0, 0), "beta": (0.20, 0.2)}
    for method in wrong:
        ours = compiled(method, *right[method], count=NEIGHBOURS)
        other = DISTRIBUTIONS[method](*wrong[method])
        assert stats.kstest(ours, other.cdf).pvalue < 0.001


# Far from the middle other code draws the normal numbers: the base of the ziggurat and its tail.
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="needs a million draws")
@pytest.mark.parametrize("beyond", [1.0, 2.0, 3.0, 3.442619855899, 4.0])
def test_the_tails_of_the_normal_distribution_are_as_thick_as_they_should_be(beyond):
    values = compiled("standard_normal", count=2_000_000)
    for count, share in (
        (np.count_nonzero(values > beyond), stats.norm.sf(beyond)),
        (np.count_nonzero(values < -beyond), stats.norm.sf(beyond)),
    ):
        assert stats.binomtest(count, len(values), share).pvalue > 0.001


@pytest.mark.parametrize(("state", "sign"), [(62_673, -1), (87_886, 1)])
def test_a_point_of_the_tail_that_is_above_the_density_is_drawn_again(state, sign):
    logs = [-math.log(1 - reference.as_uniform(reference.draw_bits(state, i))) for i in range(1, 5)]
    first, second = logs[0] / ZIGGURAT_END, logs[2] / ZIGGURAT_END
    assert 2 * logs[1] < first**2
    assert 2 * logs[3] >= second**2
    expected = sign * (ZIGGURAT_END + second)
    assert Draws(state).standard_normal() == pytest.approx(expected, rel=1e-12)
    assert compiled("standard_normal", state=state, count=1)[0] == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("first", [1e-3, 1e-12, 1e-90, 1e-110, 1e-300, 5e-324])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_beta_of_parameters_near_zero_is_zero_or_one_and_never_nan(first, ratio):
    second = first * ratio if first * ratio > 0 else first
    values = compiled("beta", first, second, count=1000)
    assert np.all((values >= 0) & (values <= 1))
    # Zero or one, except for a few in a thousand of the largest parameter here.
    assert np.mean(np.minimum(values, 1 - values) < 1e-3) > 0.98
    ones = np.count_nonzero(values > 0.5)
    assert stats.binomtest(ones, len(values), first / (first + second)).pvalue > 0.001


@pytest.mark.parametrize(("first", "second"), [(1e-3, 5.0), (5.0, 1e-3), (1e-200, 1.0), (1e6, 1e6)])
def test_beta_of_extreme_parameters_stays_within_zero_and_one(first, second):
    values = compiled("beta", first, second, count=1000)
    assert np.all((values >= 0) & (values <= 1))
    assert abs(values.mean() - first / (first + second)) < 0.01


@pytest.mark.parametrize("shape", [0.0, 1e-300, 1e-3, 1e12])
def test_gamma_of_extreme_shapes_is_finite(shape):
    values = compiled("standard_gamma", shape, count=1000)
    assert np.all(np.isfinite(values) & (values >= 0))
    assert abs(values.mean() - shape) <= 0.1 + 0.01 * shape


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 7), (-3, 12), (5, 1005)])
def test_integers_are_all_equally_likely(low, high):
    values = compiled("integers", low, high)
    assert np.all(values == np.round(values))
    assert low <= values.min()
    assert values.max() < high
    counts = np.bincount((values - low).astype(int), minlength=high - low)
    assert stats.chisquare(counts).pvalue > 0.001


def test_a_range_of_one_integer_is_that_integer():
    assert set(compiled("integers", 100, 101)) == {100.0}


def test_integers_below_a_number_begin_at_zero():
    values = compiled("integers below", 3)
    assert set(values) == {0.0, 1.0, 2.0}
    np.testing.assert_array_equal(values, compiled("integers", 0, 3))


@pytest.mark.parametrize("high", [3 * 2**30, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**50])
def test_large_ranges_have_no_bias(high):
    values = compiled("integers", 0, high)
    assert np.all((values >= 0) & (values < high))
    assert stats.kstest(values / high, "uniform").pvalue > 0.001
    # Words reduced to the range without rejection would favour one remainder.
    counts = np.bincount((values % 3).astype(int), minlength=3)
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize(
    ("low", "high"), [(-(2**63), 2**63 - 1), (0, 2**63 - 1), (-(2**63), 0), (2**63 - 2, 2**63 - 1)]
)
def test_ranges_of_64_bits_do_not_overflow(low, high):
    values = [int(Draws(state).integers(low, high)) for state in range(200)]
    assert all(low <= value < high for value in values)
    assert high - low == 1 or max(values) - min(values) > (high - low) * 0.9


@pytest.mark.parametrize(
    ("method", "first", "second", "message"),
    [
        ("integers", 5, 5, "low >= high"),
        ("integers", 5, 4, "low >= high"),
        ("integers below", 0, 0, "high <= 0"),
        ("integers below", -3, 0, "high <= 0"),
        ("standard_gamma", -1.0, 0, "shape"),
        ("standard_gamma", math.nan, 0, "shape"),
        ("standard_gamma", math.inf, 0, "shape"),
        ("beta", 0.0, 1.0, "a and b must be above 0"),
        ("beta", 1.0, -1.0, "a and b must be above 0"),
        ("beta", math.nan, 1.0, "a and b must be above 0"),
    ],
)
def test_invalid_parameters_are_an_error_and_not_an_endless_loop(method, first, second, message):
    with pytest.raises(ValueError, match=message):
        compiled(method, first, second, count=1)
    with pytest.raises(ValueError, match=message):
        drawn(Draws(0), method, first, second, count=1)


@pytest.mark.parametrize(
    "name", [name for name in vars(Draws) if not name.startswith("_") and name != "state"]
)
def test_parameters_have_the_names_order_and_defaults_of_numpy(name):
    """Compare with the first line of NumPy's documentation, because the methods have no signature."""
    ours = inspect.signature(getattr(Draws, name)).parameters
    first_line = getattr(np.random.Generator, name).__doc__.strip().splitlines()[0]
    theirs = first_line[first_line.index("(") + 1 : first_line.rindex(")")].split(", ")
    for (own, parameter), their in zip(list(ours.items())[1:], theirs, strict=False):
        their_name, _, default = their.partition("=")
        assert own == their_name
        if parameter.default is inspect.Parameter.empty:
            assert default == ""
        else:
            assert str(parameter.default) == default


def test_the_same_source_runs_under_numpy():
    for method, first, second in CASES:
        values = drawn(np.random.default_rng(0), method, first, second, count=5)
        assert values.shape == (5,)
        assert np.all(np.isfinite(values))


def test_the_first_draw_is_the_published_output_of_splitmix():
    assert Draws(0).random() == (0xE220A8397B1DCDAF >> 11) / 2**53
    assert compiled("random", state=0, count=1)[0] == (0xE220A8397B1DCDAF >> 11) / 2**53


@settings(deadline=None)  # the first example waits for the compiler
@given(state=double_words)
def test_uniform_draws_are_the_words_of_the_stream_in_order(state):
    rng = Draws(state)
    expected = [reference.as_uniform(reference.draw_bits(state, number)) for number in range(4)]
    assert [rng.random() for _ in range(4)] == expected
    np.testing.assert_array_equal(compiled("random", state=state, count=4), expected)


def draws_at(positions, method, first, second, count=6):
    keys = np.array([fold(np.uint64(3), np.uint64(position)) for position in positions], np.uint64)
    out = np.empty((len(positions), count))
    fill(keys, METHODS[method], first, second, out)
    return out


@pytest.mark.parametrize("method", ["random", "integers", "normal", "beta"])
def test_the_draws_of_a_sample_depend_on_its_position_alone(method):
    whole = draws_at(range(40), method, 0.5, 9.0)
    np.testing.assert_array_equal(draws_at([17], method, 0.5, 9.0), whole[17:18])
    np.testing.assert_array_equal(draws_at([30, 2, 30], method, 0.5, 9.0), whole[[30, 2, 30]])
    assert len(np.unique(whole[:, 0])) > 5


@kernel
def scaled_uniform(state, low, high, value):
    rng = start_draws(state)
    return value * rng.uniform(low, high) + rng.normal(low, high)


def test_narrow_parameters_give_the_same_numbers_in_both():
    low, high, value = np.float32(-0.1), np.float32(0.1), np.float32(3)
    rng = Draws(5)
    plain = value * rng.uniform(low, high) + rng.normal(low, high)
    assert scaled_uniform(np.uint64(5), low, high, value) == plain
    assert plain.dtype == np.float64


# choice, permutation, shuffle

TABLE = np.arange(6.0).reshape(3, 2)


@jitable
def arrange(rng, row):
    """Rearrange by one source for compiled code, plain Python and NumPy."""
    row[0] = rng.choice(7)
    row[1] = rng.choice(TABLE[:, 0])
    row[2] = rng.choice(TABLE)[1]
    numbers, rows = np.arange(5.0), TABLE.copy()
    rng.shuffle(numbers)
    rng.shuffle(rows)
    row[3:8] = numbers
    row[8:14] = rows.reshape(-1)
    row[14:18] = rng.permutation(4)
    row[18:21] = rng.permutation(TABLE[:, 1])
    row[21:27] = rng.permutation(TABLE).reshape(-1)


@kernel
def arrange_all(state, out):
    rng = start_draws(np.uint64(state))
    for k in range(out.shape[0]):
        arrange(rng, out[k])


def arranged(rng, count):
    out = np.empty((count, 27))
    for row in out:
        arrange(rng, row)
    return out


def test_arrangements_are_the_same_in_compiled_code_and_in_python():
    out = np.empty((50, 27))
    arrange_all(3, out)
    np.testing.assert_array_equal(out, arranged(Draws(3), 50))
    assert not np.array_equal(out, arranged(Draws(4), 50))


def test_arrangements_are_those_of_numpy_in_kind_and_all_as_likely():
    ours, theirs = arranged(Draws(1), ARRANGED), arranged(np.random.default_rng(0), ARRANGED)
    for columns in (
        [0],
        [1],
        [2],
        [8, 9, 10, 11, 12, 13],
        [14, 15, 16, 17],
        [18, 19, 20],
        range(21, 27),
    ):
        kinds, counts = np.unique(ours[:, list(columns)], axis=0, return_counts=True)
        np.testing.assert_array_equal(kinds, np.unique(theirs[:, list(columns)], axis=0))
        assert stats.chisquare(counts).pvalue > 1e-4
    assert len(np.unique(ours[:, 3:8], axis=0)) == 120


def test_permutation_leaves_its_argument_as_it_is_and_shuffle_returns_nothing():
    values = np.arange(20)
    mixed = Draws(0).permutation(values)
    assert values.tolist() == sorted(mixed)
    assert mixed.tolist() != values.tolist()
    assert Draws(0).shuffle(mixed) is None
    assert Draws(0).choice((4, 4)) == 4


@pytest.mark.parametrize("a", [0, -1, np.zeros(0), ()])
def test_nothing_is_chosen_from_nothing(a):
    with pytest.raises(ValueError, match="rng"):
        Draws(0).choice(a)


def test_every_method_is_listed():
    listed = {signature.partition("(")[0] for signature in LISTED}
    assert listed == {name for name in vars(Draws) if not name.startswith("_")}
    assert listed < set(dir(np.random.default_rng()))
