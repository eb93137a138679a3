"""Sequences of skeletons: float32 samples of shape (channels, frames, joints, persons), 3 x 300 x 25 x 2 in NTU RGB+D.

A person whose joints are all 0 in a frame is absent there, and a frame without persons is padding. All ops leave both
at 0: rotation, scaling, shear and mirroring keep zeros, and the other ops check for them.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.kernels.distributions import next_bits
from loaderx.kernels.normals import fill_normals
from loaderx.spec import Spec

from .amounts import Amount, Amounts, Choice, amounts, draw_amount, factors, spread
from .base import Parameter, Transform, between, is_integer
from .image import Identity
from .sample import SampleTransform

# (left, right) of the 25 joints of Kinect v2 in NTU RGB+D: shoulder, elbow, wrist, hand, hip, knee, ankle, foot, tip of
# the hand, thumb.
NTU_PAIRS = (
    *((4, 8), (5, 9), (6, 10), (7, 11)),
    *((12, 16), (13, 17), (14, 18), (15, 19)),
    *((21, 23), (22, 24)),
)


class SkeletonTransform(SampleTransform):
    """Op on the joints of a sequence, in place; labels that follow it stay as they are."""

    in_place = True
    takes_rng = True
    # Whether the channels must be x, y and z.
    three_axes = False

    def __init__(self, **parameters: Parameter) -> None:
        self._parameters = parameters

    def output(self, spec: Spec) -> Spec:
        if len(spec.shape) != 4 or 0 in spec.shape or spec.dtype != np.float32:
            raise ArgumentError(
                f"{self.name} accepts float32 samples of shape (channels, frames, joints, persons), not {spec}."
            )
        if self.three_axes and spec.shape[0] != 3:
            raise ArgumentError(f"{self.name} accepts the 3 channels x, y and z, not {spec}.")
        return spec

    def for_labels(self) -> Transform:
        return Identity()

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return self._parameters


@jitable
def is_present(x: Any, frame: int, person: int) -> Any:
    """Return whether a joint of a person is not at 0."""
    for c in range(x.shape[0]):
        for joint in range(x.shape[2]):
            if x[c, frame, joint, person] != 0:
                return True
    return False


@jitable
def is_padding(x: Any, frame: int) -> Any:
    """Return whether nobody is present in a frame."""
    nobody = True
    for person in range(x.shape[3]):
        nobody = nobody and not is_present(x, frame, person)
    return nobody


@jitable
def map_points(
    x: Any,
    xx: Any, xy: Any, xz: Any,
    yx: Any, yy: Any, yz: Any,
    zx: Any, zy: Any, zz: Any,
) -> None:  # fmt: skip
    """Multiply every point by the matrix, given row by row."""
    xx, xy, xz = np.float32(xx), np.float32(xy), np.float32(xz)
    yx, yy, yz = np.float32(yx), np.float32(yy), np.float32(yz)
    zx, zy, zz = np.float32(zx), np.float32(zy), np.float32(zz)
    first, second, third = x[0].reshape(-1), x[1].reshape(-1), x[2].reshape(-1)
    for k in range(first.shape[0]):
        a, b, c = first[k], second[k], third[k]
        first[k] = xx * a + xy * b + xz * c
        second[k] = yx * a + yy * b + yz * c
        third[k] = zx * a + zy * b + zz * c


def skeleton_rotate(x: Any, rng: Any, x_degrees: Any, y_degrees: Any, z_degrees: Any) -> None:
    """Rotate about the x axis, then the y axis, then the z axis."""
    about_x = math.radians(draw_amount(rng, x_degrees))
    about_y = math.radians(draw_amount(rng, y_degrees))
    about_z = math.radians(draw_amount(rng, z_degrees))
    if about_x == 0 and about_y == 0 and about_z == 0:
        return
    cx, sx = math.cos(about_x), math.sin(about_x)
    cy, sy = math.cos(about_y), math.sin(about_y)
    cz, sz = math.cos(about_z), math.sin(about_z)
    map_points(
        x,
        cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx,
        sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx,
        -sy, cy * sx, cy * cx,
    )  # fmt: skip


class SkeletonRotate(SkeletonTransform):
    """Rotation around the origin by one angle about each axis: x, then y, then z, all frames and persons alike.

    `degrees` are three amounts, (x, y, z), or one for all axes; a number is the range from its negative to it.
    """

    function = staticmethod(skeleton_rotate)
    three_axes = True

    def __init__(
        self, degrees: float | Choice | Sequence[Amount] = 30.0, *, probability: float = 1.0
    ) -> None:
        several = isinstance(degrees, tuple | list | np.ndarray)
        given: Any = degrees if several else (degrees,) * 3
        if len(given) != 3:
            raise ArgumentError(
                f"`degrees` (={degrees!r}) must be three amounts, for x, y and z, or one number for all of them."
            )
        about: list[Amounts] = [spread("degrees", amount) for amount in given]
        super().__init__(x_degrees=about[0], y_degrees=about[1], z_degrees=about[2])
        self.happens_with(probability)


def skeleton_scale(x: Any, rng: Any, amount: Any) -> None:
    """Multiply every axis by its own factor."""
    for c in range(x.shape[0]):
        factor = np.float32(draw_amount(rng, amount))
        plane = x[c].reshape(-1)
        for k in range(plane.shape[0]):
            plane[k] *= factor


class SkeletonScale(SkeletonTransform):
    """Scaling of every channel by its own factor, from 1 - amount to 1 + amount for a number."""

    function = staticmethod(skeleton_scale)

    def __init__(self, amount: Amount = 0.1, *, probability: float = 1.0) -> None:
        super().__init__(amount=factors("amount", amount))
        self.happens_with(probability)


def skeleton_shear(x: Any, rng: Any, amount: Any) -> None:
    """Add shares of the two other axes to every axis."""
    xy, xz = draw_amount(rng, amount), draw_amount(rng, amount)
    yx, yz = draw_amount(rng, amount), draw_amount(rng, amount)
    zx, zy = draw_amount(rng, amount), draw_amount(rng, amount)
    if xy == 0 and xz == 0 and yx == 0 and yz == 0 and zx == 0 and zy == 0:
        return
    map_points(x, 1.0, xy, xz, yx, 1.0, yz, zx, zy, 1.0)


class SkeletonShear(SkeletonTransform):
    """Shear: every point times a matrix with ones on the diagonal and numbers from -amount to amount elsewhere."""

    function = staticmethod(skeleton_shear)
    three_axes = True

    def __init__(self, amount: Amount = 0.5, *, probability: float = 1.0) -> None:
        super().__init__(amount=spread("amount", amount))
        self.happens_with(probability)


def joint_jitter(x: Any, rng: Any, std: Any, noise: Any, sizes: Any) -> None:
    """Add noise to joints of persons who are present."""
    deviation = np.float32(draw_amount(rng, std))
    if deviation == 0:
        return
    fill_normals(next_bits(rng), noise)
    channels, frames, joints, persons = x.shape
    lines, changes = x.reshape(channels, frames, -1), noise.reshape(channels, frames, -1)
    line = sizes.reshape(-1)
    for t in range(frames):
        for person in range(persons):
            size = deviation if is_present(x, t, person) else np.float32(0)
            for joint in range(joints):
                sizes[joint, person] = size
        for c in range(channels):
            for k in range(line.shape[0]):
                lines[c, t, k] += changes[c, t, k] * line[k]


class JointJitter(SkeletonTransform):
    """Gaussian noise of deviation `std` on every coordinate; absent persons and padding stay 0."""

    function = staticmethod(joint_jitter)

    def __init__(self, std: Amount = 0.01, *, probability: float = 1.0) -> None:
        super().__init__(std=amounts("std", std, 0))
        self.happens_with(probability)

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return Spec((spec.size,), np.float32), Spec(spec.shape[2:], np.float32)


def joint_drop(x: Any, rng: Any, probability: float) -> None:
    """Set joints to 0."""
    channels, frames, joints, persons = x.shape
    for joint in range(joints):
        if rng.random() < probability:
            for c in range(channels):
                for t in range(frames):
                    for person in range(persons):
                        x[c, t, joint, person] = np.float32(0)


class JointDrop(SkeletonTransform):
    """Joint dropout: each joint becomes 0 with `probability`, in all frames and of all persons."""

    function = staticmethod(joint_drop)

    def __init__(self, probability: float = 0.1) -> None:
        super().__init__(probability=between("probability", probability, 0, 1))


def frame_drop(x: Any, rng: Any, probability: float, repeat: bool) -> None:
    """Set frames to 0, or to the frame before."""
    channels, frames, joints, persons = x.shape
    lines = x.reshape(channels, frames, -1)
    for t in range(frames):
        # Drawn for padding too, so that the other frames do not depend on it.
        if rng.random() >= probability or (repeat and (t == 0 or is_padding(x, t))):
            continue
        for c in range(channels):
            for k in range(joints * persons):
                lines[c, t, k] = lines[c, t - 1, k] if repeat else np.float32(0)


class FrameDrop(SkeletonTransform):
    """Frame dropout: each frame becomes 0 with `probability`, or the frame before it with replace="repeat".

    Frames that are repeated in a row are the last one that was not. The first frame has none before it and stays, and
    so does padding.
    """

    function = staticmethod(frame_drop)

    def __init__(
        self, probability: float = 0.1, *, replace: Literal["zero", "repeat"] = "zero"
    ) -> None:
        if replace not in ("zero", "repeat"):
            raise ArgumentError(f'`replace` (={replace!r}) must be "zero" or "repeat".')
        super().__init__(
            probability=between("probability", probability, 0, 1), repeat=replace == "repeat"
        )


def temporal_crop(x: Any, out: Any, rng: Any, ratio: Any, present: Any, shares: Any) -> None:
    """Scale a stretch of frames to all frames of `out`."""
    channels, frames, joints, persons = x.shape
    steps = out.shape[1]
    first, stop = frames, 0
    for t in range(frames):
        for person in range(persons):
            present[t, person] = is_present(x, t, person)
            if present[t, person]:
                first, stop = min(first, t), t + 1
    # Without persons all stretches are the same.
    valid = max(stop - first, 1)
    first = min(first, frames - 1)
    extent = max(1, round(draw_amount(rng, ratio) * valid))
    first += rng.integers(0, valid - extent + 1)
    source, target = x.reshape(channels, frames, -1), out.reshape(channels, steps, -1)
    pace = extent / steps
    for i in range(steps):
        place = min(max((i + 0.5) * pace - 0.5, 0.0), extent - 1.0)
        whole = int(place)
        share = place - whole
        low = first + whole
        high = low + 1 if share > 0 else low
        for person in range(persons):
            # Half way to an absent person would be a person of half the size.
            taken = (
                share if present[low, person] == present[high, person] else np.floor(share + 0.5)
            )
            for joint in range(joints):
                shares[joint, person] = np.float32(taken)
        line = shares.reshape(-1)
        for c in range(channels):
            for k in range(line.shape[0]):
                target[c, i, k] = (
                    source[c, low, k] * (np.float32(1) - line[k]) + source[c, high, k] * line[k]
                )


class TemporalCrop(SkeletonTransform):
    """Random stretch of `ratio` of the frames, scaled linearly to `length` frames, as many as before if None.

    It is taken from the first to the last frame that are not padding, so no padding is left, unless all was padding.
    The place of a frame is its middle, as of a pixel in Resize. A person who is absent in one of the two frames that a
    new one is between is as in the nearer of them.
    """

    function = staticmethod(temporal_crop)
    in_place = False

    def __init__(
        self, ratio: Amount = (0.5, 1.0), length: int | None = None, *, probability: float = 1.0
    ) -> None:
        if length is not None and not is_integer(length, 1):
            raise ArgumentError(
                f"`length` (={length!r}) must be an integer of at least 1, or None."
            )
        self._length = None if length is None else int(length)
        super().__init__(ratio=amounts("ratio", ratio, 0, 1))
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        channels, frames, joints, persons = super().output(spec).shape
        return Spec((channels, self._length or frames, joints, persons), spec.dtype)

    def for_labels(self) -> Transform:
        # Labels of frames would have to be cut where these frames are, which they do not know.
        return self

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        _, frames, joints, persons = spec.shape
        return Spec((frames, persons), np.bool_), Spec((joints, persons), np.float32)


def left_right_flip(x: Any, rng: Any, pairs: Any, probability: float) -> None:
    """Mirror left and right, or not."""
    if rng.random() >= probability:
        return
    plane = x[0].reshape(-1)
    for k in range(plane.shape[0]):
        # Not -x: for absent persons that would be -0.
        plane[k] = np.float32(0) - plane[k]
    channels, frames, _, persons = x.shape
    for c in range(channels):
        for t in range(frames):
            frame = x[c, t]
            for number in range(pairs.shape[0]):
                left, right = pairs[number, 0], pairs[number, 1]
                for person in range(persons):
                    value = frame[left, person]
                    frame[left, person] = frame[right, person]
                    frame[right, person] = value


class LeftRightFlip(SkeletonTransform):
    """Mirroring left to right, with `probability`: x, the first channel, negated and the joints of `pairs` exchanged.

    `pairs` are the numbers of joints, (left, right), from 0; `NTU_PAIRS` are those of NTU RGB+D.
    """

    function = staticmethod(left_right_flip)

    def __init__(self, pairs: Sequence[tuple[int, int]], probability: float = 0.5) -> None:
        given: Any = pairs
        try:
            listed = [tuple(pair) for pair in given]
        except TypeError:
            listed = [()]
        joints = [joint for pair in listed for joint in pair]
        good = all(len(pair) == 2 for pair in listed) and all(is_integer(j, 0) for j in joints)
        if not good or len(set(joints)) < len(joints):
            raise ArgumentError(
                f"`pairs` (={pairs!r}) must be pairs of joints, integers of at least 0, each of them once."
            )
        self._last = max(joints, default=0)
        super().__init__(
            pairs=np.array(listed, np.int64).reshape(-1, 2),
            probability=between("probability", probability, 0, 1),
        )

    def output(self, spec: Spec) -> Spec:
        joints = super().output(spec).shape[2]
        if self._last >= joints:
            raise ArgumentError(
                f"{self.name}: the joints of `pairs` must be below {joints}, not {self._last}; the input is {spec}."
            )
        return spec


def center_on_joint(x: Any, joint: int, frame: int, centre: Any, present: Any) -> None:
    """Subtract one joint."""
    channels, frames, joints, persons = x.shape
    lines, flags = x.reshape(channels, frames, -1), present.reshape(-1)
    if frame >= 0:
        if not is_present(x, frame, 0):
            return
        for c in range(channels):
            centre[c] = x[c, frame, joint, 0]
    for t in range(frames):
        if frame < 0:
            if not is_present(x, t, 0):
                continue
            for c in range(channels):
                centre[c] = x[c, t, joint, 0]
        for person in range(persons):
            flag = np.float32(1) if is_present(x, t, person) else np.float32(0)
            for number in range(joints):
                present[number, person] = flag
        for c in range(channels):
            away = centre[c]
            for k in range(flags.shape[0]):
                lines[c, t, k] -= away * flags[k]


class CenterOnJoint(SkeletonTransform):
    """Centring on a `joint` of the first person: of the same frame, or of one `frame` for all of them.

    Absent persons and padding stay 0. Where the first person is absent there is no centre, and the frame stays as it
    is, or the sequence if it is that `frame`.
    """

    function = staticmethod(center_on_joint)
    takes_rng = False

    def __init__(self, joint: int, frame: int | None = None, *, probability: float = 1.0) -> None:
        if not is_integer(joint, 0):
            raise ArgumentError(f"`joint` (={joint!r}) must be an integer of at least 0.")
        if frame is not None and not is_integer(frame, 0):
            raise ArgumentError(f"`frame` (={frame!r}) must be an integer of at least 0, or None.")
        self._joint, self._frame = int(joint), -1 if frame is None else int(frame)
        super().__init__(joint=self._joint, frame=self._frame)
        self.happens_with(probability)

    def output(self, spec: Spec) -> Spec:
        _, frames, joints, _ = super().output(spec).shape
        for name, value, count in (("joint", self._joint, joints), ("frame", self._frame, frames)):
            if value >= count:
                raise ArgumentError(
                    f"{self.name}: `{name}` (={value}) must be below {count}; the input is {spec}."
                )
        return spec

    def workspaces(self, spec: Spec) -> tuple[Spec, ...]:
        return Spec(spec.shape[:1], np.float32), Spec(spec.shape[2:], np.float32)
