"""HTML representation of a loader, a source and a pipeline in a notebook: fields, ops and a few thumbnails.

Nothing is measured. The classes of these objects are not imported, because they import this module.
"""

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaderx.spec import Spec

if TYPE_CHECKING:
    from loaderx.batch.builder import BatchBuilder
    from loaderx.compiler.chain import Chain
    from loaderx.compiler.pipeline import Pipeline
    from loaderx.loader import DataLoader
    from loaderx.run.iterator import Stats
    from loaderx.sources.source import RowSpec, Source

Array = NDArray[Any]

THUMBNAILS = 4
THUMBNAIL_SIDE = 56
# Maximum number of bytes read for thumbnails.
THUMBNAIL_BYTES = 1 << 25
# Smaller arrays with two axes are boxes and keypoints rather than images.
LEAST_SIDE = 8
HALVES = ("float16", "bfloat16")


def loader_html(loader: "DataLoader") -> str:
    """Return the HTML of a loader: its fields from the data to the batch, and the bottleneck of a running iterator."""
    return _shown(loader, _loader)


def source_html(source: "Source") -> str:
    """Return the HTML of a source: its fields and first rows."""
    return _shown(source, _source)


def pipeline_html(pipeline: "Pipeline") -> str:
    """Return the HTML of a pipeline: its ops, for every spec of samples it was called with."""
    return _shown(pipeline, _pipeline)


def is_image(spec: Spec, least: int = LEAST_SIDE) -> bool:
    """Return True for images: uint8 or floats of (height, width), or with 1 or 3 channels, last or first."""
    if spec.dtype != np.uint8 and spec.dtype.kind != "f" and spec.dtype.name not in HALVES:
        return False
    shape = spec.shape
    if len(shape) == 3 and shape[2] in (1, 3):
        shape = shape[:2]
    elif len(shape) == 3 and shape[0] in (1, 3):
        shape = shape[1:]
    return len(shape) == 2 and min(shape) >= least


def as_colours(images: Array, *, channels_first: bool = False) -> Array:
    """Return images, as of `is_image`, in the shape (images, height, width, 3) and their own dtype."""
    if images.ndim == 3:
        images = images[..., None]
    elif images.shape[3] not in (1, 3) or (channels_first and images.shape[1] in (1, 3)):
        images = np.moveaxis(images, 1, 3)
    return np.broadcast_to(images, (*images.shape[:3], 3))


