"""Chain of the ops of one field, divided into segments at Python functions and into phases where samples are mixed."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.errors import TransformError, annotate
from loaderx.kernels.distributions import Draws
from loaderx.kernels.random import fold
from loaderx.sources.row_addresses import RowAddresses, addresses_of_rows
from loaderx.spec import Spec
from loaderx.transforms.base import Transform
from loaderx.transforms.mix import Mixing
from loaderx.transforms.step import Call, Step

from .head import Head
from .points_head import PointsHead
from .program import Program

Array = NDArray[Any]
Positions = NDArray[np.int64]
# A user's code is run on the first row of the data with bounds checks, at up to so many positions: an index may depend
# on random draws.
POSITIONS_CHECKED = 8
# Code that takes longer is not run at more positions.
CHECKING_SECONDS = 0.25
# Bytes that fill `out` before a checking run, to find elements that are not written.
MARKS = (0x55, 0xAA)


class CompiledSegment:
    """Successive ops that are one table of compiled passes."""

    def __init__(self, steps: Sequence[Step], spec: Spec) -> None:
        self.program = Program(steps, spec)
        self.output = self.program.output
        self._steps = steps
        # Ops that are a user's code.
        self.authored: list[Transform] = []
        for step in steps:
            self.authored += [op for op, _, _ in step.transform.leaves(spec) if op.checked]
            spec = step.transform.output(spec)

    def run(
        self,
        positions: Positions,
        located: RowAddresses,
        samples: Array | None,
        out: Array,
        threads: int | None = 1,
    ) -> None:
        self.program.run(positions, located, out, threads=threads)

    def check(self, sample: Array, boxes: Array | None) -> None:
        """Raise if a user's code has an index out of bounds, or does not write all of `out`, for this sample."""
        located = addresses_of_rows(sample[None], boxes=boxes)
        work = self.program.work
        program = Program(self._steps, self.program.input, checking=True, work=work)
        marked = [np.empty((1, *self.output.shape), self.output.dtype) for _ in MARKS]
        began = time.perf_counter()
        for position in range(POSITIONS_CHECKED):
            if time.perf_counter() - began > CHECKING_SECONDS:
                return
            for mark, out in zip(MARKS, marked, strict=True):
                try:
                    program.run(np.array([position]), located, out, mark=mark)
                except IndexError as error:
                    names = " or ".join(dict.fromkeys(repr(op.name) for op in self.authored))
                    raise TransformError(
                        f"transform {names} reads or writes outside of an array ({error}), at the first row of the "
                        f"data, {Spec(sample.shape, sample.dtype)}. Call it on one sample with "
                        "`.py(sample, np.random.default_rng(0), ...)` to see the line."
                    ) from error
                except Exception:  # noqa: BLE001 - an error of a user's code is raised at its step
                    return
            if marked[0].tobytes() != marked[1].tobytes():
                fill = [op for op in self.authored if not op.in_place]
                names = " or ".join(dict.fromkeys(repr(op.name) for op in fill or self.authored))
                raise TransformError(
                    f"transform {names} leaves a part of `out` unwritten at the first row of the data; stale memory "
                    "would be delivered. Write every element of `out`."
                    if fill
                    else f"transform {names} returned two results for the same sample and the same draws. It must not "
                    "read memory that it has not written: use np.zeros instead of np.empty."
                )


class PythonSegment:
    """Python function called per sample under the GIL: a user's callable, or any op in debug mode."""

    def __init__(self, name: str, call: Call, output: Spec) -> None:
        self.name = name
        self._call = call
        self.output = output

    def run(
        self,
        positions: Positions,
        located: RowAddresses,
        samples: Array | None,
        out: Array,
        threads: int | None = 1,
    ) -> None:
        assert samples is not None
        lengths = located.lengths
        for place, sample in enumerate(samples):
            length = sys.maxsize if lengths is None else int(lengths[place])
            try:
                result = np.asarray(self._call(np.array(sample), int(positions[place]), length, ()))
            except Exception as error:
                annotate(error, "in transform", f"{self.name!r}, at sample {place} of these")
                raise
            alike = np.can_cast(result.dtype, self.output.dtype, "same_kind")
            if result.shape != self.output.shape or not alike:
                raise TransformError(
                    f"{self.name} returned {Spec(result.shape, result.dtype)}, and {self.output} for the first "
                    "sample; it must return the same shape and dtype for all samples."
                )
            out[place, ...] = result


@dataclass
class Phase:
    """Phase of a chain: at most one op that mixes samples, and then segments that process each sample by itself."""

    mixing: Mixing | None
    key: np.uint64
    segments: list[CompiledSegment | PythonSegment]
    output: Spec
    # The field with the masks of objects that the mixing reads.
    masks: str | None = None


