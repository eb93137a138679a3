"""Sources, loaders, ops and pipelines pickle and copy: the copy delivers the same bytes, from memory of its own."""

import copy
import gzip
import inspect
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import bagz
import datasets
import jax
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from PIL import Image

import loaderx
from loaderx import (
    CIFAR10,
    MNIST,
    ARDataset,
    BagzDataset,
    DataError,
    DataLoader,
    Dataset,
    DeviceLoader,
    Encoded,
    EncodedFiles,
    HFDataset,
    IDXDataset,
    ImageFolder,
    Mixture,
    NPDataset,
    PackedDataset,
    ParquetDataset,
    PolarsDataset,
    Source,
    Spec,
    SQLiteDataset,
    TarDataset,
    TFRecordDataset,
    TokenDataset,
    concatenate,
    pipeline,
    transform,
    write_array_record,
)
from loaderx import transforms as T  # noqa: N812 - as users write it
from loaderx.sources.encoded.field import EncodedSpec
from loaderx.sources.records.fields import encode_fields, record_fields
from tests.loaderx.sources.record_files import KINDS, write
from tests.loaderx.sources.rows import assert_same, values
from tests.loaderx.sources.tar_files import write_tar
from tests.loaderx.sources.test_mnist import idx
from tests.loaderx.sources.tfrecord_files import write_tfrecord
from tests.waiting import PATIENCE

ROWS = 24
IMAGES = values((ROWS, 6, 5, 3), "u1")
LABELS = np.arange(ROWS, dtype=np.int32)
TOKENS = np.arange(500, dtype=np.uint16)
IMAGE_AND_LABEL = {"image": Encoded(), "label": "int64"}
BY_FEATURE = {"image": Encoded(), "label": ("int64", "label")}
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@transform
def brighten(x, rng, amount):
    gain = 1 + rng.uniform(-amount, amount)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] *= gain


@transform(out=lambda spec, rows: Spec((rows, *spec.shape[1:]), spec.dtype))
def upper(x, out, rows):
    for i in range(rows):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                out[i, j, c] = x[i, j, c]


def plain_function(x):
    for i in range(x.shape[0]):
        x[i] += 1


marked = transform(plain_function)


