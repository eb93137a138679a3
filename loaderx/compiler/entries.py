"""What a user writes as `transforms` -> a chain of ops per field."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError, TransformError
from loaderx.kernels.keys import derive_key, fields_id
from loaderx.kernels.random import DRAWS
from loaderx.spec import Spec
from loaderx.transforms.authoring import Author
from loaderx.transforms.base import Transform
from loaderx.transforms.channels import Channels, check_channels
from loaderx.transforms.lengths import AtMost, is_length
from loaderx.transforms.points import (
    NUMBERS,
    VALID,
    ClosePoints,
    OpenPoints,
    ValidPoints,
    check_points,
    is_points,
)
from loaderx.transforms.python_function import PythonFunction
from loaderx.transforms.spatial import Resize
from loaderx.transforms.step import Step
from loaderx.transforms.views import Views

from .cautions import largest, warn
from .chain import Chain

FirstSample = Callable[[], NDArray[Any]]


def chains(
    transforms: Any, fields: Mapping[str, tuple[Spec, FirstSample]], seed: int
) -> dict[str, Chain]:
    """The chain of every field that comes out changed, its entries taken in the order they are written."""
    book = Book(fields, seed)
    for names, ops in _entries(transforms, fields):
        book.add_entry(names, ops)
    return book.close()


class Book:
    """The chains while entries are added to them."""

    def __init__(self, fields: Mapping[str, tuple[Spec, FirstSample]], seed: int) -> None:
        self._fields = fields
        self._seed = seed
        self._chains: dict[str, Chain] = {}
        # Boxes and keypoints that follow an image at present, each with a second chain for their validity.
        self._following: set[str] = set()
        self._replaced: set[str] = set()
        # Kinds of ops that were warned of: once per loader.
        self._warned: set[type] = set()

    def add_entry(self, names: tuple[str, ...], ops: Sequence[Any]) -> None:
        """The ops of one or more fields."""
        for name in names:
            if name in self._chains:
                continue
            if name not in self._fields or name in self._replaced:
                known = dict.fromkeys([*self._fields, *self._chains])
                shown = ", ".join(repr(name) for name in known if name not in self._replaced)
                raise ArgumentError(
                    f"`transforms` names the field {name!r}; `dataset` has {shown}."
                )
            self._begin(name, name)
        if ops and isinstance(ops[-1], Views):
            self._add_ops(names, ops[:-1])
            self._add_views(names, ops[-1])
        else:
            self._add_ops(names, ops)

    def close(self) -> dict[str, Chain]:
        """All chains, compiled."""
        for name in sorted(self._following):
            self._stop_following(name)
        for chain in self._chains.values():
            chain.compile()
        return self._chains

    def _begin(self, name: str, origin: str) -> Chain:
        taken = name in self._chains or (name in self._fields and name != origin)
        if taken:
            raise ArgumentError(
                f"`transforms` makes a field {name!r} of {origin!r}, and there is one already."
            )
        self._chains[name] = Chain(*self._fields[origin], origin)
        return self._chains[name]

    def _add_ops(self, names: tuple[str, ...], ops: Sequence[Any]) -> None:
        entry = fields_id(names)
        for number, op in enumerate(ops):
            key = derive_key(self._seed, DRAWS, entry, number)
            try:
                self._add(as_op(op), key, names)
            except TransformError:
                # It names its function, which may be one before this op: a Python function ends what is compiled.
                raise
            except Exception as error:
                error.add_note(f"loaderx: op {number} of `transforms` for {', '.join(names)}")
                raise

    def _add_views(self, names: tuple[str, ...], views: Views) -> None:
        """Every view begins with the steps that all of them share, and so with the same draws."""
        for view, ops in zip(views.names, views.views, strict=True):
            own = tuple(f"{name}_{view}" for name in names)
            for name, new in zip(names, own, strict=True):
                self._repeat(name, new)
                if name in self._following:
                    self._repeat(name + VALID, new + VALID)
                    self._following.add(new)
            self._add_ops(own, ops)
        for name in names:
            del self._chains[name]
            if name in self._following:
                del self._chains[name + VALID]
                self._following.remove(name)
            self._replaced.add(name)

    def _repeat(self, name: str, new: str) -> None:
        before = self._chains[name]
        chain = self._begin(new, before.origin)
        for step in before.steps:
            chain.add(step)
        chain.channels, chain.length, chain.most = before.channels, before.length, before.most

    def _add(self, op: Any, key: int, names: tuple[str, ...]) -> None:
        members = [self._chains[name] for name in names]
        lengths = [
            number > 0 and is_length(chain.origin, chain.output)
            for number, chain in enumerate(members)
        ]
        length = next((c.origin for c, found in zip(members, lengths, strict=True) if found), None)
        if isinstance(op, Channels):
            for chain in members:
                chain.channels += op.numbers
            return
        on_images = op.spatial or op.takes_images
        if on_images and members[0].channels_first:
            raise ArgumentError(
                f"{op.name} takes images of (height, width, channels), and an op before it put the channels first; "
                "put it before that one."
            )
        points = [number > 0 and is_points(chain.origin) for number, chain in enumerate(members)]
        if op.spatial and not op.needs_batch:
            others = zip(members, points, lengths, strict=True)
            _check_sizes(op, [chain for chain, *other in others if not any(other)])
        image = members[0].output
        if op.spatial and op.needs_batch:
            check_channels(image, op.name, members[0].channels)
        for number, (name, chain) in enumerate(zip(names, members, strict=True)):
            if lengths[number] and not op.needs_batch:
                # The fields before it have gone through the op.
                left = members[0].output.shape
                if left and left[0] < min(chain.most, members[0].input.shape[0]):
                    chain.add(Step(AtMost(left[0]), 0))
                    chain.most = left[0]
            elif points[number] and op.needs_batch:
                raise ArgumentError(f"{op.name} cannot mix boxes or keypoints ({name!r}).")
            elif points[number] and not op.is_python:
                moved = op.for_points(image)
                self._follow(name)
                chain.add(Step(moved, key))
                self._chains[name + VALID].add(Step(moved, key))
            else:
                self._stop_following(name)
                # Behind the image, whole numbers are labels of pixels: never mixed.
                follows = number > 0 and chain.output.dtype.kind in "iub"
                own = op.for_labels() if follows else op
                if length is not None and not (op.is_python or op.needs_batch):
                    own = own.for_length()
                    chain.length = length
                self._examine(own, chain)
                chain.add(Step(own, key, follows, chain.most, image))
            if chain.output.shape:
                chain.most = min(chain.most, chain.output.shape[0])
        if op.is_python:
            warn(
                f"{op.name!r} is a plain Python function: it runs once per sample under the GIL, some 100 times "
                f"slower than compiled code; {op.advice}."
            )

    def _examine(self, op: Transform, chain: Chain) -> None:
        """Refuse what is not an image, and warn of values on another scale."""
        for own, spec in op.leaves(chain.output):
            if own.takes_length and chain.length is None:
                raise ArgumentError(
                    f"transform {own.name!r} takes the length of a sample: name the field that has it behind the "
                    'others of the entry, {("data", "length"): [...]}; the last word of its name is "length".'
                )
            if own.takes_images:
                check_channels(spec, own.name, chain.channels)
            own.output(spec)  # what it cannot take at all is an error, and worth no warning
            kind = own.caution_kind or type(own)
            found = None if kind in self._warned else own.caution(spec, lambda: largest(chain))
            if found is not None:
                self._warned.add(kind)
                warn(found)

    def _follow(self, name: str) -> None:
        """Let a field of points follow an image from here on."""
        if name in self._following:
            return
        chain = self._chains[name]
        if name + VALID in self._chains:
            raise ArgumentError(
                f"field {name!r} followed an image before; put all that moves it in one row."
            )
        check_points(chain.origin, chain.output)
        self._repeat(name, name + VALID)
        for each in (chain, self._chains[name + VALID]):
            each.add(Step(OpenPoints(), 0))
        self._following.add(name)

    def _stop_following(self, name: str) -> None:
        if name in self._following:
            self._following.remove(name)
            for chain, end in (
                (self._chains[name], ClosePoints()),
                (self._chains[name + VALID], ValidPoints()),
            ):
                # Up to here both are the same code, which is then compiled once.
                chain.compile()
                chain.add(Step(end, 0))


def _check_sizes(op: Transform, images: Sequence[Chain]) -> None:
    sizes = {chain.origin: chain.output.shape[:2] for chain in images}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(
            f"{op.name}: fields that move together must have the same height and width, got {sizes}. Boxes and "
            f"keypoints are known by the last word of their names: {', '.join(NUMBERS)}."
        )


def as_op(op: Any) -> Any:
    """An op or a callable, and nothing else."""
    if isinstance(op, Author):
        return op()
    if isinstance(op, Views):
        raise ArgumentError(f"{type(op).__name__} must be the last of its list of transforms.")
    # A class, or what looks like one to its users: Resize.
    makes_op = inspect.isclass(op) or (op is Resize)
    if isinstance(op, Transform | Channels):
        return op
    if callable(op) and not makes_op:
        return PythonFunction(op)
    hint = f" Give it its parameters: {op.__name__}(...)." if makes_op else ""
    raise ArgumentError(
        f"`transforms` has {op!r}, which is neither a transform nor a function.{hint}"
    )


def _entries(transforms: Any, fields: Mapping[str, Any]) -> list[tuple[tuple[str, ...], list[Any]]]:
    if isinstance(transforms, Mapping):
        entries = []
        for names, ops in transforms.items():
            names = tuple(map(str, names if isinstance(names, tuple) else (names,)))
            if not names or len(set(names)) < len(names):
                raise ArgumentError(
                    f"`transforms` names {names}; an entry is for one field, or for several different ones."
                )
            ops = [ops] if isinstance(ops, Views) else ops
            if not isinstance(ops, list | tuple):
                raise ArgumentError(
                    f"`transforms[{names[0]!r}]` must be a list of transforms, not {ops!r}."
                )
            entries.append((names, list(ops)))
        return entries
    if isinstance(transforms, Views):
        transforms = [transforms]
    if isinstance(transforms, list | tuple):
        if len(fields) == 1:
            return [((next(iter(fields)),), list(transforms))]
        if "data" in fields:
            return [(("data",), list(transforms))]
        raise ArgumentError(
            "`transforms` is a list, which goes to the only field or to the field 'data'; `dataset` has "
            f"{', '.join(map(repr, fields))}. Give a dict from field to list."
        )
    raise ArgumentError(
        f"`transforms` (={transforms!r}) must be a dict from field to list, or a list."
    )
