"""The generator is Threefry and SplitMix64 as published, and its numbers are uniform and independent."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core import config
from scipy import stats

from loaderx.kernels import random
from tests import reference

# A draw costs 0.1 ms in plain Python.
SAMPLES = 200 if config.DISABLE_JIT else 20_000
words = st.integers(0, 2**32 - 1)
double_words = st.integers(0, 2**64 - 1)


def pack(first, second):
    return np.uint64(first | second << 32)


# Random123, tests/kat_vectors: "threefry2x32 20", counter, key, result.
PUBLISHED = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), PUBLISHED)
def test_threefry_gives_the_published_answers(counter, key, result):
    assert random.threefry(pack(*key), pack(*counter)) == pack(*result)
    assert reference.threefry(pack(*key), pack(*counter)) == pack(*result)


@given(key=double_words, counter=double_words)
def test_threefry_equals_its_twin(key, counter):
    assert random.threefry(np.uint64(key), np.uint64(counter)) == reference.threefry(key, counter)


@pytest.mark.parametrize("key", [(0, 0), (1, 2), (0xDEADBEEF, 0xFFFFFFFF)])
@pytest.mark.parametrize("number", [0, 1, 12345, 2**32 - 1])
def test_folding_is_what_jax_does_to_its_keys(key, number):
    # JAX puts the number into the second word of the counter.
    folded = jax.random.fold_in(
        jax.random.wrap_key_data(np.array(key, np.uint32), impl="threefry2x32"), np.uint32(number)
    )
    first, second = (int(word) for word in jax.random.key_data(folded))
    assert random.fold(pack(*key), pack(0, number)) == pack(first, second)


def unfold(key, folded):
    """Return the number that `fold` made this key from."""
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    keys = [key % 2**32, key >> 32]
    keys.append(0x1BD11BDA ^ keys[0] ^ keys[1])
    x0, x1 = folded % 2**32, folded >> 32
    for number in reversed(range(20)):
        if number % 4 == 3:
            injection = (number + 1) // 4
            x0 = (x0 - keys[injection % 3]) % 2**32
            x1 = (x1 - keys[(injection + 1) % 3] - injection) % 2**32
        x1 ^= x0
        rotation = rotations[number % 8]
        x1 = x1 >> rotation | x1 << (32 - rotation) & 0xFFFFFFFF
        x0 = (x0 - x1) % 2**32
    return (x0 - keys[0]) % 2**32 | (x1 - keys[1]) % 2**32 << 32


@given(key=double_words, number=double_words)
def test_different_numbers_never_fold_into_the_same_key(key, number):
    folded = int(random.fold(np.uint64(key), np.uint64(number)))
    assert folded == reference.fold(key, number)
    assert unfold(key, folded) == number


# The first outputs of the authors' splitmix64.c.
@pytest.mark.parametrize(
    ("state", "draws"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_splitmix_gives_the_published_answers(state, draws):
    for number, expected in enumerate(draws):
        assert random.draw_bits(np.uint64(state), number) == expected
        assert reference.draw_bits(state, number) == expected


@given(state=double_words, number=st.integers(0, 1000))
def test_a_draw_equals_its_twin(state, number):
    assert random.draw_bits(np.uint64(state), number) == reference.draw_bits(state, number)


@given(bits=double_words)
def test_mixed_bits_equal_their_twin(bits):
    with np.errstate(over="ignore"):
        assert random.mix_bits(np.uint64(bits)) == reference.mix_bits(bits)


@given(bits=double_words)
def test_a_uniform_number_equals_its_twin(bits):
    assert random.as_uniform(np.uint64(bits)) == reference.as_uniform(bits)


def test_uniform_numbers_begin_at_zero_and_end_before_one():
    assert random.as_uniform(np.uint64(0)) == 0.0
    assert random.as_uniform(np.uint64(2**64 - 1)) == 1 - 2**-53


def test_bits_become_a_float_as_in_numpy():
    bits = np.random.PCG64(7).random_raw(100)
    floats = np.random.Generator(np.random.PCG64(7)).random(100)
    assert [random.as_uniform(value) for value in bits] == floats.tolist()


def uniforms(key, positions, draws):
    out = np.empty((len(positions), draws))
    random.uniforms(np.uint64(key), np.asarray(positions, np.int64), out)
    return out


@pytest.mark.parametrize("draws", [0, 1, 5])
@pytest.mark.parametrize("key", [0, 2**63 + 5, 2**64 - 1])
def test_uniforms_equal_their_twin(key, draws):
    positions = np.array([0, 1, 2, 2**31, 2**32, 2**40 + 3, 2**63 - 1])
    expected = np.empty((len(positions), draws))
    reference.uniforms(key, positions, expected)
    np.testing.assert_array_equal(uniforms(key, positions, draws), expected)


def test_the_draws_of_a_sample_do_not_depend_on_the_others_in_its_batch():
    whole = uniforms(3, range(20), 4)
    np.testing.assert_array_equal(uniforms(3, [17], 2), whole[17:18, :2])
    np.testing.assert_array_equal(uniforms(3, [5, 17, 5], 4), whole[[5, 17, 5]])


STREAMS = {
    "draw 0 of all samples": lambda: uniforms(0, range(SAMPLES), 1)[:, 0],
    "draw 3 of all samples": lambda: uniforms(0, range(SAMPLES), 4)[:, 3],
    "all draws of sample 0": lambda: uniforms(0, [0], SAMPLES)[0],
    "all draws of sample 2**40": lambda: uniforms(0, [2**40], SAMPLES)[0],
    "draw 0 of sample 0 under all keys": lambda: np.array(
        [uniforms(key, [0], 1)[0, 0] for key in range(SAMPLES)]
    ),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_numbers_are_uniform(stream):
    assert stats.kstest(STREAMS[stream](), "uniform").pvalue > 0.001


def correlation(first, second):
    """Return the correlation in standard deviations of that of independent numbers."""
    return np.corrcoef(first, second)[0, 1] * np.sqrt(len(first))


def test_neighbouring_samples_draws_and_keys_are_unrelated():
    table = uniforms(0, range(SAMPLES), 3)
    other = uniforms(1, range(SAMPLES), 3)
    assert abs(correlation(table[1:, 0], table[:-1, 0])) < 4
    assert abs(correlation(table[:, 0], table[:, 1])) < 4
    # SplitMix64 is a counter: a sample would repeat its neighbour if their keys were one step apart.
    assert abs(correlation(table[1:, 0], table[:-1, 1])) < 4
    assert abs(correlation(table[:, 0], other[:, 0])) < 4
    assert abs(correlation(table[1:, 0], other[:-1, 0])) < 4
