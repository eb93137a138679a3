"""Pieces, scheduling, statistics, shared memory and fingerprints, without a cluster."""

import dataclasses
import functools
import gc
import math
import sys
import types

import numpy as np
import pytest

import loaderx as lx
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.batch.scheduler import Scheduler, Workload
from loaderx.buffers import Pool
from loaderx.loader import DataLoader
from loaderx.ray import fingerprint, session
from loaderx.ray.actor import Failed, failure
from loaderx.ray.pieces import divide, join, packed, unpacked
from loaderx.ray.scheduler import RemoteScheduler
from loaderx.ray.shared_memory import SharedMemory
from loaderx.ray.stats import RayStats
from loaderx.stream import ranges
from tests.loaderx.ray import loaders

# --- pieces -------------------------------------------------------------------------------------

WHOLE = [((0, 10),), ((0, 10),)]
# Two blocks that are adjacent, and replicated labels.
BLOCKS = [((0, 3), (3, 5)), ((0, 10),), ((8, 10),)]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("blocks", [WHOLE, BLOCKS])
def test_pieces_are_divided_and_joined(blocks, count):
    rows = np.arange(10)
    pieces = divide(blocks, 10, count)
    assert len(pieces) <= count
    built = [
        [
            [rows[start:stop].copy() for start, stop in ranges_of_field]
            for ranges_of_field in (blocks if piece is None else piece)
        ]
        for piece in pieces
    ]
    pools = [Pool(80, 2) for _ in blocks]
    joined = join(blocks, pieces, built, pools)
    for own, arrays in zip(blocks, joined, strict=True):
        assert [array.tolist() for array in arrays] == [list(range(*block)) for block in own]
    if count == 1:
        assert joined[0][0] is built[0][0][0]


def test_one_piece_of_a_whole_batch_has_no_blocks():
    assert divide(WHOLE, 10, 1) == [None]
    assert divide(BLOCKS, 10, 1) == [tuple(BLOCKS)]


def test_common_ranges_keep_their_borders():
    assert ranges.common(((0, 3), (3, 9)), [(1, 4), (8, 12)]) == ((1, 3), (3, 4), (8, 9))
    assert ranges.common((), [(0, 1)]) == ()


def test_dtypes_of_ml_dtypes_travel_as_integers():
    import ml_dtypes

    dtypes = [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)]
    arrays = [[np.arange(3).astype(dtype)] for dtype in dtypes]
    sent = packed(arrays)
    assert [own[0].dtype for own in sent] == [np.uint16, np.float32]
    assert [own[0].dtype for own in unpacked(sent, dtypes)] == dtypes
    assert unpacked(sent, dtypes)[0][0].tobytes() == arrays[0][0].tobytes()


# --- shared memory ------------------------------------------------------------------------------


def test_memory_is_shared_up_to_a_limit_and_counted_until_the_last_view_is_gone():
    memory = SharedMemory(100)
    array = np.arange(10)
    array.flags.writeable = False
    view = memory.share(array)
    assert np.shares_memory(view, array)
    assert not view.flags.writeable
    assert memory.nbytes == 80
    assert memory.share(array) is None
    part = view[3:5]
    del view
    assert memory.nbytes == 80
    del part
    gc.collect()
    assert memory.nbytes == 0
    assert memory.share(array) is not None


def test_strided_memory_is_not_shared():
    assert SharedMemory(100).share(np.arange(10)[::2]) is None


# --- scheduling ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Fleet:
    workers: int = 4
    seconds_per_row: float | None = None
    store_bytes: int = 1 << 40


def scheduler(fleet, rows=256, row_bytes=150_000, prefetch=2, compiled=True, splittable=True):
    load = Workload(
        rows, row_bytes, compiled, hooked=False, copied=False, cpu_bound=True, splittable=True
    )
    local = Scheduler(load, 2, prefetch)
    return RemoteScheduler(local, fleet, prefetch, rows * row_bytes, splittable)


