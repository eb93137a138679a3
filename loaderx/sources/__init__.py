"""Data sources: mapped files, arrays in memory, any Python object, and views of these."""

from .adapter import as_rows as as_rows
from .adapter import as_source as as_source
from .array import NPDataset as NPDataset
from .folder import Dataset as Dataset
from .mixture import Mixture as Mixture
from .object import ObjectSource as ObjectSource
from .source import AddressableSource as AddressableSource
from .source import FieldsSource as FieldsSource
from .source import Source as Source
from .subsets import concatenate as concatenate
from .subsets import select as select
from .subsets import split as split
