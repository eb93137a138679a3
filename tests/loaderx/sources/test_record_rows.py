"""ARDataset reads files of array_record's own writer, with any of its options, like an array."""

import contextlib
import functools
import pathlib

import jax
import numpy as np
import pytest

from loaderx import ARDataset, ArgumentError, DataError, DataLoader, NPDataset, concatenate
from loaderx import transforms as T  # noqa: N812 - as its users call it
from tests.loaderx.sources.record_files import (
    DIRECT,
    GROUPS,
    KINDS,
    OPTIONS,
    PADDED,
    assert_reads_as,
    expected_warning,
    opened,
    write,
)
from tests.loaderx.sources.rows import (
    NUMBERS,
    assert_delivers,
    assert_same,
    for_jax,
    native,
    one_pass,
    values,
)
from tests.waiting import join, started

SHAPES = [
    (1, (3072,), "u1"),
    (2, (1,), "u1"),
    (10, (), "f4"),
    (10, (0,), "u1"),
    (10, (5, 3), "i2"),
    (10, (65536,), "u1"),
    (3, (3, 300, 25, 2), "f4"),
    (3000, (3,), "f4"),
    (2, (300000,), "f4"),
]


def some_shapes(options):
    """Return all shapes for one record per chunk and for groups, and every third one for the other options."""
    return SHAPES if options in ("uncompressed", "zstd", "7") else SHAPES[len(options) % 3 :: 3]


@pytest.mark.parametrize(
    ("options", "count", "shape", "dtype"),
    [(options, *shape) for options in OPTIONS for shape in some_shapes(options)],
)
def test_a_file_by_any_option_of_the_writer_is_read(tmp_path, options, count, shape, dtype):
    if options in PADDED:
        count = min(count, 50)  # Each needs 64 KiB.
    array = values((count, *shape), dtype)
    path = write(tmp_path / "rows.ar", array, OPTIONS[options])
    assert_reads_as(opened(path, array, OPTIONS[options]), array)
    assert_reads_as(opened(path, array, OPTIONS[options], mmap=False), array)


@pytest.mark.parametrize("options", ["uncompressed", "zstd", "7 uncompressed", "brotli"])
@pytest.mark.parametrize("around", [65536 - 24 - 64, 65536, 2 * 65536 - 48, 2 * 65536])
def test_rows_that_end_anywhere_near_the_end_of_a_block_are_read(tmp_path, around, options):
    for size in range(around - 80, around + 20, 7):
        array = values((4, size), "u1", size)
        path = write(tmp_path / "rows.ar", array, KINDS[options])
        assert_same(opened(path, array, KINDS[options])[[3, 0, 1, 2]], array[[3, 0, 1, 2]])


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("options", ["uncompressed", "zstd"])
def test_chunk_headers_that_a_block_interrupts_are_read(tmp_path, options, mmap):
    # Lengths around that of a block move the beginning of every following chunk along the blocks.
    lengths = range(65380, 65500)
    records = [values((length,), "u1", length).tobytes() for length in lengths]
    path = write(tmp_path / "rows.ar", records, KINDS[options])
    assert ARDataset(path, mmap=mmap)[:] == records


@pytest.mark.parametrize("dtype", ["u1", "f4", ">f4", "i8", "f8", ">i8", "c8", "b1", "f2"])
@pytest.mark.parametrize("options", KINDS)
def test_numbers_of_any_dtype_are_delivered_as_an_array_of_them_would_be(tmp_path, options, dtype):
    array = values((20, 3, 2), dtype)
    path = write(tmp_path / "rows.ar", array, KINDS[options])
    assert_delivers(opened(path, array, KINDS[options]), array)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_every_dtype_reach_jax_in_the_dtype_jax_would_give_them(tmp_path, dtype):
    array = values((9, 5), dtype)
    source = ARDataset(write(tmp_path / "rows.ar", array), dtype, (5,))
    assert_same(one_pass(source, "jax"), for_jax(array))
    assert_same(one_pass(source), native(array))


