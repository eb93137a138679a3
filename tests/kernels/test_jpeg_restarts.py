"""Restart markers are inserted without a change of any coefficient, and no byte outside of the arrays is touched."""

import io
import random

import cv2
import numpy as np
import pytest
from numba.core import config
from PIL import Image

from loaderx.kernels import jpeg_restarts as kernels
from tests import reference
from tests.kernels.guard_pages import between_guard_pages
from tests.kernels.jpeg_coefficients import coefficients, header

# Few in plain Python, where a file takes milliseconds.
DAMAGED = 200 if config.DISABLE_JIT else 10_000
SAMPLINGS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    "grey": None,
}
# A table with every category of differences, as in annex K of the standard.
ALL = bytes((0, 1, 5, 1, 1, 1, 1, 1, 1)) + bytes(7), bytes(range(12))


def picture(height, width, seed=0):
    """Return pixels with smooth parts, noise and flat parts."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(128, 60, (height // 8 + 2, width // 8 + 2, 3)).repeat(8, 0).repeat(8, 1)
    pixels = coarse[:height, :width] + rng.normal(0, rng.choice([0, 3, 40]), (height, width, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def jpeg(pixels, sampling="4:2:0", quality=90, interval=0, optimize=False):
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    options += [cv2.IMWRITE_JPEG_OPTIMIZE, int(optimize)]
    if sampling == "grey":
        pixels = pixels[..., 0]
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def array_of(data):
    """Return bytes as callers give them: read-only, and nothing after them may be touched."""
    array = between_guard_pages(len(data))
    array[:] = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def insert(data, head, new=ALL, room=None, insert_restarts=kernels.insert_restarts):
    """Return the entries of `result`, and the compressed pixels."""
    tables = np.zeros((kernels.TABLES, kernels.LENGTHS + kernels.SYMBOLS), np.uint8)
    for (kind, number), (counts, symbols) in head.tables.items():
        tables[4 * kind + number, : len(counts + symbols)] = list(counts + symbols)
    for number in range(4):
        counts, symbols = new or head.tables.get((0, number), ALL)
        tables[kernels.NEW + number, : len(counts + symbols)] = list(counts + symbols)
    out = between_guard_pages(2 * len(data) + 1000 if room is None else room)
    result = np.full(kernels.RESULTS, -7, np.int64)
    insert_restarts(
        array_of(data),
        head.begin,
        head.rows,
        head.per_row,
        head.interval,
        np.array(head.blocks, np.int64),
        tables,
        np.full((8, kernels.DECODER), -7, np.int32),
        np.full((4, kernels.CATEGORIES), -7, np.int32),
        np.full((2, 3), -7, np.int64),
        out,
        result,
    )
    return result.tolist(), out[: result[kernels.SIZE]].tobytes()


def file_of(data, head, pixels, new=ALL):
    """Return a file with these compressed pixels, and these tables for DC."""
    assert data[head.begin - len(head.scan) * 2 - 8 :][:2] == b"\xff\xda"
    place = head.begin - len(head.scan) * 2 - 8
    parts = [data[:place]]
    for number in range(4) if new else ():
        content = bytes([number]) + new[0] + new[1]
        parts.append(b"\xff\xc4" + (len(content) + 2).to_bytes(2, "big") + content)
    parts.append(b"\xff\xdd\0\4" + head.per_row.to_bytes(2, "big"))
    return b"".join([*parts, data[place : head.begin], pixels, b"\xff\xd9"])


def decoded(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def assert_marked(data, new=ALL):
    """Assert that the file with markers has the same coefficients, and return it."""
    head = header(data)
    result, pixels = insert(data, head, new)
    assert result[kernels.STATUS] == kernels.FINE
    twin = reference.insert_restarts
    assert insert(data, head, new, insert_restarts=twin) == (result, pixels)
    assert data[result[kernels.PLACE]] == 0xD9
    marked = file_of(data, head, pixels, new)
    before, _ = coefficients(data)
    after, markers = coefficients(marked)
    assert before == after
    assert markers == [*(0xD0 + row % 8 for row in range(head.rows - 1)), 0xD9]
    np.testing.assert_array_equal(decoded(data), decoded(marked))
    return marked


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("interval", [0, 1, 3])
def test_no_coefficient_changes(sampling, interval):
    for seed, size in enumerate([(1, 1), (8, 8), (9, 17), (33, 31), (50, 70)]):
        assert_marked(jpeg(picture(*size, seed), sampling, interval=interval))


@pytest.mark.parametrize("quality", [1, 30, 100])
@pytest.mark.parametrize("optimize", [False, True])
def test_no_coefficient_changes_whatever_the_tables(quality, optimize):
    for seed in range(3):
        data = jpeg(picture(40, 60, seed), quality=quality, optimize=optimize)
        assert_marked(data)
        if not optimize:
            # All categories have codes already.
            assert_marked(data, None)


def test_marking_again_changes_nothing():
    marked = assert_marked(jpeg(picture(50, 70)))
    head = header(marked)
    assert insert(marked, head, None)[1] == marked[head.begin : -2]


def test_more_than_eight_markers_are_counted_from_0_again():
    data = jpeg(picture(8 * 20, 8), "4:4:4", interval=2)
    assert data.count(b"\xff\xd0") == 2
    assert_marked(data)


def test_used_categories_are_told_of_each_table():
    data = jpeg(picture(30, 30))
    result, pixels = insert(data, header(data))
    blocks, _ = coefficients(file_of(data, header(data), pixels))
    used = [0, 0]
    for row in range(0, len(blocks), 12):
        last = [0, 0, 0]
        for number, block in enumerate(blocks[row : row + 12]):
            component = max(0, number % 6 - 3)
            used[component > 0] |= 1 << int(abs(block[0] - last[component])).bit_length()
            last[component] = block[0]
    assert result[kernels.USED :] == [*used, 0, 0]


def test_a_category_without_a_code_has_a_status():
    flat = np.full((64, 64, 3), 250, np.uint8)
    data = jpeg(flat, optimize=True)
    result, _ = insert(data, header(data), (bytes([1, *[0] * 15]), b"\0"))
    assert result[kernels.STATUS] == kernels.NO_CODE


def test_bytes_between_pixels_may_be_repeated_255():
    data = jpeg(picture(40, 40), quality=100, interval=2)
    head = header(data)
    for old, new in ((b"\xff\xd0", b"\xff\xff\xff\xd0"), (b"\xff\0", b"\xff\xff\0")):
        place = data.index(old, head.begin)
        longer = data[:place] + new + data[place + 2 :]
        assert insert(longer, head)[1] == insert(data, head)[1]


def test_damage_has_a_status():
    data = jpeg(picture(40, 60), "4:4:4", interval=4)
    head = header(data)

    def status(damaged, head=head, **options):
        return insert(damaged, head, **options)[0][kernels.STATUS]

    assert status(data) == kernels.FINE
    assert status(data[:-2]) == kernels.CUT
    assert status(data[:-200]) == kernels.CUT
    assert status(data[: head.begin]) == kernels.CUT
    assert status(data[:-2] + b"\0\0\xff\xd9") == kernels.WRONG_END
    assert status(data.replace(b"\xff\xd1", b"\xff\xd2")) == kernels.WRONG_RESTART
    assert status(data.replace(b"\xff\xd1", b"\0\0\xff\xd1")) == kernels.WRONG_RESTART
    assert status(data[: head.begin] + bytes([255, 0] * 50)) == kernels.WRONG_CODE
    assert status(data, room=0) == status(data, room=100) == kernels.FULL
    head.tables[0, 0] = bytes([3, *[0] * 15]), b"\0\1\2"
    assert status(data) == kernels.WRONG_TABLE
    head = header(data)
    assert status(data, head, new=(bytes([1, 3, *[0] * 14]), b"\0\1\2\3")) == kernels.WRONG_TABLE


def damage(source, data, begin):
    """Return a file some of whose compressed pixels are others."""
    changed = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 20])):
        place = source.randrange(begin, len(changed))
        how = source.randrange(4)
        if how == 0:
            changed[place] ^= 1 << source.randrange(8)
        elif how == 1:
            changed[place] = source.choice([0, 255, 0xD0, 0xD9, source.randrange(256)])
        elif how == 2:
            del changed[place : place + source.randrange(9)]
        else:
            changed[place:place] = source.randbytes(source.randrange(9))
        begin = min(begin, len(changed) - 1)
    return bytes(changed)


def mutate(seed, count):
    """Check files with damage, and return how often each status was found."""
    source = random.Random(seed)
    originals = [
        jpeg(picture(17, 40, number), sampling, interval=interval, optimize=bool(number % 2))
        for number, (sampling, interval) in enumerate(
            (sampling, interval) for sampling in SAMPLINGS for interval in (0, 2)
        )
    ]
    heads = [header(data) for data in originals]
    found = dict.fromkeys(range(8), 0)
    for number in range(count):
        place = source.randrange(len(originals))
        head = heads[place]
        data = damage(source, originals[place], head.begin)
        room = source.choice([None, None, None, source.randrange(len(data) + 16)])
        result, pixels = insert(data, head, room=room)
        found[result[kernels.STATUS]] += 1
        if result[kernels.STATUS] == kernels.FINE:
            marked = file_of(data, head, pixels)
            ended = data[: result[kernels.PLACE]] + b"\xd9"
            np.testing.assert_array_equal(decoded(ended), decoded(marked))
            if number % 10 == 0:
                assert coefficients(ended)[0] == coefficients(marked)[0]
    return found


def test_damaged_files_have_a_status_or_the_same_coefficients():
    found = mutate(0, DAMAGED)
    assert found[kernels.FINE] > DAMAGED / 20
    wrong = (
        kernels.CUT,
        kernels.WRONG_CODE,
        kernels.WRONG_RESTART,
        kernels.WRONG_END,
        kernels.FULL,
    )
    assert all(found[status] for status in wrong)


def test_any_tables_and_any_bytes_touch_nothing_outside():
    source = random.Random(1)
    data = jpeg(picture(17, 40))
    found = set()
    for _ in range(DAMAGED // 10):
        head = header(data)
        for kind in (0, 1):
            counts = bytearray(16)
            for _ in range(source.randrange(12)):
                counts[source.randrange(16)] += source.choice([1, 1, 2, 9])
            head.tables[kind, 0] = bytes(counts), source.randbytes(sum(counts))
        head.tables[0, 1] = head.tables[0, 0]
        begin, rest = data[: head.begin], source.randbytes(300)
        result, _ = insert(begin + rest, head)
        found.add(result[kernels.STATUS])
    assert {kernels.WRONG_CODE, kernels.WRONG_TABLE} <= found


@pytest.mark.long
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="takes hours in plain Python")
@pytest.mark.timeout(3600)
def test_many_damaged_files_have_a_status_or_the_same_coefficients():
    for seed in range(1, 31):
        mutate(seed, 10_000)
