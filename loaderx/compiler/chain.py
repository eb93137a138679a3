"""The ops of one field, divided where compiled code must stop: at Python functions, and where samples are mixed."""

import functools
import inspect
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
from loaderx.kernels.draws import Draws
from loaderx.kernels.random import fold
from loaderx.sources.located import Located, located_in
from loaderx.spec import Spec
from loaderx.transforms.combinators import leaves
from loaderx.transforms.mix import Mixer, MixTransform
from loaderx.transforms.transform import (
    MapTransform,
    SampleTransform,
    ScaleTransform,
    WindowTransform,
)

from .draft import Step
from .driver import Driver
from .interpreted import Call, draws, interpreted

Array = NDArray[Any]
Positions = NDArray[np.int64]
# Kinds of ops that stay compiled in debug mode: chains of them are one pass.
COMPILED = (WindowTransform, MapTransform, ScaleTransform)
# The first row of the data is taken through a user's code with every index checked, at up to so many positions: an
# index may depend on draws. Before each run `out` holds one of these bytes everywhere, and afterwards none of them.
POSITIONS_CHECKED = 8
# What takes longer is not tried at more positions.
CHECKING_SECONDS = 0.25
MARKS = (0x55, 0xAA)


@dataclass(frozen=True)
class PythonStep:
    """A plain callable in a chain."""

    function: Callable[..., Any]
    key: int

    @property
    def name(self) -> str:
        return name_of(self.function)


@dataclass(frozen=True)
class MixStep:
    """An op that needs the whole batch; `image` is the spec of the first field of its entry at that point."""

    transform: MixTransform
    key: int
    image: Spec


class CompiledSegment:
    """Ops in a row that are one compiled function."""

    def __init__(self, steps: Sequence[Step], spec: Spec) -> None:
        self.driver = Driver(steps, spec)
        self.output = self.driver.output
        # Code of users in it.
        self.authored: list[SampleTransform] = []
        for step in steps:
            found = [op for op, _ in leaves(step.transform, spec)]
            self.authored += [op for op in found if isinstance(op, SampleTransform) and op.checked]
            spec = step.transform.output(spec)

    def run(
        self, positions: Positions, located: Located, samples: Array | None, out: Array
    ) -> None:
        self.driver.run(positions, located, out)

    def check(self, sample: Array) -> None:
        """Refuse code of a user that leaves its arrays, or leaves a part of `out` as it was, at this sample."""
        located = located_in(sample[None])
        marked = [np.empty((1, *self.output.shape), self.output.dtype) for _ in MARKS]
        began = time.perf_counter()
        for position in range(POSITIONS_CHECKED):
            if time.perf_counter() - began > CHECKING_SECONDS:
                return
            for mark, out in zip(MARKS, marked, strict=True):
                try:
                    self.driver.run(np.array([position]), located, out, checking=mark)
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

    def __init__(self, name: str, call: Callable[[Array, int, int], Any], output: Spec) -> None:
        self.name = name
        self._call = call
        self.output = output

    def run(
        self, positions: Positions, located: Located, samples: Array | None, out: Array
    ) -> None:
        assert samples is not None
        lengths = located.lengths
        for place, sample in enumerate(samples):
            length = sys.maxsize if lengths is None else int(lengths[place])
            try:
                result = np.asarray(self._call(np.array(sample), int(positions[place]), length))
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

    mixer: Mixer | None
    key: np.uint64
    segments: list[CompiledSegment | PythonSegment]
    output: Spec


