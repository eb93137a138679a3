"""TokenDataset: windows of token files as nanoGPT's get_batch cuts them, and the same windows one token further."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx import ArgumentError, DataError, DataLoader, Spec
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources import AddressableSource
from loaderx.sources.tokens import TokenDataset


def tokens_of(count, dtype=np.uint16, seed=0):
    return np.random.default_rng(seed).integers(0, 100, count).astype(dtype)


def get_batch(path, starts, length):
    """Twin: nanoGPT's get_batch, with given starts."""
    data = np.memmap(path, dtype=np.uint16, mode="r")
    return {
        "inputs": np.stack([data[s : s + length] for s in starts]),
        "targets": np.stack([data[s + 1 : s + 1 + length] for s in starts]),
    }


def assert_same(batch, expected):
    assert list(batch) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array)
        assert batch[name].dtype == array.dtype


@pytest.fixture
def raw(tmp_path):
    def write(tokens, name="train.bin", before=b""):
        path = tmp_path / name
        path.write_bytes(before + tokens.tobytes())
        return path

    return write


@pytest.mark.parametrize("stride", [None, 1, 5, 40])
def test_a_shuffled_loader_gives_the_windows_of_get_batch(raw, stride):
    path = raw(tokens_of(1000))
    source = TokenDataset(path, 32, stride=stride, dtype=np.uint16)
    assert source.spec == {"inputs": Spec((32,), np.uint16), "targets": Spec((32,), np.uint16)}
    loader = DataLoader(source, batch_size=8, seed=3, output="numpy")
    seen = set()
    for step in range(5):
        starts = loader.indices(step) * (stride or 32)
        assert_same(loader.batch(step), get_batch(path, starts, 32))
        seen.update(starts.tolist())
    assert len(seen) == min(len(source), 40)


def test_batches_arrive_in_jax_in_the_dtype_of_the_file(raw):
    path = raw(tokens_of(1000))
    loader = DataLoader(TokenDataset(path, 32, dtype="uint16"), batch_size=8)
    batch = next(iter(loader))
    assert_same(
        {name: np.asarray(array) for name, array in batch.items()},
        get_batch(path, loader.indices(0) * 32, 32),
    )


@settings(deadline=None, max_examples=100)
@given(count=st.integers(2, 60), length=st.integers(1, 59), stride=st.integers(1, 70))
def test_windows_are_all_that_fit_with_a_token_after_them(count, length, stride):
    tokens = np.arange(count)
    if count < length + 1:
        with pytest.raises(DataError, match=f"the array holds {count} tokens"):
            TokenDataset(tokens, length, stride=stride)
        return
    source = TokenDataset(tokens, length, stride=stride)
    assert len(source) == (count - 1 - length) // stride + 1
    starts = np.array([start for start in range(0, count, stride) if start + length < count])
    assert_same(
        source[:],
        {"inputs": starts[:, None] + np.arange(length), "targets": starts[:, None] + np.arange(1, length + 1)},
    )  # fmt: skip


def test_windows_never_go_from_one_file_to_the_next(raw, tmp_path):
    parts = [tokens_of(count, seed=count) for count in (100, 33, 65)]
    np.save(tmp_path / "second.npy", parts[1])
    data = [raw(parts[0]), tmp_path / "second.npy", parts[2]]
    source = TokenDataset(data, 32, dtype=np.uint16)
    alone = [TokenDataset(part, 32)[:] for part in parts]
    assert [len(rows["inputs"]) for rows in alone] == [3, 1, 2]
    expected = {name: np.concatenate([rows[name] for rows in alone]) for name in alone[0]}
    assert_same(source[:], expected)
    loader = DataLoader(source, batch_size=4, output="numpy", seed=1)
    rows = loader.indices(2)
    assert_same(loader.batch(2), {name: array[rows] for name, array in expected.items()})


