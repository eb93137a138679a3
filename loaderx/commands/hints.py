"""Hints about slow sources and ops, by the names that users write."""

from typing import Any

from loaderx.sources import AddressableSource
from loaderx.sources.object import ObjectSource
from loaderx.transforms.base import Transform
from loaderx.transforms.python_function import PythonFunction
from loaderx.transforms.step import Step

# Internal classes by the public class that they are a part of.
PUBLIC_NAMES = {
    "ImageFiles": "ImageFolder",
    "DecodedColumn": "HFDataset",
    "_DecodedRecords": "ARDataset",
    "RecordRows": "ARDataset",
    "LengthRows": "ARDataset",
    "ByteRows": "ARDataset",
    "Windows": "TokenDataset",
    "IDXDataset": "MNIST",
    "RangeRows": "range",
}


def source_name(source: Any) -> str:
    """Return the class name of a source as the user wrote it, without wrappers."""
    while True:
        if isinstance(source, ObjectSource):
            source = source._rows
        elif hasattr(source, "_source") and type(source).__module__.startswith("loaderx."):
            source = source._source
        else:
            name = type(source).__name__
            return PUBLIC_NAMES.get(name, name)


def source_hint(source: Any, fields: list[str]) -> str:
    """Return how to read rows faster, as a command or a line of Python."""
    name = source_name(source)
    if name == "ImageFolder":
        height, width = source.spec.shape[:2]
        return (
            f"it decodes image files in every epoch; `loaderx convert FOLDER train.npy --size {height} {width}` does "
            "it once, and prints the line that loads the result"
        )
    if name == "HFDataset":
        return (
            'it decodes each row in every epoch; `dataset.save_to_disk("saved")` and then `loaderx convert saved '
            "train.npy` do it once, and print the line that loads the result"
        )
    if name == "ARDataset" and isinstance(source, AddressableSource):
        return "`loaderx convert FILE train.npy` stores the records uncompressed, which is the fastest there is"
    if isinstance(source, AddressableSource):
        return (
            "uncompressed rows are the fastest there are: the limit is the speed of the memory, or of the disk "
            "if the file is larger than the memory"
        )
    keys = [repr(key) for key in source.spec] if isinstance(source.spec, dict) else []
    key = f"[{keys[0]}]" if keys else ""
    return (
        f'it is Python code for each row; `lx.write_array_record("{fields[0]}.ar", (rows[i]{key} for i in '
        f'range(len(rows))))` runs it once, and compiled code reads `lx.ARDataset("{fields[0]}.ar")`'
    )


def op_name(step: Step) -> str:
    """Return the name of an op, with those that a combinator chooses from."""
    return _transform_name(step.transform)


def _transform_name(op: Transform) -> str:
    if not op.inside:
        return op.name
    # Policies have dozens of ops.
    names = list(dict.fromkeys(map(_transform_name, op.inside)))
    more = ", ..." if len(names) > 3 else ""
    return f"{op.name}({', '.join(names[:3])}{more})"


def op_hint(step: Step) -> str:
    """Return how to make an op that runs in Python faster."""
    op = step.transform
    if not isinstance(op, PythonFunction):
        return "it is Python code because LOADERX_DEBUG is set"
    return op.advice