def test_an_integer_that_does_not_fit_into_the_dtype_of_jax_is_named(tmp_path):
    array = np.arange(20, dtype=np.int64).reshape(10, 2)
    array[7, 1] = 1 << 40
    source = ARDataset(write(tmp_path / "rows.ar", array), "i8", (2,))
    with pytest.raises(DataError, match="row 7, element 1: a value of int64 does not fit"):
        one_pass(source, "jax")
    assert_same(one_pass(source), array)


@pytest.mark.parametrize("options", ["uncompressed", "zstd"])
def test_unaligned_rows_of_a_file_are_read(tmp_path, options):
    # Every record moves the next by an odd number of bytes.
    array = values((64, 5), "f4")
    path = write(tmp_path / "rows.ar", array, KINDS[options])
    data = path.read_bytes()
    if options == "uncompressed":
        assert len({data.find(row.tobytes()) % 4 for row in array}) == 4
    transforms = [T.Normalize(0.5, 0.25)]
    assert_same(
        one_pass(ARDataset(path, "f4", (5,)), transforms=transforms),
        one_pass(NPDataset(array), transforms=transforms),
    )


def test_rows_are_copies(tmp_path):
    array = values((6, 2), "f4")
    for options in KINDS.values():
        source = opened(write(tmp_path / "rows.ar", array, options), array, options)
        for key in (2, slice(None), [2]):
            source[key][...] = -1
            assert_same(source[:], array)


@pytest.mark.parametrize("options", KINDS)
def test_its_representation_says_which_files_and_how_many_rows_of_what(tmp_path, options):
    array = values((6, 2), "f4")
    path = write(tmp_path / "rows.ar", array, KINDS[options])
    source = opened(path, array, KINDS[options])
    assert repr(source) == f"ARDataset({str(path)!r}: 6 rows of float32[2])"
    several = opened([path, path, path], array, KINDS[options])
    assert repr(several) == f"ARDataset({str(path)!r} and 2 more files: 18 rows of float32[2])"


def test_a_shape_is_any_sequence_of_integers_or_one(tmp_path):
    array = values((6, 4), "f4")
    path = write(tmp_path / "rows.ar", array)
    for shape in ((4,), [4], np.array([4]), 4, np.int64(4)):
        assert_same(ARDataset(path, np.float32, shape)[:], array)
    assert_same(ARDataset(path, "<f4", (2, 2))[:], array.reshape(6, 2, 2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "f4"}, "`dtype` .* needs a `shape`"),
        ({"shape": (4,)}, "`shape` .* needs a `dtype`"),
        ({"dtype": "what", "shape": (4,)}, "`dtype` "),
        ({"dtype": object, "shape": (4,)}, "`dtype` "),
        ({"dtype": "f4", "shape": (-4,)}, "`shape` .* integers of at least 0"),
        ({"dtype": "f4", "shape": (4.0,)}, "`shape` .* integers of at least 0"),
        ({"dtype": "f4", "shape": (True, 4)}, "`shape` .* integers of at least 0"),
        ({"dtype": "f4", "shape": (4, None)}, "the first may be None"),
        ({"dtype": "f4", "shape": "ab"}, "`shape` "),
        ({"dtype": "f4", "shape": (4,), "verify": "often"}, "`verify` .*'often'.*'always'"),
        ({"dtype": "f4", "shape": (4,), "pad_to": 5}, "`pad_to` .* begins with None"),
        ({"pad_to": 5}, "`pad_to` .* needs `dtype`"),
        ({"dtype": "f4", "decode": bytes}, "`decode` makes the rows"),
        ({"shape": (4,), "decode": bytes}, "`decode` makes the rows"),
        ({"decode": "bytes"}, "`decode` .* must be callable"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, arguments, words):
    path = write(tmp_path / "rows.ar", values((6, 4), "f4"))
    with pytest.raises(ArgumentError, match=words):
        ARDataset(path, **arguments)


