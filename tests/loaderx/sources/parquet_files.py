"""Parquet files by pyarrow, and what that reads from them."""

import pyarrow as pa
import pyarrow.parquet as pq

from tests.loaderx.sources.tar_files import long_ago


def hugging_face_images(images):
    """Return a column as Hugging Face has images: structs of bytes and a path."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.array(
        [
            image if image is None else {"bytes": image, "path": f"{row}.jpg"}
            for row, image in enumerate(images)
        ],
        kind,
    )


def write_parquet(path, columns, **options):
    """Write a file of these columns; return its path."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return long_ago(path)


def column_by_pyarrow(path, *names):
    """Return the values of a column, or of what is in a struct."""
    column = pq.read_table(path, use_threads=False).column(names[0]).combine_chunks()
    for name in names[1:]:
        column = column.field(name)
    return column.to_pylist()
