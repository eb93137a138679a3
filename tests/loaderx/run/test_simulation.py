"""Simulation of a thousand hosts: every host finds its own rows, quickly, and in memory for its own share."""

import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from loaderx.batch.planner import BatchPlanner, Field, Group
from loaderx.compiler.entries import chains
from loaderx.sources import as_source
from loaderx.spec import Spec
from loaderx.stream import ranges
from loaderx.stream.order import Order
from loaderx.stream.sampling import MixtureSampler
from loaderx.transforms import MixUp

HOSTS, DEVICES, PER_DEVICE = 1024, 8, 4
BATCH = HOSTS * DEVICES * PER_DEVICE
ROWS = 10**10
SEVERAL = [0, 1, 511, 1023]


def order_of(kind="shuffled", remainder="straddle"):
    sampler = None
    if kind == "mixed":
        shares = [Fraction(7, 10), Fraction(2, 10), Fraction(1, 10)]
        sampler = MixtureSampler([7 * 10**9, 2 * 10**9, 10**9], shares, 11, True)
    return Order(ROWS, BATCH, kind != "in order", 11, None, remainder, sampler)


# Layouts of the places of a batch over hosts: (host) -> the blocks of its devices.
def side_by_side(host):
    """Return the blocks of a host in a mesh in the order of the devices: one range."""
    first = host * DEVICES * PER_DEVICE
    return tuple(
        (first + device * PER_DEVICE, first + (device + 1) * PER_DEVICE)
        for device in range(DEVICES)
    )


def scattered(host):
    """Return the blocks of a host in a mesh that goes through the hosts first: a range for every device."""
    starts = [(device * HOSTS + host) * PER_DEVICE for device in range(DEVICES)]
    return tuple((start, start + PER_DEVICE) for start in starts)


layouts = pytest.mark.parametrize("layout", [side_by_side, scattered])
kinds = pytest.mark.parametrize("kind", ["shuffled", "in order", "mixed"])


def rows_of_host(order, span, layout, host):
    return order.rows_at(order.positions(span, ranges.places(ranges.union(layout(host)))))


def pipeline_of(order, blocks, *, mixed=False):
    """Return the planner of one host, with rows that nothing reads."""
    spec = Spec((4,), np.float32)
    source = as_source(np.zeros((8, 4), np.float32))
    found = chains({"x": [MixUp(0.4)]}, {"x": (spec, lambda: np.zeros(4, np.float32))}, 0) if mixed else {}  # fmt: skip
    field = Field("x", spec, spec, found.get("x"))
    return BatchPlanner([Group(source, (field,), (0,))], order, 1, 1, lambda _field, _size: blocks)


# The first, one over the end of an epoch, and one far out.
STEPS = [0, ROWS // BATCH, 10**9]


@layouts
@kinds
@pytest.mark.parametrize("step", STEPS)
def test_all_hosts_together_have_the_rows_of_the_batch(layout, kind, step):
    order = order_of(kind)
    span = order.span(order.position_of(step))
    whole = order.rows_of(span)
    together = np.full(BATCH, -1, np.int64)
    for host in range(HOSTS):
        places = ranges.places(ranges.union(layout(host)))
        assert len(places) == DEVICES * PER_DEVICE
        assert np.all(together[places] == -1)
        together[places] = rows_of_host(order, span, layout, host)
    np.testing.assert_array_equal(together, whole)
    assert whole.min() >= 0
    assert whole.max() < ROWS
    if step != STEPS[1]:
        assert len(np.unique(whole)) == BATCH


@pytest.mark.parametrize("host", SEVERAL)
def test_the_padding_of_the_last_batch_is_the_same_for_every_host(host):
    order = order_of(remainder="pad")
    span = order.span(order.position_of(order.steps_per_epoch - 1))
    assert span.valid < span.size
    whole = order.rows_of(span)
    for layout in (side_by_side, scattered):
        places = ranges.places(ranges.union(layout(host)))
        np.testing.assert_array_equal(rows_of_host(order, span, layout, host), whole[places])


@layouts
@kinds
@pytest.mark.parametrize("host", SEVERAL)
def test_a_host_needs_the_memory_of_its_own_rows(layout, kind, host):
    order = order_of(kind)
    rows_of_host(order, order.span(0), layout, host)
    tracemalloc.start()
    try:
        for step in range(10**6, 10**6 + 50):
            rows_of_host(order, order.span(order.position_of(step)), layout, host)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert kept < 50_000


def test_the_whole_batch_would_need_more_than_that():
    order = order_of()
    order.rows_of(order.span(0))
    tracemalloc.start()
    try:
        order.rows_of(order.span(BATCH))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 100_000


@layouts
@pytest.mark.parametrize("host", SEVERAL)
def test_the_plan_of_a_host_has_its_places_and_no_others(layout, host):
    order = order_of()
    plan = pipeline_of(order, layout(host)).plan(order.span(10**15))
    assert plan.places.tolist() == ranges.places(ranges.union(layout(host))).tolist()
    assert plan.blocks == [layout(host)]
    filled = [place for part in plan.parts[0] for _, own in part for place in range(*own)]
    assert filled == plan.places.tolist()


@layouts
@pytest.mark.parametrize("host", SEVERAL)
def test_a_host_reads_its_partners_as_well_and_keeps_no_plan_of_them(layout, host):
    order = order_of()
    planner = pipeline_of(order, layout(host), mixed=True)
    own = ranges.places(ranges.union(layout(host)))
    seen = set()
    planner.plan(order.span(0))
    tracemalloc.start()
    try:
        for step in range(100):
            plan = planner.plan(order.span(order.position_of(step)))
            assert np.isin(own, plan.places).all()
            assert 32 < len(plan.places) <= 64
            seen.add(hash(plan.places.tobytes()))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Other partners in every batch.
    assert len(seen) > 90
    assert peak < 100_000
    assert kept < 50_000


@layouts
@kinds
def test_how_long_a_host_takes(layout, kind):
    """Print the times without a check: they depend on the load of the machine."""
    order = order_of(kind)
    plans = {mixed: pipeline_of(order, layout(511), mixed=mixed) for mixed in (False, True)}
    spans = [order.span(order.position_of(step)) for step in range(10**6, 10**6 + 200)]

    def milliseconds(work):
        work(spans[0])
        times = []
        for span in spans[1:]:
            began = time.perf_counter()
            work(span)
            times.append(time.perf_counter() - began)
        return np.median(times) * 1e3

    rows = milliseconds(lambda span: rows_of_host(order, span, layout, 511))
    plain, partners = (milliseconds(plans[mixed].plan) for mixed in (False, True))
    times = f"rows {rows:.4f} ms, plan {plain:.4f} ms, with MixUp {partners:.4f} ms"
    print(f"{kind}, {layout.__name__}: {times}")  # noqa: T201
    assert len(rows_of_host(order, spans[0], layout, 511)) == DEVICES * PER_DEVICE