@pytest.mark.parametrize("options", KINDS)
def test_records_of_another_size_than_a_row_are_named(tmp_path, options):
    records = [b"12345678"] * 10
    records[7] = b"123456789"
    path = write(tmp_path / "rows.ar", records, KINDS[options])
    words = r"rows\.ar, record 7: it has 9 bytes, and uint8\[8\] needs 8 bytes"
    with pytest.raises(DataError, match=words):
        opened([write(tmp_path / "a", records[:3]), path], np.empty((1, 8), "u1"), KINDS[options])[
            :
        ]


# Batches of a loader, compared with those of an array.

IMAGES = values((100, 48, 48, 3), "u1")
LABELS = values((100,), "i8")


def halved(image):
    return image // 2


@T.transform
def shifted(x):
    # In place: the row in the file must not be changed.
    for i in range(x.shape[0]):
        x[i, 0, 0] += 3


def as_floats(batch):
    return {"image": batch["image"].astype(np.float32) / 255, "label": batch["label"]}


PIPELINES = {
    "nothing": {},
    "compiled": {"transforms": {"image": [T.RandomCrop(32, pad=2), T.ToFloat()]}},
    "own": {"transforms": {"image": [shifted()]}},
    "python first": {"transforms": {"image": [halved, T.ToFloat()]}},
    "python last": {"transforms": {"image": [T.RandomFlip(), halved]}},
    "mixed": {"transforms": {"image": [T.ToFloat(), T.MixUp(0.4)]}},
    "of batches": {"transform": as_floats},
}


@pytest.fixture(scope="module")
def image_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return {
        name: write(folder / f"{number}.ar", IMAGES, options)
        for number, (name, options) in enumerate(KINDS.items())
    }


def batches(images, pipeline, **options):
    warning = contextlib.nullcontext()
    if "python" in pipeline:
        warning = pytest.warns(UserWarning, match="plain Python function")
    with warning:
        loader = DataLoader(
            {"image": images, "label": NPDataset(LABELS)},
            seed=5,
            num_epochs=2,
            remainder="keep",
            **PIPELINES[pipeline],
            **options,
        )
    with iter(loader) as iterator:
        found = list(iterator)
    assert_same(jax.tree.map(np.asarray, loader.batch(1)), jax.tree.map(np.asarray, found[1]))
    return jax.tree.map(np.asarray, found)


@functools.cache
def batches_of_the_array(pipeline, **options):
    return batches(NPDataset(IMAGES), pipeline, **options)


def assert_same_batches(images, expected, pipeline, **options):
    """Assert that a loader over `images` delivers the batches of one over `expected`; None is all of the array."""
    found = batches(images, pipeline, **options)
    wanted = (
        batches_of_the_array(pipeline, **options)
        if expected is None
        else batches(expected, pipeline, **options)
    )
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)


# Every pair of a kind, a pipeline and a way to read.
@pytest.mark.parametrize(
    ("kind", "pipeline", "mmap"),
    [
        (kind, pipeline, (number + place) % 2 == 0)
        for number, kind in enumerate(KINDS)
        for place, pipeline in enumerate(PIPELINES)
    ],
)
def test_a_loader_delivers_bit_for_bit_what_it_does_of_an_array(image_files, kind, pipeline, mmap):
    images = opened(image_files[kind], IMAGES, KINDS[kind], mmap=mmap)
    # With three workers a batch is divided, with one it is not.
    assert_same_batches(images, None, pipeline, workers=3, output="numpy", batch_size=64)
    assert_same_batches(images, None, pipeline, workers=1, output="jax", batch_size=7)