class Chain:
    """All ops of one field. Between two phases every sample of the batch has come through the first."""

    def __init__(self, spec: Spec, first_sample: Callable[[], Array], origin: str = "data") -> None:
        self.input = spec
        # The field of the data that it is made of.
        self.origin = origin
        # What comes out of the ops so far.
        self.output = spec
        self.phases: list[Phase] = [Phase(None, np.uint64(0), [], spec)]
        self.steps: list[Step | PythonStep | MixStep] = []
        self.first_sample = first_sample
        # Numbers of channels that images may have besides the usual ones.
        self.channels: tuple[int, ...] = ()
        # The field that says how much of a sample is data, and how much of it is left at most.
        self.length: str | None = None
        self.most = spec.shape[0] if spec.shape else sys.maxsize
        self._waiting: list[Step] = []
        self._start = spec
        self._debug = os.environ.get("LOADERX_DEBUG") == "1"

    def add(self, step: Step | PythonStep | MixStep) -> None:
        """One op more."""
        self.steps.append(step)
        if isinstance(step, Step):
            output = step.transform.output(self.output)
            if self._debug and not isinstance(step.transform, COMPILED):
                call = interpreted(step, self.output)
                run = functools.partial(_interpret, call)
                self._append(PythonSegment(step.transform.name, run, output))
            else:
                if not self._waiting:
                    self._start = self.output
                self._waiting.append(step)
                self.output = output
        elif isinstance(step, PythonStep):
            self.compile()
            self._append(self._python(step, self.output))
        else:
            self.compile()
            self.output = step.transform.output(self.output)
            mixer = step.transform.mixer(step.image, self.output)
            self.phases.append(Phase(mixer, np.uint64(step.key), [], self.output))

    def compile(self) -> None:
        """Turn the ops that wait for it into compiled code."""
        if self._waiting:
            steps, self._waiting = self._waiting, []
            segment = CompiledSegment(steps, self._start)
            sample = None
            if segment.authored:
                with suppress(Exception):  # a row that cannot be read is reported at its step
                    sample = self._sample_so_far(self._start)
            if sample is not None:
                segment.check(sample)
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
        located: Located,
        samples: Array | None,
        out: Array,
    ) -> None:
        """Take samples through a phase into `out`.

        In phase 0 `samples` are these samples if they lie in an array, and None if only their addresses are known. In
        a later phase they are all samples of the batch, of which out[0] is at `place`. The position of its first
        sample is what a `batch` is known by.
        """
        current = self.phases[phase]
        count = len(positions)
        if current.mixer is None and not current.segments:
            assert samples is not None
            out[...] = samples
        if current.mixer is not None:
            assert samples is not None
            mixed = self.phases[phase - 1].output
            target = np.empty((count, *mixed.shape), mixed.dtype) if current.segments else out
            whole, flat = samples.reshape(len(samples), -1), target.reshape(count, -1)
            partners = partners_of(place, count, len(samples), current.key, batch)
            current.mixer(place, positions, partners, current.key, whole, flat)
            samples, located = target, located_in(target, located.lengths)
        for segment in current.segments:
            last = segment is current.segments[-1]
            spec = segment.output
            target = out if last else np.empty((count, *spec.shape), spec.dtype)
            segment.run(positions, located, samples, target)
            samples, located = target, located_in(target, located.lengths)

    def partner_step(self, phase: int, size: int, batch: int) -> int:
        """How many places further the samples stand that a phase mixes in, in a batch of `size`."""
        return step_to_partner(size, self.phases[phase].key, batch)

    @property
    def channels_first(self) -> bool:
        """Whether an op so far put the channels of an image first."""
        return any(
            isinstance(step, Step) and getattr(step.transform, "channels_first", False)
            for step in self.steps
        )

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

    def _python(self, step: PythonStep, spec: Spec) -> PythonSegment:
        takes_rng = _takes_rng(step.function)

        def call(x: Array, position: int, _: int = 0) -> Any:
            return (
                step.function(x, draws(step.key, position, ())) if takes_rng else step.function(x)
            )

        answer = call(self._sample_so_far(spec), 0)
        result = np.asarray(answer)
        if result.dtype.hasobject:
            raise TransformError(
                f"{step.name!r} returned {answer!r}; it must return the sample, as an array."
            )
        return PythonSegment(step.name, call, Spec(result.shape, result.dtype))

    def _sample_so_far(self, spec: Spec) -> Array:
        """The first row of the data, taken through the ops so far; zeros behind an op that mixes samples."""
        if len(self.phases) > 1:
            return np.zeros(spec.shape, spec.dtype)
        rows = np.ascontiguousarray(np.asarray(self.first_sample(), self.input.dtype)[None])
        nothing = np.zeros(1, np.int64)
        for segment in self.phases[0].segments:
            out = np.empty((1, *segment.output.shape), segment.output.dtype)
            segment.run(nothing, located_in(rows), rows, out)
            rows = out
        sample: Array = rows[0]
        return sample


def _interpret(call: Call, x: Array, position: int, length: int) -> Array:
    return call(x, position, length, ())


def name_of(function: Callable[..., Any]) -> str:
    """How messages call a plain callable."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


def _takes_rng(function: Callable[..., Any]) -> bool:
    """Whether a callable wants two arguments: one named rng, or one that it cannot do without."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = parameters[1] if len(parameters) > 1 else None
    return (
        second is not None
        and second.kind in positional
        and (second.name == "rng" or second.default is inspect.Parameter.empty)
    )


def partners_of(place: int, count: int, size: int, key: np.uint64, batch: int) -> Positions:
    """With whom the samples from `place` are mixed: one random step further around the batch, the same for all."""
    step = step_to_partner(size, key, batch)
    return (np.arange(place, place + count, dtype=np.int64) + step) % size


def step_to_partner(size: int, key: np.uint64, batch: int) -> int:
    """How far around a batch the partner of every sample stands."""
    if size == 1:
        return 0
    # Compiled code gives Python's integers, and takes those beyond 63 bits only as uint64.
    return int(Draws(fold(np.uint64(fold(key, np.uint64(0))), np.uint64(batch))).integers(1, size))
