"""Kinds of fields: which field of an entry is its image, and what the other fields next to it are."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.spec import Spec

from .boxes import Boxes

Kind: TypeAlias = Literal["image", "labels", "instances", "values", "boxes", "keypoints", "length"]

IMAGE: Kind = "image"
LABELS: Kind = "labels"
# Labels that are numbers of boxes: ops treat them as labels, except those that add boxes of other samples.
INSTANCES: Kind = "instances"
VALUES: Kind = "values"
BOXES: Kind = "boxes"
KEYPOINTS: Kind = "keypoints"
LENGTH: Kind = "length"
POINTS = (BOXES, KEYPOINTS)

# The kind of a field by the last word of its name. A number at the end is ignored: `image_1`.
WORDS: dict[str, Kind] = {
    **dict.fromkeys(("image", "images", "img", "imgs", "left", "right", "rgb", "photo"), IMAGE),
    **dict.fromkeys(("mask", "masks", "label", "labels", "seg", "segmentation"), LABELS),
    **dict.fromkeys(("instance", "instances"), INSTANCES),
    **dict.fromkeys(("depth", "flow", "heatmap"), VALUES),
    **dict.fromkeys(("boxes", "bboxes", "bbox"), BOXES),
    "keypoints": KEYPOINTS,
    **dict.fromkeys(("length", "lengths"), LENGTH),
}
POINTS_WORDS = tuple(word for word, kind in WORDS.items() if kind in POINTS)
# Length of a row of points; a box may have more numbers after these.
NUMBERS = {BOXES: 4, KEYPOINTS: 2}

# Integers of these dtypes may be the values of an image that has no telling name.
BRIGHTNESS = (np.dtype(np.uint8), np.dtype(np.uint16))


def _is_flat(spec: Spec) -> bool:
    """Return whether a sample has the shape (height, width) or (height, width, channels)."""
    return len(spec.shape) in (2, 3) and 0 not in spec.shape


def _has_rows(spec: Spec, numbers: int, longer: str = "") -> bool:
    """Return whether samples are rows of this many numbers, or of more if these are of some kinds of dtypes."""
    if len(spec.shape) != 2 or spec.dtype.kind not in "iuf":
        return False
    return spec.shape[1] == numbers or (spec.shape[1] > numbers and spec.dtype.kind in longer)


# Rule for the fields of a kind, in words and as a condition.
_RULES: dict[Kind, tuple[str, Callable[[Spec], bool]]] = {
    IMAGE: ("samples of (height, width) or (height, width, channels)", _is_flat),
    LABELS: ("integers or booleans", lambda spec: spec.dtype.kind in "iub"),
    VALUES: ("numbers", lambda spec: spec.dtype.kind in "iufV"),
    BOXES: ("rows of at least 4 numbers, float32[n, 4]", lambda spec: _has_rows(spec, 4, "f")),
    KEYPOINTS: ("rows of 2 numbers, float32[n, 2]", lambda spec: _has_rows(spec, 2)),
    LENGTH: ("single integers", lambda spec: spec.shape == () and spec.dtype.kind in "iu"),
    INSTANCES: (
        "integers of (height, width)",
        lambda spec: _is_flat(spec) and spec.dtype.kind in "iu",
    ),
}


@dataclass(frozen=True)
class FieldKinds:
    """Possible kinds of the fields of an entry, and the index of the field that draws and sizes refer to.

    A field of several possible kinds is uncertain. `has_image` says whether the entry is about an image; otherwise its
    fields are compared to the first one, as in the entries of signals and tokens.
    """

    possible: tuple[tuple[Kind, ...], ...]
    lead: int
    has_image: bool


def check_kinds(given: Any, fields: Collection[str]) -> dict[str, Kind]:
    """Return `kinds` as a dict from field to kind; raise where it names an unknown field or kind."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f'`kinds` (={given!r}) must be a dict from field to kind, such as {{"mask": "labels"}}.'
        )
    found: dict[str, Kind] = {}
    for name, kind in given.items():
        if str(name) not in fields:
            raise ArgumentError(
                f"`kinds` names the field {name!r}; `dataset` has {', '.join(map(repr, fields))}."
            )
        own = BOXES if isinstance(kind, Boxes) else kind
        if not isinstance(own, str) or own not in _RULES:
            raise ArgumentError(
                f"`kinds[{name!r}]` (={kind!r}) must be one of {', '.join(map(repr, _RULES))}, or Boxes(...)."
            )
        found[str(name)] = own
    return found


def formats_of(given: Any) -> dict[str, Boxes]:
    """Return the fields of checked `kinds` whose format of boxes is given, and that."""
    return {str(name): kind for name, kind in (given or {}).items() if isinstance(kind, Boxes)}


def check_kind(name: str, kind: Kind, spec: Spec) -> None:
    """Refuse a given kind that does not fit the field."""
    rule, fits = _RULES[kind]
    if not fits(spec):
        raise ArgumentError(
            f"`kinds[{name!r}]` (={kind!r}) is for {rule}, and the field is {spec}."
        )