def test_the_first_steps_are_divided_among_all_workers():
    assert scheduler(Fleet()).pieces == 4
    assert scheduler(Fleet(), rows=8, row_bytes=10).pieces == 1  # too small
    assert scheduler(Fleet(), splittable=False).pieces == 1
    # The cost of Python code is not known from the bytes.
    assert scheduler(Fleet(), rows=8, row_bytes=10, compiled=False).pieces == 4


def test_known_steps_are_divided_by_their_time():
    assert scheduler(Fleet(seconds_per_row=0.002)).pieces == 1
    assert scheduler(Fleet(seconds_per_row=0.01)).pieces == 3
    assert scheduler(Fleet(seconds_per_row=1)).pieces == 4


def test_every_worker_has_two_pieces_and_prefetched_steps_come_on_top():
    known = Fleet(seconds_per_row=0.002)
    assert scheduler(known).ahead == 2 * 4 + 2
    assert scheduler(known, prefetch=5).ahead == 2 * 4 + 5
    many = Fleet(workers=250, seconds_per_row=0.002)
    assert scheduler(many).ahead <= 64
    assert scheduler(many).ahead * scheduler(many).pieces >= 2 * 250


def test_steps_under_way_fit_into_a_quarter_of_the_object_store():
    batch = 256 * 150_000
    few = scheduler(Fleet(workers=16, seconds_per_row=0.002, store_bytes=16 * batch))
    assert few.ahead == 4
    assert few.pieces == 16
    assert scheduler(Fleet(store_bytes=1)).ahead == 3


def test_the_consumer_builds_nothing_itself():
    made = scheduler(Fleet())
    assert not made.builds_inline(1e-9)
    assert (made.coalesced(1e-9), made.rest(1e-9, 1.0)) == (1, 0.0)


# --- statistics ---------------------------------------------------------------------------------


def stats(**facts):
    given = {
        "batches": 100,
        "waiting_seconds": 55.0,
        "building_seconds": 380.0,
        "total_seconds": 105.0,
        "bytes": 10**9,
        "workers": 4,
        "startup_seconds": 5.0,
        "transport_seconds": 2.0,
        "transport_bytes": 10**9,
        "wide": True,
    }
    return RayStats(**{**given, **facts})


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        # 380 seconds of building in the 50 in which the consumer is not waiting: 7.6 CPUs.
        ({}, "needs about 4 more CPUs"),
        ({"cpus_per_worker": 2}, "needs about 8 more CPUs"),
        ({"waiting_seconds": 6.0}, "the workers keep up"),
        ({"waiting_seconds": 104.5}, "each more CPU adds about 0.25 batches per second"),
        ({"building_seconds": 90.0}, "10 MB per batch at 0.5 GB/s: deliver uint8 or bfloat16 and"),
        ({"building_seconds": 90.0, "wide": False}, "a local loader may be faster"),
        ({"workers": 0}, "no worker is ready"),
        ({"batches": 1}, "nothing is known"),
    ],
)
def test_advice(facts, advice):
    assert advice in stats(**facts).advice


def test_busy_share_leaves_out_the_start():
    assert math.isclose(stats().busy_share, 0.95)


# --- fingerprints -------------------------------------------------------------------------------


def found(loader):
    return fingerprint.fingerprint(loader, loader._builder)


def differing(one, other):
    return {name for name in one | other if one.get(name) != other.get(name)}


def test_equal_loaders_have_equal_fingerprints():
    assert found(loaders.make("own op")) == found(loaders.make("own op"))
    assert found(loaders.make("chain", "jax", workers=1)).keys() == found(loaders.make()).keys()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"batch_size": 31}, {"batch_size", "first rows of step 0"}),
        ({"shuffle": False}, {"shuffle", "first rows of step 0"}),
        ({"num_epochs": 3}, {"num_epochs", "remainder"}),
    ],
)
def test_the_configuration_is_part_of_it(options, names):
    # With another batch size the first two rows are the same.
    expected = names - {"first rows of step 0"} if "batch_size" in options else names
    assert (
        differing(found(loaders.make("plain")), found(loaders.make("plain", **options))) == expected
    )


