"""Unpacks packed files in memory, up to a limit; InputError for an archive bomb."""

import gzip
import io
import stat
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from bigtrk.errors import InputError

# Tables of numbers pack 3 to 10 times; columns of one value alone, a thousand times.
MAX_RATIO = 200
FREE_BYTES = 64 << 20  # unpacked at any ratio
MAX_BYTES = 2 << 30


def limit_of(packed: int) -> int:
    """Returns the most bytes to which `packed` bytes may unpack, even if packed repeatedly."""
    return min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * packed))


def check_members(path: Path, archive: ZipFile) -> None:
    """Raises InputError for links, and for members whose names lead out of the archive."""
    for member in archive.infolist():
        name = member.filename.replace("\\", "/")
        parts = PurePosixPath(name)
        drive = name[1:2] == ":" and name[:1].isalpha()
        leads_out = parts.is_absolute() or ".." in parts.parts or drive
        if leads_out or stat.S_ISLNK(member.external_attr >> 16):
            kind = "unsafe member" if leads_out else "symbolic link"
            said = f"{path}: holds the {kind} {member.filename!r}"
            raise InputError(f"{said}; make the archive again with plain files and relative paths")


def read_member(path: Path, archive: ZipFile, member: str) -> tuple[bytes, int]:
    """Returns the content of a zip archive's member, and its size limit (`limit_of`)."""
    info = archive.getinfo(member)
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        # zipfile unpacks these without a bound.
        raise InputError(f"{path / member}: is not compressed by deflate; unpack the archive")
    # The sizes that the archive states may be lies.
    limit = limit_of(min(info.compress_size, path.stat().st_size))
    if info.file_size > limit:
        raise too_large(str(path / member), limit)
    with archive.open(info) as stream:
        # Asking for one byte more reaches the end, where the checksum is verified.
        return stream.read(info.file_size + 1), limit


def gunzip(content: bytes, limit: int, where: str) -> bytes:
    """Unpacks gzip `content`; InputError if it exceeds `limit` bytes. where: for the message."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        unpacked = file.read(limit + 1)
    if len(unpacked) > limit:
        raise too_large(where, limit)
    return unpacked


def too_large(where: str, limit: int) -> InputError:
    return InputError(
        f"{where}: unpacks to more than {limit / 2**20:,.0f} MiB, as an archive bomb does; if it "
        "is what you expect, unpack it yourself and name the folder"
    )
