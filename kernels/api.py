"""Public functions: they check their arguments and call kernels on all cores.

`gather`, `normalize` and `draws` can also be called from a user's own `@njit` code. There `gather` and `normalize` run
in the thread of the caller, and require `out`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import TypingError
from numba.core import types
from numba.extending import overload
from numpy.typing import ArrayLike, NDArray

from . import gathering, normalization
from .arguments import integers_in, out_problem, threads_problem
from .compilation import jitable
from .distributions import Draws, start_draws
from .keys import derive_key, fields_id
from .memory import copy_bytes
from .normalization import LINE, full_scale
from .numba_internals import as_dtype
from .random import DRAWS, fold
from .row_layout import row_layout
from .threads import run_shared

# One thread copies this much in a few microseconds.
FEW_BYTES = 32 * 1024
FLOATS = ("float32", "float16", "bfloat16")


def gather(
    source: ArrayLike,
    rows: ArrayLike,
    out: NDArray[Any] | None = None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Copy rows of an array or a memory map into a batch, on all cores; return the batch.

    `source` may be read-only, and its rows byte-swapped or not contiguous; `out` has native byte order. `rows` are
    integers with NumPy's meaning: those below 0 count from the end, and one outside is an IndexError. `out` is a
    C-contiguous array of shape (len(rows), *source.shape[1:]); without it a new one is made. `threads` is the largest
    number of threads that take part, by default `numba.get_num_threads()`.

    >>> import numpy as np
    >>> source = np.arange(12).reshape(4, 3)
    >>> batch = np.empty((2, 3), source.dtype)
    >>> gather(source, [3, -4], out=batch)
    array([[ 9, 10, 11],
           [ 0,  1,  2]])
    """
    if isinstance(source, np.ma.MaskedArray):
        raise ValueError(
            "`source` is a masked array, and its mask would be lost. Give `source.filled(...)`."
        )
    array = source if isinstance(source, np.ndarray) else np.asarray(source)
    dtype = array.dtype
    if array.ndim == 0:
        raise ValueError("`source` of shape () has no rows; it must have at least one axis.")
    if dtype.hasobject or dtype.itemsize == 0 or (dtype.names and not dtype.isnative):
        raise ValueError(
            f"`source` has the dtype {dtype}, and must have one with a fixed number of bytes."
        )
    _refuse(threads_problem(threads))
    numbers = integers_in(rows)
    if numbers is None:
        raise IndexError(f"`rows` (={rows!r}) must be integers of 64 bits along one axis.")
    count, shape = len(numbers), (len(numbers), *array.shape[1:])
    dtype = dtype if dtype.isnative else dtype.newbyteorder("=")
    if out is None:
        out = np.empty(shape, dtype)
    else:
        _refuse(out_problem(out, shape, dtype, {"source": array}))
    addresses, misfit = np.empty(count, np.int64), np.empty(1, np.int64)
    gathering.address_rows(
        numbers, len(array), array.ctypes.data, array.strides[0], addresses, misfit
    )
    if misfit[0] >= 0:
        place = int(misfit[0])
        raise IndexError(
            f"`rows[{place}]` (={numbers[place]}) is outside of `source`, which has {len(array)} rows."
        )
    if out.nbytes == 0:
        return out
    size, target, layout = out.nbytes // count, out.reshape(-1).view(np.uint8), row_layout(array)
    if layout.offsets is not None:
        given = layout.offsets, layout.unit, layout.swap
        run_shared(
            count,
            out.nbytes,
            threads,
            lambda parts: gathering.collect_rows_in_parts(parts, addresses, *given, target),
            lambda _, begin, end: gathering.collect_rows(
                addresses[begin:end], *given, target[begin * size : end * size]
            ),
        )
    elif out.nbytes <= FEW_BYTES:
        gathering.copy_rows_holding_gil(addresses, size, target)
    else:
        run_shared(
            count,
            out.nbytes,
            threads,
            lambda parts: gathering.copy_rows_in_parts(parts, addresses, size, target),
            lambda _, begin, end: gathering.copy_rows(
                addresses[begin:end], size, target[begin * size : end * size]
            ),
        )
    return out


