"""Hashes of bytes in memory are HighwayHash64, however the bytes are cut, and equal those in ArrayRecord files."""

import struct

import numpy as np
import pytest
from numba.core import config

from loaderx.kernels import highway
from loaderx.kernels.compilation import kernel
from tests import reference

# google/highwayhash publishes these for the key 0, 1, ..., 31 and the data 0, 1, ..., by the length of the data.
COUNTING_KEY = np.arange(32, dtype=np.uint8).view("<u8").astype(np.uint64)
PUBLISHED = struct.unpack(
    ">65Q",
    bytes.fromhex("""
        907A56DE22C26E53 7EAB43AAC7CDDD78 B8D0569AB0B53D62 5C6BEFAB8A463D80 F205A46893007EDA
        2B8A1668E4A94541 BD4CCC325BEFCA6F 4D02AE1738F59482 E1205108E55F3171 32D2644EC77A1584
        F6E10ACDB103A90B C3BBF4615B415C15 243CC2040063FA9C A89A58CE65E641FF 24B031A348455A23
        40793F86A449F33B CFAB3489F97EB832 19FE67D2C8C5C0E2 04DD90A69C565CC2 75D9518E2371C504
        38AD9B1141D3DD16 0264432CCD8A70E0 A9DB5A6288683390 D7B05492003F028C 205F615AEA59E51E
        EEE0C89621052884 1BFC1A93A7284F4F 512175B5B70DA91D F71F8976A0A2C639 AE093FEF1F84E3E7
        22CA92B01161860F 9FC7007CCF035A68 A0C964D9ECD580FC 2C90F73CA03181FC 185CF84E5691EB9E
        4FC1F5EF2752AA9B F5B7391A5E0A33EB B9B84B83B4E96C9C 5E42FE712A5CD9B4 A150F2F90C3F97DC
        7FA522D75E2D637D 181AD0CC0DFFD32B 3889ED981E854028 FB4297E8C586EE2D 6D064A45BB28059C
        90563609B3EC860C 7AA4FCE94097C666 1326BAC06B911E08 B926168D2B154F34 9919848945B1948D
        A2A98FC534825EBE E9809095213EF0B6 582E5483707BC0E9 086E9414A88A6AF5 EE86B98D20F6743D
        F89B7FF609B1C0A7 4C7D9CC19E22C3E8 9A97005024562A6F 5DD41CF423E6EBEF DF13609C0468E227
        6E0DA4F64188155A B755BA4B50D7D4A1 887A3484647479BD AB8EEBE9BF2139A0 75542C5D4CD2A6FF
    """),
)

BLOCK, BLOCK_HEADER, CHUNK_HEADER = 65536, 24, 40
# Chunks a little smaller than a block: each begins a few bytes earlier in its block than the one before. Plain Python
# takes 0.4 us to hash a byte: there the first ends so near to its block that the header of the next is cut.
LARGE = [65_409] if config.DISABLE_JIT else [65_458] * 10
SIZES = [*LARGE, 0, 1, 100, 3000, 140_000]
SHIFTS = range(1, 33, 5) if config.DISABLE_JIT else range(1, 33)


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def pieces_of(memory, cuts):
    """Return addresses and sizes of the parts of an array between cuts."""
    bounds = np.array([0, *cuts, len(memory)], np.int64)
    return memory.ctypes.data + bounds[:-1], np.diff(bounds)


@pytest.mark.parametrize("module", [highway, reference])
def test_the_published_hashes_come_out(module):
    data = np.arange(len(PUBLISHED), dtype=np.uint8)
    for size, expected in enumerate(PUBLISHED):
        pieces = pieces_of(data[:size], [])
        assert module.highway_hash_pieces(COUNTING_KEY, *pieces) == expected, size


