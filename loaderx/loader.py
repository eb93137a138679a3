"""`DataLoader`: checks the arguments and makes the batch builder."""

import dataclasses
import functools
import operator
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from .batch.batch_types import (
    Array,
    Batch_co,
    CommonOptions,
    HookOptions,
    Options,
    SingleOptions,
)
from .batch.builder import MASK, MASK_SPEC, BatchBuilder, with_mask
from .batch.encoded_rows import ON_ERROR, EncodedReader, OnError, Replacement
from .batch.planner import BatchPlanner, Field, Group
from .compiler.chain import Chain
from .compiler.entries import chains, needs_window
from .compiler.explain import explain
from .compiler.head import Head
from .compiler.points_head import PointsHead
from .display.reprs import ReprFromArguments
from .errors import ArgumentError, DataError
from .output import HandOff, Output, hand_off_to
from .output.jax import OwnDevices
from .process.cores import cores
from .run.iterator import History, LoaderIterator
from .sources import AddressableSource, FieldsSource, Mixture, Source, as_rows, as_source
from .sources.data_types import Fields, Labels, Single, Unknown, Untyped
from .sources.encoded.field import EncodedSpec
from .sources.source import RowSpec, check_lengths, specs_of
from .spec import Spec, plain_array
from .stream.order import Order
from .stream.ranges import Ranges, union
from .stream.remainder import RemainderName, Span
from .stream.sampling import MOST_ROWS, MixtureSampler, RowSampler, WeightedSampler
from .transforms.boxes import Boxes
from .transforms.kinds import Kind

if TYPE_CHECKING:
    import jax
    import torch
    from jax.sharding import Sharding

    from .on_device.callback import Stream
    from .output.dlpack import DLPackArray

T = TypeVar("T")
# Outputs whose batches are converted after a `transform`.
OtherOutput: TypeAlias = Literal["jax", "torch", "dlpack"] | Callable[[Any], Any]


