"""File systems of folders; and unnamed files, which vanish with the process. These bypass the page
cache, whose pages would count as memory of a job.
"""

import fcntl
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from bigtrk.errors import RankError, reason

MOUNTS = Path("/proc/self/mountinfo")
# Types whose files lie on other machines, as Linux names them.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p"}
NETWORK |= {"glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "fuse.sshfs", "fuse.ceph"}
NETWORK |= {"fuse.glusterfs", "fuse.beegfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs"}
MEMORY = {"tmpfs", "ramfs"}
PAGE = 4096  # direct reads and writes begin and end at multiples of this


def free_bytes(place: Path | int) -> int:
    """Returns the bytes that this user may still write to the disk of a folder or open file."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Returns the type of the file system of `folder`, such as "nfs4"; None if unknown."""
    path = folder.resolve()
    found: dict[Path, str] = {}
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    for line in lines:  # proc(5): the fourth field is the place, the type follows " - "
        fields, _, after = line.partition(" - ")
        place = fields.split()[4].encode().decode("unicode_escape")
        found[Path(place)] = after.split()[0]
    return next((found[place] for place in (path, *path.parents) if place in found), None)


@dataclass
class UnnamedFile:
    """An open file without a name, of `size` bytes. direct: it bypasses the page cache."""

    handle: int
    direct: bool
    size: int = 0

    def grow(self, size: int) -> None:
        """Reserves `size` bytes on disk; without O_DIRECT, which may refuse this."""
        flags = fcntl.fcntl(self.handle, fcntl.F_GETFL)
        fcntl.fcntl(self.handle, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        try:
            os.posix_fallocate(self.handle, 0, size)
        except OSError as error:
            asked, free = (n / 2**30 for n in (size - self.size, free_bytes(self.handle)))
            said = f"{error.strerror}: {asked:.3f} GiB are needed, but {free:.3f} GiB are free"
            raise OSError(error.errno, said) from None
        finally:
            fcntl.fcntl(self.handle, fcntl.F_SETFL, flags)
        self.size = size

    def move(self, call: Callable[..., int], pages: memoryview, start: int) -> None:
        """Reads or writes all `pages` from byte `start`, by repeated `call` (preadv or pwritev)."""
        done = 0
        while done < len(pages):
            moved = call(self.handle, [pages[done:]], start + done)
            if moved == 0:
                raise OSError("a file ends too early")
            done += moved
        if not self.direct:
            os.posix_fadvise(self.handle, start, len(pages), os.POSIX_FADV_DONTNEED)


class UnnamedFiles:
    """A pool of unnamed files in `folder`. option: the setting that named it, for messages."""

    def __init__(self, folder: Path, option: str) -> None:
        self.folder, self._option = folder, option
        self._unused: list[UnnamedFile] = []
        self._taking = Lock()

    def take(self, size: int) -> UnnamedFile:
        """Returns the smallest unused file that is large enough, else enlarges the largest."""
        with self._taking:  # other threads free files meanwhile
            unused = sorted(self._unused, key=lambda file: file.size)
            fitting = [file for file in unused if file.size >= size]
            file = (fitting or unused[-1:] or [_open(self.folder)])[0]
            if file.size < size:
                file.grow(size)
            if file in unused:
                self._unused.remove(file)
            return file

    def take_back_after(self, user: object, file: UnnamedFile) -> None:
        """Returns the file to the pool once the object `user` is garbage collected."""
        weakref.finalize(user, self._unused.append, file)

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turns an OSError of the block into a RankError. what: the work that failed."""
        try:
            yield
        except OSError as error:
            raise RankError(
                f"{self._option}={self.folder}: {what} ({reason(error)}); name a folder "
                f"on a working local disk with enough free space"
            ) from None


def _open(folder: Path) -> UnnamedFile:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as opened:
        handle = os.dup(opened.fileno())
    flags, direct = fcntl.fcntl(handle, fcntl.F_GETFL), True
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:  # not every file system knows how (tmpfs does not)
        direct = False
    file = UnnamedFile(handle, direct)
    weakref.finalize(file, os.close, handle)
    return file


def padded(n_bytes: int) -> int:
    """Rounds a number of bytes up to whole pages."""
    return -(-n_bytes // PAGE) * PAGE
