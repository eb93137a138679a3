"""Batches cover every epoch exactly, from any position, at any size, and in an order that never changes."""

import hashlib
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loaderx.errors import ArgumentError
from loaderx.kernels.random import ORDER
from loaderx.kernels.shuffling import Permutation, epoch_permutation
from loaderx.stream.order import Order
from loaderx.stream.remainder import POLICIES, Span
from tests import reference


def order_of(rows, batch_size, *, epochs=None, remainder="straddle", shuffle=True, seed=0):
    return Order(rows, batch_size, shuffle, seed, epochs, remainder)


def rows_from(order, position, count):
    """Return the rows at `count` positions, independent of where batches begin."""
    return order.rows_of(Span(position, count, count, position + count)).tolist()


# Golden order: checkpoints depend on it, so these rows come in this order in all versions. A change that needs other
# numbers here breaks saved states.
GOLDEN = [
    (1, 0, 0, 0, [0]),
    (2, 0, 0, 0, [0, 1]),
    (5, 0, 0, 0, [4, 0, 2, 1, 3]),
    (5, 0, 1, 0, [2, 1, 0, 3, 4]),
    (5, 1, 0, 0, [3, 4, 0, 1, 2]),
    (10, 0, 0, 0, [7, 5, 8, 2, 4, 1, 0, 3]),
    (10, 42, 3, 0, [6, 3, 9, 4, 1, 7, 8, 2]),
    (64, 7, 0, 0, [2, 50, 38, 9, 7, 59, 23, 45]),
    (1000, 0, 0, 0, [909, 587, 388, 206, 838, 292, 330, 669]),
    (1000, 2**64 - 1, 12, 0, [577, 153, 560, 644, 502, 787, 806, 259]),
    (4095, 0, 0, 0, [1074, 181, 2367, 2656, 278, 2306, 904, 3061]),
    (4096, 0, 0, 0, [2804, 351, 2418, 1078, 1652, 2809, 115, 256]),
    (60_000, 0, 0, 0, [5348, 18548, 31387, 58980, 39798, 23239]),
    (60_000, 0, 1, 59_992, [19522, 44870, 15469, 59369, 20082, 46722]),
    (1_281_167, 123, 89, 0, [975523, 434892, 191042, 966483, 1272573, 466022]),
    (10**9, 0, 0, 0, [85878433, 44604918, 946467163, 868246219]),
    (10**9, 0, 1100, 10**9 - 8, [338073237, 360389029, 425274266, 592598645]),
    (10**12, 5, 2, 0, [115382735288, 593898325479, 36403016626, 473130160638]),
]


@pytest.mark.parametrize(("rows", "seed", "epoch", "place", "expected"), GOLDEN)
def test_the_order_never_changes(rows, seed, epoch, place, expected):
    order = order_of(rows, len(expected), seed=seed)
    assert rows_from(order, epoch * rows + place, len(expected)) == expected


def test_the_order_of_many_epochs_never_changes():
    digest = hashlib.sha256()
    for rows, seed in itertools.product((3, 17, 1000, 4097), (0, 1, 2**63)):
        for epoch in range(10):
            digest.update(epoch_permutation(rows, seed, epoch).at(np.arange(rows)).astype("<i8"))
    assert digest.hexdigest() == "a6a0b2cb6095e880d8deeddaf3d4340603934b313e8de359c6cdfaaa024a1057"


def test_the_batches_of_a_stream_never_change():
    order = order_of(10, 4, seed=0)
    assert [order.rows_of(span).tolist() for span in walk(order, 0, 6)] == [
        [7, 5, 8, 2],
        [4, 1, 0, 3],
        [6, 9, 1, 2],
        [6, 7, 9, 5],
        [0, 3, 4, 8],
        [3, 5, 7, 8],
    ]


def walk(order, position=0, most=None):
    """Return the batches from a position on."""
    spans = []
    while most is None or len(spans) < most:
        span = order.span(position)
        if span is None:
            break
        spans.append(span)
        position = span.following
    return spans