class Squares:
    """Rows of a Python object."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"square": np.int64(row**2), "image": IMAGES[row]}


class Scaled(NPDataset):
    """Source of a user, with arguments and attributes of its own."""

    def __init__(self, path, factor):
        super().__init__(path)
        self.factor = factor

    def __getitem__(self, key):
        return super().__getitem__(key) * self.factor


class OwnSource(Source):
    """Source of a user from scratch."""

    spec = Spec((), np.int64)

    def __len__(self):
        return ROWS

    def read(self, rows, out):
        out[0][...] = rows * 3


def pictures(folder):
    for row in range(4):
        path = folder / "pictures" / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGES[row]).save(path)
    return ImageFolder(folder / "pictures", (6, 5))


def picture_files(folder):
    return sorted(map(str, pictures(folder).paths))


def encoded_rows(folder):
    """Return encoded images and numbers, as containers have them."""
    images = [Path(file).read_bytes() for file in picture_files(folder)]
    return [{"image": image, "label": row} for row, image in enumerate(images)]


def tar(folder):
    members = [
        (f"{row['label']}.{suffix}", content)
        for row in encoded_rows(folder)
        for suffix, content in (("png", row["image"]), ("cls", b"%d" % row["label"]))
    ]
    return write_tar(folder / "x.tar", members)


def bagz_file(folder):
    layout = record_fields(IMAGE_AND_LABEL)
    with bagz.Writer(folder / "x.bagz") as writer:
        for row in encoded_rows(folder):
            writer.write(encode_fields(layout, row))
    return folder / "x.bagz"


def encoded_records(folder):
    rows = encoded_rows(folder)
    write_array_record(folder / "x.ar", rows, fields=IMAGE_AND_LABEL)
    return folder / "x.ar"


def encoded_table(folder):
    rows = encoded_rows(folder)
    table = pa.table({name: [row[name] for row in rows] for name in ("image", "label")})
    pq.write_table(table, folder / "x.parquet")
    return ParquetDataset(folder / "x.parquet", {"image": Encoded("image"), "label": "label"})


def digits(folder, compress):
    for name, array in [("images-idx3", values((7, 28, 28), "u1")), ("labels-idx1", LABELS[:7])]:
        content = compress(idx(array.astype(np.uint8)))
        (folder / f"train-{name}-ubyte").write_bytes(content)
    return MNIST(folder)


def objects(folder):
    for number in range(1, 6):
        rows = np.concatenate([np.full((3, 1), number, np.uint8), values((3, 3072), "u1")], axis=1)
        rows.tofile(folder / f"data_batch_{number}.bin")
    return CIFAR10(folder)


def table(folder):
    connection = sqlite3.connect(folder / "rows.db")
    with connection:
        connection.execute("CREATE TABLE samples (label INT, image BLOB)")
        rows = [(int(row), IMAGES[row].tobytes()) for row in LABELS]
        connection.executemany("INSERT INTO samples VALUES (?, ?)", rows)
    connection.close()
    columns = {"label": "int64", "image": ("uint8", (6, 5, 3))}
    return SQLiteDataset(folder / "rows.db", "samples", columns, where="label > 2")


def npy(folder, name="images", array=IMAGES):
    np.save(folder / f"{name}.npy", array)
    return folder / f"{name}.npy"


def saved(folder):
    rows = datasets.Dataset.from_dict({"image": IMAGES.tolist(), "label": LABELS})
    rows.save_to_disk(folder / "saved")
    return folder / "saved"


def parquet(folder):
    pl.DataFrame({"x": values(ROWS, "f4"), "y": LABELS}).write_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def shards(folder, kind):
    write(folder / "rows.ar", IMAGES, KINDS[kind])
    return folder / "rows.ar"


def padded(folder):
    write_array_record(folder / "p.ar", [values((n + 1, 2), "f4") for n in range(ROWS)])
    return ARDataset(folder / "p.ar", pad_to=9)


def slow(path):
    with pytest.warns(UserWarning, match="brotli"):
        return ARDataset(path, "u1", (6, 5, 3))


def raw(folder):
    TOKENS.tofile(folder / "tokens.bin")
    return folder / "tokens.bin"


def read_only():
    array = IMAGES.copy()
    array.flags.writeable = False
    return array


def first_byte(record):
    return np.frombuffer(record, np.uint8)[:4].copy()


# By how they are made in a folder; all of them are also pickled as views, and in loaders.
IN_MEMORY = {
    "array": lambda folder: NPDataset(IMAGES),
    "read-only": lambda folder: NPDataset(read_only()),
    "strided": lambda folder: NPDataset(values((60, 9, 5), "f8")[::-2, ::3, 1:]),
    "transposed": lambda folder: NPDataset(values((5, 6, 30), "i4").T),
    "big-endian": lambda folder: NPDataset(values((30, 4), ">i2")),
    "gaps twice": lambda folder: concatenate([np.asfortranarray(IMAGES)[::2]] * 2),
    "joined": lambda folder: NPDataset(IMAGES) + NPDataset(npy(folder)),
    "list": lambda folder: concatenate([[1, 2, 3, 4, 5]]),
    "range": lambda folder: concatenate([range(3, 99, 5)]),
    "object": lambda folder: concatenate([Squares()]),
    "user's": lambda folder: OwnSource(),
    "tokens": lambda folder: TokenDataset(TOKENS, 16, stride=3),
    "tokens twice": lambda folder: TokenDataset([TOKENS, raw(folder)], 16, dtype="u2"),
    "documents": lambda folder: PackedDataset([TOKENS[:9], TOKENS[5:90]], 16),
    "frame": lambda folder: PolarsDataset(
        pl.concat([pl.DataFrame({"x": LABELS, "b": LABELS > 3})] * 2, rechunk=False)
    ),
    "lists": lambda folder: PolarsDataset(pl.DataFrame({"x": [[1, 2], [3, 4], [5, 6]]})),
    "rows of a library": lambda folder: HFDataset(datasets.Dataset.from_dict({"x": LABELS})),
    "mixture": lambda folder: Mixture({"a": (IMAGES[:9], 0.7), "b": (IMAGES[9:], 0.3)}),
}
IN_FILES = {
    "npy": lambda folder: NPDataset(npy(folder)),
    "npy files": lambda folder: NPDataset([npy(folder, "a"), npy(folder, "b")]),
    "Fortran": lambda folder: NPDataset(npy(folder, array=np.asfortranarray(IMAGES))),
    "memmap": lambda folder: NPDataset(np.load(npy(folder), mmap_mode="r")),
    "subclass": lambda folder: Scaled(npy(folder, array=LABELS), factor=7),
    "folder": lambda folder: Dataset(npy(folder).parent, "images.npy", "images.npy"),
    "raw tokens": lambda folder: TokenDataset(raw(folder), 16, dtype=np.uint16, offset=2),
    "packed": lambda folder: PackedDataset(raw(folder), 16, lengths=[300, 200], dtype="u2"),
    "idx": lambda folder: digits(folder, bytes),
    "idx.gz": lambda folder: digits(folder, gzip.compress),
    "CIFAR10": objects,
    "pictures": pictures,
    "SQLite": table,
    "parquet": lambda folder: PolarsDataset(parquet(folder), ["y", "x"]),
    "saved rows": lambda folder: HFDataset(saved(folder)),
    "records": lambda folder: ARDataset(shards(folder, "zstd"), "u1", (6, 5, 3)),
    "read records": lambda folder: ARDataset(shards(folder, "zstd"), "u1", (6, 5, 3), mmap=False),
    "plain records": lambda folder: ARDataset(shards(folder, "uncompressed"), "u1", (6, 5, 3)),
    "groups": lambda folder: ARDataset(shards(folder, "7"), "u1", (6, 5, 3)),
    "slow records": lambda folder: slow(shards(folder, "brotli")),
    "padded": padded,
    "encoded folder": lambda folder: (pictures(folder), ImageFolder(folder / "pictures"))[1],
    "encoded files": lambda folder: EncodedFiles(picture_files(folder)),
    "tar": lambda folder: TarDataset(tar(folder), {"image": "png", "label": "cls"}),
    "TFRecord": lambda folder: TFRecordDataset(
        write_tfrecord(folder / "x.tfrecord", encoded_rows(folder)), BY_FEATURE
    ),
    "Bagz": lambda folder: BagzDataset(bagz_file(folder), IMAGE_AND_LABEL),
    "encoded table": encoded_table,
    "encoded records": lambda folder: ARDataset(encoded_records(folder)),
    "decoded": lambda folder: ARDataset(shards(folder, "zstd"), decode=first_byte),
}
SOURCES = IN_MEMORY | IN_FILES


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def made(kind, tmp_path):
    return SOURCES[kind](tmp_path)


def assert_same_source(other, source):
    assert type(other) is type(source)
    assert len(other) == len(source)
    assert other.spec == source.spec
    assert_same(rows_of(other), rows_of(source))


def rows_of(source):
    """Return all rows; of encoded images their bytes."""
    return jax.tree.map(as_bytes, source[:])


def as_bytes(array):
    return np.array([bytes(image) for image in array]) if array.dtype == object else array


def loader_of(source, **options):
    """Return a loader; encoded images are cropped to one size."""
    named = source.spec if isinstance(source.spec, dict) else {"data": source.spec}
    encoded = [name for name, spec in named.items() if isinstance(spec, EncodedSpec)]
    transforms = {name: [T.CenterCrop((4, 5))] for name in encoded} or None
    return DataLoader(source, output="numpy", transforms=transforms, **options)


def ways(value):
    yield from (pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS)
    yield copy.copy(value)
    yield copy.deepcopy(value)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_copied_source_has_the_same_rows(tmp_path, kind):
    source = made(kind, tmp_path)
    for other in ways(source):
        assert_same_source(other, source)
        assert repr(other) == repr(source)


@pytest.mark.parametrize("kind", SOURCES)
def test_views_of_a_source_are_copied_with_it(tmp_path, kind):
    source = made(kind, tmp_path)
    views = [
        *source.split(0.4, seed=3),
        source.select([2, 0, 0, 1]),
        source.select(slice(None, None, -2)),
        source.select(slice(0, 2)) + source.select(slice(1, 3)),
    ]
    for view in views:
        for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view)):
            assert_same_source(other, view)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_copied_loader_delivers_the_same_batches(tmp_path, kind):
    loader = loader_of(made(kind, tmp_path), batch_size=4, seed=5, workers=1)
    batches = [loader.batch(step) for step in range(4)]
    for other in (pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)):
        assert repr(other) == repr(loader)
        with iter(other) as iterator:
            for batch in batches:
                assert_same(next(iterator), batch)


@pytest.mark.parametrize("kind", IN_FILES)
def test_data_in_files_is_pickled_by_path(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path("here")
    relative.mkdir()
    source = made(kind, relative)
    rows = rows_of(source)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pickled = pickle.dumps(source)
    assert IMAGES[3].tobytes() not in pickled
    assert len(pickled) < (6000 if kind == "saved rows" else 4000)
    assert_same(rows_of(pickle.loads(pickled)), rows)


def test_mapped_files_of_a_saved_data_set_of_a_library_are_pickled_by_path(tmp_path):
    big = datasets.Dataset.from_dict({"x": np.arange(100_000)})
    big.save_to_disk(tmp_path / "big")
    source = HFDataset(tmp_path / "big")
    for one in (source, source.select(range(5, 50))):
        pickled = pickle.dumps(one)
        assert len(pickled) < 20_000
        assert_same_source(pickle.loads(pickled), one)


def test_overlapping_windows_are_pickled_once():
    tokens = TokenDataset(TOKENS, 100, stride=1)
    assert len(pickle.dumps(tokens)) < 2 * TOKENS.nbytes


def test_a_deep_copy_has_memory_of_its_own():
    array = IMAGES.copy()
    loader = DataLoader({"image": array, "label": NPDataset(LABELS)}, batch_size=8, output="numpy")
    expected = loader.batch(1)
    copied = copy.deepcopy(loader)
    array[...] = 0
    del loader, array
    fillers = [np.zeros_like(IMAGES) for _ in range(64)]
    assert_same(copied.batch(1), expected)
    assert len(fillers) == 64


def test_a_shallow_copy_shares_the_array():
    array = IMAGES.copy()
    copied = copy.copy(NPDataset(array))
    array[...] = 7
    assert_same(copied[:], np.full_like(IMAGES, 7))


def test_a_deep_copy_of_a_mapped_file_needs_the_file_no_more(tmp_path):
    sources = [NPDataset(npy(tmp_path)), ARDataset(shards(tmp_path, "zstd"), "u1", (6, 5, 3))]
    for path in tmp_path.iterdir():
        path.unlink()
    for source in sources:
        assert_same(copy.deepcopy(source)[:], IMAGES)


def rewrite_npy(path):
    np.save(path, IMAGES[:-1])


CHANGED = {
    "npy": (npy, NPDataset, rewrite_npy),
    "dtype": (npy, NPDataset, lambda path: np.save(path, IMAGES.astype("i1"))),
    "order": (npy, NPDataset, lambda path: np.save(path, np.asfortranarray(IMAGES))),
    "memmap": (npy, lambda path: NPDataset(np.load(path, mmap_mode="r")), rewrite_npy),
    "view": (npy, lambda path: NPDataset(path).split(0.5)[0], rewrite_npy),
    "raw": (raw, lambda path: TokenDataset(path, 9, dtype="u2"), lambda path: path.write_bytes(b"1" * 98)),
    "idx": (
        lambda folder: digits(folder, gzip.compress) and folder / "train-labels-idx1-ubyte",
        IDXDataset,
        lambda path: path.write_bytes(gzip.compress(idx(np.zeros(6, np.uint8)))),
    ),
    "parquet": (
        parquet,
        PolarsDataset,
        lambda path: pl.DataFrame({"x": [1.5], "y": [2]}).write_parquet(path),
    ),
    "records": (
        lambda folder: shards(folder, "zstd"),
        lambda path: ARDataset(path, "u1", (6, 5, 3)),
        lambda path: write(path, IMAGES[:-1], KINDS["zstd"]),
    ),
    "groups": (
        lambda folder: shards(folder, "7"),
        lambda path: ARDataset(path, "u1", (6, 5, 3)),
        lambda path: write(path, IMAGES[:-1], KINDS["7"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGED)
def test_a_file_with_other_rows_is_refused_where_it_is_opened_again(tmp_path, kind):
    write_first, opened, rewrite = CHANGED[kind]
    path = write_first(tmp_path)
    pickled = pickle.dumps(opened(path))
    # Another file under its name: what is mapped must not be written to.
    path.unlink()
    rewrite(path)
    with pytest.raises(DataError, match="has changed since a data set of it was pickled"):
        pickle.loads(pickled)


def test_records_of_other_sizes_are_refused_where_they_are_opened_again(tmp_path):
    path = shards(tmp_path, "zstd")
    pickled = pickle.dumps(ARDataset(path, "u1", (6, 5, 3)))
    path.unlink()
    write(path, values((ROWS, 11), "u1"), KINDS["zstd"])
    with pytest.raises(DataError, match="it has 11 bytes, and uint8"):
        pickle.loads(pickled)


@pytest.mark.parametrize("kind", ["npy", "records", "SQLite", "parquet", "raw tokens", "CIFAR10"])
def test_a_file_that_is_gone_is_named(tmp_path, kind):
    pickled = pickle.dumps(made(kind, tmp_path))
    gone = sorted(tmp_path.iterdir())[0]
    gone.unlink()
    with pytest.raises(FileNotFoundError, match=gone.name):
        pickle.loads(pickled)


def test_a_subclass_keeps_its_attributes_and_its_constructor_is_not_called(tmp_path):
    source = Scaled(npy(tmp_path, array=LABELS), factor=3)
    source.note = ["mine"]
    for other in ways(source):
        assert (type(other), other.factor, other.note) == (Scaled, 3, ["mine"])
        assert_same(other[:], LABELS * 3)


class Named(DataLoader):
    """Loader of a user, with an argument of its own."""

    def __init__(self, name, *arguments, **options):
        super().__init__(*arguments, **options)
        self.name = name


def test_a_subclass_of_the_loader_is_made_with_its_own_arguments():
    loader = Named("train", IMAGES, LABELS, batch_size=4, output="numpy")
    for other in ways(loader):
        assert (type(other), other.name) == (Named, "train")
        assert_same(other.batch(2), loader.batch(2))


def hook(batch):
    return {**batch, "sum": batch["label"].sum(keepdims=True)}


EXTRAS = {
    "weights": {"weights": np.arange(ROWS)},
    "finite": {"num_epochs": 2, "remainder": "pad", "shuffle": False},
    "hook": {"transform": hook},
    "labels": {"labelset": LABELS},
    "jax": {"output": "jax", "prefetch": 3, "workers": 1, "seed": 2**63},
    "views": {"transforms": {"image": [T.Views(2, [T.RandomFlip(), brighten(amount=0.5)])]}},
    "ops": {"transforms": {"image": [T.RandomCrop(4, pad=1), brighten(amount=0.3), upper(rows=2)]}},
    "functions": {"transforms": {"image": [np.flipud]}},
}


@pytest.mark.filterwarnings("ignore:'flipud' is a plain Python function")
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_loader_is_copied_with_all_of_its_arguments(extra):
    options = {"batch_size": 5, "output": "numpy"} | EXTRAS[extra]
    data = {"image": IMAGES.astype(np.float32), "label": LABELS}
    loader = DataLoader(IMAGES if extra == "labels" else data, **options)
    for other in (pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)):
        assert repr(other) == repr(loader)
        for step in range(3):
            jax.tree.map(np.testing.assert_array_equal, other.batch(step), loader.batch(step))


def test_lists_that_were_changed_later_are_as_they_were(tmp_path):
    ops = [T.RandomFlip()]
    data = {"image": IMAGES}
    loader = DataLoader(data, batch_size=4, transforms={"image": ops}, output="numpy")
    ops.append(T.ToFloat())
    data["label"] = LABELS
    assert_same(copy.copy(loader).batch(0), loader.batch(0))


def test_long_lists_are_not_copied():
    rows = [[number, number + 1] for number in range(5000)]
    loader = DataLoader(rows, batch_size=4, output="numpy")
    assert loader._written[0][0] is rows
    assert_same(copy.copy(loader).batch(2), loader.batch(2))


def test_arrays_that_decide_the_order_and_were_changed_later_are_refused():
    weights = np.ones(ROWS)
    loader = DataLoader(IMAGES, weights=weights, output="numpy")
    weights[3] = 9
    with pytest.raises(DataError, match="the weights of a loader have changed since it was made"):
        copy.copy(loader)


def test_an_iterator_says_what_to_pickle_instead():
    loader = DataLoader(IMAGES, batch_size=4, output="numpy")
    with iter(loader) as iterator:
        next(iterator)
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"Pickle the loader and `iterator.get_state\(\)`"):
                attempt(iterator)
        state = pickle.loads(pickle.dumps(iterator.get_state()))
        following = next(iterator)
    with iter(pickle.loads(pickle.dumps(loader))) as other:
        other.set_state(state)
        assert_same(next(other), following)


def shardings():
    yield SingleDeviceSharding(jax.devices()[0])
    yield NamedSharding(jax.make_mesh((1,), ("data",)), PartitionSpec("data"))
    yield {"data": SingleDeviceSharding(jax.devices()[0])}


def test_devices_stay_in_their_process_and_are_shared_by_copies():
    for sharding in shardings():
        data = {"data": LABELS}
        loader = DataLoader(data, batch_size=4, sharding=sharding)
        with pytest.raises(TypeError, match=r"devices belong to their process\. Make the loader"):
            pickle.dumps(loader)
        for other in (copy.copy(loader), copy.deepcopy(loader)):
            batch, own = other.batch(1)["data"], loader.batch(1)["data"]
            assert batch.sharding == own.sharding
            np.testing.assert_array_equal(batch, own)


@pytest.fixture
def compiled_in_half_the_time():
    """Let JAX compile sooner, and with less optimisation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.usefixtures("compiled_in_half_the_time")
