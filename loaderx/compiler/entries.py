"""What a user writes as `transforms` -> a chain of ops per field."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from loaderx.errors import ArgumentError, TransformError
from loaderx.kernels.random import DRAWS
from loaderx.shuffle import derive, number_of
from loaderx.spec import Spec
from loaderx.transforms.authoring import Author
from loaderx.transforms.mix import CutMix, MixTransform
from loaderx.transforms.spatial import Resize
from loaderx.transforms.transform import Transform, WindowTransform

from .chain import Chain, MixStep, PythonStep, name_of
from .draft import Step

FirstSample = Callable[[], NDArray[Any]]


def chains(
    transforms: Any, fields: Mapping[str, tuple[Spec, FirstSample]], seed: int
) -> dict[str, Chain]:
    """The chain of every field that `transforms` names, its entries taken in the order they are written."""
    found: dict[str, Chain] = {}
    for names, ops in _entries(transforms, fields):
        for name in names:
            if name not in fields:
                raise ArgumentError(
                    f"`transforms` names the field {name!r}; `dataset` has {', '.join(map(repr, fields))}."
                )
            found.setdefault(name, Chain(*fields[name]))
        entry = number_of(names)
        for number, op in enumerate(ops):
            key = derive(seed, DRAWS, entry, number)
            try:
                _add(as_op(op), key, [found[name] for name in names], names)
            except TransformError:
                # It names its function, which may be one before this op: a Python function ends what is compiled.
                raise
            except Exception as error:
                error.add_note(f"loaderx: op {number} of `transforms` for {', '.join(names)}")
                raise
    for chain in found.values():
        chain.compile()
    return found


def as_op(op: Any) -> Any:
    """An op or a callable, and nothing else."""
    if isinstance(op, Author):
        return op()
    # A class, or what looks like one to its users: Resize.
    makes_op = inspect.isclass(op) or (op is Resize)
    if isinstance(op, Transform) or (callable(op) and not makes_op):
        return op
    hint = f" Give it its parameters: {op.__name__}(...)." if makes_op else ""
    raise ArgumentError(
        f"`transforms` has {op!r}, which is neither a transform nor a function.{hint}"
    )


def _add(op: Any, key: int, members: Sequence[Chain], names: Sequence[str]) -> None:
    if isinstance(op, WindowTransform | CutMix) and members[0].channels_first:
        raise ArgumentError(
            f"{op.name} takes images of (height, width, channels), and an op before it put the channels first; "
            "put it before that one."
        )
    if isinstance(op, WindowTransform):
        sizes = {name: chain.output.shape[:2] for name, chain in zip(names, members, strict=True)}
        if len(set(sizes.values())) > 1:
            raise ArgumentError(
                f"{op.name}: fields that move together must have the same height and width, got {sizes}."
            )
    image = members[0].output
    for number, chain in enumerate(members):
        if isinstance(op, MixTransform):
            chain.add(MixStep(op, key, image))
        elif isinstance(op, Transform):
            # Behind the image, whole numbers are labels of pixels: never mixed.
            follows = number > 0 and chain.output.dtype.kind in "iub"
            chain.add(Step(op.for_labels() if follows else op, key, follows))
        else:
            chain.add(PythonStep(op, key))
    if not isinstance(op, Transform):
        # In the line of the user's that made the loader, or called the pipeline.
        warnings.warn(
            f"{name_of(op)!r} is a plain Python function: it runs once per sample under the GIL, some 100 times "
            "slower than compiled code. Decorate it with `@loaderx.transform` to have it compiled.",
            stacklevel=5,
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
            if not isinstance(ops, list | tuple):
                raise ArgumentError(
                    f"`transforms[{names[0]!r}]` must be a list of transforms, not {ops!r}."
                )
            entries.append((names, list(ops)))
        return entries
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