def infer_kinds(
    fields: Sequence[tuple[str, Spec]], given: Mapping[str, Kind], *, images: bool, channels: Collection[int]
) -> FieldKinds:  # fmt: skip
    """Return the kinds of the fields of an entry: given, by name, or by dtype and shape next to the image.

    `images` says that an op of the entry accepts images, so there must be one. Without such an op, three axes with one
    of `channels` at the end are an image.
    """
    specs = [spec for _, spec in fields]
    known = [
        _given_or_implied(name, spec, given, place) for place, (name, spec) in enumerate(fields)
    ]
    # Fields with the shape of an image, and without a given kind.
    unknown = [place for place, kind in enumerate(known) if kind is None and _is_flat(specs[place])]
    named = [place for place, kind in enumerate(known) if kind == IMAGE]
    single = len(unknown) == 1 and sum(kind is None for kind in known) == 1
    coloured = any(len(specs[k].shape) == 3 and specs[k].shape[2] in channels for k in unknown)
    if not (images or named or single or coloured):
        return _without_image(known, specs)
    image = named[0] if named else _only_image(unknown, specs)
    possible: list[tuple[Kind, ...]] = []
    for place, (kind, spec) in enumerate(zip(known, specs, strict=True)):
        if kind is not None:
            possible.append((kind,))
        elif place not in unknown:
            possible.append((LABELS if spec.dtype.kind in "iub" else VALUES,))
        elif place == image:
            possible.append((IMAGE,))
        else:
            possible.append(_kinds_by_shape(spec, None if image is None else specs[image]))
    if image is None:
        # Then labels alone are moved, or the kinds are uncertain.
        order = sorted(range(len(specs)), key=lambda place: IMAGE not in possible[place])
        image = next((k for k in order if possible[k][0] not in (*POINTS, LENGTH)), 0)
    return FieldKinds(tuple(possible), image, True)


def compared_to_first(fields: Sequence[tuple[str, Spec]], given: Mapping[str, Kind]) -> FieldKinds:
    """Return the kinds of fields for an op that does not look at images: integers after the first field are labels."""
    known = [
        _given_or_implied(name, spec, given, place) for place, (name, spec) in enumerate(fields)
    ]
    return _without_image(known, [spec for _, spec in fields])


def uncertain(op: str, fields: Sequence[tuple[str, Spec, Sequence[Kind]]]) -> ArgumentError:
    """Return the error for an op that treats the possible kinds of some fields differently."""
    name, spec, (first, second, *_) = fields[0]
    others = ", ".join(repr(other) for other, _, _ in fields[1:])
    return ArgumentError(
        f"{op}: the field {name!r}, {spec}, may be {_article(first)} or {_article(second)} here: neither its name nor "
        f"its dtype and shape next to the other fields tell. Give DataLoader(..., kinds={{{name!r}: {first!r}}}) or "
        f"kinds={{{name!r}: {second!r}}}." + (f" Uncertain, too: {others}." if others else "")
    )


def _without_image(known: Sequence[Kind | None], specs: Sequence[Spec]) -> FieldKinds:
    possible: list[tuple[Kind, ...]] = []
    for place, (kind, spec) in enumerate(zip(known, specs, strict=True)):
        if kind == LENGTH or (kind in POINTS and place > 0):
            possible.append((kind,))
        else:
            possible.append((LABELS if place > 0 and spec.dtype.kind in "iub" else IMAGE,))
    lead = next((place for place, kinds in enumerate(possible) if kinds != (LENGTH,)), 0)
    return FieldKinds(tuple(possible), lead, False)


def counts_boxes(name: str, spec: Spec, given: Mapping[str, Kind]) -> bool:
    """Return whether the labels of a field are numbers of boxes."""
    return given.get(name, _kind_by_name(name)) == INSTANCES and spec.dtype.kind in "iu"


def _kind_by_name(name: str) -> Kind | None:
    """Return the kind that the last word of a name implies."""
    return WORDS.get(name.lower().rstrip("0123456789").rstrip("_").split("_")[-1])


def _given_or_implied(name: str, spec: Spec, given: Mapping[str, Kind], place: int) -> Kind | None:
    """Return the kind of a field that was given, or that its name and dtype imply."""
    if name in given:
        return LABELS if given[name] == INSTANCES else given[name]
    kind = _kind_by_name(name)
    kind = LABELS if kind == INSTANCES else kind
    if kind == LENGTH:
        return kind if place > 0 and _RULES[LENGTH][1](spec) else None
    if kind == IMAGE and not _is_flat(spec):
        return None
    if kind == LABELS and spec.dtype.kind not in "iub":
        return VALUES
    if kind is None and _is_flat(spec) and spec.dtype.kind == "b":
        return LABELS
    return kind


def _only_image(unknown: Sequence[int], specs: Sequence[Spec]) -> int | None:
    """Return the index of the field that must be the image, if there is exactly one."""
    if len(unknown) == 1:
        return unknown[0]
    coloured = [place for place in unknown if _channels(specs[place]) > 1]
    if len(coloured) == 1:
        return coloured[0]
    floating = [place for place in unknown if specs[place].dtype.kind not in "iu"]
    if coloured or len(floating) != 1:
        return None
    others = [specs[place].dtype for place in unknown if place != floating[0]]
    return None if any(dtype in BRIGHTNESS for dtype in others) else floating[0]


def _kinds_by_shape(spec: Spec, image: Spec | None) -> tuple[Kind, ...]:
    """Return the possible kinds of a field next to an image, by dtype and shape."""
    integer = spec.dtype.kind in "iu"
    if image is not None:
        plane = _channels(spec) == 1
        coloured = _channels(image) > 1
        if integer and plane and (coloured or spec.dtype != image.dtype):
            return (LABELS,)
        if not integer and ((plane and coloured) or image.dtype.kind in "iu"):
            return (VALUES,)
    return (IMAGE, LABELS) if integer else (IMAGE, VALUES)


def _channels(spec: Spec) -> int:
    return spec.shape[2] if len(spec.shape) == 3 else 1


def _article(kind: Kind) -> str:
    return "an image" if kind == IMAGE else kind
