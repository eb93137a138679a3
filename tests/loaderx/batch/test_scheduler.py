"""Scheduling is a pure function of bytes and seconds."""

import math

import pytest

from loaderx.batch.scheduler import (
    COALESCE_SECONDS,
    COPIED_BYTES_PER_PART,
    INLINE_MAX_BYTES,
    INLINE_MAX_SECONDS,
    MAX_COALESCED,
    REST_FACTOR,
    REST_SECONDS,
    TRANSFORMED_BYTES_PER_PART,
    Scheduler,
    Workload,
)

COPY = {"compiled": True, "hooked": False, "copied": True, "cpu_bound": False, "splittable": True}
CHAIN = COPY | {"copied": False, "cpu_bound": True}
PYTHON = CHAIN | {"compiled": False}


def scheduler(kind, rows=64, row_bytes=1024, workers=4, prefetch=2, **changes):
    return Scheduler(Workload(rows, row_bytes, **(kind | changes)), workers, prefetch)


@pytest.mark.parametrize(
    ("kind", "least"), [(COPY, COPIED_BYTES_PER_PART), (CHAIN, TRANSFORMED_BYTES_PER_PART)]
)
def test_a_batch_is_divided_by_bytes_for_at_most_as_many_threads_as_there_are(kind, least):
    parts = [scheduler(kind, 64, n * least // 64).parts(64) for n in (0, 1, 2, 3, 4, 100)]
    assert parts == [1, 1, 2, 3, 4, 4]


def test_python_code_is_divided_whenever_there_are_rows_since_bytes_do_not_tell_its_cost():
    assert [scheduler(PYTHON, row_bytes=1).parts(rows) for rows in (0, 1, 2, 3, 9)] == [
        1,
        1,
        2,
        3,
        4,
    ]


def test_a_source_that_threads_cannot_share_is_not_divided():
    assert scheduler(CHAIN, 64, 10**6, splittable=False).parts(64) == 1


def test_copies_are_inline_by_their_bytes_whatever_was_measured():
    below, above = (
        scheduler(COPY, rows=1, row_bytes=INLINE_MAX_BYTES + extra) for extra in (-1, 0)
    )
    for seconds in (0.0, 1.0, math.inf):
        assert below.builds_inline(seconds)
        assert not above.builds_inline(seconds)


def test_transforms_are_inline_by_their_seconds_once_these_are_known():
    small = scheduler(CHAIN, rows=1, row_bytes=4)
    assert not small.builds_inline(math.inf)
    assert not small.builds_inline(INLINE_MAX_SECONDS)
    assert small.builds_inline(INLINE_MAX_SECONDS * 0.99)


@pytest.mark.parametrize("change", [{"compiled": False}, {"hooked": True}])
def test_python_code_of_a_user_belongs_to_the_workers(change):
    small = scheduler(COPY, rows=1, row_bytes=4, **change)
    assert not small.builds_inline(0.0)
    assert small.coalesced(1e-9) == 1


def test_small_copies_are_coalesced_for_about_as_long_as_waking_takes():
    small = scheduler(COPY)
    assert small.coalesced(COALESCE_SECONDS / 100) == MAX_COALESCED
    assert small.coalesced(COALESCE_SECONDS / 2) == 2
    assert small.coalesced(COALESCE_SECONDS) == 1
    assert small.coalesced(math.inf) == 1
    assert scheduler(CHAIN).coalesced(1e-9) == 1
    assert scheduler(COPY, 1, COPIED_BYTES_PER_PART + 1).coalesced(1e-9) == 1


def test_undivided_batches_keep_every_worker_busy():
    divided, whole = scheduler(CHAIN, 64, 10**6), scheduler(CHAIN, 64, 1)
    assert divided.ahead == 2
    assert whole.ahead == 2 + 4
    assert divided.buffers == 2 + 2
    assert whole.buffers == 6 + 2
    assert scheduler(COPY).buffers == 6 * MAX_COALESCED + 2


def test_workers_rest_only_after_a_consumer_that_stays_away_for_much_longer_than_a_batch_takes():
    seconds, long = 2e-3, REST_FACTOR * (2e-3 + REST_SECONDS)
    own = scheduler(CHAIN)
    assert own.rest(seconds, long) == REST_SECONDS
    assert own.rest(seconds, 0.99 * long) == 0
    # Nothing is known before the first batch, or after a batch that was the first.
    assert own.rest(math.inf, long) == 0
    assert own.rest(seconds, -math.inf) == 0