def test_a_device_loader_is_pickled_with_its_data():
    loader = DeviceLoader((IMAGES, LABELS), batch_size=7, seed=4, remainder="pad")
    state = loader.next(loader.init())[1]
    expected = loader.next(state)
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        found = other.next(pickle.loads(pickle.dumps(state)))
        jax.tree.map(np.testing.assert_array_equal, found, expected)


# One of every op. Ops without a public name have none.
OPS = [
    T.Affine(), T.AugMix(), T.AutoContrast(), T.Brightness(0.2), T.CLAHE(), T.Cast("int32"), T.CenterCrop(4),
    T.AutoAugment("svhn"), T.D4(), T.RandomOrder(T.Invert(), T.RandomFlip()), T.SomeOf(1, T.Invert(), T.RandomFlip()),
    T.CenterOnJoint(0), T.ChannelDrop(), T.ChannelShuffle(), T.ColorJitter(), T.Contrast(0.3), T.CutMix(),
    T.ElasticDeform(), T.Equalize(), T.FrameDrop(), T.FreqMask(4), T.Gain(), T.Gamma(), T.GaussianBlur(),
    T.GaussianNoise(), T.Grayscale(), T.GridMask(), T.Hue(0.1), T.Identity(), T.Invert(), T.JointDrop(),
    T.JointJitter(), T.LeftRightFlip([(1, 2)]), T.MaskTokens(103, 30522), T.Maybe(0.5, T.Invert()), T.MixUp(),
    T.MuLaw(), T.MultiCrop(ops=[T.Invert()]), T.NoiseAtSNR(), T.Normalize([0.5], [0.5]), T.OneHot(4),
    T.OneOf(T.Invert(), [T.RandomFlip(), brighten(amount=0.1)], weights=[1, 2]), T.Pad(4), T.PadTo(4),
    T.Perspective(), T.Polarity(), T.Posterize(), T.RandAugment(), T.RandomCrop(4), T.RandomCrop1D(4),
    T.LetterBox(4, fill=(1, 2, 3)), T.PadIfNeeded(4, 5, fill_mask=9),
    T.RandomErasing(), T.RandomFlip(), T.RandomResizedCrop(4), T.RandomScale(), T.Resample(8), T.Reverse(),
    T.Rot90(), T.Rotate(T.Choice(5, 9)), T.SaltPepper(), T.Saturation(0.5), T.Sequence(T.Invert(), T.RandomFlip()),
    T.Sharpness(0.5), T.SkeletonRotate(), T.SkeletonScale(), T.SkeletonShear(), T.Solarize(),
    T.SpanCorruption(32099), T.TemporalCrop(), T.TimeMask(4), T.TimeShift(0.5), T.ToFloat(), T.Transpose(),
    T.TrivialAugment(), T.Views([[T.Invert()], [brighten]], names=["a", "b"]), T.Resize(8),
    brighten(amount=np.float32(0.1)), upper(rows=3), T.CoarseDropout(fill=(1, 2, 3)), T.Defocus(), T.Downscale(),
    T.FancyPCA(), T.ISONoise(), T.MedianBlur(), T.MotionBlur(), T.MultiplicativeNoise(), T.PhotometricDistort(),
    T.RGBShift(), T.RandomBrightnessContrast(), T.Sepia(), T.ShotNoise(), T.JPEGCompression(),
    T.GridDistortion(3, normalized=False), T.OpticalDistortion((0, 1)), T.FiveCrop(4, [T.Invert()]), T.TenCrop((4, 5)),
    T.ScaleJitter(8, fill=(1, 2, 3)), T.Fog(), T.Rain(blur=3), T.Shadow(region=(0, 0, 1, 1)),
    T.BackgroundNoise(np.ones((2, 9), np.float32)), T.ImpulseResponse(np.ones((2, 9), np.float32)), T.PitchShift(),
    T.TimeStretch(), T.LowPass(sample_rate=16000), T.HighPass(sample_rate=16000), T.BandPass(sample_rate=16000),
    T.PeakNormalize(), T.LoudnessNormalize(sample_rate=16000), T.ClippingDistortion(), T.LogMel(sample_rate=16000),
    T.TimeWarp(), T.RandomIoUCrop(4), T.BoxSafeCrop(4), T.ZoomOut(4), T.SanitizeBoxes(2),
    T.Mosaic(8, rows=3), T.CopyPaste(0.3, background=(0, 255)),
]  # fmt: skip


