"""Outcomes of reading a mutation: right bytes, an error, or a failure of the test."""

import itertools
from contextlib import suppress

import numpy as np

from loaderx import ARDataset, ArgumentError, DataError, DataLoader
from loaderx.sources.records.dataset import ByteRows
from loaderx.sources.source import specs_of
from loaderx.transforms import ToFloat
from tests.loaderx.sources.fuzz_forgery import WITH_HASHES
from tests.loaderx.sources.fuzz_originals import STEP
from tests.loaderx.sources.guarded_numpy import GUARDED

PAD_TO, PAD_VALUE = 300, 7


class WrongError(Exception):
    """Outcome that a mutation must not have."""


def open_as(view, original, path, verify, mapped):
    """Open the records of a file in one of the views."""
    options = {"verify": verify, "mmap": mapped}
    steps = len(original.records[0]) // STEP
    if view == "numbers":
        return ARDataset(path, "<i4", (steps, STEP // 4), **options)
    if view == "pixels":
        return ARDataset(path, "u1", (steps, STEP), **options)
    if view == "padded":
        return ARDataset(path, "u1", (None, STEP), pad_to=PAD_TO, pad_value=PAD_VALUE, **options)
    return ARDataset(path, **options)


def seen_as(view, record):
    """Return a record as such a view shows it."""
    if view == "padded":
        room = PAD_TO * STEP
        length = np.int32(min(len(record) // STEP, PAD_TO))
        return record[:room].ljust(room, bytes([PAD_VALUE])), length.tobytes()
    return record if view == "bytes" else (record,)


def read(dataset, rows):
    """Return rows as bytes, or as the bytes of each of their fields."""
    rows = np.asarray(rows, np.int64)
    if isinstance(dataset.rows, ByteRows):
        return dataset[rows]
    fields = [
        GUARDED.empty((len(rows), *spec.shape), spec.dtype) for spec in specs_of(dataset.spec)
    ]
    dataset.read(rows, fields)
    return [tuple(field[i].tobytes() for field in fields) for i in range(len(rows))]


def read_each(dataset, rows, errors, singly):
    """Return all rows at once, or one by one, also after an error of all at once; None marks an error."""
    if not singly:
        with suppress(*errors):
            return read(dataset, rows)
    found = []
    for row in rows:
        try:
            found += read(dataset, [row])
        except errors:
            found.append(None)
    return found


def load(dataset):
    """Return rows as a loader with a compiled transform delivers them; None marks an error."""
    found = []
    loader = DataLoader(
        dataset,
        batch_size=4,
        shuffle=False,
        num_epochs=1,
        remainder="keep",
        transforms=[ToFloat()],
        output="numpy",
    )
    with iter(loader) as batches:
        try:
            for batch in itertools.islice(batches, 6):
                found += [row.tobytes() for row in batch]
        except DataError:
            found.append(None)
    return found


def outcome(damaged, path):
    """Return "right", "error" or, where that is possible, "other"; raise for any other outcome."""
    if damaged.kind in WITH_HASHES:
        return forged_outcome(damaged, path)
    original, verified = damaged.original, damaged.verify != "never"
    try:
        dataset = open_as(damaged.view, original, path, damaged.verify, damaged.mapped)
    except DataError:
        return "error"
    if len(dataset) != len(original.records):
        raise WrongError(f"{len(dataset)} records instead of {len(original.records)}")
    if damaged.loaded:
        expected, found = original.loaded, load(dataset)
    else:
        expected = [seen_as(damaged.view, record) for record in original.records]
        found = read_each(dataset, range(len(dataset)), (DataError,), damaged.singly)
    wrong = [
        row for row, record in enumerate(found) if record is not None and record != expected[row]
    ]
    if wrong and verified:
        raise WrongError(f"the records {wrong} have wrong bytes")
    if wrong:
        return "other"
    return "error" if None in found else "right"


def forged_outcome(damaged, path):
    """Return the outcome for right hashes: every row that can be read must be the same in every view."""
    original, errors = damaged.original, (DataError, ArgumentError)
    seen = {}
    for view in ("bytes", damaged.view):
        try:
            dataset = open_as(view, original, path, damaged.verify, damaged.mapped)
            if damaged.loaded and view == damaged.view:
                load(dataset)
            rows = sorted({*range(min(len(dataset), 16)), len(dataset) - 1})
            seen[view] = read_each(dataset, rows, errors, damaged.singly)
        except errors:
            continue
        described = view == "bytes" and not isinstance(dataset.rows, ByteRows)
        if described:
            seen[view] = [None if row is None else b"".join(row) for row in seen[view]]
    if len(seen) < len({"bytes", damaged.view}):
        return "error"
    records, others = seen["bytes"], seen[damaged.view]
    for row, (record, same) in enumerate(zip(records, others, strict=True)):
        readable = record is not None and same is not None and damaged.view != "bytes"
        if readable and seen_as(damaged.view, record) != same:
            raise WrongError(f"record {row} is another one as bytes")
    if None in records or None in others:
        return "error"
    return "right" if records == original.records else "other"
