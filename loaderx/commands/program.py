"""Lines of Python that load the files of `loaderx convert`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conversion import ColumnTarget, Conversion


def program_of(conversion: "Conversion") -> list[str]:
    """Return a program that makes a loader with the fields of the source; arrays of other lengths get their own."""
    archive = conversion.target.suffix == ".npz"
    program = ["import numpy as np"] if archive else []
    program.append("import loaderx as lx")
    images = [name for one in conversion.targets for name in one.column.image_fields]
    if images:
        program.append("from loaderx import transforms as T")
    if archive:
        program.append(f"arrays = np.load({str(conversion.target)!r})")
    by_rows: dict[int, list[ColumnTarget]] = {}
    for task in conversion.tasks:
        by_rows.setdefault(task.table.rows, []).extend(task.targets)
    for number, targets in enumerate(by_rows.values(), 1):
        sources = {
            target.column.name: f"arrays[{target.column.name!r}]" if archive else _source(target)
            for target in targets
        }
        fields = ", ".join(f"{name!r}: {source}" for name, source in sources.items())
        # An array without a name: batches are arrays, as in the source.
        data = sources["data"] if list(sources) == ["data"] else f"{{{fields}}}"
        name = "loader" if number == 1 else f"loader_{number}"
        program.append(f"{name} = lx.DataLoader({data}{_transforms(images)})")
    return program


def _transforms(images: list[str]) -> str:
    """Return the argument that makes encoded images, and masks with them, the same size."""
    if not images:
        return ""
    key = repr(images[0] if len(images) == 1 else tuple(images))
    return f", transforms={{{key}: [T.RandomResizedCrop(224)]}}"


def _source(target: "ColumnTarget") -> str:
    path = str(target.path)
    if not target.as_records:
        return f"lx.NPDataset({path!r})"
    # With the count: there may be another set of shards, or one file, of the same name.
    shards = f"@{len(target.outputs)}" if len(target.outputs) > 1 else ""
    return f"lx.ARDataset({path + shards!r})"