def test_the_published_hash_for_another_key_comes_out():
    key, data = np.array([1, 2, 3, 4], np.uint64), np.arange(128, 128 + 33, dtype=np.uint8)
    assert highway.highway_hash_pieces(key, *pieces_of(data, [])) == 0x53C516CCE478CAD7


def test_data_of_any_length_has_the_hash_of_the_definition():
    data = random_bytes(200)
    hashes = [highway.highway_hash(data.ctypes.data, size) for size in range(201)]
    assert hashes == [reference.highway_hash(data.ctypes.data, size) for size in range(201)]
    assert len(set(hashes)) == 201


@pytest.mark.parametrize("size", [3000, 4096, 65537])
def test_long_data_has_the_hash_of_the_definition(size):
    data = random_bytes(size)
    expected = reference.highway_hash(data.ctypes.data, size)
    assert highway.highway_hash(data.ctypes.data, size) == expected


def test_the_key_of_the_short_form_is_that_of_riegeli():
    assert highway.RIEGELI_KEY.tolist() == [0x2F696C6567656952, 0x0A7364726F636572] * 2
    data = random_bytes(77)
    hashed = highway.highway_hash(data.ctypes.data, 77)
    assert hashed == highway.highway_hash_pieces(highway.RIEGELI_KEY, *pieces_of(data, []))
    assert hashed != highway.highway_hash_pieces(COUNTING_KEY, *pieces_of(data, []))


@pytest.mark.parametrize("size", [5, 31, 32, 33, 64, 100])
def test_one_cut_anywhere_changes_nothing(size):
    data = random_bytes(size)
    expected = reference.highway_hash(data.ctypes.data, size)
    for cut in range(size + 1):
        pieces = pieces_of(data, [cut])
        assert highway.highway_hash_pieces(highway.RIEGELI_KEY, *pieces) == expected, cut


@pytest.mark.parametrize("count", [2, 7, 40, 300])
def test_many_cuts_anywhere_change_nothing(count):
    rng = np.random.default_rng(count)
    for size in (0, 1, 40, 257, 1000):
        data = random_bytes(size, count)
        cuts = np.sort(
            rng.integers(0, size, count, endpoint=True)
        )  # some of them at the same place
        addresses, sizes = pieces_of(data, cuts)
        hashed = highway.highway_hash_pieces(COUNTING_KEY, addresses, sizes)
        assert hashed == reference.highway_hash_pieces(COUNTING_KEY, addresses, sizes)
        assert hashed == reference.highway_hash_of(COUNTING_KEY, data.tobytes())


def test_pieces_are_taken_in_the_order_given():
    data = random_bytes(90)
    addresses, sizes = (np.ascontiguousarray(part[::-1]) for part in pieces_of(data, [20, 70]))
    turned = np.concatenate([data[70:], data[20:70], data[:20]])
    expected = reference.highway_hash(turned.ctypes.data, 90)
    assert highway.highway_hash_pieces(highway.RIEGELI_KEY, addresses, sizes) == expected


def test_no_pieces_are_no_data():
    nothing = np.empty(0, np.int64)
    assert highway.highway_hash_pieces(COUNTING_KEY, nothing, nothing) == PUBLISHED[0]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 31, 32, 63, 100])
def test_neither_the_address_nor_what_lies_around_the_data_matters(size):
    data = random_bytes(size)
    expected = reference.highway_hash(data.ctypes.data, size)
    for shift in SHIFTS:
        memory = random_bytes(size + 128, seed=shift)
        memory[shift : shift + size] = data
        assert highway.highway_hash(memory.ctypes.data + shift, size) == expected


def test_every_bit_counts():
    data = random_bytes(75)
    hashes = {highway.highway_hash(data.ctypes.data, 75)}
    for place in range(75):
        for bit in range(8):
            data[place] ^= 1 << bit
            hashes.add(highway.highway_hash(data.ctypes.data, 75))
            data[place] ^= 1 << bit
    assert len(hashes) == 1 + 75 * 8