def test_more_files_than_are_looked_at_every_time(raw):
    parts = [tokens_of(50, seed=number) for number in range(20)]
    paths = [raw(part, f"{number}.bin") for number, part in enumerate(parts)]
    source = TokenDataset(paths, 16, dtype="uint16")
    expected = np.concatenate([part[1:49].reshape(3, 16) for part in parts])
    rows = np.random.default_rng(0).permutation(60)
    np.testing.assert_array_equal(source[rows]["targets"], expected[rows])


def test_a_stream_resumes_where_it_stopped(raw):
    source = TokenDataset(raw(tokens_of(1000)), 32, stride=1, dtype=np.uint16)
    loader = DataLoader(source, batch_size=16, seed=5, output="numpy")
    with iter(loader) as first:
        batches = [next(first) for _ in range(7)]
        state = first.get_state()
        following = [next(first) for _ in range(3)]
    with iter(DataLoader(source, batch_size=16, seed=5, output="numpy", workers=1)) as second:
        second.set_state(state)
        for batch in following:
            assert_same(next(second), batch)
    assert_same(loader.batch(4), batches[4])


def test_an_npy_file_says_its_dtype_also_under_another_name(tmp_path):
    tokens = tokens_of(100, np.int32)
    np.save(tmp_path / "tokens.npy", tokens)
    (tmp_path / "tokens.npy").rename(tmp_path / "tokens.bin")
    source = TokenDataset(tmp_path / "tokens.bin", 9)
    np.testing.assert_array_equal(source[2]["targets"], tokens[19:28])
    assert source.spec["inputs"] == Spec((9,), np.int32)


def test_the_header_of_a_raw_file_can_be_left_out(raw):
    tokens = tokens_of(100)
    source = TokenDataset(raw(tokens, before=bytes(1024)), 9, dtype=np.uint16, offset=1024)
    np.testing.assert_array_equal(source[:]["inputs"].reshape(-1), tokens[:99])


def test_tokens_of_any_byte_order_and_stride_are_read():
    for tokens in (tokens_of(100, ">u2"), tokens_of(200)[::2], tokens_of(100)[::-1]):
        source = TokenDataset(tokens, 9, stride=2)
        np.testing.assert_array_equal(source[7]["inputs"], tokens[14:23])
        assert source.spec["inputs"] == Spec((9,), np.uint16)


def test_nothing_is_copied_before_it_is_read():
    tokens = np.zeros(1000, np.uint16)
    source = TokenDataset(tokens, 10)
    tokens[:] = np.arange(1000)
    np.testing.assert_array_equal(source[3]["inputs"], np.arange(30, 40))
    assert all(isinstance(field, AddressableSource) for field in source.fields.values())


def test_windows_are_selected_split_and_added_like_other_rows(raw):
    tokens = tokens_of(641)
    source = TokenDataset(raw(tokens), 32, dtype=np.uint16)
    inputs = tokens[:640].reshape(20, 32)
    np.testing.assert_array_equal(source.select(range(10, 20))[:]["inputs"], inputs[10:])
    np.testing.assert_array_equal((source + source)[25]["inputs"], inputs[5])
    parts = [part[:]["inputs"] for part in source.split(0.7)]
    assert [len(part) for part in parts] == [14, 6]
    assert sorted(np.concatenate(parts).tolist()) == sorted(inputs.tolist())


def test_inputs_and_targets_are_cast_together(raw):
    path = raw(tokens_of(500))
    source = TokenDataset(path, 32, dtype=np.uint16)
    transforms = {("inputs", "targets"): [T.Cast("int32")]}
    loader = DataLoader(source, batch_size=4, transforms=transforms, output="numpy")
    expected = get_batch(path, loader.indices(0) * 32, 32)
    assert_same(loader.batch(0), {name: rows.astype(np.int32) for name, rows in expected.items()})


def test_a_file_that_shrinks_is_an_error_and_not_the_end_of_the_process(raw):
    path = raw(tokens_of(5000))
    source = TokenDataset(path, 32, dtype=np.uint16)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataError, match="shrank from 10000 to 100 bytes"):
        source[0]


