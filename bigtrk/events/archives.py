"""Reads an event's tables from a folder or, in memory, from a zip archive (it is not extracted)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import check_members, gunzip, limit_of, read_member
from bigtrk.errors import InputError, damage_told

GZIP_MAGIC = b"\x1f\x8b\x08"


@dataclass(frozen=True)
class Source:
    """A folder or zip archive. members: maps a file's name without folders to its name inside."""

    path: Path
    members: dict[str, str]

    def find(self, name: str) -> str | None:
        """Returns `name` or `name`.gz, whichever is in `members`; None if neither is."""
        return next((file for file in (name, name + ".gz") if file in self.members), None)

    def where(self, file: str) -> str:
        """Returns how messages name `file`."""
        return str(self.path / self.members[file])

    def read(self, file: str) -> bytes:
        """Returns the content of `file`, unpacked; InputError above the limit of `bigtrk.disk`."""
        member = self.members[file]
        if self.path.is_dir():
            content = read_bytes(self.path / member)
            limit = limit_of(len(content))
        else:
            told = damage_told(f"{self.path}: {member} cannot be read", "fetch the archive again")
            with told, ZipFile(self.path) as archive:
                content, limit = read_member(self.path, archive, member)
        if not content.startswith(GZIP_MAGIC):
            if file.endswith(".gz"):
                raise InputError(
                    f"{self.where(file)}: is not a gzip file, although it is named .gz; fetch it "
                    f"again, or rename it to {file.removesuffix('.gz')} if it is plain text"
                )
            return content
        with damage_told(f"{self.where(file)}: is damaged or truncated", "fetch it again"):
            return gunzip(content, limit, self.where(file))

    def sizes(self, files: Mapping[str, str | None]) -> dict[str, int]:
        """Returns the size of each event's file in bytes, unpacked if in an archive; 0 if the file
        has disappeared. Events whose file is None are left out.
        """
        found = {event: self.members[file] for event, file in files.items() if file}
        if self.path.is_dir():
            paths = {event: self.path / file for event, file in found.items()}
            return {e: path.stat().st_size if path.exists() else 0 for e, path in paths.items()}
        with ZipFile(self.path) as archive:
            return {event: archive.getinfo(file).file_size for event, file in found.items()}


def open_source(path: Path) -> Source:
    """Opens a folder (without subfolders) or a zip archive (with all its folders) and lists its
    files. InputError if `path` is neither, or is a damaged or unsafe archive.
    """
    if path.is_dir():
        return Source(path, {entry.name: entry.name for entry in path.iterdir()})
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder; name a folder or zip of events, or the beginning of "
            "an event's file names, such as DIR/event000001000"
        )
    check_file(path)
    told = damage_told(
        f"{path}: is neither a folder nor a readable zip archive",
        "fetch the archive again, or name the folder that holds the event files",
    )
    with told, ZipFile(path) as archive:
        check_members(path, archive)
        names = archive.namelist()
    members: dict[str, str] = {}
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        # macOS archives hold a shadow "__MACOSX/._name" of each file; Parquet is read in folders.
        if name.endswith(("/", ".parquet")) or parts.name.startswith("._"):
            continue
        if parts.name in members:
            raise InputError(
                f"{path}: holds {parts.name} twice ({members[parts.name]}, {name}); "
                "unpack it and name one of the folders"
            )
        members[parts.name] = name
    return Source(path, members)