def as_pixels(groups: Sequence[Array]) -> list[NDArray[np.uint8]]:
    """Convert colours to uint8; rescale floats beyond 0 to 1 so that the least of all groups is 0, the largest 255."""
    floats = [_finite(group) for group in groups if group.dtype != np.uint8]
    low = min((float(group.min()) for group in floats if group.size), default=0.0)
    high = max((float(group.max()) for group in floats if group.size), default=1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    pixels = []
    for group in groups:
        if group.dtype == np.uint8:
            pixels.append(group)
            continue
        shares = (_finite(group) - low) / max(high - low, 1e-12)
        pixels.append((shares * 255 + 0.5).astype(np.uint8))
    return pixels


def _finite(values: Array) -> NDArray[np.float64]:
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def ops_of(chain: "Chain | None") -> list[tuple[str, bool]]:
    """Return (name, compiled) for each op of a field."""
    if chain is None:
        return []
    # In debug mode all ops but a few run in Python.
    interpreted = {
        segment.name
        for phase in chain.phases
        for segment in phase.segments
        if not hasattr(segment, "program")
    }
    ops = []
    for step in chain.steps:
        name = step.transform.name
        ops.append((name, name not in interpreted))
    return ops


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    """Return the HTML of a value, or its repr if that fails: a display must not raise."""
    try:
        return f'<div class="loaderx">{show(value)}</div>'
    except Exception:  # noqa: BLE001 - sources and ops may be code of the user's
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - as above
            text = type(value).__name__
        return f"<pre>{escape(text)}</pre>"


def _loader(loader: "DataLoader") -> str:
    builder = loader._builder
    order = builder.order
    facts = [
        f"{order.rows:,} rows",
        f"batches of {order.batch_size:,}",
        "endless" if order.steps is None else f"{order.steps:,} steps",
        f"shuffled, seed {order.seed}" if order.shuffle else f"in order, seed {order.seed}",
        f"remainder {order.remainder}",
    ]
    thumbnails = _Thumbnails(builder)
    lines = []
    for group in builder.planner.groups:
        for field, column in zip(group.fields, group.columns, strict=True):
            lines.append(
                [
                    escape(field.name),
                    _spec(field.raw) + thumbnails.before(group.source, column, field.raw),
                    _chain(ops_of(field.chain)),
                    _spec(field.spec) + thumbnails.after(field.name, field.spec, field.chain),
                ]
            )
    if builder.mask_pool is not None:
        lines.append(["mask", "", "<i>False for padding</i>", _spec(Spec((), np.bool_))])
    text = _head("DataLoader", facts) + _table(("field", "data", "ops", "batch"), lines)
    if builder.hook is not None:
        name = getattr(builder.hook, "__name__", type(builder.hook).__name__)
        text += f"<div>then each batch goes through <code>{escape(name)}</code> (Python)</div>"
    return text + _bottleneck(stats_of(loader))


def _source(source: "Source") -> str:
    specs = _named(source.spec)
    rows = _allowed(specs.values(), len(source))
    pictures: dict[str, str] = {}
    if rows and any(is_image(spec) for spec in specs.values()):
        columns = _quietly(lambda: _columns(source[:rows]))
        for (name, spec), column in zip(specs.items(), columns or [], strict=False):
            if is_image(spec):
                pictures[name] = _pictures(column)
    lines = [[escape(name), _spec(spec), pictures.get(name, "")] for name, spec in specs.items()]
    size = sum(spec.nbytes for spec in specs.values()) * len(source)
    facts = [f"{len(source):,} rows", f"{size / 1e6:,.1f} MB as arrays"]
    return _head(type(source).__name__, facts) + _table(("field", "row", "first rows"), lines)


def _pipeline(pipeline: "Pipeline") -> str:
    facts = [f"seed {pipeline._seed}"]
    lines = []
    for chain in pipeline._chains.values():
        spec, before, after = chain.input, "", ""
        if is_image(spec) and spec.nbytes <= THUMBNAIL_BYTES:
            sample = np.asarray(chain.first_sample())[None]
            before = _pictures(sample)
            if is_image(chain.output):
                done = _quietly(lambda sample=sample: pipeline(sample))  # type: ignore[misc]
                after = _pictures(done, chain.channels_first)
        ops = _chain(ops_of(chain))
        lines.append([_spec(spec) + before, ops, _spec(chain.output) + after])
    if not lines:
        ops = _chain([_unused(op) for op in pipeline._transforms], "at the first call")
        lines.append(["", ops, ""])
    return _head("pipeline", facts) + _table(("samples", "ops", "become"), lines)


def _unused(op: Any) -> tuple[str, bool]:
    """Return (name, compiled) of an op in no chain yet: a transform, a decorated function or any function."""
    if hasattr(op, "output"):
        return str(op.name), True
    kind = type(op).__name__
    return str(getattr(op, "__name__", kind)), kind in ("TransformFactory", "Channels")


def stats_of(loader: "DataLoader") -> "Stats | None":
    """Return the statistics of the iterator in use; of several, of the one with the most batches."""
    found = [iterator.stats() for iterator in loader._iterators]
    return max((stats for stats in found if stats.batches), key=lambda s: s.batches, default=None)


def _bottleneck(stats: "Stats | None") -> str:
    if stats is None:
        return ""
    who = {"loader": "the loader is the bottleneck", "consumer": "the loader keeps up"}
    return (
        f"<div>{stats.batches:,} batches so far, {stats.waiting_share:.0%} of the time spent waiting for them: "
        f"<b>{who.get(stats.bottleneck, 'unknown')}</b></div>"
    )


class _Thumbnails:
    """Thumbnails of the first samples of the stream, read and transformed when the first field needs them."""

    def __init__(self, builder: "BatchBuilder") -> None:
        order = builder.order
        fields = builder.planner.fields
        specs = [spec for field in fields for spec in (field.raw, field.spec)]
        self._wanted = any(is_image(field.raw) or is_image(field.spec) for field in fields)
        self._size = min(_allowed(specs, order.batch_size), order.rows)
        self._builder = builder
        self._rows: dict[int, list[Array] | None] = {}
        self._batch: Mapping[str, Array] | None = None
        self._built = False

    def before(self, source: "Source", column: int, spec: Spec) -> str:
        if not (self._size and self._wanted and is_image(spec)):
            return ""
        if id(source) not in self._rows:
            rows = self._builder.order.rows_at(np.arange(self._size, dtype=np.int64))
            self._rows[id(source)] = _quietly(lambda: _columns(source[rows]))
        columns = self._rows[id(source)]
        return "" if columns is None else _pictures(columns[column])

    def after(self, name: str, spec: Spec, chain: "Chain | None") -> str:
        if not (self._size and self._wanted and is_image(spec)) or chain is None:
            return ""
        if not self._built:
            self._built = True
            self._batch = _quietly(self._build)
        if self._batch is None:
            return ""
        return _pictures(self._batch[name], chain.channels_first)

    def _build(self) -> Mapping[str, Array]:
        """Build a batch of a few samples. They are the same as in a full batch, unless they are mixed."""
        small = self._builder.for_pictures(self._size)
        span = small.order.span(0)
        assert span is not None
        batch: Mapping[str, Array] = small.build(0, span)
        return batch


def _allowed(specs: Iterable[Spec], rows: int) -> int:
    """Return the number of rows to make thumbnails of."""
    return min(THUMBNAILS, rows, THUMBNAIL_BYTES // max(1, sum(spec.nbytes for spec in specs)))


def _quietly(read: Callable[[], Any]) -> Any:
    """Return what `read` returns, or None if it raises: the rest is shown without thumbnails."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - sources and ops may be code of the user's
        return None


def _columns(rows: Any) -> list[Array]:
    if isinstance(rows, dict):
        return list(rows.values())
    return list(rows) if isinstance(rows, tuple) else [rows]


def _named(spec: "RowSpec") -> dict[str, Spec]:
    if isinstance(spec, dict):
        return spec
    specs = spec if isinstance(spec, tuple) else (spec,)
    return {str(number) if len(specs) > 1 else "data": own for number, own in enumerate(specs)}


def _pictures(images: Array | None, channels_first: bool = False) -> str:
    """Return the HTML of thumbnails; empty without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    if images is None:
        return ""
    (pixels,) = as_pixels([as_colours(images, channels_first=channels_first)])
    tags = []
    for picture in pixels:
        image = Image.fromarray(np.ascontiguousarray(picture))
        image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        content = io.BytesIO()
        image.save(content, "PNG")
        address = base64.b64encode(content.getvalue()).decode()
        tags.append(
            f'<img alt="" style="height:{THUMBNAIL_SIDE}px;margin:1px;display:inline;image-rendering:pixelated" '
            f'src="data:image/png;base64,{address}">'
        )
    return f'<div style="white-space:nowrap">{"".join(tags)}</div>'


def _spec(spec: Spec) -> str:
    return f"<code>{escape(str(spec))}</code>"


def _chain(ops: Sequence[tuple[str, bool]], when: str = "") -> str:
    if not ops:
        return "<i>as it is</i>"
    names = [escape(name) + ("" if compiled else " <b>(Python)</b>") for name, compiled in ops]
    slow = sum(not compiled for _, compiled in ops)
    way = "compiled" if not slow else "Python" if slow == len(ops) else "in part compiled"
    return f"{' → '.join(names)}<br><i>{f'{way} {when}'.strip()}</i>"


def _head(name: str, facts: Sequence[str]) -> str:
    return f"<div><b>{escape(name)}</b> · {escape(' · '.join(facts))}</div>"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    style = ' style="text-align:left;vertical-align:top"'
    rows = ["".join(f"<th{style}>{title}</th>" for title in head)]
    rows += ["".join(f"<td{style}>{cell}</td>" for cell in line) for line in lines]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
