"""Tar files by Python's tarfile, and what that reads from them."""

import io
import os
import re
import tarfile

# As WebDataset has it.
NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)
LONG_AGO = 1_600_000_000


def write_tar(path, members, kind=tarfile.PAX_FORMAT):
    """Write a tar file of (name, content) or of TarInfo objects; return its path."""
    with tarfile.open(path, "w", format=kind) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                name, content = member
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return long_ago(path)


def long_ago(path, when=LONG_AGO):
    """Give a file an old time of modification, so that an index of it is kept, or that of now."""
    os.utime(path, None if when is None else (when, when))
    return path


def read_tar(path):
    """Return {key: {extension: content}} as tarfile reads the regular files, in their order."""
    found = {}
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            match = NAME.match(member.name)
            if member.isreg() and match:
                content = archive.extractfile(member).read()
                assert len(content) == member.size, "truncated"
                found.setdefault(match[1], {})[match[2].lower()] = content
    return found
