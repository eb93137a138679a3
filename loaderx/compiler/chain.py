"""The ops of one field, divided where compiled code must stop: at Python functions, and where samples are mixed."""

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

from .program import Program

Array = NDArray[Any]
Positions = NDArray[np.int64]
# The first row of the data is taken through a user's code with every index checked, at up to so many positions: an
# index may depend on draws. Before each run `out` holds one of these bytes everywhere, and afterwards none of them.
POSITIONS_CHECKED = 8
# What takes longer is not tried at more positions.
CHECKING_SECONDS = 0.25
MARKS = (0x55, 0xAA)


class CompiledSegment:
    """Ops in a row that are one table of compiled passes."""

    def __init__(self, steps: Sequence[Step], spec: Spec) -> None:
        self.program = Program(steps, spec)
        self.output = self.program.output
        self._steps = steps
        # Code of users in it.
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
        """Refuse code of a user that leaves its arrays, or leaves a part of `out` as it was, at this sample."""
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
                except Exception:  # noqa: BLE001 - what a user's code raises belongs to the step it is raised at
                    return
            if marked[0].tobytes() != marked[1].tobytes():
                fill = [op for op in self.authored if not op.in_place]
                names = " or ".join(dict.fromkeys(repr(op.name) for op in fill or self.authored))
                raise TransformError(
                    f"transform {names} leaves a part of `out` unwritten at the first row of the data; what was in "
                    "memory before would be delivered. Write every element of `out`."
                    if fill
                    else f"transform {names} gave two results for the same sample and the same draws. Whatever it "
                    "reads must be its arguments, or written before, as np.zeros is and np.empty is not."
                )


class PythonSegment:
    """One function called per sample under the GIL: a user's callable, or any op in debug mode."""

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
                    f"{self.name} gave {Spec(result.shape, result.dtype)} where it first gave {self.output}; "
                    "all samples must come out alike."
                )
            out[place, ...] = result


@dataclass
class Phase:
    """What happens to a sample without looking at others, after the mixing it begins with, if any."""

    mixing: Mixing | None
    key: np.uint64
    segments: list[CompiledSegment | PythonSegment]
    output: Spec
    # The field with the masks of objects that the mixing reads.
    masks: str | None = None


class Chain:
    """All ops of one field. Between two phases every sample of the batch has come through the first."""

    def __init__(self, spec: Spec, first_sample: Callable[[], Array], origin: str = "data") -> None:
        self.input = spec
        # The field of the data that it is made of.
        self.origin = origin
        # What comes out of the ops so far.
        self.output = spec
        self.phases: list[Phase] = [Phase(None, np.uint64(0), [], spec)]
        self.steps: list[Step] = []
        self.first_sample = first_sample
        # Numbers of channels that images may have besides the usual ones.
        self.channels: tuple[int, ...] = ()
        # The field that says how much of a sample is data, and how much of it is left at most.
        self.length: str | None = None
        self.most = spec.shape[0] if spec.shape else sys.maxsize
        # The field with the boxes next to a sample that an op looks at, and the first row of it.
        self.boxes: str | None = None
        self.first_boxes: Callable[[], Array] | None = None
        self._waiting: list[Step] = []
        self._start = spec
        self._debug = os.environ.get("LOADERX_DEBUG") == "1"

    def add(self, step: Step) -> None:
        """Add an op."""
        self.steps.append(step)
        step.transform.add_to(self, step)

    def add_pass(self, step: Step) -> None:
        """Add an op that is compiled, or called in Python in debug mode."""
        output = step.transform.output(self.output)
        # Where the boxes next to a sample are is known to compiled code alone.
        if self._debug and not (step.transform.stays_compiled or step.boxes is not None):
            call = step.transform.interpret(step, self.output, compiled_call)
            self.add_python(step.transform.name, call, output)
            return
        if not self._waiting:
            self._start = self.output
        self._waiting.append(step)
        self.output = output

    def add_python(self, name: str, call: Call, output: Spec) -> None:
        """Add a function that is called once per sample."""
        self._append(PythonSegment(name, call, output))

    def begin_phase(self, mixing: Mixing, key: int) -> None:
        """Add an op that needs what all samples of the batch have become so far."""
        self.compile()
        objects = mixing.objects
        while objects is not None and len(self.phases) < objects.phase:
            self.phases.append(Phase(None, np.uint64(0), [], self.output))
        self.output = mixing.output
        masks = None if objects is None else objects.field
        self.phases.append(Phase(mixing, np.uint64(key), [], self.output, masks))

    def compile(self) -> None:
        """Turn the ops that wait for it into compiled code."""
        if self._waiting:
            steps, self._waiting = self._waiting, []
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
        """Take samples through a phase into `out`, compiled ops on up to so many threads.

        In phase 0 `samples` are these samples if they lie in an array, and None if only their addresses are known. In
        a later phase they are all samples of the batch, of which out[0] is at `place`; so are the `masks` of objects
        that the phase reads. The position of its first sample is what a `batch` is known by.
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
            whole, beside = _flat(samples), None if masks is None else _flat(masks)
            mixing.mixer(place, positions, partners, current.key, whole, beside, _flat(target))
            samples, located = target, addresses_of_rows(target, located.lengths, located.boxes)
        for segment in current.segments:
            last = segment is current.segments[-1]
            spec = segment.output
            target = out if last else np.empty((count, *spec.shape), spec.dtype)
            segment.run(positions, located, samples, target, threads)
            if not last:
                samples, located = target, addresses_of_rows(target, located.lengths, located.boxes)

    def partner_steps(self, phase: int, size: int, batch: int) -> tuple[int, ...]:
        """How many places further the samples stand that a phase mixes in, in a batch of `size`."""
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
        """Whether an op so far put the channels of an image first."""
        return any(step.transform.channels_first for step in self.steps)

    @property
    def compiled(self) -> bool:
        """Whether no op runs in Python."""
        return not any(
            isinstance(segment, PythonSegment)
            for phase in self.phases
            for segment in phase.segments
        )

    @property
    def needs_samples(self) -> bool:
        """Whether the first op reads samples from an array, not by their addresses."""
        segments = self.phases[0].segments
        return bool(segments) and isinstance(segments[0], PythonSegment)

    def boxes_of_first(self, count: int) -> Array | None:
        """Return the boxes next to the first row of the data, `count` times, if an op looks at them."""
        if self.first_boxes is None:
            return None
        first = np.asarray(self.first_boxes())
        return np.ascontiguousarray(np.broadcast_to(first, (count, *first.shape)))

    def sample_so_far(self) -> Array:
        """Return the first row of the data, taken through the ops so far; zeros behind an op that mixes samples."""
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
    """Return a step that stays compiled as a function of one sample."""
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
    """With whom the samples from `place` are mixed, `number` others each: so many random steps around the batch.

    The steps are the same for all samples. partners[k] are the places of the k-th partners.
    """
    steps = np.array(steps_to_partners(size, key, batch, number), np.int64)
    return (np.arange(place, place + count, dtype=np.int64) + steps[:, None]) % size


def steps_to_partners(size: int, key: np.uint64, batch: int, number: int) -> tuple[int, ...]:
    """How far around a batch the partners of every sample stand: different ones, as long as there are others."""
    # Compiled code gives Python's integers, and takes those beyond 63 bits only as uint64.
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
