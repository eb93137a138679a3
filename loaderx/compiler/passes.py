"""Which steps of a chain run as one pass, and which leave a sample where it lies."""

from collections.abc import Sequence

from loaderx.kernels import windows
from loaderx.kernels.random import BRANCH
from loaderx.shuffle import derive
from loaderx.spec import Spec
from loaderx.transforms.combinators import Blend, Branching, Rounds
from loaderx.transforms.combinators import Sequence as OpSequence
from loaderx.transforms.points import PointsTransform
from loaderx.transforms.transform import (
    SampleTransform,
    ScaleTransform,
    Transform,
    WindowTransform,
    image_shape,
)

from .draft import HALVES, Step


def passes(steps: Sequence[Step], spec: Spec) -> list[list[Step]]:
    """Which steps run as one pass: windows in a row, and a scaling that follows them."""
    groups: list[list[Step]] = []
    mixed = False
    # The colour that the windows so far may show; one pass has one.
    fill: float | None = None
    for step in steps:
        op = step.transform
        last = groups[-1][-1].transform if groups else None
        joins = False
        if isinstance(op, WindowTransform):
            blends = op.interpolation == "bilinear" and not step.follows
            shown = op.fill if op.interpolation is None and op.border == windows.FILL else None
            joins = isinstance(last, WindowTransform) and not (
                (op.interpolation is not None and mixed)
                or (blends and fill is not None)
                or (shown is not None and fill is not None and shown != fill)
            )
            mixed = blends or (joins and mixed)
            fill = shown if shown is not None else fill if joins else None
        elif isinstance(op, ScaleTransform):
            joins = (
                isinstance(last, WindowTransform)
                and str(op.dtype) not in HALVES
                and not op.channels_first
                # (height, width) is one channel to a window, and `width` channels to a scaling.
                and len(op.scale_and_bias(spec)[0]) in (1, image_shape(spec, op.name)[2])
            )
        if joins:
            groups[-1].append(step)
        else:
            groups.append([step])
        spec = op.output(spec)
    return groups


def flattened(steps: Sequence[Step]) -> list[Step]:
    """Steps without sequences among them, so that a pass may go across the ends of these."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step.transform, OpSequence):
            found += flattened(branch_steps(step, step.transform, 0))
        else:
            found.append(step)
    return found


def branch_steps(step: Step, branch: OpSequence, number: int) -> list[Step]:
    """The steps of branch `number` of a step, with keys of their own."""
    return [
        Step(op, derive(step.key, BRANCH, number, place), step.follows, step.most)
        for place, op in enumerate(branch.ops)
    ]


def works_in_place(op: Transform) -> bool:
    """Whether an op leaves its result where it found the sample."""
    if isinstance(op, SampleTransform):
        return op.in_place
    if isinstance(op, OpSequence):
        return all(map(works_in_place, op.ops))
    if isinstance(op, Rounds | Blend):
        return True
    if isinstance(op, Branching):
        return all(map(works_in_place, op.branches))
    return isinstance(op, PointsTransform)