class Chain:
    """Chain of all ops of one field. A phase begins when every sample of the batch has finished the one before."""

    def __init__(self, spec: Spec, first_sample: Callable[[], Array], origin: str = "data") -> None:
        self.input = spec
        # Name of the field of the data that it is made from.
        self.origin = origin
        # Spec after the ops so far.
        self.output = spec
        self.phases: list[Phase] = [Phase(None, np.uint64(0), [], spec)]
        self.steps: list[Step] = []
        self.first_sample = first_sample
        # Numbers of channels that images may have, besides the usual ones.
        self.channels: tuple[int, ...] = ()
        # Field with the length of a sample, which tells data from padding, and the maximum length after the ops so far.
        self.length: str | None = None
        self.most = spec.shape[0] if spec.shape else sys.maxsize
        # Field with the boxes of a sample, if an op reads them, and its first row.
        self.boxes: str | None = None
        self.first_boxes: Callable[[], Array] | None = None
        # The head of their chain, if they follow encoded images: it makes the boxes that the op reads.
        self.boxes_head: PointsHead | None = None
        # Steps that `compile` turns into a segment, and the spec before them.
        self._uncompiled: list[Step] = []
        self._start = spec
        # Windows that decode images, if the field has encoded ones, or that move points next to these. The chain begins
        # with their results.
        self.head: Head | PointsHead | None = None
        self._debug = os.environ.get("LOADERX_DEBUG") == "1"

    def add_to_head(self, step: Step) -> None:
        """Add a window to the head, whose samples are the input of the chain."""
        assert self.head is not None
        self.head.add(step)
        self._begin_after(self.head)

    def begin_with(self, head: PointsHead) -> None:
        """Let a chain without ops begin with the points that a head has moved."""
        assert not self.steps
        self.head, self.first_sample = head, head.first_sample
        self._begin_after(head)

    def _begin_after(self, head: Head | PointsHead) -> None:
        spec = head.output
        self.input = self.output = self._start = self.phases[0].output = spec
        self.most = spec.shape[0]

    @property
    def is_open(self) -> bool:
        """True if the head has images of any sizes so far."""
        return isinstance(self.head, Head) and self.head.open

    def add(self, step: Step) -> None:
        """Add an op."""
        self.steps.append(step)
        step.transform.add_to(self, step)

    def add_pass(self, step: Step) -> None:
        """Add an op that is compiled, or called in Python in debug mode."""
        output = step.transform.output(self.output)
        # Only compiled code has the addresses of the boxes of a sample.
        if self._debug and not (step.transform.stays_compiled or step.boxes is not None):
            call = step.transform.interpret(step, self.output, compiled_call)
            self.add_python(step.transform.name, call, output)
            return
        if not self._uncompiled:
            self._start = self.output
        self._uncompiled.append(step)
        self.output = output

    def add_python(self, name: str, call: Call, output: Spec) -> None:
        """Add a function that is called once per sample."""
        self._append(PythonSegment(name, call, output))

    def begin_phase(self, mixing: Mixing, key: int) -> None:
        """Add an op that mixes samples, so that it needs all samples of the batch."""
        self.compile()
        objects = mixing.objects
        while objects is not None and len(self.phases) < objects.phase:
            self.phases.append(Phase(None, np.uint64(0), [], self.output))
        self.output = mixing.output
        masks = None if objects is None else objects.field
        self.phases.append(Phase(mixing, np.uint64(key), [], self.output, masks))

    def compile(self) -> None:
        """Compile the ops that were added since the last segment."""
        if self._uncompiled:
            steps, self._uncompiled = self._uncompiled, []
            segment = CompiledSegment(steps, self._start)
            sample = None
            if segment.authored:
                with suppress(Exception):  # a row that cannot be read is reported at its step
                    sample = self._sample(self._start)
            if sample is not None:
                segment.check(sample, self.boxes_of_first(1))
            self._append(segment)

    def _append(self, segment: "CompiledSegment | PythonSegment") -> None:
        self.compile()
        self.phases[-1].segments.append(segment)
        self.phases[-1].output = self.output = segment.output

    def run(
        self,
        phase: int,
        place: int,
        batch: int,
        positions: Positions,
        located: RowAddresses,
        samples: Array | None,
        out: Array,
        threads: int | None = 1,
        masks: Array | None = None,
    ) -> None:
        """Run samples through a phase into `out`, compiled ops on at most `threads` threads.

        In phase 0 `samples` are these samples if they are in an array, and None if only their addresses are known. In a
        later phase `samples` are all samples of the batch, of which out[0] is at `place`, and `masks` the masks of
        objects of all samples, if the phase reads them. A `batch` is identified by the position of its first sample.
        """
        current = self.phases[phase]
        count = len(positions)
        if current.mixing is None:
            if phase > 0 and samples is not None:
                samples = samples[place : place + count]
            if not current.segments:
                assert samples is not None
                out[...] = samples
        else:
            assert samples is not None
            mixing = current.mixing
            mixed = mixing.output
            target = np.empty((count, *mixed.shape), mixed.dtype) if current.segments else out
            partners = partners_of(
                place, count, len(samples), current.key, batch, number=mixing.partners
            )
            whole, objects = _flat(samples), None if masks is None else _flat(masks)
            mixing.mixer(place, positions, partners, current.key, whole, objects, _flat(target))
            samples, located = target, addresses_of_rows(target, located.lengths, located.boxes)
        for segment in current.segments:
            last = segment is current.segments[-1]
            spec = segment.output
            target = out if last else np.empty((count, *spec.shape), spec.dtype)
            segment.run(positions, located, samples, target, threads)
            if not last:
                samples, located = target, addresses_of_rows(target, located.lengths, located.boxes)

    def partner_steps(self, phase: int, size: int, batch: int) -> tuple[int, ...]:
        """Return the distances in places from a sample to its partners in a phase, in a batch of `size`."""
        current = self.phases[phase]
        if current.mixing is None:
            return ()
        return steps_to_partners(size, current.key, batch, current.mixing.partners)

    def first_masks(self, phase: int, count: int) -> Array | None:
        """Return made-up masks, `count` times an image that is one object, if a phase reads masks."""
        mixing = self.phases[phase].mixing
        if mixing is None or mixing.objects is None:
            return None
        spec = mixing.objects.spec
        return np.ones((count, *spec.shape), spec.dtype)

    @property
    def channels_first(self) -> bool:
        """True if an op so far put the channels of an image first."""
        return any(step.transform.channels_first for step in self.steps)

    @property
    def compiled(self) -> bool:
        """True if no op runs in Python."""
        return not any(
            isinstance(segment, PythonSegment)
            for phase in self.phases
            for segment in phase.segments
        )

    @property
    def needs_samples(self) -> bool:
        """True if the first op reads samples from an array, not by their addresses."""
        segments = self.phases[0].segments
        return bool(segments) and isinstance(segments[0], PythonSegment)

    def boxes_of_first(self, count: int) -> Array | None:
        """Return the boxes of the first row of the data, `count` times; None if no op reads them."""
        if self.first_boxes is None:
            return None
        first = np.asarray(self.first_boxes())
        return np.ascontiguousarray(np.broadcast_to(first, (count, *first.shape)))

    def sample_so_far(self) -> Array:
        """Return the first row of the data after the ops so far; zeros if one of them mixes samples."""
        self.compile()
        return self._sample(self.output)

    def _sample(self, spec: Spec) -> Array:
        if len(self.phases) > 1:
            return np.zeros(spec.shape, spec.dtype)
        rows = np.ascontiguousarray(np.asarray(self.first_sample(), self.input.dtype)[None])
        nothing = np.zeros(1, np.int64)
        for segment in self.phases[0].segments:
            out = np.empty((1, *segment.output.shape), segment.output.dtype)
            segment.run(nothing, addresses_of_rows(rows, boxes=self.boxes_of_first(1)), rows, out)
            rows = out
        sample: Array = rows[0]
        return sample


