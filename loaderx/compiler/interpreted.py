"""Ops in plain Python, sample by sample: where a user looks for a mistake, NumPy checks every index.

What moves or scales pixels by the library's own kernels stays compiled, for there is nothing of the user's in it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.kernels import blending, points
from loaderx.kernels.draws import Draws
from loaderx.kernels.pixels import store_values
from loaderx.kernels.random import fold
from loaderx.sources.located import located_in
from loaderx.spec import Spec
from loaderx.transforms.combinators import Blend, Branching, Rounds, Sequence, pick
from loaderx.transforms.points import PointsTransform
from loaderx.transforms.transform import MapTransform, SampleTransform, image_shape

from .draft import Step
from .driver import Driver
from .passes import branch_steps

Array = NDArray[Any]
# (sample, position, how much of it is data, turns of the policies around) -> sample
Call = Callable[[Array, int, int, tuple[int, ...]], Array]


def interpreted(step: Step, spec: Spec) -> Call:
    """A step as a function of one sample of `spec`."""
    op = step.transform
    if isinstance(op, Sequence):
        return _in_sequence(branch_steps(step, op, 0), spec)
    if isinstance(op, Branching):
        branches = [
            _in_sequence(branch_steps(step, branch, number), spec)
            for number, branch in enumerate(op.branches)
        ]
        return _chosen(step, op, branches, spec)
    if isinstance(op, PointsTransform):
        return _moved(step, op)
    if isinstance(op, SampleTransform):
        return _called(step, op, spec)
    return _driven(step, spec)


def draws(key: int, position: int, turns: tuple[int, ...]) -> Draws:
    """`rng` of an op for a sample."""
    return Draws(fold(_key(key, turns), np.uint64(position)))


def _key(key: int, turns: tuple[int, ...]) -> np.uint64:
    for turn in turns:
        key = fold(np.uint64(key), np.uint64(turn))
    return np.uint64(key)


def _in_sequence(steps: list[Step], spec: Spec) -> Call:
    calls = []
    for step in steps:
        calls.append(interpreted(step, spec))
        spec = step.transform.output(spec)

    def call(x: Array, position: int, length: int, turns: tuple[int, ...]) -> Array:
        for each in calls:
            x = each(x, position, length, turns)
        return x

    return call


def _chosen(step: Step, op: Branching, branches: list[Call], spec: Spec) -> Call:
    def call(x: Array, position: int, length: int, turns: tuple[int, ...]) -> Array:
        rng = draws(step.key, position, turns)
        if isinstance(op, Rounds):
            for turn in range(op.number):
                x = branches[pick(rng, op.shares)](x, position, length, (*turns, turn))
            return x
        if not isinstance(op, Blend):
            chosen = branches[int(pick(rng, op.shares))]
            return chosen(x, position, length, turns)
        shares = np.empty(op.width + 1, np.float32)
        total = np.empty(spec.size, np.float32)
        blending.draw_shares(rng, op.alpha, shares)
        blending.add_share(x.reshape(-1), shares, 0, total)
        for chain in range(op.width):
            made = x.copy()
            for turn in range(rng.integers(op.depth[0], op.depth[1] + 1)):
                made = branches[pick(rng, op.shares)](made, position, length, (*turns, chain, turn))
            blending.add_share(made.reshape(-1), shares, chain + 1, total)
        result = np.empty_like(x)
        store_values(total, result.reshape(-1))
        return result

    return call


def _called(step: Step, op: SampleTransform, spec: Spec) -> Call:
    output = op.output(spec)
    # As NumPy scalars: see Draws.
    parameters = [
        value if isinstance(value, np.ndarray | bool) else np.asarray(value)[()]
        for value in op.parameters(spec).values()
    ]

    def call(x: Array, position: int, length: int, turns: tuple[int, ...]) -> Array:
        x = np.atleast_1d(x)
        out = x if op.in_place else np.empty(output.shape or (1,), output.dtype)
        given: list[Any] = [x] if op.in_place else [x, out]
        if op.takes_length:
            given.append(min(length, step.most, spec.shape[0]))
        given += [draws(step.key, position, turns)] if op.takes_rng else []
        # Zeros: loops over whole blocks pass the end of a sample, and NumPy would warn of what lies there.
        spaces = [np.zeros(space.shape, space.dtype) for space in op.workspaces(spec)]
        op.function(*given, *parameters, *spaces)
        return out.reshape(output.shape)

    return call


def _moved(step: Step, op: PointsTransform) -> Call:
    sizes = (*image_shape(op.image, op.name)[:2], *image_shape(op.result, op.name)[:2])

    def call(x: Array, position: int, _: int, turns: tuple[int, ...]) -> Array:
        mover = op.op
        found = mover.function(draws(step.key, position, turns), *sizes, *mover.parameters())
        if isinstance(mover, MapTransform):
            points.map_points(x, tuple(map(float, found)), *sizes[2:])
        else:
            top, tall, upside, left, wide, mirrored = found
            points.window_points(
                x, int(top), int(tall), bool(upside), int(left), int(wide), bool(mirrored), *sizes[2:]
            )  # fmt: skip
        return x

    return call


def _driven(step: Step, spec: Spec) -> Call:
    driver = Driver([step], spec)

    def call(x: Array, position: int, _: int, turns: tuple[int, ...]) -> Array:
        rows = np.ascontiguousarray(x)[None]
        out = np.empty((1, *driver.output.shape), driver.output.dtype)
        keys = np.array([_key(step.key, turns)], np.uint64)
        driver.run(np.array([position], np.int64), located_in(rows), out, keys)
        result: Array = out[0]
        return result

    return call
