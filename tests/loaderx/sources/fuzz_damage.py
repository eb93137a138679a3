"""Damage to a file that a hash, or the size of the file, reveals when the damaged part is read."""

from loaderx.kernels.blocks import BLOCK


def flip_bits(rng, original, buffer):
    """Flip one to eight bits, anywhere or in the structure of the file."""
    where = rng.choice([range(original.size), original.headers, original.index])
    for _ in range(rng.randint(1, 8)):
        buffer[rng.choice(where)] ^= 1 << rng.randrange(8)
    return buffer


def change_length(rng, original, buffer):
    """Cut off the end of the file, or append to it."""
    what = rng.randrange(6)
    if what == 0:
        return buffer[: rng.randrange(original.size + 1)]
    if what == 1:
        return buffer[: BLOCK * rng.randrange(original.blocks + 1)]
    if what == 2:
        return buffer[: rng.choice(original.headers + original.index)]
    if what == 3:
        return buffer + rng.randbytes(rng.choice([1, 8, 24, 1000, BLOCK, 2 * BLOCK]))
    if what == 4:
        return buffer + bytes(rng.choice([1, 8, 24, 1000, BLOCK, 2 * BLOCK]))
    # The last block again: the file stays valid.
    return buffer + buffer[-BLOCK:] * rng.randint(1, 2)


def move_blocks(rng, original, buffer):
    """Swap, overwrite, insert or leave out blocks."""
    while True:
        order = list(range(original.blocks))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            one, other = rng.randrange(len(order)), rng.randrange(len(order))
            what = rng.randrange(5)
            if what < 2:
                order[one], order[other] = order[other], order[one]
            elif what == 2:
                order[one] = order[other]
            elif what == 3:
                order.insert(one, order[other])
            elif len(order) > 2:
                del order[one]
        if not unnoticed(original, order):
            parts = [buffer[BLOCK * block : BLOCK * (block + 1)] for block in order]
            return bytearray().join(parts)


def unnoticed(original, order):
    """Return True if blocks in this order put a chunk in place of another one that looks equal in the footer.

    A limit of the format: the hash of a chunk covers its content and not its place, and the footer has offset, decoded
    size and number of records of each chunk. If two chunks begin at the same place in their blocks, as all do with
    `pad_to_block_boundary`, and agree in these numbers, then nothing in the file says which of them belongs where.
    """
    for chunk in original.chunks:
        for other in original.chunks:
            if chunk is other or (
                (chunk.begin % BLOCK, chunk.decoded, chunk.count)
                != (other.begin % BLOCK, other.decoded, other.count)
            ):
                continue
            first, stop = other.begin // BLOCK, (other.end - 1) // BLOCK + 1
            start = chunk.begin // BLOCK
            if order[start : start + stop - first] == list(range(first, stop)):
                return True
    return False


def zero_range(rng, original, buffer):
    """Overwrite a range of bytes with zeros."""
    size = min(1 << rng.randrange(18), original.size)
    anywhere = range(original.size)
    begin = rng.choice(rng.choice([anywhere, original.headers, original.index]))
    begin = max(begin - rng.randrange(size), 0)
    size = min(size, original.size - begin)
    buffer[begin : begin + size] = bytes(size)
    return buffer


def forge_word(rng, original, buffer):
    """Forge numbers of 8 bytes in headers, and elsewhere, without their hashes."""
    for _ in range(rng.randint(1, 2)):
        where = rng.choice([original.words, original.words, original.headers, original.index])
        place = min(rng.choice(where), original.size - 8)
        value = forged(rng, original, int.from_bytes(buffer[place : place + 8], "little"))
        buffer[place : place + 8] = (value % 2**64).to_bytes(8, "little")
    return buffer


def forged(rng, original, value):
    """Return a number in place of another one."""
    chunk = rng.choice(original.chunks)
    return rng.choice(
        [
            *(0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**40),
            *(2**56 - 1, 2**62, 2**63 - 1, 2**63, -1, -2),
            *(original.size, original.size - 1, BLOCK, original.footer, original.postscript),
            *(value + 1, value - 1, value * 2, value // 2, value ^ 1 << rng.randrange(64)),
            *(chunk.begin, chunk.end, chunk.decoded, chunk.count, len(original.records)),
            rng.randrange(original.size),
        ]
    )


PLAIN_DAMAGE = {
    "flipped": flip_bits,
    "length": change_length,
    "blocks": move_blocks,
    "zeroed": zero_range,
    "forged": forge_word,
}
