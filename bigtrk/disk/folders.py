"""Folders that are either absent or whole: temporary name, fsync, rename."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigtrk.disk.files import naming, sync_folder, unlinked
from bigtrk.errors import InputError


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
        with naming(path):
            yield temporary
            _sync(temporary)
        if path.exists():
            path.rename(aside)
        temporary.rename(path)
        sync_folder(path.parent)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        for left in (temporary, aside):
            shutil.rmtree(left, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Makes all below a folder survive a power loss."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
    sync_folder(folder)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields as `whole_folder` does, for a folder that is new or empty.

    Raises:
        InputError: something is at `path` already, and is left as it was.
    """
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise InputError(f"{path}: holds something already; name a new folder, or remove it")
    with whole_folder(path) as temporary:
        yield temporary
