"""PackedDataset: whole documents in rows of one length, placed by first-fit, every token once."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config

from loaderx import ArgumentError, DataError, DataLoader, Spec
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources.packing import PackedDataset

FIELDS = ["tokens", "segments", "positions"]


def documents_of(lengths, dtype=np.uint16):
    """Return documents in which no two tokens are the same."""
    ends = np.cumsum([0, *lengths])
    return [np.arange(*pair).astype(dtype) + 1 for pair in itertools.pairwise(ends)]


def packed(documents, length, pad=0):
    """Pack by first-fit over all rows, then write the rows document by document."""
    rows = []
    for document in documents:
        for start in range(0, len(document), length):
            piece = document[start : start + length].tolist()
            for row in rows:
                if sum(map(len, row)) + len(piece) <= length:
                    row.append(piece)
                    break
            else:
                rows.append([piece])
    out = {name: np.zeros((len(rows), length), np.int32) for name in FIELDS}
    out["tokens"] = np.full((len(rows), length), pad, documents[0].dtype)
    for number, row in enumerate(rows):
        used = sum(map(len, row))
        out["tokens"][number, :used] = list(itertools.chain(*row))
        out["segments"][number, :used] = np.repeat(range(1, len(row) + 1), [*map(len, row)])
        out["positions"][number, :used] = np.concatenate([np.arange(len(piece)) for piece in row])
    return out


def assert_same(batch, expected):
    assert list(batch) == list(expected) == FIELDS
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array)
        assert batch[name].dtype == array.dtype


LENGTHS = [5, 0, 9, 3, 3, 1, 40, 7, 2, 10, 10, 4, 0]
DOCUMENTS = documents_of(LENGTHS)
FLAT = np.concatenate(DOCUMENTS)


@settings(deadline=None, max_examples=150)
@given(
    lengths=st.lists(st.integers(0, 25), min_size=1, max_size=40).filter(any),
    length=st.integers(1, 30),
)
def test_rows_are_those_of_first_fit_and_every_token_is_in_them_once(lengths, length):
    documents = documents_of(lengths)
    source = PackedDataset(documents, length, pad=9999)
    rows = source[:]
    assert_same(rows, packed(documents, length, pad=9999))
    used = rows["segments"] > 0
    assert sorted(rows["tokens"][used]) == list(range(1, sum(lengths) + 1))
    assert np.all(rows["tokens"][~used] == 9999)
    assert source.filled == pytest.approx(used.mean())


def test_tokens_of_a_segment_keep_their_order():
    rows = PackedDataset(DOCUMENTS, 10)[:]
    for tokens, segments, positions in zip(*rows.values(), strict=True):
        for number in range(1, segments.max() + 1):
            own = segments == number
            np.testing.assert_array_equal(np.diff(tokens[own].astype(int)), 1)
            np.testing.assert_array_equal(positions[own], np.arange(own.sum()))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64, ">u2", ">i8"])
def test_tokens_of_any_integer_dtype_are_packed_in_it(dtype):
    tokens = FLAT.astype(dtype)
    source = PackedDataset(tokens, 10, lengths=LENGTHS, pad=99)
    assert source.spec["tokens"] == Spec((10,), np.dtype(dtype).newbyteorder("="))
    native = [document.astype(np.dtype(dtype).newbyteorder("=")) for document in DOCUMENTS]
    assert_same(source[:], packed(native, 10, pad=99))


def test_files_lists_lengths_and_starts_say_the_same(tmp_path):
    FLAT.tofile(tmp_path / "tokens.bin")
    np.save(tmp_path / "tokens.npy", FLAT)
    starts = np.cumsum(LENGTHS) - LENGTHS
    expected = PackedDataset(DOCUMENTS, 10)[:]
    sources = [
        PackedDataset(FLAT, 10, starts=starts),
        PackedDataset(FLAT, 10, starts=[*starts, len(FLAT)]),
        PackedDataset(FLAT, 10, starts=starts, lengths=LENGTHS),
        PackedDataset(np.repeat(FLAT, 2)[::2], 10, lengths=LENGTHS),
        PackedDataset(tmp_path / "tokens.bin", 10, lengths=np.uint32(LENGTHS), dtype="uint16"),
        PackedDataset(str(tmp_path / "tokens.npy"), 10, lengths=LENGTHS),
    ]
    for source in sources:
        assert_same(source[:], expected)
    with (tmp_path / "tokens.bin").open("r+b") as file:
        file.truncate(10)
    with pytest.raises(DataError, match="shrank from"):
        sources[4][0]


def test_documents_may_be_any_pieces_of_the_tokens():
    source = PackedDataset(FLAT, 10, starts=[20, 0, 5], lengths=[4, 7, 6])
    assert_same(source[:], packed([FLAT[20:24], FLAT[:7], FLAT[5:11]], 10))


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("dtype", [np.uint16, np.int64, ">i8"])
def test_a_shuffled_loader_delivers_packed_rows(dtype, output):
    random = np.random.default_rng(0)
    documents = documents_of(random.integers(1, 60, 400))
    expected = packed(documents, 64)
    source = PackedDataset([document.astype(dtype) for document in documents], 64)
    delivered = np.dtype(dtype).newbyteorder("=")
    if output == "jax" and delivered == np.int64:
        delivered = np.dtype(np.int32)
    expected["tokens"] = expected["tokens"].astype(delivered)
    loader = DataLoader(source, batch_size=16, seed=2, output=output)
    for step in (0, 3, 40):
        rows = loader.indices(step)
        batch = {name: np.asarray(array) for name, array in loader.batch(step).items()}
        assert_same(batch, {name: array[rows] for name, array in expected.items()})


def test_a_stream_resumes_where_it_stopped():
    source = PackedDataset(DOCUMENTS, 10)
    loader = DataLoader(source, batch_size=3, seed=5, output="numpy")
    with iter(loader) as first:
        for _ in range(7):
            next(first)
        state = first.get_state()
        following = [next(first) for _ in range(3)]
    with iter(DataLoader(source, batch_size=3, seed=5, output="numpy", workers=1)) as second:
        second.set_state(state)
        for batch in following:
            assert_same(next(second), batch)


def test_packed_rows_are_selected_added_and_transformed_like_others():
    source = PackedDataset(DOCUMENTS, 10)
    rows = source[:]
    picked = [3, 0, 2]
    assert_same(source.select(picked)[:], {name: array[picked] for name, array in rows.items()})
    both = source + source.select(picked)
    assert_same(both[[0, len(source)]], {name: array[[0, 3]] for name, array in rows.items()})
    transforms = {"tokens": [T.Cast("int32")]}
    loader = DataLoader(source, batch_size=4, shuffle=False, transforms=transforms, output="numpy")
    rows["tokens"] = rows["tokens"].astype(np.int32)
    assert_same(loader.batch(0), {name: array[:4] for name, array in rows.items()})


def test_a_number_that_jax_cannot_hold_names_its_row():
    big = [np.array([1, 2, 3]), np.array([1, 2**40])]
    with pytest.raises(
        DataError, match="row 1, element 1: a value of int64 does not fit into int32"
    ):
        DataLoader(PackedDataset(big, 3), batch_size=2, shuffle=False).batch(0)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a million steps of plain Python")
def test_a_million_documents_are_planned_and_none_is_lost():
    lengths = np.random.default_rng(0).integers(1, 400, 1_000_000)
    tokens = np.broadcast_to(np.uint8(1), lengths.sum()).copy()
    source = PackedDataset(tokens, 1024, lengths=lengths)
    assert source.filled > 0.99
    sizes = np.sort(source._sizes)
    np.testing.assert_array_equal(sizes, np.sort(lengths))
    plan = (source._sizes, source._starts, source._firsts)
    assert sum(array.nbytes for array in plan) < 16 * len(lengths)


REFUSED = [
    (lambda: PackedDataset(FLAT, 0, lengths=LENGTHS), ArgumentError, "`length` (=0) must be an integer of at least 1."),
    (lambda: PackedDataset(FLAT, 2**31, lengths=LENGTHS), ArgumentError,
     "`length` (=2147483648) must be at most 2147483647."),
    (lambda: PackedDataset(FLAT, 10), ArgumentError,
     "say what the documents are: give their `lengths`, their `starts`, or both."),
    (lambda: PackedDataset(FLAT, 10, lengths=[5, 5]), ArgumentError,
     "`lengths` add up to 10, and the array holds 94 tokens."),
    (lambda: PackedDataset(FLAT, 10, lengths=[95, -1]), ArgumentError,
     "`lengths` has 95; it must be from 0 to 94, the number of tokens."),
    (lambda: PackedDataset(FLAT, 10, lengths=[94.0]), ArgumentError,
     "`lengths` must be a list of integers, one per document, got float64[1]."),
    (lambda: PackedDataset(FLAT, 10, lengths=[]), ArgumentError, "`lengths` must be a list of integers"),
    (lambda: PackedDataset(FLAT, 10, starts=[0, 9, 3]), ArgumentError,
     "`starts` must begin with 0 and ascend; otherwise give `lengths`, too."),
    (lambda: PackedDataset(FLAT, 10, starts=[1, 9]), ArgumentError, "`starts` must begin with 0"),
    (lambda: PackedDataset(FLAT, 10, starts=[1, 9], lengths=[1]), ArgumentError,
     "`starts` and `lengths` must have the same length, got 2 and 1."),
    (lambda: PackedDataset(FLAT, 10, starts=[1, 90], lengths=[1, 5]), ArgumentError,
     "document 1 ends at 95, and the array holds 94 tokens."),
    (lambda: PackedDataset(FLAT, 10, starts=[1, 90], lengths=[0, 0]), DataError,
     "there are no documents, or only empty ones."),
    (lambda: PackedDataset(DOCUMENTS, 10, lengths=LENGTHS), ArgumentError, "these need no `lengths` and no `starts`."),
    (lambda: PackedDataset(DOCUMENTS, 10, long="raise"), DataError,
     "document 6 has 40 tokens, and a row has 10; make rows longer, or use long=\"split\"."),
    (lambda: PackedDataset(DOCUMENTS, 10, long="cut"), ArgumentError,
     "`long` (='cut') must be \"split\" or \"raise\"."),
    (lambda: PackedDataset(DOCUMENTS, 10, pad=-1), ArgumentError, "`pad` (=-1) must be an integer of at least 0."),
    (lambda: PackedDataset(DOCUMENTS, 10, pad=2**16), ArgumentError,
     "`pad` (=65536) must be at most 65535, for uint16."),
    (lambda: PackedDataset([], 10), ArgumentError, "`tokens` is an empty list"),
    (lambda: PackedDataset([[1, 2]], 10), ArgumentError,
     "document 0 of `tokens` (=[1, 2]) must be a NumPy array of one axis."),
    (lambda: PackedDataset([FLAT, FLAT.astype(int)], 10), ArgumentError,
     "all documents must be of one dtype: the first has uint16, document 1 has int64."),
    (lambda: PackedDataset([FLAT.astype(float)], 10), DataError, "tokens are integers along one axis."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED)
def test_arguments_that_cannot_work_are_refused(make, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make()


def test_documents_as_long_as_a_row_are_not_too_long():
    assert len(PackedDataset(DOCUMENTS, 40, long="raise")) == len(packed(DOCUMENTS, 40)["tokens"])
