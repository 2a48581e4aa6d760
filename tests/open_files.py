"""The files that a process has open, with a name or without."""

from contextlib import suppress
from pathlib import Path


def open_files(folder: Path, process: int | str = "self") -> list[str]:
    """Lists those in a folder, as /proc names them."""
    found = []
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as that of the listing itself
            found.append(str(link.readlink()))
    return [name for name in found if str(folder) in name]
