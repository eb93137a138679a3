# Public names and their modules, for type checkers and for `__getattr__` in __init__.py.

from . import kernels as kernels
from . import transforms as transforms
from .compiler.pipeline import pipeline as pipeline
from .errors import ArgumentError as ArgumentError
from .errors import ClosedError as ClosedError
from .errors import DataError as DataError
from .errors import LoaderxError as LoaderxError
from .errors import StateError as StateError
from .errors import TransformError as TransformError
from .errors import WorkerError as WorkerError
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
from .sources.encoded.bagz import BagzDataset as BagzDataset
from .sources.encoded.field import Encoded as Encoded
from .sources.encoded.files import EncodedFiles as EncodedFiles
from .sources.encoded.parquet import ParquetDataset as ParquetDataset
from .sources.encoded.tar import TarDataset as TarDataset
from .sources.encoded.tfrecord import TFRecordDataset as TFRecordDataset
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

__version__: str
