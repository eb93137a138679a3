"""The hand-off to JAX: the only file that imports it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DataError
from .spec import Spec, narrowed

if TYPE_CHECKING:
    import jax
    from jax.sharding import Sharding


class JaxHandOff:
    """Host arrays -> jax.Arrays, without a copy where the device is the CPU."""

    def __init__(self, sharding: "Sharding | None" = None) -> None:
        import jax

        if sharding is not None and not isinstance(sharding, jax.sharding.Sharding):
            raise ArgumentError(
                f"`sharding` (={sharding!r}) must be a jax.sharding.Sharding, such as "
                'NamedSharding(mesh, PartitionSpec("data")).'
            )
        self._jax = jax
        self._sharding = sharding
        config: Any = jax.config  # its options are attributes that its type does not list
        self._x64 = bool(config.jax_enable_x64)
        self._target = config.jax_default_device if sharding is None else sharding
        self._put_at_once = _put_at_once()
        # (shape, dtype) -> (what JAX calls such an array, its sharding, its device)
        self._known: dict[Any, tuple[Any, Any, Any]] = {}

    def has(self, dtype: np.dtype[Any]) -> bool:
        """Whether JAX has this dtype, perhaps with fewer bits."""
        # To NumPy longdouble and timedelta64 are numbers too; JAX has neither.
        return dtype == np.bool_ or (
            dtype.char not in "gGm" and bool(self._jax.numpy.issubdtype(dtype, np.number))
        )

    def dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype in which JAX takes a field."""
        if not self.has(dtype):
            raise ArgumentError(
                f'field {name!r} has dtype {dtype}, which JAX does not have; use output="numpy".'
            )
        return dtype if self._x64 else narrowed(dtype)

    def check_batch(self, name: str, spec: Spec, size: int) -> None:
        """Raise if a batch of `size` rows cannot be divided as the sharding says."""
        if self._sharding is None:
            return
        try:
            self._sharding.shard_shape((size, *spec.shape))
        except ValueError as error:
            raise ArgumentError(
                f"a batch of {size} rows of field {name!r} cannot be divided by `sharding` "
                f"(={self._sharding}): {error}"
            ) from error

    def put(self, array: NDArray[Any], *, leased: bool) -> "jax.Array":
        """A host array as a jax.Array. Only leased memory is shared: nobody else can write to it later."""
        dtype = array.dtype.newbyteorder("=")
        dtype = dtype if self._x64 else narrowed(dtype)
        if dtype != array.dtype:
            narrow = array.astype(dtype)
            if dtype.kind in "iu" and not np.array_equal(narrow, array):
                raise DataError(
                    f"`transform` returned {array.dtype} values that do not fit into {dtype}, "
                    "which JAX uses while x64 is off."
                )
            array = narrow
        elif not leased or not array.flags.c_contiguous:
            array = array.copy()
        kind = (array.shape, array.dtype)
        known = self._known.get(kind)
        if known is not None:
            # What `device_put` ends in: 4 us instead of 74.
            assert self._put_at_once is not None
            placed: jax.Array = self._put_at_once(*known[:2], [array], [known[2]], False)
            return placed
        # Without a target the array is not committed to its device, as DLPack would do: a step that was compiled with
        # parameters fresh from their initialisation would compile again at its second call (2 s for a small model).
        # Aligned memory is shared all the same.
        placed = self._jax.device_put(array, self._target)
        if self._target is None and self._put_at_once is not None:
            self._learn(kind, array, placed)
        return placed

    def _learn(self, kind: Any, array: NDArray[Any], placed: "jax.Array") -> None:
        """Remember how arrays of this kind are placed, if the short way gives the same as the official one."""
        assert self._put_at_once is not None
        device = next(iter(placed.devices()))
        try:
            again = self._put_at_once(placed.aval, placed.sharding, [array], [device], False)
            same = (
                not again.committed
                and again.dtype == placed.dtype
                and again.shape == placed.shape
                and again.devices() == placed.devices()
                and np.array_equal(
                    np.asarray(again), np.asarray(placed), equal_nan=array.dtype.kind in "fc"
                )
            )
        except Exception:  # noqa: BLE001 - it is not a promised interface: another release may have another one
            same = False
        if same:
            self._known[kind] = (placed.aval, placed.sharding, device)
        else:
            self._put_at_once = None


def _put_at_once() -> Any:
    """The last step of `jax.device_put`, without the 70 us of Python in front of it, where this JAX has it."""
    try:
        from jax._src.lib import xla_client  # type: ignore[attr-defined]
    except ImportError:
        return None
    return getattr(xla_client, "batched_device_put", None)
