"""`Dataset`: two .npy files of one folder as the fields "data" and "label"."""

import os
from pathlib import Path

from .array import NPDataset
from .source import FieldsSource


class Dataset(FieldsSource):
    """Files `data` and `label` of a folder, as the fields of the same names."""

    def __init__(self, folder: str | os.PathLike[str], data: str, label: str) -> None:
        super().__init__(
            {"data": NPDataset(Path(folder) / data), "label": NPDataset(Path(folder) / label)}
        )
