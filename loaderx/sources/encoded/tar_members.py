"""Members of a tar file: the names and places of its regular files, found by the headers alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from loaderx.errors import DataError

from .index import Shard

BLOCK = 512
# Headers are read with what follows them: the next header of a small file is there, too.
WINDOW = 4096
# Names and pax headers are shorter; more is damage, or an attack on the memory.
MOST_EXTENDED = 1 << 20
# A size of 64 bits has no more.
MOST_DIGITS = 20
FILES = b"0\0007"
# Links, devices, folders, pipes: as for Python's tarfile, no data follows them.
WITHOUT_DATA = b"123456"
LINKS = b"12"
LONG_NAME, LONG_LINK, PAX, PAX_OF_SOLARIS, PAX_OF_ALL, SPARSE = b"LKxXgS"
# A part of a file that another archive begins, and kinds of sparse files that few programs read.
REFUSED = {ord("M"): "a part of a file in several archives", SPARSE: "a sparse file"}
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


@dataclass(frozen=True, slots=True)
class Member:
    """Regular file in a tar file, or a `link` to one, which has no data of its own."""

    name: str
    offset: int
    size: int
    link: bool = False


def is_tar(head: bytes) -> bool:
    """Return True for the first bytes of a tar file, but of the oldest kind, which has no mark."""
    return head[257:262] == b"ustar"


def tar_members(shard: Shard) -> Iterator[Member]:
    """Yield the regular files of a tar file, and links. Raise DataError if it is damaged, truncated or compressed."""
    position, window, begin = 0, b"", 0
    name: str | None = None
    size: int | None = None
    described = False
    while True:
        if not 0 <= position - begin <= len(window) - BLOCK:
            window, begin = shard.read(WINDOW, position), position
        header = window[position - begin : position - begin + BLOCK]
        shard.reached(position)
        if len(header) < BLOCK:
            raise _no_end(shard, position, header)
        if not any(header):
            if described:
                raise _damaged(shard, position, "a name or a pax header without a member after it")
            break
        kind = _checked_kind(shard, position, header)
        begins = position + BLOCK
        stored = _number(header[124:136])
        if stored < 0:
            raise _damaged(shard, position, "a header with an invalid size")
        if kind in (LONG_NAME, LONG_LINK, PAX, PAX_OF_SOLARIS, PAX_OF_ALL):
            content = _extended(shard, begins, stored)
            if kind == LONG_NAME and name is None:
                name = _text(content)
            elif kind != LONG_LINK and kind != LONG_NAME:
                found = _pax(shard, position, content)
                if kind == PAX_OF_ALL and found.keys() & {b"path", b"size"}:
                    raise _damaged(shard, position, "a global pax header with a path or a size")
                path, size_text = found.get(b"path"), found.get(b"size")
                if kind != PAX_OF_ALL and path is not None and name is None:
                    name = path.decode("utf-8", "surrogateescape")
                if size_text is not None and size is None:
                    if not size_text.isdigit() or len(size_text) > MOST_DIGITS:
                        raise _damaged(shard, position, "a pax header with an invalid size")
                    size = int(size_text)
            described = True
            position = begins + _padded(stored)
            continue
        described = False
        own, length = name if name is not None else _name(header), stored if size is None else size
        name = size = None
        if kind in REFUSED:
            raise DataError(
                f"{shard.path} has {REFUSED[kind]}, {own!r} at {position}. Pack the files anew, without options for "
                "sparse files or several volumes."
            )
        if kind in WITHOUT_DATA or (kind == 0 and own.endswith("/")):
            if kind in LINKS:
                yield Member(own, begins, 0, True)
            position = begins
            continue
        if begins + length > shard.size:
            raise DataError(
                f"{shard.path} is truncated: {own!r} has {length} bytes at {begins}, and the file has {shard.size}."
            )
        if kind in FILES:
            yield Member(own, begins, length)
        position = begins + _padded(length)
    _check_rest(shard, position)


def _checked_kind(shard: Shard, position: int, header: bytes) -> int:
    """Return the type of a member. Raise if the bytes are not a header."""
    expected = _number(header[148:156])
    own = sum(header[148:156])
    total = sum(header) - own + 8 * ord(" ")
    if expected != total:
        # Some old programs added signed characters.
        others = header[:148] + header[156:]
        if expected == total - 256 * sum(byte > 127 for byte in others):
            return header[156]
        if position == 0:
            for magic, name in COMPRESSED.items():
                if header.startswith(magic):
                    raise DataError(
                        f"{shard.path} is compressed with {name}, so its members cannot be read in any order. "
                        "Decompress it; encoded images hardly become larger."
                    )
            raise DataError(f"{shard.path} is not a tar file: it does not begin with a header.")
        raise _damaged(shard, position, "a header whose checksum is wrong")
    return header[156]


def _no_end(shard: Shard, position: int, header: bytes) -> DataError:
    if shard.size < BLOCK:
        return DataError(f"{shard.path} is not a tar file: it has {shard.size} bytes.")
    if header or position > shard.size:
        return DataError(f"{shard.path} is truncated: it ends in the header at {position}.")
    return DataError(
        f"{shard.path} is truncated, or its writer was not closed: it has no end of archive after its last member. If "
        "it is complete, append 1,024 zero bytes."
    )


def _check_rest(shard: Shard, position: int) -> None:
    """Raise if members follow the end of the archive: they would be left out."""
    while piece := shard.read(1 << 20, position):
        rest = piece.lstrip(b"\0")
        if rest:
            raise DataError(
                f"{shard.path} has data after the end of its archive, at {position + len(piece) - len(rest)}: archives "
                "that were joined by `cat` are several. Join them by `tar --concatenate`, or pack their files anew."
            )
        position += len(piece)


def _damaged(shard: Shard, position: int, what: str) -> DataError:
    return DataError(f"{shard.path} is damaged: {what} is at {position}.")


def _extended(shard: Shard, begins: int, size: int) -> bytes:
    """Return the content of a header that describes the next member."""
    if size > MOST_EXTENDED:
        raise _damaged(shard, begins, f"a name or a pax header of {size} bytes")
    content = shard.read(size, begins)
    if len(content) < size:
        raise DataError(f"{shard.path} is truncated: it ends in the header at {begins}.")
    return content


def _pax(shard: Shard, position: int, content: bytes) -> dict[bytes, bytes]:
    """Return the records of a pax header: "<length> <key>=<value>" and a newline each."""
    found: dict[bytes, bytes] = {}
    place = 0
    while place < len(content) and content[place]:
        digits, space, _ = content[place : place + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[place : place + length]
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if not space or not equals or len(record) < length or not value.endswith(b"\n"):
            raise _damaged(shard, position, "a pax header that is not valid")
        if key.startswith(b"GNU.sparse."):
            raise DataError(
                f"{shard.path} has a sparse file after {position}. Pack the files anew, without `--sparse`."
            )
        found[key] = value[:-1]
        place += length
    return found


def _number(field: bytes) -> int:
    """Return a number, octal or of 8 bits per byte; -1 if it is not valid."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    if not digits:
        return 0
    try:
        # `int` would accept underscores and signs.
        return int(digits, 8) if digits.isdigit() else -1
    except ValueError:
        return -1


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