def same_state(one, other):
    """Return whether two ops are equal, down to the arrays."""
    assert type(one) is type(other)
    if isinstance(one, T.Transform | T.Views | T.Choice):
        return one.__dict__.keys() == other.__dict__.keys() and all(
            same_state(value, other.__dict__[name]) for name, value in one.__dict__.items()
        )
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same_state, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(map(same_state, one.values(), other.values()))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one is other or one == other


@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_ops_are_copied(op):
    for other in ways(op):
        assert same_state(other, op)
        assert repr(other) == repr(op)


def test_no_op_is_left_out():
    kinds = {name for name in dir(T) if inspect.isclass(getattr(T, name))}
    assert {type(op).__name__ for op in OPS} >= kinds - {"Boxes", "Channels", "Choice", "Transform"}


def test_formats_of_boxes_are_copied():
    for other in ways(T.Boxes("yolo", min_area=3, fill=-1)):
        assert other == T.Boxes("yolo", min_area=3, fill=-1)


def test_stated_channels_are_copied():
    for other in ways(T.Channels(12, 13)):
        assert other.numbers == (12, 13)


@pytest.mark.parametrize("author", [brighten, upper, marked], ids=lambda author: author.py.__name__)
def test_a_marked_function_is_pickled_by_name(author):
    assert copy.copy(author) is author
    assert copy.deepcopy(author) is author
    for protocol in PROTOCOLS:
        other = pickle.loads(pickle.dumps(author, protocol))
        assert (other.py, other.out) == (author.py, author.out)


