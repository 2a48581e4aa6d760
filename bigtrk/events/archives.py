"""Where tables lie: a folder, or a zip archive, which is read in memory and never extracted."""

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from bigtrk.errors import InputError

GZIP_MAGIC = b"\x1f\x8b\x08"
GZIP_WBITS = 31
MAX_GZIP_RATIO = 1032  # of deflate
DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Source:
    """A folder or zip archive and its files.

    members: file name without folders -> name inside the folder or archive.
    """

    path: Path
    members: dict[str, str]

    def find(self, name: str) -> str | None:
        """The file called `name` or `name`.gz, if there is one."""
        return next((file for file in (name, name + ".gz") if file in self.members), None)

    def where(self, file: str) -> str:
        """How messages name `file`."""
        return str(self.path / self.members[file])

    def read(self, file: str) -> bytes:
        """The content of `file`, unpacked.

        Raises:
            InputError: the file cannot be read, or its archive or gzip stream is damaged.
        """
        content = self._read_member(self.members[file])
        if not content.startswith(GZIP_MAGIC):
            return content
        try:
            return _gunzip(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                f"{self.where(file)}: damaged or truncated gzip file ({error}); fetch it again"
            ) from None

    def _read_member(self, member: str) -> bytes:
        try:
            if self.path.is_dir():
                return (self.path / member).read_bytes()
            with ZipFile(self.path) as archive:
                return archive.read(member)
        except (BadZipFile, zlib.error, EOFError) as error:
            raise InputError(
                f"{self.path / member}: damaged zip archive ({error}); fetch it again"
            ) from None
        except (OSError, RuntimeError, NotImplementedError) as error:
            raise InputError(
                f"{self.path / member}: cannot be read ({error}); "
                "check its permissions, or unpack the archive and name the folder"
            ) from None


def _gunzip(content: bytes) -> bytes:
    """As gzip.decompress, which takes a third longer since it does not know the size."""
    size = int.from_bytes(content[-4:], "little")
    # The trailer's size is that of the last member only: no second member may begin anywhere.
    if size <= MAX_GZIP_RATIO * len(content) and content.rfind(GZIP_MAGIC) == 0:
        unpacked = zlib.decompress(content, GZIP_WBITS, size)
        if len(unpacked) == size:
            return unpacked
    return gzip.decompress(content)


def open_source(path: Path) -> Source:
    """The files of a folder (not of its subfolders) or of a zip archive (of all its folders).

    Raises:
        InputError: `path` is neither, or is a damaged or unsafe archive.
    """
    if path.is_dir():
        return Source(path, {entry.name: entry.name for entry in path.iterdir()})
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; name a folder or zip of TrackML files")
    try:
        with ZipFile(path) as archive:
            names = archive.namelist()
    except (BadZipFile, OSError) as error:
        raise InputError(
            f"{path}: not a folder and not a readable zip archive ({error}); fetch it again "
            "or name the folder that holds the event files"
        ) from None
    return Source(path, _safe_members(path, names))


def _safe_members(path: Path, names: list[str]) -> dict[str, str]:
    members: dict[str, str] = {}
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or DRIVE.match(name):
            raise InputError(
                f"{path}: holds the unsafe member {name!r}; refused: make the archive again "
                "with relative names inside it"
            )
        # macOS archives hold a shadow "__MACOSX/._name" of each file.
        if name.endswith("/") or parts.name.startswith("._"):
            continue
        if parts.name in members:
            raise InputError(
                f"{path}: holds {parts.name} twice ({members[parts.name]}, {name}); "
                "unpack it and name one of the folders"
            )
        members[parts.name] = name
    return members