class DataLoader(ReprFromArguments, Generic[Batch_co]):
    """Loader of batches of rows: endless, shuffled anew in every epoch, deterministic, resumable at any step.

    dataset     a source, an array, or a dict or tuple of these; batches have the same structure
    labelset    with it, batches are {"data": rows of dataset, "label": rows of labelset}
    batch_size  rows of a batch; with `sharding`, those of all processes together
    shuffle     True: a new permutation of all rows in every epoch; False: rows in their order
    seed        seed of the order and of all random transforms, from 0 to 2**64 - 1
    num_epochs  epochs of the stream; None: endless
    remainder   policy for epochs that do not divide into batches: "straddle" (the default of an endless loader), "keep"
                (of a finite one), "drop", or "pad", which adds a boolean field "mask"
    weights     one number per row: rows are drawn with replacement, each as often as its weight says
    transforms  {"image": [ops]}: ops on samples, compiled; a bare list goes to the only field or to the field "data"
    kinds       {"mask": "labels", "depth": "values"}: kinds of fields next to an image, where names, dtypes and shapes
                do not tell: "image", "labels", "instances", "values", "boxes", "keypoints", "length", or
                transforms.Boxes("yolo")
    transform   function that is called with each finished batch of NumPy arrays, on a worker thread, and returns the
                batch to deliver
    prefetch    number of batches that are kept ready, besides those that workers build at the time
    workers     number of threads that build batches; None: one per core
    output      "jax", "numpy", "torch" or "dlpack", or a function from a NumPy array to the value to deliver
    sharding    layout of a batch over devices, also over those of other processes: a jax.sharding.Sharding, or a dict
                with one for each field
    on_error    policy for damaged encoded images: "raise", or "replace", which puts another row in its place, chosen
                by seed and position, and counts it in the statistics of the iterator
    """

    # Types of batches by the structure of the data set and the output, for type checkers. `Any` is for types that only
    # the data tells, such as the rows of a user's object, and for the result of a `transform`.
    # fmt: off
    @overload
    def __init__(self: "DataLoader[Any]", dataset: Untyped, labelset: None = ..., *,
                 output: Output = ..., **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, jax.Array]]", dataset: Fields, labelset: None = ..., *,
                 output: Literal["jax"] = ..., **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, Array]]", dataset: Fields, labelset: None = ..., *,
                 output: Literal["numpy"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, torch.Tensor]]", dataset: Fields, labelset: None = ..., *,
                 output: Literal["torch"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, DLPackArray]]", dataset: Fields, labelset: None = ..., *,
                 output: Literal["dlpack"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, T]]", dataset: Fields, labelset: None = ..., *,
                 output: Callable[[Array], T], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, jax.Array]]", dataset: Any, labelset: "Labels", *,
                 output: Literal["jax"] = ..., **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, Array]]", dataset: Any, labelset: "Labels", *,
                 output: Literal["numpy"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, torch.Tensor]]", dataset: Any, labelset: "Labels", *,
                 output: Literal["torch"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, DLPackArray]]", dataset: Any, labelset: "Labels", *,
                 output: Literal["dlpack"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[dict[str, T]]", dataset: Any, labelset: "Labels", *,
                 output: Callable[[Array], T], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[tuple[jax.Array, ...]]", dataset: tuple[Any, ...], labelset: None = ..., *,
                 output: Literal["jax"] = ..., **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[tuple[Array, ...]]", dataset: tuple[Any, ...], labelset: None = ..., *,
                 output: Literal["numpy"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[tuple[torch.Tensor, ...]]", dataset: tuple[Any, ...], labelset: None = ..., *,
                 output: Literal["torch"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[tuple[DLPackArray, ...]]", dataset: tuple[Any, ...], labelset: None = ..., *,
                 output: Literal["dlpack"], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[tuple[T, ...]]", dataset: tuple[Any, ...], labelset: None = ..., *,
                 output: Callable[[Array], T], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self: "DataLoader[jax.Array]", dataset: "Single", labelset: None = ..., *,
                 output: Literal["jax"] = ..., **options: Unpack[SingleOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[Array]", dataset: "Single", labelset: None = ..., *,
                 output: Literal["numpy"], **options: Unpack[SingleOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[torch.Tensor]", dataset: "Single", labelset: None = ..., *,
                 output: Literal["torch"], **options: Unpack[SingleOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[DLPackArray]", dataset: "Single", labelset: None = ..., *,
                 output: Literal["dlpack"], **options: Unpack[SingleOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[T]", dataset: "Single", labelset: None = ..., *,
                 output: Callable[[Array], T], **options: Unpack[SingleOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[Any]", dataset: "Single", labelset: None = ..., *, remainder: Literal["pad"],
                 output: Output = ..., transforms: Any = ..., **options: Unpack[CommonOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[Any]", dataset: "Single", labelset: None = ..., *, transforms: Any,
                 remainder: RemainderName | None = ..., output: Output = ...,
                 **options: Unpack[CommonOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[T]", dataset: Any, labelset: Any = ..., *, transform: Callable[[Any], T],
                 output: Literal["numpy"], **options: Unpack[HookOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[Any]", dataset: Any, labelset: Any = ..., *, transform: Callable[[Any], Any],
                 output: OtherOutput = ..., **options: Unpack[HookOptions]) -> None: ...
    @overload
    def __init__(self: "DataLoader[Any]", dataset: Unknown, labelset: None = ..., *,
                 output: Output = ..., **options: Unpack[Options]) -> None: ...
    # fmt: on
    def __init__(
        self,
        dataset: Any,
        labelset: Any = None,
        *,
        batch_size: int = 256,
        shuffle: bool = True,
        seed: int = 0,
        num_epochs: int | None = None,
        remainder: RemainderName | None = None,
        weights: Any = None,
        transforms: Any = None,
        kinds: Mapping[str, Kind | Boxes] | None = None,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 2,
        workers: int | None = None,
        output: Output = "jax",
        sharding: "Sharding | Mapping[str, Sharding] | None" = None,
        on_error: OnError = "raise",
    ) -> None:
        prefetch = _count("prefetch", prefetch)
        workers = _count("workers", cores() if workers is None else workers)
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"`transform` (={transform!r}) must be a callable of a batch; ops on samples go to `transforms`."
            )
        if not isinstance(shuffle, bool | np.bool_):
            raise ArgumentError(f"`shuffle` (={shuffle!r}) must be True or False.")
        if num_epochs is not None:
            num_epochs = _count("num_epochs", num_epochs)
        seed = _integer("seed", seed)
        if not 0 <= seed < 1 << 64:
            raise ArgumentError(f"`seed` (={seed}) must be from 0 to 2**64 - 1.")

        _check_mixtures(dataset, labelset)
        structure, named = _fields(dataset, labelset)
        rows = len(next(iter(named.values())))
        order = Order(
            rows=rows,
            batch_size=_count("batch_size", batch_size),
            shuffle=bool(shuffle),
            seed=seed,
            epochs=num_epochs,
            remainder=_default_remainder(num_epochs) if remainder is None else remainder,
            sampler=_sampler(dataset, weights, rows, bool(shuffle), seed),
        )
        padded = order.policy.adds_mask
        if padded and isinstance(structure, dict) and MASK in structure:
            raise ArgumentError(
                f'remainder="pad" adds a field {MASK!r}, and `dataset` already has one. Rename that field.'
            )
        hand_off = hand_off_to(output, sharding)
        if on_error not in ON_ERROR:
            raise ArgumentError(
                f"`on_error` (={on_error!r}) must be one of {', '.join(map(repr, ON_ERROR))}."
            )
        replacement = Replacement(seed, rows) if on_error == "replace" else None
        groups = _groups(named, hand_off, transforms, seed, kinds, replacement)
        structure = _structure(structure, groups)
        names = [field.name for group in groups for field in group.fields]
        blocks = None
        if hand_off.sharded:
            hand_off.check_fields([*names, MASK] if padded else names)
            _check_sharding(hand_off, groups, order, hooked=transform is not None)
            blocks = functools.partial(_blocks, hand_off)
        # Iterators in use, for their statistics.
        self._iterators: weakref.WeakSet[LoaderIterator[Batch_co]] = weakref.WeakSet()
        self._history = History() if order.shuffle and order.epochs is not None else None
        self._dataset, self._labelset = dataset, labelset
        self._prefetch, self._workers = prefetch, workers
        self._output, self._sharding = output, sharding
        planner = BatchPlanner(
            groups, order, workers, prefetch, blocks, hooked=transform is not None
        )
        self._builder = BatchBuilder(
            planner=planner,
            structure=with_mask(structure) if padded else structure,
            hook=transform,
            hand_off=hand_off,
            mask_pool=(
                planner.pool(MASK_SPEC, hand_off.blocks(MASK, MASK_SPEC, order.batch_size))
                if padded
                else None
            ),
        )

    @property
    def dataset(self) -> Any:
        """Data set, as it was given."""
        return self._dataset

    @property
    def labelset(self) -> Any:
        """Labels, as they were given."""
        return self._labelset

    @property
    def batch_size(self) -> int:
        """Rows of a batch, of all processes together."""
        return self._builder.order.batch_size

    @property
    def shuffle(self) -> bool:
        """True if every epoch has a new order."""
        return self._builder.order.shuffle

    @property
    def seed(self) -> int:
        """Seed of the order and of all random transforms."""
        return self._builder.order.seed

    @property
    def num_epochs(self) -> int | None:
        """Number of epochs of the stream; None if endless."""
        return self._builder.order.epochs

    @property
    def remainder(self) -> RemainderName:
        """Remainder policy, for epochs that do not divide into batches."""
        return self._builder.order.remainder

    @property
    def prefetch(self) -> int:
        """Number of batches that are kept ready."""
        return self._prefetch

    @property
    def workers(self) -> int:
        """Number of worker threads of an iterator."""
        return self._workers

    @property
    def output(self) -> Output:
        """Kind of arrays in a batch."""
        return self._output

    @property
    def sharding(self) -> "Sharding | Mapping[str, Sharding] | None":
        """Layout of a batch over devices."""
        return self._sharding

    def __reduce__(self) -> tuple[Any, ...]:
        given, named = self._written
        plain = {name: value for name, value in named.items() if name != "sharding"}
        devices = OwnDevices(named["sharding"]) if named.get("sharding") is not None else None
        stream = self._builder.order.rows, self._builder.description
        return _remade, (type(self), given, plain, devices, stream)

    def __iter__(self) -> LoaderIterator[Batch_co]:
        """Return a new iterator from the start of the stream; several may run side by side."""
        return self._registered(self._make_iterator(self._history))

    def epoch(self, number: int) -> LoaderIterator[Batch_co]:
        """Return an iterator over epoch `number` of the stream: over the batches that begin in it.

        All epochs in sequence are the whole stream. Each has its own order and its own random draws. `number` may be
        `num_epochs` or larger.
        """
        number = _integer("number", number)
        if number < 0:
            raise ArgumentError(f"`number` (={number}) of an epoch must not be negative.")
        order = self._builder.order
        if order.epochs is not None and number >= order.epochs:
            order = dataclasses.replace(order, epochs=None)
        if not order.reaches((number + 1) * order.rows):
            raise IndexError(f"epoch {number} is beyond the 2**63 samples of a stream.")
        steps = range(order.first_step(number), order.first_step(number + 1))
        return self._registered(self._make_iterator(order=order, steps=steps))

    def _make_iterator(
        self,
        history: History | None = None,
        *,
        order: Order | None = None,
        steps: range | None = None,
    ) -> LoaderIterator[Batch_co]:
        return LoaderIterator(self._builder, self._workers, history, order=order, steps=steps)

    def _registered(self, iterator: LoaderIterator[Batch_co]) -> LoaderIterator[Batch_co]:
        self._iterators.add(iterator)
        return iterator

    def __bool__(self) -> bool:
        """Return True: an endless loader has no length by which Python could decide."""
        return True

    def __len__(self) -> int:
        """Return the number of batches of a finite loader."""
        steps = self._builder.order.steps
        if steps is None:
            raise TypeError("an endless loader has no length; give it `num_epochs`.")
        return steps

    def batch(self, step: int) -> Batch_co:
        """Build batch `step` of the stream in this thread and return it."""
        try:
            batch: Batch_co = self._builder.for_calling_thread().build(
                _integer("step", step), self._span(step)
            )
            return batch
        except StopIteration as error:
            # It would end a caller's `map` or generator as if the data had ended.
            raise RuntimeError(f"step {step} raised StopIteration") from error

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the rows that make up batch `step`."""
        order = self._builder.order
        return order.rows_of(self._span(step))

    @overload
    def as_callback(self: "DataLoader[dict[str, Any]]") -> "Stream[dict[str, jax.Array]]": ...
    @overload
    def as_callback(
        self: "DataLoader[tuple[Any, ...]]",
    ) -> "Stream[tuple[jax.Array, ...]]": ...
    @overload
    def as_callback(self: "DataLoader[jax.Array | Array]") -> "Stream[jax.Array]": ...
    @overload
    def as_callback(self) -> "Stream[Any]": ...
    def as_callback(self) -> "Stream[Any]":
        """Return the stream as a callback for jit and scan: called there, it returns the next batch."""
        from .on_device.callback import Stream, check_constant

        order = self._builder.order
        check_constant(order.remainder, order.epochs is None)
        return Stream(iter(self), self.batch(0))

    def explain(self) -> str:
        """Return a table of the transforms: what each does to a sample and how long it takes, measured now."""
        fields = self._builder.planner.fields
        return explain({field.name: field.chain for field in fields if field.chain is not None})

    def _span(self, step: int) -> Span:
        order = self._builder.order
        step = _integer("step", step)
        if step < 0:
            raise ArgumentError(f"`step` (={step}) must not be negative.")
        position = order.position_of(step)
        if not order.reaches(position):
            raise IndexError(f"`step` (={step}) is beyond the 2**63 samples of a stream.")
        span = order.span(position)
        if span is None:
            raise IndexError(f"`step` (={step}) is beyond the {order.steps} steps of this loader.")
        return span

    def __repr__(self) -> str:
        order = self._builder.order
        fields = ", ".join(f"{field.name}: {field.spec}" for field in self._builder.planner.fields)
        length = "endless" if order.steps is None else f"{order.steps} steps"
        return (
            f"DataLoader({order.rows} rows of {{{fields}}}, batch_size={order.batch_size}, {length}, "
            f"shuffle={order.shuffle}, seed={order.seed}, remainder={order.remainder!r})"
        )

    def _repr_html_(self) -> str:
        from .display.html import loader_html

        return loader_html(self)


def _remade(
    kind: Any,
    given: tuple[Any, ...],
    named: dict[str, Any],
    devices: OwnDevices | None,
    stream: tuple[int, str],
) -> DataLoader:
    """Make a copy of a loader from its arguments, in this process or in the one it was pickled for."""
    if devices is not None:
        named = {**named, "sharding": devices.sharding}
    made: DataLoader = kind(*given, **named)
    found = made._builder.order.rows, made._builder.description
    if found != stream:
        raise DataError(
            f"the data or the weights of a loader have changed since it was made: it had {stream[0]} rows of "
            f"{stream[1]}, its copy has {found[0]} rows of {found[1]}. Make a new loader."
        )
    return made


def _fields(dataset: Any, labelset: Any) -> tuple[RowSpec, dict[str, Source]]:
    """Return the structure of a row, and the sources that fill it."""
    if labelset is not None:
        dataset = {"data": dataset, "label": labelset}
    if isinstance(dataset, Mapping):
        dataset = as_rows(dataset)
    if isinstance(dataset, tuple):
        named = {str(number): as_source(value) for number, value in enumerate(dataset)}
        check_lengths(named)
        return tuple(FieldsSource(named).spec.values()), named
    source = as_source(dataset)
    if isinstance(source, FieldsSource):
        return source.spec, source.fields
    return source.spec, {"data": source}


def _check_mixtures(dataset: Any, labelset: Any) -> None:
    """Refuse a mixture that is only a part of the data, since its proportions would be lost."""
    inside: list[Any] = [labelset]
    if isinstance(dataset, Mapping | tuple):
        inside += dataset.values() if isinstance(dataset, Mapping) else dataset
    if any(isinstance(value, Mixture) for value in inside):
        raise ArgumentError(
            "a Mixture must be the whole `dataset` and not a field of it; mix dicts of fields instead: "
            'Mixture({"a": ({"image": ..., "label": ...}, 0.7), ...}).'
        )


def _sampler(dataset: Any, weights: Any, rows: int, shuffle: bool, seed: int) -> RowSampler | None:
    """Return the sampler of weights or of a mixture; None for all rows once per epoch."""
    if weights is None:
        if not isinstance(dataset, Mixture):
            return None
        return MixtureSampler(dataset.lengths, dataset.shares, seed, shuffle)
    if isinstance(dataset, Mixture):
        raise ArgumentError(
            "`weights` and a Mixture do not go together: a Mixture has a weight for each of its parts."
        )
    if not shuffle:
        raise ArgumentError("`weights` draws rows at random; it needs shuffle=True.")
    numbers = plain_array(weights, "`weights`")
    if numbers.shape != (rows,) or numbers.dtype.kind not in "fiub":
        raise ArgumentError(
            f"`weights` must be {rows} numbers, one per row, not {Spec(numbers.shape, numbers.dtype)}."
        )
    if not (np.all((numbers >= 0) & np.isfinite(numbers)) and np.any(numbers)):
        raise ArgumentError("`weights` must be finite, not below 0, and not all 0.")
    if rows >= MOST_ROWS:
        raise ArgumentError(f"`weights` must be for fewer than {MOST_ROWS} rows, not {rows}.")
    return WeightedSampler(numbers.astype(np.float64), seed)


def _groups(
    named: Mapping[str, Source],
    hand_off: HandOff,
    transforms: Any,
    seed: int,
    kinds: Any,
    replacement: Replacement | None,
) -> list[Group]:
    """Return every source with the fields that it fills, and their chains of ops."""
    members = {name: _names(name, source) for name, source in named.items()}
    raw = {
        field: (spec, functools.partial(_first, source, number))
        for name, source in named.items()
        for number, (field, spec) in enumerate(
            zip(members[name], specs_of(source.spec), strict=True)
        )
    }
    found = {}
    if transforms is not None or kinds is not None:
        found = chains({} if transforms is None else transforms, raw, seed, kinds)
    encoded = [field for field, (spec, _) in raw.items() if isinstance(spec, EncodedSpec)]
    for field in encoded:
        if field not in {chain.origin for chain in found.values()}:
            raise needs_window(None, field)
    if replacement is not None and not encoded:
        raise ArgumentError(
            '`on_error` (="replace") is for encoded images, such as those of an ImageFolder, and `dataset` has none.'
        )
    made: dict[str, dict[str, Chain | None]] = {field: {} for field in raw}
    for field, chain in found.items():
        made[chain.origin][field] = chain
    groups = []
    for name, source in named.items():
        fields, columns = [], []
        for column, origin in enumerate(members[name]):
            spec = raw[origin][0]
            for field, own in (made[origin] or {origin: None}).items():
                final = spec if own is None else own.output
                dtype = hand_off.dtype(field, final.dtype)
                fields.append(Field(field, Spec(final.shape, dtype), spec, own))
                columns.append(column)
        if isinstance(source, AddressableSource) and not source.has_fetcher:
            # Each field reads its rows by their addresses, so that none waits for another.
            groups += [Group(source, (field,), (0,)) for field in fields]
        else:
            groups.append(Group(source, tuple(fields), tuple(columns)))
    return [_together(named, groups, replacement)] if encoded else groups


def _together(
    named: Mapping[str, Source], groups: list[Group], replacement: Replacement | None
) -> Group:
    """Return one group of all sources: a damaged image replaces the whole row."""
    origins = {name: number for number, name in enumerate(named)}
    fields = tuple(field for group in groups for field in group.fields)
    columns = tuple(origins[field.origin] for field in fields)
    heads: dict[int, list[Head]] = {}
    points: dict[int, dict[PointsHead, None]] = {}
    for field, column in zip(fields, columns, strict=True):
        head = None if field.chain is None else field.chain.head
        if isinstance(head, PointsHead):
            # Views may share one.
            points.setdefault(column, {})[head] = None
        elif head is not None:
            heads.setdefault(column, []).append(head)
    source = FieldsSource(named)
    followers = {column: list(own) for column, own in points.items()}
    reader = EncodedReader(source, heads, followers, origins, replacement)
    return Group(source, fields, columns, reader)


def _structure(given: RowSpec, groups: list[Group]) -> RowSpec:
    """Return the structure of a batch: the structure of a row, unless transforms add fields to it."""
    fields = {field.name: field.spec for group in groups for field in group.fields}
    if all(field.name == field.origin for group in groups for field in group.fields):
        return given
    if isinstance(given, tuple):
        raise ArgumentError(
            f"`transforms` makes the fields {', '.join(map(repr, fields))}, which need names: give `dataset` as a "
            "dict, not as a tuple."
        )
    return fields


def _names(name: str, source: Source) -> list[str]:
    if isinstance(source.spec, Spec):
        return [name]
    if isinstance(source.spec, dict):
        return list(source.spec)
    return [str(number) for number in range(len(source.spec))]


def _first(source: Source, number: int) -> NDArray[Any]:
    """Return the field `number` of row 0."""
    row = source[0]
    if isinstance(source.spec, Spec):
        return np.asarray(row)
    return np.asarray(list(row.values())[number] if isinstance(row, dict) else row[number])


def _blocks(hand_off: HandOff, field: Field, size: int) -> Ranges:
    return hand_off.blocks(field.name, field.spec, size)


def _check_sharding(hand_off: HandOff, groups: list[Group], order: Order, *, hooked: bool) -> None:
    fields = [field for group in groups for field in group.fields]
    if order.policy.adds_mask:
        fields.append(Field(MASK, MASK_SPEC, MASK_SPEC))
    rest = order.short(0)
    for field in fields:
        _blocks(hand_off, field, order.batch_size)
        if rest:
            try:
                _blocks(hand_off, field, rest)
            except ArgumentError as error:
                raise ArgumentError(f'{error} Use remainder="pad" or "drop".') from error
    local = {field.name: union(_blocks(hand_off, field, order.batch_size)) for field in fields}
    if hooked and len(set(local.values())) > 1:
        raise ArgumentError(
            f"`transform` sees the rows of this process, and `sharding` gives it other rows of each field: {local}. "
            "Divide all fields by rows in the same way."
        )


def _default_remainder(num_epochs: int | None) -> RemainderName:
    return "straddle" if num_epochs is None else "keep"


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(f"`{name}` (={value!r}) must be an integer.")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"`{name}` (={value!r}) must be an integer.") from None


def _count(name: str, value: Any) -> int:
    number = _integer(name, value)
    if number < 1:
        raise ArgumentError(f"`{name}` (={number}) must be at least 1.")
    return number