@pytest.mark.parametrize("dtype", ["f4", ">f4"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_either_byte_order_are_transformed(tmp_path, kind, dtype):
    array = values((30, 6, 5), dtype)
    source = opened(write(tmp_path / "rows.ar", array, KINDS[kind]), array, KINDS[kind])
    for transforms in ([T.Normalize(0.5, 0.25)], [T.MixUp(0.4)]):
        assert_same(
            one_pass(source, transforms=transforms), one_pass(native(array), transforms=transforms)
        )


def test_wide_rows_are_narrowed_after_transforms(tmp_path):
    array = values((30, 6), "f8")
    source = ARDataset(write(tmp_path / "rows.ar", array), "f8", (6,))
    transforms = [T.Normalize(0.5, 0.25)]
    assert_same(
        one_pass(source, "jax", transforms=transforms),
        one_pass(NPDataset(array), "jax", transforms=transforms),
    )


# Views.


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_is_selected_from_and_split_as_an_array_is(image_files, kind):
    images, array = opened(image_files[kind], IMAGES, KINDS[kind]), NPDataset(IMAGES)
    for rows in (slice(3, 90, 4), range(50, 2, -1), [5, 1, 1, -1], LABELS > 0):
        assert_same(images.select(rows)[:], array.select(rows)[:])
    for pipeline in ("nothing", "compiled", "mixed"):
        numbers = np.argsort(LABELS)
        assert_same_batches(
            images.select(numbers), array.select(numbers), pipeline, batch_size=16, output="numpy"
        )
    for one, other in zip(images.split(0.3, seed=3), array.split(0.3, seed=3), strict=True):
        assert_same(one[:], other[:])
        transforms = [T.RandomFlip(), T.ToFloat()]
        assert_same(one_pass(one, transforms=transforms), one_pass(other, transforms=transforms))


@pytest.mark.parametrize("pipeline", ["nothing", "compiled", "mixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_data_sets_are_added_to_one_another_and_to_arrays(image_files, kind, pipeline):
    images = opened(image_files[kind], IMAGES, KINDS[kind])
    others = ARDataset(image_files["zstd"], "u1", IMAGES.shape[1:], mmap=False)
    sums = {
        "files": images.select(slice(0, 40)) + others.select(slice(40, None)),
        "a file and an array": images.select(slice(0, 40)) + NPDataset(IMAGES[40:]),
        "an array and a file": NPDataset(IMAGES[:40]) + images.select(slice(40, None)),
        "many": concatenate(
            [
                images.select(range(10)),
                others.select(range(10, 20)),
                images.select(range(20, 40)),
                NPDataset(IMAGES[40:41]),
                others.select(range(41, 100)),
            ]
        ),
    }
    for total in sums.values():
        assert_same(total[:], IMAGES)
        assert_same_batches(total, None, pipeline, batch_size=32, output="numpy")
    whole = images + others
    assert_same(whole[[0, 199, 100, 99]], IMAGES[[0, 99, 0, 99]])


def test_rows_of_other_shapes_are_not_added(image_files):
    images = ARDataset(image_files["zstd"], "u1", IMAGES.shape[1:])
    flat = ARDataset(image_files["zstd"], "u1", (48 * 48 * 3,))
    with pytest.raises(ArgumentError, match="concatenated if their rows have one spec"):
        images + flat


def test_a_view_keeps_its_file(image_files):
    view = ARDataset(image_files["zstd"], "u1", IMAGES.shape[1:]).select([3])
    assert_same(view[0], IMAGES[3])


# Bytes and decoders.

TEXTS = [b"", b"a", b"bc" * 40000, *(b"text %d" % number for number in range(20))]


@pytest.mark.parametrize("options", [*KINDS, "transposed", "1000"])
def test_without_a_dtype_rows_are_bytes(tmp_path, options):
    path = write(tmp_path / "texts.ar", TEXTS, OPTIONS[options])
    source = opened_texts(path, OPTIONS[options])
    assert len(source) == len(TEXTS)
    assert source[:] == TEXTS
    assert [source[number] for number in range(-23, 23)] == TEXTS * 2
    assert type(source[0]) is bytes
    assert source[[2, 0, 2, -1]] == [TEXTS[number] for number in (2, 0, 2, -1)]
    assert source[np.arange(23) > 20] == TEXTS[21:]
    assert source[5:2:-1] == TEXTS[5:2:-1]
    assert source[[]] == []
    assert list(source) == TEXTS
    with pytest.raises(IndexError):
        source[23]
    assert repr(source) == f"ARDataset({str(path)!r}: 23 rows of bytes)"


def opened_texts(path, options, **more):
    with expected_warning(options):
        return ARDataset(path, **more)


def test_bytes_of_several_files_follow_one_another(tmp_path):
    paths = [
        write(tmp_path / str(number), TEXTS[number::3], list(KINDS.values())[number])
        for number in range(3)
    ]
    source = ARDataset(paths)
    assert source[:] == TEXTS[0::3] + TEXTS[1::3] + TEXTS[2::3]
    assert source[[22, 0, 9]] == [TEXTS[20], TEXTS[0], TEXTS[4]]


def test_a_loader_of_bytes_says_what_is_missing(tmp_path):
    source = ARDataset(write(tmp_path / "texts.ar", TEXTS))
    for data in (source, {"text": source}, (source,), source.select([1, 2])):
        with pytest.raises(ArgumentError, match=r"are bytes.*give ARDataset `dtype`.*`decode`"):
            DataLoader(data)


@pytest.mark.parametrize("options", KINDS)
def test_a_decoder_makes_arrays_of_records(tmp_path, options):
    array = values((20, 3), "f4")
    path = write(tmp_path / "rows.ar", array, KINDS[options])
    source = opened_texts(
        path, KINDS[options], decode=lambda record: np.frombuffer(record, np.float32) * 2
    )
    assert_delivers(source, array * 2)
    assert repr(source) == f"ARDataset({str(path)!r}: 20 rows of float32[3])"
    transforms = [T.Normalize(0.5, 0.25)]
    assert_same(one_pass(source, transforms=transforms), one_pass(array * 2, transforms=transforms))
    first, second = source.split(0.5)
    assert len(first + second) == 20


def test_a_decoder_makes_dicts_of_records(tmp_path):
    array = values((20, 3), "f4")

    def decode(record):
        row = np.frombuffer(record, np.float32)
        return {"x": row[:2], "y": row[2]}

    source = ARDataset(write(tmp_path / "rows.ar", array), decode=decode)
    assert_delivers(source, {"x": array[:, :2], "y": array[:, 2]})


def test_exceptions_of_a_decoder_arrive_as_they_are(tmp_path):
    def decode(record):
        if record == b"text 7":
            raise KeyError("seven")
        return np.zeros(2)

    source = ARDataset(write(tmp_path / "texts.ar", TEXTS), decode=decode)
    assert len(source[:10]) == 10
    with pytest.raises(KeyError, match="seven"):
        source[10]
    with pytest.raises(KeyError, match="seven"):
        one_pass(source)


# Files that move.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_was_deleted_is_still_read(tmp_path, kind, mmap):
    array = values((30, 2), "f4")
    path = write(tmp_path / "rows.ar", array, KINDS[kind])
    source = opened(path, array, KINDS[kind], mmap=mmap)
    path.unlink()
    assert_delivers(source, array)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_was_replaced_is_read_as_it_was_opened(tmp_path, kind, mmap):
    array = values((30, 2), "f4")
    path = write(tmp_path / "rows.ar", array, KINDS[kind])
    source = opened(path, array, KINDS[kind], mmap=mmap)
    write(tmp_path / "new.ar", array[:1] + 1, KINDS[kind]).replace(path)
    assert_delivers(source, array)


@pytest.mark.parametrize("kind", KINDS)
def test_a_relative_path_is_relative_to_the_folder_it_was_opened_in(tmp_path, monkeypatch, kind):
    array = values((30, 2), "f4")
    write(tmp_path / "rows.ar", array, KINDS[kind])
    monkeypatch.chdir(tmp_path)
    source = opened(pathlib.Path("rows.ar"), array, KINDS[kind])
    monkeypatch.chdir("/")
    assert_delivers(source, array)


@pytest.mark.parametrize("kind", [*KINDS, *DIRECT, *GROUPS])
def test_several_threads_read_one_data_set(tmp_path, kind):
    array = values((300, 700), "u1")
    path = write(tmp_path / "rows.ar", array, OPTIONS[kind])
    source = opened(path, array, OPTIONS[kind], verify="always")
    wrong = []

    def read(seed):
        rows = np.random.default_rng(seed).integers(0, 300, (20, 32))
        wrong.extend(part for part in rows if not np.array_equal(source[part], array[part]))

    threads = [started(read, seed) for seed in range(4)]
    join(*threads)
    assert wrong == []