def epoch_rows(order, epoch):
    """Return all rows of an epoch in their order, without the arithmetic of batches."""
    places = np.arange(order.rows)
    if not order.shuffle:
        return places.tolist()
    key = reference.fold(reference.fold(order.seed, ORDER), epoch)
    return Permutation(order.rows, key).at(places).tolist()


def chunks(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def expected_batches(order):
    """Return the batches of each remainder policy by a plain implementation on lists."""
    epochs = [epoch_rows(order, epoch) for epoch in range(order.epochs)]
    size = order.batch_size
    if order.remainder == "straddle":
        return chunks(list(itertools.chain(*epochs)), size)
    batches = []
    for rows in epochs:
        for batch in chunks(rows, size):
            if order.remainder == "pad":
                batches.append(
                    [*batch, *itertools.islice(itertools.cycle(rows), size - len(batch))]
                )
            elif order.remainder == "keep" or len(batch) == size:
                batches.append(batch)
    return batches


@st.composite
def finite_orders(draw):
    remainder = draw(st.sampled_from(sorted(POLICIES)))
    rows = draw(st.integers(1, 60))
    return Order(
        rows=rows,
        batch_size=draw(st.integers(1, rows if remainder == "drop" else 150)),
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 2**64 - 1)),
        epochs=draw(st.integers(1, 4)),
        remainder=remainder,
    )


@given(order=finite_orders())
@example(order=order_of(1, 1, epochs=1))
@example(order=order_of(7, 150, epochs=4))
@example(order=order_of(7, 150, epochs=4, remainder="pad"))
@example(order=order_of(7, 150, epochs=4, remainder="keep"))
@example(order=order_of(7, 7, epochs=4, remainder="drop"))
def test_batches_are_the_epochs_cut_up(order):
    spans = walk(order)
    assert [order.rows_of(span).tolist() for span in spans] == expected_batches(order)


