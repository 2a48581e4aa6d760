"""Folders that are either absent or whole: temporary name, fsync, rename."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigtrk.disk.files import sync_folder, unlinked


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder beside `path`; on success the files written there are
    fsynced, and it takes the place of `path` and of all that was there.

    If the block raises, the temporary folder is removed and `path` is left as it was.

    Raises:
        InputError: `path` is a symbolic link.
    """
    unlinked(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{platform.node()}.{os.getpid()}"
    temporary, aside = (path.with_name(f".{path.name}.{writer}.{end}") for end in ("tmp", "old"))
    for left in (temporary, aside):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        sync_folder(temporary)
        if path.exists():
            path.rename(aside)
        temporary.rename(path)
        sync_folder(path.parent)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        for left in (temporary, aside):
            shutil.rmtree(left, ignore_errors=True)