def test_a_pipeline_is_copied_and_compiles_anew():
    ops = [T.RandomCrop(4), brighten(amount=0.5)]
    original = pipeline(ops, seed=3)
    samples = IMAGES.astype(np.float32)
    expected = original(samples)
    ops.append(T.ToFloat())
    for other in ways(original):
        assert_same(other(samples), expected)


def refusal_of_divided_data():
    """Return the message of pickling a loader of data on several devices, if there are any."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    data = jax.device_put(np.arange(8), NamedSharding(mesh, PartitionSpec("data")))
    try:
        pickle.dumps(DeviceLoader(data, batch_size=4))
    except TypeError as error:
        return str(error)


def put_batches(loaders, queue):
    batches = [jax.tree.map(np.asarray, loader.batch(2)) for loader in loaders]
    queue.put((batches, refusal_of_divided_data()))


def in_another_process(method, folder):
    """Return loaders of all sources, and of each a batch of another process, and what that says of divided data."""
    kinds = {}
    for kind in SOURCES:
        (folder / kind).mkdir()
        kinds[kind] = SOURCES[kind](folder / kind)
    loaders = [loader_of(source, batch_size=3) for source in kinds.values()]
    ops = {"image": [T.RandomFlip(), brighten(amount=0.5), upper(rows=2)]}
    data = {"image": IMAGES.astype(np.float32), "label": LABELS}
    loaders.append(DataLoader(data, batch_size=3, transforms=ops))
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=put_batches, args=(loaders, queue))
    process.start()
    try:
        found, refusal = queue.get(timeout=PATIENCE)
    finally:
        process.join(30)
    assert process.exitcode == 0
    return loaders, found, refusal


@pytest.fixture(scope="module")
def spawned(tmp_path_factory):
    """Spawn a process that has two devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
        return in_another_process("spawn", tmp_path_factory.mktemp("spawned"))


