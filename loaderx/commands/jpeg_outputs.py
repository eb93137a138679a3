"""Files of `convert --jpeg`: records with several fields, and counts of what was done with their images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderx.sources.records.content import Content
from loaderx.sources.records.encoding import Encoding
from loaderx.sources.records.fields import RecordFields
from loaderx.sources.records.inputs import joined_records
from loaderx.spec import Spec

from .jpeg_images import Kind
from .outputs import RecordOutput, State


@dataclass(frozen=True)
class ConvertedRows:
    """Records of a block, and of each kind of images their number, their bytes before and their bytes after."""

    records: list[bytes]
    counts: NDArray[np.int64]


class FieldsOutput(RecordOutput):
    """ArrayRecord file of records with several fields, byte for byte as `write_array_record` writes it."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        spec: Spec,
        rows: int,
        encoding: Encoding,
        fields: RecordFields,
    ) -> None:
        super().__init__(path, folder, spec, rows, encoding)
        self._fields = fields
        self._counts = np.zeros((len(Kind), 3), np.int64)

    def encode(self, block: Any) -> Any:
        return self._encoding.encode(lambda: joined_records(block.records)), block.counts

    def append(self, encoded: Any) -> None:
        chunks, counts = encoded
        super().append(chunks)
        self._counts += counts

    def open(self, state: State | None) -> None:
        super().open(state)
        if state is not None:
            self._counts[:] = state["counts"]

    def usable(self, state: State) -> bool:
        counts = np.array(state["counts"])
        known = (counts.shape, counts.dtype) == (self._counts.shape, self._counts.dtype)
        return known and super().usable(state)

    def state(self) -> State:
        return {**super().state(), "counts": self._counts.tolist()}

    def final_state(self) -> State:
        return {**super().final_state(), "counts": self._counts.tolist()}

    def _content(self) -> Content:
        return Content(fields=self._fields)