@kernel
def hash_beginnings(address, size, out):
    """Hash shorter and shorter beginnings of the data, in two forms and with one state for all."""
    state = highway.new_state()
    for i in range(size):
        nbytes = size - i
        out[0, i] = highway.highway_hash(address, nbytes)
        highway.start_hash(highway.RIEGELI_KEY, state)
        highway.hash_bytes(address, nbytes // 3, state)
        highway.hash_bytes(address + nbytes // 3, nbytes - nbytes // 3, state)
        out[1, i] = highway.finish_hash(state)


def test_a_kernel_can_hash_and_start_again_with_the_same_state():
    data, out = random_bytes(100), np.zeros((2, 100), np.uint64)

    hash_beginnings(data.ctypes.data, 100, out)

    expected = [reference.highway_hash(data.ctypes.data, 100 - i) for i in range(100)]
    assert out.tolist() == [expected, expected]


def parts_between_block_headers(position, size):
    """Return places and sizes of `size` bytes of a Riegeli file, and the position after them."""
    parts = []
    while size > 0:
        if position % BLOCK == 0:
            position += BLOCK_HEADER
        taken = min(size, BLOCK - position % BLOCK)
        parts.append((position, taken))
        position, size = position + taken, size - taken
    return parts, position


def hash_of_parts(memory, parts):
    places, sizes = np.array(parts, np.int64).reshape(-1, 2).T.copy()
    return highway.highway_hash_pieces(highway.RIEGELI_KEY, memory.ctypes.data + places, sizes)


def chunks_of(memory):
    """Return for every chunk the hashes in its header and the places of the hashed bytes."""
    position = 0
    while position < len(memory):
        header, _ = parts_between_block_headers(position, CHUNK_HEADER)
        content = b"".join(memory[place : place + size].tobytes() for place, size in header)
        header_hash, data_size, data_hash = struct.unpack_from("<3Q", content)
        _, position = parts_between_block_headers(position, 8)
        header, position = parts_between_block_headers(position, CHUNK_HEADER - 8)
        data, position = parts_between_block_headers(position, data_size)
        yield header_hash, header, data_hash, data


@pytest.fixture(scope="module")
def file_of_records(tmp_path_factory):
    """Write an ArrayRecord file whose chunks are cut by block headers in their data and in their own headers."""
    module = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path_factory.mktemp("records") / "x.array_record"
    writer = module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for size in SIZES:
        writer.write(random_bytes(size, seed=size).tobytes())
    writer.close()
    return np.fromfile(path, np.uint8)


def test_the_hashes_in_an_array_record_file_are_those_of_its_chunks(file_of_records):
    chunks = list(chunks_of(file_of_records))
    for header_hash, header, data_hash, data in chunks:
        assert hash_of_parts(file_of_records, header) == header_hash
        assert hash_of_parts(file_of_records, data) == data_hash
    assert len(chunks) > len(SIZES)
    assert max(len(header) for _, header, _, _ in chunks) == 2
    assert max(len(data) for _, _, _, data in chunks) >= 3


def test_the_hashes_in_an_array_record_file_are_those_of_its_block_headers(file_of_records):
    blocks = range(0, len(file_of_records), BLOCK)
    assert len(blocks) > 3
    for place in blocks:
        expected, *distances = struct.unpack_from("<3Q", file_of_records, place)
        assert distances[1] > 0
        assert highway.highway_hash(file_of_records.ctypes.data + place + 8, 16) == expected


def test_damage_to_one_bit_of_a_record_is_noticed(file_of_records):
    damaged = file_of_records.copy()
    _, _, data_hash, data = max(chunks_of(damaged), key=lambda chunk: len(chunk[3]))
    for place, size in data:
        damaged[place + size - 1] ^= 64
        assert hash_of_parts(damaged, data) != data_hash
        damaged[place + size - 1] ^= 64
    assert hash_of_parts(damaged, data) == data_hash