def assert_same_batches(loaders, found):
    for loader, batch in zip(loaders, found, strict=True):
        assert_same(batch, jax.tree.map(np.asarray, loader.batch(2)))


def test_another_process_delivers_the_same_batches(spawned):
    loaders, found, _ = spawned
    assert_same_batches(loaders, found)


@pytest.mark.long
def test_another_process_by_a_fork_server_delivers_the_same_batches(tmp_path):
    loaders, found, _ = in_another_process("forkserver", tmp_path)
    assert_same_batches(loaders, found)


def test_a_device_loader_of_data_on_several_devices_cannot_be_pickled(spawned):
    _, _, refusal = spawned
    assert "field 'data' is divided over devices" in refusal
    # In this process there is one.
    assert jax.device_count() > 1 or refusal_of_divided_data() is None


# A program whose ops are in `__main__`: processes that import it find them by name, and those of joblib, which do not,
# are sent their code.
PROGRAM = """
import multiprocessing, pickle, sys
import numpy as np
import loaderx as lx

LIMIT = 7.0

@lx.transform
def brighten(x, rng, amount=0.5):
    gain = 1 + rng.uniform(-amount, amount)
    for i in range(x.shape[0]):
        x[i] = min(x[i] * gain, LIMIT)

@lx.transform(out=lambda spec, size: lx.Spec((size,), spec.dtype))
def shortened(x, out, size):
    for i in range(size):
        out[i] = x[i]

def batch_of(loader):
    return loader.batch(3)

if __name__ == "__main__":
    import joblib
    from joblib.externals.loky import get_reusable_executor

    method, through = sys.argv[1:]
    array = np.arange(400, dtype=np.float32).reshape(100, 4)

    @lx.transform
    def inner(x):
        x[0] = LIMIT

    ops = [brighten(amount=0.5), shortened(size=2)]
    loader = lx.DataLoader(array, batch_size=8, transforms=ops, output="numpy")
    expected = batch_of(loader)
    for protocol in range(2, 6):
        assert np.array_equal(batch_of(pickle.loads(pickle.dumps(loader, protocol))), expected)
    assert pickle.loads(pickle.dumps(brighten)) is brighten
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert np.array_equal(pool.apply(batch_of, (loader,)), expected)
    local = lx.DataLoader(array, batch_size=8, transforms=[inner], output="numpy")
    if through == "joblib":
        work = joblib.Parallel(n_jobs=2)(joblib.delayed(batch_of)(one) for one in (loader, local))
    else:
        # As in joblib, with one process.
        with get_reusable_executor(max_workers=1) as executor:
            work = list(executor.map(batch_of, (loader, local)))
    assert np.array_equal(work[0], expected)
    assert np.array_equal(work[1], batch_of(local))
    print("done")
"""


@pytest.mark.parametrize(
    ("method", "through"),
    [("forkserver", "loky"), pytest.param("spawn", "joblib", marks=pytest.mark.long)],
)
def test_ops_of_the_program_itself_reach_other_processes(tmp_path, method, through):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    finished = run(str(program), method, through)
    assert finished.stdout == "done\n", finished.stderr


def test_a_function_inside_of_another_cannot_be_pickled_by_name():
    @transform
    def local(x):
        x[0] = 1

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(local)


def test_every_source_that_is_exported_is_copied_here(tmp_path):
    exported = {
        name
        for name in loaderx.__all__
        if inspect.isclass(getattr(loaderx, name)) and issubclass(getattr(loaderx, name), Source)
    } - {"Source", "IDXDataset"}  # the latter is what MNIST consists of
    covered = set()
    for kind in SOURCES:
        (tmp_path / kind).mkdir()
        covered |= {parent.__name__ for parent in type(SOURCES[kind](tmp_path / kind)).__mro__}
    assert exported <= covered
