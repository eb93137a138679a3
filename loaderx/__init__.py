"""A data loader for JAX in which the per-sample work is compiled.

Names are imported when they are first used: `import loaderx` alone takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import kernels as kernels
    from .compiler.pipeline import pipeline as pipeline
    from .errors import ArgumentError as ArgumentError
    from .errors import ClosedError as ClosedError
    from .errors import DataError as DataError
    from .errors import LoaderxError as LoaderxError
    from .errors import StateError as StateError
    from .errors import TransformError as TransformError
    from .loader import DataLoader as DataLoader
    from .on_device.loader import DeviceLoader as DeviceLoader
    from .sources import Dataset as Dataset
    from .sources import Mixture as Mixture
    from .sources import NPDataset as NPDataset
    from .sources import Source as Source
    from .sources import concatenate as concatenate
    from .sources import select as select
    from .sources import split as split
    from .sources.cifar import CIFAR10 as CIFAR10
    from .sources.hugging_face import HFDataset as HFDataset
    from .sources.image_folder import ImageFolder as ImageFolder
    from .sources.mnist import MNIST as MNIST
    from .sources.mnist import IDXDataset as IDXDataset
    from .sources.packing import PackedDataset as PackedDataset
    from .sources.polars import PolarsDataset as PolarsDataset
    from .sources.records.dataset import ARDataset as ARDataset
    from .sources.records.writer import write_array_record as write_array_record
    from .sources.sqlite import SQLiteDataset as SQLiteDataset
    from .sources.tokens import TokenDataset as TokenDataset
    from .spec import Spec as Spec
    from .transforms import transform as transform

_HOMES = {
    "ARDataset": "sources.records.dataset",
    "ArgumentError": "errors",
    "CIFAR10": "sources.cifar",
    "ClosedError": "errors",
    "DataError": "errors",
    "DataLoader": "loader",
    "Dataset": "sources",
    "DeviceLoader": "on_device.loader",
    "HFDataset": "sources.hugging_face",
    "IDXDataset": "sources.mnist",
    "ImageFolder": "sources.image_folder",
    "LoaderxError": "errors",
    "MNIST": "sources.mnist",
    "Mixture": "sources",
    "NPDataset": "sources",
    "PackedDataset": "sources.packing",
    "PolarsDataset": "sources.polars",
    "SQLiteDataset": "sources.sqlite",
    "Source": "sources",
    "Spec": "spec",
    "StateError": "errors",
    "TokenDataset": "sources.tokens",
    "TransformError": "errors",
    "concatenate": "sources",
    "pipeline": "compiler.pipeline",
    "select": "sources",
    "split": "sources",
    "transform": "transforms",
    "write_array_record": "sources.records.writer",
}
# Names that are modules themselves.
_MODULES = ("kernels",)
__all__ = sorted([*_HOMES, *_MODULES])  # noqa: PLE0605
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'loaderx' has no attribute {name!r}")
    try:
        home = importlib.import_module(f".{_HOMES[name]}", __name__)
    except AttributeError as error:
        # `from loaderx import ...` would say that there is no such name, and nothing of the reason.
        raise ImportError(f"loaderx.{_HOMES[name]} cannot be imported: {error}") from error
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
