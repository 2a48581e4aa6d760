"""The file systems that folders lie on: where their files are, and how much is free."""

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
# Types whose files lie on other machines, as Linux names them.
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p"}
_NETWORK |= {"glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "fuse.sshfs", "fuse.ceph"}
_NETWORK |= {"fuse.glusterfs", "fuse.beegfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs"}
_MEMORY = {"tmpfs", "ramfs"}


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Returns the type of the file system of `folder` if that lies on other machines, else None."""
    kind = _type_of(folder.resolve(), mounts)
    return kind if kind in _NETWORK else None


def memory_file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Returns the type of the file system of `folder` if its files lie in memory, else None."""
    kind = _type_of(folder.resolve(), mounts)
    return kind if kind in _MEMORY else None


def free_bytes(place: Path | int) -> int:
    """Returns the bytes that this user may still fill where a folder, or an open file, lies.

    Raises:
        OSError: there is no such folder.
    """
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def _type_of(path: Path, mounts: Path) -> str | None:
    """Returns the type of the file system mounted nearest above `path`, the last of several."""
    found: dict[Path, str] = {}
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    for line in lines:  # proc(5): the fourth field is the place, the type follows " - "
        fields, _, after = line.partition(" - ")
        place = fields.split()[4].encode().decode("unicode_escape")
        found[Path(place)] = after.split()[0]
    return next((found[place] for place in (path, *path.parents) if place in found), None)
