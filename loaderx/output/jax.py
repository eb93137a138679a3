"""Hand-off to JAX, and the placement of a batch on the devices of this process."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.buffers import ALIGNMENT
from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.uninterrupted import import_uninterrupted
from loaderx.process.shutdown import HandOffGate
from loaderx.spec import Spec, narrowed
from loaderx.stream.ranges import Range, Ranges, count, union

from .base import Blocks, HandOff, Hooked, map_leaves
from .dlpack import DLPackArray, in_dlpack

if TYPE_CHECKING:
    import jax
    from jax.sharding import Sharding

    Shardings = Sharding | Mapping[str, Sharding] | None


@dataclass(frozen=True, eq=False)
class Placement:
    """Placement of the rows of one field of a batch.

    Blocks are the ranges of rows that are one array each in host memory. A shard is the part of a block for one device:
    the device, the number of the block and an index into it.
    """

    sharding: "Sharding | None"
    shape: tuple[int, ...]
    blocks: Ranges
    shards: tuple[tuple[Any, int, tuple[slice, ...]], ...]


@functools.cache
def start_jax() -> None:
    """Start JAX's backend, with the imports that it makes then, protected from Ctrl-C.

    An interrupt in the middle of such an import leaves Python's import lock locked, and all threads wait for ever.
    """

    def put_something() -> None:
        import jax

        jax.device_put(np.zeros(1, np.float32)).block_until_ready()

    import_uninterrupted(put_something)


class JaxHandOff(HandOff):
    """Hand-off of jax.Arrays, without a copy where the device is the CPU.

    Without a sharding they go to `default_device`, any value that `jax.default_device` accepts, or to JAX's default.
    """

    shares_read_only = True

    def __init__(self, shardings: "Shardings" = None, default_device: Any = None) -> None:
        # Protected from Ctrl-C: an interrupted import of JAX cannot be repeated.
        import_uninterrupted(lambda: importlib.import_module("jax"))
        import jax

        self._jax = jax
        self._shardings = shardings
        self.sharded = shardings is not None
        self._default_device = default_device
        if isinstance(shardings, Mapping):
            for name, sharding in shardings.items():
                self._check_sharding(f"sharding[{name!r}]", sharding)
        elif shardings is not None:
            self._check_sharding("sharding", shardings)
        config: Any = jax.config  # its options are attributes that its type does not list
        self._x64 = bool(config.jax_enable_x64)
        self._device_put = _batched_device_put()
        # (placement or shape, dtype) -> the fast path: host arrays -> jax.Array
        self._fast_paths: dict[Any, Callable[[Blocks], jax.Array]] = {}
        # size of a batch -> the fast path of each of its fields
        self._fast_paths_of_size: dict[int, list[Callable[[Blocks], jax.Array]]] = {}
        self._placements: dict[tuple[str, Spec, int], Placement] = {}

    def _check_sharding(self, argument: str, sharding: Any) -> None:
        if not isinstance(sharding, self._jax.sharding.Sharding):
            raise ArgumentError(
                f"`{argument}` (={sharding!r}) must be a jax.sharding.Sharding, such as "
                'NamedSharding(mesh, PartitionSpec("data")).'
            )

    def for_calling_thread(self) -> "JaxHandOff":
        if self._shardings is not None:
            return self
        config: Any = self._jax.config
        device = config.jax_default_device
        return self if device == self._default_device else JaxHandOff(None, device)

    def check_fields(self, names: Sequence[str]) -> None:
        if isinstance(self._shardings, Mapping):
            given = set(self._shardings)
            if given != set(names):
                raise ArgumentError(
                    f"`sharding` is for the fields {sorted(given)}, and batches have {sorted(names)}; give one "
                    "for each, or one for all."
                )

    def _sharding(self, name: str) -> "Sharding | None":
        if isinstance(self._shardings, Mapping):
            return self._shardings[name]
        return self._shardings

    def has(self, dtype: np.dtype[Any]) -> bool:
        """Return True if JAX has this dtype, perhaps with fewer bits."""
        # For NumPy longdouble and timedelta64 are numbers, too; JAX has neither.
        return dtype == np.bool_ or (
            dtype.char not in "gGm" and bool(self._jax.numpy.issubdtype(dtype, np.number))
        )

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        if not self.has(dtype):
            raise ArgumentError(
                f'field {name!r} has dtype {dtype}, which JAX does not have; use output="numpy".'
            )
        return dtype if self._x64 else narrowed(dtype)

    def blocks(self, name: str, spec: Spec, size: int) -> Ranges:
        return self.placement(name, spec, size).blocks

    def deliver(self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int) -> list[Any]:
        paths = self._fast_paths_of_size.get(size)
        if paths is None:
            return self._deliver_first(specs, arrays, size)
        with HandOffGate():
            return [path(blocks) for path, blocks in zip(paths, arrays, strict=True)]

    def _deliver_first(
        self, specs: Mapping[str, Spec], arrays: Sequence[Blocks], size: int
    ) -> list[Any]:
        """Deliver a batch of a new size, and cache the fast path of each field if all have one."""
        placements = [self.placement(name, spec, size) for name, spec in specs.items()]
        with HandOffGate():
            placed = [
                self.put(blocks, placement, leased=True)
                for blocks, placement in zip(arrays, placements, strict=True)
            ]
        paths: list[Callable[[Blocks], jax.Array]] = []
        for blocks, placement in zip(arrays, placements, strict=True):
            whole = placement.sharding is None
            kind = (blocks[0].shape if whole else placement, blocks[0].dtype)
            path = self._fast_paths.get(kind)
            if path is None:
                return placed
            paths.append(path if whole else functools.partial(_put_shards, path, placement))
        self._fast_paths_of_size[size] = paths
        return placed

    def deliver_hooked(self, batch: Any, facts: Hooked) -> Any:
        def convert(name: str, leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray | np.generic | bool | int | float | complex):
                # A hook may add other objects than numbers: names, a jax.Array, None.
                return leaf
            array = np.asarray(leaf)
            if not self.has(array.dtype):
                return leaf
            leased = facts.is_leased(array)
            if self.sharded:
                return self.put_hooked(
                    name or "data", array, facts.local, facts.size, leased=leased
                )
            return self.put_whole(array, leased=leased)

        with HandOffGate():
            return map_leaves(batch, convert)

    def placement(self, name: str, spec: Spec, size: int) -> Placement:
        """Return the placement of a field in a batch of `size` rows, of all processes together."""
        known = self._placements.get((name, spec, size))
        if known is None:
            known = self._placements[name, spec, size] = self._place(name, spec, size)
        return known

    def _place(self, name: str, spec: Spec, size: int) -> Placement:
        sharding, shape = self._sharding(name), (size, *spec.shape)
        if sharding is None:
            return Placement(None, shape, ((0, size),), ())
        # JAX checks that only later; before, it raises an IndexError or nothing.
        if len(getattr(sharding, "spec", ())) > len(shape):
            raise ArgumentError(
                f"`sharding` (={sharding}) has more axes than field {name!r}, whose batches have the shape {shape}; "
                "give one for each field."
            )
        try:
            sharding.shard_shape(shape)
            indices = sharding.addressable_devices_indices_map(shape)
        except ValueError as error:
            raise ArgumentError(
                f"a batch of {size} rows of field {name!r} cannot be divided by `sharding` (={sharding}): {error}"
            ) from error
        if not indices:
            raise ArgumentError(
                f"no device of this process takes part in `sharding` (={sharding}) of field {name!r}."
            )
        rows = {device: _rows(index, size) for device, index in indices.items()}
        pieces = sorted(set(rows.values()))
        blocks: list[Range] = []
        for start, stop in pieces:
            # Memory is shared with a device only if it begins at a cache line.
            aligned = blocks and (start - blocks[-1][0]) * spec.nbytes % ALIGNMENT == 0
            if aligned and blocks[-1][1] == start:
                blocks[-1] = (blocks[-1][0], stop)
            else:
                blocks.append((start, stop))
        shards = []
        for device, index in indices.items():
            start, stop = rows[device]
            number = next(
                n for n, block in enumerate(blocks) if block[0] <= start < max(block[1], 1)
            )
            first = blocks[number][0]
            inside = tuple(index or ())[1:]
            shards.append((device, number, (slice(start - first, stop - first), *inside)))
        return Placement(sharding, shape, tuple(blocks), tuple(shards))

    def put_hooked(
        self, name: str, array: NDArray[Any], needed: Ranges, size: int, *, leased: bool
    ) -> "jax.Array":
        """Deliver an array that a hook returned for a batch of `size`, of which it was given the rows `needed`."""
        if isinstance(self._shardings, Mapping) and name not in self._shardings:
            raise ArgumentError(
                f"`transform` returned {name!r}, for which there is no sharding; `sharding` has "
                f"{sorted(self._shardings)}. Add one for {name!r}."
            )
        sharding = self._sharding(name)
        assert sharding is not None
        array = self._converted(array, leased=leased)
        if sharding.is_fully_addressable:
            placed: jax.Array = self._jax.device_put(array, sharding)
            return placed
        if array.ndim == 0 or len(array) != count(needed):
            raise ArgumentError(
                f"`transform` returned an array of shape {array.shape} for {name!r}; where `sharding` is over "
                f"several processes its first axis must be the {count(needed)} rows that it was given."
            )
        placement = self.placement(name, Spec(array.shape[1:], array.dtype), size)
        if union(placement.blocks) != needed:
            raise ArgumentError(
                f"`transform` returned {name!r}, whose `sharding` puts other rows on the devices of this process than "
                "`transform` was given. Divide it by rows as the other fields."
            )
        starts = np.cumsum([0] + [stop - start for start, stop in needed])
        parts = []
        for start, stop in placement.blocks:
            run = next(n for n, own in enumerate(needed) if own[0] <= start and stop <= own[1])
            first = int(starts[run]) + start - needed[run][0]
            parts.append(array[first : first + stop - start])
        return self.put(parts, placement, leased=True)

    def put(
        self, blocks: Sequence[NDArray[Any]], placement: Placement, *, leased: bool
    ) -> "jax.Array":
        """Deliver host arrays as a jax.Array. Only leased memory is shared: nobody else can write to it later."""
        if placement.sharding is None:
            return self.put_whole(blocks[0], leased=leased)
        blocks = [self._converted(block, leased=leased) for block in blocks]
        parts = [blocks[number][inside] for _, number, inside in placement.shards]
        kind = (placement, blocks[0].dtype)
        path = self._fast_paths.get(kind)
        if path is not None:
            return path(parts)
        start_jax()
        devices = [device for device, _, _ in placement.shards]
        pieces = [self._on_device(part, to) for part, to in zip(parts, devices, strict=True)]
        placed = self._jax.make_array_from_single_device_arrays(
            placement.shape, placement.sharding, pieces
        )
        self._validate_fast_path(kind, parts, placed, devices)
        return placed

    def _on_device(self, part: NDArray[Any], device: Any) -> "jax.Array":
        """Deliver host memory as an array that is committed to a device: by DLPack if that device is the CPU."""
        # [24 us; `device_put` takes 74 us, and the fast path, which is compared with both, 3 us]
        if (
            device == self._jax.local_devices(backend="cpu")[0]
            and in_dlpack(part.dtype)
            and part.flags.c_contiguous
            and part.flags.writeable
        ):
            by_dlpack: jax.Array = self._jax.dlpack.from_dlpack(DLPackArray(part))
            return by_dlpack
        placed: jax.Array = self._jax.device_put(part, device)
        return placed

    def put_whole(self, array: NDArray[Any], *, leased: bool) -> "jax.Array":
        """Deliver a host array as a jax.Array without a sharding."""
        array = self._converted(array, leased=leased)
        kind = (array.shape, array.dtype)
        path = self._fast_paths.get(kind)
        if path is not None:
            return path([array])
        start_jax()
        # `device_put` without a target does not commit the array to its device, DLPack does. With a committed array a
        # step that was compiled for freshly initialised parameters compiles again at its second call (2 s for a small
        # model). Aligned memory is shared in both cases.
        with self._jax.default_device(self._default_device):
            placed: jax.Array = self._jax.device_put(array)
        self._validate_fast_path(kind, [array], placed, list(placed.devices()))
        return placed

    def _converted(self, array: NDArray[Any], *, leased: bool) -> NDArray[Any]:
        dtype = array.dtype.newbyteorder("=")
        dtype = dtype if self._x64 else narrowed(dtype)
        if dtype != array.dtype:
            narrow = array.astype(dtype)
            if dtype.kind in "iu" and not np.array_equal(narrow, array):
                raise DataError(
                    f"`transform` returned {array.dtype} values that do not fit into {dtype}, "
                    "which JAX uses while x64 is off."
                )
            return narrow
        return array if leased and array.flags.c_contiguous else array.copy()

    def _validate_fast_path(
        self, kind: Any, parts: list[NDArray[Any]], placed: "jax.Array", devices: list[Any]
    ) -> None:
        """Use the last step of `device_put` for arrays of this kind, 4 us instead of 74, if its result is the same."""
        put = self._device_put
        if put is None:
            return

        def fast_path(parts: Blocks) -> "jax.Array":
            again: jax.Array = put(placed_aval, placed_sharding, parts, devices, committed)
            return again

        # Attributes of the array, not the array: a reference to it would keep the memory of the batch.
        placed_aval, placed_sharding, committed = placed.aval, placed.sharding, placed.committed
        try:
            again = fast_path(parts)
            same = (
                again.committed == placed.committed
                and again.dtype == placed.dtype
                and again.shape == placed.shape
                and again.sharding == placed.sharding
                and all(map(_same, again.addressable_shards, placed.addressable_shards))
            )
        except Exception:  # noqa: BLE001 - a private interface, which another release of JAX may change
            same = False
        if same:
            self._fast_paths[kind] = fast_path
        else:
            # No fast path for any kind from now on.
            self._device_put = None
            self._fast_paths = {}
            self._fast_paths_of_size = {}


class OwnDevices:
    """Sharding in the arguments of a copied loader: it can be copied, but not pickled."""

    def __init__(self, sharding: "Shardings") -> None:
        self.sharding = sharding

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnDevices":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a DataLoader with `sharding` (={self.sharding}) cannot be pickled: devices belong to their process. Make "
            "the loader in the process that uses it, or pickle one without `sharding`."
        )


def _put_shards(
    path: "Callable[[Blocks], jax.Array]", placement: Placement, blocks: Blocks
) -> "jax.Array":
    return path([blocks[number][inside] for _, number, inside in placement.shards])


def _same(one: Any, other: Any) -> bool:
    # By their bytes: a NaN is not equal to itself, and NumPy cannot find the NaNs of bfloat16.
    return (
        one.device == other.device
        and one.index == other.index
        and np.asarray(one.data).tobytes() == np.asarray(other.data).tobytes()
    )


def _rows(index: Any, size: int) -> Range:
    """Return the range of rows of an index into a batch."""
    if not index:
        return 0, size
    start, stop, _ = index[0].indices(size)
    return start, stop


def _batched_device_put() -> Any:
    """Return the last step of `jax.device_put`, without the 70 us of Python before it; None if this JAX has none."""
    try:
        from jax._src.lib import xla_client  # type: ignore[attr-defined]
    except ImportError:
        return None
    return getattr(xla_client, "batched_device_put", None)