def normalize(
    batch: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    out: NDArray[Any] | None = None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Calculate (batch / white - mean) / std along the last axis, on all cores, as `T.Normalize` does; return `out`.

    White is 255 for uint8, the largest value of other integers, and 1 for floats. `batch` holds integers, float32 or
    float64. `out` is a C-contiguous array of the same shape, of float32, float16 or bfloat16; without it a new one of
    float32 is made. With `out=batch` a float32 batch is normalised in place. `threads` is as in `gather`.

    >>> import numpy as np
    >>> batch = np.array([[0, 255], [51, 102]], np.uint8)
    >>> normalize(batch, mean=0.5, std=[0.5, 0.25]).round(3)
    array([[-1. ,  2. ],
           [-0.6, -0.4]], dtype=float32)
    """
    array = np.asarray(batch)
    kind, itemsize = array.dtype.kind, array.dtype.itemsize
    if kind not in "biu" and not (kind == "f" and itemsize in (4, 8)):
        raise ValueError(
            f"`batch` has the dtype {array.dtype}, and must have integers, float32 or float64."
        )
    if array.ndim == 0:
        raise ValueError("`batch` of shape () must have at least one axis.")
    _refuse(threads_problem(threads))
    scale, bias = _lines(mean, std, array)
    in_place = False
    if out is None:
        out = np.empty(array.shape, np.float32)
    else:
        dtype = _float_dtype(out)
        in_place = (out.dtype, out.ctypes.data) == (array.dtype, array.ctypes.data)
        _refuse(out_problem(out, array.shape, dtype, {} if in_place else {"batch": array}))
    if out.size:
        values = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
        _normalize(values, scale, bias, out.reshape(-1), in_place, threads)
    return out


# Cache of the lines of scales and biases. To calculate one takes 50 us, which is more than a small batch takes.
_known_lines: dict[tuple[Any, ...], tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
MOST_KNOWN = 64


def _lines(
    mean: ArrayLike, std: ArrayLike, batch: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the scale and the bias of every value of a line."""
    means, deviations = normalization.numbers("mean", mean), normalization.numbers("std", std)
    key = means.tobytes(), deviations.tobytes(), batch.dtype, batch.shape[-1]
    known = _known_lines.get(key)
    if known is not None:
        return known
    means, deviations = normalization.channel_values(mean, std)
    for name, values in (("mean", means), ("std", deviations)):
        if len(values) not in (1, batch.shape[-1]):
            raise ValueError(
                f"`{name}` has {len(values)} entries, and must have 1 or {batch.shape[-1]}, as the last axis of "
                f"`batch`, whose shape is {batch.shape}."
            )
    scale, bias = normalization.scale_and_bias(means, deviations, full_scale(batch.dtype))
    # Whole channels, so that every part begins with the first of them.
    repeats = max(1, LINE // len(scale))
    lines = np.tile(scale, repeats), np.tile(bias, repeats)
    if len(_known_lines) >= MOST_KNOWN:
        _known_lines.clear()
    _known_lines[key] = lines
    return lines


def _normalize(
    values: NDArray[Any],
    scale: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[Any],
    in_place: bool,
    threads: int | None,
) -> None:
    """Normalise into `out` of one axis, in lines as long as `scale`."""
    period, address, like = len(scale), values.ctypes.data, np.empty(0, values.dtype)
    lines, step = -(-len(out) // period), period * like.itemsize

    def elements(parts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(parts * period, len(out))

    def target(begin: int, end: int) -> NDArray[Any]:
        return out[begin * period : end * period]

    if in_place:
        run_shared(
            lines,
            out.nbytes,
            threads,
            lambda parts: normalization.normalize_in_place_in_parts(
                elements(parts), scale, bias, out
            ),
            lambda _, begin, end: normalization.normalize_in_place(scale, bias, target(begin, end)),
        )
    elif out.dtype == np.float32:
        run_shared(
            lines,
            out.nbytes,
            threads,
            lambda parts: normalization.normalize_values_in_parts(
                elements(parts), address, like, scale, bias, out
            ),
            lambda _, begin, end: normalization.normalize_values(
                address + begin * step, like, scale, bias, target(begin, end)
            ),
        )
    else:
        brain, out = out.dtype != np.float16, out.view(np.uint16)

        def region(parts: NDArray[np.int64]) -> None:
            floats = np.empty((len(parts) - 1, period), np.float32)
            normalization.normalize_halves_in_parts(
                elements(parts), address, like, scale, bias, brain, floats, floats.view(np.uint32), out
            )  # fmt: skip

        def part(_: int, begin: int, end: int) -> None:
            floats = np.empty(period, np.float32)
            normalization.normalize_halves(
                address + begin * step, like, scale, bias, brain, floats, floats.view(np.uint32), target(begin, end)
            )  # fmt: skip

        run_shared(lines, 2 * out.nbytes, threads, region, part)


def draws(
    seed: int, position: int, op: int = 0, field: str | Sequence[str] | int = "data"
) -> Draws:
    """Return the random generator that a transform receives as `rng`; it also works in a user's own `@njit` code.

    It is the generator of op number `op` (from 0) of `lx.pipeline([...], seed=seed)`, for the sample at `position`.
    `field` selects the generator of a field of a loader: its name, or all names where an entry of `transforms` has
    several. The methods are those of `numpy.random.Generator`, one value per call.

    In compiled code `field` is a string constant, or a number that `kernels.fields_id` returned. A generator lives
    until the function that called `draws` returns. The next call at the same place of the code restarts it.

    >>> rng = draws(seed=7, position=0)
    >>> rng.integers(100), round(rng.uniform(-1, 1), 3)
    (np.int64(60), np.float64(-0.926))
    """
    given: list[tuple[str, Any, int]] = [("seed", seed, 64), ("position", position, 63)]
    for name, number, bits in (*given, ("op", op, 63)):
        if not isinstance(number, int | np.integer) or not 0 <= number < 1 << bits:
            raise ValueError(f"`{name}` (={number!r}) must be an integer from 0 to 2**{bits} - 1.")
    key = derive_key(seed, DRAWS, _entry_of(field), op)
    return Draws(fold(np.uint64(key), np.uint64(position)))


def _entry_of(field: str | Sequence[str] | int) -> int:
    if isinstance(field, int | np.integer):
        return int(field)
    return fields_id([field] if isinstance(field, str) else field)


def _float_dtype(out: Any) -> np.dtype[Any]:
    """Return the dtype of `out`; raise unless it is a dtype that normalisation can write."""
    if not isinstance(out, np.ndarray):
        raise ValueError(f"`out` (a {type(out).__name__}) must be a NumPy array.")
    if str(out.dtype) not in FLOATS:
        raise ValueError(
            f"`out` has the dtype {out.dtype}, and must have one of {', '.join(FLOATS)}."
        )
    dtype: np.dtype[Any] = out.dtype
    return dtype


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise ValueError(problem)


# --- In compiled code -------------------------------------------------------------------------


@jitable
def draws_state(seed: Any, entry: Any, op: Any, position: Any) -> Any:
    """Return the initial state of the draws of an op."""
    key = fold(fold(fold(np.uint64(seed), np.uint64(DRAWS)), np.uint64(entry)), np.uint64(op))
    return np.uint64(fold(key, np.uint64(position)))


# Inlined: the state of a generator is in the frame of the function that creates it. The lambda has no annotations,
# because Numba compares names and annotations with those of the implementation.
@overload(draws, inline="always", prefer_literal=True)
def _draws(seed, position, op=0, field="data"):
    # A constant argument, or a default.
    constant = getattr(field, "literal_value", getattr(field, "value", field))
    if isinstance(constant, str):
        entry = np.uint64(fields_id([constant]))
        return lambda seed, position, op=0, field="data": start_draws(
            draws_state(seed, entry, op, position)
        )
    if isinstance(field, types.Integer):
        return lambda seed, position, op=0, field="data": start_draws(
            draws_state(seed, field, op, position)
        )
    raise TypingError(
        "kernels.draws: `field` must be a string constant, or a number of `fields_id`."
    )


@overload(gather)
def _gather(source, rows, out):
    arrays = isinstance(source, types.Array) and isinstance(out, types.Array)
    if not arrays or source.ndim != out.ndim or source.dtype != out.dtype:
        raise TypingError(
            "kernels.gather: `source` and `out` must have as many axes, and one dtype."
        )
    contiguous = source.layout == "C" and out.layout == "C"

    def gather_rows(source, rows, out):
        if out.shape[1:] != source.shape[1:] or len(out) != len(rows):
            raise ValueError(
                "kernels.gather: `out` must have the shape (len(rows), *source.shape[1:])"
            )
        for i in range(len(rows)):
            row = rows[i]
            if row < 0:
                row += len(source)
            if row < 0 or row >= len(source):
                raise IndexError("kernels.gather: a row is outside of `source`")
            if contiguous:
                size = source.strides[0]
                copy_bytes(out.ctypes.data + i * size, source.ctypes.data + row * size, size)
            else:
                out[i] = source[row]
        return out

    return gather_rows


@overload(normalize)
def _normalize_overload(batch, mean, std, out):
    arrays = all(isinstance(each, types.Array) for each in (batch, mean, std, out))
    if not arrays or mean.ndim != 1 or std.ndim != 1:
        raise TypingError(
            "kernels.normalize: `batch` and `out` must be arrays, `mean` and `std` of one axis."
        )
    if batch.layout != "C" or out.layout != "C" or out.dtype != types.float32:
        raise TypingError(
            "kernels.normalize: `batch` and `out` must be C-contiguous, and `out` float32."
        )
    white = full_scale(as_dtype(batch.dtype))

    def normalize_batch(batch, mean, std, out):
        count = max(len(mean), len(std))
        if out.shape != batch.shape:
            raise ValueError("kernels.normalize: `out` must have the shape of `batch`")
        for entries in (len(mean), len(std)):
            if entries != 1 and entries != batch.shape[-1]:
                raise ValueError(
                    "kernels.normalize: `mean` and `std` must have an entry per channel, or 1"
                )
        scale, bias = np.empty(count, np.float32), np.empty(count, np.float32)
        for c in range(count):
            deviation = np.float64(std[c % len(std)])
            scale[c] = 1 / (deviation * white)
            bias[c] = -np.float64(mean[c % len(mean)]) / deviation
        pixels = batch.reshape((batch.size // count, count))
        target = out.reshape((batch.size // count, count))
        for i in range(pixels.shape[0]):
            for c in range(count):
                target[i, c] = np.float32(pixels[i, c]) * scale[c] + bias[c]
        return out

    return normalize_batch
