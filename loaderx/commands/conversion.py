"""Conversion of tables to files: threads read and encode blocks of rows, which are written in order."""

import itertools
import json
import os
import time
import zipfile
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from loaderx.errors import LoaderxError
from loaderx.sources.records.encoding import Encoding
from loaderx.sources.records.inputs import RECORD_BYTES
from loaderx.sources.records.writer import in_order

from .journal import Journal
from .outputs import NpyOutput, Output, State
from .tables import Block, Column, Input, Range, Table
from .terminal import Stop, StoppedError, UsageError, progress
from .workspace import Workspace

RECORD_SUFFIXES = (".array_record", ".arrayrecord", ".ar")
SUFFIXES = (".npy", ".npz", *RECORD_SUFFIXES)
# Bytes of rows in a block. After Ctrl-C the running blocks are finished, so this is small.
BLOCK_BYTES = 1 << 20
# Time between two writes of the journal, for each of which the files are synced to the disk.
SECONDS_BETWEEN_NOTES = 2.0


@dataclass(frozen=True)
class Format:
    """Format of the files."""

    encoding: Encoding
    shards: int


class ColumnTarget:
    """Files of one column: one, or several shards."""

    def __init__(
        self, path: Path, folder: Path, column: Column, rows: int, records: Format | None
    ) -> None:
        self.path, self.column, self.as_records = path, column, records is not None
        self.outputs: list[Output]
        if records is None:
            self.edges = [0, rows]
            self.outputs = [NpyOutput(path, folder, column.spec, rows)]
        else:
            count = records.shards
            self.edges = [rows * k // count for k in range(count + 1)]
            # The pattern of Google's tools: `ARDataset("name.array_record")` finds all files.
            names = [f"{path.name}-{k:05d}-of-{count:05d}" for k in range(count)]
            self.outputs = [
                column.record_file(
                    path.with_name(name) if count > 1 else path,
                    folder,
                    self.edges[k + 1] - self.edges[k],
                    records.encoding,
                )
                for k, name in enumerate(names)
            ]
        self._current = 0
        self._finished: list[State] = []

    @property
    def finished(self) -> list[State]:
        """States of the files that are finished."""
        return self._finished

    def encode(self, block: Block) -> Any:
        """Return the input of `append` for a block; all files of a column are encoded alike."""
        return self.outputs[0].encode(block[self.column.name])

    def open(self, row: int, states: Sequence[State]) -> None:
        """Open the file with a row; `states` are those of the files up to this one."""
        self._finished = list(states)
        self._current = len(self._finished)
        if self._finished and row < self.edges[-1] and row != self.edges[self._current]:
            self._current -= 1
            self.outputs[self._current].open(self._finished.pop())
        elif row < self.edges[-1]:
            self.outputs[self._current].open(None)

    def append(self, encoded: Any, stop: int) -> None:
        """Write a block that ends before the row `stop`, and does not span two files."""
        output = self.outputs[self._current]
        output.append(encoded)
        if stop == self.edges[self._current + 1]:
            output.finish()
            self._finished.append(output.final_state())
            self._current += 1
            if self._current < len(self.outputs):
                self.outputs[self._current].open(None)

    def states(self, row: int) -> list[State]:
        """Return the states that `open` needs to resume at this row."""
        if row in self.edges[: self._current + 1]:
            return list(self._finished)
        return [*self._finished, self.outputs[self._current].state()]

    def usable(self, states: Sequence[State]) -> bool:
        """Return True if all unfinished files have the sizes of their states."""
        return all(
            output.usable(state) for output, state in zip(self.outputs, states, strict=False)
        )

    def sync(self) -> None:
        """Sync all files to the disk."""
        if self._current < len(self.outputs):
            self.outputs[self._current].sync()


@dataclass
class Task:
    """Table and the files it is converted to."""

    table: Table
    targets: list[ColumnTarget]

    def ranges(self, done: int, group: int) -> list[Range]:
        """Return blocks of rows, none of which spans two files; for an ArrayRecord file they are whole chunks."""
        row_bytes = sum(target.column.row_bytes + RECORD_BYTES for target in self.targets)
        step = group * max(1, BLOCK_BYTES // (group * row_bytes))
        edges = sorted({edge for target in self.targets for edge in target.edges})
        return [
            (start, min(start + step, stop))
            for begin, stop in itertools.pairwise(edges)
            # Chunks are counted from the beginning of a file.
            for start in range(begin + max(0, done - begin), stop, step)
        ]


class Conversion:
    """One run of the command."""

    def __init__(self, source: Input, target: Path, records: Format, options: Any) -> None:
        self.target = target
        self.workspace = Workspace(target)
        self.tasks = _tasks(source, target, self.workspace.path, records)
        self._group = records.encoding.group
        self._archive = target.suffix == ".npz"
        outputs = [output for task in self.tasks for output in _outputs(task)]
        self._classes = {
            target.with_name(f"{target.stem}_{name}_classes.json"): classes
            for task in self.tasks
            for one in task.targets
            for name, classes in one.column.class_names.items()
        }
        self.files = [target] if self._archive else [output.path for output in outputs]
        self.files += self._classes
        if len(set(self.files)) < len(self.files):
            raise UsageError(
                f"two columns would be written to one file next to {target}; leave one out by --columns."
            )
        # Names of all files that may ever be in the workspace.
        self._names = [name for output in outputs for name in output.names]
        self._names += [file.name for file in self.files if file.name not in self._names]
        request = {"source": source.identity, "options": options, "outputs": self._names}
        self.journal = Journal(self.workspace, request)
        self.rows = sum(task.table.rows for task in self.tasks)
        # Of each table the number of rows done, and of each of its columns the states of files.
        self._progress: list[dict[str, Any]] = []

    @property
    def done(self) -> int:
        """Number of rows written."""
        return sum(entry["rows"] for entry in self._progress)

    @property
    def targets(self) -> list[ColumnTarget]:
        """Files of all columns."""
        return [target for task in self.tasks for target in task.targets]

    def summary(self) -> list[str]:
        """Return lines about what was done with the rows, after all files are finished."""
        return [line for one in self.targets for line in one.column.summary(one.finished)]

    def resume(self) -> str | None:
        """Resume where an earlier run stopped, if possible; otherwise return the reason."""
        noted, reason = self.journal.read()
        if noted is not None:
            try:
                usable = all(
                    entry["rows"] <= task.table.rows and target.usable(states)
                    for task, entry in zip(self.tasks, noted, strict=False)
                    for target, states in zip(task.targets, entry["columns"], strict=True)
                )
            except (KeyError, TypeError, ValueError):
                usable = False
            if usable:
                self._progress = noted
                return None
            reason = "the unfinished files are gone"
        self.discard()
        return reason

    def discard(self) -> None:
        """Remove all unfinished files, also those of an earlier run that wrote other files."""
        self.workspace.remove([*self.journal.outputs(), *self._names])
        self.journal.remove()

    def run(self, jobs: int, stop: Stop, *, force: bool) -> None:
        """Write the remaining rows, and give all files their names."""
        pool = ThreadPoolExecutor(jobs, "loaderx-convert")
        worth_keeping = True
        try:
            # Before there is a file: the journal names all files in the workspace.
            self.journal.write(self._progress)
            with progress(self.rows, self.done, "rows") as bar:
                for number, task in enumerate(self.tasks):
                    if number == len(self._progress):
                        nothing: list[Any] = [[] for _ in task.targets]
                        self._progress.append({"rows": 0, "columns": nothing})
                    self._run(task, number, pool, jobs, stop, bar)
        except LoaderxError:
            # Resuming after them does not help if the source is wrong.
            worth_keeping = False
            raise
        except OSError as error:
            self._add_progress(error)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            for task in self.tasks:
                for output in _outputs(task):
                    output.close()
            if not worth_keeping or self.done == 0:
                self.discard()
        try:
            self._publish(stop, force)
        except OSError as error:
            self._add_progress(error)
            raise

    def _add_progress(self, error: OSError) -> None:
        """Add to an error of the disk, such as a full one, its place and the number of rows kept."""
        if error.filename is None:
            error.filename = str(self.target)
            if self.done:
                kept = f"{self.done:,} of {self.rows:,} rows are kept"
                error.strerror = f"{error.strerror}; {kept}, and the same command resumes there"

    def _run(
        self, task: Task, number: int, pool: ThreadPoolExecutor, jobs: int, stop: Stop, bar: Any
    ) -> None:
        entry = self._progress[number]
        done = entry["rows"]
        for target, states in zip(task.targets, entry["columns"], strict=True):
            target.open(done, states)
        ranges = task.ranges(done, self._group)

        def encoded(read: Any) -> list[Any]:
            block = read()
            return [target.encode(block) for target in task.targets]

        # Read after whole blocks: a second Ctrl-C may leave a part of a block in the files.
        states = entry["columns"]
        noted = time.monotonic()
        blocks = in_order(pool, encoded, task.table.blocks(ranges), jobs + 1)
        try:
            for start, end in ranges:
                with stop.at_once():
                    columns = next(blocks)
                for target, column in zip(task.targets, columns, strict=True):
                    target.append(column, end)
                done, states = end, [target.states(end) for target in task.targets]
                bar.update(end - start)
                if time.monotonic() - noted > SECONDS_BETWEEN_NOTES:
                    self._note(task, number, done, states)
                    noted = time.monotonic()
        except KeyboardInterrupt:
            reached = self.done - self._progress[number]["rows"] + done
            raise StoppedError(
                f"stopped after {reached:,} of {self.rows:,} rows; the same command resumes there"
                if reached
                else "stopped before the first rows were written"
            ) from None
        finally:
            self._note(task, number, done, states)

    def _note(self, task: Task, number: int, done: int, states: list[Any]) -> None:
        for target in task.targets:
            target.sync()
        reached = [*self._progress[:number], {"rows": done, "columns": states}]
        self.journal.write(reached)
        self._progress = reached

    def _publish(self, stop: Stop, force: bool) -> None:
        """Give all files their names, after all of them are complete."""
        outputs = [output for task in self.tasks for output in _outputs(task)]
        for path, names in self._classes.items():
            with self._new(path) as file:
                file.write(_as_json(names))
        appeared = [file for file in self.files if os.path.lexists(file)]
        if appeared and not force:
            raise UsageError(
                f"{appeared[0]} was created meanwhile; the same command with --force replaces it."
            )
        if self._archive:
            try:
                self._pack(outputs, stop)
            except KeyboardInterrupt:
                raise StoppedError(
                    f"stopped while {self.target} was put together; the same command resumes there"
                ) from None
        else:
            for output in outputs:
                output.publish()
        for path in self._classes if not self._archive else self.files:
            (self.workspace.path / path.name).replace(path)
        self.discard()

    @contextmanager
    def _new(self, path: Path) -> Generator[BinaryIO]:
        """Open a new file of the workspace; it is synced to the disk at the end."""
        with (self.workspace.path / path.name).open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _pack(self, outputs: Sequence[Output], stop: Stop) -> None:
        """Write the arrays into one .npz file, not compressed, as `np.savez` does."""
        with self._new(self.target) as file, zipfile.ZipFile(file, "w") as archive:
            for output in outputs:
                name = output.path.name.removeprefix(f"{self.target.name}.")
                with (
                    output.partial.open("rb") as array,
                    archive.open(name, "w", force_zip64=True) as member,
                ):
                    while piece := array.read(1 << 22):
                        member.write(piece)
                        stop.check()


def _as_json(names: Sequence[str]) -> bytes:
    try:
        return f"{json.dumps(names, indent=1, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        # Folder names may contain bytes that are not UTF-8.
        return f"{json.dumps(names, indent=1)}\n".encode()


def _outputs(task: Task) -> Iterator[Output]:
    for target in task.targets:
        yield from target.outputs


def _tasks(source: Input, target: Path, folder: Path, records: Format) -> list[Task]:
    columns = [column for table in source.tables for column in table.columns]
    to_records = target.suffix in RECORD_SUFFIXES
    if records.shards > 1 and not to_records:
        raise UsageError("--shards is for ArrayRecord files.")
    for column in columns:
        if "/" in column.name or "\0" in column.name or column.name.startswith("."):
            raise UsageError(
                f"the column {column.name!r} cannot be the name of a file; leave it out by --columns."
            )
    tasks = []
    for table in source.tables:
        if table.rows == 0:
            raise UsageError(f"{table.columns[0].name!r} has no rows: there is nothing to convert.")
        if records.shards > table.rows:
            raise UsageError(
                f"--shards (={records.shards}) must be at most {table.rows}, the number of rows."
            )
        targets = []
        for column in table.columns:
            path = target
            # Each single number would get a header of forty bytes as a record.
            as_records = to_records and (len(columns) == 1 or column.spec.shape != ())
            if target.suffix == ".npz":
                path = target.with_name(f"{target.name}.{column.name}.npy")
            elif len(columns) > 1:
                suffix = target.suffix if as_records or not to_records else ".npy"
                path = target.with_name(f"{target.stem}_{column.name}{suffix}")
            how = records if as_records else None
            targets.append(ColumnTarget(path, folder, column, table.rows, how))
        tasks.append(Task(table, targets))
    return tasks