@given(order=finite_orders())
def test_every_epoch_has_every_row_once(order):
    seen = [[] for _ in range(order.epochs)]
    for span in walk(order):
        valid = order.positions(span)[: span.valid]
        for epoch, row in zip(valid // order.rows, order.rows_of(span), strict=False):
            seen[epoch].append(int(row))
    for rows in seen:
        assert len(set(rows)) == len(rows)
        if order.remainder == "drop":
            assert len(rows) == order.rows // order.batch_size * order.batch_size
        else:
            assert sorted(rows) == list(range(order.rows))


@given(order=finite_orders())
def test_steps_and_positions_are_those_of_the_walk(order):
    spans = walk(order)
    assert order.steps == len(spans)
    assert [order.position_of(step) for step in range(len(spans))] == [s.position for s in spans]
    assert order.span(order.position_of(len(spans))) is None
    assert order.end == order.epochs * order.rows
    for step, span in enumerate(spans):
        assert order.span(order.position_of(step)) == span


@given(order=finite_orders(), data=st.data())
def test_the_rest_of_a_stream_is_covered_from_any_position(order, data):
    """Check all positions, as after a restore with another batch size."""
    start = data.draw(st.integers(0, order.end))
    spans = walk(order, start)
    stream = np.arange(start, order.end)
    valid = [order.positions(span)[: span.valid] for span in spans]
    covered = np.concatenate([*valid, np.empty(0, np.int64)])

    if order.remainder == "drop":
        left = np.bincount(stream // order.rows, minlength=order.epochs)
        counts = np.bincount(covered // order.rows, minlength=order.epochs)
        np.testing.assert_array_equal(counts, left // order.batch_size * order.batch_size)
        assert np.all(np.diff(covered) > 0)
        assert np.all(covered >= start)
    else:
        np.testing.assert_array_equal(covered, stream)
    for span, following in itertools.pairwise(spans):
        ends_epoch = following.position % order.rows == 0
        assert span.valid == order.batch_size or (order.remainder != "straddle" and ends_epoch)


@given(order=finite_orders())
def test_batches_have_one_size_where_that_was_asked_for(order):
    sizes = {span.size for span in walk(order)}
    if order.remainder in ("drop", "pad"):
        assert sizes == {order.batch_size}
    else:
        assert max(sizes) <= order.batch_size
    if order.remainder != "pad":
        assert all(span.size == span.valid for span in walk(order))


@given(order=finite_orders())
def test_all_but_straddling_batches_stay_within_an_epoch(order):
    for span in walk(order):
        epochs = set(order.positions(span) // order.rows)
        if order.remainder != "straddle":
            assert epochs == {span.position // order.rows}


@given(rows=st.integers(1, 50), batch_size=st.integers(1, 120), seed=st.integers(0, 2**64 - 1))
def test_an_endless_stream_begins_like_a_finite_one(rows, batch_size, seed):
    for remainder in sorted(POLICIES):
        if remainder == "drop" and batch_size > rows:
            continue
        endless = order_of(rows, batch_size, remainder=remainder, seed=seed)
        finite = order_of(rows, batch_size, remainder=remainder, seed=seed, epochs=3)
        assert endless.steps is None
        assert endless.end is None
        # The last batch of a finite straddling stream may be cut short.
        whole = [span for span in walk(finite) if span.size == batch_size or remainder == "keep"]
        assert walk(endless, 0, len(whole)) == whole
        assert len(walk(endless, 0, len(whole) + 5)) == len(whole) + 5


def test_without_shuffling_rows_come_as_they_are():
    order = order_of(5, 3, epochs=2, shuffle=False)
    batches = [order.rows_of(span).tolist() for span in walk(order)]
    assert batches == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("remainder", "expected"),
    [
        ("straddle", [[0, 1, 2, 0, 1, 2, 0, 1], [2]]),
        ("keep", [[0, 1, 2], [0, 1, 2], [0, 1, 2]]),
        ("pad", [[0, 1, 2, 0, 1, 2, 0, 1]] * 3),
    ],
)
def test_a_batch_may_be_larger_than_the_data(remainder, expected):
    order = order_of(3, 8, epochs=3, remainder=remainder, shuffle=False)
    spans = walk(order)
    assert [order.rows_of(span).tolist() for span in spans] == expected
    if remainder == "pad":
        assert [span.valid for span in spans] == [3, 3, 3]


def test_a_straddling_batch_over_many_epochs_takes_each_in_its_own_order():
    order = order_of(4, 30)
    rows = order.rows_of(order.span(30)).tolist()
    stream = [row for epoch in range(15) for row in epoch_rows(order, epoch)]
    assert rows == stream[30:60]


@pytest.mark.parametrize("rows", [10**9, 10**12])
@pytest.mark.parametrize("remainder", sorted(POLICIES))
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_of_very_many_rows_costs_what_a_batch_does(rows, remainder, shuffle):
    order_of(10_000, 512).rows_of(Span(0, 512, 512, 512))  # compile or load the kernels
    tracemalloc.start()
    try:
        order = order_of(rows, 512, remainder=remainder, shuffle=shuffle, seed=9)
        # The first, one far out, and the last of a later epoch.
        for step in (0, 2**32, order.steps_per_epoch * 1200 - 1):
            span = order.span(order.position_of(step))
            drawn = order.rows_of(span)
            valid = drawn[: span.valid]
            assert np.all((drawn >= 0) & (drawn < rows))
            assert len(set(valid.tolist())) == span.valid
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert span.position > 2**40
    assert peak < 200_000


def test_positions_far_out_lose_no_digit():
    rows = 1_000_003
    order = order_of(rows, 100, seed=3)
    epoch = 2**42 // rows + 1
    span = order.span(epoch * rows + 17)
    np.testing.assert_array_equal(order.positions(span), epoch * rows + 17 + np.arange(100))
    key = reference.fold(reference.fold(3, ORDER), epoch)
    expected = Permutation(rows, key).at(np.arange(17, 117))
    np.testing.assert_array_equal(order.rows_of(span), expected)


def test_an_unknown_remainder_is_refused():
    with pytest.raises(ArgumentError, match=r"`remainder` \(='wrap'\) must be one of 'straddle', "):
        order_of(10, 3, remainder="wrap")


def test_dropping_everything_is_refused():
    with pytest.raises(ArgumentError, match=r"`batch_size` \(=11\) must not exceed the 10 rows"):
        order_of(10, 11, remainder="drop")
    assert order_of(10, 10, remainder="drop", epochs=1).steps == 1