def test_data_is_part_of_it():
    other = found(loaders.make("plain", images=loaders.IMAGES[::-1]))
    assert differing(found(loaders.make("plain")), other) == {"first rows of step 0"}
    smaller = loaders.make("plain", images=loaders.IMAGES[:, 1:])
    assert "fields of the data" in differing(found(loaders.make("plain")), found(smaller))


def gain(amount):
    return amount


def code_of(text, name="f", **names):
    module = types.ModuleType("module_of_a_user")
    vars(module).update(names)
    exec(text, vars(module))
    return getattr(module, name)


CODE = "def f(x, rng=None):\n    return g(x) * 2\ndef g(x):\n    return x + LEVEL\nLEVEL = 1\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [("* 2", "* 3"), ("x + LEVEL", "x - LEVEL"), ("LEVEL = 1", "LEVEL = 2"), ("=None", "=3")],
)
def test_code_with_what_it_calls_and_reads_is_part_of_it(before, after):
    hashed = fingerprint._hash(code_of(CODE))
    assert hashed == fingerprint._hash(code_of("# a comment\n\n" + CODE))
    assert hashed != fingerprint._hash(code_of(CODE.replace(before, after)))


class Reader:
    """Source of a user."""

    scale = 2

    def __len__(self):
        return 40

    def __getitem__(self, row):
        return np.float32(row * self.scale)


class Other(Reader):
    scale = 2

    def __getitem__(self, row):
        return np.float32(row + row)


def test_classes_of_sources_are_part_of_it():
    one, other = (
        found(DataLoader({"x": kind()}, batch_size=4, output="numpy")) for kind in (Reader, Other)
    )
    assert {"class Reader of the data", "class Other of the data"} & differing(one, other)
    assert one["first rows of step 0"] == other["first rows of step 0"]


def test_values_of_many_kinds_are_hashed():
    values = [
        1, 1.0, "1", b"1", None, True, (1, 2), [2, 1], {"a": 1}, {1, 2}, np.arange(3), np.float32(1),
        np.dtype("u1"), len, np.negative, gain, functools.partial(gain, 1), functools.partial(gain, 2),
        [].append, Reader, Reader().__len__, lambda x: x, lambda x: x + 1, sys, T.RandomFlip(), T.RandomFlip(0.3),
        loaders.brighten(amount=0.1), loaders.brighten(amount=0.2), np.zeros(1 << 22),
    ]  # fmt: skip
    assert len({fingerprint._hash(value) for value in values}) == len(values)
    circle = []
    circle.append(circle)
    assert fingerprint._hash(circle) == fingerprint._hash(circle)


def test_differences_name_both_sides():
    ours, theirs = {"numpy": "2.4", "seed": "1", "op": "a"}, {"numpy": "2.5", "seed": "1"}
    text = fingerprint.differences(ours, theirs)
    assert text == "numpy: 2.5 there, 2.4 here; op: missing there, a here"
    assert fingerprint.differences(ours, ours) == ""


# --- errors -------------------------------------------------------------------------------------


def test_errors_keep_their_type_and_notes():
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            error.add_note("a note")
            raise
    except ValueError as error:
        answer = failure(error)
    again = answer.error()
    assert isinstance(again, ValueError)
    assert again.__notes__[0] == "a note"
    assert 'raise ValueError("inner")' in again.__notes__[1]
    assert not answer.lacks_memory
    assert failure(MemoryError()).lacks_memory


def test_errors_that_cannot_be_pickled_become_their_text():
    answer = failure(loaders.UnpicklableError("this", "that"))
    assert answer == Failed(None, answer.text, answer.trace)
    assert isinstance(answer.error(), lx.LoaderxError)


def test_a_missing_ray_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"\[ray\]"):
        session.connect()
