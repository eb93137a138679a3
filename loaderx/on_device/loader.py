"""`DeviceLoader`: the stream of a DataLoader as a pure function of a small state, over data on the device."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from loaderx.batch.batch_types import Array, Batch_co
from loaderx.errors import ArgumentError, StateError
from loaderx.kernels.keys import fields_id
from loaderx.kernels.random import DRAWS, ORDER
from loaderx.output.jax import JaxHandOff
from loaderx.spec import plain_array
from loaderx.stream.remainder import RemainderName, remainder_policy

from .transforms import DeviceTransform, Samples
from .uint64 import Pair, Shuffle, add, fold, high_word, pair_of

Carry = TypeVar("Carry")
Metrics = TypeVar("Metrics")
# Transforms for type checkers; any other callable is accepted, too.
Fields: TypeAlias = dict[str, jax.Array]
FieldOps: TypeAlias = Sequence[DeviceTransform | Callable[[Fields, jax.Array], Fields]]

MASK = "mask"
MOST_ROWS = 2**31


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeviceState:
    """State of a stream: at sample `place` of `epoch`, after `step` batches. A pytree of arrays."""

    seed: jax.Array  # two words
    epoch: jax.Array
    place: jax.Array
    step: jax.Array
    # Static, so that the state of another loader is refused also while a function is traced.
    rows: int = field(metadata={"static": True})


class DeviceLoader(Generic[Batch_co]):
    """Loader of rows that are on the device, in the order of a DataLoader with the same seed.

    data        an array (the field "data"), or a dict or tuple of arrays (fields "0", "1", ...); they are moved to the
                device unless they are there already
    batch_size  rows of a batch
    shuffle     True: a new permutation of all rows in every epoch; False: rows in their order
    seed        seed of the order and of all random transforms, from 0 to 2**64 - 1
    remainder   policy for epochs that do not divide into batches: "straddle" (into the next epoch), "drop", or "pad",
                which adds a boolean field "mask"; all batches have the same shape
    transforms  functions (batch, key) -> batch in JAX, on a dict of fields, or ops of loaderx.on_device.transforms

    `next` and `scan_epoch` are pure functions. Inside a jitted function of your own pass them `data=`, an argument of
    that function: otherwise JAX compiles the data into it as a constant. Data that is sharded by its rows stays so:
    every device contributes the rows it has, and one all-reduce of a batch gives it to all.
    """

    @overload
    def __init__(
        self: "DeviceLoader[Fields]",
        data: Mapping[str, Any],
        *,
        batch_size: int = ...,
        shuffle: bool = ...,
        seed: int = ...,
        remainder: RemainderName = ...,
        transforms: FieldOps = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "DeviceLoader[tuple[jax.Array, ...]]",
        data: tuple[Any, ...],
        *,
        batch_size: int = ...,
        shuffle: bool = ...,
        seed: int = ...,
        remainder: RemainderName = ...,
        transforms: FieldOps = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "DeviceLoader[jax.Array]",
        data: Array | jax.Array,
        *,
        batch_size: int = ...,
        shuffle: bool = ...,
        seed: int = ...,
        remainder: Literal["straddle", "drop"] = ...,
        transforms: Sequence[DeviceTransform] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "DeviceLoader[Any]",
        data: Any,
        *,
        batch_size: int = ...,
        shuffle: bool = ...,
        seed: int = ...,
        remainder: RemainderName = ...,
        transforms: Sequence[Callable[..., Any]] = ...,
    ) -> None: ...
    def __init__(
        self,
        data: Any,
        *,
        batch_size: int = 256,
        shuffle: bool = True,
        seed: int = 0,
        remainder: RemainderName = "straddle",
        transforms: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._structure = _structure(data)
        self.data = _on_device(_named(data))
        lengths = {name: len(array) for name, array in self.data.items()}
        if len(set(lengths.values())) > 1:
            raise ArgumentError(f"all fields must have the same number of rows, got {lengths}.")
        self.rows = next(iter(lengths.values()))
        if not 0 < self.rows < MOST_ROWS:
            raise ArgumentError(f"`data` has {self.rows} rows; there must be from 1 to 2**31 - 1.")
        self.batch_size = _count("batch_size", batch_size)
        self._policy = remainder_policy(remainder, self.rows, self.batch_size, one_size=True)
        if self._policy.adds_mask and MASK in self.data:
            raise ArgumentError(
                f"remainder={remainder!r} adds a field {MASK!r}, and `data` already has one. Rename that field."
            )
        if not isinstance(shuffle, bool | np.bool_):
            raise ArgumentError(f"`shuffle` (={shuffle!r}) must be True or False.")
        for op in transforms:
            if not callable(op):
                raise ArgumentError(
                    f"`transforms` has {op!r}; it must be a list of ops of loaderx.on_device.transforms, and of "
                    "functions of (batch, key)."
                )
        self._shuffle = Shuffle(self.rows) if shuffle else None
        self._seed = _seed(seed)
        self._transforms = tuple(transforms)
        # Jitted per loader, so that the compiled programs are freed with it.
        self._next = jax.jit(self._make_next)
        self._scan = jax.jit(self._make_scan, static_argnums=(0, 1))

    def __reduce__(self) -> tuple[Any, ...]:
        for name, array in self.data.items():
            if len(array.sharding.device_set) > 1:
                raise TypeError(
                    f"a DeviceLoader whose field {name!r} is divided over devices (={array.sharding}) cannot be "
                    "pickled or copied: devices belong to their process. Make it anew from the data."
                )
        arguments = {
            "batch_size": self.batch_size,
            "shuffle": self._shuffle is not None,
            "seed": self._seed,
            "remainder": self._policy.name,
            "transforms": self._transforms,
        }
        data = self._structured({name: np.asarray(array) for name, array in self.data.items()})
        return _remade, (type(self), data, arguments)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of one epoch; with "straddle", rows // batch_size."""
        if self._policy.crosses_epochs:
            return max(1, self.rows // self.batch_size)
        return self._policy.steps_per_epoch

    def init(self, seed: int | jax.Array | None = None) -> DeviceState:
        """Return the state at the start of the stream, by default of the loader's seed.

        `jax.vmap(loader.init)(seeds)` returns the states of several streams.
        """
        if isinstance(seed, jax.Array):
            words = jnp.stack([seed.astype(jnp.uint32), jnp.zeros((), jnp.uint32)])
        else:
            words = jnp.array(pair_of(self._seed if seed is None else _seed(seed)), jnp.uint32)
        # Each with its own memory, so that a caller may donate a state.
        epoch, place, step = (jnp.zeros((), jnp.uint32) for _ in range(3))
        return DeviceState(words, epoch, place, step, self.rows)

    def next(self, state: DeviceState, data: Any = None) -> tuple[Batch_co, DeviceState]:
        """Return a batch, and the state after it."""
        return self._next(self._own(state), self._given(data))  # type: ignore[no-any-return]

    def scan_epoch(
        self,
        body: Callable[[Carry, Batch_co], tuple[Carry, Metrics]],
        carry: Carry,
        state: DeviceState,
        *,
        data: Any = None,
        steps: int | None = None,
    ) -> tuple[Carry, DeviceState, Metrics]:
        """Scan `body(carry, batch) -> (carry, metrics)` over the batches of an epoch, as one `lax.scan`.

        Return the last carry, the state after the epoch, and the metrics of all steps. A body that is the same function
        at every call is compiled once.
        """
        length = self.steps_per_epoch if steps is None else _count("steps", steps)
        return self._scan(body, length, carry, self._own(state), self._given(data))  # type: ignore[no-any-return]

    def state_from(self, host: Mapping[str, Any]) -> DeviceState:
        """Convert the state of a DataLoader's iterator over the same rows to one of this loader."""
        self._check_host(host)
        epoch, place = divmod(host["position"], self.rows)
        if epoch >= 1 << 32 or host["step"] >= 1 << 32:
            raise StateError(
                f"the state is in epoch {epoch} at step {host['step']}; on a device both must be below 2**32."
            )
        return replace(
            self.init(host["seed"]),
            epoch=jnp.uint32(epoch),
            place=jnp.uint32(place),
            step=jnp.uint32(host["step"]),
        )

    def state_to(self, state: DeviceState, host: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a state to one of a DataLoader's iterator; `host` is any state of that iterator."""
        self._check_host(host)
        if np.shape(self._own(state).step) != ():
            raise StateError(f"`state` is {len(state.step)} states; convert them one by one.")
        low, high = (int(word) for word in np.asarray(state.seed))
        if host["seed"] != low | high << 32:
            raise StateError(
                f"the state is of seed {low | high << 32}, that of the host of {host['seed']}."
            )
        position = int(state.epoch) * self.rows + int(state.place)
        return {**host, "position": position, "step": int(state.step)}

    def _check_host(self, host: Mapping[str, Any]) -> None:
        """Raise if `host` is not a state of an iterator over as many rows."""
        expected = {"rows": self.rows, "shuffle": self._shuffle is not None}
        needed = {"seed", "position", "step", *expected}
        given: Any = host
        if not isinstance(given, Mapping) or not needed <= given.keys():
            raise StateError(
                f"`host` (={host!r}) must be what `get_state()` of an iterator returned."
            )
        # In a state, a ";" separates the fields from a description of the sampler.
        if ";" in str(host.get("data", "")):
            raise StateError(
                f"the state is of a stream of {host['data']!r}; on a device there are no mixtures and no weights."
            )
        for name, own in expected.items():
            if host[name] != own:
                raise StateError(
                    f"the state belongs to another stream: its {name} is {host[name]!r}, this loader's is {own!r}."
                )

    def _own(self, state: DeviceState) -> DeviceState:
        if not isinstance(state, DeviceState):
            raise StateError(f"`state` (={state!r}) must be what `init()` or `next()` returned.")
        if state.rows != self.rows:
            raise StateError(
                f"the state belongs to another loader: of {state.rows} rows, and this one has {self.rows}."
            )
        return state

    def _given(self, data: Any) -> dict[str, jax.Array]:
        if data is None:
            return self.data
        given = _named(data)
        for name, array in self.data.items():
            other = given.get(name)
            kind = getattr(other, "shape", None), getattr(other, "dtype", None)
            if kind != (array.shape, array.dtype):
                raise ArgumentError(
                    f"`data` must have the field {name!r} of {array.dtype}{list(array.shape)} like the data of this "
                    "loader."
                )
        return {name: given[name] for name in self.data}

    def _make_next(self, state: DeviceState, data: dict[str, jax.Array]) -> tuple[Any, DeviceState]:
        rows = np.uint32(self.rows)
        # A state from before rows were removed may have a place beyond them, for which the shuffle would never end. In
        # a state of the host the place may also be among the rows that are left out.
        epoch, place = self._start(state.epoch, jnp.minimum(state.place, rows - 1))
        ahead = np.arange(self.batch_size, dtype=np.uint32)
        # Of two numbers below 2^31 the sum is below 2^32.
        places, passed = self._wrapped(place + ahead % rows)
        epochs = jnp.broadcast_to(epoch, self.batch_size)
        if self._policy.crosses_epochs:
            epochs = epochs + ahead // rows + passed
        valid = jnp.asarray(self._policy.valid(place, jnp.minimum), jnp.uint32)
        mask = jnp.asarray(ahead < valid) if self._policy.adds_mask else None
        place, passed = self._wrapped(place + valid % rows)
        epoch, place = self._start(epoch + valid // rows + passed, place)
        seed = (state.seed[0], state.seed[1])
        numbers = self._rows_at(seed, epochs, places)
        # All numbers are valid rows: without a bounds check XLA compiles less.
        batch = {
            name: array.at[numbers].get(mode="promise_in_bounds") for name, array in data.items()
        }
        if mask is not None:
            batch[MASK] = mask
        batch = self._transformed(batch, seed, epochs, places)
        following = replace(state, epoch=epoch, place=place, step=state.step + 1)
        return self._structured(batch), following

    def _make_scan(
        self, body: Any, steps: int, carry: Any, state: DeviceState, data: dict[str, jax.Array]
    ) -> tuple[Any, DeviceState, Any]:
        def step(both: Any, _: None) -> Any:
            carry, state = both
            batch, state = self._make_next(state, data)
            carry, metrics = body(carry, batch)
            return (carry, state), metrics

        (carry, state), metrics = jax.lax.scan(step, (carry, state), None, length=steps)
        return carry, state, metrics

    def _start(self, epoch: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the epoch and the place in it at which the next batch begins."""
        place, passed = self._wrapped(place + self._policy.left_out(place))
        return epoch + passed, place

    def _wrapped(self, place: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a place in an epoch, and 1 if it is in the next one."""
        passed = (place >= np.uint32(self.rows)).astype(jnp.uint32)
        return place - passed * np.uint32(self.rows), passed

    def _structured(self, batch: dict[str, Any]) -> Any:
        """Return a batch in the structure of the data, as a DataLoader does."""
        if self._structure is dict or not isinstance(batch, dict):
            return batch
        # JAX sorts the fields of a dict by name, "10" before "2".
        names = dict.fromkeys((*self.data, *batch))
        values = tuple(batch[name] for name in names if name in batch)
        return values[0] if self._structure is None and len(values) == 1 else values

    def _rows_at(self, seed: Pair, epochs: jax.Array, places: jax.Array) -> jax.Array:
        if self._shuffle is None:
            return places
        stream = fold(seed, pair_of(ORDER))
        shuffle, first = self._shuffle, epochs[0]

        def keys_of(epoch: jax.Array) -> jax.Array:
            return shuffle.keys(fold(stream, (epoch, np.uint32(0))))

        if not self._policy.crosses_epochs:
            return shuffle.at(places, keys_of(first))
        # A batch has rows of a few epochs at most. lax.map: two epochs at once take twice as long to compile.
        count = (self.batch_size + self.rows - 2) // self.rows + 1
        keys = jax.lax.map(keys_of, first + np.arange(count, dtype=np.uint32))
        return shuffle.at(places, keys.T[:, epochs - first])

    def _transformed(
        self, batch: dict[str, Any], seed: Pair, epochs: Any, places: Any
    ) -> dict[str, Any]:
        if not self._transforms:
            return batch
        positions = _positions(epochs, places, self.rows)
        draws = fold(seed, pair_of(DRAWS))
        # As on the host: ops on the same fields are numbered.
        numbers: Counter[tuple[str, ...]] = Counter()
        for op in self._transforms:
            fields = op.fields if isinstance(op, DeviceTransform) else ()
            key = fold(fold(draws, pair_of(fields_id(fields))), pair_of(numbers[fields]))
            numbers[fields] += 1
            missing = [name for name in fields if name not in batch]
            if missing:
                raise ArgumentError(
                    f"{type(op).__name__} is for the field {missing[0]!r}; the batch has {list(batch)}."
                )
            if isinstance(op, DeviceTransform):
                batch = op.apply(batch, Samples(key, positions))
            else:
                own = fold(key, (positions[0][0], positions[1][0]))
                words = jnp.stack([jnp.asarray(word, jnp.uint32) for word in own])
                batch = op(batch, jax.random.wrap_key_data(words, impl="threefry2x32"))
        return batch


def _remade(kind: Any, data: Any, arguments: dict[str, Any]) -> DeviceLoader[Any]:
    made: DeviceLoader[Any] = kind(data, **arguments)
    return made


def _positions(epochs: Any, places: Any, rows: int) -> Pair:
    """Return epoch * rows + place, modulo 2**64."""
    product = epochs * np.uint32(rows), high_word(epochs, np.uint32(rows))
    return add(product, (places, jnp.zeros_like(places)))


def _structure(data: Any) -> type | None:
    """Return dict, tuple, or None for a single array."""
    return dict if isinstance(data, Mapping) else tuple if isinstance(data, tuple) else None


def _named(data: Any) -> dict[str, Any]:
    """Return the data as a dict of named fields."""
    if isinstance(data, Mapping):
        return {str(name): value for name, value in data.items()}
    if isinstance(data, tuple):
        return {str(number): value for number, value in enumerate(data)}
    return {"data": data}


def _on_device(named: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Move the fields to the device."""
    if not named:
        raise ArgumentError("`data` has no fields.")
    arrays: dict[str, Any] = {}
    for name, value in named.items():
        if hasattr(value, "columns"):
            raise ArgumentError(
                f"`data` field {name!r} is a table ({type(value).__name__}); give its columns as a dict of arrays."
            )
        where = f"`data` field {name!r}"
        array = value if isinstance(value, jax.Array) else _for_jax(name, plain_array(value, where))
        if array.ndim == 0:
            raise ArgumentError(f"`data` field {name!r} must be an array of rows, not {value!r}.")
        arrays[name] = array
    _check_room(arrays)
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def _for_jax(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with the same numbers in a dtype that JAX has."""
    hand_off = JaxHandOff()
    if not hand_off.has(array.dtype):
        advice = " Decode images by a DataLoader." if array.dtype.hasobject else ""
        raise ArgumentError(
            f"`data` field {name!r} has dtype {array.dtype}, which JAX does not have.{advice}"
        )
    dtype = hand_off.dtype(name, array.dtype)
    narrow = array.astype(dtype, copy=False)
    if dtype != array.dtype and dtype.kind in "iu" and not np.array_equal(narrow, array):
        raise ArgumentError(
            f"`data` field {name!r} has {array.dtype} values that do not fit into {dtype}, which JAX uses while x64 "
            "is off."
        )
    return narrow


def _check_room(arrays: Mapping[str, Any]) -> None:
    """Raise if the data does not fit on the device, before anything is moved."""
    moved = sum(array.nbytes for array in arrays.values() if not isinstance(array, jax.Array))
    config: Any = jax.config  # its options are attributes that its type does not list
    device = config.jax_default_device or jax.local_devices()[0]
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None
    if not stats or "bytes_limit" not in stats:
        return
    free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if moved > free:
        raise ArgumentError(
            f"`data` needs {moved / 1e9:.2f} GB, and {device} has {free / 1e9:.2f} GB free; use a DataLoader, which "
            "streams it."
        )


def _seed(value: Any) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < 1 << 64:
        raise ArgumentError(f"`seed` (={value!r}) must be an integer from 0 to 2**64 - 1.")
    return int(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ArgumentError(f"`{name}` (={value!r}) must be an integer of at least 1.")
    return int(value)