TOKENS = tokens_of(100)
REFUSED = [
    (lambda: TokenDataset(TOKENS, 0), ArgumentError, "`length` (=0) must be an integer of at least 1."),
    (lambda: TokenDataset(TOKENS, 2.5), ArgumentError, "`length` (=2.5) must be an integer"),
    (lambda: TokenDataset(TOKENS, True), ArgumentError, "`length` (=True) must be an integer"),
    (lambda: TokenDataset(TOKENS, 5, stride=0), ArgumentError, "`stride` (=0) must be an integer of at least 1."),
    (lambda: TokenDataset(TOKENS, 100), DataError,
     "the array holds 100 tokens; a window of `length` (=100) and the token after it need 101."),
    (lambda: TokenDataset(TOKENS[:0], 1), DataError, "the array holds 0 tokens"),
    (lambda: TokenDataset([], 5), ArgumentError, "`data` is empty"),
    (lambda: TokenDataset(None, 5), ArgumentError,
     "`data` (=None) must be a path or a NumPy array, or a list of these."),
    (lambda: TokenDataset(TOKENS, 5, dtype="float32"), ArgumentError, "`dtype` (='float32') must be an integer dtype."),
    (lambda: TokenDataset(TOKENS, 5, dtype="int32"), ArgumentError,
     "`dtype` (='int32') is not the dtype of the array, which is uint16."),
    (lambda: TokenDataset(TOKENS, 5, offset=-1), ArgumentError, "`offset` (=-1) must be an integer of at least 0."),
    (lambda: TokenDataset(TOKENS, 5, offset=2), ArgumentError,
     "`offset` (=2) is for raw files, and the array is not a raw file."),
    (lambda: TokenDataset(TOKENS.astype(float), 5), DataError,
     "the array has shape (100,) and dtype float64; tokens are integers along one axis."),
    (lambda: TokenDataset(TOKENS.reshape(10, 10), 5), DataError, "the array has shape (10, 10)"),
    (lambda: TokenDataset([TOKENS, TOKENS.astype("i4")], 5), ArgumentError,
     "all tokens must be of one dtype: the array has uint16, the array has int32."),
    (lambda: TokenDataset([TOKENS, TOKENS[::2]], 5), ArgumentError, "have different memory layouts"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED)
def test_arguments_that_cannot_work_are_refused(make, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make()


def test_files_that_cannot_be_are_refused(raw, tmp_path):
    path = raw(tokens_of(100, np.uint8)[:99])
    with pytest.raises(DataError, match=r"has 99 bytes, which is not a whole number of uint16 tok"):
        TokenDataset(path, 5, dtype=np.uint16)
    with pytest.raises(DataError, match="has 89 bytes after the first 10, which is not a whole"):
        TokenDataset(path, 5, dtype=np.uint16, offset=10)
    with pytest.raises(DataError, match="has 0 bytes after the first 200, which is not a whole"):
        TokenDataset(path, 5, dtype=np.uint16, offset=200)
    with pytest.raises(ArgumentError, match="is a raw file; give its dtype, such as dtype=np"):
        TokenDataset(path, 5)
    with pytest.raises(FileNotFoundError):
        TokenDataset(tmp_path / "missing.bin", 5, dtype=np.uint16)
    with pytest.raises(DataError, match="holds no tokens"):
        TokenDataset(raw(np.empty(0), "empty.bin"), 5, dtype=np.uint16)
    with pytest.raises(DataError, match=r"not a \.npy file"):
        TokenDataset(raw(tokens_of(100), "tokens.npy"), 5)
    with pytest.raises(
        DataError, match=r"train\.bin holds 99 tokens; a window of `length` \(=99\)"
    ):
        TokenDataset([path], 99, dtype=np.uint8)
    with pytest.raises(DataError, match="is a folder, not a file of tokens"):
        TokenDataset(tmp_path, 5, dtype=np.uint16)
