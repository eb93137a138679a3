"""Entries of `transforms` -> a chain of ops for each field."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError, TransformError
from loaderx.kernels.keys import derive_key, fields_id
from loaderx.kernels.random import DRAWS
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.spec import Spec
from loaderx.transforms.authoring import TransformFactory
from loaderx.transforms.base import Transform, image_shape
from loaderx.transforms.boxes import Boxes
from loaderx.transforms.channels import USUAL, Channels, check_channels
from loaderx.transforms.combinators import left_to_chance
from loaderx.transforms.composite import CompositeTransform
from loaderx.transforms.kinds import (
    BOXES,
    IMAGE,
    LABELS,
    LENGTH,
    POINTS,
    POINTS_WORDS,
    FieldKinds,
    Kind,
    check_kind,
    check_kinds,
    compared_to_first,
    counts_boxes,
    formats_of,
    infer_kinds,
    uncertain,
)
from loaderx.transforms.lengths import AtMost
from loaderx.transforms.mix import Objects
from loaderx.transforms.points import VALID, ClosePoints, OpenPoints, ValidPoints, check_points
from loaderx.transforms.python_function import PythonFunction
from loaderx.transforms.rounds import Repeating
from loaderx.transforms.spatial import Resize
from loaderx.transforms.step import BoxesBefore, Step
from loaderx.transforms.views import Views

from .cautions import largest, warn
from .chain import Chain
from .head import Head
from .points_head import PointsHead

FirstSample = Callable[[], NDArray[Any]]


def chains(
    transforms: Any,
    fields: Mapping[str, tuple[Spec, FirstSample]],
    seed: int,
    kinds: Any = None,
) -> dict[str, Chain]:
    """Return the chains of the fields that change, from the entries in their order.

    `kinds` is the argument of `DataLoader`.
    """
    builder = ChainsBuilder(fields, seed, check_kinds(kinds, fields), formats_of(kinds))
    for names, ops in _entries(transforms, fields):
        builder.add_entry(names, ops)
    return builder.close()


@dataclass
class Entry:
    """Entry of `transforms`: its fields, and their kinds, which are inferred at the first op that needs them."""

    names: tuple[str, ...]
    members: tuple[Chain, ...]
    # True if one of its ops is for images.
    images: bool
    kinds: FieldKinds | None = None

    @property
    def fields(self) -> list[tuple[str, Spec]]:
        """Origin and present spec of each field."""
        return [(chain.origin, chain.output) for chain in self.members]


class ChainsBuilder:
    """Builder of the chains, entry by entry."""

    def __init__(
        self,
        fields: Mapping[str, tuple[Spec, FirstSample]],
        seed: int,
        kinds: Mapping[str, Kind] | None = None,
        formats: Mapping[str, Boxes] | None = None,
    ) -> None:
        self._fields = fields
        self._seed = seed
        self._given = dict(kinds or {})
        # Formats of boxes, where they are given.
        self._formats = dict(formats or {})
        # Given kinds that are not yet compared to their fields.
        self._unchecked = set(self._given)
        self._chains: dict[str, Chain] = {}
        # Boxes and keypoints that follow an image at present, and the spec of that image, which normalised coordinates
        # are fractions of. Each has a second chain for its validity.
        self._following: dict[str, tuple[Kind, Spec]] = {}
        # Fields that views replace, and the first view of each, which begins with the same steps.
        self._replaced: dict[str, str] = {}
        # Kinds of ops that have warned already: once per loader.
        self._warned: set[type] = set()

    def add_entry(self, names: tuple[str, ...], ops: Sequence[Any]) -> None:
        """Add the ops of one or more fields."""
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
        """Compile and return all chains."""
        for each in self._chains.values():
            if each.is_open:
                raise needs_window(None, each.origin)
        for name in sorted(self._following):
            self._stop_following(name)
        for name in sorted(self._unchecked):
            chain = self._chains.get(name)
            spec = self._fields[name][0] if chain is None else chain.output
            check_kind(name, self._given[name], spec)
        for chain in self._chains.values():
            chain.compile()
            for phase in chain.phases:
                while phase.masks in self._replaced:
                    phase.masks = self._replaced[phase.masks]
        return self._chains

    def _begin(self, name: str, origin: str) -> Chain:
        taken = name in self._chains or (name in self._fields and name != origin)
        if taken:
            raise ArgumentError(
                f"`transforms` makes a field {name!r} of {origin!r}, and there is one already."
            )
        spec, first_sample = self._fields[origin]
        if isinstance(spec, EncodedSpec):
            head = Head(spec.encoded, lambda: first_sample().item())
            chain = Chain(head.output, head.first_sample, origin)
            chain.head = head
        else:
            chain = Chain(spec, first_sample, origin)
        self._chains[name] = chain
        return chain

    def _add_ops(self, names: tuple[str, ...], ops: Sequence[Any]) -> None:
        of_images = [
            op
            for op in ops
            if isinstance(op, Transform) and (op.spatial or op.takes_images) and not op.mixes_values
        ]
        entry = Entry(names, tuple(self._chains[name] for name in names), bool(of_images))
        identity = fields_id(names)
        for number, op in enumerate(ops):
            key = derive_key(self._seed, DRAWS, identity, number)
            try:
                if any(chain.is_open for chain in entry.members):
                    self._add_to_heads(as_op(op), key, entry)
                else:
                    self._add(as_op(op), key, entry)
            except TransformError:
                # No note: the error names its function, which may be of an earlier op. A segment is compiled only when
                # it ends, at a Python function.
                raise
            except Exception as error:
                error.add_note(f"loaderx: op {number} of `transforms` for {', '.join(names)}")
                raise

    def _add_views(self, names: tuple[str, ...], views: Views) -> None:
        """Add views. Each begins with a copy of the shared steps, and so with the same draws."""
        for view, ops in zip(views.names, views.views, strict=True):
            own = tuple(f"{name}_{view}" for name in names)
            for name, new in zip(names, own, strict=True):
                self._repeat(name, new)
                if name in self._following:
                    self._repeat(name + VALID, new + VALID)
                    self._following[new] = self._following[name]
            self._add_ops(own, ops)
        for name in names:
            del self._chains[name]
            if name in self._following:
                del self._chains[name + VALID]
                del self._following[name]
            self._replaced[name] = f"{name}_{views.names[0]}"

    def _repeat(self, name: str, new: str) -> None:
        before = self._chains[name]
        chain = self._begin(new, before.origin)
        if isinstance(before.head, PointsHead):
            chain.begin_with(before.head.copy())
        elif before.head is not None:
            for step in before.head.steps:
                chain.add_to_head(step)
            assert chain.head is not None
            chain.head.alongside = before.head.alongside
        for step in before.steps:
            chain.add(step)
        chain.channels, chain.length, chain.most = before.channels, before.length, before.most
        chain.boxes, chain.first_boxes = before.boxes, before.first_boxes
        chain.boxes_head = before.boxes_head

    def _add(self, op: Any, key: int, entry: Entry) -> None:
        if isinstance(op, Channels):
            for chain in entry.members:
                chain.channels += op.numbers
            return
        found = self._kinds_of(op, entry)
        kinds = [possible[0] for possible in found.possible]
        fields = list(zip(entry.names, entry.members, kinds, strict=True))
        lead = entry.members[found.lead]
        length = next((chain.origin for _, chain, kind in fields if kind == LENGTH), None)
        if (op.spatial or op.takes_images) and lead.channels_first:
            raise ArgumentError(
                f"{op.name} needs images of (height, width, channels), and an op before it put the channels first; "
                "move it before that op."
            )
        if op.spatial and not op.mixes_values:
            _check_sizes(op, [chain for _, chain, kind in fields if kind not in (*POINTS, LENGTH)])
        image, channels_first = lead.output, lead.channels_first
        if op.spatial and op.mixes_values:
            check_channels(image, op.name, lead.channels)
        decides, boxes = self._boxes_before(op, fields, image)
        instances = None
        if isinstance(op, CompositeTransform):
            if length is not None:
                raise ArgumentError(
                    f"{op.name} is for images and what is next to them, and {length!r} is a length."
                )
            op = op.among(self._objects_in(op, fields))
            if op.objects is not None and op.objects.rows is not None:
                instances = op.objects.field
        # Lengths last: they are cut like the other fields.
        for name, chain, kind in sorted(fields, key=lambda field: field[2] == LENGTH):
            if kind == LENGTH and not op.mixes_values:
                left = lead.output.shape
                if left and left[0] < min(chain.most, lead.input.shape[0]):
                    chain.add(Step(AtMost(left[0]), 0))
                    chain.most = left[0]
            elif kind in POINTS and op.mixes_values:
                raise ArgumentError(f"{op.name} cannot mix boxes or keypoints ({name!r}).")
            elif kind in POINTS and not op.is_python:
                moved = op.for_points(image)
                self._follow(name, kind, image)
                seen = None if name == decides else boxes
                for each in (chain, self._chains[name + VALID]):
                    self._read_boxes(each, seen, decides)
                    each.add(Step(moved, key, boxes=seen))
            else:
                self._stop_following(name)
                follows = kind in (LABELS, LENGTH)
                own = op
                if found.has_image:
                    own = op.for_kind(kind)
                elif follows:
                    own = op.for_labels()
                if name == instances:
                    own = own.for_instances()
                if length is not None and not (op.is_python or op.needs_batch):
                    own = own.for_length()
                    chain.length = length
                self._examine(own, chain)
                self._read_boxes(chain, boxes, decides)
                chain.add(Step(own, key, follows, chain.most, image, boxes=boxes))
            if chain.output.shape:
                chain.most = min(chain.most, chain.output.shape[0])
        if not channels_first:
            size = lead.output.shape
            size = size[1:] if any(each.channels_first for each in _all_inside(op)) else size
            for name, _, kind in fields:
                if name in self._following:
                    self._following[name] = kind, Spec(size, lead.output.dtype)
        if op.is_python:
            warn(
                f"{op.name!r} is a plain Python function: it runs once per sample under the GIL, some 100 times "
                f"slower than compiled code; {op.advice}. As it is, loaderx.ray.RayLoader runs it on all cores."
            )

    def _add_to_heads(self, op: Any, key: int, entry: Entry) -> None:
        """Add a window onto images of any sizes."""
        if isinstance(op, Channels):
            self._add(op, key, entry)
            return
        origins = [chain.origin for chain in entry.members if chain.is_open]
        windows = [] if op.is_python else op.flattened(Step(op, key))
        if not windows or not all(
            each.transform.is_window and each.transform.of_any_size for each in windows
        ):
            raise needs_window(op.name if op.is_python else repr(op), origins[0])
        found = self._kinds_of(op, entry)
        lead = entry.members[found.lead]
        fields = list(zip(entry.names, entry.members, found.possible, strict=True))
        for name, chain, (kind, *_) in fields:
            if kind in POINTS and lead.is_open:
                self._follow_encoded(name, kind, lead)
            elif not chain.is_open:
                raise ArgumentError(
                    f"{op.name}: {origins[0]!r} holds encoded images of any sizes, and {name!r}, {chain.output}, "
                    "cannot move with them: fields of an entry with encoded images must be encoded images, boxes or "
                    "keypoints."
                )
        for name, chain, (kind, *_) in fields:
            if kind in POINTS:
                for each in (chain, self._chains[name + VALID]):
                    each.add_to_head(Step(op, key))
                continue
            own = op.for_kind(kind) if found.has_image else op
            chain.add_to_head(Step(own, key, kind == LABELS))
            assert chain.head is not None
            chain.head.alongside = None if chain is lead else lead.origin
        for name in entry.names:
            if name in self._following:
                self._following[name] = self._following[name][0], lead.output

    def _kinds_of(self, op: Transform, entry: Entry) -> FieldKinds:
        """Return the kinds of the fields of an entry; raise if the op depends on a kind that is uncertain."""
        fields = entry.fields
        if len(fields) == 1:
            return FieldKinds(((IMAGE,),), 0, False)
        for name, spec in fields:
            if name in self._unchecked:
                self._unchecked.remove(name)
                check_kind(name, self._given[name], spec)
        if op.mixes_values:
            return compared_to_first(fields, self._given)
        found = entry.kinds
        if found is None:
            stated = {number for chain in entry.members for number in chain.channels}
            channels = {*USUAL, *stated}
            found = infer_kinds(fields, self._given, images=entry.images, channels=channels)
        if not op.sees_kinds or not found.has_image:
            return found
        entry.kinds = found
        # An op that moves pixels treats images and values alike.
        open_fields = [
            (name, spec, possible)
            for (name, spec), possible in zip(fields, found.possible, strict=True)
            if len(possible) > 1
            and (LABELS in possible or any(op.for_kind(kind) is not op for kind in possible))
        ]
        if open_fields:
            raise uncertain(op.name, open_fields)
        # Labels and values can be moved without an image.
        if op.spatial and found.possible[found.lead][0] not in (*POINTS, LENGTH):
            return found
        if (IMAGE,) not in found.possible:
            raise ArgumentError(
                f"{op.name} is for images, and there is none among {', '.join(repr(name) for name, _ in fields)}. If "
                'one of these is an image, say so: DataLoader(..., kinds={"...": "image"}).'
            )
        return found

    def _examine(self, op: Transform, chain: Chain) -> None:
        """Raise if a field is not an image, and warn of values on another scale."""
        for own, spec, before in op.leaves(chain.output):
            if own.takes_length and chain.length is None:
                raise ArgumentError(
                    f"transform {own.name!r} needs the length of a sample: name the field that has it after the "
                    'others of the entry, {("data", "length"): [...]}; the last word of its name is "length".'
                )
            if own.takes_images:
                check_channels(spec, own.name, chain.channels)
            own.output(spec)  # an error for this spec comes before any warning
            kind = own.caution_kind or type(own)
            if kind in self._warned:
                continue
            found = own.caution(spec, functools.partial(largest, chain, before))
            if found is not None:
                self._warned.add(kind)
                warn(found)

    def _boxes_before(
        self, op: Transform, fields: Sequence[tuple[str, Chain, Kind]], image: Spec
    ) -> tuple[str | None, BoxesBefore | None]:
        """Return the field of boxes that an op draws by, and the boxes before the op; raise if boxes are missing."""
        needing = [each for each in _all_inside(op) if each.needs_boxes]
        if not needing:
            return None, None
        name = next((name for name, _, kind in fields if kind == BOXES), None)
        if name is None:
            raise ArgumentError(
                f"{needing[0].name} needs boxes next to the image. Name the field that has them in the same entry, "
                '{("image", "boxes"): [...]}; the last word of its name is "boxes", or `kinds` says so.'
            )
        drawing = [each for each in needing if each.draws_by_boxes]
        if not drawing:
            return None, None
        for policy in _all_inside(op):
            if isinstance(policy, Repeating) and any(
                each.draws_by_boxes for each in _all_inside(policy)
            ):
                raise ArgumentError(
                    f"{policy.name}: {drawing[0].name} must know which ops come before it, and here that is drawn; "
                    "put it before or after."
                )
        self._follow(name, BOXES, image)
        chain = self._chains[name]
        for step in chain.steps:
            if step.transform.is_python or step.transform.needs_batch or step.boxes is not None:
                raise ArgumentError(
                    f"{drawing[0].name} reads the field {name!r}, which {step.transform.name} changed before; put it "
                    "before that one."
                )
        return name, BoxesBefore(chain.origin, chain.input, tuple(chain.steps), image)

    def _objects_in(
        self, op: CompositeTransform, fields: Sequence[tuple[str, Chain, Kind]]
    ) -> Objects | None:
        """Return the mask that tells the objects of an entry apart; raise if an op needs one and there is none."""
        masks = [(name, chain) for name, chain, kind in fields if kind == LABELS]
        counted = [
            (name, chain)
            for name, chain in masks
            if counts_boxes(chain.origin, chain.output, self._given)
        ]
        boxes = next((chain for _, chain, kind in fields if kind == BOXES), None)
        rows = None
        if counted:
            if len(counted) > 1 or boxes is None:
                names = " and ".join(repr(name) for name, _ in counted)
                raise ArgumentError(
                    f"{op.name}: an entry has one field of the kind 'instances', whose values are numbers of boxes, "
                    f"and the boxes; this one has {names}{'' if boxes else ' without boxes'}. Labels that are not "
                    f'such numbers are of the kind "labels": kinds={{{counted[-1][0]!r}: "labels"}}.'
                )
            masks, rows = counted, boxes.output.shape[0]
        elif not op.needs_mask:
            return None
        elif not masks:
            raise ArgumentError(
                f"{op.name} needs a mask of integers or booleans next to the image, which says where objects are. "
                'Name the field that has it in the same entry, {("image", "mask"): [...]}; the last word of its name '
                'is "mask", or `kinds` says so.'
            )
        elif boxes is not None:
            name = masks[0][0]
            raise ArgumentError(
                f"{op.name} must know which box is that of an object. Give a mask that is k + 1 where the object of "
                f'row k of the boxes is, and 0 elsewhere, and say so: kinds={{{name!r}: "instances"}}.'
            )
        name, chain = masks[0]
        if image_shape(chain.output, op.name)[2] != 1:
            raise ArgumentError(
                f"{op.name} accepts masks of objects of shape (height, width) or (height, width, 1), and {name!r} is "
                f"{chain.output}."
            )
        members = [self._chains.get(each + VALID, chain) for each, chain, _ in fields]
        members += [chain for _, chain, _ in fields]
        phase = max(len(each.phases) for each in members)
        return Objects(name, chain.output, rows, phase)

    def _read_boxes(self, chain: Chain, boxes: BoxesBefore | None, name: str | None) -> None:
        """Give a chain the boxes of its samples, which are in the field `name`."""
        if boxes is None or name is None:
            return
        if chain.boxes not in (None, boxes.origin):
            raise ArgumentError(
                f"ops on {chain.origin!r} look at the boxes of {chain.boxes!r} and of {boxes.origin!r}; they must be "
                "of one field."
            )
        chain.boxes, chain.first_boxes = boxes.origin, self._fields[boxes.origin][1]
        head = self._chains[name].head
        if isinstance(head, PointsHead):
            chain.boxes_head, chain.first_boxes = head, head.first_sample

    def _follow(self, name: str, kind: Kind, image: Spec) -> None:
        """Begin to move a field of points with its image."""
        if name in self._following:
            return
        chain = self._chains[name]
        if name + VALID in self._chains:
            raise ArgumentError(
                f"field {name!r} was moved with an image before; put all ops that move it in a row."
            )
        check_points(chain.origin, chain.output, kind)
        self._repeat(name, name + VALID)
        for each in (chain, self._chains[name + VALID]):
            each.add(Step(OpenPoints(self._format_of(chain.origin, kind), image), 0))
        self._following[name] = kind, image

    def _follow_encoded(self, name: str, kind: Kind, lead: Chain) -> None:
        """Begin to move a field of points with encoded images, which have any sizes so far."""
        chain = self._chains[name]
        assert isinstance(lead.head, Head)
        if name in self._following:
            head = chain.head
            if not isinstance(head, PointsHead) or head.alongside != lead.origin:
                raise ArgumentError(f"field {name!r} follows other images than {lead.origin!r}.")
            if not head.keeps_up_with(lead.head):
                raise _follows_some(name, lead.origin)
            return
        if chain.steps or name + VALID in self._chains:
            raise ArgumentError(
                f"field {name!r} moves with the encoded images {lead.origin!r} first; put all other ops on it after "
                "these."
            )
        check_points(chain.origin, chain.output, kind)
        self._repeat(name, name + VALID)
        spec, first_points = self._fields[chain.origin]
        boxes = self._format_of(chain.origin, kind)
        for each in (chain, self._chains[name + VALID]):
            each.begin_with(PointsHead(lead.head, lead.origin, spec, boxes, first_points))
        self._following[name] = kind, lead.output

    def _format_of(self, origin: str, kind: Kind) -> Boxes | None:
        """Return the format of a field of boxes; None for keypoints."""
        return self._formats.get(origin, Boxes()) if kind == BOXES else None

    def _stop_following(self, name: str) -> None:
        if name in self._following:
            kind, image = self._following.pop(name)
            head = self._chains[name].head
            if isinstance(head, PointsHead) and not head.follows_all:
                raise _follows_some(name, head.alongside)
            boxes = self._format_of(self._chains[name].origin, kind)
            for chain, end in (
                (self._chains[name], ClosePoints(boxes, image)),
                (self._chains[name + VALID], ValidPoints(boxes, image)),
            ):
                # Both chains are equal up to here, so that the code is compiled once.
                chain.compile()
                chain.add(Step(end, 0))


def _check_sizes(op: Transform, images: Sequence[Chain]) -> None:
    sizes = {chain.origin: chain.output.shape[:2] for chain in images}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(
            f"{op.name}: fields that move together must have the same height and width, got {sizes}. Boxes and "
            f"keypoints are known by the last word of their names: {', '.join(POINTS_WORDS)}; "
            "or by `kinds`."
        )


def needs_window(op: str | None, origin: str) -> ArgumentError:
    """Return the error for encoded images that do not become samples of one size."""
    advice = "" if op is None else f" {op} is not such a window: put it after one."
    return ArgumentError(
        f"field {origin!r} holds encoded images of any sizes, so its transforms must begin with a window to one size: "
        "RandomResizedCrop(224), Resize((height, width)), or Resize(shorter=256) and then CenterCrop(224)."
        + advice
    )


def _follows_some(name: str, images: str) -> ArgumentError:
    """Return the error for points that move through some of the windows onto encoded images."""
    return ArgumentError(
        f"field {name!r} follows the encoded images {images!r} through some of their windows only: put all ops up "
        "to the window to one size into one entry of both fields."
    )


def _all_inside(op: Transform) -> Iterator[Transform]:
    """Yield an op and the ops inside of it."""
    yield op
    for each in op.inside:
        yield from _all_inside(each)


def as_op(op: Any) -> Any:
    """Convert an item of a list of transforms to an op; refuse any other object."""
    if isinstance(op, TransformFactory):
        return op()
    if isinstance(op, Views):
        raise ArgumentError(f"{type(op).__name__} must be the last of its list of transforms.")
    # A class, or Resize, which is a function that looks like a class.
    makes_op = inspect.isclass(op) or (op is Resize)
    if isinstance(op, Transform):
        return left_to_chance(op)
    if isinstance(op, Channels):
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
                    f"`transforms` has an entry for {names}; it must be for one field, or for several different ones."
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