def compiled_call(step: Step, spec: Spec) -> Call:
    """Return a compiled step as a function of one sample."""
    program = Program([step], spec)

    def call(x: Array, position: int, _: int, turns: tuple[int, ...]) -> Array:
        rows = np.ascontiguousarray(x)[None]
        out = np.empty((1, *program.output.shape), program.output.dtype)
        key = step.turned_key(turns)
        program.run(np.array([position], np.int64), addresses_of_rows(rows), out, key=key)
        result: Array = out[0]
        return result

    return call


def partners_of(
    place: int, count: int, size: int, key: np.uint64, batch: int, *, number: int = 1
) -> Positions:
    """Return the places of the partners, `number` each, that samples from `place` on are mixed with.

    Partners are random rotations of the batch, the same for all samples. partners[k] are the places of the k-th ones.
    """
    steps = np.array(steps_to_partners(size, key, batch, number), np.int64)
    return (np.arange(place, place + count, dtype=np.int64) + steps[:, None]) % size


def steps_to_partners(size: int, key: np.uint64, batch: int, number: int) -> tuple[int, ...]:
    """Draw the distances in places from every sample to its partners: different ones in a batch of enough samples."""
    # Compiled code returns Python integers, and accepts those of 64 bits only as uint64.
    rng = Draws(fold(np.uint64(fold(key, np.uint64(0))), np.uint64(batch)))
    steps: list[int] = []
    for taken in range(min(number, size - 1)):
        step = int(rng.integers(1, size - taken))
        for other in sorted(steps):
            step += step >= other
        steps.append(step)
    return (*steps, *[0] * (number - len(steps)))


def _flat(samples: Array) -> Array:
    """Return samples as rows of values."""
    return samples.reshape(len(samples), -1)
